// narrow_floats(): values change their dtype in place, loads of them are cast back to float32.
#include "fuse/narrow_floats.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "graph/analysis.h"
#include "support/half_range.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr std::int64_t kWindow = 128;  // elements; longer sums are statistics
constexpr const char* kBeyond = "its values leave the range of 16-bit floats, or come near its end";

class Narrower {
 public:
  Narrower(Graph& g, const FuseOptions& options) : g_(g), options_(options), type_(options.precision) {}

  void run() {
    for (const Value* v : required_values(g_)) pin(v);
    for (const Value* v : g_.inputs)
      if (leaves_range(v, false)) wide_.insert(v);
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      g_.origin = n.origin;
      if (auto* l = n.as<LoopOp>()) {
        loop(n, *l);
      } else if (n.as<ViewOp>()) {
        if (narrowed_.count(n.inputs[0])) narrow(n.outputs[0]);
        if (wide_.count(n.inputs[0])) wide_.insert(n.outputs[0]);
      } else if (auto* m = n.as<MatMulOp>()) {
        matmul(n, *m);
      } else if (n.as<ConvOp>()) {
        tile(n, 2);
      } else if (n.as<AttentionOp>()) {
        tile(n, 3);
      }
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  void pin(const Value* v) {
    while (pinned_.insert(v).second && v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  }
  static bool is_float32(const Expr& e) { return e->dtype == kF32; }

  // Whether float32 values leave the range of float16, or come near its end: by the calibrated range of this value, or
  // where there is none, because it is computed from such values.
  bool leaves_range(const Value* v, bool reads_wide) const {
    if (type_ != DType::kFloat16 || v->dtype != kF32 || !options_.ranges) return false;
    const auto known = options_.ranges->find(v->name);
    return known == options_.ranges->end() ? reads_wide : known->second > kHalfRange;
  }
  // The same for weights, by their elements.
  bool is_wide(const Value* v) {
    if (wide_.count(v)) return true;
    if (type_ != DType::kFloat16 || v->dtype != kF32 || !v->is_constant()) return false;
    const auto [at, fresh] = constants_.emplace(v, false);
    if (fresh) {
      const Data& data = v->constant();
      const auto* x = v->constant_as<float>();
      const std::size_t count = x ? data.size / sizeof(float) : 0;
      float largest = 0;
      for (std::size_t k = 0; k < count; ++k)
        if (std::isfinite(x[k])) largest = std::max(largest, std::abs(x[k]));
      at->second = largest > static_cast<float>(most());
    }
    return at->second;
  }
  void narrow(Value* v) {
    v->dtype = type_;
    v->content = nullptr;
    narrowed_.insert(v);
  }

  // The expression with loads of narrowed values cast to float32.
  Expr expression(const Expr& e) const {
    if (!e->has_load) return e;
    return rewrite(e, [this](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad) return Expr();
      Exprs args;
      for (const Expr& a : x->args) args.push_back(expression(a));
      if (!narrowed_.count(x->value)) return load(x->value, x->value->dtype, std::move(args));
      return cast(load(x->value, type_, std::move(args)), kF32);
    });
  }

  // Elements that are only moved are not changed; computed ones are rounded, saturating at the ends of the range.
  Expr narrowed(const Expr& e) const {
    if (e->op == Op::kSelect) return select(e->args[0], narrowed(e->args[1]), narrowed(e->args[2]));
    if (e->op == Op::kConst) return constant_float(std::clamp(e->f, -most(), most()), type_);
    return cast(e, type_, type_ == DType::kFloat16 ? kCastSaturatesHalf : 0);
  }
  double most() const { return type_ == DType::kFloat16 ? 65504 : 0x1.fep127; }

  // Whether the sum runs over windows of a tensor (pooling) rather than whole dims: the sums of a softmax and the means
  // of a normalisation are statistics, however short they are.
  static bool windows(const Expr& sum) {
    return std::all_of(sum->vars.begin(), sum->vars.end(), [&](const Expr& v) {
      bool bare = false;
      visit(sum->args[0], [&](const Expr& x) {
        if (x->op == Op::kLoad)
          bare |= std::any_of(x->args.begin(), x->args.end(), [&](const Expr& i) { return same(i, v); });
      });
      return !bare;
    });
  }

  // A sum that is the whole expression counts as long, because it may be larger than its terms.
  static bool long_sum(const Expr& e) {
    bool found = e->op == Op::kReduce &&
                 (e->i == static_cast<int>(ReduceKind::kSum) || e->i == static_cast<int>(ReduceKind::kProd));
    visit(e, [&](const Expr& x) {
      if (x->op != Op::kReduce) return;
      Expr n = 1;
      for (const Expr& v : x->vars) n = n * v->args[0];
      std::int64_t count = 0;
      found |= !is_const_int(n, count) || count > kWindow || !windows(x);
    });
    return found;
  }

  // Whether a logarithm of a long sum is taken: those of log-softmax and log-sum-exp are compared, added up over steps
  // or raised to powers again, and the steps of 16 bits at -300 are a quarter.
  static bool log_of_sum(const Expr& e) {
    bool found = false;
    visit(e, [&](const Expr& x) {
      if (x->op != Op::kLog) return;
      found |= long_sum(x->args[0]);
      for (const Value* v : loads_of(x->args[0])) {
        const auto* l = v->producer ? v->producer->as<LoopOp>() : nullptr;
        found |= v->dtype == kF32 && l && long_sum(l->body);
      }
    });
    return found;
  }

  // Why the result of a loop that reads 16-bit values stays float32; null if it is narrowed.
  const char* obstacle(const Value* v, const Expr& body) const {
    if (wide_.count(v)) return kBeyond;
    if (pinned_.count(v)) return "an output of the model or a routine needs this type";
    if (log_of_sum(body)) return "it is the logarithm of a sum";
    if (long_sum(body)) return "it sums up many elements, and the sum may leave the range of 16-bit floats";
    return nullptr;
  }

  void loop(Node& n, LoopOp& l) {
    Value* v = n.outputs[0];
    bool flows = false, reads_wide = false, sums = false;
    for (const Value* x : loads_of(l.body)) {
      sums |= sums_.count(x) > 0;
      flows |= narrowed_.count(x) > 0;
      reads_wide |= wide_.count(x) > 0;
    }
    if (sums && v->dtype == DType::kInt32) sums_.insert(v);  // zero points are subtracted
    flows |= sums;
    if (leaves_range(v, reads_wide)) wide_.insert(v);
    if (!flows) return;
    l.body = expression(l.body);
    if (v->dtype == kF32) {
      if (const char* why = obstacle(v, l.body)) {
        remark(options_, "narrow_floats", n.origin, [&] { return fmt::format("kept in float32: {}", why); });
      } else {
        l.body = narrowed(l.body);
        narrow(v);
      }
    }
    refresh_inputs(n);
  }

  void matmul(Node& n, MatMulOp& m) {
    if (size_of(m.a->dtype) == 1) sums_.insert(n.outputs[0]);
    if (!is_float32(m.a) || !is_float32(m.b)) return;
    bool wide = false;
    for (const Expr& e : {m.a, m.b})
      for (const Value* x : loads_of(e)) wide |= is_wide(x);
    m.a = wide ? wide_operand(m.a) : operand(m.a);
    m.b = wide ? wide_operand(m.b) : operand(m.b);
    result(n, wide);
  }

  // A convolution or attention, whose first inputs are its operands.
  void tile(Node& n, std::size_t operands) {
    if (size_of(n.inputs[0]->dtype) == 1) sums_.insert(n.outputs[0]);
    bool wide = false;
    for (std::size_t i = 0; i < operands; ++i) {
      const Value* x = n.inputs[i];
      const bool decides = i == 0 || n.as<AttentionOp>();
      if (decides && x->dtype != kF32 && !narrowed_.count(x)) return;
      wide |= is_wide(x);
    }
    for (std::size_t i = 0; i < operands; ++i) n.inputs[i] = wide ? widened(n.inputs[i]) : copy(n.inputs[i]);
    result(n, wide);
  }

  // `wide`: the operands stay float32, and so does the result.
  void result(Node& n, bool wide) {
    refresh_inputs(n);
    Value* v = n.outputs[0];
    if (v->dtype != kF32) return;
    if (leaves_range(v, wide)) wide_.insert(v);
    if (wide || wide_.count(v))
      remark(options_, "narrow_floats", n.origin, [] { return fmt::format("kept in float32: {}", kBeyond); });
    else if (!pinned_.count(v))
      narrow(v);
  }

  // v in 16 bits: a copy if v stays float32.
  Value* copy(Value* v) {
    if (v->dtype != kF32) return v;
    Value*& c = copies_[v];
    if (!c) {
      Exprs vars;
      for (const Expr& d : v->shape) vars.push_back(loop_var(d));
      c = g_.add_loop(vars, narrowed(load(v, kF32, vars)));
    }
    return c;
  }

  // v in float32: a copy if it is stored in 16 bits.
  Value* widened(Value* v) {
    if (!narrowed_.count(v)) return v;
    Value*& c = widened_[v];
    if (!c) {
      Exprs vars;
      for (const Expr& d : v->shape) vars.push_back(loop_var(d));
      c = g_.add_loop(vars, cast(load(v, type_, vars), kF32));
    }
    return c;
  }

  Expr wide_operand(const Expr& e) {
    if (e->op != Op::kLoad) return expression(e);
    Exprs args;
    for (const Expr& a : e->args) args.push_back(expression(a));
    return load(widened(const_cast<Value*>(e->value)), kF32, args);
  }

  // Operands of GEMMs should be plain loads.
  Expr operand(const Expr& e) {
    if (e->op != Op::kLoad) return cast(expression(e), type_);
    Exprs args;
    for (const Expr& a : e->args) args.push_back(expression(a));
    Value* v = copy(const_cast<Value*>(e->value));
    return load(v, v->dtype, std::move(args));
  }

  Graph& g_;
  const FuseOptions& options_;
  DType type_;
  std::unordered_set<const Value*> pinned_, narrowed_;
  std::unordered_set<const Value*> sums_;  ///< of 8-bit products, which are scaled next
  std::unordered_set<const Value*> wide_;  ///< leave the range of float16, so they stay float32
  std::unordered_map<const Value*, bool> constants_;
  std::unordered_map<Value*, Value*> copies_, widened_;
};

}  // namespace

void narrow_floats(Graph& g, const FuseOptions& options) { Narrower(g, options).run(); }

}  // namespace sardonyx
