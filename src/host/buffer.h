// Memory aligned to 64 bytes, for vector loads and stores.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "support/pages.h"

namespace sardonyx::host {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : Buffer(allocate_on_large_pages(bytes), bytes) {}
  /// For packed weights: allocated together with others of the same long lifetime.
  static std::shared_ptr<Buffer> kept(std::size_t bytes) {
    return std::shared_ptr<Buffer>(new Buffer(allocate_piece(bytes), bytes));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  Buffer(std::shared_ptr<void> data, std::size_t bytes) : data_(std::move(data)), bytes_(bytes) {
    if (!data_) throw std::bad_alloc();
  }

  std::shared_ptr<void> data_;
  std::size_t bytes_;
};

}  // namespace sardonyx::host
