// Links x86-64 ELF objects into memory; supports what the embedded compiler generates for a host. JITLink could do it,
// but needs LLVM, which takes longer to load than most models.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <unordered_map>

#include "compile/host_runtime.h"

namespace sardonyx {

/// Links all of `objects` (relocatable ELF files) into memory. They may use each other's global symbols and those of
/// `runtime`. Adds the global functions and variables that they define to `symbols`. The code lives as long as the
/// result. Source: System V ABI, AMD64 supplement, chapter 4 (object files). Throws Error(kCompile) for an unsupported
/// or damaged object, unresolved or doubly defined symbols, and constructors.
std::shared_ptr<void> elf_link(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime,
                               std::unordered_map<std::string, void*>& symbols);

}  // namespace sardonyx
