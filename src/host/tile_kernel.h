// What a gemm or a convolution of known sizes becomes: a kernel that can be run from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "host/buffer.h"

namespace sardonyx::host {

/// A constant right operand (weights), repacked as the kernels want it. Every kernel that reads the same bytes of the
/// model takes it, whatever sizes its other operands have, transposed or not. Holds one layout, or two when kernels
/// want different ones; a third replaces the one used least recently. Safe to use from several threads.
class PackedWeights {
 public:
  struct Impl;
  explicit PackedWeights(std::unique_ptr<Impl> impl);
  ~PackedWeights();
  static std::shared_ptr<PackedWeights> empty();
  /// The model's bytes are not what kernels read: `widen` makes the latter of the former.
  void widen_by(std::function<std::shared_ptr<const Buffer>(const void*)> widen);
  /// Bytes held now.
  std::size_t bytes() const;
  /// How often a layout was made after the first packing.
  int repacks() const;
  /// The form `name` of the weights, which `make` writes: to `target`, `bytes` long, from the `plain_bytes` that
  /// kernels read. `original`: TileArgs::weights.
  std::shared_ptr<const Buffer> form(const std::string& name, std::size_t bytes, const void* original,
                                     std::size_t plain_bytes,
                                     const std::function<void(const void* plain, void* target)>& make);
  /// The layout that was used last: to prefetch only, as it may be dropped at any time.
  std::span<const char> newest() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// The buffers of one run. `out` overlaps no other; the rest may overlap each other. Every tensor is row-major and
/// contiguous.
struct TileArgs {
  const void* src = nullptr;  ///< the left matrix; the convolution's input
  /// The right matrix or the weights as the model has them. With `packed` read only if another layout is wanted; null
  /// is allowed then as long as all layouts are oneDNN's.
  const void* weights = nullptr;
  PackedWeights* packed = nullptr;        ///< what pack() of this or a sister kernel gave
  const void* bias = nullptr;             ///< float32, one for each output column or channel; null without bias
  std::span<const void* const> operands;  ///< of the post-operations that have one, in order
  void* out = nullptr;
  std::span<const char> later;  ///< memory to prefetch, which later kernels read; see prefetches()
  void* scratch = nullptr;      ///< scratch_bytes() bytes at a multiple of 64; may be null when that is 0
};

class TileKernel {
 public:
  virtual ~TileKernel() = default;
  /// Bytes of working memory that each concurrent run needs.
  virtual std::size_t scratch_bytes() const = 0;
  /// The implementation's name, for people.
  virtual std::string name() const = 0;
  /// Bytes of TileArgs::later that a run can prefetch beside its work.
  virtual std::int64_t prefetches() const { return 0; }
  /// Repacks constant weights (given as in TileArgs::weights).
  virtual std::shared_ptr<PackedWeights> pack(const void* weights) const = 0;
  /// Computes `out`. Throws Error(kInternal) when the kernel fails.
  virtual void run(const TileArgs& args) const = 0;
};

}  // namespace sardonyx::host
