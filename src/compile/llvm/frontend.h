// The interface to clang: cc1 arguments and files in memory in, an object or assembly text out.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/backend.h"

namespace sardonyx {

// See CompilerBackend.
std::string run_cc1(const std::vector<std::string>& args, std::string_view source, std::span<const SourceFile> headers,
                    Emit emit, const std::string* precompiled);
std::string precompile_cc1(const std::vector<std::string>& args, std::string_view name,
                           std::span<const SourceFile> headers);

}  // namespace sardonyx
