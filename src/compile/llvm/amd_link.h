// Links an AMDGPU relocatable object into the HSA code object that a driver loads.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Throws Error(kCompile) with the linker's messages (for example about undefined symbols), and Error(kIo) if no
/// temporary file can be written. Thread-safe; links run one after another, because lld has global state.
std::string link_amd(std::string_view object);

}  // namespace sardonyx
