// See library_step.h.
#include "lower/library_step.h"

#include <algorithm>
#include <cmath>

#include "host/convert.h"
#include "tiles/match.h"
#include "vendor/gemm_library.h"

namespace sardonyx {
namespace {

constexpr float kLargestHalf = 65504;           // of float16
constexpr std::int64_t kLargestBias = 1 << 20;  // maximum columns of a bias that is converted for a vendor's library

// Whether an operand has one value for each column.
bool is_row(const tiles::PostStep& p, const Expr& n) {
  bool row = !p.dims.empty() && idx::provably_equal(p.dims.back(), n);
  for (std::size_t k = 0; k + 1 < p.dims.size(); ++k) row = row && is_const(p.dims[k], 1);
  return row;
}

// Adds a constant, in float32 or rounded to 16 bits.
int constant_of(Program& program, const std::vector<float>& values, DType dtype) {
  std::byte* to = nullptr;
  Data data = make_data(values.size() * size_of(dtype), &to);
  host::from_float32(dtype, values.data(), to, static_cast<std::int64_t>(values.size()), 1);
  BufferInfo b;
  b.kind = BufferInfo::Kind::kConstant;
  b.dtype = dtype;
  b.shape = {Expr(static_cast<std::int64_t>(values.size()))};
  b.constant = static_cast<int>(program.constants.size());
  program.constants.push_back(std::move(data));
  program.buffers.push_back(std::move(b));
  return static_cast<int>(program.buffers.size()) - 1;
}

// The epilogue in the library's form: bias along columns, a residual, and finally an activation. False if impossible.
bool library_epilogue(ProgramBuilder& builder, const tiles::GemmMatch& g, LibraryEpilogue& epilogue, LibraryCall& l,
                      std::vector<float>& bias) {
  using Kind = PostKind;
  const DType out = g.out->dtype;
  for (const tiles::PostStep& p : g.post) {
    if (epilogue.activation != GemmActivation::kNone) return false;
    if (p.op.kind == Kind::kRelu) {
      epilogue.activation = GemmActivation::kRelu;
    } else if (p.op.kind == Kind::kGeluTanh) {
      epilogue.activation = GemmActivation::kGeluTanh;
    } else if (p.op.kind == Kind::kLinear && p.op.alpha == 1 && p.op.beta == 0) {
      continue;
    } else if (std::int64_t n = 0; p.op.kind == Kind::kLinear && p.op.alpha == 1 && !epilogue.bias &&
                                   !epilogue.residual && is_const_int(g.n, n) && n <= kLargestBias) {
      // A bias that is the same for all columns.
      epilogue.bias = true;
      bias.assign(static_cast<std::size_t>(n), p.op.beta);
    } else if (p.op.kind == Kind::kAddTensor && p.op.dtype == DType::kFloat32 && out != DType::kFloat32 &&
               p.operand->is_constant() && is_const_int(g.n, n) && n <= kLargestBias && is_row(p, g.n) &&
               storage_of(p.operand)->storage_order.empty() && !epilogue.bias) {
      // Stored like other weights: in the precision of the GEMM.
      const auto* x = p.operand->constant_as<float>();
      epilogue.bias = true;
      bias.assign(x, x + n);
    } else if (p.op.kind == Kind::kAddTensor && p.op.dtype == out) {
      const Exprs full = g.out->shape;
      const bool row = is_row(p, g.n);
      bool all = p.dims.size() == full.size();
      for (std::size_t k = 0; k < p.dims.size(); ++k) all = all && idx::provably_equal(p.dims[k], full[k]);
      // For a single row, a residual may be passed as the bias.
      if (row && !epilogue.bias && storage_of(p.operand)->storage_order.empty()) {
        epilogue.bias = true;
        l.bias = builder.buffer(p.operand);
      } else if (all && !epilogue.residual && p.operand != g.out) {
        epilogue.residual = true;
        l.residual = builder.buffer(p.operand);
      } else {
        return false;
      }
    } else {
      return false;
    }
  }
  // Our own kernels add it in float32; in 16 bits it must not overflow.
  if (out != DType::kFloat32 &&
      std::any_of(bias.begin(), bias.end(), [](float v) { return !(std::abs(v) <= kLargestHalf); }))
    return false;
  l.activation = epilogue.activation;
  return true;
}

// Inserts, for each size, the library's candidates that were measured to be faster than our own best one, before that
// one. True if there are any.
bool add_library_choices(const BuildOptions& options, const LibraryEpilogue& epilogue, Choice& choice) {
  if (!options.choices) return false;
  std::vector<TunedSize> faster;
  std::vector<ProblemSizes> done;  // sizes for which our own best candidate has occurred
  for (TunedSize& x : options.choices->find(options.target, choice.problem)) {
    if (!may_be(choice, x.sizes) || std::find(done.begin(), done.end(), x.sizes) != done.end()) continue;
    if (x.library) {
      if (*x.library == epilogue) faster.push_back(std::move(x));
    } else if (std::any_of(choice.tuned.begin(), choice.tuned.end(), [&](const TunedSize& own) {
                 return own.sizes == x.sizes && own.candidate == x.candidate;
               })) {
      done.push_back(x.sizes);
    }
  }
  choice.tuned.insert(choice.tuned.begin(), faster.begin(), faster.end());
  return !faster.empty();
}

// Both operands have the same batches, or one has a single matrix for all. False for other GEMMs.
bool set_sizes(const tiles::GemmMatch& g, LibraryCall& l) {
  const auto all_one = [](const Exprs& dims) {
    return std::all_of(dims.begin(), dims.end(), [](const Expr& d) { return is_const(d, 1); });
  };
  l.one_a = all_one(g.batch_a);
  l.one_b = all_one(g.batch_b);
  for (std::size_t k = 0; k < g.batch_a.size() && !l.one_a && !l.one_b; ++k)
    if (!idx::provably_equal(g.batch_a[k], g.batch_b[k])) return false;
  const Expr batches = idx::product(l.one_a ? g.batch_b : g.batch_a);
  const bool more_rows = l.one_b && !g.trans_a;
  l.batches = more_rows ? Expr(1) : batches;
  l.m = more_rows ? batches * g.m : g.m;
  if (more_rows) l.one_a = l.one_b = false;
  l.n = g.n;
  l.k = g.k;
  l.trans_a = g.trans_a;
  l.trans_b = g.trans_b;
  return true;
}

}  // namespace

void add_library(ProgramBuilder& builder, const TileKernel& t, ChoiceStep& step) {
  const BuildOptions& options = builder.options();
  if (!options.libraries || (!options.choices && !options.all_tilings)) return;
  if (!t.node->as<MatMulOp>() || t.pairs) return;
  std::string why;
  const auto g = tiles::match_gemm(t, why);
  if (!g || !storage_of(g->out)->storage_order.empty()) return;
  LibraryCall l;
  LibraryEpilogue epilogue;
  const DType type = g->a->dtype, out = g->out->dtype;
  if (g->b->dtype != type || (out != type && out != DType::kFloat32)) return;
  std::vector<float> bias;  // passed to the library as a constant
  if (!library_epilogue(builder, *g, epilogue, l, bias) || !set_sizes(*g, l)) return;
  if (!add_library_choices(options, epilogue, step.choice) && !options.all_tilings) return;
  l.a = builder.buffer(g->a);
  l.b = builder.buffer(g->b);
  l.out = builder.buffer(g->out);
  if (!bias.empty()) l.bias = constant_of(builder.program(), bias, out);
  l.workspace = builder.temporary(DType::kFloat32,
                                  {Expr(static_cast<std::int64_t>(kLibraryWorkspace / size_of(DType::kFloat32)))});
  step.library.push_back(std::move(l));
}

}  // namespace sardonyx
