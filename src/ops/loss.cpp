// Losses of classification: NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss.
#include "ops/element_math.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;

// Log-probabilities [N, C, d...] and classes [N, d...]: minus the log-probability of each one's class times the class's
// weight, reduced.
Value* likelihood_loss(OpContext& c, Value* log_prob, Value* target, Value* weight, DType out) {
  Graph& g = c.graph();
  c.require(log_prob->rank() >= 2 && target->rank() == log_prob->rank() - 1,
            "scores of rank {} with targets of rank {}", log_prob->rank(), target->rank());
  c.require(is_integer(target->dtype), "targets of {}", name(target->dtype));
  c.require(!weight || weight->rank() == 1, "weights of rank {}", weight ? weight->rank() : 0);
  const Expr classes = log_prob->shape[1];
  if (weight) g.add_check(compare(Op::kEq, weight->shape[0], classes), "the weights don't fit the classes");
  for (std::size_t d = 0; d < target->shape.size(); ++d)
    g.add_check(compare(Op::kEq, target->shape[d], log_prob->shape[d == 0 ? 0 : d + 1]),
                "the targets' shape doesn't fit the scores'");
  const std::string reduction = c.attr_s("reduction", "mean");
  c.require(reduction == "none" || reduction == "sum" || reduction == "mean", "reduction is '{}'", reduction);
  const bool ignores = c.has_attr("ignore_index");
  const Expr ignored = c.attr("ignore_index", 0);
  const DType t = accumulator(log_prob->dtype);
  auto of_class = [&](const Exprs& i, const std::function<Expr(const Expr&)>& f) {  // 0 for ignored ones
    const Expr k = cast(tensor::at(target, i), DType::kInt64);
    const Expr e = f(idx::max(0, idx::min(k, classes - 1)));  // targets are data: never read outside
    return ignores ? select(el::eq(k, ignored), constant(0, t), e) : e;
  };
  auto weight_of = [&](const Expr& k) { return weight ? cast(tensor::at(weight, {k}), t) : constant(1, t); };
  Value* loss = tensor::generate(g, target->shape, [&](const Exprs& i) {
    return of_class(i, [&](const Expr& k) {
      Exprs j = i;
      j.insert(j.begin() + 1, k);
      return el::mul(el::neg(cast(tensor::at(log_prob, j), t)), weight_of(k));
    });
  });
  if (reduction == "none") return tensor::cast(g, loss, out);
  std::vector<int> axes;
  for (int k = 0; k < loss->rank(); ++k) axes.push_back(k);
  Value* total = tensor::reduce(g, ReduceKind::kSum, loss, axes, false);
  if (reduction == "sum") return tensor::cast(g, total, out);
  Value* weights = tensor::generate(g, target->shape, [&](const Exprs& i) { return of_class(i, weight_of); });
  Value* sum = tensor::reduce(g, ReduceKind::kSum, weights, axes, false);
  return tensor::map2(g, total, sum, [&](const Expr& a, const Expr& b) { return cast(el::div(a, b), out); });
}

void negative_log_likelihood_loss(OpContext& c) {
  c.out(0, likelihood_loss(c, c.in(0), c.in(1), c.opt(2), c.in(0)->dtype));
}

void softmax_cross_entropy_loss(OpContext& c) {
  Value* x = c.in(0);
  c.require(x->rank() >= 2, "scores of rank {}", x->rank());
  Value* log_prob = tensor::softmax(c.graph(), tensor::cast(c.graph(), x, accumulator(x->dtype)), {1}, true);
  c.out(0, likelihood_loss(c, log_prob, c.in(1), c.opt(2), x->dtype));
  if (c.wants(1)) c.out(1, tensor::cast(c.graph(), log_prob, x->dtype));
}

}  // namespace

void register_loss(OpRegistry& r) {
  r.add({.name = "NegativeLogLikelihoodLoss",
         .min_opset = 12,
         .lower = negative_log_likelihood_loss,
         .dtypes = "floats"});
  r.add({.name = "SoftmaxCrossEntropyLoss", .min_opset = 12, .lower = softmax_cross_entropy_loss, .dtypes = "floats"});
}

}  // namespace sardonyx
