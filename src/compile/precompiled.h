// Precompiled headers, in memory: parsing the prelude takes longer than compiling a small kernel.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"

namespace sardonyx {

/// If `source` begins with an #include "..." of one of `headers`, and that header has #pragma once: its precompiled
/// form for the cc1 arguments `args`, made on first use and shared by the whole process (the most recently used few are
/// kept). Null otherwise, and if the header does not compile, which compiling the source will report. Thread-safe.
std::shared_ptr<const std::string> precompiled_header(const std::vector<std::string>& args, std::string_view source,
                                                      std::span<const SourceFile> headers);

}  // namespace sardonyx
