#include "migraphx/stages.h"

#include <cstring>
#include <set>

#include "device/device.h"
#include "migraphx/argument.h"
#include "migraphx/custom_operators.h"
#include "migraphx/device_memory.h"
#include "migraphx/shape.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

/// A packed copy in host memory of its own.
migraphx_argument copy_of(const migraphx_argument& a, const std::string& what) {
  const Tensor t = packed(a, what);
  migraphx_argument copy = zeros(standard_shape(a.shape.type, a.shape.lengths));
  if (t.bytes() > 0) std::memcpy(copy.data, t.data, t.bytes());
  return copy;
}

migraphx_argument constant(const Instruction& literal) {
  const model::Tensor& t = literal.constants.at(0);
  migraphx_argument a = zeros(literal.results.at(0).shape);
  if (t.bytes > 0) std::memcpy(a.data, t.data, t.bytes);
  return a;
}

/// All values that an instruction reads, those that its modules use too.
std::map<std::string, Result> reads(const Instruction& i) {
  std::map<std::string, Result> all;
  for (const InstructionPtr& input : i.inputs) {
    for (const Result& r : input->results) all.emplace(r.name, r);
    for (const auto& [which, r] : input->rnn) all.emplace(r.name, r);
  }
  for (const Module* m : i.modules)
    for (const auto& [name, r] : m->captured()) all.emplace(name, r);
  return all;
}

}  // namespace

Stages::Stages(const Module& main, const std::string& precision, const migraphx_target& target,
               const migraphx_compile_options& options)
    : precision_(precision), target_(target), options_(options), results_(main.results()) {
  if (target.name == "gpu" && is_gpu_name(gpu_device())) {
    gpu_ = open_gpu(gpu_device());
    stream_ = gpu_->create_stream();
  }
  for (const Instruction* p : main.parameters()) inputs_.push_back({p->result().name, p->result().shape});
  const auto& all = main.instructions();
  std::vector<InstructionPtr> part;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const InstructionPtr& i = all[k];
    if (i->kind == Instruction::Kind::kLiteral) constants_[i->results.at(0).name] = constant(*i);
    if (!i->op.custom) {
      part.push_back(i);
      continue;
    }
    add_part(main, part, k);
    part.clear();
    Stage s;
    s.custom = i;
    s.on_host = gpu_ && !runs_on_device(*i->op.custom);
    stages_.push_back(std::move(s));
  }
  add_part(main, part, all.size());
}

/// Compiles instructions that end before position `end` of the module, if anything needs them.
void Stages::add_part(const Module& main, const std::vector<InstructionPtr>& instructions, std::size_t end) {
  std::set<std::string> produced;
  model::Model m;
  m.ir_version = 10;
  m.producer_name = "sardonyx";
  m.opsets[""] = kGraphOpset;
  m.graph.name = "main";
  std::map<std::string, Result> needed;
  for (const InstructionPtr& i : instructions) {
    for (const model::Tensor& t : i->constants) produced.insert(t.name);
    for (const model::Node& n : i->nodes) produced.insert(n.outputs.begin(), n.outputs.end());
    if (i->nodes.empty()) continue;
    for (const auto& [name, r] : reads(*i)) needed.emplace(name, r);
  }
  Stage s;
  std::set<std::string> later;
  for (const Result& r : results_) later.insert(r.name);
  for (std::size_t k = end; k < main.instructions().size(); ++k)
    for (const auto& [name, r] : reads(*main.instructions()[k])) later.insert(name);
  for (const InstructionPtr& i : main.instructions()) {  // literals of other parts
    if (i->kind != Instruction::Kind::kLiteral || !needed.contains(i->results[0].name)) continue;
    if (produced.insert(i->results[0].name).second) m.graph.initializers.push_back(i->constants.at(0));
  }
  for (const auto& [name, r] : needed) {
    if (produced.contains(name)) continue;
    s.inputs.push_back(r);
    m.graph.inputs.push_back(declare(name, r.shape));
  }
  for (const InstructionPtr& i : instructions) {
    m.graph.initializers.insert(m.graph.initializers.end(), i->constants.begin(), i->constants.end());
    for (const model::Node& n : i->nodes) {
      m.graph.nodes.push_back(n);
      for (const std::string& name : n.outputs)
        if (!name.empty() && later.contains(name)) s.outputs.push_back(name);
    }
  }
  if (s.outputs.empty()) return;
  for (const std::string& name : s.outputs) {
    model::Node n;
    n.op_type = "Identity";
    n.opset = kGraphOpset;
    n.inputs = {name};
    n.outputs = {name + "#output"};
    model::ValueInfo v;
    v.name = n.outputs[0];
    m.graph.outputs.push_back(std::move(v));
    m.graph.nodes.push_back(std::move(n));
  }
  std::int64_t index = 0;
  for (model::Node& n : m.graph.nodes) n.index = index++;
  std::vector<Parameter> parameters;
  for (const Result& r : s.inputs) parameters.push_back({r.name, r.shape});
  s.part = MigraphxProgram::of_nodes(std::move(m), std::move(parameters));
  s.part.quantize(precision_);
  migraphx_compile_options options = options_;
  options.offload_copy = false;
  s.part.compile(target_, options);
  stages_.push_back(std::move(s));
}

Stages::Values Stages::parameters_of(const Arguments& given) const {
  Values values = constants_;
  if (gpu_)
    for (auto& [name, a] : values) a = to_gpu(a, false);
  for (const Parameter& p : inputs_) {
    const auto found = given.find(p.name);
    if (found == given.end()) fail(ErrorKind::kInvalidArgument, "the parameter '{}' is missing", p.name);
    migraphx_argument a = found->second;
    const std::string what = "the parameter '" + p.name + "'";
    if (a.shape.type != p.shape.type || a.shape.lengths != p.shape.lengths)
      fail(ErrorKind::kInvalidArgument, "{} has the shape {}, and must have {}", what, to_text(a.shape),
           to_text(p.shape));
    if (elements_of(a.shape) > 0 && a.data == nullptr) fail(ErrorKind::kInvalidArgument, "{} has no data", what);
    const bool on_device = gpu_ && !options_.offload_copy;
    if (on_device && !is_standard(a.shape))
      fail(ErrorKind::kUnsupported, "{} has strides ({}); pass a packed tensor in device memory", what,
           to_text(a.shape));
    // A custom operator may write to its input: with offload_copy, that is a copy.
    if (options_.offload_copy || !is_standard(a.shape)) a = copy_of(a, what);
    if (gpu_ && options_.offload_copy) a = to_gpu(a, false);
    a.on_device = gpu_ != nullptr;
    values[p.name] = std::move(a);
  }
  return values;
}

migraphx_argument Stages::input_of(const Stage& s, const Instruction& i, const Values& values, void* stream) const {
  const Result& r = i.result();
  if (i.op.name == "allocate" && !values.contains(r.name))
    return gpu_ && !s.on_host ? allocate_on_gpu(r.shape, false) : zeros(r.shape);
  const migraphx_argument& a = values.at(r.name);
  if (!s.on_host) return a;
  gpu_->synchronize(stream);
  return from_gpu(a);
}

void Stages::run_custom(const Stage& s, Values& values, void* stream, migraphx_context* context) const {
  const Instruction& i = *s.custom;
  std::vector<migraphx_argument> inputs;
  for (const InstructionPtr& input : i.inputs) {
    inputs.push_back(input_of(s, *input, values, stream));
    inputs.back().shape = input->result().shape;
  }
  migraphx_argument out = compute_custom(*i.op.custom, context, i.declared, inputs);
  const std::string what = "the result of the custom operator '" + i.op.name + "'";
  if (out.shape.type != i.declared.type || out.shape.lengths != i.declared.lengths)
    fail(ErrorKind::kUnsupported, "{} has the shape {}, and compute_shape() says {}", what, to_text(out.shape),
         to_text(i.declared));
  if (elements_of(out.shape) > 0 && out.data == nullptr) fail(ErrorKind::kUnsupported, "{} has no data", what);
  // It may lie in an input's memory.
  if (!out.owner) out.owner = std::make_shared<std::vector<migraphx_argument>>(inputs);
  out.on_device = gpu_ && !s.on_host;
  if (!is_standard(out.shape)) {
    if (out.on_device) gpu_->synchronize(stream);
    out = copy_of(out.on_device ? from_gpu(out) : out, what);
    if (gpu_) out = to_gpu(out, false);
  } else if (s.on_host) {
    out = to_gpu(out, false);
  }
  values[i.result().name] = std::move(out);
}

std::vector<migraphx_argument> Stages::run(const Arguments& parameters, void* stream, migraphx_context* context) const {
  if (gpu_ && !stream) stream = stream_.get();
  Values values = parameters_of(parameters);
  std::vector<Values> kept;  // what may still be read by work that is enqueued
  for (const Stage& s : stages_) {
    if (s.custom) {
      run_custom(s, values, stream, context);
      continue;
    }
    Arguments given;
    for (const Result& r : s.inputs) {
      const auto found = values.find(r.name);
      // Memory that nothing has written: its elements are zero on the host, and anything on a GPU.
      given[r.name] = found != values.end() ? found->second : gpu_ ? allocate_on_gpu(r.shape, false) : zeros(r.shape);
    }
    std::vector<migraphx_argument> results = s.part.run_on_stream(given, stream);
    for (std::size_t k = 0; k < results.size(); ++k) values[s.outputs[k]] = std::move(results[k]);
    kept.push_back(std::move(given));
  }
  if (gpu_) gpu_->synchronize(stream);
  std::vector<migraphx_argument> results;
  for (const Result& r : results_) {
    const auto found = values.find(r.name);
    if (found == values.end())
      fail(ErrorKind::kInvalidArgument, "the result '{}' is memory that nothing writes to", r.name);
    migraphx_argument a = found->second;
    if (gpu_ && options_.offload_copy) a = from_gpu(a);
    a.shape = r.shape;
    results.push_back(std::move(a));
  }
  return results;
}

}  // namespace sardonyx::mgx
