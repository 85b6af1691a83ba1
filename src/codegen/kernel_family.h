// Families of GPU kernels that compute contractions (GEMM, convolution): gemm.h's tiles, wgmma with and without TMA,
// matrix-vector kernels, skinny GEMMs, streaming kernels. A family defines which problems it supports, with which
// candidates, their costs (by tiling), and their text. families.cpp lists them; CONTRIBUTING.md explains how to add
// one.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/kernel_spec.h"
#include "program/tiling.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// How kernels/gemm_loader.h loads an operand: 16 bytes along K, 16 bytes along rows (columns), or single elements.
enum class Access : std::uint8_t { kVector, kAcross, kElements };

/// out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]): the properties by which kernels differ.
struct ContractionProblem {
  const Chip& chip;
  DType type = DType::kFloat32;  ///< of operands
  Access a = Access::kElements, b = Access::kElements;
  bool quantized = false;               ///< b is quantised in blocks with 4 or 8 bits, see quantized_operand.h
  int bits = 16;                        ///< of an element of b, if quantized
  std::int64_t columns = 0, depth = 0;  ///< N and K; 0: unknown
  bool shares = false;                  ///< N and K may be arguments: see ContractionText::shared()
  std::int64_t least_rows = 1;          ///< lower bound of M
  bool full_columns = false;            ///< N is a multiple of 8
  bool padded = false;                  ///< a convolution with padding
  bool windows = false;                 ///< elements of a are read under several taps of a filter
  bool linear = false;                  ///< the addresses of both operands are linear in k, and nothing is masked
  bool to_lds = false;                  ///< cache lines of both operands can be loaded straight to LDS (gemm_ring.h)
  bool groups = false;                  ///< each row belongs to one z only (Contraction::end)
  bool pairs = false;                   ///< the epilogue reads pairs of adjacent columns
  int computed_rows = 0;                ///< number of rows of a that the kernel computes itself; 0: they are in memory
  bool tma = false;                     ///< TMA can load both operands
  /// With `tma`, if TMA always loads 128 bytes along K at a time, or K is a multiple of as many.
  bool whole_stages = false;
  bool streams = false;  ///< b is constant, in memory before any launch, in the layout of stream.h
  bool loaded_blocks =
      false;  ///< b is quantised; it, its scales and zero points are constant, the former in that layout
  bool loaded_scales = false;  ///< the same, with one zero point
  int vectors_per_scale = 0;   ///< with loaded_blocks: vectors of 16 bytes that share a scale
  bool scales_follow = false;  ///< the scales of consecutive columns are contiguous

  bool vectors() const { return a == Access::kVector && b == Access::kVector; }
};

struct KernelCandidate {
  std::string kernel;  ///< "gemm_wgmma<128, 6, 1>": the function without its arguments, which identifies the candidate
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic shared memory (LDS)
  bool may_split = false;    ///< split-K is possible
  int tree_acc = 0;          ///< GpuTiling::tree_acc, if split-K takes one launch
  int depth = 0;             ///< elements of K of a tile, if N and K may be arguments; 0: they may not
  LaunchBounds bounds;
  std::vector<std::string> headers;  ///< of src/kernels, besides gpu_kernels.h
  std::string name() const { return tiling.splits > 1 ? fmt::format("{} / {}", kernel, tiling.splits) : kernel; }
};

/// The names of N and K in functions of P, where they may be arguments.
inline constexpr std::string_view kNamedN = "this->n", kNamedK = "this->k";

/// Text that all kernels of a problem share: parameters, and the struct P with its value p, by which kernels load
/// operands and store results.
struct ContractionText {
  std::string buffers;  ///< "T* __restrict b0, ": their parameters
  std::string sizes;    ///< "i64 s0, i64 m, i64 nk, i64 batches"; nk: N, and K in the upper half
  std::string structs;  ///< "struct P : Problem<...> { members" without its end
  std::string values;   ///< of the members: ", b0, s0"
  /// Of batches, M, N and K: arguments, or numbers that are known.
  std::array<std::string, 4> extents;
  std::int64_t columns = 0, depth = 0;  ///< N and K, if `structs` names them instead of their values; else 0
  std::int64_t rows = 0;                ///< M; 0: unknown

  std::string problem() const {
    return fmt::format("{}}};\nconst P p{{{{{}}}{}}};\n", structs, fmt::join(extents, ", "), values);
  }
  /// The text for a candidate. N and K are arguments where the kernel is as fast with them, so that layers that differ
  /// only in these sizes share it: most of the time of compiling a convolutional network is that of such kernels.
  ContractionText shared(const KernelCandidate& candidate) const;
  /// "(parameters) { problem", with parameters before the buffers, between these and the sizes, and after. The caller
  /// appends statements and "}
  /// ".
  std::string begin(std::string_view before = "", std::string_view between = "", std::string_view after = "") const {
    return fmt::format("({}{}{}{}{}) {{\n{}", before, buffers, between, sizes, after, problem());
  }
  /// The same for split-K: with workspace for partial sums, and the number of workgroups that divide K.
  std::string begin_split_k() const { return begin("", "void* __restrict parts, ", ", i64 splits"); }
  /// The same in one launch: also with how many workgroups of each tile have stored their sums. The upper half of `m`
  /// is the number of workgroups that divide K: an argument after the sizes would have to be loaded before anything
  /// else can start.
  std::string begin_split_k_tree() const { return begin("", "void* parts, ", ", u32* arrived"); }
};

class ContractionFamily {
 public:
  virtual ~ContractionFamily() = default;
  /// Whether the chip has the features that the kernels need, and they support this problem.
  virtual bool supports(const ContractionProblem& problem) const = 0;
  /// Whether the kernels divide rows by group (P::kGroups of kernels/gemm_problem.h).
  virtual bool has_groups() const { return false; }
  /// Requires supports(). Tilings include their costs.
  virtual std::vector<KernelCandidate> candidates(const ContractionProblem& problem) const = 0;
  /// By default a call of `candidate.kernel` with p; with split-K through split_k() (kernels/gemm_split_k.h) or
  /// split_k_tree() (kernels/gemm_split_k_tree.h).
  virtual KernelSpec emit(const ContractionText& text, const KernelCandidate& candidate) const;
};

/// All families, in the order in which their candidates are compared.
std::span<const ContractionFamily* const> contraction_families();

/// Whether kernels/gemm_short_k.h supports this problem.
bool short_k_supports(const ContractionProblem& problem);
/// Whether kernels/skinny.h supports this problem.
bool skinny_supports(const ContractionProblem& problem);
/// Whether kernels/gemm_wgmma_packed.h supports this problem.
bool packed_supports(const ContractionProblem& problem);
/// Whether kernels/gemm_packed.h is faster than skinny.h for 17 to 32 rows: on an H200, with many columns, or with a
/// long K and either more columns than one wave of workgroups takes or so few that a wave of clusters of 4 divides K.
bool packed_beats_skinny(const ContractionProblem& problem);
/// How kernels/packed_ring.h divides a GEMM with up to so many rows: its template arguments, and how many workgroups
/// share a multiprocessor.
struct RingShape {
  int groups, stages, splits, resident;
};
inline constexpr int kRingRows[] = {8, 16, 32};  ///< of its tiles
/// The shape, if it is faster than others for this problem.
std::optional<RingShape> ring_shape(const ContractionProblem& problem, int rows);
/// Whether kernels/gemv_wide.h supports this problem.
bool gemv_wide_supports(const ContractionProblem& problem);
/// Whether kernels/skinny.h supports this type on this chip.
bool skinny_supports(const Chip& chip, DType type);

KernelSpec gemm_spec(std::string body, const LaunchBounds& bounds = {}, std::uint32_t shared_bytes = 0);

}  // namespace sardonyx::codegen
