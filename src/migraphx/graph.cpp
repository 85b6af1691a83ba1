#include "migraphx/graph.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "migraphx/argument.h"
#include "migraphx/custom_operators.h"
#include "migraphx/emitter.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "ops/op.h"
#include "support/error.h"
#include "support/text.h"

using sardonyx::ErrorKind;
using sardonyx::fail;
using sardonyx::quote;
using namespace sardonyx::mgx;
namespace model = sardonyx::model;

namespace sardonyx::mgx {
namespace {

constexpr int kMaxDepth = 64;  // of modules in modules: reading them recurses

bool is_undefined(const Instruction& i) { return i.op.name == "undefined"; }

/// Appends the ONNX nodes and constants of the instruction.
void append(const Instruction& i, model::Graph& graph) {
  graph.initializers.insert(graph.initializers.end(), i.constants.begin(), i.constants.end());
  graph.nodes.insert(graph.nodes.end(), i.nodes.begin(), i.nodes.end());
  for (std::size_t k = graph.nodes.size() - i.nodes.size(); k < graph.nodes.size(); ++k)
    graph.nodes[k].index = static_cast<std::int64_t>(k);
}

model::ValueInfo named(const std::string& name) {
  model::ValueInfo v;
  v.name = name;
  return v;
}

model::Model empty_model() {
  model::Model m;
  m.ir_version = 10;
  m.producer_name = "sardonyx";
  m.opsets[""] = kGraphOpset;
  m.graph.name = "main";
  return m;
}

/// A model of one instruction, from which the shapes of its results follow.
class Inference {
 public:
  void add_value(const Instruction& i) {
    for (const Result& r : i.results) {
      if (!known_.insert(r.name).second) continue;
      // Constants, because a shape may depend on their values.
      if (i.kind == Instruction::Kind::kLiteral)
        model_.graph.initializers.push_back(i.constants.at(0));
      else
        add_input(r);
    }
  }

  void add_input(const Result& r) {
    known_.insert(r.name);
    model_.graph.inputs.push_back(declare(r.name, r.shape));
    parameters_.push_back({r.name, r.shape});
  }

  bool knows(const std::string& name) const { return known_.contains(name); }

  std::vector<migraphx_shape> shapes(const Instruction& i, const std::vector<std::string>& values) {
    append(i, model_.graph);
    for (const std::string& v : values) model_.graph.outputs.push_back(named(v));
    return output_shapes(model_, parameters_);
  }

 private:
  model::Model model_ = empty_model();
  std::set<std::string> known_;
  std::vector<Parameter> parameters_;
};

/// Sets the shapes of the instruction's results.
void infer(Instruction& i) {
  Inference inference;
  for (const InstructionPtr& input : i.inputs) inference.add_value(*input);
  for (const Module* m : i.modules)
    for (const auto& [name, result] : m->captured())
      if (!inference.knows(name)) inference.add_input(result);
  std::vector<Result*> wanted;
  for (Result& r : i.results) wanted.push_back(&r);
  for (auto& [which, r] : i.rnn) wanted.push_back(&r);
  std::vector<std::string> values;
  for (const Result* r : wanted) values.push_back(r->name);
  std::vector<migraphx_shape> shapes;
  try {
    shapes = inference.shapes(i, values);
  } catch (const NeedInput& e) {
    fail(ErrorKind::kUnsupported, "operator '{}': its result depends on the value of {}, which must be a literal",
         i.op.name, quote(e.input));
  } catch (const Error& e) {
    throw Error(e.kind() == ErrorKind::kInvalidModel ? ErrorKind::kInvalidArgument : e.kind(),
                "operator '" + i.op.name + "': " + e.what());
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) wanted[k]->shape = shapes.at(k);
}

/// In MIGraphX a scalar has one length, so every value has at least rank 1.
void give_scalars_a_length(Instruction& i) {
  for (Result& r : i.results) {
    if (r.shape.is_dynamic() || !r.shape.is_scalar()) continue;
    model::Tensor one;
    one.name = r.name + ".dims";
    one.dtype = DType::kInt64;
    one.dims = {1};
    static constexpr std::int64_t kOne = 1;
    one.data = reinterpret_cast<const std::byte*>(&kOne);
    one.bytes = sizeof(kOne);
    i.constants.push_back(one);
    model::Node n;
    n.op_type = "Reshape";
    n.opset = kGraphOpset;
    n.inputs = {r.name, one.name};
    n.outputs = {r.name + ".1"};
    i.nodes.push_back(n);
    r.name = n.outputs[0];
  }
}

}  // namespace

const Result& Instruction::result() const {
  if (is_tuple)
    fail(ErrorKind::kInvalidArgument, "the results of '{}' are a tuple; get_tuple_elem gives one of them", op.name);
  if (results.empty()) fail(ErrorKind::kInvalidArgument, "'{}' has no result", op.name);
  return results[0];
}

model::ValueInfo declare(const std::string& name, const migraphx_shape& shape) {
  model::ValueInfo v = named(name);
  v.dtype = dtype_of(shape.type);
  v.shape.emplace();
  for (const std::size_t n : shape.lengths) v.shape->push_back({static_cast<std::int64_t>(n), ""});
  for (std::size_t k = 0; k < shape.dynamic.size(); ++k) {
    const migraphx_dynamic_dimension& d = shape.dynamic[k];
    if (d.min == d.max)
      v.shape->push_back({static_cast<std::int64_t>(d.max), ""});
    else
      v.shape->push_back({std::nullopt, fmt::format("{}#{}", name, k)});
  }
  return v;
}

ModuleGraph::ModuleGraph() { modules_.emplace("main", std::make_unique<Module>("main", this)); }

Module& ModuleGraph::create(const std::string& name) {
  const auto [at, added] = modules_.emplace(name, nullptr);
  if (!added) fail(ErrorKind::kInvalidArgument, "the program has a module {} already", quote(name));
  at->second = std::make_unique<Module>(name, this);
  return *at->second;
}

model::Model ModuleGraph::onnx_model() const {
  const Module& main = *modules_.at("main");
  model::Model m = empty_model();
  m.graph = main.onnx_graph();
  for (const auto& [name, result] : main.captured())
    fail(ErrorKind::kInvalidArgument, "the main module uses {}, a value of a module that does not enclose it",
         quote(name));
  return m;
}

bool ModuleGraph::has_custom_operators() const {
  const auto& all = modules_.at("main")->instructions();
  return std::any_of(all.begin(), all.end(), [](const InstructionPtr& i) { return is_outside(*i); });
}

std::string ModuleGraph::text() const {
  std::string out;
  for (const auto& [name, module] : modules_)
    if (name != "main") out += module->text() + "\n";
  return out + modules_.at("main")->text();
}

}  // namespace sardonyx::mgx

std::shared_ptr<Instruction> migraphx_module::start(const migraphx_operation& op) const {
  auto i = std::make_shared<Instruction>();
  i->module = this;
  i->op = op;
  return i;
}

void migraphx_module::require_open(const char* what) const {
  if (owner_ && owner_->is_frozen())
    fail(ErrorKind::kInvalidArgument, "the program is compiled, or was parsed or loaded; {} can't be added to it",
         what);
  if (used_)
    fail(ErrorKind::kInvalidArgument, "an instruction uses the module {} already; {} must be added before",
         quote(name_), what);
}

/// Before the @return, if there is one.
void migraphx_module::place(InstructionPtr i) {
  instructions_.insert(return_ ? instructions_.end() - 1 : instructions_.end(), std::move(i));
  if (owner_) owner_->changed();
}

std::string migraphx_module::value_name(const char* kind) { return fmt::format("{}:{}{}", name_, kind, count_++); }

InstructionPtr migraphx_module::add_parameter(const std::string& name, const migraphx_shape& shape) {
  require_open("a parameter");
  dtype_of(shape.type);
  if (name.empty() || name.find('\0') != std::string::npos)
    fail(ErrorKind::kInvalidArgument, "a parameter needs a name");
  const std::string full = name_ == "main" ? name : name_ + ":" + name;
  for (const Instruction* p : parameters())
    if (p->results[0].name == full)
      fail(ErrorKind::kInvalidArgument, "the module has a parameter {} already", quote(name));
  const auto i = start({"@param", {{"parameter", name}}});
  i->kind = Instruction::Kind::kParameter;
  i->results.push_back({full, shape});
  place(i);
  return i;
}

InstructionPtr migraphx_module::add_literal(const migraphx_shape& shape, const void* data) {
  require_open("a literal");
  migraphx_argument a;
  a.shape = shape;
  a.data = const_cast<void*>(data);
  const sardonyx::Tensor given = packed(a, "the literal");
  sardonyx::Tensor copy = sardonyx::Tensor::allocate(given.dtype, given.dims);
  if (given.bytes() > 0) std::memcpy(copy.data, given.data, given.bytes());
  const auto i = start({"@literal", {}});
  i->kind = Instruction::Kind::kLiteral;
  model::Tensor t;
  t.name = value_name("literal");
  t.dtype = copy.dtype;
  t.dims = {shape.lengths.begin(), shape.lengths.end()};
  t.data = static_cast<const std::byte*>(copy.data);
  t.bytes = copy.bytes();
  t.owner = copy.owner;
  migraphx_shape s = shape;
  if (!shape.is_scalar()) s = standard_shape(shape.type, shape.lengths);
  i->results.push_back({t.name, s});
  i->constants.push_back(std::move(t));
  place(i);
  return i;
}

std::shared_ptr<Instruction> migraphx_module::make_operator(const migraphx_operation& op,
                                                            std::vector<InstructionPtr> inputs,
                                                            const std::vector<migraphx_module*>& modules) {
  require_open("an instruction");
  const auto i = start(op);
  i->inputs = std::move(inputs);
  for (const InstructionPtr& input : i->inputs)
    if (input->module->owner_ != owner_)
      fail(ErrorKind::kInvalidArgument, "an input of '{}' belongs to another program", op.name);
  for (migraphx_module* m : modules) {
    if (m == nullptr || m->owner_ != owner_ || m == this)
      fail(ErrorKind::kInvalidArgument, "a module of '{}' belongs to another program, or contains it", op.name);
    if (m->depth_ + 1 > kMaxDepth) fail(ErrorKind::kUnsupported, "more than {} modules in one another", kMaxDepth);
    depth_ = std::max(depth_, m->depth_ + 1);
    i->modules.push_back(m);
  }
  if (is_undefined(*i)) return i;
  if (op.custom) {
    make_custom(*i);
    return i;
  }
  Emitter e(*i, value_name("@"));
  e.rule().emit(e);
  if (i->nodes.empty()) return i;  // results of other instructions, whose shapes are known
  infer(*i);
  give_scalars_a_length(*i);
  for (migraphx_module* m : modules) m->used_ = true;
  return i;
}

void migraphx_module::require_outside_allowed(const std::string& what) const {
  if (!owner_ || &owner_->main() != this)
    fail(ErrorKind::kUnsupported, "{} can be in a program's main module only", what);
}

void migraphx_module::make_custom(Instruction& i) {
  require_outside_allowed("the custom operator " + quote(i.op.name));
  if (!i.modules.empty())
    fail(ErrorKind::kInvalidArgument, "the custom operator {} takes no modules", quote(i.op.name));
  std::vector<migraphx_shape> shapes;
  for (const InstructionPtr& input : i.inputs) {
    shapes.push_back(input->result().shape);
    if (shapes.back().is_dynamic())
      fail(ErrorKind::kUnsupported, "the custom operator {} takes no input of dynamic shape", quote(i.op.name));
  }
  i.declared = shape_of_custom(*i.op.custom, shapes);
  dtype_of(i.declared.type);
  if (i.declared.is_dynamic())
    fail(ErrorKind::kUnsupported, "the custom operator {} has a result of dynamic shape", quote(i.op.name));
  i.results.push_back({value_name("@"), standard_shape(i.declared.type, i.declared.lengths)});
}

InstructionPtr migraphx_module::add_allocation(const migraphx_shape& shape) {
  require_open("memory");
  require_outside_allowed("memory for a custom operator");
  dtype_of(shape.type);
  if (shape.is_dynamic()) fail(ErrorKind::kUnsupported, "memory of a dynamic shape can't be allocated");
  const auto i = start({"allocate", {{"shape", to_text(shape)}}});
  i->results.push_back({value_name("@"), standard_shape(shape.type, shape.lengths)});
  place(i);
  return i;
}

InstructionPtr migraphx_module::add_operator(const migraphx_operation& op, std::vector<InstructionPtr> inputs,
                                             const std::vector<migraphx_module*>& modules) {
  auto i = make_operator(op, std::move(inputs), modules);
  place(i);
  return i;
}

InstructionPtr migraphx_module::insert_operator(const InstructionPtr& before, const migraphx_operation& op,
                                                std::vector<InstructionPtr> inputs) {
  const std::size_t at = index_of(*before);
  for (const InstructionPtr& input : inputs)
    if (input->module == this && index_of(*input) >= at)
      fail(ErrorKind::kInvalidArgument, "an input of '{}' comes after the place where it is inserted", op.name);
  auto i = make_operator(op, std::move(inputs), {});
  instructions_.insert(instructions_.begin() + static_cast<std::ptrdiff_t>(at), i);
  if (owner_) owner_->changed();
  return i;
}

InstructionPtr migraphx_module::add_return(std::vector<InstructionPtr> inputs, bool replace) {
  if (replace && return_) {
    std::erase(instructions_, return_);
    return_.reset();
  }
  require_open("a @return");
  if (return_) fail(ErrorKind::kInvalidArgument, "the module {} has its @return already", quote(name_));
  const auto i = start({"@return", {}});
  i->kind = Instruction::Kind::kReturn;
  for (const InstructionPtr& input : inputs) {
    if (input->module->owner_ != owner_)
      fail(ErrorKind::kInvalidArgument, "an input of '@return' belongs to another program");
    if (input->results.empty()) fail(ErrorKind::kInvalidArgument, "'{}' has no result to return", input->op.name);
  }
  i->inputs = std::move(inputs);
  return_ = i;
  instructions_.push_back(i);
  if (owner_) owner_->changed();
  return i;
}

std::vector<Result> migraphx_module::results() const {
  std::vector<Result> all;
  if (return_) {
    for (const InstructionPtr& i : return_->inputs) all.insert(all.end(), i->results.begin(), i->results.end());
  } else if (!instructions_.empty()) {
    all = instructions_.back()->results;
  }
  return all;
}

std::vector<const Instruction*> migraphx_module::parameters() const {
  std::vector<const Instruction*> all;
  for (const InstructionPtr& i : instructions_)
    if (i->kind == Instruction::Kind::kParameter) all.push_back(i.get());
  return all;
}

std::size_t migraphx_module::index_of(const Instruction& i) const {
  for (std::size_t k = 0; k < instructions_.size(); ++k)
    if (instructions_[k].get() == &i) return k;
  fail(ErrorKind::kInvalidArgument, "the instruction '{}' belongs to another module", i.op.name);
}

model::Graph migraphx_module::onnx_graph() const {
  model::Graph graph;
  graph.name = name_;
  for (const Instruction* p : parameters()) graph.inputs.push_back(declare(p->results[0].name, p->results[0].shape));
  for (const InstructionPtr& i : instructions_) append(*i, graph);
  std::size_t outputs = 0;
  for (const Result& r : results()) {
    // An output must have a name of its own, and a parameter or literal can't be one itself.
    model::Node n;
    n.op_type = "Identity";
    n.opset = kGraphOpset;
    n.inputs = {r.name};
    n.outputs = {fmt::format("{}:#output_{}", name_, outputs++)};
    model::ValueInfo v = declare(n.outputs[0], r.shape);
    graph.nodes.push_back(std::move(n));
    graph.outputs.push_back(std::move(v));
  }
  return graph;
}

std::map<std::string, Result> migraphx_module::captured() const {
  std::map<std::string, Result> all;
  std::set<const Instruction*> own;
  for (const InstructionPtr& i : instructions_) own.insert(i.get());
  std::set<std::string> names;
  for (const InstructionPtr& i : instructions_)
    for (const Result& r : i->results) names.insert(r.name);
  for (const InstructionPtr& i : instructions_) {
    for (const InstructionPtr& input : i->inputs)
      if (!own.contains(input.get()))
        for (const Result& r : input->results) all.emplace(r.name, r);
    for (const Module* m : i->modules)
      for (const auto& [name, r] : m->captured())
        if (!names.contains(name)) all.emplace(name, r);
  }
  return all;
}

namespace {

/// As listings name them: "x", "@3", and "main:@3" for those of other modules.
std::string input_names(const Instruction& of, const std::map<const Instruction*, std::size_t>& positions) {
  std::vector<std::string> all;
  for (const InstructionPtr& i : of.inputs) {
    const auto own = positions.find(i.get());
    if (i->kind == Instruction::Kind::kParameter)
      all.push_back(i->op.attributes.at("parameter").get<std::string>());
    else if (own != positions.end())
      all.push_back(fmt::format("@{}", own->second));
    else
      all.push_back(fmt::format("{}:@{}", i->module->name(), i->module->index_of(*i)));
  }
  return fmt::format("{}", fmt::join(all, ","));
}

}  // namespace

std::string migraphx_module::text() const {
  std::string out = fmt::format("module: \"{}\"\n", name_);
  std::map<const Instruction*, std::size_t> positions;
  for (std::size_t k = 0; k < instructions_.size(); ++k) positions[instructions_[k].get()] = k;
  for (std::size_t k = 0; k < instructions_.size(); ++k) {
    const Instruction& i = *instructions_[k];
    std::vector<std::string> shapes, modules;
    for (const Result& r : i.results) shapes.push_back(sardonyx::mgx::to_text(r.shape));
    for (const Module* m : i.modules) modules.push_back(m->name());
    std::string shape = fmt::format("{}", fmt::join(shapes, ", "));
    if (i.is_tuple) shape = fmt::format("[{}]", shape);
    if (i.kind == Instruction::Kind::kParameter) {
      const std::string parameter = i.op.attributes.at("parameter").get<std::string>();
      out += fmt::format("{} = @param:{} -> {}\n", parameter, parameter, shape);
      continue;
    }
    out += fmt::format("@{} = {}", k, sardonyx::mgx::to_text(i.op));
    if (!i.inputs.empty()) out += fmt::format("({})", input_names(i, positions));
    if (!modules.empty()) out += fmt::format(", [{}]", fmt::join(modules, ", "));
    out += shapes.empty() ? "\n" : fmt::format(" -> {}\n", shape);
  }
  return out;
}
