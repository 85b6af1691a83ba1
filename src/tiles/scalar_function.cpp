#include "tiles/scalar_function.h"

#include <cmath>
#include <vector>

namespace sardonyx::tiles {
namespace {

struct Evaluator {
  const Expr& argument;
  double x;
  bool failed = false;
  std::unordered_map<const ExprNode*, double> done;

  double run(const Expr& e) {
    if (failed) return 0;
    if (same(e, argument)) return x;
    if (is_const(e)) return is_float(e->dtype) ? e->f : static_cast<double>(e->i);
    auto it = done.find(e.get());
    if (it != done.end()) return it->second;
    const double r = compute(e);
    done[e.get()] = r;
    return r;
  }

  double compute(const Expr& e) {
    double a[3] = {0, 0, 0};
    if (e->op == Op::kLoad || e->op == Op::kVar || e->op == Op::kSym || e->op == Op::kReduce || e->op == Op::kRandom ||
        e->args.size() > 3) {
      failed = true;
      return 0;
    }
    for (std::size_t k = 0; k < e->args.size(); ++k) a[k] = run(e->args[k]);
    switch (e->op) {
      case Op::kNeg:
        return -a[0];
      case Op::kAbs:
        return std::fabs(a[0]);
      case Op::kSign:
        return std::isnan(a[0]) ? a[0] : (a[0] > 0) - (a[0] < 0);
      case Op::kNot:
        return !a[0];
      case Op::kExp:
        return std::exp(a[0]);
      case Op::kExpm1:
        return std::expm1(a[0]);
      case Op::kLog:
        return std::log(a[0]);
      case Op::kLog1p:
        return std::log1p(a[0]);
      case Op::kSqrt:
        return std::sqrt(a[0]);
      case Op::kRsqrt:
        return 1 / std::sqrt(a[0]);
      case Op::kReciprocal:
        return 1 / a[0];
      case Op::kTanh:
        return std::tanh(a[0]);
      case Op::kErf:
        return std::erf(a[0]);
      case Op::kSigmoid:
        return 1 / (1 + std::exp(-a[0]));
      case Op::kRound:
        return std::nearbyint(a[0]);
      case Op::kAdd:
        return a[0] + a[1];
      case Op::kSub:
        return a[0] - a[1];
      case Op::kMul:
        return a[0] * a[1];
      case Op::kDiv:
        return a[0] / a[1];
      case Op::kPow:
        return std::pow(a[0], a[1]);
      case Op::kMin:
        return std::isnan(a[0]) || std::isnan(a[1]) ? NAN : std::fmin(a[0], a[1]);
      case Op::kMax:
        return std::isnan(a[0]) || std::isnan(a[1]) ? NAN : std::fmax(a[0], a[1]);
      case Op::kEq:
        return a[0] == a[1];
      case Op::kNe:
        return a[0] != a[1];
      case Op::kLt:
        return a[0] < a[1];
      case Op::kLe:
        return a[0] <= a[1];
      case Op::kGt:
        return a[0] > a[1];
      case Op::kGe:
        return a[0] >= a[1];
      case Op::kSelect:
        return a[0] != 0 ? a[1] : a[2];
      case Op::kCast:
        if (is_float(e->dtype) && is_float(e->args[0]->dtype) && size_of(e->dtype) >= 2) return a[0];
        break;
      default:
        break;
    }
    failed = true;
    return 0;
  }
};

// Arguments at which functions are compared.
std::vector<double> arguments() {
  std::vector<double> p = {0};
  for (double x = 0.015625; x <= 12; x += 0.171875) {
    p.push_back(x);
    p.push_back(-x);
  }
  for (double x = 16; x < 1e30; x *= 3.7) {
    p.push_back(x);
    p.push_back(-x);
  }
  for (double x = 1e-6; x < 0.01; x *= 10) {
    p.push_back(x);
    p.push_back(-x);
  }
  return p;
}

using Kind = PostKind;

bool close(double f, double g) {
  if (std::isnan(f) || std::isnan(g)) return std::isnan(f) && std::isnan(g);
  // What overflows float32 is infinite there.
  auto squash = [](double v) { return std::fabs(v) > 3.4e38 ? std::copysign(INFINITY, v) : v; };
  f = squash(f);
  g = squash(g);
  if (f == g) return true;
  if (std::isinf(f) || std::isinf(g)) return false;  // infinity times the tolerance would accept anything
  return std::fabs(f - g) <= 2e-6 * std::fmax(std::fabs(f), std::fabs(g)) + 1e-7;  // constants were rounded to float32
}

}  // namespace

std::optional<double> evaluate_function(const Expr& f, const Expr& argument, double x) {
  Evaluator e{argument, x, false, {}};
  const double r = e.run(f);
  if (e.failed) return {};
  return r;
}

std::optional<PostOp> recognize_function(const Expr& f, const Expr& argument) {
  static const std::vector<double> xs = arguments();
  std::vector<double> ys;
  for (double x : xs) {
    auto y = evaluate_function(f, argument, x);
    if (!y) return {};
    ys.push_back(*y);
  }
  auto value = [&](double x) { return evaluate_function(f, argument, x).value_or(std::nan("")); };
  std::vector<PostOp> candidates;
  auto add = [&](Kind k, double a = 0, double b = 0) {
    PostOp op;
    op.kind = k;
    op.alpha = static_cast<float>(a);
    op.beta = static_cast<float>(b);
    candidates.push_back(op);
  };
  const double at0 = value(0), slope = value(1) - at0;
  add(Kind::kLinear, slope, at0);
  add(Kind::kRelu);
  add(Kind::kClip, value(-3e38), value(3e38));
  add(Kind::kLeakyRelu, -value(-1));
  add(Kind::kSwish, 1);
  add(Kind::kSwish, 1.702);
  add(Kind::kHardSwish, 1.0 / 6, 0.5);
  const double s = value(0.125) - at0;
  add(Kind::kHardSigmoid, s * 8, at0);
  add(Kind::kSigmoid);
  add(Kind::kTanh);
  add(Kind::kGeluErf);
  add(Kind::kGeluTanh);
  add(Kind::kElu, -value(-50));
  add(Kind::kMish);
  add(Kind::kAbs);
  add(Kind::kSquare);
  for (const PostOp& op : candidates) {
    if (std::isnan(op.alpha) || std::isnan(op.beta) ||
        (op.kind != Kind::kClip && (std::isinf(op.alpha) || std::isinf(op.beta))))
      continue;
    bool equal = true;
    for (std::size_t k = 0; k < xs.size() && equal; ++k) equal = close(ys[k], apply_post_op(op, xs[k]));
    if (equal) return op;
  }
  return {};
}

}  // namespace sardonyx::tiles
