// Batched bitonic sort of key/value pairs by registers, shuffles and shared memory; double buffering; lambdas.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
template <typename K, typename V, typename Comp>
__device__ inline void compare_swap(K& ka, V& va, K& kb, V& vb, bool up, Comp comp) {
  if (comp(kb, ka) == up) { K k = ka; ka = kb; kb = k; V v = va; va = vb; vb = v; }
}
template <typename K, typename V, int N>
__global__ void bitonic_pairs(const K* keys, K* out_keys, V* out_values, float* sums, int* counters, int n) {
  __shared__ K sk[N];
  __shared__ V sv[N];
  cg::thread_block block = cg::this_thread_block();
  const int row = blockIdx.x;
  for (int i = block.thread_rank(); i < N; i += block.size()) { sk[i] = i < n ? keys[row * n + i] : K(INT_MAX); sv[i] = V(i); }
  block.sync();
  auto less = [](const K& a, const K& b) { return a < b; };
#pragma unroll
  for (int size = 2; size <= N; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int t = block.thread_rank(); t < N / 2; t += block.size()) {
        const int pos = 2 * t - (t & (stride - 1));
        const bool up = (pos & size) == 0;
        compare_swap(sk[pos], sv[pos], sk[pos + stride], sv[pos + stride], up, less);
      }
      cg::sync(block);
    }
  }
  for (int i = threadIdx.x; i < n; i += blockDim.x) { out_keys[row * n + i] = sk[i]; out_values[row * n + i] = sv[i]; }
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  auto tile8 = cg::tiled_partition<8>(warp);
  float x = threadIdx.x < n ? float(sk[threadIdx.x]) : 0.f;
  float s = cg::reduce(tile8, x, cg::plus<float>());
  float top = cg::reduce(warp, x, cg::greater<float>());
  int any = warp.any(x > 0), first = warp.shfl(int(x), 0);
  if (tile8.thread_rank() == 0) atomicAdd(&sums[row], s + 0.f * top * any * first);
  if (threadIdx.x % 3 == 0) {
    cg::coalesced_group active = cg::coalesced_threads();
    int res = 0;
    if (active.thread_rank() == 0) res = atomicAdd(counters + row, active.size());
    res = active.shfl(res, 0);
    if (res < 0) counters[row] = -1;
  }
  if (__any_sync(__activemask(), threadIdx.x > 5000)) __nanosleep(100);
}
