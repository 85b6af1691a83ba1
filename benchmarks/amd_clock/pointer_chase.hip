// Latency of dependent loads. One lane follows 8-byte pointers through 128-byte lines in random order.
// Three launches: the second and third first go `warm` steps, then 0 and `loads` steps; the difference of their
// durations is `loads` latencies, with the same state of the caches before them.
#include <numeric>
#include <random>
#include <vector>

#include "common.h"

using Word = unsigned long long;
constexpr int kUnroll = 32;
constexpr size_t kLine = 128;

// Writes next[i] into the line at[i]; only lines that are visited are ever written, so a footprint may exceed host
// memory.
__global__ void link(Word base, const unsigned* at, const unsigned* next, unsigned count) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) *reinterpret_cast<Word*>(base + at[i] * kLine) = base + next[i] * kLine;
}

__global__ void evict(float4* other) { other[size_t{blockIdx.x} * blockDim.x + threadIdx.x] = float4{}; }

__global__ void chase(Word start, long warm, long loads, Word* end) {
  Word p = start;
  asm volatile("" : "+v"(p));  // a divergent address: the loads are vector loads
  for (long n = 0; n < warm; n += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) p = *reinterpret_cast<const Word*>(p);
  }
  for (long n = 0; n < loads; n += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) p = *reinterpret_cast<const Word*>(p);
  }
  *end = p;
}

using Constant = const __attribute__((address_space(4))) Word*;

__global__ void chaseScalar(Word start, long warm, long loads, Word* end) {
  Word p = start;
  for (long n = 0; n < warm; n += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) p = *reinterpret_cast<Constant>(p);
  }
  for (long n = 0; n < loads; n += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) p = *reinterpret_cast<Constant>(p);
  }
  *end = p;
}

int main(int argc, char** argv) {
  const char* usage = "pointer_chase FOOTPRINT_KB [LOADS] [vector|scalar]";
  const long kilobytes = number(argc, argv, 1, 16);
  const long loads = (number(argc, argv, 2, 4096) + kUnroll - 1) / kUnroll * kUnroll;
  const char* mode = word(argc, argv, 3, "vector");
  const bool scalar = !std::strcmp(mode, "scalar");
  if (!scalar && std::strcmp(mode, "vector")) refuse(usage);
  const long lines = kilobytes * 1024 / static_cast<long>(kLine);
  if (lines < 2) refuse(usage);

  // A cycle through all lines, or, where there are more lines than 2^20, a path through as many random lines as there
  // are loads.
  const bool cycle = lines <= (1 << 20);
  const long visited = cycle ? lines : std::min(lines, loads + 1);
  std::vector<unsigned> at(visited), next(visited);
  std::mt19937_64 random(1);
  if (cycle) {
    std::iota(at.begin(), at.end(), 0u);
  } else {
    // Distinct: line i of the path lies in the i-th of `visited` equal parts of the footprint, then the parts are
    // shuffled.
    for (long i = 0; i < visited; ++i) {
      const long part = lines / visited;
      at[i] = static_cast<unsigned>(i * part + static_cast<long>(random() % part));
    }
  }
  for (long i = visited - 1; i > 0; --i) std::swap(at[i], at[random() % (i + 1)]);
  for (long i = 0; i < visited; ++i) next[i] = at[(i + 1) % visited];
  const long warm = cycle ? (lines + kUnroll - 1) / kUnroll * kUnroll : 0;

  Word base = 0, *end = deviceMemory<Word>(1);
  check(hipMalloc(reinterpret_cast<void**>(&base), lines * kLine), "allocating the footprint");
  unsigned *dAt = deviceMemory<unsigned>(visited), *dNext = deviceMemory<unsigned>(visited);
  check(hipMemcpy(dAt, at.data(), visited * sizeof(unsigned), hipMemcpyHostToDevice), "copying");
  check(hipMemcpy(dNext, next.data(), visited * sizeof(unsigned), hipMemcpyHostToDevice), "copying");
  link<<<(visited + 255) / 256, 256>>>(base, dAt, dNext, static_cast<unsigned>(visited));
  if (!cycle) {  // the lines were just written: a gigabyte of other lines pushes them out of the caches
    constexpr size_t kOther = size_t{1} << 30;
    float4* other = nullptr;
    check(hipMalloc(reinterpret_cast<void**>(&other), kOther), "allocating");
    evict<<<kOther / sizeof(float4) / 256, 256>>>(other);
  }
  finish("link");
  const Word start = base + at[0] * kLine;
  const long steps[3] = {0, 0, loads};
  for (long n : steps) {
    if (scalar)
      chaseScalar<<<1, 1>>>(start, warm, n, end);
    else
      chase<<<1, 1>>>(start, warm, n, end);
    finish("chase");
  }
  Word last = 0;
  check(hipMemcpy(&last, end, sizeof last, hipMemcpyDeviceToHost), "copying");
  if (last != base + at[(warm + loads) % visited] * kLine) {
    std::fprintf(stderr, "the chase ended in the wrong line\n");
    return 1;
  }
  std::printf("footprint %ld kB, %ld lines, warm %ld, loads %ld, %s\n", kilobytes, lines, warm, loads, mode);
  return 0;
}
