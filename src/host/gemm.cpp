// find_gemm: the cache of kernels, and what stands around oneDNN's.
#include "host/gemm.h"

#include <functional>
#include <numeric>

#include "host/batch_loop_kernel.h"
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

/// One kernel for all of `p`.
std::shared_ptr<const TileKernel> make_whole(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  bool any_half = is_half(desc.a) || is_half(desc.b) || is_half(desc.out);
  for (const PostOp& op : desc.post) any_half |= op.has_operand() && is_half(op.dtype);
  auto kernel = make_dnnl_gemm(desc, p, why);
  if (!any_half || (kernel && kernel->name().starts_with("brg"))) return kernel;

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

/// A kernel for `p`, if need be as a loop over its leading batch axes.
std::shared_ptr<const TileKernel> make(const GemmDesc& desc, const GemmProblem& p, std::string& why) {
  auto whole = make_whole(desc, p, why);
  if (whole || p.batch.empty()) return whole;
  // Packed weights cannot be entered in the middle.
  if (desc.b_constant && p.batch_b[0] != 1) return nullptr;
  GemmProblem one = p;
  for (auto* batch : {&one.batch, &one.batch_a, &one.batch_b}) batch->erase(batch->begin());
  for (auto& dims : one.operands) dims.erase(dims.begin());
  auto inner = make(desc, one, why);
  if (!inner) return nullptr;
  const auto bytes = [](DType t) { return static_cast<std::int64_t>(size_of(t)); };
  BatchStep step;
  step.count = p.batch[0];
  if (p.batch_a[0] != 1) step.src = product(one.batch_a) * p.m * p.k * bytes(desc.a);
  if (p.batch_b[0] != 1) step.weights = product(one.batch_b) * p.k * p.n * bytes(desc.b);
  step.out = product(one.batch) * p.m * p.n * bytes(desc.out);
  for (const PostOp& op : desc.post) {
    if (!op.has_operand()) continue;
    const std::size_t i = step.operands.size();
    step.operands.push_back(p.operands[i][0] == 1 ? 0 : product(one.operands[i]) * bytes(op.dtype));
  }
  return make_batch_loop_kernel(std::move(inner), std::move(step));
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
