#include "python/options.h"

#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <type_traits>
#include <variant>

#include "options/compile_options.h"
#include "options/provider_options.h"
#include "options/provider_variables.h"

namespace nb = nanobind;

namespace sardonyx::python {
namespace {

// An option's value from Python's. sardonyx/options.py has checked the name.
void set_from_python(Options& o, const OptionInfo& option, nb::handle value) {
  const auto wrong = [&](const char* wanted) {
    return nb::type_error(
        fmt::format("option '{}' is {}, not {}", option.name, wanted, nb::type_name(value.type()).c_str()).c_str());
  };
  std::visit(
      [&](auto field) {
        using T = std::remove_reference_t<decltype(o.*field)>;
        if constexpr (std::is_same_v<T, std::filesystem::path>) {
          std::string text;
          if (!nb::try_cast(value, text)) throw wrong("a path");
          o.*field = text;
        } else {
          if (nb::try_cast(value, o.*field)) return;
          throw wrong(std::is_same_v<T, bool>          ? "True or False"
                      : std::is_integral_v<T>          ? "an integer that fits"
                      : std::is_same_v<T, std::string> ? "a str"
                                                       : "a dict of names and sizes");
        }
      },
      option.field);
}

template <std::size_t N>
nb::tuple names_of(const std::array<std::string_view, N>& names) {
  nb::list out;
  for (const std::string_view n : names)
    if (!n.empty()) out.append(std::string(n));
  return nb::tuple(out);
}

const char* type_name(const OptionField& field) {
  constexpr const char* kNames[] = {"bool", "int", "int", "str", "path", "dims"};  // in OptionField's order
  return kNames[field.index()];
}

nb::list option_rows() {
  nb::list out;
  const auto text = [](std::string_view t) { return nb::str(t.data(), t.size()); };
  for (const OptionInfo& o : kOptions) {
    nb::dict d;
    d["name"] = text(o.name);
    d["type"] = type_name(o.field);
    std::visit(
        [&](auto field) {
          const auto value = Options().*field;
          if constexpr (std::is_arithmetic_v<std::remove_const_t<decltype(value)>>)
            d["default"] = value;
          else
            d["default"] = option_text(Options(), o);
        },
        o.field);
    d["default_text"] = default_text(o);
    d["help"] = text(o.help);
    d["details"] = text(o.details);
    d["values"] = names_of(o.values);
    d["at_load"] = o.at_load;
    d["flag"] = text(o.flag);
    d["placeholder"] = text(o.placeholder);
    d["environment"] = text(o.environment);
    d["empty_means_none"] = o.empty_means_none;
    d["python_environment"] = o.python_environment;
    d["provider"] = text(o.provider);
    d["migraphx"] = names_of(o.migraphx);
    d["rocm"] = names_of(o.rocm);
    out.append(d);
  }
  return out;
}

nb::list provider_option_rows() {
  nb::list out;
  for (const ProviderOption& o : provider_options()) {
    nb::dict d;
    d["name"] = std::string(o.name);
    d["default_text"] = std::string(o.default_text);
    d["help"] = std::string(o.help);
    d["migraphx"] = names_of(o.migraphx);
    d["rocm"] = names_of(o.rocm);
    out.append(d);
  }
  return out;
}

}  // namespace

Options options_of(const nb::dict& given) {
  Options o;
  for (const auto& [key, value] : given) {
    const std::string name = nb::cast<std::string>(key);
    const OptionInfo* option = find_option(name);
    if (!option) throw nb::key_error(name.c_str());
    set_from_python(o, *option, value);
  }
  return o;
}

void define_options(nb::module_& m) {
  m.def("options", &option_rows);
  m.def("provider_options", &provider_option_rows);
  m.def("ignored_provider_options", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> out;
    for (const IgnoredOption& o : ignored_provider_options()) out.emplace_back(o.provider, o.name, o.why);
    return out;
  });
  m.def("provider_variables", [] {
    std::vector<std::tuple<std::string, std::string, std::string, bool>> out;
    for (const ProviderVariable& v : provider_variables()) out.emplace_back(v.name, v.option, v.why, v.inverted);
    return out;
  });
}

}  // namespace sardonyx::python
