// Bandwidth of streaming kernels. Each lane handles one element (8 bytes; copy4: 16) at its index modulo the array, so
// a small array measures a cache and a large one memory. LDS that nothing uses limits a compute unit to two workgroups,
// as in the published measurements.
#include "common.h"

using Four = float __attribute__((ext_vector_type(4)));
enum Kernel { kInit, kRead, kScale, kTriad, kPoints3, kCopy4, kKernels };
constexpr const char* kNames[] = {"init", "read", "scale", "triad", "3pt", "copy4"};
constexpr int kStreams[] = {1, 1, 2, 4, 2, 2};

template <Kernel kKernel>
__global__ void stream(double* a, const double* __restrict__ b, const double* __restrict__ c,
                       const double* __restrict__ d, unsigned length, unsigned total, unsigned inverse, int never) {
  extern __shared__ double unused[];
  const unsigned i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i >= total) return;
  // i mod length by multiplication: `inverse` is 2^32 / length rounded down, which makes the quotient at most one too
  // small.
  unsigned e = i;
  if (length != total) {
    e -= __umulhi(i, inverse) * length;
    if (e >= length) e -= length;
  }
  if (never) unused[threadIdx.x] = b[i];
  if constexpr (kKernel == kInit) {
    a[e] = 0.23;
  } else if constexpr (kKernel == kRead) {
    const double value = b[e];
    if (value == 123.0) a[e] = value;
  } else if constexpr (kKernel == kScale) {
    a[e] = b[e] * 1.2;
  } else if constexpr (kKernel == kTriad) {
    a[e] = b[e] * d[e] + c[e];
  } else if constexpr (kKernel == kPoints3) {
    if (e > 0 && e < length - 1) a[e] = 0.5 * b[e - 1] - b[e] + 0.5 * b[e + 1];
  } else {
    reinterpret_cast<Four*>(a)[e] = reinterpret_cast<const Four*>(b)[e];
  }
  if (never) a[e] = unused[e];
}

int main(int argc, char** argv) {
  const char* usage = "stream init|read|scale|triad|3pt|copy4 [ARRAY_KB] [TOTAL_KB] [LANES] [GROUPS_PER_COMPUTE_UNIT]";
  int kernel = 0;
  while (kernel < kKernels && std::strcmp(kNames[kernel], word(argc, argv, 1, "read"))) ++kernel;
  if (kernel == kKernels) refuse(usage);
  const long element = kernel == kCopy4 ? 16 : 8;
  const long array = number(argc, argv, 2, 65536);
  const long totalKilobytes = number(argc, argv, 3, array);
  const long lanes = number(argc, argv, 4, 1024), perUnit = number(argc, argv, 5, 2);
  const unsigned length = static_cast<unsigned>(array * 1024 / element),
                 total = static_cast<unsigned>(totalKilobytes * 1024 / element);
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, 0), "reading the device's properties");
  // A little too much for perUnit + 1 workgroups. gfx950 has 160 KB of LDS in a compute unit, the others 64 KB; a
  // workgroup gets 64 KB at most.
  const size_t unit = std::strncmp(properties.gcnArchName, "gfx950", 6) ? 65536 : 163840;
  const size_t lds = perUnit >= 8 ? 0 : (unit / (perUnit + 1) + 512) / 256 * 256;
  double* arrays[4] = {};
  const int used = kernel == kTriad ? 4 : 2;
  for (int i = 0; i < used; ++i) {
    if (kStreams[kernel] == 1 && i != (kernel == kInit ? 0 : 1))
      arrays[i] = deviceMemory<double>(lanes * 2);  // never touched by this kernel
    else
      check(hipMalloc(reinterpret_cast<void**>(&arrays[i]), length * element), "allocating an array");
  }
  using Function = void (*)(double*, const double*, const double*, const double*, unsigned, unsigned, unsigned, int);
  constexpr Function kFunctions[] = {stream<kInit>,  stream<kRead>,    stream<kScale>,
                                     stream<kTriad>, stream<kPoints3>, stream<kCopy4>};
  const unsigned inverse = static_cast<unsigned>((1ull << 32) / length);
  const long groups = (total + lanes - 1) / lanes;
  for (int launch = 0; launch < 2; ++launch) {
    kFunctions[kernel]<<<groups, lanes, lds>>>(arrays[0], arrays[1], arrays[2], arrays[3], length, total, inverse, 0);
    finish("stream");
  }
  std::printf("%s: %ld workgroups of %ld lanes, %zu bytes of LDS, arrays of %ld kB, %.0f bytes\n", kNames[kernel],
              groups, lanes, lds, array, 1024.0 * totalKilobytes * kStreams[kernel]);
  return 0;
}
