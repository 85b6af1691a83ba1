// What the microbenchmarks share: arguments, error checks and device memory. They print their geometry; the duration of
// a launch is read from the simulator's timing mode, or from a profiler on a card.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

inline void check(hipError_t error, const char* what) {
  if (error == hipSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(error));
  std::exit(1);
}

[[noreturn]] inline void refuse(const char* usage) {
  std::fprintf(stderr, "usage: %s\n", usage);
  std::exit(2);
}

/// Argument `index` as a positive whole number, or `otherwise` where there are fewer arguments.
inline long number(int argc, char** argv, int index, long otherwise) {
  if (index >= argc) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(argv[index], &end, 10);
  if (end == argv[index] || *end || value <= 0) {
    std::fprintf(stderr, "argument %d is '%s', which is not a positive whole number\n", index, argv[index]);
    std::exit(2);
  }
  return value;
}

inline const char* word(int argc, char** argv, int index, const char* otherwise) {
  return index < argc ? argv[index] : otherwise;
}

/// Device memory of `bytes`, every byte set to `fill`.
template <class T>
T* deviceMemory(size_t count, int fill = 0) {
  T* memory = nullptr;
  check(hipMalloc(reinterpret_cast<void**>(&memory), count * sizeof(T)), "allocating device memory");
  check(hipMemset(memory, fill, count * sizeof(T)), "filling device memory");
  return memory;
}

inline void finish(const char* kernel) {
  check(hipGetLastError(), kernel);
  check(hipDeviceSynchronize(), kernel);
}

inline int computeUnits() {
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, 0), "reading the device's properties");
  return properties.multiProcessorCount;
}
