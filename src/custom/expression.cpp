// An element-wise operator given as a formula: a loop, which fuses as Sardonyx's own operators do.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "custom/definition.h"
#include "custom/formula.h"
#include "custom/scope.h"
#include "ops/element_math.h"
#include "ops/tensor.h"

namespace sardonyx::custom {
namespace {

/// A value for each element. `weak`: a number without a type of its own, which takes that of what it is combined with
/// (then int64 or float64).
struct Element {
  Expr e;
  bool weak = false;
};

struct Function {
  std::string_view name;
  Op op;
};
constexpr Function kFunctions[] = {
    {"abs", Op::kAbs},
    {"sign", Op::kSign},
    {"exp", Op::kExp},
    {"expm1", Op::kExpm1},
    {"log", Op::kLog},
    {"log1p", Op::kLog1p},
    {"sqrt", Op::kSqrt},
    {"rsqrt", Op::kRsqrt},
    {"sin", Op::kSin},
    {"cos", Op::kCos},
    {"tan", Op::kTan},
    {"asin", Op::kAsin},
    {"acos", Op::kAcos},
    {"atan", Op::kAtan},
    {"sinh", Op::kSinh},
    {"cosh", Op::kCosh},
    {"tanh", Op::kTanh},
    {"asinh", Op::kAsinh},
    {"acosh", Op::kAcosh},
    {"atanh", Op::kAtanh},
    {"erf", Op::kErf},
    {"floor", Op::kFloor},
    {"ceil", Op::kCeil},
    {"round", Op::kRound},
    {"trunc", Op::kTrunc},
    {"sigmoid", Op::kSigmoid},
    {"isnan", Op::kIsNaN},
    {"isinf", Op::kIsInf},
    {"reciprocal", Op::kReciprocal},
};

class Evaluator {
 public:
  Evaluator(OpContext& c, const Scope& scope, const std::map<std::string, Expr>& elements)
      : c_(c), scope_(scope), elements_(elements) {}

  Element run(const Formula& f) const {
    switch (f.kind) {
      case Formula::Kind::kWhole:
        return {Expr(f.whole), true};
      case Formula::Kind::kReal:
        return {constant_float(f.real, DType::kFloat64), true};
      case Formula::Kind::kName:
        if (const auto it = elements_.find(f.text); it != elements_.end()) return {it->second};
        return number(f);
      case Formula::Kind::kUnary:
        if (f.text == "not") return {logical_not(truth(run(f.args[0])))};
        return negative(run(f.args[0]));
      case Formula::Kind::kBinary:
        return binary_of(f);
      case Formula::Kind::kChoice:
        return choice(f.args[0], f.args[1], f.args[2]);
      case Formula::Kind::kCall:
        return call(f);
      default:
        return number(f);
    }
  }

  /// A value as type `t`.
  static Expr as(const Element& x, DType t) {
    if (!x.weak) return cast(x.e, t);
    if (!is_const(x.e)) return cast(x.e, t);
    return is_float(x.e->dtype) ? constant(x.e->f, t) : constant(static_cast<double>(x.e->i), t);
  }

 private:
  // A number that is the same for all elements: from attributes, dims and texts.
  Element number(const Formula& f) const {
    const Number n = scope_.number(f);
    if (n.kind == Number::Kind::kText) c_.invalid("expression: a text is not a value");
    return {n.kind == Number::Kind::kWhole ? n.whole : constant_float(n.real, DType::kFloat64), true};
  }

  Expr truth(const Element& x) const {
    if (x.e->dtype == DType::kBool) return x.e;
    return compare(Op::kNe, x.e, constant(0, x.e->dtype));
  }

  static Element negative(const Element& x) {
    if (x.weak && is_const(x.e) && is_float(x.e->dtype)) return {constant_float(-x.e->f, DType::kFloat64), true};
    return {x.weak && !is_float(x.e->dtype) ? Expr(0) - x.e : unary(Op::kNeg, x.e), x.weak};
  }

  /// Both in one type.
  std::pair<Expr, Expr> pair(const Element& a, const Element& b) const {
    if (a.weak && b.weak) {
      const bool real = is_float(a.e->dtype) || is_float(b.e->dtype);
      const DType t = real ? DType::kFloat64 : DType::kInt64;
      return {as(a, t), as(b, t)};
    }
    const Element& typed = a.weak ? b : a;
    const DType t = typed.e->dtype;
    for (const Element* x : {&a, &b})
      if (x->weak && is_float(x->e->dtype) && !is_float(t))
        c_.invalid("expression: a real number beside elements of {}; write cast(x, \"float32\")", name(t));
    if (!a.weak && !b.weak && a.e->dtype != b.e->dtype)
      c_.invalid("expression: {} and {} are combined; write cast(x, \"{}\")", name(a.e->dtype), name(b.e->dtype),
                 name(a.e->dtype));
    return {as(a, t), as(b, t)};
  }

  // `a if c else b`: if the condition is known, only one side is evaluated.
  Element choice(const Formula& condition, const Formula& then, const Formula& otherwise) const {
    if (!has_element(condition)) {
      const Number n = scope_.number(condition);
      if (n.kind == Number::Kind::kWhole && is_const(n.whole)) return run(n.whole->i != 0 ? then : otherwise);
    }
    const Element a = run(then), b = run(otherwise);
    const auto [x, y] = pair(a, b);
    return {select(truth(run(condition)), x, y), a.weak && b.weak};
  }

  bool has_element(const Formula& f) const {
    if (f.kind == Formula::Kind::kName && elements_.count(f.text)) return true;
    if (f.kind == Formula::Kind::kCall && (f.text == "has" || f.text == "dim" || f.text == "size" || f.text == "rank"))
      return false;
    for (const Formula& a : f.args)
      if (has_element(a)) return true;
    return false;
  }

  Element binary_of(const Formula& f) const {
    const std::string& op = f.text;
    if (!has_element(f)) return number(f);
    if (op == "and") return {logical_and(truth(run(f.args[0])), truth(run(f.args[1])))};
    if (op == "or") return {logical_or(truth(run(f.args[0])), truth(run(f.args[1])))};
    const auto [x, y] = pair(run(f.args[0]), run(f.args[1]));
    for (const auto& [text, o] : {std::pair("==", Op::kEq), std::pair("!=", Op::kNe), std::pair("<", Op::kLt),
                                  std::pair("<=", Op::kLe), std::pair(">", Op::kGt), std::pair(">=", Op::kGe)})
      if (op == text) return {compare(o, x, y)};
    if (x->dtype == DType::kBool) c_.invalid("expression: '{}' of bool; write cast(x, \"float32\")", op);
    if (op == "//" && is_float(x->dtype)) return {unary(Op::kFloor, binary(Op::kDiv, x, y))};
    for (const auto& [text, o] :
         {std::pair("+", Op::kAdd), std::pair("-", Op::kSub), std::pair("*", Op::kMul), std::pair("/", Op::kDiv),
          std::pair("//", Op::kFloorDiv), std::pair("%", Op::kMod), std::pair("**", Op::kPow)})
      if (op == text) return {binary(o, x, y)};
    c_.invalid("expression: '{}' does not apply to elements", op);
  }

  Element call(const Formula& f) const {
    const std::string& op = f.text;
    if (!has_element(f)) return number(f);
    const auto count = [&](std::size_t n) {
      if (f.args.size() != n) c_.invalid("expression: {}() has {} arguments, not {}", op, n, f.args.size());
    };
    if (op == "where") {
      count(3);
      return choice(f.args[0], f.args[1], f.args[2]);
    }
    if (op == "cast") {
      count(2);
      const auto t = f.args[1].kind == Formula::Kind::kText || f.args[1].kind == Formula::Kind::kName
                         ? scope_.named_type(f.args[1].text)
                         : std::nullopt;
      if (!t) c_.invalid("expression: cast() to an unknown type");
      return {as(run(f.args[0]), *t)};
    }
    if (op == "min" || op == "max") {
      if (f.args.empty()) c_.invalid("expression: {}() without arguments", op);
      Element r = run(f.args[0]);
      for (std::size_t k = 1; k < f.args.size(); ++k) {
        const auto [x, y] = pair(r, run(f.args[k]));
        r = {binary(op == "min" ? Op::kMin : Op::kMax, x, y)};
      }
      return r;
    }
    if (op == "clip") {
      count(3);
      const Element x = run(f.args[0]);
      const auto [a, low] = pair(x, run(f.args[1]));
      const auto [b, high] = pair({binary(Op::kMax, a, low)}, run(f.args[2]));
      return {binary(Op::kMin, b, high)};
    }
    if (op == "pow") {
      count(2);
      const auto [x, y] = pair(run(f.args[0]), run(f.args[1]));
      return {binary(Op::kPow, x, y)};
    }
    const auto* fn =
        std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const Function& x) { return x.name == op; });
    if (fn == std::end(kFunctions) && op != "relu") c_.invalid("expression: there is no function {}()", op);
    count(1);
    const Expr x = run(f.args[0]).e;
    const bool any = op == "abs" || op == "sign" || op == "relu";
    if (x->dtype == DType::kBool || (!any && !is_float(x->dtype)))
      c_.invalid("expression: {}() of {}; write cast(x, \"float32\")", op, name(x->dtype));
    if (op == "relu") return {binary(Op::kMax, x, constant(0, x->dtype))};
    return {unary(fn->op, x)};
  }

  OpContext& c_;
  const Scope& scope_;
  const std::map<std::string, Expr>& elements_;
};

}  // namespace

void lower_expression(OpContext& c, const Definition& d) {
  const Scope scope(c, d);
  std::vector<Value*> inputs;
  std::vector<std::string> names;
  for (const TensorDeclaration& t : d.inputs)
    if (Value* v = scope.input(t.name)) {
      inputs.push_back(v);
      names.push_back(t.name);
    }
  if (inputs.empty()) c.invalid("all of its inputs are omitted");
  std::optional<DType> result;
  if (!d.outputs.empty() && !d.outputs[0].type.empty()) result = scope.type(d.outputs[0]);
  Value* v = tensor::map(c.graph(), inputs, [&](const Exprs& elements) {
    std::map<std::string, Expr> by_name;
    for (std::size_t k = 0; k < elements.size(); ++k) {
      const DType t = elements[k]->dtype;
      by_name[names[k]] = is_float(t) ? cast(elements[k], tensor::accumulator(t)) : elements[k];
    }
    const Element e = Evaluator(c, scope, by_name).run(*d.expression);
    // Small floats are computed in float32; a float result has the first input's type.
    DType type = e.e->dtype;
    if (result)
      type = *result;
    else if (is_float(type) || e.weak)
      type = inputs[0]->dtype;
    return Evaluator::as(e, type);
  });
  if (!d.outputs.empty() && !d.outputs[0].any_shape) {
    const Exprs declared = scope.shape(d.outputs[0]);
    tensor::check_broadcast(c.graph(), v->shape, declared);
    v = tensor::expand(c.graph(), v, declared);
  }
  c.out(0, v);
}

}  // namespace sardonyx::custom
