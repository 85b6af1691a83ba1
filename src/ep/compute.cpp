// Runs of fused nodes; see compute.h.
#include "ep/compute.h"

#include <algorithm>
#include <cstring>

namespace sardonyx::ep {

/// What a run needs besides the tensors, kept between runs.
struct GroupCompute::Scratch {
  std::map<std::string, HostTensor> inputs;
};

namespace {

std::size_t place(const std::vector<std::string>& names, const std::string& name, const char* what) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end())
    fail(ErrorKind::kInternal, "ONNX Runtime does not hand over the {} '{}' of a group", what, name);
  return static_cast<std::size_t>(it - names.begin());
}

}  // namespace

GroupCompute::GroupCompute(const Ort& ort, std::shared_ptr<CompiledGroup> group, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs)
    : OrtNodeComputeInfo{}, ort_(ort), group_(std::move(group)) {
  for (const std::string& name : group_->inputs) input_.push_back(place(inputs, name, "input"));
  for (const std::string& name : group_->outputs) output_.push_back(place(outputs, name, "output"));
  ort_version_supported = 23;
  CreateState = [](OrtNodeComputeInfo* self, OrtNodeComputeContext*, void** state) -> OrtStatus* {
    *state = self;
    return nullptr;
  };
  OrtNodeComputeInfo::Compute = do_compute;
  ReleaseState = [](OrtNodeComputeInfo*, void*) {};
}

GroupCompute::~GroupCompute() = default;

std::unique_ptr<GroupCompute::Scratch> GroupCompute::acquire() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Scratch>();
  auto s = std::move(idle_.back());
  idle_.pop_back();
  return s;
}

void GroupCompute::release(std::unique_ptr<Scratch> s) {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(s));
}

OrtStatus* GroupCompute::do_compute(OrtNodeComputeInfo* self, void*, OrtKernelContext* context) noexcept {
  auto* c = static_cast<GroupCompute*>(self);
  return c->ort_.guarded([&] { c->run(context); });
}

void GroupCompute::run(OrtKernelContext* context) {
  auto scratch = acquire();
  struct Release {
    GroupCompute& c;
    std::unique_ptr<Scratch>& s;
    ~Release() { c.release(std::move(s)); }
  } release{*this, scratch};
  const bool gpu = !group_->card->is_host();
  for (std::size_t k = 0; k < input_.size(); ++k) {
    const OrtValue* v = nullptr;
    ort_.require(ort_->KernelContext_GetInput(context, input_[k], &v));
    OrtTensorTypeAndShapeInfo* info = nullptr;
    ort_.require(ort_->GetTensorTypeAndShape(v, &info));
    std::size_t rank = 0;
    HostTensor& t = scratch->inputs[group_->inputs[k]];
    t.dtype = group_->input_types[k];
    OrtStatus* s = ort_->GetDimensionsCount(info, &rank);
    t.dims.resize(rank);
    if (!s) s = ort_->GetDimensions(info, t.dims.data(), rank);
    ort_->ReleaseTensorTypeAndShapeInfo(info);
    ort_.require(s);
    const void* data = nullptr;
    ort_.require(ort_->GetTensorData(v, &data));
    t.data = const_cast<void*>(data);
    if (gpu) {
      const std::size_t bytes = t.bytes();
      HostTensor h = Tensor::allocate(t.dtype, t.dims);
      group_->card->copy(h.data, false, data, Addresses::instance().find(data) != nullptr, bytes, nullptr);
      t = h;
    }
  }
  std::vector<HostTensor> out = group_->model->run(scratch->inputs);
  for (std::size_t k = 0; k < output_.size(); ++k) {
    OrtValue* v = nullptr;
    ort_.require(ort_->KernelContext_GetOutput(context, output_[k], out[k].dims.data(), out[k].dims.size(), &v));
    void* data = nullptr;
    ort_.require(ort_->GetTensorMutableData(v, &data));
    group_->card->copy(data, gpu && Addresses::instance().find(data), out[k].data, false, out[k].bytes(), nullptr);
  }
}

}  // namespace sardonyx::ep
