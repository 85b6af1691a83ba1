// Memory at a multiple of 64 bytes, as vector kernels like it.
#pragma once
#include <cstddef>
#include <new>

namespace sardonyx::host {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes) : data_(::operator new(bytes ? bytes : 1, std::align_val_t{64})), bytes_(bytes) {}
  ~Buffer() { ::operator delete(data_, std::align_val_t{64}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() { return data_; }
  const void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace sardonyx::host
