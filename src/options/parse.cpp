#include "options/parse.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace sardonyx {
namespace {

// Levenshtein's edit distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool parse_bool(std::string_view who, std::string_view text) {
  const std::string v = lower_case(text);
  if (v == "1" || v == "true" || v == "on" || v == "yes") return true;
  if (v == "0" || v == "false" || v == "off" || v == "no" || v.empty()) return false;
  fail(ErrorKind::kInvalidArgument, "{}: '{}' is neither true nor false; use 1 or 0", who, text);
}

std::vector<std::string> parse_words(std::string_view text) {
  std::vector<std::string> out;
  std::string word;
  for (const char c : std::string(text) + ",") {
    if (c != ',' && c != ';' && c != ' ') {
      word += c;
    } else if (!word.empty()) {
      out.push_back(std::move(word));
      word.clear();
    }
  }
  return out;
}

std::string_view nearest_name(std::string_view wrong, const std::vector<std::string_view>& names) {
  const auto nearest = std::min_element(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return distance(a, wrong) < distance(b, wrong);
  });
  return nearest == names.end() ? std::string_view() : *nearest;
}

}  // namespace sardonyx
