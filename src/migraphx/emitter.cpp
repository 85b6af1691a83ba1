#include "migraphx/emitter.h"

#include <algorithm>
#include <cstring>

#include "migraphx/shape.h"
#include "support/data.h"
#include "support/dtype.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using nlohmann::json;

template <typename T>
void put(std::byte* to, double value) {
  const T v = static_cast<T>(value);
  std::memcpy(to, &v, sizeof(v));
}

/// For the types that constants of rules have.
void put(std::byte* to, DType type, double value) {
  switch (type) {
    case DType::kFloat32:
      return put<float>(to, value);
    case DType::kFloat64:
      return put<double>(to, value);
    case DType::kInt64:
      return put<std::int64_t>(to, value);
    case DType::kInt32:
      return put<std::int32_t>(to, value);
    default:
      fail(ErrorKind::kInternal, "a constant of type {}", name(type));
  }
}

}  // namespace

Emitter::Emitter(Instruction& instruction, std::string prefix)
    : instruction_(instruction),
      rule_(operator_rule(instruction.op.name)),
      attributes_(all_attributes(instruction.op)),
      prefix_(std::move(prefix)) {
  const auto n = static_cast<int>(inputs());
  if (n >= rule_.least && (rule_.most < 0 || n <= rule_.most)) return;
  const std::string wanted = rule_.most < 0              ? fmt::format("at least {}", rule_.least)
                             : rule_.most == rule_.least ? fmt::format("{}", rule_.least)
                                                         : fmt::format("{} to {}", rule_.least, rule_.most);
  invalid(fmt::format("{} inputs instead of {}", n, wanted));
}

void Emitter::refuse(const std::string& why) const {
  fail(ErrorKind::kUnsupported, "operator '{}': {}", instruction_.op.name, why);
}

void Emitter::invalid(const std::string& why) const {
  fail(ErrorKind::kInvalidArgument, "operator '{}': {}", instruction_.op.name, why);
}

bool Emitter::is_undefined(std::size_t k) const {
  return k >= inputs() || instruction_.inputs[k]->op.name == "undefined";
}

std::string Emitter::in(std::size_t k) const {
  if (is_undefined(k)) return "";
  return instruction_.inputs[k]->result().name;
}

Emitter::Names Emitter::all_inputs() const {
  Names names;
  for (std::size_t k = 0; k < inputs(); ++k) names.push_back(in(k));
  return names;
}

const migraphx_shape& Emitter::shape(std::size_t k) const {
  if (is_undefined(k)) invalid(fmt::format("input {} is missing", k));
  return instruction_.inputs[k]->result().shape;
}

DType Emitter::type(std::size_t k) const { return dtype_of(shape(k).type); }

std::size_t Emitter::rank(std::size_t k) const {
  const migraphx_shape& s = shape(k);
  return s.is_dynamic() ? s.dynamic.size() : s.lengths.size();
}

Emitter::Ints Emitter::dims(std::size_t k) const {
  const migraphx_shape& s = shape(k);
  if (s.is_dynamic()) refuse(fmt::format("input {} has a dynamic shape, which it does not take here", k));
  return {s.lengths.begin(), s.lengths.end()};
}

void Emitter::require_equal_shapes() const {
  for (std::size_t k = 1; k < inputs(); ++k) {
    if (shape(k).type != shape(0).type || shape(k).lengths != shape(0).lengths || rank(k) != rank(0))
      invalid(fmt::format("its inputs need equal shapes, and have {} and {}; `multibroadcast` makes them equal",
                          to_text(shape(0)), to_text(shape(k))));
  }
}

const json& Emitter::value(const char* name) const { return attributes_.at(name); }

std::int64_t Emitter::integer(const char* name) const {
  const json& v = value(name);
  if (v.is_boolean()) return v.get<bool>() ? 1 : 0;
  if (!v.is_number_integer()) invalid(fmt::format("the attribute {} is {}, no integer", name, v.dump()));
  return v.get<std::int64_t>();
}

float Emitter::number(const char* name) const {
  const json& v = value(name);
  if (!v.is_number()) invalid(fmt::format("the attribute {} is {}, no number", name, v.dump()));
  return v.get<float>();
}

bool Emitter::flag(const char* name) const { return integer(name) != 0; }

Emitter::Ints Emitter::ints(const char* name) const {
  const json& v = value(name);
  Ints out;
  if (v.is_number_integer()) return {v.get<std::int64_t>()};
  if (!v.is_array()) invalid(fmt::format("the attribute {} is {}, no list of integers", name, v.dump()));
  for (const json& x : v) {
    if (!x.is_number_integer()) invalid(fmt::format("the attribute {} is {}, no list of integers", name, v.dump()));
    out.push_back(x.get<std::int64_t>());
  }
  return out;
}

std::vector<float> Emitter::numbers(const char* name) const {
  const json& v = value(name);
  std::vector<float> out;
  for (const json& x : v) {
    if (!x.is_number()) invalid(fmt::format("the attribute {} is {}, no list of numbers", name, v.dump()));
    out.push_back(x.get<float>());
  }
  return out;
}

std::size_t Emitter::choice(const char* name, const Names& names) const {
  const json& v = value(name);
  if (v.is_string()) {
    const auto found = std::find(names.begin(), names.end(), v.get<std::string>());
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
  } else if (v.is_number_integer() && v.get<std::int64_t>() >= 0 &&
             v.get<std::int64_t>() < static_cast<std::int64_t>(names.size())) {
    return v.get<std::size_t>();
  }
  invalid(fmt::format("the attribute {} is {}; it can be {}", name, v.dump(), fmt::join(names, ", ")));
}

DType Emitter::dtype(const char* name) const {
  const json& v = value(name);
  if (v.is_string()) return dtype_of(parse_type(v.get<std::string>()));
  return dtype_of(static_cast<migraphx_shape_datatype_t>(integer(name)));
}

const Module& Emitter::module(std::size_t k) const {
  if (k >= instruction_.modules.size()) invalid(fmt::format("it needs {} modules", k + 1));
  return *instruction_.modules[k];
}

std::string Emitter::fresh() { return fmt::format("{}.{}", prefix_, count_++); }

std::string Emitter::node(const std::string& type, Names inputs, Attributes attributes) {
  return nodes(1, type, std::move(inputs), std::move(attributes))[0];
}

Emitter::Names Emitter::nodes(std::size_t results, const std::string& type, Names inputs, Attributes attributes) {
  model::Node n;
  n.op_type = type;
  n.opset = kGraphOpset;
  n.name = fmt::format("{} {}", prefix_, instruction_.op.name);
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  n.inputs = std::move(inputs);
  for (std::size_t k = 0; k < results; ++k) n.outputs.push_back(fresh());
  n.attributes = std::move(attributes);
  instruction_.nodes.push_back(n);
  return n.outputs;
}

std::string Emitter::cast(const std::string& value, DType type) {
  return node("Cast", {value}, {{"to", static_cast<std::int64_t>(to_onnx(type))}});
}

std::string Emitter::int_list(const Ints& values) {
  model::Tensor t;
  t.name = fresh();
  t.dtype = DType::kInt64;
  t.dims = {static_cast<std::int64_t>(values.size())};
  std::byte* to = nullptr;
  const Data data = make_data(values.size() * sizeof(std::int64_t), &to);
  if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(std::int64_t));
  t.owner = data.owner;
  t.data = data.bytes;
  t.bytes = values.size() * sizeof(std::int64_t);
  instruction_.constants.push_back(t);
  return t.name;
}

std::string Emitter::scalar(DType type, double value) {
  const bool direct = type == DType::kFloat32 || type == DType::kFloat64 || type == DType::kInt64;
  if (!direct) return cast(scalar(is_float(type) ? DType::kFloat32 : DType::kInt64, value), type);
  model::Tensor t;
  t.name = fresh();
  t.dtype = type;
  t.dims = {1};
  std::byte* to = nullptr;
  const Data data = make_data(size_of(type), &to);
  put(to, type, value);
  t.owner = data.owner;
  t.data = data.bytes;
  t.bytes = size_of(type);
  instruction_.constants.push_back(t);
  return t.name;
}

void Emitter::result(const std::string& value) { instruction_.results.push_back({value, {}}); }

}  // namespace sardonyx::mgx
