// Group norm, one block per (image, group), Welford by warps.
#include <cuda_runtime.h>
#include <stdint.h>
#define WARP_SIZE 32
#define FULL_MASK 0xffffffff
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

template <typename T>
struct WelfordData {
  T mean = 0, m2 = 0, n = 0;
  __host__ __device__ WelfordData() {}
  __host__ __device__ WelfordData(T mean, T m2, T n) : mean(mean), m2(m2), n(n) {}
};

template <typename T>
struct WelfordOps {
  using data = WelfordData<T>;
  static inline __device__ data reduce(data acc, T x) {
    const T delta = x - acc.mean;
    const T n = acc.n + 1;
    const T mean = acc.mean + delta / n;
    return {mean, acc.m2 + delta * (x - mean), n};
  }
  static inline __device__ data combine(data a, data b) {
    if (a.n == 0) return b;
    if (b.n == 0) return a;
    const T delta = b.mean - a.mean, n = a.n + b.n, r = b.n / n;
    return {a.mean + delta * r, a.m2 + b.m2 + delta * delta * a.n * r, n};
  }
  static __device__ data warp_shfl_down(data a, int offset) {
    return {__shfl_down_sync(FULL_MASK, a.mean, offset), __shfl_down_sync(FULL_MASK, a.m2, offset),
            __shfl_down_sync(FULL_MASK, a.n, offset)};
  }
};

template <typename T, class Op>
__inline__ __device__ T WarpReduce(T val) {
#pragma unroll
  for (int offset = (WARP_SIZE >> 1); offset > 0; offset >>= 1) val = Op::combine(val, Op::warp_shfl_down(val, offset));
  return val;
}

template <typename T, class Op>
__inline__ __device__ T BlockReduce(T val, T* shared) {
  const int lid = threadIdx.x % WARP_SIZE, wid = threadIdx.x / WARP_SIZE;
  val = WarpReduce<T, Op>(val);
  __syncthreads();
  if (lid == 0) shared[wid] = val;
  __syncthreads();
  val = (threadIdx.x < blockDim.x / WARP_SIZE) ? shared[lid] : T();
  if (wid == 0) val = WarpReduce<T, Op>(val);
  return val;
}

template <typename T, typename acc_t = float, int kThreads = 256>
__global__ void __launch_bounds__(kThreads) GroupNormKernel(const T* X, const T* gamma, const T* beta, T* Y, float* rstd_out,
                                                            int64_t D, int64_t HxW, int64_t G, float eps) {
  using Data = WelfordData<acc_t>;
  __shared__ typename std::aligned_storage<sizeof(Data), alignof(Data)>::type raw[WARP_SIZE];
  Data* shared = reinterpret_cast<Data*>(raw);
  __shared__ acc_t s_mean, s_rstd;
  const int64_t i = blockIdx.x, n = D * HxW;
  Data val;
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) val = WelfordOps<acc_t>::reduce(val, static_cast<acc_t>(X[i * n + j]));
  val = BlockReduce<Data, WelfordOps<acc_t>>(val, shared);
  if (threadIdx.x == 0) {
    s_mean = val.mean;
    s_rstd = rsqrtf(val.m2 / val.n + eps);
    rstd_out[i] = s_rstd;
  }
  __syncthreads();
  const int64_t g = i % G;
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
    const int64_t c = g * D + j / HxW;
    Y[i * n + j] = static_cast<T>((static_cast<acc_t>(X[i * n + j]) - s_mean) * s_rstd * static_cast<acc_t>(gamma[c]) +
                                  static_cast<acc_t>(beta[c]));
  }
}
