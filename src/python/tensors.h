// Tensors between Python and the library: in host or GPU memory, owned by us or by another library through DLPack.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/device.h"
#include "sardonyx/device.h"
#include "sardonyx/tensor.h"

namespace sardonyx::python {

namespace nb = nanobind;

/// An input: address, dtype's name, dims, whether it is in GPU memory. Python keeps it alive; row-major.
using Raw = std::tuple<std::uintptr_t, std::string, std::vector<std::int64_t>, bool>;
/// `what` names it in errors.
TensorView view_of(const Raw& raw, const std::string& what);

/// The Python class sardonyx.Tensor.
struct PyTensor {
  Tensor tensor;
  nb::ndarray<nb::ro> borrowed{};     ///< of another library; keeps it alive
  std::shared_ptr<Gpu> gpu{};         ///< owner of the memory; null: the host
  std::shared_ptr<GpuEvent> ready{};  ///< on a GPU: when its elements have been written; null: they have
};

/// The Python class sardonyx.Stream. `owned` is null on the host.
struct PyStream {
  std::shared_ptr<Gpu> gpu{};
  std::shared_ptr<void> owned{};
};

/// Allocates memory of a device ("host": null) for a tensor.
PyTensor allocate(const std::shared_ptr<Gpu>& gpu, DType dtype, const std::vector<std::int64_t>& dims);

/// Tensor, Stream, from_dlpack, empty, dlpack_device.
void define_tensors(nb::module_& m);

}  // namespace sardonyx::python
