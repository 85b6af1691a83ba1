// The part of hipBLASLt's interface that the library uses, for float32 GEMMs on memory that the CPU can access, like
// that of simulated GPUs, so that it can be tested without a GPU.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

struct Layout {
  int type = 0;
  std::int64_t rows = 0, cols = 0, ld = 0, batches = 1, stride = 0;
};
struct Product {
  int trans_a = 111, trans_b = 111, epilogue = 1;
  const float* bias = nullptr;
};
struct Result {
  unsigned char algorithm[24];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

int version = 100, ways = 2, failures = 0, runs = 0;

}  // namespace

extern "C" {

/// `fail`: how many products fail from now on.
void stub_configure(int new_version, int new_ways, int fail) {
  version = new_version;
  ways = new_ways;
  failures = fail;
}
int stub_runs() { return runs; }

int hipblasLtCreate(void** handle) {
  *handle = &version;
  return 0;
}
int hipblasLtDestroy(void*) { return 0; }
int hipblasLtGetVersion(void*, int* v) {
  *v = version;
  return 0;
}
int hipblasLtMatrixLayoutCreate(void** l, int type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *l = new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), ld};
  return 0;
}
int hipblasLtMatrixLayoutSetAttribute(void* l, int what, const void* value, std::size_t size) {
  auto& layout = *static_cast<Layout*>(l);
  if (what == 0 && size == 4) {
    std::int32_t n = 0;
    std::memcpy(&n, value, size);
    layout.batches = n;
  } else if (what == 1 && size == 8) {
    std::memcpy(&layout.stride, value, size);
  } else {
    return 1;
  }
  return 0;
}
int hipblasLtMatrixLayoutDestroy(void* l) {
  delete static_cast<Layout*>(l);
  return 0;
}
int hipblasLtMatmulDescCreate(void** p, int compute, int scale) {
  *p = new Product;
  return compute == 2 && scale == 0 ? 0 : 1;
}
int hipblasLtMatmulDescSetAttribute(void* p, int what, const void* value, std::size_t size) {
  auto& product = *static_cast<Product*>(p);
  if (what == 3 && size == sizeof(void*))
    std::memcpy(&product.bias, value, size);
  else if (what >= 0 && what <= 2 && size == 4)
    std::memcpy(what == 0 ? &product.trans_a : what == 1 ? &product.trans_b : &product.epilogue, value, size);
  else if (what != 4 || size != 4)
    return 1;
  return 0;
}
int hipblasLtMatmulDescDestroy(void* p) {
  delete static_cast<Product*>(p);
  return 0;
}
int hipblasLtMatmulPreferenceCreate(void** p) {
  *p = &version;
  return 0;
}
int hipblasLtMatmulPreferenceSetAttribute(void*, int what, const void*, std::size_t size) {
  return what == 1 && size == 8 ? 0 : 1;
}
int hipblasLtMatmulPreferenceDestroy(void*) { return 0; }

#ifndef WITHOUT_HEURISTICS
int hipblasLtMatmulAlgoGetHeuristic(void*, void*, void* a, void*, void*, void*, void*, int wanted, void* results,
                                    int* count) {
  *count = static_cast<Layout*>(a)->type == 0 ? std::min(wanted, ways) : 0;
  for (int k = 0; k < *count; ++k) {
    Result r{};
    r.algorithm[0] = static_cast<unsigned char>(k);
    std::memcpy(static_cast<char*>(results) + static_cast<std::size_t>(k) * sizeof r, &r, sizeof r);
  }
  return *count > 0 ? 0 : 7;
}
#endif

int hipblasLtMatmul(void*, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                    void* b_layout, const void* beta, const void* c, void*, void* d, void* d_layout,
                    const void* algorithm, void* workspace, std::size_t workspace_size, void*) {
  if (failures > 0) {
    --failures;
    return 6;
  }
  const auto& p = *static_cast<const Product*>(product);
  const auto &la = *static_cast<const Layout*>(a_layout), &lb = *static_cast<const Layout*>(b_layout),
             &ld = *static_cast<const Layout*>(d_layout);
  if (*static_cast<const unsigned char*>(algorithm) >= ways || !workspace) return 1;
  // All of the workspace is ours to overwrite. Once is enough, and keeps every later product faster than a simulated
  // GPU's kernel, whatever the host's memory bandwidth.
  static void* overwritten = nullptr;
  if (workspace != overwritten) std::memset(workspace, 0xff, workspace_size);
  overwritten = workspace;
  const float one = *static_cast<const float*>(alpha), add = *static_cast<const float*>(beta);
  const bool ta = p.trans_a == 112, tb = p.trans_b == 112;
  const std::int64_t k = ta ? la.rows : la.cols;
  for (std::int64_t z = 0; z < ld.batches; ++z)
    for (std::int64_t col = 0; col < ld.cols; ++col)
      for (std::int64_t row = 0; row < ld.rows; ++row) {
        const float *x = static_cast<const float*>(a) + z * la.stride,
                    *y = static_cast<const float*>(b) + z * lb.stride;
        float sum = 0;
        for (std::int64_t j = 0; j < k; ++j)
          sum += x[ta ? row * la.ld + j : j * la.ld + row] * y[tb ? j * lb.ld + col : col * lb.ld + j];
        const std::int64_t at = z * ld.stride + col * ld.ld + row;
        sum = one * sum + (add != 0 ? add * static_cast<const float*>(c)[at] : 0);
        if (p.epilogue & 4) sum += p.bias[row];
        if (p.epilogue & 2) sum = std::max(sum, 0.0f);
        static_cast<float*>(d)[at] = sum;
      }
  ++runs;
  return 0;
}
}
