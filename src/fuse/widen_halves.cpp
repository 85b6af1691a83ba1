// widen_halves(): values change their dtype in place, expressions are rebuilt around them.
#include "fuse/widen_halves.h"

#include <unordered_map>
#include <unordered_set>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

class Widener {
 public:
  explicit Widener(Graph& g) : g_(g) {}

  void run() {
    for (const Value* v : required_values(g_)) pin(v);
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      g_.origin = n.origin;
      if (auto* l = n.as<LoopOp>())
        loop(n, *l);
      else if (n.as<ViewOp>())
        view(n);
      else if (auto* m = n.as<MatMulOp>()) {
        m->a = operand(m->a);
        m->b = operand(m->b);
        tile(n);
      } else if (n.as<ConvOp>()) {
        for (Value*& v : n.inputs) v = wide(v);
        tile(n);
      } else if (auto* a = n.as<AttentionOp>()) {
        for (Value*& v : n.inputs) v = wide(v);
        for (Expr* e : {&a->scale, &a->q, &a->k, &a->v, &a->k_scale, &a->v_scale, &a->bias})
          if (*e) *e = operand(*e);
        tile(n);
      }
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  // Fixes the dtype of v and of what it is a view of.
  void pin(const Value* v) {
    while (pinned_.insert(v).second && v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  }

  void widen(Value* v) {
    v->dtype = DType::kFloat32;
    widened_.insert(v);
    if (!v->content) return;
    auto content = std::make_shared<Exprs>();
    for (const Expr& e : *v->content) content->push_back(expression(e));
    v->content = std::move(content);
  }

  void loop(Node& n, LoopOp& l) {
    Value* v = n.outputs[0];
    l.body = expression(l.body);
    if (is_half(v->dtype)) {
      if (pinned_.count(v))
        l.body = cast(l.body, v->dtype);
      else
        widen(v);
    }
    refresh_inputs(n);
  }

  void view(Node& n) {
    if (widened_.count(n.inputs[0])) widen(n.outputs[0]);
  }

  // The result of a tile kernel is float32; users that need 16 bits get a loop that rounds it.
  void tile(Node& n) {
    refresh_inputs(n);
    Value* v = n.outputs[0];
    if (!is_half(v->dtype)) return;
    if (!pinned_.count(v)) return widen(v);
    Value* sum = g_.new_value(DType::kFloat32, v->shape);
    sum->producer = &n;
    n.outputs[0] = sum;
    Exprs vars;
    for (const Expr& d : v->shape) vars.push_back(loop_var(d));
    const Expr body = cast(load(sum, DType::kFloat32, vars), v->dtype);
    Node* round = g_.add_node(LoopOp{vars, body}, {sum}, {});
    round->outputs.push_back(v);
    v->producer = round;
    v->output_index = 0;
  }

  // v in float32; if it is 16 bits wide, as a new tensor.
  Value* wide(Value* v) {
    if (!v || !is_half(v->dtype)) return v;
    Value*& copy = copies_[v];
    if (!copy) {
      Exprs vars;
      for (const Expr& d : v->shape) vars.push_back(loop_var(d));
      copy = g_.add_loop(vars, cast(load(v, v->dtype, vars), DType::kFloat32));
    }
    return copy;
  }

  // Operands of tile kernels should be plain loads.
  Expr operand(const Expr& e) {
    tile_operand_ = true;
    done_.clear();
    Expr r = expression(e);
    tile_operand_ = false;
    done_.clear();
    return r;
  }

  // `e` with everything widened: in float32 if it was 16 bits wide.
  Expr expression(const Expr& e) {
    return rewrite(e, [this](const Expr& x) -> Expr {
      const bool half = is_half(x->dtype);
      switch (x->op) {
        case Op::kConst:
          return half ? constant_float(x->f, DType::kFloat32) : Expr();
        case Op::kLoad:
        case Op::kCast:
        case Op::kBitCast:
          break;
        default:
          return Expr();
      }
      auto it = done_.find(x.get());
      if (it == done_.end()) it = done_.emplace(x.get(), leaf(x, half)).first;
      return it->second;
    });
  }

  Expr leaf(const Expr& x, bool half) {
    Exprs args;
    for (const Expr& a : x->args) args.push_back(expression(a));
    keep_.push_back(x);  // its address is a key, so keep it alive
    if (x->op == Op::kLoad) {
      if (!half) return load(x->value, x->value->dtype, std::move(args));
      if (widened_.count(x->value)) return load(x->value, DType::kFloat32, std::move(args));
      if (tile_operand_) return load(wide(const_cast<Value*>(x->value)), DType::kFloat32, std::move(args));
      return cast(load(x->value, x->dtype, std::move(args)), DType::kFloat32);
    }
    const DType from = x->args[0]->dtype;
    const int mode = static_cast<int>(x->i);
    if (x->op == Op::kBitCast) {
      const Expr a = is_half(from) ? cast(args[0], from) : args[0];
      const Expr r = bitcast(a, x->dtype);
      return half ? cast(r, DType::kFloat32) : r;
    }
    if (!half) return cast(args[0], x->dtype, mode);
    const bool rounds = (mode & kCastRounds) != 0;
    return cast(rounds ? cast(args[0], x->dtype, mode) : args[0], DType::kFloat32);
  }

  Graph& g_;
  std::unordered_set<const Value*> pinned_, widened_;
  std::unordered_map<Value*, Value*> copies_;
  std::unordered_map<const ExprNode*, Expr> done_;
  Exprs keep_;
  bool tile_operand_ = false;
};

}  // namespace

void widen_halves(Graph& g) { Widener(g).run(); }

}  // namespace sardonyx
