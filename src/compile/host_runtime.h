// The functions of this process that code of a HostModule may call: nothing else resolves.
#pragma once
#include <span>

namespace sardonyx {

struct RuntimeSymbol {
  const char* name;  ///< if it ends with a dot: every name with this text up to its first dot
  void* address;
};

/// memcpy and its family, libm (float and double), and conversions of 16-bit floats that a CPU without such
/// instructions asks for. The vector math of libmvec is not among them. And what custom
/// kernels need (host_threads.h).
std::span<const RuntimeSymbol> host_runtime();

}  // namespace sardonyx
