// Links host objects with ORC and JITLink, for architectures that elf_link.h does not support.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "compile/host_runtime.h"

namespace sardonyx {

/// Links all of `objects` into memory. They may use each other's symbols and those of `runtime`. Adds what they define
/// to `symbols`. The code lives as long as the result. Throws Error(kCompile).
std::shared_ptr<void> jit_link(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime,
                               std::unordered_map<std::string, void*>& symbols);

}  // namespace sardonyx
