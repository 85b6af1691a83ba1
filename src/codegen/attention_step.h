// Attention of one new token a sequence as one kernel with the rotation of queries and keys and with what is appended
// to the cache (kernels/attention_step.h): found among a schedule's steps, and as C++.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "codegen/attention_codegen.h"
#include "kernels/layout_attention.h"

namespace sardonyx::codegen {

/// Steps that one kernel replaces where there is one query a sequence.
struct AttentionStepParts {
  const Step* rotation = nullptr;   ///< makes queries and new keys, for nobody else
  const Step* append = nullptr;     ///< adds keys and values to the cache
  const Step* attention = nullptr;  ///< to the keys of the cache
};
std::vector<AttentionStepParts> find_attention_steps(const std::vector<Step>& steps);

/// Launches, one after another: attention, in clusters of one of two sizes, then what puts parts together.
struct GpuAttentionStep {
  /// NAME(buffers..., f32* partial, symbols...), of which a block has kGpuThreads threads.
  struct Kernel {
    KernelSpec spec;
    Expr blocks;
    Expr when;  ///< bool: these sizes need this launch; implies `applies`
  };
  std::vector<Kernel> kernels;
  std::vector<Value*> buffers;
  Exprs symbols;  ///< values of these expressions
  Expr partial;   ///< float32 elements of working memory
  Expr limit;     ///< see LaunchStep::limit
  Expr work;      ///< operations
  Expr applies;   ///< bool: that these kernels are to run, and not those that they replace
};
/// Empty if the kernel does not take these heads, types or orders in memory.
std::optional<GpuAttentionStep> generate_gpu_attention_step(const AttentionStepParts& parts, std::string_view arch);

/// Of kernels/attention_step_mma.h: thread blocks that share the keys of a sequence, kStepCluster where that makes at
/// most kMostClustered blocks.
using sdx::layout::kSmallStepCluster;
using sdx::layout::kStepCluster;
constexpr std::int64_t kMostClustered = 256;
/// Whether it takes heads of `dim` elements of this type, of which `group` share keys.
bool takes_step_mma(DType type, std::int64_t dim, std::int64_t group);
/// Parts of `keys` for each of `units` (sequences times heads of keys).
Expr step_parts(const Expr& units, const Expr& keys);

}  // namespace sardonyx::codegen
