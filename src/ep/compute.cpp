// Runs of fused nodes; see compute.h.
#include "ep/compute.h"

#include <algorithm>
#include <cstring>

#include "ep/memory.h"
#include "onnx/packing.h"

namespace sardonyx::ep {

/// Buffers of a run that are reused by later runs.
struct GroupCompute::Scratch {
  std::vector<TensorView> inputs;
  std::vector<std::vector<std::byte>> unpacked;  ///< unpacked inputs of types that ONNX Runtime packs
  /// An output of such a type before it is packed.
  struct Packed {
    std::vector<std::byte> elements, bytes;
    std::size_t count = 0;
    void* target = nullptr;
    DType dtype = DType::kInt4;
    bool on_device = false;
  };
  std::vector<Packed> packed;
  std::vector<StepTime> times;
};

namespace {

std::size_t place(const std::vector<std::string>& names, const std::string& name, const char* what) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) fail(ErrorKind::kInternal, "ONNX Runtime does not pass the {} '{}' of a group", what, name);
  return static_cast<std::size_t>(it - names.begin());
}

std::size_t count_of(const std::vector<std::int64_t>& dims) {
  std::size_t n = 1;
  for (const std::int64_t d : dims) n *= static_cast<std::size_t>(d);
  return n;
}

}  // namespace

GroupCompute::GroupCompute(const Ort& ort, std::shared_ptr<CompiledGroup> group, std::shared_ptr<Trace> trace,
                           const std::vector<std::string>& inputs, const std::vector<std::string>& outputs)
    : OrtNodeComputeInfo{},
      ort_(ort),
      group_(std::move(group)),
      trace_(std::move(trace)),
      gpu_(!group_->device->is_host()) {
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
  if (idle_.empty()) {
    auto s = std::make_unique<Scratch>();
    s->inputs.resize(input_.size());
    s->unpacked.resize(input_.size());
    s->packed.resize(output_.size());
    return s;
  }
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

OutputMemory GroupCompute::give(OrtKernelContext* context, Scratch& scratch, std::size_t k, DType dtype,
                                const std::vector<std::int64_t>& dims) {
  OrtValue* v = nullptr;
  ort_.require(ort_->KernelContext_GetOutput(context, output_[k], dims.data(), dims.size(), &v));
  void* data = nullptr;
  ort_.require(ort_->GetTensorMutableData(v, &data));
  const bool on_device = gpu_ && ort_.on_device(v);
  const std::size_t count = count_of(dims);
  if (!data && count > 0)
    fail(ErrorKind::kDevice, "no memory for output '{}' of {} elements: {}", group_->outputs[k], count,
         last_allocation_failure());
  if (!onnx::is_packed(dtype)) return {data, on_device};
  Scratch::Packed& p = scratch.packed[k];
  p.count = count;
  p.elements.resize(count);
  p.dtype = dtype;
  p.target = data;
  p.on_device = on_device;
  return {p.elements.data(), false};
}

void GroupCompute::run(OrtKernelContext* context) {
  auto scratch = acquire();
  struct Release {
    GroupCompute& c;
    std::unique_ptr<Scratch>& s;
    ~Release() { c.release(std::move(s)); }
  } release{*this, scratch};
  RunOptions options;
  if (gpu_) {
    ort_.require(ort_->KernelContext_GetGPUComputeStream(context, &options.stream));
    options.synchronize = options.stream == nullptr;
  }
  for (std::size_t k = 0; k < input_.size(); ++k) {
    const OrtValue* v = nullptr;
    ort_.require(ort_->KernelContext_GetInput(context, input_[k], &v));
    TensorView& t = scratch->inputs[k];
    t.dtype = group_->input_types[k];
    ort_.dims(v, t.dims);
    ort_.require(ort_->GetTensorData(v, &t.data));
    t.on_device = gpu_ && ort_.on_device(v);
    if (!onnx::is_packed(t.dtype)) continue;
    const std::size_t count = count_of(t.dims), bytes = onnx::packed_size(t.dtype, count);
    std::vector<std::byte>& buffer = scratch->unpacked[k];
    buffer.resize(count + bytes);
    if (t.on_device) {
      group_->device->copy(buffer.data() + count, false, t.data, true, bytes, options.stream);
      group_->device->synchronize(options.stream);
      t.data = buffer.data() + count;
    }
    onnx::unpack(t.dtype, static_cast<const std::byte*>(t.data), count, buffer.data());
    t.data = buffer.data();
    t.on_device = false;
  }
  // Captures one pointer only, so that std::function does not allocate.
  struct Call {
    GroupCompute* self;
    OrtKernelContext* context;
    Scratch* scratch;
  } call{this, context, scratch.get()};
  OutputSink sink;
  sink.allocate = [c = &call](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    return c->self->give(c->context, *c->scratch, k, dtype, dims);
  };
  for (Scratch::Packed& p : scratch->packed) p.target = nullptr;
  const bool traced = trace_->active();
  std::int64_t start = 0;
  if (traced) {
    scratch->times.clear();
    options.profile = &scratch->times;
    start = Trace::now();
  }
  group_->model->run(scratch->inputs, sink, options);
  if (traced) trace_->add(scratch->times, start);
  for (Scratch::Packed& p : scratch->packed) {
    if (!p.target) continue;
    p.bytes.resize(onnx::packed_size(p.dtype, p.count));
    onnx::pack(p.dtype, p.elements.data(), p.count, p.bytes.data());
    group_->device->copy(p.target, p.on_device, p.bytes.data(), false, p.bytes.size(), nullptr);
  }
}

}  // namespace sardonyx::ep
