// Attention on GPUs as C++: the struct that kernels/attention.h asks for, and which of its kernels runs when.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "codegen/tile_choices.h"
#include "fuse/schedule.h"
#include "program/kernel_spec.h"

namespace sardonyx::codegen {

/// One kernel NAME(buffers..., f32* partial (if `partial`), symbols...), of which a point is the work of a workgroup of
/// kGpuThreads threads. Kernels follow one another; those that these sizes do not need have no points.
struct GpuAttentionKernel {
  KernelSpec spec;
  Expr points;
  bool partial = false;
};
struct GpuAttentionSource {
  std::vector<GpuAttentionKernel> kernels;
  std::vector<Value*> buffers;
  Exprs symbols;  ///< values of these expressions
  Expr partial;   ///< float32 elements of working memory; empty: none
  Expr limit;     ///< must be below 2^31 - 2^29
};

/// Ways to compute one attention, of which sizes or measurements choose.
struct GpuAttentionForms {
  struct Launch {
    std::size_t kernel = 0;  ///< index into source.kernels
    Expr points;
    Expr parts;  ///< into how many the keys are split; the last of the kernel's symbols
  };
  struct Form {
    std::string name;
    Expr applies;  ///< 1 if it computes these sizes
    std::vector<Launch> launches;
  };
  GpuAttentionSource source;  ///< of its kernels, points are those of the forms
  std::vector<Form> forms;
  Expr rule;            ///< index of the form that is taken where nothing was measured; it computes any sizes
  std::string problem;  ///< see TileChoices
  /// Sizes: heads of all sequences, queries, keys, elements of a head of keys and values.
  Expr batches, m, n, k;
  std::vector<TunedSize> tuned;  ///< candidates are names of forms
};

/// Whether the device computes this attention as a kernel; `why` if not.
bool gpu_takes_attention(const TileKernel& kernel, std::string& why);
/// `arch`: "gfx942", "sm_90". The kernel has been accepted by gpu_takes_attention. There are the forms that the rule
/// takes for some sizes, those that were measured to be the fastest for some, and with selection.all every one.
GpuAttentionForms generate_gpu_attention(const TileKernel& kernel, std::string_view arch,
                                         const TileSelection& selection = {});

}  // namespace sardonyx::codegen
