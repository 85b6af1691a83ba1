// Precompiled headers, kept in memory: parsing the prelude takes longer than compiling a small kernel.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compile/compiler.h"

namespace sardonyx {

/// When the first thing in `source` is an #include "..." of one of `headers`, and that header says #pragma once: its
/// precompiled form for the cc1 arguments `args`, made at first use and shared by the whole process (the few that were
/// used last are kept). Null otherwise, and when the header does not compile, which compiling the source will report.
/// Thread-safe.
std::shared_ptr<const std::string> precompiled_header(const std::vector<std::string>& args, std::string_view source,
                                                      std::span<const SourceFile> headers);

}  // namespace sardonyx
