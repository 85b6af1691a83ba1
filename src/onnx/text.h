// Names from untrusted files: checked for what other components rely on, and made fit for messages.
#pragma once
#include <string>
#include <string_view>

#include "support/text.h"

namespace sardonyx::onnx {

using sardonyx::quote;

/// `s` itself if it is UTF-8 without control characters' NUL; else throws Error(kInvalidModel) about `what`.
const std::string& checked(const std::string& s, std::string_view what);

/// A node for messages: "node 12 'conv1' (com.example::Conv)".
std::string describe_node(std::int64_t index, std::string_view name, std::string_view domain, std::string_view op_type);

}  // namespace sardonyx::onnx
