// Two functions of Intel's compiler run-time that the packaged oneDNN calls (cmake/onednn.cmake says why they are
// here).
#include <cstddef>
#include <cstring>

extern "C" {

__attribute__((visibility("default"))) void* _intel_fast_memcpy(void* to, const void* from, std::size_t bytes) {
  return std::memcpy(to, from, bytes);
}

__attribute__((visibility("default"))) void* _intel_fast_memset(void* to, int value, std::size_t bytes) {
  return std::memset(to, value, bytes);
}
}
