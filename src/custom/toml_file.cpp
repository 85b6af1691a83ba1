#include "custom/toml_file.h"

#include <set>

#include "custom/source.h"
#include "support/error.h"

// Version 3.3 has assertions that malformed files violate ("[.[a]"): they throw here. Compiled into this file, because
// the library's own binary aborts.
#define TOML_HEADER_ONLY 1
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSERT
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT(expression) ((expression) ? void() : throw sardonyx::custom::BrokenToml())
#define TOML_ASSERT_ASSUME(expression) TOML_ASSERT(expression)
namespace sardonyx::custom {
struct BrokenToml {};
}  // namespace sardonyx::custom
#include <toml++/toml.h>

namespace sardonyx::custom {
namespace {

constexpr std::size_t kMostOperators = 1024;

class TomlReader {
 public:
  TomlReader(std::string_view text, const std::filesystem::path& file) : text_(text), file_(file) {}

  std::vector<CustomOperator> run() {
    const toml::table table = parse();
    for (const auto& [key, node] : table)
      if (key.str() != "operator") fault(node, "unknown key '{}'; operators are in [[operator]]", key.str());
    const toml::array* list = table["operator"].as_array();
    if (!list || list->empty()) fail(ErrorKind::kInvalidArgument, "{}: it has no [[operator]]", file_.string());
    if (list->size() > kMostOperators) fault(*list, "more than {} operators", kMostOperators);
    std::vector<CustomOperator> out;
    std::set<std::string> names;
    for (const toml::node& node : *list) {
      const toml::table* one = node.as_table();
      if (!one) fault(node, "an operator is a table: [[operator]]");
      out.push_back(read(*one));
      if (!names.insert(out.back().name).second) fault(node, "operator {} is defined twice", out.back().name);
    }
    return out;
  }

 private:
  template <typename... A>
  [[noreturn]] void fault(const toml::node& at, fmt::format_string<A...> format, A&&... a) const {
    fail(ErrorKind::kInvalidArgument, "{}:{}: {}", file_.string(), at.source().begin.line,
         fmt::format(format, std::forward<A>(a)...));
  }

  toml::table parse() const {
    // Version 3.3 of the parser has undefined behaviour for some other characters outside of texts.
    std::size_t line = 1;
    for (const char c : text_) {
      line += c == '\n';
      if (static_cast<unsigned char>(c) >= 0x80)
        fail(ErrorKind::kInvalidArgument, "{}:{}: a character that is not ASCII; only files of sources may have them",
             file_.string(), line);
    }
    try {
      return toml::parse(text_, file_.string());
    } catch (const toml::parse_error& e) {
      fail(ErrorKind::kInvalidArgument, "{}:{}: {}", file_.string(), e.source().begin.line, e.description());
    } catch (const BrokenToml&) {
      fail(ErrorKind::kInvalidArgument, "{}: it is not TOML", file_.string());
    }
  }

  std::string text(const toml::node& node, std::string_view key) const {
    const auto value = node.value<std::string>();
    if (!value || !node.is_string()) fault(node, "'{}' is not a text", key);
    return *value;
  }
  /// A formula: a text or a whole number.
  std::string formula(const toml::node& node, std::string_view key) const {
    if (node.is_integer()) return std::to_string(node.as_integer()->get());
    if (!node.is_string()) fault(node, "'{}' is neither a text nor a whole number", key);
    return text(node, key);
  }
  /// A list, or one element.
  std::vector<std::string> list(const toml::node& node, std::string_view key) const {
    std::vector<std::string> out;
    if (const toml::array* all = node.as_array())
      for (const toml::node& x : *all) out.push_back(formula(x, key));
    else
      out.push_back(formula(node, key));
    return out;
  }

  bool launch_key(CustomKernel& k, std::string_view key, const toml::node& node) const {
    if (key == "kernel")
      k.kernel = text(node, key);
    else if (key == "grid")
      k.grid = list(node, key);
    else if (key == "block")
      k.block = list(node, key);
    else if (key == "shared")
      k.shared = formula(node, key);
    else if (key == "arguments")
      k.arguments = list(node, key);
    else
      return false;
    return true;
  }

  CustomOperator read(const toml::table& table) const {
    CustomOperator op;
    CustomKernel single;
    bool has_single = false;
    for (const auto& [k, node] : table) {
      const std::string_view key = k.str();
      if (key == "name")
        op.name = text(node, key);
      else if (key == "source")
        from_file(op, node);
      else if (key == "code")
        op.source = text(node, key);
      else if (key == "expression")
        op.expression = text(node, key);
      else if (key == "inputs")
        op.inputs = list(node, key);
      else if (key == "outputs")
        op.outputs = list(node, key);
      else if (key == "attributes")
        op.attributes = list(node, key);
      else if (key == "workspace")
        op.workspace = list(node, key);
      else if (key == "let")
        op.let = list(node, key);
      else if (key == "require")
        op.require = list(node, key);
      else if (key == "launch")
        launches(op, node);
      else if (launch_key(single, key, node))
        has_single = true;
      else
        fault(node, "unknown key '{}'", key);
    }
    if (op.name.empty()) fault(table, "an operator without a name");
    if (table.contains("source") && table.contains("code")) fault(table, "{}: both 'source' and 'code'", op.name);
    if (has_single && !op.launches.empty()) fault(table, "{}: both 'kernel' and [[operator.launch]]", op.name);
    if (has_single) op.launches.push_back(std::move(single));
    if (op.file.empty())
      op.file = std::filesystem::path(file_).replace_filename(file_.filename().string() + " " + op.name);
    return op;
  }

  void from_file(CustomOperator& op, const toml::node& node) const {
    op.file = file_.parent_path() / text(node, "source");
    std::error_code error;
    if (!std::filesystem::is_regular_file(op.file, error)) fault(node, "there is no file {}", op.file.string());
    op.source = read_text(op.file);
  }

  void launches(CustomOperator& op, const toml::node& node) const {
    const toml::array* all = node.as_array();
    if (!all) fault(node, "launches are tables: [[operator.launch]]");
    for (const toml::node& x : *all) {
      const toml::table* one = x.as_table();
      if (!one) fault(x, "launches are tables: [[operator.launch]]");
      CustomKernel k;
      for (const auto& [key, value] : *one)
        if (!launch_key(k, key.str(), value)) fault(value, "unknown key '{}'", key.str());
      op.launches.push_back(std::move(k));
    }
  }

  std::string_view text_;
  const std::filesystem::path& file_;
};

}  // namespace

std::vector<CustomOperator> parse_toml(std::string_view text, const std::filesystem::path& file) {
  return TomlReader(text, file).run();
}

std::vector<CustomOperator> read_toml(const std::filesystem::path& file) { return parse_toml(read_text(file), file); }

}  // namespace sardonyx::custom
