// Families of GPU kernels that compute contractions (GEMM, convolution): gemm.h's tiles, wgmma with and without TMA,
// matrix-vector kernels, skinny GEMMs, streaming ones. A family says which problems it computes, with which candidates,
// what each costs (by its tiling), and its kernels' text. families.cpp lists them; CONTRIBUTING.md says how to add one.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/kernel_spec.h"
#include "program/tiling.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// How kernels/gemm_loader.h fetches an operand: 16 bytes along K at a time, 16 bytes along rows (columns), one by one.
enum class Access : std::uint8_t { kVector, kAcross, kElements };

/// out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]), as far as kernels differ in it.
struct ContractionProblem {
  const Chip& chip;
  DType type = DType::kFloat32;  ///< of the factors
  Access a = Access::kElements, b = Access::kElements;
  bool quantized = false;               ///< b: weights of few bits in blocks, see quantized_operand.h
  int bits = 16;                        ///< of an element of b, if quantized
  std::int64_t columns = 0, depth = 0;  ///< N and K; 0: not known
  std::int64_t least_rows = 1;          ///< of M, where it is not known
  bool full_columns = false;            ///< N is a multiple of 8
  bool padded = false;                  ///< a convolution whose windows reach outside of the image
  bool pairs = false;                   ///< the epilogue takes pairs of adjacent columns
  int made_rows = 0;                    ///< the kernel makes its rows of a itself, so many; 0: they are in memory
  bool copies = false;                  ///< TMA can load both operands
  bool whole_stages = false;            ///< and it loads 64 elements along K at a time, or K is a multiple of as many
  bool streams = false;                 ///< b is constant, in memory before any launch, and laid out for stream.h
  int runs_of_scale = 0;                ///< of a quantized b that streams: 16-byte runs with one scale
  bool scales_follow = false;           ///< and a column's scales follow those of the column before it

  bool vectors() const { return a == Access::kVector && b == Access::kVector; }
};

struct KernelCandidate {
  std::string kernel;  ///< "gemm_wgmma<128, 6, 1>": the function without its arguments, which identifies the candidate
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic shared memory (LDS)
  bool may_share = false;    ///< several workgroups may divide K (split-K)
  LaunchBounds bounds;
  std::vector<std::string> headers;  ///< of src/kernels, besides gpu_kernels.h
  std::string name() const { return tiling.shares > 1 ? fmt::format("{} / {}", kernel, tiling.shares) : kernel; }
};

/// Text that all kernels of a problem share: parameters, and the struct P with its value p, by which kernels fetch
/// operands and store results.
struct ContractionText {
  std::string buffers;  ///< "T* __restrict b0, ": their parameters
  std::string sizes;    ///< "i64 s0, i64 batches, i64 m, i64 n, i64 k"
  std::string problem;
  /// "(parameters) { problem", with parameters before the buffers, between these and the sizes, and after; to be
  /// continued by statements and "}\n".
  std::string begin(std::string_view before = "", std::string_view between = "", std::string_view after = "") const {
    return fmt::format("({}{}{}{}{}) {{\n{}", before, buffers, between, sizes, after, problem);
  }
  /// The same for split-K: with memory for partial sums, and how many workgroups divide K.
  std::string begin_shared() const { return begin("", "void* __restrict parts, ", ", i64 shares"); }
};

class ContractionFamily {
 public:
  virtual ~ContractionFamily() = default;
  /// Whether the chip has what the kernels need, and they compute this problem.
  virtual bool supports(const ContractionProblem& problem) const = 0;
  /// Of a problem that it supports. Tilings hold what each costs.
  virtual std::vector<KernelCandidate> candidates(const ContractionProblem& problem) const = 0;
  /// By default a call of `candidate.kernel` with p; with split-K through share_k() (kernels/gemm_split_k.h).
  virtual KernelSpec emit(const ContractionText& text, const KernelCandidate& candidate) const;
};

/// All families, in the order in which their candidates are compared.
std::span<const ContractionFamily* const> contraction_families();

/// Whether kernels/skinny.h computes this problem.
bool skinny_supports(const ContractionProblem& problem);
/// Whether it has this type on this chip.
bool skinny_supports(const Chip& chip, DType type);

KernelSpec gemm_spec(std::string body, const LaunchBounds& bounds = {}, std::uint32_t shared_bytes = 0);

}  // namespace sardonyx::codegen
