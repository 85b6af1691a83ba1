// See program_builder.h.
#include "lower/program_builder.h"

namespace sardonyx {

ProgramBuilder::ProgramBuilder(const Graph& graph, const BuildOptions& options)
    : options_(options), program_(std::make_shared<Program>()) {
  for (const Value* v : graph.inputs)
    for (const Expr& d : v->shape)
      if (d->op == Op::kSym) input_symbols_.insert(d->i);
}

int ProgramBuilder::buffer(Value* v) {
  v = storage_of(v);
  const auto it = ids_.find(v);
  if (it != ids_.end()) return it->second;
  BufferInfo b;
  b.dtype = v->dtype;
  b.shape = v->shape;
  b.storage_order = v->storage_order;
  b.name = v->name;
  if (v->is_constant()) {
    b.kind = BufferInfo::Kind::kConstant;
    b.constant = static_cast<int>(program_->constants.size());
    program_->constants.push_back(v->constant());
  } else if (!v->producer && !v->graph->parent()) {
    b.kind = BufferInfo::Kind::kInput;
  }
  program_->buffers.push_back(std::move(b));
  return ids_[v] = static_cast<int>(program_->buffers.size()) - 1;
}

std::vector<int> ProgramBuilder::buffers(const std::vector<Value*>& values) {
  std::vector<int> out;
  for (Value* v : values) out.push_back(buffer(v));
  return out;
}

std::vector<TensorRef> ProgramBuilder::refs(const std::vector<Value*>& values) {
  std::vector<TensorRef> out;
  for (Value* v : values) out.push_back({buffer(v), v->shape});
  return out;
}

int ProgramBuilder::temporary(DType dtype, const Exprs& shape) {
  BufferInfo b;
  b.dtype = dtype;
  b.shape = shape;
  program_->buffers.push_back(std::move(b));
  return static_cast<int>(program_->buffers.size()) - 1;
}

void ProgramBuilder::place(const std::shared_ptr<Value>& value, int buffer) {
  ids_[value.get()] = buffer;
  placed_.push_back(value);
}

int ProgramBuilder::kernel(const KernelSpec& spec) {
  std::vector<int>& same_text = kernel_ids_[spec.body];
  for (const int k : same_text)
    if (program_->kernels[static_cast<std::size_t>(k)].spec == spec) return k;
  const int number = static_cast<int>(program_->kernels.size());
  const std::string prefix = spec.family == KernelFamily::kAttention ? "attention"
                             : spec.family == KernelFamily::kCustom  ? "custom"
                                                                     : "k";
  program_->kernels.push_back({prefix + std::to_string(number), spec, 0});
  same_text.push_back(number);
  return number;
}

ProgramStep ProgramBuilder::step_like(const Step& step) {
  ProgramStep p;
  p.origin = step.origin;
  p.reads = buffers(step.reads);
  p.writes = buffers(step.writes);
  return p;
}

void ProgramBuilder::written_by_init(const Step& step) {
  for (Value* v : step.writes) loaded_.insert(storage_of(v));
}

bool ProgramBuilder::is_loaded(const Value* v) const {
  const Value* stored = storage_of(const_cast<Value*>(v));
  return stored->is_constant() || loaded_.count(stored) > 0;
}

}  // namespace sardonyx
