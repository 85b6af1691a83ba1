// Attention of one new token per sequence, fused with the rotary embedding of queries and keys and the append to the KV
// cache (kernels/attention_step.h): finds these steps in a schedule, and generates the C++ text.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "codegen/attention_codegen.h"
#include "kernels/layout_attention.h"

namespace sardonyx::codegen {

/// Steps that one kernel replaces if there is one query per sequence.
struct AttentionStepParts {
  const Step* rotation = nullptr;   ///< computes queries and new keys, used only by the next two
  const Step* append = nullptr;     ///< appends keys and values to the cache
  const Step* attention = nullptr;  ///< attends to the keys of the cache
};
std::vector<AttentionStepParts> find_attention_steps(const std::vector<Step>& steps);

/// Launches in order: attention, in one of two cluster sizes, then the merge of the splits.
struct GpuAttentionStep {
  /// NAME(buffers..., f32* partial, symbols...), with kGpuThreads threads per block.
  struct Kernel {
    KernelSpec spec;
    Expr blocks;
    Expr when;  ///< bool: this launch runs for these sizes; implies `applies`
  };
  std::vector<Kernel> kernels;
  std::vector<Value*> buffers;
  Exprs symbols;  ///< values of these expressions
  Expr partial;   ///< float32 elements of workspace
  Expr limit;     ///< see LaunchStep::limit
  Expr work;      ///< number of operations
  Expr applies;   ///< bool: these kernels run instead of the steps that they replace
};
/// Empty if the kernel does not support these heads, types or layouts.
std::optional<GpuAttentionStep> generate_gpu_attention_step(const AttentionStepParts& parts, std::string_view arch);

using sdx::layout::kStepCluster;
/// A cluster of kernels/attention_step_mma.h: so many thread blocks divide the keys of a sequence.
struct StepCluster {
  int blocks;
  Expr when;  ///< bool: these sizes; one of all clusters' conditions holds
};
/// For `units` (sequences times key heads) with heads of `dim` elements.
std::vector<StepCluster> step_clusters(const Expr& units, const Expr& keys, std::int64_t dim);
/// LaunchBounds::cluster.
constexpr std::uint32_t bound_of_cluster(int blocks) { return blocks > 1 ? static_cast<std::uint32_t>(blocks) : 0; }
/// Whether it supports heads of `dim` elements of this type, `group` of which share keys.
bool takes_step_mma(DType type, std::int64_t dim, std::int64_t group);
/// The number of splits of `keys` for `units` (sequences times key heads).
Expr step_parts(const Expr& units, const Expr& keys);

}  // namespace sardonyx::codegen
