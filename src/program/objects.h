// The machine code of a program's kernels: relocatable objects, code objects or PTX texts.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/background.h"

namespace sardonyx {

/// A list of objects. Those that only some runs need may still be compiling: they are compiled in the background, or at
/// once by the thread that asks for one. Copies share them. Reading is thread-safe.
class Objects {
 public:
  Objects() = default;
  Objects(std::vector<std::string> all) : all_(std::move(all)) {}
  Objects(std::initializer_list<std::string> all) : all_(all) {}
  explicit Objects(std::shared_ptr<BackgroundTexts> later) : later_(std::move(later)) {}

  std::size_t size() const { return later_ ? later_->size() : all_.size(); }
  /// Object `k`, which is compiled if it was not. Throws the compiler's error.
  const std::string& operator[](std::size_t k) const { return later_ ? later_->get(k) : all_[k]; }
  /// Whether nothing has to be compiled any more. An object may have failed.
  bool done() const { return !later_ || later_->done(); }
  /// Whether object `k` has been compiled.
  bool ready(std::size_t k) const { return !later_ || later_->ready(k); }
  /// How many have been compiled, and how many of these by those who needed them: all of a program that was compiled
  /// ahead.
  BackgroundTexts::Counts counts() const {
    return later_ ? later_->counts() : BackgroundTexts::Counts{all_.size(), all_.size()};
  }
  /// Compiles all that is missing on `threads` threads, and returns when all exist. Throws the compiler's first error.
  void complete(int threads) const;
  /// Whether all objects are equal; compiles what is missing.
  bool operator==(const Objects& other) const;

 private:
  std::vector<std::string> all_;
  std::shared_ptr<BackgroundTexts> later_;  ///< null: all exist
};

}  // namespace sardonyx
