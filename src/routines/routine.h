// Host implementations of routines, by name. Each file registers its routines and documents their inputs, outputs,
// params and floats.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/dtype.h"

namespace sardonyx::routines {

/// A row-major tensor in memory.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> dims;

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t d : dims) n *= d;
    return n;
  }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// One call. Outputs are allocated for their largest shapes. A routine whose result may be smaller writes the actual
/// counts to an int64 output; the graph reads these with a BindOp and slices the results.
struct Call {
  std::vector<Tensor> inputs, outputs;
  std::vector<std::int64_t> params;
  std::vector<double> floats;
  int threads = 1;
};

using Fn = void (*)(Call&);

/// Null if there is no routine of this name.
Fn find(std::string_view name);

}  // namespace sardonyx::routines
