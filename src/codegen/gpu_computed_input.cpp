// See gpu_computed_input.h.
#include "codegen/gpu_computed_input.h"

#include <algorithm>

#include "codegen/contraction.h"
#include "codegen/emit.h"
#include "codegen/gpu_generator.h"
#include "codegen/loop_analysis.h"
#include "codegen/routine_types.h"
#include "kernels/layout_routines.h"

namespace sardonyx::codegen {
namespace {

// Kernels repeat the expression for each element that a thread has at a time, so longer ones would make much code.
constexpr int kMostInstructions = 160, kMostOfScan = 64;
// Of an expression that is computed twice: about what it costs to read an element again instead.
constexpr int kMostTwice = 24;
// The same of places: 8 bytes each, with checks and strides in 64 bits.
constexpr int kMostOfPlace = 64;
constexpr std::size_t kMostLoads = 12;
constexpr std::int64_t kLeastAcross = 16;  // elements along both variables, from which on a transpose is one

// Which routines compute inputs, which of their inputs, and how long the expression may be.
struct Taker {
  std::string_view routine;
  std::size_t input;
  int instructions;
};
// Rows are computed for each pack of their elements.
constexpr Taker kTakers[] = {{"scatter", 1, kMostOfPlace},
                             {"scatter", 2, kMostInstructions},
                             {"scan", 0, kMostOfScan},
                             {"fourier", 0, kMostOfScan}};

// Whether it is what a scatter adds to, and so on, in the result's shape. That loop stays a kernel, which stores the
// result instead of a copy of it.
bool is_scattered_to(const Node& routine, const RoutineOp& r, std::size_t input, const Node& loop) {
  const Value *data = loop.outputs[0], *out = routine.outputs[0];
  if (r.launches || r.name != "scatter" || input != 0 || !is_const(r.params[0]) || r.params[0]->i == 0 ||
      routine.inputs[0] != data || data->rank() != out->rank() || !out->storage_order.empty())
    return false;
  for (std::size_t d = 0; d < data->shape.size(); ++d)
    if (!idx::provably_equal(data->shape[d], out->shape[d])) return false;
  return true;
}

// Whether a scan may sum the parts of long lines first, and so read its input twice (Routine::scan).
bool reads_twice(const Value& x) {
  std::int64_t n = 0, inner = 0;
  if (is_const_int(x.shape[2], inner) && inner >= sdx::layout::kScanNeighbours) return false;
  return !is_const_int(x.shape[1], n) || n > 2 * sdx::layout::kScanPart;
}

class ComputedInput {
 public:
  ComputedInput(const Stage& stage, const Chip& chip, const ComputedInputOptions& options)
      : options_(options), chip_(chip), out_(*stage.out), range_(options.from_inputs), emit_(source_.text) {
    Stage s = stage;
    s.body = widened_result(s.body, out_.dtype);
    loop_ = flat_loop(s);
    emit_.plain_reductions = true;
    emit_.quantizes = true;
    emit_.guards_addresses = chip.policy.any_address;
    emit_.scales_are_arguments = of_eight_bits(out_.dtype) || loads_eight_bits(s.body);
    emit_.for_halves = is_float(out_.dtype) && size_of(out_.dtype) <= 2;
    emit_.of_halves = options.narrow;
    emit_.range = &range_;
    emit_.buffers.resize(options.first_buffer);
    emit_.symbols = options.values;
    emit_.divisors = options.divisors;
  }

  ComputedInputSource run() {
    plan_packs();
    const std::string &name = options_.name, packed = "packed_" + name;
    emit_.open(fmt::format("const bool {} = [&]() SDX_LAMBDA", packed));
    emit_.line(fmt::format("return {};", pack_condition()));
    emit_.close("();");
    emit_.open(fmt::format("const auto fetch_{} = [&]<u32 N>(i64 at) SDX_LAMBDA", name));
    write_fetch();
    emit_.close(";");
    emit_.open(fmt::format("const auto compute_{} = [&]<u32 N>(const auto& loaded, i64 at) SDX_LAMBDA", name));
    write_compute();
    emit_.close(";");
    emit_.line(fmt::format("const auto {0} = computed<{1}, {2}>({3}, fetch_{0}, compute_{0});", name,
                           storage_name(out_.dtype), packing_.length, packed));
    source_.buffers.assign(emit_.buffers.begin() + static_cast<std::ptrdiff_t>(options_.first_buffer),
                           emit_.buffers.end());
    source_.values = emit_.symbols;
    source_.divisors = emit_.divisors;
    source_.limit = range_.limit();
    return std::move(source_);
  }

 private:
  // A load that fetch passes on to compute.
  struct Fetched {
    Expr load;
    bool pack = false;  // else the same for all elements
  };

  void plan_packs() {
    if (!loop_.vars.empty()) {
      const Expr& inner = loop_.vars.back();
      packing_ = find_packing({loop_.body}, {{&out_, loop_.offset}}, inner);
      std::int64_t n = 0;
      if (loop_.vars.size() > 1) {  // packs stay within a row
        while (packing_.length > 1 && is_const_int(inner->args[0], n) && n % packing_.length != 0) packing_.length /= 2;
        if (packing_.length > 1 && !is_const(inner->args[0])) add_multiple(packing_, inner->args[0]);
      }
    }
    if (packing_.length == 1) packing_ = {};
    certain_parts(loop_.body, [&](const Expr& x) {
      if (x->op != Op::kLoad) return true;
      const bool pack = std::ranges::any_of(packing_.loads, [&](const Expr& l) { return same(l, x); });
      const bool known = std::ranges::any_of(fetched_, [&](const Fetched& f) { return same(f.load, x); });
      if (!known && (pack || packing_.length == 1 || !uses_var(x, loop_.vars.back()))) fetched_.push_back({x, pack});
      return false;
    });
  }

  std::string pack_condition() {
    if (packing_.length == 1) return "false";
    std::vector<std::string> all;
    for (const Expr& m : packing_.multiples)
      all.push_back(fmt::format("({} & {}) == 0", emit_.value(m), packing_.length - 1));
    for (const Expr& l : packing_.loads) {
      std::string one = fmt::format("aligned({})", emit_.buffer(l->value));
      if (std::ranges::find(all, one) == all.end()) all.push_back(std::move(one));
    }
    return all.empty() ? "true" : fmt::format("{}", fmt::join(all, " && "));
  }

  // Computes the variables from the position `at`.
  void decode() {
    if (loop_.vars.empty()) return;
    Expr all = 1;
    for (const Expr& v : loop_.vars) all = all * v->args[0];
    const bool narrow = range_.narrow(all);
    const std::string q = emit_.fresh("q");
    emit_.line(fmt::format("{0} {1} = {0}(at);", narrow ? "i32" : "i64", q));
    emit_digits(emit_, loop_.vars, q, narrow);
  }

  void write_fetch() {
    decode();
    std::string members, values;
    for (std::size_t k = 0; k < fetched_.size(); ++k) {
      const Expr& l = fetched_[k].load;
      if (fetched_[k].pack)
        values +=
            fmt::format("{}load_pack<N>({} + {})", k ? ", " : "", emit_.buffer(l->value), emit_.value(l->args[0]));
      else
        values += (k ? ", " : "") + emit_.value(l);
      members += fetched_[k].pack ? fmt::format(" Pack<{}, N> v{};", storage_name(l->dtype), k)
                                  : fmt::format(" {} v{};", emit_.type_of(l), k);
    }
    emit_.line(fmt::format("struct Loaded {{{} }};", members));
    emit_.line(fmt::format("return Loaded{{{}}};", values));
  }

  void write_compute() {
    decode();
    const std::string y = emit_.fresh("y");
    emit_.line(fmt::format("Pack<{}, N> {};", storage_name(out_.dtype), y));
    for (std::size_t k = 0; k < fetched_.size(); ++k)
      if (!fetched_[k].pack) emit_.bind_value(fetched_[k].load, fmt::format("loaded.v{}", k));
    const std::string first = loop_.vars.empty() ? "" : emit_.value(loop_.vars.back());
    emit_.line("#pragma unroll");
    emit_.open("for (u32 l = 0; l < N; ++l)");
    if (!first.empty()) {
      const Expr& inner = loop_.vars.back();
      const std::string i = emit_.fresh("i");
      emit_.line(fmt::format("const {0} {1} = {2} + {0}(l);", emit_.type_of(inner), i, first));
      emit_.bind(inner, i);
    }
    for (std::size_t k = 0; k < fetched_.size(); ++k)
      if (fetched_[k].pack)
        emit_.bind_value(fetched_[k].load, element_text(fetched_[k].load->dtype, fmt::format("loaded.v{}[l]", k)));
    emit_.guards_loads = chip_.policy.guarded_loads;
    emit_.line(fmt::format("{}[l] = {};", y, bits_text(out_.dtype, emit_.value(loop_.body))));
    emit_.guards_loads = false;
    emit_.close();
    emit_.line(fmt::format("return {};", y));
  }

  const ComputedInputOptions& options_;
  const Chip& chip_;
  const Value& out_;
  FlatLoop loop_;
  Packing packing_;
  std::vector<Fetched> fetched_;
  ComputedInputSource source_;
  IndexRange range_;
  Emitter emit_;
};

}  // namespace

bool gpu_computes_input(const Node& routine, std::size_t input, const Node& loop, std::string& why) {
  const auto* r = routine.as<RoutineOp>();
  const auto* l = loop.as<LoopOp>();
  if (r && l && is_scattered_to(routine, *r, input, loop)) return element(loop.outputs[0]->dtype) != nullptr;
  const Taker* taker = std::ranges::find_if(
      kTakers, [&](const Taker& t) { return r && !r->launches && r->name == t.routine && input == t.input; });
  if (taker == std::end(kTakers) || !l) return false;
  const Value& out = *loop.outputs[0];
  const DType t = out.dtype;
  if (bits_of(t) < 8 || !element(t)) return false;
  const Expr body = widened_result(l->body, t);
  bool random = false;
  visit(body, [&](const Expr& x) { random |= x->op == Op::kRandom; });
  const FlatLoop flat = flat_loop({const_cast<Value*>(&out), l->vars, l->vars, body});
  if (l->body->has_reduce)
    why = "it reduces";
  else if (random || instructions(body) > taker->instructions || loads_of(body).size() > kMostLoads)
    why = "it is too long";
  else if (r->name == "scan" && reads_twice(*routine.inputs[input]) && instructions(body) > kMostTwice)
    why = "it is long, and would be computed twice";
  else if (!flat.vars.empty() && reads_across(flat, kLeastAcross))
    why = "it transposes";
  else
    return true;
  return false;
}

ComputedInputSource computed_input(const Stage& stage, const Chip& chip, const ComputedInputOptions& options) {
  return ComputedInput(stage, chip, options).run();
}

}  // namespace sardonyx::codegen
