#include "cli/terminal.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

namespace sardonyx::cli {
namespace {

// Columns of UTF-8 text, one for each code point.
std::size_t columns(std::string_view s) {
  return static_cast<std::size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

}  // namespace

std::string human_bytes(double b) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int k = 0;
  for (; b >= 1024 && k < 4; ++k) b /= 1024;
  return k == 0 ? fmt::format("{:.0f} B", b) : fmt::format("{:.1f} {}", b, units[k]);
}

std::string human_seconds(double s) {
  if (s >= 1) return fmt::format("{:.2f} s", s);
  if (s >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}

std::string cut(std::string_view text, std::size_t width) {
  if (columns(text) <= width) return std::string(text);
  std::size_t at = 0;
  for (std::size_t n = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && ++n >= width) break;
  return std::string(text.substr(0, at)) + "…";
}

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return out;
}

std::string type_text(DType dtype, const std::vector<std::string>& dims) {
  return fmt::format("{} [{}]", name(dtype), fmt::join(dims, ", "));
}
std::string type_text(DType dtype, const std::vector<std::int64_t>& dims) {
  return fmt::format("{} [{}]", name(dtype), fmt::join(dims, ", "));
}

Table::Table(std::vector<std::string> heads) : heads_(std::move(heads)) {}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

void Table::print() const {
  std::vector<std::size_t> width;
  std::vector<std::string> heads;
  std::vector<bool> right;
  for (const std::string& h : heads_) {
    right.push_back(h.starts_with('>'));
    heads.push_back(right.back() ? h.substr(1) : h);
    width.push_back(columns(heads.back()));
  }
  for (const auto& row : rows_)
    for (std::size_t k = 0; k < row.size(); ++k) width[k] = std::max(width[k], columns(row[k]));
  const auto line = [&](const std::vector<std::string>& row) {
    std::string out;
    for (std::size_t k = 0; k < row.size(); ++k) {
      const std::string pad(width[k] - columns(row[k]), ' ');
      out += "  " + (right[k] ? pad + row[k] : row[k] + pad);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    fmt::print("{}\n", out);
  };
  line(heads);
  for (const auto& row : rows_) line(row);
}

ProgressLine::ProgressLine(bool wanted)
    : active_(wanted && ::isatty(STDERR_FILENO)), start_(std::chrono::steady_clock::now()), last_(start_) {}

void ProgressLine::show(std::string_view what, std::size_t done, std::size_t total) {
  if (!active_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_ && done != total && now - last_ < std::chrono::milliseconds(80)) return;
  last_ = now;
  shown_ = true;
  std::string text = printable(what);
  if (total > 0) {
    const std::size_t filled = 24 * std::min(done, total) / total;
    text += " [" + std::string(filled, '#') + std::string(24 - filled, '.') + fmt::format("] {}/{}", done, total);
  }
  fmt::print(stderr, "\r\x1b[K{}  {:.1f} s", text, std::chrono::duration<double>(now - start_).count());
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (!shown_) return;
  shown_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace sardonyx::cli
