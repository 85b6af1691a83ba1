// Self-contained HTML pages: a template in assets/ with data inserted.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx::cli {

/// The text of a file of assets/.
std::string_view asset(std::string_view name);
/// A page of assets/ in which the word /*DATA*/ is replaced by JSON, escaped for its place inside <script>.
std::string page(std::string_view name, std::string_view json);

}  // namespace sardonyx::cli
