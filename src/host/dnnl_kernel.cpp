// Runs a oneDNN primitive; converts weights to the layouts that primitives need.
#include <algorithm>

#include "host/dnnl_common.h"
#include "host/parallel.h"
#include "host/subnormals.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

constexpr std::size_t kMaxLayouts = 2;  // of one weight: kernels rarely need more, and each takes the weight's memory
constexpr std::size_t kMaxIdleContexts = 8;  // kept for later runs; concurrent runs may use more

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Weights of the layout `desc` that have just been written.
void flush_weights(const dnnl::memory::desc& desc, Buffer& weights) {
  if (desc.get_data_type() != dnnl::memory::data_type::f32) return;
  flush_subnormals(static_cast<float*>(weights.data()), static_cast<std::int64_t>(weights.bytes() / sizeof(float)));
}

void check_status(dnnl_status_t status, const std::string& what) {
  if (status != dnnl_success)
    fail(ErrorKind::kInternal, "oneDNN refused to run {}: status {}", what, static_cast<int>(status));
}

}  // namespace

void reorder(const dnnl::memory::desc& from, const void* source, const dnnl::memory::desc& to, void* target) {
  dnnl::memory in(from, cpu_engine(), const_cast<void*>(source));
  dnnl::memory out(to, cpu_engine(), target);
  dnnl::stream stream(cpu_engine());
  dnnl::reorder(in, out).execute(stream, in, out);
  stream.wait();
}

PackedWeights::PackedWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PackedWeights::~PackedWeights() = default;

std::shared_ptr<PackedWeights> PackedWeights::empty() {
  return std::make_shared<PackedWeights>(std::make_unique<Impl>());
}

void PackedWeights::convert_by(std::function<std::shared_ptr<const Buffer>(const void*)> convert) {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->convert) {
    impl_->convert = std::move(convert);
    return;
  }
  impl_->convert = [first = std::move(convert), then = std::move(impl_->convert)](const void* original) {
    return then(first(original)->data());
  };
}

std::size_t PackedWeights::bytes() const {
  std::lock_guard lock(impl_->mutex);
  std::size_t sum = 0;
  for (const Impl::Copy& copy : impl_->copies) sum += copy.data->bytes();
  for (const Impl::Form& form : impl_->forms) sum += form.data->bytes();
  return sum;
}

std::span<const char> PackedWeights::newest() const {
  std::lock_guard lock(impl_->mutex);
  const Buffer* data = nullptr;
  std::uint64_t used = 0;
  const auto look = [&](const auto& layouts) {
    for (const auto& l : layouts) {
      if (data && l.used < used) continue;
      data = l.data.get();
      used = l.used;
    }
  };
  look(impl_->copies);
  look(impl_->forms);
  return data ? std::span(static_cast<const char*>(data->data()), data->bytes()) : std::span<const char>();
}

int PackedWeights::repacks() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->repacks;
}

void PackedWeights::Impl::drop_least_used() {
  if (copies.size() + forms.size() < kMaxLayouts) return;
  const auto older = [](const auto& x, const auto& y) { return x.used < y.used; };
  const auto copy = std::min_element(copies.begin(), copies.end(), older);
  const auto form = std::min_element(forms.begin(), forms.end(), older);
  if (form == forms.end() || (copy != copies.end() && copy->used < form->used))
    copies.erase(copy);
  else
    forms.erase(form);
}

std::shared_ptr<const void> PackedWeights::Impl::plain_bytes(const void* original, std::size_t bytes) {
  if (original && convert) {
    const auto converted = convert(original);
    check(converted->bytes() == bytes, "packed weights belong to another operation");
    return {converted, converted->data()};
  }
  if (original) return {std::shared_ptr<const void>(), original};
  check(!copies.empty() && copies[0].plain.get_size() == bytes, "packed weights belong to another operation");
  auto plain = std::make_shared<Buffer>(bytes);
  reorder(copies[0].desc, copies[0].data->data(), copies[0].plain, plain->data());
  return std::shared_ptr<const void>(plain, plain->data());
}

std::shared_ptr<const Buffer> PackedWeights::form(const std::string& name, std::size_t bytes, const void* original,
                                                  std::size_t plain_bytes,
                                                  const std::function<void(const void*, void*)>& make) {
  std::lock_guard lock(impl_->mutex);
  for (Impl::Form& f : impl_->forms) {
    if (f.name != name || f.data->bytes() != bytes) continue;
    f.used = ++impl_->clock;
    return f.data;
  }
  auto data = Buffer::kept(bytes);
  make(impl_->plain_bytes(original, plain_bytes).get(), data->data());
  if (!impl_->copies.empty() || !impl_->forms.empty()) ++impl_->repacks;
  impl_->drop_least_used();
  impl_->forms.push_back({name, data, ++impl_->clock});
  return data;
}

namespace {

// Whether `desc` with the dims of `wanted` is `wanted`; not every layout has such a form.
bool is_with_other_dims(const dnnl::memory::desc& desc, const dnnl::memory::desc& wanted) {
  const dnnl::memory::desc reshaped = desc.reshape(wanted.get_dims(), true);
  return reshaped.get(true) != nullptr && reshaped == wanted;
}

}  // namespace

std::shared_ptr<const Buffer> PackedWeights::Impl::in_layout(const dnnl::memory::desc& want,
                                                             const dnnl::memory::desc& plain, const void* original) {
  std::lock_guard lock(mutex);
  for (Copy& copy : copies) {
    // The same bytes may be described with or without a leading axis of 1; the axes of a convolution are others.
    const bool same = copy.plain.get_dims() == plain.get_dims()
                          ? copy.plain == plain && copy.desc == want
                          : is_with_other_dims(copy.plain, plain) && is_with_other_dims(copy.desc, want);
    if (same) {
      copy.used = ++clock;
      return copy.data;
    }
  }
  auto data = Buffer::kept(want.get_size());
  if (!copies.empty() && copies[0].plain == plain)
    reorder(copies[0].desc, copies[0].data->data(), want, data->data());
  else
    reorder(plain, plain_bytes(original, plain.get_size()).get(), want, data->data());
  flush_weights(want, *data);
  ++repacks;
  drop_least_used();
  copies.push_back({want, plain, data, ++clock});
  return data;
}

/// The arguments of one run. They are reused, because creating oneDNN's memory objects costs more than a small GEMM.
struct DnnlKernel::Context {
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> args;
  dnnl_memory_t src, weights, dst, bias = nullptr, scratch = nullptr;
  std::vector<dnnl_memory_t> operands;

  explicit Context(const Spec& spec) : stream(cpu_engine()) {
    src = add(spec.src, DNNL_ARG_SRC);
    weights = add(spec.weights, DNNL_ARG_WEIGHTS);
    dst = add(spec.dst, DNNL_ARG_DST);
    if (!spec.bias.is_zero()) bias = add(spec.bias, DNNL_ARG_BIAS);
    if (spec.scratch.get_size() > 0) scratch = add(spec.scratch, DNNL_ARG_SCRATCHPAD);
    for (std::size_t i = 0; i < spec.epilogue.operands.size(); ++i) {
      operands.push_back(add(spec.epilogue.operands[i], spec.epilogue.operand_args[i]));
    }
  }

  dnnl_memory_t add(const dnnl::memory::desc& desc, int arg) {
    memories.emplace_back(desc, cpu_engine(), nullptr);
    args.push_back({arg, memories.back().get()});
    return memories.back().get();
  }
};

DnnlKernel::DnnlKernel(Spec spec) : spec_(std::move(spec)) {
  reorder_each_run_ = !spec_.weights_constant && spec_.weights != spec_.plain_weights;
  weights_offset_ = aligned(spec_.scratch.get_size());
  scratch_bytes_ = weights_offset_ + (reorder_each_run_ ? aligned(spec_.weights.get_size()) : 0);
}

DnnlKernel::~DnnlKernel() = default;

std::unique_ptr<DnnlKernel::Context> DnnlKernel::take_context() const {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto context = std::move(idle_.back());
      idle_.pop_back();
      return context;
    }
  }
  return std::make_unique<Context>(spec_);
}

std::shared_ptr<PackedWeights> pack_weights(const dnnl::memory::desc& plain, const void* weights,
                                            const dnnl::memory::desc& packed) {
  auto data = Buffer::kept(packed.get_size());
  reorder(plain, weights, packed, data->data());
  flush_weights(packed, *data);
  auto impl = std::make_unique<PackedWeights::Impl>();
  impl->copies.push_back({packed, plain, std::move(data), 0});
  return std::make_shared<PackedWeights>(std::move(impl));
}

std::shared_ptr<PackedWeights> DnnlKernel::pack(const void* weights) const {
  return with_threads(spec_.threads, [&] { return pack_weights(spec_.plain_weights, weights, spec_.weights); });
}

void DnnlKernel::run(const TileArgs& args) const {
  with_threads(spec_.threads, [&] { run_here(args); });
}

void DnnlKernel::run_here(const TileArgs& args) const {
  check(args.operands.size() == spec_.epilogue.operands.size(), "{} operands for {} post-operations",
        args.operands.size(), spec_.epilogue.operands.size());
  const void* weights = args.weights;
  std::shared_ptr<const Buffer> packed;
  if (spec_.weights_constant) {
    check(args.packed != nullptr, "constant weights must come packed");
    packed = args.packed->impl().in_layout(spec_.weights, spec_.plain_weights, args.weights);
    weights = packed->data();
  } else if (reorder_each_run_) {
    void* target = static_cast<char*>(args.scratch) + weights_offset_;
    reorder(spec_.plain_weights, weights, spec_.weights, target);
    weights = target;
  }
  auto context = take_context();
  auto set = [](dnnl_memory_t memory, const void* data) {
    check_status(dnnl_memory_set_data_handle(memory, const_cast<void*>(data)), "a kernel's argument");
  };
  set(context->src, args.src);
  set(context->weights, weights);
  set(context->dst, args.out);
  if (context->bias) set(context->bias, args.bias);
  if (context->scratch) set(context->scratch, args.scratch);
  for (std::size_t i = 0; i < context->operands.size(); ++i) set(context->operands[i], args.operands[i]);
  check_status(dnnl_primitive_execute(spec_.primitive.get(), context->stream.get(),
                                      static_cast<int>(context->args.size()), context->args.data()),
               spec_.name);
  std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdleContexts) idle_.push_back(std::move(context));
}

std::shared_ptr<const DnnlKernel> make_dnnl_kernel(const dnnl::primitive_desc& pd, const dnnl::primitive& primitive,
                                                   const dnnl::memory::desc& plain_weights, bool weights_constant,
                                                   DnnlEpilogue epilogue, int threads) {
  auto arg = [&](int number) { return pd.query_md(dnnl::query::exec_arg_md, number); };
  DnnlKernel::Spec spec;
  spec.primitive = primitive;
  spec.name = pd.impl_info_str();
  spec.implementation = implementation_of(pd);
  spec.src = arg(DNNL_ARG_SRC);
  spec.weights = arg(DNNL_ARG_WEIGHTS);
  spec.dst = arg(DNNL_ARG_DST);
  spec.bias = arg(DNNL_ARG_BIAS);
  spec.scratch = pd.scratchpad_desc();
  spec.plain_weights = plain_weights;
  spec.weights_constant = weights_constant;
  spec.epilogue = std::move(epilogue);
  spec.threads = threads;
  return std::make_shared<DnnlKernel>(std::move(spec));
}

}  // namespace sardonyx::host
