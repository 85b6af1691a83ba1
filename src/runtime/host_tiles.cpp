// GEMMs and convolutions on the host.
#include <algorithm>
#include <optional>

#include "host/conv.h"
#include "host/gemm.h"
#include "host/gemm_by_definition.h"
#include "host/integer_tiles.h"
#include "program/limits.h"
#include "runtime/host_backend.h"

namespace sardonyx {
namespace {

// If the first post-operation adds one value per channel (dim `channel`), removes it from the list: it becomes the
// kernel's bias. Returns its buffer, or -1.
int take_bias(std::vector<PostOp>& ops, std::vector<int>& operands, std::size_t channel, std::int64_t n) {
  if (ops.empty() || ops[0].kind != PostKind::kAddTensor || ops[0].dtype != DType::kFloat32) return -1;
  for (std::size_t k = 0; k < ops[0].dims.size(); ++k)
    if (ops[0].dims[k] != (k == channel ? n : 1)) return -1;
  const int bias = operands[0];
  ops.erase(ops.begin());
  operands.erase(operands.begin());
  return bias;
}

// Evaluates post-operations; appends their operands' extents and buffers.
void add_post_ops(const std::vector<PostInfo>& infos, std::vector<PostOp>& ops, std::vector<int>& operands,
                  const RunState& run) {
  for (const PostInfo& i : infos) {
    PostOp op;
    op.kind = i.kind;
    op.alpha = i.alpha;
    op.beta = i.beta;
    op.dtype = i.dtype;
    if (i.operand >= 0) {
      op.dims = run.dims(i.dims);
      operands.push_back(i.operand);
    }
    ops.push_back(std::move(op));
  }
}

// The generated epilogue of a product of integers.
class AccumulatorCall {
 public:
  AccumulatorCall(const AccumulatorEpilogue& epilogue, const HostBackend& backend, const RunState& run)
      : launch_(epilogue.launch.front()), sums_(epilogue.accumulators), kernel_(backend.kernel(launch_.kernel)) {
    check(launch_.buffers.size() <= kMaxKernelArguments, "a kernel with {} buffers", launch_.buffers.size());
    for (const Expr& s : launch_.symbols) symbols_.push_back(run.eval(s));
  }

  /// For one run.
  host::AccumulatorFunction function(const RunState& run) {
    addresses_.clear();
    for (std::size_t k = 0; k < launch_.buffers.size(); ++k)
      addresses_.push_back(static_cast<int>(k) == sums_ ? nullptr : static_cast<char*>(run.at(launch_.buffers[k])));
    return {[](void* context, const std::int32_t* sums, std::int64_t begin, std::int64_t end) {
              static_cast<const AccumulatorCall*>(context)->call(sums, begin, end);
            },
            this, kAccumulatorBlock};
  }

 private:
  void call(const std::int32_t* sums, std::int64_t begin, std::int64_t end) const {
    char* buffers[kMaxKernelArguments];
    std::copy(addresses_.begin(), addresses_.end(), buffers);
    buffers[sums_] = reinterpret_cast<char*>(const_cast<std::int32_t*>(sums));
    kernel_(buffers, symbols_.data(), begin, end);
  }

  const LaunchStep& launch_;
  const int sums_;
  HostKernel kernel_;
  std::vector<std::int64_t> symbols_;
  std::vector<char*> addresses_;
};

bool is_integer_gemm(const RunState& run, int a, int b) {
  return run.info(a).dtype == DType::kUInt8 && run.info(b).dtype == DType::kInt8;
}

class HostTile : public PreparedStep {
 public:
  HostTile(HostQueue& queue, const char* kind) : queue_(queue), kind_(kind) {}

  bool empty = false;  ///< the output has no elements
  std::shared_ptr<const host::TileKernel> kernel;
  std::optional<host::GemmDesc> definition;  ///< a GEMM with K = 0, which no kernel supports
  int src = -1, weights = -1, bias = -1, out = -1;
  std::vector<int> operands;
  std::optional<AccumulatorCall> accumulators;

  /// Called when the kernel is known.
  void finish(RunState& run, bool constant) {
    scratch_ = kernel->scratch_bytes();
    if (!constant) return;
    packed_ = queue_.backend().packed(weights, *kernel, run);
    if (run.prefetch) place_ = run.prefetch->add();
  }

  void enqueue(RunState& run) override {
    if (empty) return;
    addresses_.clear();
    for (int o : operands) addresses_.push_back(run.at(o));
    if (definition) return host::gemm_by_definition(*definition, run.at(src), run.at(weights), addresses_, run.at(out));
    host::TileArgs args;
    args.src = run.at(src);
    args.packed = packed_.get();
    args.weights = run.at(weights);
    if (bias >= 0) args.bias = run.at(bias);
    args.operands = addresses_;
    args.out = run.at(out);
    args.scratch = queue_.scratch(scratch_);
    if (accumulators) args.accumulators = accumulators->function(run);
    if (place_ >= 0) args.later = run.prefetch->take(place_, kernel->prefetches());
    kernel->run(args);
    if (place_ >= 0) run.prefetch->set(place_, packed_->newest());
  }
  std::string name() const override { return kind_; }

 private:
  HostQueue& queue_;
  const char* kind_;
  std::shared_ptr<host::PackedWeights> packed_;
  int place_ = -1;           ///< index in the plan's WeightPrefetch; -1: none
  std::size_t scratch_ = 0;  ///< bytes
  std::vector<const void*> addresses_;
};

}  // namespace

namespace {

void prepare_integers(HostTile& t, const host::GemmDesc& d, const GemmStep& g, HostQueue& queue, RunState& run) {
  const bool constant = d.b_constant && d.k > 0;  // without K there is nothing to pack
  host::ByteGemmDesc b{d.batch_a, d.batch_b, d.m, d.n, d.k, d.trans_b, constant, d.threads};
  t.kernel = host::make_byte_gemm(b);
  if (!g.epilogue.launch.empty()) t.accumulators.emplace(g.epilogue, queue.backend(), run);
  t.finish(run, constant);
}

}  // namespace

std::unique_ptr<PreparedStep> prepare_host_tile(const GemmStep& g, HostQueue& queue, RunState& run) {
  auto tile = std::make_unique<HostTile>(queue, "gemm");
  HostTile& t = *tile;
  t.src = g.a;
  t.weights = g.b;
  t.out = g.out;
  host::GemmDesc d;
  d.batch_a = run.dims(g.batch_a);
  d.batch_b = run.dims(g.batch_b);
  d.m = run.eval(g.m);
  d.n = run.eval(g.n);
  d.k = run.eval(g.k);
  d.trans_a = g.trans_a;
  d.trans_b = g.trans_b;
  d.a = run.info(g.a).dtype;
  d.b = run.info(g.b).dtype;
  d.out = run.info(g.out).dtype;
  d.threads = run.threads;
  t.empty = run.bytes(g.out) == 0;
  if (t.empty) return tile;
  const bool one_matrix = std::all_of(d.batch_b.begin(), d.batch_b.end(), [](std::int64_t x) { return x == 1; });
  d.b_constant = run.is_constant(g.b) && one_matrix;
  if (is_integer_gemm(run, g.a, g.b)) {
    prepare_integers(t, d, g, queue, run);
    return tile;
  }
  add_post_ops(g.post, d.post, t.operands, run);
  if (d.k == 0) {
    t.definition = std::move(d);
    return tile;
  }
  t.bias = take_bias(d.post, t.operands, std::max(d.batch_a.size(), d.batch_b.size()) + 1, d.n);
  d.bias = t.bias >= 0;
  std::string why;
  t.kernel = host::find_gemm(d, why);
  if (!t.kernel)
    fail(ErrorKind::kInternal, "internal error: no host kernel matches a GEMM of {}x{}x{}: {}", d.m, d.n, d.k, why);
  t.finish(run, d.b_constant);
  return tile;
}

namespace {

void prepare_integers(HostTile& t, const host::ConvDesc& d, const ConvStep& c, HostQueue& queue, RunState& run) {
  host::ByteConvDesc b;
  b.batch = d.batch;
  b.channels = d.in_channels;
  b.features = d.out_channels;
  const auto axes = static_cast<std::size_t>(d.spatial);
  if (axes < 1 || axes > 2) fail(ErrorKind::kInternal, "internal error: a convolution of integers over {} dims", axes);
  for (std::size_t k = 0; k < axes; ++k) {
    const std::size_t to = k + 2 - axes;
    b.in[to] = d.in[k];
    b.out[to] = d.out[k];
    b.kernel[to] = d.kernel[k];
    b.stride[to] = d.stride[k];
    b.dilation[to] = d.dilation[k];
    b.pad_begin[to] = d.pad_begin[k];
  }
  b.padding = static_cast<int>(c.padding);
  b.features_first = !c.channels_last;
  b.weights_constant = run.is_constant(c.w);
  b.threads = run.threads;
  t.kernel = host::make_byte_convolution(b);
  if (!c.epilogue.launch.empty()) t.accumulators.emplace(c.epilogue, queue.backend(), run);
  t.finish(run, b.weights_constant);
}

}  // namespace

std::unique_ptr<PreparedStep> prepare_host_tile(const ConvStep& c, HostQueue& queue, RunState& run) {
  auto tile = std::make_unique<HostTile>(queue, "conv");
  HostTile& t = *tile;
  t.src = c.x;
  t.weights = c.w;
  t.out = c.out;
  host::ConvDesc d;
  const auto x = run.dims(c.x_shape), w = run.dims(c.w_shape), out = run.dims(c.out_shape);
  d.spatial = static_cast<int>(c.strides.size());
  d.batch = x[0];
  d.in_channels = x[1];
  d.out_channels = out[1];
  d.groups = c.groups;
  for (std::size_t k = 0; k < c.strides.size(); ++k) {
    d.in[k] = x[k + 2];
    d.out[k] = out[k + 2];
    d.kernel[k] = w[k + 2];
    d.stride[k] = c.strides[k];
    d.dilation[k] = c.dilations[k];
    d.pad_begin[k] = run.eval(c.pads_begin[k]);
    d.pad_end[k] = run.eval(c.pads_end[k]);
  }
  d.transposed = c.transposed;
  d.layout = c.channels_last ? host::ImageLayout::kChannelsLast : host::ImageLayout::kChannelsFirst;
  d.src = run.info(c.x).dtype;
  d.weights = run.info(c.w).dtype;
  d.dst = run.info(c.out).dtype;
  d.threads = run.threads;
  t.empty = run.bytes(c.out) == 0;
  if (t.empty) return tile;
  if (is_integer_gemm(run, c.x, c.w)) {
    prepare_integers(t, d, c, queue, run);
    return tile;
  }
  add_post_ops(c.post, d.post, t.operands, run);
  t.bias = c.bias >= 0 ? c.bias : take_bias(d.post, t.operands, c.channels_last ? out.size() - 1 : 1, d.out_channels);
  d.bias = t.bias >= 0;
  d.weights_constant = run.is_constant(c.w);
  d.exact = c.exact;
  std::string why;
  t.kernel = host::find_convolution(d, why);
  if (!t.kernel) fail(ErrorKind::kInternal, "internal error: no host kernel matches a convolution: {}", why);
  t.finish(run, d.weights_constant);
  return tile;
}

}  // namespace sardonyx
