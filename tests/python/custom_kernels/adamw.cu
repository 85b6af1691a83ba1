// Fused AdamW with float4 loads, a struct of constants in shared memory, an enum mode and a tail.
#include <cuda_runtime.h>
#include <assert.h>
#include <stdio.h>
typedef enum : int { ADAM_MODE_0 = 0, ADAM_MODE_1 = 1 } adamMode_t;
#define ILP 4
struct __align__(16) Step { float lr, beta1, beta2, eps, decay, c1, c2; int mode; };
template <typename T>
__device__ __forceinline__ bool is_aligned(T* p) { return ((uint64_t)p) % (ILP * sizeof(T)) == 0; }
template <typename T>
__device__ __forceinline__ void load_store(T* dst, const T* src, int dst_offset, int src_offset) {
  typedef typename std::aligned_storage<ILP * sizeof(T), ILP * alignof(T)>::type LT;
  ((LT*)dst)[dst_offset] = ((const LT*)src)[src_offset];
}
__device__ __forceinline__ void update(float& p, float g, float& m, float& v, const Step& s) {
  if (s.mode == ADAM_MODE_0) g += s.decay * p;
  m = s.beta1 * m + (1 - s.beta1) * g;
  v = s.beta2 * v + (1 - s.beta2) * g * g;
  float u = (m / s.c1) / (sqrtf(v / s.c2) + s.eps);
  if (s.mode == ADAM_MODE_1) u += s.decay * p;
  p -= s.lr * u;
}
__global__ void adamw(float* __restrict__ p, const float* __restrict__ g, float* __restrict__ m, float* __restrict__ v, int n, float lr, float beta1, float beta2, float eps, float decay, int step, int mode) {
  __shared__ Step s;
  if (threadIdx.x == 0) {
    s = Step{lr, beta1, beta2, eps, decay, 1 - ::powf(beta1, (float)step), 1 - ::pow(beta2, float(step)), mode};
  }
  __syncthreads();
  assert(s.c1 > 0 && "bias correction");
  const int stride = blockDim.x * gridDim.x;
  if (n % ILP == 0 && is_aligned(p) && is_aligned(g) && is_aligned(m) && is_aligned(v)) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i * ILP < n; i += stride) {
      float rp[ILP], rg[ILP], rm[ILP], rv[ILP];
      load_store(rp, p, 0, i); load_store(rg, g, 0, i); load_store(rm, m, 0, i); load_store(rv, v, 0, i);
#pragma unroll
      for (int k = 0; k < ILP; k++) update(rp[k], rg[k], rm[k], rv[k], s);
      load_store(p, rp, i, 0); load_store(m, rm, i, 0); load_store(v, rv, i, 0);
    }
  } else {
    const int whole = n / 4;
    float4* p4 = reinterpret_cast<float4*>(p);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < whole; i += stride) {
      float4 a = p4[i], b = __ldg((const float4*)g + i), c = ((float4*)m)[i], d = ((float4*)v)[i];
      update(a.x, b.x, c.x, d.x, s); update(a.y, b.y, c.y, d.y, s); update(a.z, b.z, c.z, d.z, s); update(a.w, b.w, c.w, d.w, s);
      p4[i] = a; ((float4*)m)[i] = c; ((float4*)v)[i] = d;
    }
    for (int i = 4 * whole + blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) update(p[i], g[i], m[i], v[i], s);
  }
}
