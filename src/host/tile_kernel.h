// A GEMM or a convolution of known sizes, as a kernel that can be run from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "host/buffer.h"

namespace sardonyx::host {

/// A constant right operand (weights), repacked for the kernels. All kernels that read the same bytes of the model in
/// the same form (TileKernel::weights_form) share it, whatever the sizes of their other operands, transposed or not. It
/// holds one layout, or two if kernels need different ones; a third replaces the least recently used. Thread-safe.
class PackedWeights {
 public:
  struct Impl;
  explicit PackedWeights(std::unique_ptr<Impl> impl);
  ~PackedWeights();
  static std::shared_ptr<PackedWeights> empty();
  /// For weights whose bytes in the model need conversion before kernels read them: `convert` performs it. A further
  /// conversion is performed before those that were given earlier.
  void convert_by(std::function<std::shared_ptr<const Buffer>(const void*)> convert);
  /// Bytes in use.
  std::size_t bytes() const;
  /// How many layouts were made after the first packing.
  int repacks() const;
  /// The form `name` of the weights, written by `make` to `target`, `bytes` long, from the `plain_bytes` that kernels
  /// read. `original`: TileArgs::weights.
  std::shared_ptr<const Buffer> form(const std::string& name, std::size_t bytes, const void* original,
                                     std::size_t plain_bytes,
                                     const std::function<void(const void* plain, void* target)>& make);
  /// The layout that was used last. For prefetching only: it may be dropped at any time.
  std::span<const char> newest() const;
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// What turns int32 accumulators into results, instead of the steps of an epilogue. A block is `block` columns of a
/// row.
struct AccumulatorFunction {
  /// Computes the blocks [begin, end), numbered row * ceil(columns / block) + block, from the accumulators at
  /// accumulators[row * columns + column]; `accumulators` may point outside of what is in memory. Called from several
  /// threads at once.
  void (*call)(void* context, const std::int32_t* accumulators, std::int64_t begin, std::int64_t end) = nullptr;
  void* context = nullptr;
  std::int64_t block = 0;  ///< a multiple of 64
};

/// The buffers of one run. `out` overlaps no other; the others may overlap each other. All tensors are row-major and
/// contiguous.
struct TileArgs {
  const void* src = nullptr;  ///< the left matrix; the convolution's input
  /// The right matrix, or the weights as the model has them. With `packed`, read only if another layout is needed; may
  /// then be null if all layouts are oneDNN's.
  const void* weights = nullptr;
  PackedWeights* packed = nullptr;        ///< result of pack() of this kernel, or of another one for the same weights
  const void* bias = nullptr;             ///< float32, one per output column or channel; null if there is none
  std::span<const void* const> operands;  ///< tensors of the epilogue steps that have one, in order
  AccumulatorFunction accumulators;       ///< integer_tiles.h
  void* out = nullptr;
  std::span<const char> later;  ///< memory that later kernels read, to prefetch; see prefetches()
  void* scratch = nullptr;      ///< scratch_bytes() bytes, aligned to 64; may be null if that is 0
};

class TileKernel {
 public:
  virtual ~TileKernel() = default;
  /// Bytes of scratch memory that each concurrent run needs.
  virtual std::size_t scratch_bytes() const = 0;
  /// The implementation's name, for reports.
  virtual std::string name() const = 0;
  /// Whether 16-bit floats are computed without converting whole tensors: the fast implementations of oneDNN, whose
  /// others are slower than conversion to float32.
  virtual bool has_fast_halves() const { return false; }
  /// Bytes of TileArgs::later that a run can prefetch without slowing down.
  virtual std::int64_t prefetches() const { return 0; }
  /// Kernels share packed weights only if this is equal: what is done to the model's bytes before they are packed.
  virtual std::string weights_form() const { return ""; }
  /// Packs constant weights (passed as TileArgs::weights).
  virtual std::shared_ptr<PackedWeights> pack(const void* weights) const = 0;
  /// Computes `out`. Throws Error(kInternal) if the kernel fails.
  virtual void run(const TileArgs& args) const = 0;
};

}  // namespace sardonyx::host
