// Names of kernels in compiled code, given after compilation. The compiled text has placeholder names of one length,
// independent of the model. So cached code can be used for models whose nodes have other names.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "compile/compiler.h"

namespace sardonyx {

/// The longest name that rename_kernels() gives.
constexpr std::size_t kKernelNameLength = 60;

/// The name under which a kernel is compiled that is renamed afterwards. `id` is an identifier of fewer characters.
std::string kernel_placeholder(std::string_view id);

/// `object` (an AMD code object or PTX of compile()) with other names of kernels: `names` has the new name of each
/// placeholder, an identifier of at most kKernelNameLength characters. Code and its size stay the same. Throws
/// Error(kCompile) for an object that does not have the form of those that compile() makes.
std::string rename_kernels(std::string object, TargetKind kind,
                           const std::map<std::string, std::string, std::less<>>& names);

}  // namespace sardonyx
