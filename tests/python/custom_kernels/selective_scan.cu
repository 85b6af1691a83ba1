// Selective scan with a parameter struct by hand, softplus, a block scan of pairs in chunks, template switches.
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <int B> struct BytesToType {};
template <> struct BytesToType<16> { using Type = uint4; static_assert(sizeof(Type) == 16); };
template <> struct BytesToType<8> { using Type = uint64_t; };
template <> struct BytesToType<4> { using Type = uint32_t; };
template <typename scalar_t> struct SSMScanOp;
template <> struct SSMScanOp<float> {
  __device__ __forceinline__ float2 operator()(const float2& ab0, const float2& ab1) const {
    return make_float2(ab1.x * ab0.x, ab1.x * ab0.y + ab1.y);
  }
};
template <int kNThreads_, int kNItems_, bool kHasZ_, typename input_t_>
struct Traits {
  static constexpr int kNThreads = kNThreads_, kNItems = kNItems_;
  static constexpr bool kHasZ = kHasZ_;
  using input_t = input_t_;
  using vec_t = typename BytesToType<sizeof(input_t) * kNItems>::Type;
};
template <typename Op>
__device__ float2 inclusive_block_scan(float2 x, float2* smem, Op op, float2& total) {
  const unsigned lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    float2 y = make_float2(__shfl_up_sync(0xffffffff, x.x, d), __shfl_up_sync(0xffffffff, x.y, d));
    if (lane >= d) x = op(y, x);
  }
  if (lane == 31) smem[warp] = x;
  __syncthreads();
  float2 prefix = make_float2(1.f, 0.f);
  total = prefix;
  for (int w = 0; w < blockDim.x >> 5; ++w) {
    if (w == warp) prefix = total;
    total = op(total, smem[w]);
  }
  __syncthreads();
  return op(prefix, x);
}
template <typename Ktraits>
__global__ __launch_bounds__(Ktraits::kNThreads) void selective_scan_fwd_kernel(const typename Ktraits::input_t* u, const typename Ktraits::input_t* delta, const float* A, const typename Ktraits::input_t* Bm, const typename Ktraits::input_t* Cm,
    const float* D, const typename Ktraits::input_t* z, typename Ktraits::input_t* out, int dim, int len, int dstate, bool delta_softplus) {
  using input_t = typename Ktraits::input_t;
  constexpr int kNThreads = Ktraits::kNThreads, kNItems = Ktraits::kNItems, kChunk = kNThreads * kNItems;
  extern __shared__ char smem_[];
  float2* smem_warp = reinterpret_cast<float2*>(smem_);
  float2* smem_running = reinterpret_cast<float2*>(smem_ + sizeof(float2) * (kNThreads / 32));
  const int batch = blockIdx.x, d = blockIdx.y;
  const size_t row = (size_t(batch) * dim + d) * len;
  for (int chunk = 0; chunk < (len + kChunk - 1) / kChunk; ++chunk) {
    float u_vals[kNItems], dt[kNItems], out_vals[kNItems];
    const int base = chunk * kChunk + threadIdx.x * kNItems;
#pragma unroll
    for (int i = 0; i < kNItems; ++i) {
      const bool in = base + i < len;
      u_vals[i] = in ? float(u[row + base + i]) : 0.f;
      float v = in ? float(delta[row + base + i]) : 0.f;
      if (delta_softplus) v = v <= 20.f ? log1pf(expf(v)) : v;
      dt[i] = in ? v : 0.f;
      out_vals[i] = D[d] * u_vals[i];
    }
    for (int state = 0; state < dstate; ++state) {
      constexpr float kLog2e = M_LOG2E;
      const float a = A[d * dstate + state] * kLog2e;
      float2 thread_data[kNItems];
#pragma unroll
      for (int i = 0; i < kNItems; ++i) {
        const int at = min(base + i, len - 1);
        thread_data[i] = make_float2(exp2f(dt[i] * a), float(Bm[(batch * dstate + state) * len + at]) * dt[i] * u_vals[i]);
        if (i) thread_data[i] = SSMScanOp<float>()(thread_data[i - 1], thread_data[i]);
      }
      float2 running = chunk > 0 ? smem_running[state] : make_float2(1.f, 0.f), total;
      float2 incl = inclusive_block_scan(thread_data[kNItems - 1], smem_warp, SSMScanOp<float>(), total);
      float2 excl = make_float2(__shfl_up_sync(0xffffffffu, incl.x, 1), __shfl_up_sync(0xffffffffu, incl.y, 1));
      __shared__ float2 last[kNThreads / 32 + 1];
      if ((threadIdx.x & 31) == 31) last[(threadIdx.x >> 5) + 1] = incl;
      __syncthreads();
      if ((threadIdx.x & 31) == 0) excl = threadIdx.x == 0 ? make_float2(1.f, 0.f) : last[threadIdx.x >> 5];
      excl = SSMScanOp<float>()(running, excl);
      if (threadIdx.x == 0) smem_running[state] = SSMScanOp<float>()(running, total);
#pragma unroll
      for (int i = 0; i < kNItems; ++i) {
        const float2 h = SSMScanOp<float>()(excl, thread_data[i]);
        out_vals[i] += h.y * float(Cm[(batch * dstate + state) * len + min(base + i, len - 1)]);
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kNItems; ++i) {
      if (base + i >= len) break;
      if constexpr (Ktraits::kHasZ) {
        const float zv = z[row + base + i];
        out_vals[i] *= zv / (1 + expf(-zv));
      }
      out[row + base + i] = out_vals[i];
    }
  }
}
