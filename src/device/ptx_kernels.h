// Splits a PTX text into its kernels.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

/// The kernels of a text, each as a text of its own, because a driver compiles whole texts, and a run needs few of a
/// program's kernels. Only braces and comments are parsed; any text is accepted.
class PtxKernels {
 public:
  explicit PtxKernels(std::string ptx);
  bool has(std::string_view kernel) const { return kernels_.count(kernel) > 0; }
  std::vector<std::string> names() const;
  /// The text without all other kernels.
  std::string text_of(std::string_view kernel) const;
  /// Whether there are kernels and each of them waits for the previous launch (which compile/ptx.h ensures).
  bool wait() const;

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::string ptx_;
  std::map<std::string, Range, std::less<>> kernels_;
};

}  // namespace sardonyx
