// Links an AMDGPU relocatable object into the HSA code object that a driver loads.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Throws Error(kCompile) with the linker's messages (an undefined symbol, above all), Error(kIo) when no temporary
/// file can be written. Thread-safe; links run one after another, because lld has state per process.
std::string link_amd(std::string_view object);

}  // namespace sardonyx
