// Operations of MIGraphX's graphs: an operator's name with its attributes.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

struct migraphx_experimental_custom_op;

struct migraphx_operation {
  std::string name;
  nlohmann::json attributes = nlohmann::json::object();  ///< those that were given
  std::shared_ptr<const migraphx_experimental_custom_op> custom = {};
};

namespace sardonyx::mgx {

/// Attributes as MIGraphX's interface takes them: JSON, in which names and words may stand without quotes, as in
/// "{axes: [0, 1], mode: max}". "" stands for none. Throws Error(kInvalidArgument).
nlohmann::json parse_attributes(std::string_view text);

/// An operation of one of operators.h's names, or of a custom operator, all of whose attributes are known to it. Throws
/// Error: kUnsupported for an operator that can't be offered, kInvalidArgument for unknown attributes.
migraphx_operation make_operation(const std::string& name, std::string_view attributes);

/// The given attributes and the defaults of the others.
nlohmann::json all_attributes(const migraphx_operation& op);

/// "reshape[dims={16, 64}]", as MIGraphX prints it.
std::string to_text(const migraphx_operation& op);

}  // namespace sardonyx::mgx
