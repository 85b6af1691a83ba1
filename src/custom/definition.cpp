// Parses declarations, and finds names that nothing declares.
#include "custom/definition.h"

#include <functional>
#include <set>

#include "custom/source.h"
#include "support/error.h"

namespace sardonyx::custom {
namespace {

constexpr std::size_t kMostTensors = 48, kMostLaunches = 32, kMostArguments = 48, kMostNames = 256;

std::string_view trim(std::string_view s) {
  const std::size_t first = s.find_first_not_of(" \t\n");
  return first == std::string_view::npos ? std::string_view()
                                         : s.substr(first, s.find_last_not_of(" \t\n") + 1 - first);
}

/// The parts between commas that are not inside brackets or quotes.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  char quote = 0;
  std::size_t from = 0;
  for (std::size_t k = 0; k < text.size(); ++k) {
    const char c = text[k];
    if (quote != 0 ? c == quote : (c == '"' || c == '\'')) quote = quote != 0 ? 0 : c;
    if (quote != 0) continue;
    depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
    if (c != ',' || depth != 0) continue;
    parts.push_back(trim(text.substr(from, k - from)));
    from = k + 1;
  }
  const std::string_view last = trim(text.substr(from));
  if (!last.empty() || !parts.empty()) parts.push_back(last);
  return parts;
}

class Reader {
 public:
  explicit Reader(const CustomOperator& op) : op_(op) { d_.name = op.name; }

  Definition run() {
    name();
    read("attributes", op_.attributes, [this](std::string_view t) { attribute(t); });
    read("inputs", op_.inputs, [this](std::string_view t) { d_.inputs.push_back(tensor(t, true)); });
    read("outputs", op_.outputs, [this](std::string_view t) { d_.outputs.push_back(tensor(t, false)); });
    read("workspace", op_.workspace, [this](std::string_view t) { d_.workspace.push_back(tensor(t, false)); });
    read("let", op_.let, [this](std::string_view t) { let(t); });
    read("require", op_.require, [this](std::string_view t) { d_.require.emplace_back(t, parse_formula(t)); });
    if (op_.expression.empty())
      kernels();
    else
      expression();
    check_names();
    return std::move(d_);
  }

 private:
  /// Its message names the operator and the field.
  struct Fault : Error {
    using Error::Error;
  };

  template <typename... A>
  [[noreturn]] void fault(fmt::format_string<A...> format, A&&... a) const {
    throw Fault(ErrorKind::kInvalidArgument,
                fmt::format("custom operator {}: {}{}", op_.name.substr(0, 200), field_.empty() ? "" : field_ + ": ",
                            fmt::format(format, std::forward<A>(a)...)));
  }

  template <typename F>
  void read(std::string_view field, const std::vector<std::string>& list, const F& one) {
    if (list.size() > kMostTensors) fault("{}: {} of them; at most {} are supported", field, list.size(), kMostTensors);
    for (const std::string& text : list) {
      field_ = fmt::format("{} \"{}\"", field, text.substr(0, 200));
      guarded([&] { one(text); });
    }
    field_.clear();
  }
  // Errors of formulas do not say where they are.
  template <typename F>
  void guarded(const F& f) {
    try {
      f();
    } catch (const Fault&) {
      throw;
    } catch (const Error& e) {
      fault("{}", e.what());
    }
  }
  Formula formula(std::string_view field, std::string_view text) {
    field_ = field;
    Formula f;
    guarded([&] { f = parse_formula(text); });
    field_.clear();
    return f;
  }

  void name() {
    const std::size_t at = op_.name.rfind("::");
    if (at == std::string::npos || at == 0 || at + 2 == op_.name.size() || op_.name.size() > 256)
      fault("its name is not \"domain::Operator\", for example \"com.example::Rope\"");
    d_.domain = op_.name.substr(0, at);
    d_.op = op_.name.substr(at + 2);
    if (d_.domain == "ai.onnx" || !is_identifier(d_.op)) fault("its name is not \"domain::Operator\"");
  }

  void declare(const std::string& name, const char* what) {
    if (!is_identifier(name)) fault("'{}' is not a name", name);
    if (!declared_.emplace(name, what).second) fault("'{}' is {} already", name, declared_[name]);
    if (declared_.size() > kMostNames) fault("more than {} names", kMostNames);
  }

  void attribute(std::string_view text) {
    const std::size_t colon = text.find(':'), equal = text.find('=');
    if (colon == std::string_view::npos) fault("it is not \"name: type\" or \"name: type = default\"");
    AttributeDeclaration a;
    a.name = trim(text.substr(0, colon));
    const std::string_view type =
        trim(text.substr(colon + 1, equal == std::string_view::npos ? equal : equal - colon - 1));
    using Type = AttributeDeclaration::Type;
    bool known = false;
    for (const auto& [word, t] :
         {std::pair("int", Type::kInt), std::pair("float", Type::kFloat), std::pair("string", Type::kString),
          std::pair("ints", Type::kInts), std::pair("floats", Type::kFloats)})
      if (type == word) {
        a.type = t;
        known = true;
      }
    if (!known) fault("'{}' is not int, float, string, ints or floats", type);
    if (equal != std::string_view::npos) {
      if (a.type == Type::kInts || a.type == Type::kFloats) fault("a list has no default");
      a.fallback = parse_formula(trim(text.substr(equal + 1)));
    }
    declare(a.name, "an attribute");
    d_.attributes.push_back(std::move(a));
  }

  TensorDeclaration tensor(std::string_view text, bool input) {
    TensorDeclaration t;
    t.text = text;
    const bool loose = !op_.expression.empty();
    std::string_view rest = trim(text);
    const std::size_t colon = rest.find(':');
    std::string_view name = trim(rest.substr(0, colon));
    rest = colon == std::string_view::npos ? std::string_view() : trim(rest.substr(colon + 1));
    if (name.ends_with('?')) {
      if (!input) fault("only inputs may be omitted");
      t.optional = true;
      name = trim(name.substr(0, name.size() - 1));
    }
    t.name = name;
    declare(t.name, "a tensor");
    const std::size_t open = rest.find('[');
    t.type = trim(rest.substr(0, open));
    t.dtype = type_of_name(t.type);
    if (t.type.empty() ? !loose : !t.dtype && !is_identifier(t.type))
      fault("it is not \"name: type[dims]\", for example \"x: T[rows, 4]\" or \"x: float32[n]\"");
    if (open == std::string_view::npos) {
      if (!loose) fault("its dims are missing: \"{}: {}[rows, cols]\"", t.name, t.type.empty() ? "T" : t.type);
      t.any_shape = true;
      return t;
    }
    const std::size_t close = rest.rfind(']');
    if (close == std::string_view::npos || close < open) fault("']' is missing");
    bool group = false;
    for (const std::string_view part : parts_of(rest.substr(open + 1, close - open - 1))) {
      t.dims.push_back(dim(part, input));
      if (t.dims.back().kind != Dim::Kind::kGroup) continue;
      if (group && input) fault("two groups of dims");
      group = true;
    }
    initial(t, trim(rest.substr(close + 1)), input);
    return t;
  }

  Dim dim(std::string_view text, bool input) {
    Dim d;
    if (text.ends_with("...")) {
      d.kind = Dim::Kind::kGroup;
      d.name = trim(text.substr(0, text.size() - 3));
      if (input) name_dim(d.name);
      return d;
    }
    if (text == "_") {
      if (!input) fault("the size of '_' is not known");
      d.kind = Dim::Kind::kAny;
      return d;
    }
    d.formula = parse_formula(text);
    if (input && d.formula.kind == Formula::Kind::kName) name_dim(d.formula.text);
    if (!input && d.formula.kind == Formula::Kind::kBinary && d.formula.text == "<=") {
      if (d.formula.args[0].kind != Formula::Kind::kName)
        fault("before '<=' there is not the name of a tensor with the count");
      d.kind = Dim::Kind::kCounted;
      d.name = d.formula.args[0].text;
      Formula most = std::move(d.formula.args[1]);
      d.formula = std::move(most);
    }
    return d;
  }

  void name_dim(const std::string& name) {
    const auto it = declared_.find(name);
    if (it == declared_.end() || (it->second != "a dim" && it->second != "an attribute")) declare(name, "a dim");
  }

  void initial(TensorDeclaration& t, std::string_view text, bool input) {
    if (text.empty()) return;
    if (text[0] != '=' || input) fault("unexpected '{}' after ']'", text);
    t.initial = trim(text.substr(1));
    if (t.initial == "0") return;
    for (const TensorDeclaration& x : d_.inputs)
      if (x.name == t.initial && !x.optional) return;
    fault("'{}' is neither 0 nor an input", t.initial);
  }

  void let(std::string_view text) {
    const std::size_t equal = text.find('=');
    if (equal == std::string_view::npos) fault("it is not \"name = formula\"");
    std::string name(trim(text.substr(0, equal)));
    Formula f = parse_formula(trim(text.substr(equal + 1)));
    names(f);
    declare(name, "a name");
    d_.let.emplace_back(std::move(name), std::move(f));
  }

  std::vector<Formula> three(std::string_view field, const std::vector<std::string>& list, bool needed) {
    if (list.size() > 3 || (needed && list.empty()))
      fault("{}: {} sizes; there are 1 to 3: x, y and z", field, list.size());
    std::vector<Formula> out;
    for (const std::string& text : list) out.push_back(formula(field, text));
    while (out.size() < 3) out.push_back(parse_formula("1"));
    return out;
  }

  void kernels() {
    if (op_.launches.empty()) fault("it has neither a kernel nor an expression");
    if (op_.launches.size() > kMostLaunches) fault("more than {} launches", kMostLaunches);
    if (d_.outputs.empty()) fault("it has no outputs");
    if (d_.inputs.size() + d_.outputs.size() + d_.workspace.size() > kMostTensors)
      fault("more than {} tensors", kMostTensors);
    if (trim(op_.source).empty()) fault("its source is empty");
    guarded([&] { d_.source = flattened_source(op_); });
    for (const CustomKernel& k : op_.launches) {
      Launch l;
      l.kernel = trim(k.kernel);
      if (l.kernel.empty() || l.kernel.size() > 1024) fault("kernel: a launch without the name of its kernel");
      l.grid = three("grid", k.grid, false);
      l.block = three("block", k.block, false);
      l.shared = formula("shared", k.shared);
      if (k.arguments.size() > kMostArguments) fault("arguments: more than {}", kMostArguments);
      for (const std::string& a : k.arguments) l.arguments.push_back(formula("arguments", a));
      if (l.arguments.empty())
        for (const auto* list : {&d_.inputs, &d_.outputs})
          for (const TensorDeclaration& t : *list) l.arguments.push_back(parse_formula(t.name));
      d_.launches.push_back(std::move(l));
    }
  }

  void expression() {
    if (!op_.launches.empty() || !op_.source.empty() || !op_.workspace.empty())
      fault("it has an expression, so it can't have a source, launches or workspace");
    if (d_.inputs.empty()) fault("it has no inputs");
    if (d_.outputs.size() > 1) fault("an expression has one output");
    d_.expression = formula("expression", op_.expression);
  }

  // Every name in a formula is declared.
  void names(const Formula& f) const {
    if (f.kind == Formula::Kind::kName && declared_.count(f.text) == 0)
      fault("'{}' is neither a dim of an input, an attribute, a tensor nor a name of `let`", f.text);
    if (f.kind == Formula::Kind::kCall && f.text == "sizeof") return;  // names a type
    for (const Formula& a : f.args) names(a);
  }

  void check_names() {
    for (const auto* list : {&d_.inputs, &d_.outputs, &d_.workspace})
      for (const TensorDeclaration& t : *list)
        for (const Dim& dim : t.dims) {
          field_ = fmt::format("\"{}\"", t.text);
          if (dim.kind == Dim::Kind::kFormula || dim.kind == Dim::Kind::kCounted) names(dim.formula);
          if (dim.kind == Dim::Kind::kGroup && declared_.count(dim.name) == 0)
            fault("no input has dims '{}...'", dim.name);
          if (dim.kind == Dim::Kind::kCounted) counted(dim.name);
        }
    field_ = "require";
    for (const auto& [text, f] : d_.require) names(f);
    for (const Launch& l : d_.launches) {
      field_ = fmt::format("the launch of {}", l.kernel);
      for (const auto* list : {&l.grid, &l.block, &l.arguments})
        for (const Formula& f : *list) names(f);
      names(l.shared);
    }
    field_ = "expression";
    if (d_.expression) names(*d_.expression);
    field_.clear();
  }

  void counted(const std::string& name) const {
    for (const auto* list : {&d_.outputs, &d_.workspace})
      for (const TensorDeclaration& t : *list)
        if (t.name == name) {
          if (t.dtype != DType::kInt32 && t.dtype != DType::kInt64)
            fault("the count '{}' is not int32[1] or int64[1]", name);
          return;
        }
    fault("'{}' is not an output or workspace with the count", name);
  }

  const CustomOperator& op_;
  Definition d_;
  std::string field_;
  std::map<std::string, std::string, std::less<>> declared_;
};

}  // namespace

std::optional<DType> type_of_name(std::string_view name) {
  DType t;
  if (parse_dtype(name, t)) return t;
  using Name = std::pair<std::string_view, DType>;
  for (const auto& [cpp, type] :
       {Name("float", DType::kFloat32), Name("double", DType::kFloat64), Name("half", DType::kFloat16),
        Name("__half", DType::kFloat16), Name("__nv_bfloat16", DType::kBFloat16), Name("int", DType::kInt32),
        Name("int64_t", DType::kInt64), Name("uint8_t", DType::kUInt8)})
    if (name == cpp) return type;
  return std::nullopt;
}

std::string kernel_type(DType t) {
  switch (t) {
    case DType::kBool:
      return "bool";
    case DType::kInt8:
      return "int8_t";
    case DType::kInt16:
      return "int16_t";
    case DType::kInt32:
      return "int";
    case DType::kInt64:
      return "int64_t";
    case DType::kUInt8:
      return "uint8_t";
    case DType::kUInt16:
      return "uint16_t";
    case DType::kUInt32:
      return "unsigned";
    case DType::kUInt64:
      return "uint64_t";
    case DType::kFloat16:
      return "__half";
    case DType::kBFloat16:
      return "__nv_bfloat16";
    case DType::kFloat32:
      return "float";
    case DType::kFloat64:
      return "double";
    default:
      return "";
  }
}

Definition parse_definition(const CustomOperator& op) { return Reader(op).run(); }

}  // namespace sardonyx::custom
