// What a gemm or a convolution of known sizes becomes: a kernel that can be run from any thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace sardonyx::host {

/// A constant right operand (weights), repacked as the kernels want it. Every kernel that reads the same bytes of the
/// model takes it, whatever sizes its other operands have, transposed or not. Holds one layout, or two when kernels
/// want different ones; a third replaces the one used least recently. Safe to use from several threads.
class PackedWeights {
 public:
  struct Impl;
  explicit PackedWeights(std::unique_ptr<Impl> impl);
  ~PackedWeights();
  /// Bytes held now.
  std::size_t bytes() const;
  /// How often a layout was made from another one after the first packing.
  int repacks() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// The buffers of one run. `out` overlaps no other; the rest may overlap each other. Every tensor is row-major and
/// contiguous.
struct TileArgs {
  const void* src = nullptr;              ///< the left matrix; the convolution's input
  const void* weights = nullptr;          ///< the right matrix or the weights as the model has them; or null, and
  const PackedWeights* packed = nullptr;  ///< what pack() of this or a sister kernel gave
  const void* bias = nullptr;             ///< float32, one for each output column or channel; null without bias
  std::span<const void* const> operands;  ///< of the post-operations that have one, in order
  void* out = nullptr;
  void* scratch = nullptr;  ///< scratch_bytes() bytes at a multiple of 64; may be null when that is 0
};

class TileKernel {
 public:
  virtual ~TileKernel() = default;
  /// Bytes of working memory that each concurrent run needs.
  virtual std::size_t scratch_bytes() const = 0;
  /// The implementation's name, for people.
  virtual std::string name() const = 0;
  /// Repacks constant weights (given as in TileArgs::weights); the original may be freed afterwards.
  virtual std::shared_ptr<PackedWeights> pack(const void* weights) const = 0;
  /// Computes `out`. Throws Error(kInternal) when the kernel fails.
  virtual void run(const TileArgs& args) const = 0;
};

}  // namespace sardonyx::host
