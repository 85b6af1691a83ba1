// Tensors between Python and the library: the host's memory or a card's, ours or another library's that DLPack brings.
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

/// A tensor on the way in: address, dtype's name, dims, whether it lies in the memory of a card. The Python side keeps
/// it alive, and row-major.
using Raw = std::tuple<std::uintptr_t, std::string, std::vector<std::int64_t>, bool>;
/// `what` names it in errors.
TensorView view_of(const Raw& raw, const std::string& what);

/// What Python calls sardonyx.Tensor.
struct PyTensor {
  Tensor tensor;
  nb::ndarray<nb::ro> borrowed{};     ///< of another library: keeps it alive
  std::shared_ptr<Gpu> gpu{};         ///< whose memory it lies in; null: the host's
  std::shared_ptr<GpuEvent> ready{};  ///< on a card: when its elements are there; null: they are
};

/// What Python calls sardonyx.Stream. `owned` is null on the host.
struct PyStream {
  std::shared_ptr<Gpu> gpu{};
  std::shared_ptr<void> owned{};
};

/// Memory of a device ("host": null) for a tensor.
PyTensor allocate(const std::shared_ptr<Gpu>& gpu, DType dtype, const std::vector<std::int64_t>& dims);

/// Tensor, Stream, from_dlpack, empty, dlpack_device.
void define_tensors(nb::module_& m);

}  // namespace sardonyx::python
