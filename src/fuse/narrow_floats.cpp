// narrow_floats(): values change their dtype in place, loads of them are cast back to float32.
#include "fuse/narrow_floats.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr DType kF32 = DType::kFloat32;
constexpr std::int64_t kWindow = 128;  // elements; longer sums are statistics

class Narrower {
 public:
  Narrower(Graph& g, const FuseOptions& options) : g_(g), options_(options), type_(options.precision) {}

  void run() {
    for (const Value* v : required_values(g_)) pin(v);
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      g_.origin = n.origin;
      if (auto* l = n.as<LoopOp>()) {
        loop(n, *l);
      } else if (n.as<ViewOp>()) {
        if (narrowed_.count(n.inputs[0])) narrow(n.outputs[0]);
      } else if (auto* m = n.as<MatMulOp>()) {
        if (!is_float32(m->a) || !is_float32(m->b)) continue;
        m->a = operand(m->a);
        m->b = operand(m->b);
        tile(n);
      } else if (n.as<ConvOp>()) {
        if (n.inputs[0]->dtype != kF32 && !narrowed_.count(n.inputs[0])) continue;
        for (std::size_t i = 0; i < 2; ++i) n.inputs[i] = copy(n.inputs[i]);
        tile(n);
      } else if (n.as<AttentionOp>()) {
        bool floats = true;
        for (std::size_t i = 0; i < 3; ++i) floats &= n.inputs[i]->dtype == kF32 || narrowed_.count(n.inputs[i]);
        if (!floats) continue;
        for (std::size_t i = 0; i < 3; ++i) n.inputs[i] = copy(n.inputs[i]);
        tile(n);
      }
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  void pin(const Value* v) {
    while (pinned_.insert(v).second && v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  }
  bool is_float32(const Expr& e) const { return e->dtype == kF32; }
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

  // Why the result of a loop that reads 16-bit values stays float32; null if it is narrowed.
  const char* obstacle(const Value* v, const Expr& body) const {
    if (pinned_.count(v)) return "an output of the model or a routine needs this type";
    if (long_sum(body)) return "it sums up many elements, and the sum may leave the range of 16-bit floats";
    return nullptr;
  }

  void loop(Node& n, LoopOp& l) {
    Value* v = n.outputs[0];
    bool flows = false;
    for (const Value* x : loads_of(l.body)) flows |= narrowed_.count(x) > 0;
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

  void tile(Node& n) {
    refresh_inputs(n);
    Value* v = n.outputs[0];
    if (v->dtype == kF32 && !pinned_.count(v)) narrow(v);
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
  std::unordered_map<Value*, Value*> copies_;
};

}  // namespace

void narrow_floats(Graph& g, const FuseOptions& options) { Narrower(g, options).run(); }

}  // namespace sardonyx
