// Operators that reduce, sort, or choose elements by indices.
#include "migraphx/emitter.h"

namespace sardonyx::mgx {
namespace {

using Ints = Emitter::Ints;

std::int64_t number(bool b) { return b ? 1 : 0; }

std::string axes_of(Emitter& e) {
  if (e.inputs() == 2) return e.in(1);
  const Ints axes = e.ints("axes");
  if (axes.empty()) e.invalid("the attribute axes is empty");
  return e.int_list(axes);
}

void reduce(Emitter& e) {
  const std::string axes = axes_of(e);
  e.result(e.node(e.rule().onnx, {e.in(0), axes}));
}

/// On truth values: the smallest or largest of 0 and 1.
void reduce_truth(Emitter& e) {
  const std::string axes = axes_of(e);
  const std::string truth = e.cast(e.cast(e.in(0), DType::kBool), DType::kInt32);
  e.result(e.cast(e.node(e.rule().onnx, {truth, axes}), e.type(0)));
}

void softmax(Emitter& e) { e.result(e.node(e.rule().onnx, {e.in(0)}, {{"axis", e.integer("axis")}})); }

void arg(Emitter& e) {
  e.result(e.node(e.rule().onnx, {e.in(0)},
                  {{"axis", e.integer("axis")},
                   {"keepdims", std::int64_t{1}},
                   {"select_last_index", number(e.flag("select_last_index"))}}));
}

/// With a second input, its elements are returned in place of the indices.
void topk(Emitter& e) {
  const std::int64_t axis = e.integer("axis");
  const Emitter::Names r =
      e.nodes(2, "TopK", {e.in(0), e.int_list({e.integer("k")})},
              {{"axis", axis}, {"largest", number(e.flag("largest"))}, {"sorted", std::int64_t{1}}});
  e.result(r[0]);
  e.result(e.inputs() == 2 ? e.node("GatherElements", {e.in(1), r[1]}, {{"axis", axis}}) : r[1]);
  e.tuple();
}

void gather(Emitter& e) {
  std::string indices = e.in(1);
  // A scalar index removes the axis.
  if (e.shape(1).is_scalar() && e.rank(0) > 1) indices = e.node("Squeeze", {indices});
  e.result(e.node("Gather", {e.in(0), indices}, {{"axis", e.integer("axis")}}));
}

void gathernd(Emitter& e) {
  e.result(e.node("GatherND", {e.in(0), e.in(1)}, {{"batch_dims", e.integer("batch_dims")}}));
}

void scatter(Emitter& e) {
  if (e.flag("skip_out_of_bounds")) e.refuse("the attribute skip_out_of_bounds");
  e.result(e.node("ScatterElements", e.all_inputs(),
                  {{"axis", e.integer("axis")}, {"reduction", std::string(e.rule().onnx)}}));
}

void scatternd(Emitter& e) {
  e.result(e.node("ScatterND", e.all_inputs(), {{"reduction", std::string(e.rule().onnx)}}));
}

void prefix_sum(Emitter& e) {
  const std::string axis = e.node("Squeeze", {e.int_list({e.integer("axis")})});
  e.result(e.node("CumSum", {e.in(0), axis},
                  {{"exclusive", number(e.flag("exclusive"))}, {"reverse", number(e.flag("reverse"))}}));
}

void onehot(Emitter& e) {
  const bool attribute = e.given("depth") && !e.value("depth").is_null();
  const std::string depth = attribute ? e.int_list({e.integer("depth")}) : e.in(1);
  if (e.inputs() != (attribute ? 2U : 3U)) e.invalid("it has the inputs indices, depth (or the attribute), values");
  e.result(e.node("OneHot", {e.in(0), depth, e.in(attribute ? 1 : 2)}, {{"axis", e.integer("axis")}}));
}

/// MIGraphX's result has a column for each element, with zeros in those that are not used.
void nonzero(Emitter& e) {
  std::int64_t elements = 1;
  for (const std::int64_t n : e.dims(0)) elements *= n;
  const std::string found = e.node("NonZero", {e.in(0)});
  const std::string count = e.node("Shape", {found}, {{"start", std::int64_t{1}}, {"end", std::int64_t{2}}});
  const std::string missing = e.node("Sub", {e.int_list({elements}), count});
  const std::string pads = e.node("Concat", {e.int_list({0, 0, 0}), missing}, {{"axis", std::int64_t{0}}});
  const std::string padded = e.node("Pad", {found, pads});
  e.result(e.node("Reshape", {padded, e.int_list({static_cast<std::int64_t>(e.rank(0)), elements})}));
}

void nonmaxsuppression(Emitter& e) {
  e.result(e.node("NonMaxSuppression", e.all_inputs(), {{"center_point_box", number(e.flag("center_point_box"))}}));
}

void unique(Emitter& e) {
  Emitter::Attributes attributes{{"sorted", number(e.flag("sorted"))}};
  if (e.given("axis") && !e.value("axis").is_null()) attributes["axis"] = e.integer("axis");
  for (const std::string& r : e.nodes(4, "Unique", {e.in(0)}, attributes)) e.result(r);
  e.tuple();
}

constexpr OperatorRule kRules[] = {
    {"argmax", 1, 1, R"({"axis": 0, "select_last_index": false})", arg, "ArgMax"},
    {"argmin", 1, 1, R"({"axis": 0, "select_last_index": false})", arg, "ArgMin"},
    {"gather", 2, 2, R"({"axis": 0})", gather},
    {"gathernd", 2, 2, R"({"batch_dims": 0})", gathernd},
    {"logsoftmax", 1, 1, R"({"axis": 1})", softmax, "LogSoftmax"},
    {"nonmaxsuppression", 2, 5, R"({"center_point_box": false, "use_dyn_output": false})", nonmaxsuppression},
    {"nonzero", 1, 1, "{}", nonzero},
    {"onehot", 2, 3, R"({"axis": -1, "depth": null})", onehot},
    {"prefix_scan_sum", 1, 1, R"({"axis": 0, "exclusive": false, "reverse": false})", prefix_sum},
    {"reduce_all", 1, 2, R"({"axes": []})", reduce_truth, "ReduceMin"},
    {"reduce_any", 1, 2, R"({"axes": []})", reduce_truth, "ReduceMax"},
    {"reduce_max", 1, 2, R"({"axes": []})", reduce, "ReduceMax"},
    {"reduce_mean", 1, 2, R"({"axes": []})", reduce, "ReduceMean"},
    {"reduce_min", 1, 2, R"({"axes": []})", reduce, "ReduceMin"},
    {"reduce_prod", 1, 2, R"({"axes": []})", reduce, "ReduceProd"},
    {"reduce_sum", 1, 2, R"({"axes": []})", reduce, "ReduceSum"},
    {"scatter_add", 3, 3, R"({"axis": 0, "skip_out_of_bounds": false})", scatter, "add"},
    {"scatter_max", 3, 3, R"({"axis": 0, "skip_out_of_bounds": false})", scatter, "max"},
    {"scatter_min", 3, 3, R"({"axis": 0, "skip_out_of_bounds": false})", scatter, "min"},
    {"scatter_mul", 3, 3, R"({"axis": 0, "skip_out_of_bounds": false})", scatter, "mul"},
    {"scatter_none", 3, 3, R"({"axis": 0, "skip_out_of_bounds": false})", scatter, "none"},
    {"scatternd_add", 3, 3, "{}", scatternd, "add"},
    {"scatternd_max", 3, 3, "{}", scatternd, "max"},
    {"scatternd_min", 3, 3, "{}", scatternd, "min"},
    {"scatternd_mul", 3, 3, "{}", scatternd, "mul"},
    {"scatternd_none", 3, 3, "{}", scatternd, "none"},
    {"softmax", 1, 1, R"({"axis": 1})", softmax, "Softmax"},
    {"topk", 1, 2, R"({"k": 1, "axis": 0, "largest": true})", topk},
    {"unique", 1, 1, R"({"axis": null, "sorted": true})", unique},
};

}  // namespace

std::span<const OperatorRule> index_operators() { return kRules; }

}  // namespace sardonyx::mgx
