#include "options/compile_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "options/parse.h"

namespace sardonyx {
namespace {

using Dims = std::map<std::string, std::int64_t>;

std::string text_of(bool v) { return v ? "1" : "0"; }
std::string text_of(int v) { return std::to_string(v); }
std::string text_of(std::uint64_t v) { return std::to_string(v); }
std::string text_of(const std::string& v) { return v; }
std::string text_of(const std::filesystem::path& v) { return v.string(); }
std::string text_of(const Dims& v) {
  std::vector<std::string> dims;
  for (const auto& [name, size] : v) dims.push_back(fmt::format("{}={}", name, size));
  return fmt::format("{}", fmt::join(dims, ","));
}

void check_range(const OptionInfo& o, std::string_view who, std::int64_t v) {
  if (v >= 0 && (o.largest == 0 || v <= o.largest)) return;
  if (o.default_text.empty())
    fail(ErrorKind::kInvalidArgument, "{} is {}; it must be between 0 and {}", who, v, o.largest);
  fail(ErrorKind::kInvalidArgument, "{} is {}; it must be 0 ({}) or at most {}", who, v, o.default_text, o.largest);
}

void check_value(const OptionInfo& o, std::string_view v) {
  const std::vector<std::string_view> values = allowed_values(o);
  if (values.empty() || std::find(values.begin(), values.end(), v) != values.end()) return;
  std::string list;
  for (std::size_t k = 0; k < values.size(); ++k)
    list += fmt::format("{}'{}'", k == 0 ? "" : k + 1 == values.size() ? " or " : ", ", values[k]);
  fail(ErrorKind::kInvalidArgument, "there is no {} '{}'; use {}", o.name, v, list);
}

void parse(const OptionInfo&, bool& v, std::string_view who, std::string_view text) { v = parse_bool(who, text); }
void parse(const OptionInfo& o, int& v, std::string_view who, std::string_view text) {
  v = parse_number<int>(who, text);
  check_range(o, who, v);
}
void parse(const OptionInfo&, std::uint64_t& v, std::string_view who, std::string_view text) {
  v = parse_number<std::uint64_t>(who, text);
}
void parse(const OptionInfo& o, std::string& v, std::string_view who, std::string_view text) {
  const std::vector<std::string_view> values = allowed_values(o);
  if (!values.empty() && std::find(values.begin(), values.end(), text) == values.end())
    fail(ErrorKind::kInvalidArgument, "{}: '{}' is none of {}", who, text, fmt::join(values, ", "));
  v = text;
}
void parse(const OptionInfo&, std::filesystem::path& v, std::string_view, std::string_view text) { v = text; }
void parse(const OptionInfo&, Dims& v, std::string_view who, std::string_view text) {
  const std::size_t eq = text.rfind('=');
  std::int64_t size = -1;
  if (eq != std::string_view::npos && eq > 0) {
    const std::string_view digits = text.substr(eq + 1);
    const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (error != std::errc() || at != digits.data() + digits.size()) size = -1;
  }
  if (size < 0) fail(ErrorKind::kInvalidArgument, "{} {}: give a name and a size, as in {} batch=4", who, text, who);
  const std::string name(text.substr(0, eq));
  if (!v.emplace(name, size).second) fail(ErrorKind::kInvalidArgument, "{}: dim '{}' is given twice", who, name);
}

}  // namespace

const OptionInfo* find_option(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kOptions), std::end(kOptions), [&](const auto& o) { return o.name == name; });
  return found == std::end(kOptions) ? nullptr : found;
}

std::vector<std::string_view> allowed_values(const OptionInfo& option) {
  std::vector<std::string_view> out;
  for (const std::string_view v : option.values)
    if (!v.empty()) out.push_back(v);
  return out;
}

void set_option(Options& options, const OptionInfo& option, std::string_view who, std::string_view text) {
  std::visit([&](auto field) { parse(option, options.*field, who, text); }, option.field);
}

std::string option_text(const Options& options, const OptionInfo& option) {
  return std::visit([&](auto field) { return text_of(options.*field); }, option.field);
}

std::string default_text(const OptionInfo& option) {
  if (const auto* flag = std::get_if<bool Options::*>(&option.field)) return Options{}.**flag ? "true" : "false";
  return option.default_text.empty() ? option_text(Options{}, option) : std::string(option.default_text);
}

bool is_default(const Options& options, const OptionInfo& option) {
  return option_text(options, option) == option_text(Options{}, option);
}

void check_values(const Options& options) {
  for (const OptionInfo& o : kOptions) {
    if (const auto* number = std::get_if<int Options::*>(&o.field)) check_range(o, o.name, options.**number);
    if (const auto* text = std::get_if<std::string Options::*>(&o.field)) check_value(o, options.**text);
  }
}

const OptionInfo* option_for_compiling(const Options& options) {
  const auto* found = std::find_if(std::begin(kOptions), std::end(kOptions),
                                   [&](const OptionInfo& o) { return !o.at_load && !is_default(options, o); });
  return found == std::end(kOptions) ? nullptr : found;
}

std::string settings_text(const Options& options) {
  std::string out;
  for (const OptionInfo& o : kOptions)
    if (!std::holds_alternative<std::filesystem::path Options::*>(o.field))
      out += fmt::format("{}={}\n", o.name, option_text(options, o));
  return out;
}

}  // namespace sardonyx
