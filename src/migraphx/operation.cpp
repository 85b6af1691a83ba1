#include "migraphx/operation.h"

#include <cctype>

#include "migraphx/operators.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using nlohmann::json;

bool begins_word(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool continues_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

/// JSON with the words in quotes.
std::string quoted(std::string_view text) {
  std::string out;
  for (std::size_t k = 0; k < text.size();) {
    if (text[k] == '"') {
      const std::size_t start = k++;
      while (k < text.size() && text[k] != '"') k += text[k] == '\\' ? 2 : 1;
      k = std::min(k + 1, text.size());
      out += text.substr(start, k - start);
    } else if (begins_word(text[k])) {
      const std::size_t start = k;
      while (k < text.size() && continues_word(text[k])) ++k;
      const std::string_view word = text.substr(start, k - start);
      const bool value = word == "true" || word == "false" || word == "null";
      out += value ? std::string(word) : '"' + std::string(word) + '"';
    } else if (continues_word(text[k])) {  // a number; its exponent is no word
      while (k < text.size() && (continues_word(text[k]) || text[k] == '-' || text[k] == '+')) out += text[k++];
    } else {
      out += text[k++];
    }
  }
  return out;
}

std::string value_text(const json& v) {
  if (v.is_string()) return v.get<std::string>();
  if (!v.is_array()) return v.dump();
  std::vector<std::string> parts;
  for (const json& part : v) parts.push_back(value_text(part));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

}  // namespace

json parse_attributes(std::string_view text) {
  if (text.empty()) return json::object();
  constexpr int kMaxDepth = 8;  // what reads and prints values recurses
  bool deep = false;
  const auto limit = [&](int depth, json::parse_event_t, json&) {
    deep |= depth > kMaxDepth;
    return !deep;
  };
  json j = json::parse(quoted(text), limit, false);
  if (deep || !j.is_object())
    fail(ErrorKind::kInvalidArgument, "the attributes {} are not a list of names and values such as {{axes: [0, 1]}}",
         text);
  return j;
}

migraphx_operation make_operation(const std::string& name, std::string_view attributes) {
  const OperatorRule& rule = operator_rule(name);
  migraphx_operation op{name, parse_attributes(attributes)};
  const json known = json::parse(rule.defaults);
  for (const auto& [key, value] : op.attributes.items()) {
    if (known.contains(key)) continue;
    std::vector<std::string> names;
    for (const auto& [other, ignored] : known.items()) names.push_back(other);
    fail(ErrorKind::kInvalidArgument, "the operator {} has no attribute '{}'; it has {}", name, key,
         names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  }
  return op;
}

json all_attributes(const migraphx_operation& op) {
  json all = json::parse(operator_rule(op.name).defaults);
  all.update(op.attributes);
  return all;
}

std::string to_text(const migraphx_operation& op) {
  if (op.attributes.empty()) return op.name;
  std::vector<std::string> parts;
  for (const auto& [key, value] : op.attributes.items()) parts.push_back(key + "=" + value_text(value));
  return fmt::format("{}[{}]", op.name, fmt::join(parts, ","));
}

}  // namespace sardonyx::mgx
