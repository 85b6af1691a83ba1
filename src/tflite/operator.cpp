#include "tflite/operator.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "support/text.h"

namespace sardonyx::tflite {
namespace {

constexpr int kMaxDepth = 32;  ///< of subgraphs that call one another

const Rule* find_rule(std::int32_t code) {
  static const std::vector<const Rule*> table = [] {
    std::vector<const Rule*> out;
    for (const auto rules :
         {elementwise_rules(), shape_rules(), index_rules(), layer_rules(), sequence_rules(), control_rules()})
      for (const Rule& r : rules) {
        out.resize(std::max<std::size_t>(out.size(), static_cast<std::size_t>(r.code) + 1));
        out[static_cast<std::size_t>(r.code)] = &r;
      }
    return out;
  }();
  return code >= 0 && static_cast<std::size_t>(code) < table.size() ? table[static_cast<std::size_t>(code)] : nullptr;
}

std::vector<std::int64_t> as_int64(const model::Tensor& t) {
  std::vector<std::int64_t> out;
  const auto copy = [&](auto elements) { out.assign(elements.begin(), elements.end()); };
  switch (t.dtype) {
    case DType::kInt32:
      copy(t.as<std::int32_t>());
      break;
    case DType::kInt64:
      copy(t.as<std::int64_t>());
      break;
    case DType::kInt16:
      copy(t.as<std::int16_t>());
      break;
    case DType::kInt8:
      copy(t.as<std::int8_t>());
      break;
    case DType::kUInt8:
      copy(t.as<std::uint8_t>());
      break;
    default:
      fail(ErrorKind::kInvalidModel, "{} has elements of {}, not integers", quote(t.name), name(t.dtype));
  }
  return out;
}

}  // namespace

Converter::Converter(Reader& file, std::size_t subgraph, model::Graph& graph, Names& names, int depth)
    : file_(file),
      info_(subgraph < file.subgraphs().size()
                ? file.subgraphs()[subgraph]
                : throw Error(ErrorKind::kInvalidModel, fmt::format("malformed: there is no graph {}", subgraph))),
      nodes_(graph, names),
      values_(info_.tensors.size()),
      reals_(info_.tensors.size()),
      depth_(depth) {
  if (depth > kMaxDepth) fail(ErrorKind::kUnsupported, "graphs call one another more than {} deep", kMaxDepth);
}

void Converter::run() {
  for (std::size_t k = 0; k < info_.operators.size(); ++k) {
    const OperatorInfo& o = info_.operators[k];
    std::size_t items = o.inputs.size() + o.outputs.size();
    for (const auto* list : {&o.inputs, &o.outputs})
      for (const std::int32_t t : *list)
        if (t >= 0) items += tensor(t).quantization.scale.size();
    file_.charge(items);
    const std::string origin =
        o.outputs.empty() ? fmt::format("operator_{}", k) : info_.tensors[static_cast<std::size_t>(o.outputs[0])].name;
    nodes_.begin(origin, static_cast<std::int64_t>(k));
    const Rule* rule = find_rule(o.code);
    if (rule == nullptr) {
      const std::string what =
          o.code == kCustomOperator
              ? fmt::format(
                    "the custom operator {}{}", quote(o.custom),
                    o.custom.starts_with("Flex") ? ", which is TensorFlow's: compile the SavedModel instead" : "")
              : fmt::format("number {} of TFLite's operators", o.code);
      fail(ErrorKind::kUnsupported, "operator {} {} is {}, which is not supported", k, quote(origin), what);
    }
    Operator op(*this, o, *rule, k);
    rule->handler(op);
  }
}

std::string Converter::value(std::int32_t tensor) {
  std::string& v = values_[static_cast<std::size_t>(tensor)];
  if (!v.empty()) return v;
  const TensorInfo& t = info_.tensors[static_cast<std::size_t>(tensor)];
  if (!t.unsupported.empty()) fail(ErrorKind::kUnsupported, "tensor {}: {}", quote(t.name), t.unsupported);
  if (!t.constant)
    fail(t.variable ? ErrorKind::kUnsupported : ErrorKind::kInvalidModel, "tensor {} {}", quote(t.name),
         t.variable ? "is state that runs keep, which is not supported" : "is used before an operator computes it");
  return v = nodes_.constant(*t.constant);
}

std::string Converter::real(std::int32_t tensor) {
  const TensorInfo& t = info_.tensors[static_cast<std::size_t>(tensor)];
  if (!t.quantised()) return value(tensor);
  std::string& v = reals_[static_cast<std::size_t>(tensor)];
  if (v.empty()) v = dequantize(nodes_, value(tensor), t);
  return v;
}

std::vector<std::string> Converter::outputs() {
  std::vector<std::string> out;
  for (const std::int32_t k : info_.outputs) out.push_back(value(k));
  return out;
}

std::int32_t Operator::input(std::size_t k) const {
  if (!has(k)) invalid(fmt::format("input {} is missing", k));
  return info_.inputs[k];
}

std::int32_t Operator::output(std::size_t k) const {
  if (k >= info_.outputs.size()) invalid(fmt::format("output {} is missing", k));
  return info_.outputs[k];
}

std::string Operator::describe() const {
  return fmt::format("operator {} {} ({})", index_,
                     info_.outputs.empty() ? std::string("''") : quote(graph.tensor(info_.outputs[0]).name),
                     rule_.name);
}

void Operator::refuse(const std::string& why) const {
  fail(ErrorKind::kUnsupported, "{}: {}, which is not supported", describe(), why);
}

void Operator::invalid(const std::string& why) const { fail(ErrorKind::kInvalidModel, "{}: {}", describe(), why); }

std::string Operator::as_output(std::size_t k) {
  const TensorInfo &from = in(k), &to = out(0);
  const bool stored = !from.quantised() || from.quantization.per_tensor();
  if (stored && from.quantization == to.quantization && from.dtype == to.dtype) return raw(k);
  if (!to.quantised()) return real(k);
  return quantize(make, real(k), to);
}

std::string Operator::ints(std::size_t k) {
  if (const auto known = constant_ints(k)) return make.ints(*known);
  std::string v = raw(k);
  if (in(k).dtype != DType::kInt64) v = make.cast(v, DType::kInt64);
  return rank(k) == 1 ? v : make.reshape(v, {-1});
}

std::string Operator::int_scalar(std::size_t k) {
  if (const auto known = constant_ints(k)) {
    require(known->size() == 1, "a number is expected");
    return make.ints_as(DType::kInt64, *known, true);
  }
  return make.reshape(ints(k), {});
}

std::optional<std::vector<std::int64_t>> Operator::constant_ints(std::size_t k) const {
  const TensorInfo& t = in(k);
  if (!t.constant) return std::nullopt;
  graph.file().charge(static_cast<std::size_t>(t.constant->elements()));
  return as_int64(*t.constant);
}

std::vector<std::int64_t> Operator::known_ints(std::size_t k, const char* what) const {
  auto known = constant_ints(k);
  if (!known) refuse(fmt::format("{} that is known only in the run", what));
  return *std::move(known);
}

std::vector<std::int64_t> Operator::option_ints(int field) const {
  if (!info_.options) return {};
  const auto list = info_.options->numbers<std::int32_t>(field);
  require(list.size() <= 16, "a list of options is too long");
  std::vector<std::int64_t> out(list.size());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = list[k];
  return out;
}

void Operator::set_real(std::size_t k, std::string value, Activation activation) {
  value = activated(*this, value, activation);
  set(k, out(k).quantised() ? quantize(make, value, out(k)) : std::move(value));
}

std::string activated(Operator& op, const std::string& x, Activation activation) {
  Nodes& m = op.make;
  const bool quantised = op.out(0).quantised();
  const DType t = quantised ? DType::kFloat32 : op.out(0).dtype;
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return m.add("Relu", {x});
    case Activation::kReluN1To1: {
      const std::string low = m.scalar(t, -1), high = m.scalar(t, 1);
      return m.add("Clip", {x, low, high});
    }
    case Activation::kRelu6: {
      const std::string low = m.scalar(t, 0), high = m.scalar(t, 6);
      return m.add("Clip", {x, low, high});
    }
    case Activation::kTanh:
      return m.add("Tanh", {x});
    default:
      op.refuse(fmt::format("the fused activation function {}", static_cast<int>(activation)));
  }
}

namespace {
// Scale and zero point as inputs of QuantizeLinear and DequantizeLinear.
Inputs quantization_inputs(Nodes& make, const std::string& x, const TensorInfo& as, bool with_zero) {
  const Quantization& q = as.quantization;
  Inputs in = {x, q.per_tensor() ? make.scalar(DType::kFloat32, q.scale[0]) : make.floats(q.scale)};
  if (with_zero) in.push_back(make.ints_as(as.dtype, q.zero, q.per_tensor()));
  return in;
}
}  // namespace

std::string quantize(Nodes& make, const std::string& x, const TensorInfo& as) {
  if (!is_integer(as.dtype) || bits_of(as.dtype) > 16)
    fail(ErrorKind::kUnsupported, "tensor {} is quantised to {}", quote(as.name), name(as.dtype));
  return make.add("QuantizeLinear", quantization_inputs(make, x, as, true), {{"axis", as.quantization.axis}});
}

std::string dequantize(Nodes& make, const std::string& x, const TensorInfo& as) {
  const Quantization& q = as.quantization;
  const bool zeros = std::all_of(q.zero.begin(), q.zero.end(), [](std::int64_t z) { return z == 0; });
  if (bits_of(as.dtype) <= 32 && is_integer(as.dtype) && (zeros || bits_of(as.dtype) <= 16))
    return make.add("DequantizeLinear", quantization_inputs(make, x, as, !zeros), {{"axis", q.axis}});
  if (as.dtype != DType::kInt64 || !zeros)
    fail(ErrorKind::kUnsupported, "tensor {} of {} is quantised with a zero point", quote(as.name), name(as.dtype));
  const std::string wide = make.cast(x, DType::kFloat32);  // the biases of 16-bit activations
  if (!q.per_tensor() && as.shape.size() != 1)
    fail(ErrorKind::kUnsupported, "tensor {} of int64 is quantised per channel", quote(as.name));
  const std::string scale = q.per_tensor() ? make.scalar(DType::kFloat32, q.scale[0]) : make.floats(q.scale);
  return make.add("Mul", {wide, scale});
}

std::int64_t checked_axis(const Operator& op, std::int64_t axis, std::int64_t rank) {
  if (axis < -rank || axis >= rank) op.invalid(fmt::format("axis {} of {} dims", axis, rank));
  return axis < 0 ? axis + rank : axis;
}

std::vector<std::int64_t> to_channels_first(std::size_t spatial) {
  std::vector<std::int64_t> perm = {0, static_cast<std::int64_t>(spatial) + 1};
  for (std::size_t k = 0; k < spatial; ++k) perm.push_back(static_cast<std::int64_t>(k) + 1);
  return perm;
}

std::vector<std::int64_t> to_channels_last(std::size_t spatial) {
  std::vector<std::int64_t> perm = {0};
  for (std::size_t k = 0; k < spatial; ++k) perm.push_back(static_cast<std::int64_t>(k) + 2);
  perm.push_back(1);
  return perm;
}

}  // namespace sardonyx::tflite
