// The table of chips for people and programs: `sardonyx devices --chips`, docs/devices.md, sardonyx.chips().
#pragma once
#include <string>

namespace sardonyx {

/// Two tables in Markdown: the chips, and their products with peak rates.
std::string chips_markdown();
/// The whole table as a JSON array of objects, one a chip.
std::string chips_json();

}  // namespace sardonyx
