// Matrix products through the vendor's own library: NVIDIA's cuBLASLt, AMD's hipBLASLt. It is opened at run time, and
// nothing of it is needed to build. Only what tuning has measured to be faster runs here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/launch.h"
#include "sardonyx/dtype.h"

namespace sardonyx {

/// out[z, row, col] = activation(sum over k of a[z, row, k] b[z, k, col] + bias[col] + residual[z, row, col]), all in
/// memory without gaps, row by row.
struct LibraryProduct {
  std::int64_t batches = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;  ///< a lies as [k, m], b as [n, k]
  bool one_a = false, one_b = false;      ///< the same matrix for all batches
  DType type = DType::kFloat32;           ///< of a and b: float32, float16, bfloat16
  DType out = DType::kFloat32;            ///< of out, bias and residual: that type, or float32
  bool bias = false, residual = false;
  ProductActivation activation = ProductActivation::kNone;
};

/// Device memory; each at a multiple of 16 bytes. Null where the product has none.
struct LibraryTensors {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;  ///< kLibraryWorkspace bytes, at a multiple of 256
};

/// One way of the library's to compute a product. Safe from many threads.
class ProductPlan {
 public:
  virtual ~ProductPlan() = default;
  /// Gives the work to the stream, which may be one that is captured. Throws Error(kDevice) with the library's reason.
  virtual void run(const LibraryTensors& tensors, GpuStream stream) const = 0;
};

class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  /// "cuBLASLt 13.1.0": what was measured counts for this version alone.
  const std::string& name() const { return name_; }
  /// The library's own choices, the most promising first; none if it can't compute this. Safe from many threads.
  virtual std::vector<std::shared_ptr<const ProductPlan>> plans(const LibraryProduct& product, int at_most) const = 0;

 protected:
  std::string name_;
};

/// The library for a GPU, opened once for each card and path. `path`: the file, or empty for the loader's path
/// (LD_LIBRARY_PATH, the system's folders; what the process has loaded already). Null, with what is missing in `why`,
/// if there is none that can be used; a simulated card has none but one that is named.
std::shared_ptr<const ProductLibrary> open_product_library(const std::shared_ptr<Gpu>& gpu, const std::string& path,
                                                           std::string& why);

/// Whether a candidate of the tuner is one of a library's: "cuBLASLt 13.1.0 #0 bias".
bool is_library_candidate(const std::string& name);
/// The name of a library's way number `at` for a product.
std::string library_candidate(const std::string& library, std::size_t at, const LibraryProduct& form);
/// Of such a name, what comes behind the library: " bias relu"; what of it says which library and which way.
std::string library_form(const LibraryProduct& form);

}  // namespace sardonyx
