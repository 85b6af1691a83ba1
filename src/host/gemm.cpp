// find_gemm: the cache of kernels, and adaptations around oneDNN's.
#include "host/gemm.h"

#include <functional>
#include <numeric>

#include "host/desc_key.h"
#include "host/dnnl_gemm.h"
#include "host/float32_kernel.h"
#include "host/gemm_problem.h"
#include "host/lru_cache.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

/// Enough for several models at several sizes; a kernel is some tens of kilobytes of code.
constexpr std::size_t kCachedKernels = 512;

std::int64_t product(const std::vector<std::int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

std::string key_of(const GemmDesc& d, const GemmProblem& p) {
  DescKey key;
  key.add(p.batch_a);
  key.add(p.batch_b);
  for (std::int64_t x : {p.m, p.n, p.k, std::int64_t{d.threads}}) key.add(x);
  key.add(p.trans_a | d.trans_b << 1 | d.bias << 2 | d.b_constant << 3 | static_cast<int>(d.a) << 8 |
          static_cast<int>(d.b) << 16 | static_cast<int>(d.out) << 24);
  for (const PostOp& op : d.post) key.add(op);
  for (const auto& dims : p.operands) key.add(dims);
  return key.bytes();
}

std::shared_ptr<const TileKernel> make(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  bool any_half = is_half(desc.a) || is_half(desc.b) || is_half(desc.out);
  for (const PostOp& op : desc.post) any_half |= op.has_operand() && is_half(op.dtype);
  auto kernel = make_dnnl_gemm(desc, p, why);
  if (!any_half || (kernel && kernel->has_fast_halves())) return kernel;

  GemmDesc wide = desc;
  wide.a = wide.b = wide.out = DType::kFloat32;
  Float32KernelDesc around{{desc.a, product(p.batch_a) * p.m * p.k},
                           {desc.b, product(p.batch_b) * p.k * p.n},
                           {desc.out, product(p.batch) * p.m * p.n},
                           {},
                           desc.b_constant,
                           desc.threads};
  std::size_t operand = 0;
  for (PostOp& op : wide.post) {
    if (!op.has_operand()) continue;
    around.operands.push_back({op.dtype, product(p.operands[operand++])});
    op.dtype = DType::kFloat32;
  }
  auto inner = make_dnnl_gemm(wide, p, why);
  return inner ? make_float32_kernel(std::move(inner), std::move(around)) : nullptr;
}

}  // namespace

std::shared_ptr<const TileKernel> find_gemm(const GemmDesc& desc, std::string& why) {
  for (DType t : {desc.a, desc.b, desc.out}) {
    if (t != DType::kFloat32 && !is_half(t)) {
      why = fmt::format("host gemm has no {} elements", name(t));
      return nullptr;
    }
  }
  const GemmProblem problem = simplify(desc);
  if (problem.k == 0 || problem.m == 0 || problem.n == 0 || product(problem.batch) == 0) {
    why = "the product is empty";
    return nullptr;
  }
  static LruCache<TileKernel> cache(kCachedKernels);
  return cache.get(key_of(desc, problem), [&] { return make(desc, problem, why); });
}

}  // namespace sardonyx::host
