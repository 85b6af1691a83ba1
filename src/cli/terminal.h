// What the commands print: numbers for people, tables, progress.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/dtype.h"

namespace sardonyx::cli {

std::string human_bytes(double bytes);      ///< "12.3 MiB"
std::string human_seconds(double seconds);  ///< "12.3 ms"
/// At most `width` columns of UTF-8 text, with "…" for what is cut.
std::string cut(std::string_view text, std::size_t width);
/// Control characters become '?', so that names from a model can't drive the terminal.
std::string printable(std::string_view text);

/// "float32 [2, 3]".
std::string type_text(DType dtype, const std::vector<std::int64_t>& dims);
std::string type_text(DType dtype, const std::vector<std::string>& dims);

/// Rows of text in aligned columns; a column whose head starts with '>' is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> heads);
  void add(std::vector<std::string> row);
  void print() const;
  bool empty() const { return rows_.empty(); }

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

/// One line on stderr that is overwritten, if stderr is a terminal and progress is wanted. Not thread-safe.
class ProgressLine {
 public:
  explicit ProgressLine(bool wanted);
  ~ProgressLine() { clear(); }
  /// `total` 0: no bar.
  void show(std::string_view what, std::size_t done = 0, std::size_t total = 0);
  void clear();

 private:
  bool active_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace sardonyx::cli
