// See merge_convolutions.h.
#include "fuse/merge_convolutions.h"

#include <algorithm>
#include <optional>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

/// scale[channel] * image + shift[channel].
struct Multiple {
  const Value* image = nullptr;
  Expr scale, shift;
};

void terms_of(const Expr& e, Exprs& out) {
  if (e->op != Op::kAdd) return out.push_back(e);
  for (const Expr& x : e->args) terms_of(x, out);
}

bool equal(const Exprs& a, const Exprs& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](const Expr& x, const Expr& y) { return idx::provably_equal(x, y); });
}

bool all_are(const Exprs& list, std::int64_t number) {
  return std::all_of(list.begin(), list.end(), [&](const Expr& x) { return is_const(x, number); });
}

Exprs kernel_of(const Node& conv) {
  const Exprs& w = conv.inputs[1]->shape;
  return Exprs(w.begin() + 2, w.end());
}

std::int64_t taps_of(const Node& conv) {
  std::int64_t taps = 1, n = 0;
  for (const Expr& d : kernel_of(conv)) taps *= is_const_int(d, n) ? n : 0;
  return taps;
}

/// The tap of a convolution that reads the pixel at the place of the result (times the stride); empty if none does.
Exprs centre_of(const Node& conv) {
  const auto& c = *conv.as<ConvOp>();
  const Exprs kernel = kernel_of(conv);
  Exprs centre;
  for (std::size_t k = 0; k < kernel.size(); ++k) {
    std::int64_t pad = 0, extent = 0;
    if (!is_const_int(c.pads_begin[k], pad) || !is_const_int(kernel[k], extent) || pad % c.dilations[k] != 0 ||
        pad / c.dilations[k] >= extent)
      return {};
    centre.emplace_back(pad / c.dilations[k]);
  }
  return centre;
}

class Merger {
 public:
  explicit Merger(Graph& g) : g_(g), uses_(uses_of(g)), required_(required_values(g)), constants_(constant_nodes(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    bool any = false;
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      auto* l = n.as<LoopOp>();
      if (!l || l->body->has_reduce || constants_.count(&n) || l->vars.size() < 3 || l->vars[1]->op != Op::kVar)
        continue;
      vars_ = l->vars;
      bool changed = false;
      l->body = rewrite(l->body, [&](const Expr& e) -> Expr {
        if (e->op != Op::kAdd || e->dtype != DType::kFloat32) return {};
        const Expr merged = merged_sum(e);
        changed |= static_cast<bool>(merged);
        return merged;
      });
      if (changed) refresh_inputs(n);
      any |= changed;
    }
    g_.origin.clear();
    if (!any) return;
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  bool is_here(const Expr& x) const {
    if (x->op != Op::kLoad || x->args.size() != vars_.size() || x->value->graph != &g_) return false;
    for (std::size_t k = 0; k < vars_.size(); ++k)
      if (!same(x->args[k], vars_[k]) && !(is_const(x->args[k], 0) && is_const(vars_[k]->args[0], 1))) return false;
    return true;
  }
  bool is_constant(const Value* v) const {
    return v->dtype == DType::kFloat32 && v->producer && constants_.count(v->producer);
  }

  /// The convolution whose result the term is, if nothing else reads it.
  Node* convolution(const Expr& term) const {
    if (!is_here(term) || term->value->dtype != DType::kFloat32) return nullptr;
    Node* n = term->value->producer;
    const auto* c = n ? n->as<ConvOp>() : nullptr;
    if (!c || c->transposed || c->zeros != 0 || c->padding != 0 || n->inputs[0]->dtype != DType::kFloat32)
      return nullptr;
    for (std::size_t k = 1; k < n->inputs.size(); ++k)
      if (!is_constant(n->inputs[k])) return nullptr;
    const auto readers = uses_.find(term->value);
    const bool alone = readers != uses_.end() && readers->second.size() == 1 && !required_.count(term->value);
    return alone && taps_of(*n) > 0 ? n : nullptr;
  }

  /// Whether e depends on nothing but the channel.
  bool by_channel(const Expr& e) const {
    bool ok = e->dtype == DType::kFloat32;
    visit(e, [&](const Expr& x) {
      if (x->op == Op::kLoad) ok = ok && is_constant(x->value);
      if (x->op == Op::kVar) ok = ok && same(x, vars_[1]);
      ok = ok && x->op != Op::kSym && x->op != Op::kReduce;
    });
    return ok;
  }

  std::optional<Multiple> multiple(const Expr& e) const {
    const auto number = [](double x) { return constant_float(x, DType::kFloat32); };
    if (is_here(e) && !by_channel(e)) return Multiple{e->value, number(1), number(0)};
    if (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kMul) return {};
    for (std::size_t k = 0; k < (e->op == Op::kSub ? 1 : 2); ++k) {
      const Expr& other = e->args[1 - k];
      if (!by_channel(other)) continue;
      auto m = multiple(e->args[k]);
      if (!m) return {};
      m->shift = binary(e->op, m->shift, other);
      if (e->op == Op::kMul) m->scale = binary(Op::kMul, m->scale, other);
      return m;
    }
    return {};
  }

  /// Whether `other` can become part of `base`, which has at least as many taps.
  static bool fits(const Node& base, const Node& other) {
    const auto &b = *base.as<ConvOp>(), &o = *other.as<ConvOp>();
    if (base.inputs[0] != other.inputs[0] || b.groups != o.groups || b.strides != o.strides) return false;
    if (!equal(base.outputs[0]->shape, other.outputs[0]->shape)) return false;
    if (equal(kernel_of(base), kernel_of(other)))
      return b.dilations == o.dilations && equal(b.pads_begin, o.pads_begin) && equal(b.pads_end, o.pads_end);
    return taps_of(other) == 1 && all_are(o.pads_begin, 0) && all_are(o.pads_end, 0) && !centre_of(base).empty();
  }

  static bool fits(const Node& base, const Multiple& m) {
    const auto& b = *base.as<ConvOp>();
    return base.inputs[0] == m.image &&
           std::all_of(b.strides.begin(), b.strides.end(), [](auto s) { return s == 1; }) &&
           equal(base.outputs[0]->shape, m.image->shape) && !centre_of(base).empty();
  }

  /// The sum with as many of its terms as possible in one convolution; empty if there are not two such.
  Expr merged_sum(const Expr& sum) {
    Exprs terms, rest;
    terms_of(sum, terms);
    Node* base = nullptr;
    for (const Expr& t : terms)
      if (Node* n = convolution(t); n && (!base || taps_of(*n) > taps_of(*base))) base = n;
    if (!base) return {};
    std::vector<Node*> convolutions = {base};
    std::vector<Multiple> multiples;
    Exprs shifts;
    for (const Expr& t : terms) {
      Node* n = convolution(t);
      if (n == base) continue;
      const auto m = n ? std::nullopt : multiple(t);
      if (n && fits(*base, *n) && std::find(convolutions.begin(), convolutions.end(), n) == convolutions.end())
        convolutions.push_back(n);
      else if (m && fits(*base, *m))
        multiples.push_back(*m);
      else
        (by_channel(t) ? shifts : rest).push_back(t);
    }
    if (convolutions.size() + multiples.size() < 2) return {};
    const Value* y = merged(convolutions, multiples, shifts);
    Expr result = load(y, y->dtype, vars_);
    for (const Expr& t : rest) result = binary(Op::kAdd, result, t);
    return result;
  }

  const Value* merged(const std::vector<Node*>& convolutions, const std::vector<Multiple>& multiples,
                      const Exprs& shifts) {
    const Node& base = *convolutions[0];
    g_.origin = base.origin;
    for (const Node* n : convolutions) g_.origin = join_origins(g_.origin, n->origin);
    ConvOp op = *base.as<ConvOp>();
    const Exprs w = vars_of(base.inputs[1]->shape), centre = centre_of(base);
    Expr at_centre = constant_bool(true);
    for (std::size_t k = 0; k < centre.size(); ++k)
      at_centre = logical_and(at_centre, compare(Op::kEq, w[k + 2], centre[k]));
    const Expr zero = constant_float(0, DType::kFloat32);
    const Expr channel = loop_var(base.outputs[0]->shape[1]);
    Expr weights, bias;
    const auto add = [](Expr& to, const Expr& x) { to = to ? binary(Op::kAdd, to, x) : x; };
    for (const Node* n : convolutions) {
      const Value* v = n->inputs[1];
      if (equal(v->shape, base.inputs[1]->shape)) {
        add(weights, load(v, v->dtype, w));
      } else {
        Exprs only(w.size(), Expr(0));
        only[0] = w[0], only[1] = w[1];
        add(weights, select(at_centre, load(v, v->dtype, only), zero));
      }
      if (n->as<ConvOp>()->has_bias) add(bias, load(n->inputs[2], DType::kFloat32, {channel}));
    }
    for (const Multiple& m : multiples) {
      // The group's input channel that has the number of the output channel.
      const Expr own = compare(Op::kEq, w[1], idx::mod(w[0], base.inputs[1]->shape[1]));
      add(weights, select(logical_and(at_centre, own), substitute(m.scale, {{vars_[1], w[0]}}), zero));
      add(bias, substitute(m.shift, {{vars_[1], channel}}));
    }
    for (const Expr& x : shifts) add(bias, substitute(x, {{vars_[1], channel}}));
    std::vector<Value*> inputs = {base.inputs[0], g_.add_loop(w, weights)};
    op.has_bias = static_cast<bool>(bias);
    if (bias) inputs.push_back(g_.add_loop({channel}, bias));
    return g_.add_node(op, inputs, {{DType::kFloat32, base.outputs[0]->shape}})->outputs[0];
  }

  Graph& g_;
  const Uses uses_;
  const std::unordered_set<const Value*> required_;
  const std::unordered_set<const Node*> constants_;
  Exprs vars_;  ///< of the loop that adds
};

}  // namespace

void merge_convolutions(Graph& g, const FuseOptions&) { Merger(g).run(); }

}  // namespace sardonyx
