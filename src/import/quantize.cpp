// QuantizeLinear and DequantizeLinear around products; see quantize.h.
#include "import/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>

#include "model/bytes.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kOpset = 21;  // of the nodes that are added: all that QuantizeLinear can

/// How numbers of a type are rounded and stored.
struct Code {
  DType type;
  float largest;
  int mantissa = 0, bias = 0;  // of floats

  explicit Code(DType t) : type(t), largest(t == DType::kInt8 ? 127 : t == DType::kFloat8E4M3FN ? 448 : 240) {
    check(t == DType::kInt8 || t == DType::kFloat8E4M3FN || t == DType::kFloat8E4M3FNUZ, "products in {}", name(t));
    if (t == DType::kInt8) return;
    mantissa = 3;
    bias = t == DType::kFloat8E4M3FN ? 7 : 8;
  }

  /// The nearest number's bits, ties to even; x is within the range.
  std::uint8_t operator()(float x) const {
    x = std::clamp(x, -largest, largest);
    if (type == DType::kInt8) return static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(x)));
    const float size = std::abs(x);
    int exponent = size > 0 ? std::ilogb(size) : 1 - bias;
    exponent = std::max(exponent, 1 - bias);  // below, numbers are as far apart as at the smallest exponent
    // In steps of 2^(exponent - mantissa); a carry into the next power of two makes the right bits by itself.
    const auto steps = static_cast<unsigned>(std::nearbyint(std::ldexp(size, mantissa - exponent)));
    const unsigned bits = (static_cast<unsigned>(exponent + bias - 1) << mantissa) + steps;
    const bool negative = std::signbit(x) && bits != 0;  // FNUZ has no -0: its bits are NaN
    return static_cast<std::uint8_t>(bits | (negative ? 0x80U : 0U));
  }
};

template <typename T>
model::Tensor make_tensor(const std::string& name, DType dtype, std::vector<std::int64_t> dims, const T* values,
                          std::size_t count) {
  std::byte* p = nullptr;
  model::Bytes bytes = model::aligned_zeros(count * sizeof(T), p);
  if (count) std::memcpy(p, values, count * sizeof(T));
  return model::tensor_of(name, dtype, std::move(dims), std::move(bytes));
}

class Quantizer {
 public:
  Quantizer(const CalibrationTable& table, DType type) : table_(table), code_(type) {}

  void run(model::Graph& g) {
    Scope scope{scope_, &g, {}, {}, {}};
    scope_ = &scope;
    for (const model::Tensor& t : g.initializers) scope.constants[t.name] = t;  // shares the bytes
    std::set<std::string> inputs;
    for (const model::ValueInfo& v : g.inputs) inputs.insert(v.name);
    std::vector<model::Node> nodes;
    nodes.swap(g.nodes);
    for (model::Node& n : nodes) {
      if (n.op_type == "Constant" && n.domain.empty() && n.outputs.size() == 1)
        if (const model::Tensor* t = n.find("value") ? n.get_tensor("value") : nullptr)
          scope.constants[n.outputs[0]] = *t;
      if (n.op_type == "DequantizeLinear")
        for (const std::string& o : n.outputs) scope.dequantized.insert(o);
      nested(n);
      product(n);
      g.nodes.push_back(std::move(n));
    }
    scope_ = scope.outer;
    if (!scope_) drop_unused(g);
  }

  QuantizationReport report;

 private:
  struct Scope {
    Scope* outer;
    model::Graph* graph;
    std::map<std::string, model::Tensor> constants;
    std::set<std::string> dequantized;              ///< by the model itself
    std::map<std::string, std::string> activation;  ///< what replaces a tensor
  };

  void nested(model::Node& n) {
    for (auto& [name, attribute] : n.attributes) {
      const auto rewrite = [&](model::GraphPtr& p) {
        auto copy = std::make_shared<model::Graph>(*p);
        run(*copy);
        p = std::move(copy);
      };
      if (auto* one = std::get_if<model::GraphPtr>(&attribute)) rewrite(*one);
      if (auto* many = std::get_if<std::vector<model::GraphPtr>>(&attribute))
        for (model::GraphPtr& p : *many) rewrite(p);
    }
  }

  const model::Tensor* constant(const std::string& name) const {
    for (const Scope* s = scope_; s; s = s->outer)
      if (const auto it = s->constants.find(name); it != s->constants.end()) return &it->second;
    return nullptr;
  }

  // Rewrites a product, or says why not.
  void product(model::Node& n) {
    const bool matmul = n.op_type == "MatMul", gemm = n.op_type == "Gemm", conv = n.op_type == "Conv";
    if (!n.domain.empty() || (!matmul && !gemm && !conv) || n.inputs.size() < 2) return;
    const auto stays = [&](const std::string& why) { report.in_float.push_back(n.describe() + ": " + why); };
    if (scope_->dequantized.count(n.inputs[0]) || scope_->dequantized.count(n.inputs[1]))
      return stays("the model quantises it by itself");
    const model::Tensor* w = constant(n.inputs[1]);
    if (!w || !w->unsupported.empty()) return stays("its right operand is not constant");
    if (w->dtype != DType::kFloat32) return stays(fmt::format("its weights are {}", name(w->dtype)));
    const std::size_t rank = w->dims.size();
    if (rank < 2 || (gemm && rank != 2) || (conv && (rank < 3 || rank > 4)))
      return stays(fmt::format("its weights have rank {}", rank));
    if (conv && n.get_int("group", 1) != 1) return stays("it has groups");
    if (gemm && n.get_int("transA", 0) != 0) return stays("its left operand is transposed");
    const auto range = table_.largest.find(n.inputs[0]);
    if (range == table_.largest.end()) return stays(fmt::format("the table has no range of '{}'", n.inputs[0]));
    const std::size_t axis = conv || (gemm && n.get_int("transB", 0) != 0) ? 0 : rank - 1;
    const std::string x = activation(n, range->second);
    n.inputs[1] = weights(n, *w, axis);
    n.inputs[0] = x;
    ++report.quantized;
  }

  std::string fresh(const std::string& base) { return fmt::format("{}/sardonyx.quantized.{}", base, next_++); }

  void add_node(const model::Node& by, const char* op, std::vector<std::string> inputs, const std::string& output,
                std::int64_t axis) {
    model::Node n;
    n.name = by.name.empty() ? "" : by.name + "/" + op;
    n.op_type = op;
    n.opset = kOpset;
    n.index = by.index;
    n.inputs = std::move(inputs);
    n.outputs = {output};
    if (axis >= 0) n.attributes["axis"] = axis;
    scope_->graph->nodes.push_back(std::move(n));
  }

  void add_constant(model::Tensor t) { scope_->graph->initializers.push_back(std::move(t)); }

  // The activation rounded, once for all products of this graph that read it.
  std::string activation(const model::Node& n, float largest) {
    std::string& known = scope_->activation[n.inputs[0]];
    if (!known.empty()) return known;
    const std::string base = fresh(n.inputs[0]);
    // A scale so small that it is 0 in float32 would divide by it.
    const float scale = std::max(largest / code_.largest, std::numeric_limits<float>::min());
    const std::uint8_t zero = 0;
    add_constant(make_tensor(base + ".scale", DType::kFloat32, {}, &scale, 1));
    add_constant(make_tensor(base + ".zero", code_.type, {}, &zero, 1));
    add_node(n, "QuantizeLinear", {n.inputs[0], base + ".scale", base + ".zero"}, base + ".q", -1);
    add_node(n, "DequantizeLinear", {base + ".q", base + ".scale"}, base, -1);
    return known = base;
  }

  std::string weights(const model::Node& n, const model::Tensor& w, std::size_t axis) {
    const std::string key = fmt::format("{}@{}", n.inputs[1], axis);
    std::string& known = scope_->activation[key + "\n"];  // no tensor's name
    if (!known.empty()) return known;
    const std::span<const float> x = w.as<float>();
    std::int64_t inner = 1;
    for (std::size_t k = axis + 1; k < w.dims.size(); ++k) inner *= w.dims[k];
    const std::int64_t channels = w.dims[axis];
    std::vector<float> scale(static_cast<std::size_t>(channels), 0.0F);
    const auto channel = [&](std::size_t k) {
      return static_cast<std::size_t>(static_cast<std::int64_t>(k) / inner % channels);
    };
    for (std::size_t k = 0; k < x.size(); ++k)
      if (std::isfinite(x[k])) scale[channel(k)] = std::max(scale[channel(k)], std::abs(x[k]));
    for (float& s : scale) s = s > 0 ? std::max(s / code_.largest, std::numeric_limits<float>::min()) : 1.0F;
    std::vector<std::uint8_t> q(x.size());
    for (std::size_t k = 0; k < x.size(); ++k) q[k] = std::isnan(x[k]) ? 0 : code_(x[k] / scale[channel(k)]);
    const std::string base = fresh(n.inputs[1]);
    add_constant(make_tensor(base + ".scale", DType::kFloat32, {channels}, scale.data(), scale.size()));
    add_constant(make_tensor(base + ".q", code_.type, w.dims, q.data(), q.size()));
    add_node(n, "DequantizeLinear", {base + ".q", base + ".scale"}, base, static_cast<std::int64_t>(axis));
    return known = base;
  }

  // Float weights that nothing reads any more.
  static void drop_unused(model::Graph& g) {
    std::set<std::string> used;
    const std::function<void(const model::Graph&)> collect = [&](const model::Graph& graph) {
      for (const model::ValueInfo& v : graph.outputs) used.insert(v.name);
      for (const model::ValueInfo& v : graph.inputs) used.insert(v.name);
      for (const model::Node& n : graph.nodes) {
        used.insert(n.inputs.begin(), n.inputs.end());
        for (const auto& [name, a] : n.attributes) {
          if (const auto* one = std::get_if<model::GraphPtr>(&a)) collect(**one);
          if (const auto* many = std::get_if<std::vector<model::GraphPtr>>(&a))
            for (const model::GraphPtr& p : *many) collect(*p);
        }
      }
    };
    collect(g);
    std::erase_if(g.initializers, [&](const model::Tensor& t) { return !used.count(t.name); });
  }

  const CalibrationTable& table_;
  Code code_;
  Scope* scope_ = nullptr;
  int next_ = 0;
};

}  // namespace

QuantizationReport quantize_layers(model::Model& model, const CalibrationTable& table, DType type) {
  Quantizer q(table, type);
  q.run(model.graph);
  return std::move(q.report);
}

}  // namespace sardonyx
