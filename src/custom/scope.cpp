// Formulas of sizes: whole numbers become expressions of the graph's symbols, real numbers are known or C++ text.
#include "custom/scope.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sardonyx::custom {
namespace {

using Kind = Number::Kind;
constexpr std::size_t kMostText = 4096;  // of the C++ text of a real number

Number whole_number(const Expr& e) {
  Number n;
  n.whole = e;
  return n;
}
Number truth_number(const Expr& condition) { return whole_number(select(condition, Expr(1), Expr(0))); }
Number real_number(double v) {
  Number n;
  n.kind = Kind::kReal;
  n.real = v;
  return n;
}
Number text_number(std::string text) {
  Number n;
  n.kind = Kind::kText;
  n.text = std::move(text);
  return n;
}
Expr truth(const Expr& e) { return compare(Op::kNe, e, Expr(0)); }

}  // namespace

Scope::Scope(OpContext& c, const Definition& d) : c_(c), d_(d) {
  read_attributes();
  if (c.input_count() > static_cast<int>(d.inputs.size()))
    c.invalid("it has {} inputs; the operator's definition has {}", c.input_count(), d.inputs.size());
  if (!d.outputs.empty() && c.output_count() > static_cast<int>(d.outputs.size()))
    c.invalid("it has {} outputs; the operator's definition has {}", c.output_count(), d.outputs.size());
  for (std::size_t k = 0; k < d.inputs.size(); ++k) {
    Value* v = c.opt(static_cast<int>(k));
    if (!v && !d.inputs[k].optional) c.invalid("input '{}' is missing", d.inputs[k].name);
    inputs_[d.inputs[k].name] = v;
    if (v) match(d.inputs[k], v);
  }
  for (const auto& [name, f] : d.let) {
    // Numbers that arguments alone may have are evaluated where they are used.
    Number n = number(f, [](const Expr&) { return "0"; });
    if (n.kind != Kind::kReal || n.known) let_[name] = std::move(n);
  }
  for (const auto& [text, f] : d.require)
    c.graph().add_check(truth(whole(f, "require")),
                        fmt::format("{}: its operator requires {}", c.node().describe(), text));
}

void Scope::read_attributes() {
  using Type = AttributeDeclaration::Type;
  for (const auto& [name, value] : c_.node().attributes) {
    bool known = false;
    for (const AttributeDeclaration& a : d_.attributes) known = known || a.name == name;
    if (!known) c_.invalid("its attribute '{}' is not in the operator's definition", name);
  }
  for (const AttributeDeclaration& a : d_.attributes) {
    if (!c_.has_attr(a.name)) {
      if (!a.fallback) c_.invalid("its attribute '{}' is missing", a.name);
      Number n = number(*a.fallback);
      const bool text = a.type == Type::kString;
      if (text != (n.kind == Kind::kText)) c_.invalid("the default of '{}' is of another type", a.name);
      if (a.type == Type::kFloat && n.kind == Kind::kWhole && is_const(n.whole))
        n = real_number(static_cast<double>(n.whole->i));
      attributes_[a.name] = std::move(n);
      continue;
    }
    switch (a.type) {
      case Type::kInt:
        attributes_[a.name] = whole_number(Expr(c_.attr(a.name, 0)));
        break;
      case Type::kFloat:
        attributes_[a.name] = real_number(static_cast<double>(c_.attr_f(a.name, 0)));
        break;
      case Type::kString:
        attributes_[a.name] = text_number(c_.attr_s(a.name, ""));
        break;
      case Type::kInts:
        for (const std::int64_t v : c_.attr_ints(a.name)) lists_[a.name].push_back(whole_number(Expr(v)));
        break;
      case Type::kFloats:
        for (const float v : c_.attr_floats(a.name)) lists_[a.name].push_back(real_number(static_cast<double>(v)));
        break;
    }
  }
}

void Scope::match(const TensorDeclaration& t, Value* v) {
  if (t.dtype && *t.dtype != v->dtype)
    c_.invalid("input '{}' has dtype {}; the operator takes {} (\"{}\")", t.name, sardonyx::name(v->dtype),
               sardonyx::name(*t.dtype), t.text);
  if (!t.dtype && !t.type.empty()) {
    const auto [it, is_new] = types_.emplace(t.type, v->dtype);
    if (!is_new && it->second != v->dtype)
      c_.invalid("input '{}' has dtype {}, but {} is {} already (\"{}\"); add a Cast", t.name, sardonyx::name(v->dtype),
                 t.type, sardonyx::name(it->second), t.text);
  }
  if (t.any_shape) return;
  const auto group =
      std::find_if(t.dims.begin(), t.dims.end(), [](const Dim& x) { return x.kind == Dim::Kind::kGroup; });
  const std::size_t fixed = t.dims.size() - (group != t.dims.end() ? 1 : 0), rank = v->shape.size();
  if (group == t.dims.end() ? rank != fixed : rank < fixed)
    c_.invalid("input '{}' has rank {}; the operator takes \"{}\"", t.name, rank, t.text);
  std::size_t at = 0;
  for (const Dim& dim : t.dims) {
    if (dim.kind == Dim::Kind::kGroup) {
      const Exprs part(v->shape.begin() + static_cast<std::ptrdiff_t>(at),
                       v->shape.begin() + static_cast<std::ptrdiff_t>(at + rank - fixed));
      at += part.size();
      const auto [it, is_new] = groups_.emplace(dim.name, part);
      if (is_new) {
        dims_[dim.name] = idx::product(part);
        continue;
      }
      if (it->second.size() != part.size())
        c_.invalid("input '{}' has {} dims '{}...', another input {}", t.name, part.size(), dim.name,
                   it->second.size());
      for (std::size_t k = 0; k < part.size(); ++k) same_dim(t, it->second[k], part[k], dim.name);
      continue;
    }
    const Expr d = v->shape[at++];
    if (dim.kind == Dim::Kind::kAny) continue;
    if (dim.formula.kind == Formula::Kind::kName && attributes_.count(dim.formula.text) == 0) {
      const auto [it, is_new] = dims_.emplace(dim.formula.text, d);
      if (!is_new) same_dim(t, it->second, d, dim.formula.text);
    } else {
      same_dim(t, whole(dim.formula, "a dim of " + t.name), d, "");
    }
  }
}

void Scope::same_dim(const TensorDeclaration& t, const Expr& known, const Expr& dim, const std::string& name) {
  c_.graph().add_check(compare(Op::kEq, known, dim),
                       fmt::format("{}: a dim of input '{}' is {}, which must be {}{} (\"{}\")", c_.node().describe(),
                                   t.name, to_string(dim), name.empty() ? "" : name + " = ", to_string(known), t.text));
}

Expr Scope::whole(const Formula& f, const std::string& what) const {
  const Number n = number(f);
  if (n.kind != Kind::kWhole)
    c_.invalid("{} is not a whole number; // divides whole numbers, and int(x) converts known ones", what);
  return n.whole;
}

std::optional<DType> Scope::named_type(const std::string& name) const {
  if (const auto it = types_.find(name); it != types_.end()) return it->second;
  return type_of_name(name);
}

DType Scope::type(const TensorDeclaration& t) const {
  const auto known = named_type(t.type);
  if (!known) c_.invalid("the type {} of '{}' follows from no input", t.type, t.name);
  return *known;
}

Exprs Scope::shape(const TensorDeclaration& t) const {
  Exprs out;
  for (const Dim& d : t.dims) {
    if (d.kind == Dim::Kind::kGroup) {
      out.insert(out.end(), group(d.name).begin(), group(d.name).end());
      continue;
    }
    Expr size = whole(d.formula, fmt::format("a dim of '{}'", t.name));
    if (is_const(size) && size->i < 0) c_.invalid("a dim of '{}' is {}", t.name, size->i);
    if (!idx::provably_nonnegative(size)) {
      c_.graph().add_check(compare(Op::kGe, size, Expr(0)),
                           fmt::format("{}: a dim of '{}' is negative", c_.node().describe(), t.name));
    }
    out.push_back(std::move(size));
  }
  return out;
}

const Exprs& Scope::group(const std::string& name) const {
  const auto it = groups_.find(name);
  if (it == groups_.end()) c_.invalid("the dims '{}...' follow from no input that is given", name);
  return it->second;
}

Value* Scope::input(const std::string& name) const {
  const auto it = inputs_.find(name);
  return it == inputs_.end() ? nullptr : it->second;
}

Number Scope::name(const std::string& name, const Slot& slot) const {
  if (const auto it = let_.find(name); it != let_.end()) return it->second;
  for (const auto& [n, f] : d_.let)
    if (n == name) return number(f, slot);
  if (const auto it = dims_.find(name); it != dims_.end()) return whole_number(it->second);
  if (const auto it = attributes_.find(name); it != attributes_.end()) return it->second;
  c_.invalid("'{}' has no value here; it is a tensor, a list, or a dim of an omitted input", name);
}

Number Scope::index(const Formula& f, const Slot& slot) const {
  const auto it = lists_.find(f.args[0].text);
  const bool declared = f.args[0].kind == Formula::Kind::kName;
  const Number k = number(f.args[1], slot);
  if (!declared || it == lists_.end() || k.kind != Kind::kWhole || !is_const(k.whole) || k.whole->i < 0 ||
      k.whole->i >= static_cast<std::int64_t>(it->second.size()))
    c_.invalid("'{}[...]' is not an element of a list of its attributes", f.args[0].text);
  return it->second[static_cast<std::size_t>(k.whole->i)];
}

Number Scope::number(const Formula& f, const Slot& slot) const {
  switch (f.kind) {
    case Formula::Kind::kWhole:
      return whole_number(Expr(f.whole));
    case Formula::Kind::kReal:
      return real_number(f.real);
    case Formula::Kind::kText:
      return text_number(f.text);
    case Formula::Kind::kName:
      return name(f.text, slot);
    case Formula::Kind::kCall:
      return call(f, slot);
    case Formula::Kind::kIndex:
      return index(f, slot);
    case Formula::Kind::kUnary: {
      if (f.text == "not") return truth_number(logical_not(truth(whole(f.args[0], "the operand of 'not'"))));
      const Number x = number(f.args[0], slot);
      if (x.kind == Kind::kWhole) return whole_number(Expr(0) - x.whole);
      return real_binary("*", real_number(-1), x, slot);
    }
    case Formula::Kind::kBinary:
      return binary(f, slot);
    case Formula::Kind::kChoice: {
      const Expr condition = truth(whole(f.args[0], "the condition of 'if'"));
      if (is_const(condition)) return number(f.args[condition->i != 0 ? 1 : 2], slot);
      return whole_number(select(condition, whole(f.args[1], "a value of 'if'"), whole(f.args[2], "a value of 'if'")));
    }
  }
  fail(ErrorKind::kInternal, "a formula of an unknown kind");
}

Number Scope::binary(const Formula& f, const Slot& slot) const {
  const std::string& op = f.text;
  const Number a = number(f.args[0], slot), b = number(f.args[1], slot);
  if (a.kind == Kind::kText || b.kind == Kind::kText) {
    if (a.kind != b.kind || (op != "==" && op != "!=")) c_.invalid("a text can only be compared with a text");
    return whole_number(Expr((a.text == b.text) == (op == "==") ? 1 : 0));
  }
  if (a.kind == Kind::kReal || b.kind == Kind::kReal || op == "/") return real_binary(op, a, b, slot);
  const Expr &x = a.whole, &y = b.whole;
  if (op == "+") return whole_number(x + y);
  if (op == "-") return whole_number(x - y);
  if (op == "*") return whole_number(x * y);
  if (op == "//" || op == "%") {
    if (is_const(y) && y->i <= 0) c_.invalid("a division by {}; divisors are positive", y->i);
    return whole_number(op == "%" ? idx::mod(x, y) : idx::floordiv(x, y));
  }
  if (op == "and") return truth_number(logical_and(truth(x), truth(y)));
  if (op == "or") return truth_number(logical_or(truth(x), truth(y)));
  if (op == "**") {
    if (!is_const(x) || !is_const(y) || y->i < 0 || y->i > 62) c_.invalid("a power of whole numbers must be known");
    std::int64_t r = 1;
    for (std::int64_t k = 0; k < y->i; ++k)
      if (__builtin_mul_overflow(r, x->i, &r)) c_.invalid("a power is too large");
    return whole_number(Expr(r));
  }
  for (const auto& [text, o] : {std::pair("==", Op::kEq), std::pair("!=", Op::kNe), std::pair("<", Op::kLt),
                                std::pair("<=", Op::kLe), std::pair(">", Op::kGt), std::pair(">=", Op::kGe)})
    if (op == text) return truth_number(compare(o, x, y));
  c_.invalid("'{}' does not apply to whole numbers", op);
}

Number Scope::real_binary(const std::string& op, const Number& a, const Number& b, const Slot& slot) const {
  const auto known = [](const Number& n) { return n.kind == Kind::kWhole ? is_const(n.whole) : n.known; };
  if (known(a) && known(b)) {
    const auto value = [](const Number& n) {
      return n.kind == Kind::kWhole ? static_cast<double>(n.whole->i) : n.real;
    };
    const double x = value(a), y = value(b);
    if (op == "+") return real_number(x + y);
    if (op == "-") return real_number(x - y);
    if (op == "*") return real_number(x * y);
    if (op == "/") return real_number(x / y);
    if (op == "**") return real_number(std::pow(x, y));
    for (const auto& [text, result] : {std::pair("==", x == y), std::pair("!=", x != y), std::pair("<", x < y),
                                       std::pair("<=", x <= y), std::pair(">", x > y), std::pair(">=", x >= y)})
      if (op == text) return whole_number(Expr(result ? 1 : 0));
    c_.invalid("'{}' does not apply to real numbers", op);
  }
  if (!slot)
    c_.invalid("a real number that depends on sizes can only be an argument of a kernel; // divides whole numbers");
  const auto text = [&](const Number& n) {
    if (n.kind == Kind::kWhole) return fmt::format("double({})", slot(n.whole));
    return n.known ? fmt::format("{:a}", n.real) : n.text;
  };
  if (op != "+" && op != "-" && op != "*" && op != "/")
    c_.invalid("'{}' of real numbers must be known when compiling", op);
  Number n;
  n.kind = Kind::kReal;
  n.known = false;
  n.text = fmt::format("({} {} {})", text(a), op, text(b));
  if (n.text.size() > kMostText) c_.invalid("a formula is too long");
  return n;
}

Number Scope::tensor_call(const Formula& f) const {
  const std::string tensor = f.args.empty() || f.args[0].kind != Formula::Kind::kName ? "" : f.args[0].text;
  const auto it = inputs_.find(tensor);
  if (it == inputs_.end()) c_.invalid("{}({}): its argument is not an input", f.text, tensor);
  if (f.text == "has") return whole_number(Expr(it->second ? 1 : 0));
  if (!it->second) c_.invalid("{}({}): the input is omitted", f.text, tensor);
  const Exprs& shape = it->second->shape;
  if (f.text == "size") return whole_number(idx::product(shape));
  if (f.text == "rank") return whole_number(Expr(static_cast<std::int64_t>(shape.size())));
  const Expr k = f.args.size() == 2 ? whole(f.args[1], "an axis") : Expr();
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (!k || !is_const(k) || k->i < -rank || k->i >= rank) c_.invalid("dim({}, axis): no such axis", tensor);
  return whole_number(shape[static_cast<std::size_t>(k->i < 0 ? k->i + rank : k->i)]);
}

Number Scope::call(const Formula& f, const Slot& slot) const {
  const std::string& op = f.text;
  for (const char* of_tensor : {"has", "size", "rank", "dim"})
    if (op == of_tensor) return tensor_call(f);
  const auto count = [&](std::size_t n) {
    if (f.args.size() != n) c_.invalid("{}() has {} arguments, not {}", op, n, f.args.size());
  };
  if (op == "sizeof") {
    count(1);
    const auto t = f.args[0].kind == Formula::Kind::kName ? named_type(f.args[0].text) : std::nullopt;
    if (!t) c_.invalid("sizeof({}): no such type", f.args[0].text);
    return whole_number(Expr(static_cast<std::int64_t>(size_of(*t))));
  }
  if (op == "len") {
    count(1);
    const auto it = lists_.find(f.args[0].text);
    return whole_number(Expr(it == lists_.end() ? std::int64_t{0} : static_cast<std::int64_t>(it->second.size())));
  }
  if (f.args.empty()) c_.invalid("{}() without arguments", op);
  std::vector<Number> args;
  bool real = false;
  for (const Formula& a : f.args) {
    args.push_back(number(a, slot));
    if (args.back().kind == Kind::kText) c_.invalid("{}() of a text", op);
    real = real || args.back().kind == Kind::kReal;
  }
  if (op == "float") {
    count(1);
    return args[0].kind == Kind::kReal ? args[0] : real_binary("*", args[0], real_number(1), slot);
  }
  if (op == "int") {
    count(1);
    if (args[0].kind == Kind::kWhole) return args[0];
    if (!args[0].known || !(std::fabs(args[0].real) < 9e18)) c_.invalid("int() of a number that is not known");
    return whole_number(Expr(static_cast<std::int64_t>(args[0].real)));
  }
  using Function = std::pair<const char*, double (*)(double)>;
  for (const auto& [text, function] :
       {Function("sqrt", std::sqrt), Function("exp", std::exp), Function("log", std::log),
        Function("rsqrt", [](double x) { return 1 / std::sqrt(x); })}) {
    if (op != text) continue;
    count(1);
    Number x = args[0].kind == Kind::kReal ? args[0] : real_binary("*", args[0], real_number(1), slot);
    if (x.known) return real_number(function(x.real));
    x.text = fmt::format("sdx::{}({})", op, x.text);
    return x;
  }
  if (real) c_.invalid("{}() of real numbers", op);
  if (op == "min" || op == "max") {
    Expr r = args[0].whole;
    for (const Number& a : args) r = op == "min" ? idx::min(r, a.whole) : idx::max(r, a.whole);
    return whole_number(r);
  }
  if (op == "abs") return whole_number(idx::max(args[0].whole, Expr(0) - args[0].whole));
  if (op == "ceildiv" || op == "round_up") {
    count(2);
    const Expr& y = args[1].whole;
    if (is_const(y) && y->i <= 0) c_.invalid("{}() by {}; divisors are positive", op, y->i);
    const Expr q = idx::ceildiv(args[0].whole, y);
    return whole_number(op == "ceildiv" ? q : q * y);
  }
  if (op == "next_power_of_two") {
    count(1);
    Expr r = Expr(std::int64_t{1} << 31);
    for (int k = 30; k >= 0; --k)
      r = select(compare(Op::kLe, args[0].whole, Expr(std::int64_t{1} << k)), Expr(std::int64_t{1} << k), r);
    return whole_number(r);
  }
  c_.invalid("there is no function {}()", op);
}

}  // namespace sardonyx::custom
