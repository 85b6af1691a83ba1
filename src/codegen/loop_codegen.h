// Loop kernels as C++ functions.
#pragma once
#include <string>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// A kernel's text and how to call it. The text defines
///   extern "C" void NAME(char* const* b, const i64* s, i64 begin, i64 end)
/// which computes the points [begin, end) of `points`; any partition of [0, points) into calls, in any order and on any
/// threads, computes the whole.
struct LoopSource {
  std::string body;             ///< all after the function's name; equal kernels have equal bodies
  std::vector<Value*> buffers;  ///< b[k]: memory of these values
  Exprs symbols;                ///< s[k]: values of these symbols
  Expr points;                  ///< how many points there are
  Expr work;                    ///< rough number of operations per point
};

/// Host code for a kernel.
LoopSource generate_host_loop(const LoopKernel& kernel);

/// A kernel for a GPU; see gpu_codegen.cpp. Its text defines NAME(buffers..., symbols..., i64 points), to be launched
/// with kGpuThreads threads a workgroup.
struct GpuLoopSource {
  LoopSource source;
  /// Whether a point is the work of a whole workgroup, rather than of a thread.
  bool workgroup_per_point = false;
};
inline constexpr int kGpuThreads = 256;
GpuLoopSource generate_gpu_loop(const LoopKernel& kernel);

}  // namespace sardonyx::codegen
