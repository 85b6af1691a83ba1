// Softmax and RMS norm of the rows of an fp32 matrix: one workgroup a row, reductions through LDS, the row read again
// from memory in each pass.
#include "common.h"

template <class Combine>
__device__ float across(float value, float* shared, Combine combine) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

__global__ void softmax(const float* __restrict__ in, float* __restrict__ out, size_t columns) {
  extern __shared__ float shared[];
  const size_t row = blockIdx.x * columns;
  float most = -__builtin_inff();
  for (size_t c = threadIdx.x; c < columns; c += blockDim.x) most = fmaxf(most, in[row + c]);
  most = across(most, shared, [](float a, float b) { return fmaxf(a, b); });
  __syncthreads();  // all lanes have read the maximum before LDS is used for the sum
  float sum = 0;
  for (size_t c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(in[row + c] - most);
  sum = across(sum, shared, [](float a, float b) { return a + b; });
  for (size_t c = threadIdx.x; c < columns; c += blockDim.x) out[row + c] = expf(in[row + c] - most) / sum;
}

__global__ void rmsnorm(const float* in, const float* weight, float* out, int columns, float epsilon) {
  extern __shared__ float shared[];
  const size_t row = static_cast<size_t>(blockIdx.x) * columns;
  float squares = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) squares += in[row + c] * in[row + c];
  squares = across(squares, shared, [](float a, float b) { return a + b; });
  const float scale = rsqrtf(squares / columns + epsilon);
  for (int c = threadIdx.x; c < columns; c += blockDim.x) out[row + c] = in[row + c] * scale * weight[c];
}

int main(int argc, char** argv) {
  const char* kind = word(argc, argv, 1, "softmax");
  const long rows = number(argc, argv, 2, 4096), columns = number(argc, argv, 3, 1024),
             lanes = number(argc, argv, 4, 256);
  const bool soft = !std::strcmp(kind, "softmax");
  if ((!soft && std::strcmp(kind, "rmsnorm")) || (lanes & (lanes - 1)) || lanes > 1024)
    refuse("rows softmax|rmsnorm [ROWS] [COLUMNS] [LANES, a power of two]");
  float *in = deviceMemory<float>(rows * columns), *out = deviceMemory<float>(rows * columns),
        *weight = deviceMemory<float>(columns);
  for (int launch = 0; launch < 2; ++launch) {
    if (soft)
      softmax<<<rows, lanes, lanes * 4>>>(in, out, columns);
    else
      rmsnorm<<<rows, lanes, lanes * 4>>>(in, weight, out, static_cast<int>(columns), 1e-5f);
    finish(kind);
  }
  std::printf("%s, %ld rows of %ld, %.0f bytes read once and written once\n", kind, rows, columns,
              8.0 * rows * columns);
  return 0;
}
