#include "migraphx/lenient.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "model/bytes.h"
#include "ops/op.h"
#include "support/dtype.h"

namespace sardonyx::mgx {
namespace {

using model::Node;

template <typename T>
model::Tensor constant(std::string name, DType type, const std::vector<T>& values, bool scalar = false) {
  std::vector<std::int64_t> dims;
  if (!scalar) dims = {static_cast<std::int64_t>(values.size())};
  std::byte* to = nullptr;
  model::Bytes bytes = model::aligned_zeros(values.size() * sizeof(T), to);
  if (bytes.size > 0) std::memcpy(to, values.data(), bytes.size);
  return model::tensor_of(std::move(name), type, std::move(dims), std::move(bytes));
}

bool is_byte_float(DType t) { return is_float(t) && size_of(t) == 1; }

class Mender {
 public:
  explicit Mender(model::Graph& graph) : graph_(graph) {}
  /// For a graph nested in another, whose values it may use.
  Mender(model::Graph& graph, const Mender& outer)
      : graph_(graph), types_(outer.types_), dims_(outer.dims_), count_(outer.count_) {}

  void run() {
    for (const model::ValueInfo& v : graph_.inputs) {
      if (v.dtype) types_[v.name] = *v.dtype;
      if (!v.shape) continue;
      std::vector<std::int64_t> dims;
      for (const model::Dim& d : *v.shape)
        if (d.value) dims.push_back(*d.value);
      if (dims.size() == v.shape->size()) dims_[v.name] = std::move(dims);
    }
    for (const model::Tensor& t : graph_.initializers) {
      if (!t.unsupported.empty()) continue;
      types_[t.name] = t.dtype;
      dims_[t.name] = t.dims;
    }
    std::vector<Node> nodes;
    nodes.swap(graph_.nodes);
    for (Node& n : nodes) {
      mend_nested(n);
      mend(n);
      std::vector<Node> after;
      dequantize_first(n, after);
      replace_removed(n, after);
      mean_of_squares(n, after);
      clip_by_tensors(n, after);
      convert_operands(n, after);
      learn_types(n);
      add(std::move(n));
      for (Node& a : after) add(std::move(a));
    }
  }

 private:
  void add(Node n) {
    n.index = static_cast<std::int64_t>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(n));
  }

  void mend_nested(Node& n) {
    for (auto& [name, value] : n.attributes) {
      auto* nested = std::get_if<model::GraphPtr>(&value);
      if (!nested || !*nested) continue;
      auto mended = std::make_shared<model::Graph>(**nested);
      Mender inside(*mended, *this);
      inside.run();
      count_ = inside.count_;
      *nested = std::move(mended);
    }
  }

  std::string fresh(const Node& n) {
    const std::string& base = n.outputs.empty() ? n.op_type : n.outputs[0];
    return base + "#mended" + std::to_string(count_++);
  }

  void mend(Node& n) {
    const OpRegistry& ops = OpRegistry::instance();
    const bool old_attention = n.op_type == "Attention" && n.opset < 23;
    if (n.domain.empty() && (ops.find("", n.op_type) == nullptr || old_attention) &&
        ops.find("com.microsoft", n.op_type) != nullptr) {
      n.domain = "com.microsoft";
      n.opset = 1;
    }
    to_float(n, "clip");
    if (n.op_type != "Dropout") to_float(n, "seed");  // ONNX's seeds are floats, but for this operator's
    for (const char* name : {"detect_positive", "detect_negative"}) to_int(n, name);
    if (const auto clip = n.attributes.find("clip"); clip != n.attributes.end())
      if (const auto* f = std::get_if<float>(&clip->second); f && *f == 0) n.attributes.erase(clip);
    if (n.op_type == "Conv" && n.get_string("auto_pad", "") == "SAME")
      n.attributes["auto_pad"] = std::string("SAME_UPPER");
    if (n.op_type == "LayerNormalization" && n.get_int("stash_type", 1) == 0) n.attributes.erase("stash_type");
    take_inputs(n);
    arrange_inputs(n);
    widen_bounds(n);
  }

  static void to_float(Node& n, const char* name) {
    const auto found = n.attributes.find(name);
    if (found == n.attributes.end()) return;
    if (const auto* v = std::get_if<std::int64_t>(&found->second)) found->second = static_cast<float>(*v);
  }

  static void to_int(Node& n, const char* name) {
    const auto found = n.attributes.find(name);
    if (found == n.attributes.end()) return;
    if (const auto* v = std::get_if<float>(&found->second)) found->second = std::int64_t{*v != 0};
    if (const auto* v = std::get_if<std::vector<std::int64_t>>(&found->second); v && v->size() == 1)
      found->second = v->front();
  }

  /// Attributes that are inputs in the model's operator set.
  void take_inputs(Node& n) {
    struct Row {
      const char* op;
      std::int64_t since;
      std::vector<const char*> attributes;  ///< from input 1 on
    };
    static const std::vector<Row> rows = {{"Slice", 10, {"starts", "ends", "axes"}},
                                          {"Pad", 11, {"pads", "value"}},
                                          {"Squeeze", 13, {"axes"}},
                                          {"Unsqueeze", 13, {"axes"}},
                                          {"TopK", 10, {"k"}},
                                          {"Upsample", 9, {"scales"}},
                                          {"ReverseSequence", 10, {"sequence_lens"}},
                                          {"ReduceSum", 13, {"axes"}},
                                          {"ReduceL1", 18, {"axes"}},
                                          {"ReduceL2", 18, {"axes"}},
                                          {"ReduceLogSum", 18, {"axes"}},
                                          {"ReduceLogSumExp", 18, {"axes"}},
                                          {"ReduceMax", 18, {"axes"}},
                                          {"ReduceMean", 18, {"axes"}},
                                          {"ReduceMin", 18, {"axes"}},
                                          {"ReduceProd", 18, {"axes"}},
                                          {"ReduceSumSquare", 18, {"axes"}}};
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.op == n.op_type; });
    if (row == rows.end() || !n.domain.empty() || n.opset < row->since || n.inputs.size() != 1) return;
    for (std::size_t k = 0; k < row->attributes.size(); ++k) {
      const auto found = n.attributes.find(row->attributes[k]);
      if (found == n.attributes.end()) continue;
      const std::string name = fresh(n);
      if (const auto* list = std::get_if<std::vector<std::int64_t>>(&found->second))
        take(constant(name, DType::kInt64, *list));
      else if (const auto* floats = std::get_if<std::vector<float>>(&found->second))
        take(constant(name, DType::kFloat32, *floats));
      else if (const auto* v = std::get_if<std::int64_t>(&found->second))
        take(constant(name, DType::kInt64, std::vector<std::int64_t>{*v}));
      else if (const auto* f = std::get_if<float>(&found->second); f && type_of(n.inputs[0]) == DType::kFloat32)
        take(constant(name, DType::kFloat32, std::vector<float>{*f}, true));
      else
        continue;
      n.inputs.resize(std::max(n.inputs.size(), k + 2));
      n.inputs[k + 1] = name;
      n.attributes.erase(found);
    }
  }

  void take(model::Tensor t) {
    types_[t.name] = t.dtype;
    dims_[t.name] = t.dims;
    graph_.initializers.push_back(std::move(t));
  }

  /// Lists of sizes and bounds are int64 in ONNX.
  void widen_bounds(Node& n) {
    static const std::map<std::string, std::vector<std::size_t>> kInputs = {
        {"Pad", {1, 3}}, {"Expand", {1}}, {"Reshape", {1}}, {"Tile", {1}}, {"ConstantOfShape", {0}}};
    const auto inputs = kInputs.find(n.op_type);
    if (inputs == kInputs.end() || !n.domain.empty()) return;
    for (const std::size_t k : inputs->second)
      if (k < n.inputs.size() && type_of(n.inputs[k]) == DType::kInt32)
        n.inputs[k] = cast(n, n.inputs[k], DType::kInt64);
  }

  /// Sizes of a graph input or constant, where they are all known.
  std::optional<std::vector<std::int64_t>> dims_of(const std::string& value) const {
    const auto found = dims_.find(value);
    return found == dims_.end() ? std::nullopt : std::optional(found->second);
  }

  std::string reshape(const Node& near, const std::string& value, const std::vector<std::int64_t>& dims) {
    const std::string list = fresh(near);
    take(constant(list, DType::kInt64, dims));
    Node r;
    r.op_type = "Reshape";
    r.opset = std::max<std::int64_t>(near.domain.empty() ? near.opset : 0, 13);
    r.inputs = {value, list};
    r.outputs = {fresh(near)};
    if (const auto t = type_of(value)) types_[r.outputs[0]] = *t;
    std::string result = r.outputs[0];
    add(std::move(r));
    return result;
  }

  /// Inputs in other forms than the operator has.
  void arrange_inputs(Node& n) {
    const auto rank = [&](std::size_t k) -> std::size_t {
      const auto d = k < n.inputs.size() ? dims_of(n.inputs[k]) : std::nullopt;
      return d ? d->size() : 0;
    };
    if (n.op_type == "Upsample" && n.inputs.size() == 3 && n.inputs[1].empty()) n.inputs.erase(n.inputs.begin() + 1);
    // Keys and values inside the queries: the others are placeholders.
    if (n.op_type == "GroupQueryAttention" && rank(0) == 3 && rank(1) == 1 && rank(2) == 1)
      n.inputs[1] = n.inputs[2] = "";
    // After packed keys and values MIGraphX expects no values.
    if (n.op_type == "MultiHeadAttention" && rank(1) == 5 && rank(2) == 1) n.inputs.insert(n.inputs.begin() + 2, "");
    if (n.op_type == "MultiHeadAttention" && rank(3) == 2 && type_of(n.inputs[3]) != DType::kInt32)
      n.inputs[3] = reshape(n, n.inputs[3], {-1});
    // Axes in place of the value, which these modes do not have.
    if (n.op_type == "Pad" && n.inputs.size() == 3 && n.get_string("mode", "constant") != "constant" &&
        (type_of(n.inputs[2]) == DType::kInt32 || type_of(n.inputs[2]) == DType::kInt64) &&
        type_of(n.inputs[0]) != type_of(n.inputs[2]))
      n.inputs.insert(n.inputs.begin() + 2, "");
    // Broadcasting as before operator set 7: the second operand's dims are those of the first from `axis` on.
    if (n.domain.empty() && n.opset >= 7 && n.get_int("broadcast", 0) != 0 && n.find("axis") && rank(0) > rank(1) &&
        rank(1) > 0) {
      std::vector<std::int64_t> dims = *dims_of(n.inputs[1]);
      const std::int64_t axis = n.get_int("axis", 0);
      const std::size_t trailing = rank(0) - dims.size();
      if (axis < 0 || static_cast<std::size_t>(axis) > trailing) return;
      dims.insert(dims.end(), trailing - static_cast<std::size_t>(axis), 1);
      n.inputs[1] = reshape(n, n.inputs[1], dims);
      n.attributes.erase("axis");
      n.attributes.erase("broadcast");
    }
  }

  /// A product of integers with scales for the columns of the first operand. These can't be applied after the product,
  /// so both operands are dequantised before it.
  void dequantize_first(Node& n, std::vector<Node>& after) {
    if (n.op_type != "MatMulIntegerToFloat" || n.inputs.size() < 4) return;
    const auto a = dims_of(n.inputs[0]), scale = dims_of(n.inputs[2]);
    if (!a || a->empty() || !scale || scale->size() != 1 || scale->front() == 1 || scale->front() != a->back()) return;
    const auto dequantized = [&](std::size_t k) {
      Node d;
      d.op_type = "DequantizeLinear";
      d.opset = 21;
      d.inputs = {n.inputs[k], n.inputs[k + 2]};
      if (k + 4 < n.inputs.size() && !n.inputs[k + 4].empty())
        d.inputs.push_back(repeated(n, n.inputs[k + 4], n.inputs[k + 2]));
      d.outputs = {fresh(n)};
      d.attributes["axis"] = std::int64_t{-1};
      std::string result = d.outputs[0];
      add(std::move(d));
      return result;
    };
    const std::string left = dequantized(0), right = dequantized(1);
    const std::string bias = n.inputs.size() > 6 ? n.inputs[6] : "";
    n.op_type = "MatMul";
    n.domain.clear();
    n.opset = 21;
    n.inputs = {left, right};
    n.attributes.clear();
    if (bias.empty()) return;
    Node sum;
    sum.op_type = "Add";
    sum.opset = 21;
    sum.outputs = {n.outputs[0]};
    n.outputs[0] = fresh(n);
    sum.inputs = {n.outputs[0], bias};
    after.push_back(std::move(sum));
  }

  /// `value`, or its only element for each element of `like`.
  std::string repeated(const Node& near, const std::string& value, const std::string& like) {
    const auto one = dims_of(value), all = dims_of(like);
    if (!one || !all || all->size() != 1 || all->front() == 1 ||
        !(one->empty() || *one == std::vector<std::int64_t>{1}))
      return value;
    const std::string list = fresh(near);
    take(constant(list, DType::kInt64, *all));
    Node e;
    e.op_type = "Expand";
    e.opset = 13;
    e.inputs = {value, list};
    e.outputs = {fresh(near)};
    if (const auto t = type_of(value)) types_[e.outputs[0]] = *t;
    std::string result = e.outputs[0];
    add(std::move(e));
    return result;
  }

  Node after_of(const Node& n, const char* op, std::vector<std::string> inputs) {
    Node next;
    next.op_type = op;
    next.opset = 13;
    next.inputs = std::move(inputs);
    next.outputs = {fresh(n)};
    return next;
  }

  /// MIGraphX returns the mean of the squares where other normalisations return the mean, which RMS norm does not
  /// compute.
  void mean_of_squares(Node& n, std::vector<Node>& after) {
    if (n.op_type != "SkipSimplifiedLayerNormalization" || n.outputs.size() < 2 || n.outputs[1].empty()) return;
    n.outputs.resize(4);
    if (n.outputs[3].empty()) n.outputs[3] = fresh(n);
    Node sum = after_of(n, "Cast", {n.outputs[3]});
    sum.attributes["to"] = std::int64_t{1};
    Node square = after_of(n, "Mul", {sum.outputs[0], sum.outputs[0]});
    Node mean = after_of(n, "ReduceMean", {square.outputs[0]});
    mean.attributes["axes"] = std::vector<std::int64_t>{-1};
    mean.outputs = {n.outputs[1]};
    n.outputs[1].clear();
    for (Node* next : {&sum, &square, &mean}) after.push_back(std::move(*next));
  }

  /// A clip whose bounds are tensors: the larger of the elements, then the smaller.
  void clip_by_tensors(Node& n, std::vector<Node>& after) {
    const auto is_tensor = [&](std::size_t k) {
      const auto d = k < n.inputs.size() && !n.inputs[k].empty() ? dims_of(n.inputs[k]) : std::nullopt;
      return d && std::any_of(d->begin(), d->end(), [](std::int64_t s) { return s != 1; });
    };
    if (n.op_type != "Clip" || !n.domain.empty() || n.outputs.size() != 1 || !(is_tensor(1) || is_tensor(2))) return;
    const std::optional<DType> known = type_of(n.inputs[0]);
    if (!known) return;
    const DType type = *known;
    const auto bound = [&](std::size_t k) {
      return type_of(n.inputs[k]) == type ? n.inputs[k] : cast(n, n.inputs[k], type);
    };
    const std::string low = n.inputs[1].empty() ? "" : bound(1),
                      high = n.inputs.size() > 2 && !n.inputs[2].empty() ? bound(2) : "";
    n.opset = std::max<std::int64_t>(n.opset, 13);
    n.op_type = low.empty() ? "Min" : "Max";
    n.inputs = {n.inputs[0], low.empty() ? high : low};
    if (low.empty() || high.empty()) return;
    Node smaller = after_of(n, "Min", {fresh(n), high});
    std::swap(smaller.outputs[0], n.outputs[0]);
    smaller.inputs[0] = n.outputs[0];
    after.push_back(std::move(smaller));
  }

  std::optional<DType> type_of(const std::string& value) const {
    const auto found = types_.find(value);
    return found == types_.end() ? std::nullopt : std::optional(found->second);
  }

  std::string cast(const Node& near, const std::string& value, DType to) {
    Node c;
    c.op_type = "Cast";
    c.opset = near.opset;
    c.inputs = {value};
    c.outputs = {fresh(near)};
    c.attributes["to"] = static_cast<std::int64_t>(to_onnx(to));
    types_[c.outputs[0]] = to;
    std::string result = c.outputs[0];
    add(std::move(c));
    return result;
  }

  /// The type in which operands of these types are computed.
  static DType common(DType a, DType b) {
    if (a == b) return a;
    if (is_float(a) != is_float(b)) return is_float(a) ? a : b;
    return size_of(a) >= size_of(b) ? a : b;
  }

  void convert_operands(Node& n, std::vector<Node>& after) {
    static const std::set<std::string> kArithmetic = {"Add", "Sub", "Mul", "Div", "Mod", "BatchNormalization", "Clip"};
    static const std::set<std::string> kOnBytes = {
        "Add",          "Sub",  "Mul",    "Div",       "Cos",       "Sin",    "Sqrt",
        "Conv",         "Gemm", "MatMul", "ReduceMax", "ReduceSum", "Shrink", "GlobalAveragePool",
        "GlobalMaxPool"};
    static const std::set<std::string> kFloats = {"Mean", "Sum", "ThresholdedRelu"};
    if (!n.domain.empty() || n.inputs.empty() || n.outputs.empty()) return;
    const std::optional<DType> first = type_of(n.inputs[0]);
    if (!first) return;
    if (kOnBytes.contains(n.op_type) && is_byte_float(*first)) return convert(n, DType::kFloat32, *first, after);
    if (kFloats.contains(n.op_type) && !is_float(*first)) return convert(n, DType::kFloat32, *first, after);
    if (n.op_type == "Not" && *first != DType::kBool) return convert(n, DType::kBool, DType::kBool, after);
    if ((n.op_type == "Greater" || n.op_type == "Less") && *first == DType::kBool)
      return convert(n, DType::kInt32, DType::kBool, after);
    if (!kArithmetic.contains(n.op_type)) return;
    DType all = *first;
    bool mixed = false;
    for (const std::string& input : n.inputs) {
      if (input.empty()) continue;
      const std::optional<DType> t = type_of(input);
      if (!t) return;
      mixed |= *t != *first;
      all = common(all, *t);
    }
    // The statistics of a batch normalisation may be wider than the rest.
    if (mixed) convert(n, all, n.op_type == "BatchNormalization" || n.op_type == "Clip" ? *first : all, after);
  }

  /// Operands of type `in`, and the first result of type `out`.
  void convert(Node& n, DType in, DType out, std::vector<Node>& after) {
    const std::size_t count = n.op_type == "ReduceMax" || n.op_type == "ReduceSum" ? 1 : n.inputs.size();
    for (std::size_t k = 0; k < count; ++k)
      if (!n.inputs[k].empty() && type_of(n.inputs[k]) != in) n.inputs[k] = cast(n, n.inputs[k], in);
    const bool truth = n.op_type == "Not" || n.op_type == "Greater" || n.op_type == "Less";
    if (out == in || truth) return;
    Node c;
    c.op_type = "Cast";
    c.opset = n.opset;
    c.outputs = {n.outputs[0]};
    n.outputs[0] = fresh(n);
    c.inputs = {n.outputs[0]};
    c.attributes["to"] = static_cast<std::int64_t>(to_onnx(out));
    types_[c.outputs[0]] = out;
    after.push_back(std::move(c));
  }

  /// Operators that ONNX has removed.
  void replace_removed(Node& n, std::vector<Node>& after) {
    if (!n.domain.empty() || n.outputs.size() != 1) return;
    if (n.op_type == "ImageScaler" && n.inputs.size() == 1) {  // scale * x, plus a bias for each channel
      const std::vector<float> bias = n.get_floats("bias");
      const auto channels = static_cast<std::int64_t>(bias.size());
      const DType type = type_of(n.inputs[0]).value_or(DType::kFloat32);
      const std::string scale = fresh(n), offset = fresh(n);
      take(constant(scale, DType::kFloat32, std::vector<float>{n.get_float("scale", 1)}, true));
      take(constant(offset, DType::kFloat32, bias));
      Node sum = n;
      n.op_type = "Mul";
      n.inputs = {n.inputs[0], type == DType::kFloat32 ? scale : cast(n, scale, type)};
      n.outputs = {fresh(n)};
      sum.op_type = "Add";
      const std::string column = reshape(n, offset, {channels, 1, 1});
      sum.inputs = {n.outputs[0], type == DType::kFloat32 ? column : cast(n, column, type)};
      n.attributes.clear();
      sum.attributes.clear();
      after.push_back(std::move(sum));
    } else if (n.op_type == "ConstantFill") {
      const bool by_input = n.get_int("input_as_shape", 0) != 0 && n.inputs.size() == 1;
      if (!by_input && !n.find("shape")) return;
      const std::string shape = by_input ? cast(n, n.inputs[0], DType::kInt64) : fresh(n);
      if (!by_input) take(constant(shape, DType::kInt64, n.get_ints("shape")));
      Node fill = n;
      fill.op_type = "ConstantOfShape";
      fill.inputs = {shape};
      fill.outputs = {fresh(n)};
      fill.attributes.clear();
      fill.attributes["value"] = constant("", DType::kFloat32, std::vector<float>{n.get_float("value", 0)});
      n.attributes = {{"to", n.get_int("dtype", 1)}};
      n.op_type = "Cast";
      n.inputs = {fill.outputs[0]};
      add(std::move(fill));
    }
  }

  /// The types of results, as far as they are known without a compiler.
  void learn_types(const Node& n) {
    static const std::set<std::string> kSame = {
        "Abs",   "Add",      "AveragePool", "Clip",    "Concat", "Conv", "Div",       "Exp",      "Expand",  "Gather",
        "Gemm",  "Identity", "MatMul",      "MaxPool", "Mul",    "Neg",  "Pad",       "Relu",     "Reshape", "Sigmoid",
        "Slice", "Softmax",  "Sqrt",        "Squeeze", "Sub",    "Tanh", "Transpose", "Unsqueeze"};
    if (n.outputs.empty() || !n.domain.empty()) return;
    if (n.op_type == "Constant") {
      if (const model::Tensor* t = n.get_tensor("value"); t && t->unsupported.empty()) types_[n.outputs[0]] = t->dtype;
    } else if (n.op_type == "Cast") {
      const auto to = static_cast<int>(n.get_int("to", 0));
      for (const DTypeInfo& d : all_dtypes())
        if (d.onnx == to) types_[n.outputs[0]] = d.type;
    } else if (kSame.contains(n.op_type) && !n.inputs.empty()) {
      if (const auto t = type_of(n.inputs[0])) types_[n.outputs[0]] = *t;
    }
  }

  model::Graph& graph_;
  std::map<std::string, DType> types_;
  std::map<std::string, std::vector<std::int64_t>> dims_;
  std::size_t count_ = 0;
};

}  // namespace

void mend(model::Model& m) { Mender(m.graph).run(); }

}  // namespace sardonyx::mgx
