// The narrow door to clang: cc1 arguments and files in memory in, an object or assembly text out.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"

namespace sardonyx {

enum class Emit { kObject, kAssembly };

/// Runs clang's cc1 with `args` on `source` (named kernel.cpp) and `headers`. The compiler sees no other file.
/// `precompiled`: what precompile_cc1 returned for the same arguments and headers, or null.
/// Throws Error(kCompile) with the diagnostics.
std::string run_cc1(const std::vector<std::string>& args, std::string_view source, std::span<const SourceFile> headers,
                    Emit emit, const std::string* precompiled);

/// Parses the header named `name` and returns clang's serialised result (a precompiled header).
/// Throws Error(kCompile) with the diagnostics.
std::string precompile_cc1(const std::vector<std::string>& args, std::string_view name,
                           std::span<const SourceFile> headers);

/// The version of the clang that is loaded, for example "clang version 22.1.8".
std::string clang_version();

}  // namespace sardonyx
