// Attention on GPUs as C++: the struct that kernels/attention.h requires, and its forms as candidates of a choice.
#pragma once
#include <string>
#include <string_view>

#include "codegen/gpu_choice.h"
#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// Whether the device supports this attention as a kernel; `why` if not.
bool gpu_takes_attention(const TileKernel& kernel, std::string& why);
/// What is stored for a result x (float32): the kernel's epilogue of it, or x in the type of its output.
Expr attention_result(const TileKernel& kernel, const Expr& x);
/// `arch`: "gfx942", "sm_90". Requires gpu_takes_attention(). Kernels are NAME(buffers..., f32* partial (if the launch
/// has it), symbols..., i64 parts), where `parts` is the number of splits of the keys.
GpuChoice generate_gpu_attention(const TileKernel& kernel, std::string_view arch, const TileSelection& selection = {});

}  // namespace sardonyx::codegen
