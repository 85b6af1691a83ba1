// The kernels of a PTX text.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {

/// The kernels of a text, each as a text of its own: a driver compiles whole texts, and a run needs few of a program's
/// kernels. Braces and comments are all that is looked at; any text may be given.
class PtxKernels {
 public:
  explicit PtxKernels(std::string ptx);
  bool has(std::string_view kernel) const { return kernels_.count(kernel) > 0; }
  std::vector<std::string> names() const;
  /// All of the text but other kernels.
  std::string text_of(std::string_view kernel) const;
  /// Whether there are kernels and each of them waits for the launch before it (compile/ptx.h sees to that).
  bool wait() const;

 private:
  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::string ptx_;
  std::map<std::string, Range, std::less<>> kernels_;
};

}  // namespace sardonyx
