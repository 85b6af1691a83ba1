// Environment variables of AMD's MIGraphX provider and of MIGraphX itself: what each of them means here.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

/// A variable that is known.
struct ProviderVariable {
  std::string_view name;    ///< "ORT_MIGRAPHX_FP16_ENABLE"
  std::string_view option;  ///< the provider's option that it sets; empty: it has no effect
  std::string_view why;     ///< of one without effect: it is not needed
  bool inverted = false;    ///< "1" means "0" of the option
};
std::span<const ProviderVariable> provider_variables();

/// The variables of `environment` ("NAME=VALUE", ends with null) that begin with ORT_MIGRAPHX_ or MIGRAPHX_ and are not
/// empty. Quotes around values are removed, as the MIGraphX provider removes them from paths.
std::map<std::string, std::string> migraphx_variables(const char* const* environment);

/// What the variables ask for: options by name, with the variable that set them. A variable without effect is named in
/// `notes` with the reason; an unknown one in `warnings` with the most similar known one.
struct VariableOption {
  std::string variable, option, value;
};
std::vector<VariableOption> options_of_variables(const std::map<std::string, std::string>& variables,
                                                 std::vector<std::string>& notes, std::vector<std::string>& warnings);

}  // namespace sardonyx
