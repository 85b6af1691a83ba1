// The position of the largest element of each row, the first of equal ones: a warp per row, decided by votes.
#include <cuda_runtime.h>

__global__ void warp_argmax(const float* x, int* result, int rows, int cols) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* p = x + row * cols;
  float best = -__int_as_float(0x7f800000);
  int best_at = 0x7fffffff;
  for (int i = lane; i < cols; i += 32) {
    if (p[i] > best) {
      best = p[i];
      best_at = i;
    }
  }
  float m = best;
  for (int o = 16; o; o /= 2) m = fmaxf(m, __shfl_xor_sync(0xffffffff, m, o));
  unsigned candidates = __ballot_sync(0xffffffff, best == m);
  if (__any_sync(0xffffffff, best == m && best_at != 0x7fffffff)) {
    int first = best == m ? best_at : 0x7fffffff;
    while (__popc(candidates) > 1) {  // of two lanes with the maximum, the one with the earlier position stays
      const int a = __ffs(candidates) - 1;
      const int b = 31 - __clz(candidates);
      const int at_a = __shfl_sync(0xffffffff, first, a), at_b = __shfl_sync(0xffffffff, first, b);
      candidates &= ~(1u << (at_a < at_b ? b : a));
    }
    first = __shfl_sync(0xffffffff, first, __ffs(candidates) - 1);
    if (lane == 0) result[row] = first;
  } else if (lane == 0) {
    result[row] = -1;
  }
}
