#include "runtime/gpu_call.h"

#include <array>

#include "support/error.h"

namespace sardonyx {

GpuCall::GpuCall(void* function, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes,
                 std::vector<int> b, std::vector<std::int64_t> v)
    : buffers(std::move(b)), addresses(buffers.size()), values(std::move(v)) {
  for (void*& a : addresses) arguments.push_back(static_cast<void*>(&a));
  for (std::int64_t& x : values) arguments.push_back(&x);
  launch = {function, {blocks}, {threads}, shared_bytes, arguments.data()};
}

void GpuCall::add_maps(Gpu& g, std::vector<Map> list) {
  gpu = &g;
  maps = std::move(list);
  std::vector<void*> first;
  for (Map& m : maps) first.push_back(&m.map);
  arguments.insert(arguments.begin(), first.begin(), first.end());
  launch.arguments = arguments.data();
}

/// The arguments of a library call, in the order of its buffers.
struct GpuCall::LibraryWork : GpuWork {
  std::shared_ptr<const GemmPlan> plan;
  std::array<void*, 6> at{};  ///< a, b, bias, residual, out, workspace

  void give(GpuStream stream) const override { plan->run({at[0], at[1], at[2], at[3], at[4], at[5]}, stream); }
};

GpuCall::GpuCall(std::shared_ptr<const GemmPlan> plan, const std::vector<int>& b)
    : work_(std::make_shared<LibraryWork>()) {
  work_->plan = std::move(plan);
  check(b.size() == work_->at.size(), "a library's GEMM with {} tensors", b.size());
  for (std::size_t k = 0; k < b.size(); ++k)
    if (b[k] >= 0) {
      buffers.push_back(b[k]);
      slots_.push_back(k);
    }
  addresses.resize(buffers.size());
  launch.work = work_.get();
}

bool GpuCall::place(const std::vector<void*>& address) {
  bool changed = false;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    void* a = address[static_cast<std::size_t>(buffers[k])];
    if (a == addresses[k]) continue;
    changed = true;
    addresses[k] = a;
    for (Map& m : maps)
      if (m.buffer == k && a) m.map = gpu->tensor_map(m.info, static_cast<char*>(a) + m.offset);
    if (work_) work_->at[slots_[k]] = a;
  }
  return changed;
}

}  // namespace sardonyx
