// The registry of operators and the context of a lowering.
#include "ops/op.h"

#include <unordered_set>

#include "ops/families.h"
#include "support/placed_error.h"

namespace sardonyx {

const OpRegistry& OpRegistry::instance() {
  static const OpRegistry registry = [] {
    OpRegistry r;
    register_all(r);
    return r;
  }();
  return registry;
}

void OpRegistry::add(OpDef def) {
  auto key = std::make_pair(def.domain, def.name);
  check(def.lower != nullptr, "operator {} without a lowering", def.name);
  check(ops_.emplace(key, std::move(def)).second, "operator {} defined twice", key.second);
}

const OpDef* OpRegistry::find(std::string_view domain, std::string_view name) const {
  auto it = ops_.find({std::string(domain), std::string(name)});
  return it == ops_.end() ? nullptr : &it->second;
}

std::vector<const OpDef*> OpRegistry::all() const {
  std::vector<const OpDef*> out;
  for (const auto& [key, def] : ops_) out.push_back(&def);
  return out;
}

OpContext::OpContext(const model::Node& node, Graph& graph, std::vector<Value*> inputs, GraphLowerer& lowerer)
    : node_(node), graph_(graph), inputs_(std::move(inputs)), outputs_(node.outputs.size()), lowerer_(lowerer) {}

Value* OpContext::in(int k) const {
  if (!has(k)) invalid("input {} is missing", k);
  return inputs_[static_cast<std::size_t>(k)];
}

const Sequence& OpContext::sequence(int k) const {
  const auto at = sequences_.find(k);
  if (at == sequences_.end()) invalid("input {} is no sequence", k);
  return at->second;
}

void OpContext::out(int k, Value* v) {
  if (k < output_count()) outputs_[static_cast<std::size_t>(k)] = v;
}

void OpContext::refuse_at(ErrorKind kind, const std::string& reason) const {
  throw PlacedError(kind, node_.describe() + ": " + reason, node_.describe());
}

int OpContext::axis(std::int64_t a, int rank) const {
  if (a < -rank || a >= rank) invalid("axis {} is outside a tensor of rank {}", a, rank);
  return static_cast<int>(a < 0 ? a + rank : a);
}

namespace {

// If v is computed only from constants and small integer inputs of the model: one of these inputs; else null. Knowing
// their values makes v known.
const Value* small_input(const Value* v) {
  constexpr std::int64_t kMost = 64;  // maximum elements: axes, sizes, flags
  const Value* found = nullptr;
  std::vector<const Value*> stack = {v};
  std::unordered_set<const Value*> seen;
  while (!stack.empty()) {
    const Value* x = stack.back();
    stack.pop_back();
    if (!seen.insert(x).second || (x->producer && x->producer->as<ConstantOp>())) continue;
    if (x->producer) {
      stack.insert(stack.end(), x->producer->inputs.begin(), x->producer->inputs.end());
      continue;
    }
    std::int64_t n;
    const bool direct = x == v;  // an input that the operator reads directly may have any size and dtype
    if (!x->graph || x->graph->parent()) return nullptr;
    if (!direct && (is_float(x->dtype) || !is_const_int(x->elements(), n) || n > kMost)) return nullptr;
    found = x;
  }
  return found;
}

[[noreturn]] void need_value(const OpContext& c, Value* v, std::string_view what) {
  while (v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  if (const Value* input = small_input(v)) throw NeedInput{input->name, NeedInput::kValue, std::string(what)};
  c.refuse(
      "{} must be known when compiling, but the model computes it; make it an initializer or an input of the model",
      what);
}

}  // namespace

std::vector<std::int64_t> OpContext::const_ints(Value* v, std::string_view what) const {
  if (!v->content) need_value(*this, v, what);
  std::vector<std::int64_t> out;
  for (const Expr& e : *v->content) {
    if (!is_const(e)) need_value(*this, v, what);
    out.push_back(is_float(e->dtype) ? static_cast<std::int64_t>(e->f) : e->i);
  }
  return out;
}

Expr OpContext::int_scalar(Value* v, bool size) {
  const Exprs all = ints(v, size);
  require(all.size() == 1, "'{}' has {} elements; it must have one", v->name, all.size());
  return all[0];
}

Exprs OpContext::ints(Value* v, bool sizes) {
  if (!v->content && v->rank() > 1) invalid("'{}' has rank {}; it must be a list", v->name, v->rank());
  if (!v->content && !is_const(v->elements())) need_value(*this, v, "the length of a list of sizes");
  return graph_.bind(v, sizes);
}

std::vector<double> OpContext::const_floats(Value* v, std::string_view what) const {
  if (!v->content) need_value(*this, v, what);
  std::vector<double> out;
  for (const Expr& e : *v->content) {
    if (!is_const(e)) need_value(*this, v, what);
    out.push_back(is_float(e->dtype) ? e->f : static_cast<double>(e->i));
  }
  return out;
}

}  // namespace sardonyx
