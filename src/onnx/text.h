// Checks of names from untrusted files.
#pragma once
#include <string>
#include <string_view>

#include "support/text.h"

namespace sardonyx::onnx {

using sardonyx::quote;

/// `s` itself if it is UTF-8 without control characters' NUL; else throws Error(kInvalidModel) about `what`.
const std::string& checked(const std::string& s, std::string_view what);

}  // namespace sardonyx::onnx
