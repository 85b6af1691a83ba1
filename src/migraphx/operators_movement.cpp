// Operators that move or repeat elements.
#include <algorithm>

#include "migraphx/emitter.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using Ints = Emitter::Ints;

void reshape(Emitter& e) { e.result(e.node("Reshape", {e.in(0), e.int_list(e.ints("dims"))})); }

void flatten(Emitter& e) { e.result(e.node("Flatten", {e.in(0)}, {{"axis", e.integer("axis")}})); }

void squeeze(Emitter& e) {
  const Ints axes = e.ints("axes");
  if (axes.empty()) return e.result(e.node("Squeeze", {e.in(0)}));
  e.result(e.node("Squeeze", {e.in(0), e.int_list(axes)}));
}

void unsqueeze(Emitter& e) {
  const Ints axes = e.ints("axes"), steps = e.ints("steps");
  if (std::all_of(steps.begin(), steps.end(), [](std::int64_t s) { return s == 1; }))
    return e.result(e.node("Unsqueeze", {e.in(0), e.int_list(axes)}));
  // A step divides the dim after it.
  Ints dims = e.dims(0), out;
  std::size_t next = 0;
  for (std::size_t k = 0; k < e.rank(0) + axes.size(); ++k) {
    const auto found = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(k));
    const auto which = static_cast<std::size_t>(found - axes.begin());
    if (found == axes.end()) {
      if (next >= dims.size()) e.invalid("the axes don't fit the input");
      out.push_back(dims[next++]);
      continue;
    }
    const std::int64_t step = which < steps.size() ? steps[which] : 1;
    if (step < 1 || (next < dims.size() && dims[next] % step != 0)) e.invalid("a dim is not divisible by its step");
    out.push_back(step);
    if (next < dims.size()) dims[next] /= step;
  }
  e.result(e.node("Reshape", {e.in(0), e.int_list(out)}));
}

void transpose(Emitter& e) {
  const Ints permutation = e.ints("permutation");
  if (permutation.size() != e.rank(0)) e.invalid("the attribute permutation needs one axis for each of the input's");
  e.result(e.node("Transpose", {e.in(0)}, {{"perm", permutation}}));
}

/// The dims that inputs have in common, by numpy's rules.
Ints common_dims(Emitter& e) {
  Ints all;
  for (std::size_t k = 0; k < e.inputs(); ++k) {
    Ints d = e.dims(k);
    if (d.size() > all.size()) all.insert(all.begin(), d.size() - all.size(), 1);
    const std::size_t offset = all.size() - d.size();
    for (std::size_t i = 0; i < d.size(); ++i)
      if (all[offset + i] == 1) all[offset + i] = d[i];
  }
  return all;
}

void multibroadcast(Emitter& e) {
  const Ints target = e.inputs() == 1 ? e.ints("out_lens") : common_dims(e), dims = e.dims(0);
  bool fits = target.size() >= dims.size();
  for (std::size_t k = 0; fits && k < dims.size(); ++k)
    fits = dims[k] == 1 || dims[k] == target[target.size() - dims.size() + k];
  if (!fits)
    e.invalid(fmt::format("dims [{}] can't be broadcast to [{}]", fmt::join(dims, ", "), fmt::join(target, ", ")));
  e.result(e.node("Expand", {e.in(0), e.int_list(target)}));
}

/// The input's dims are those of the result from `axis` on.
void broadcast(Emitter& e) {
  const Ints target = e.inputs() == 1 ? e.ints("out_lens") : e.dims(1), dims = e.dims(0);
  const std::int64_t axis = e.integer("axis");
  bool fits = axis >= 0 && axis <= static_cast<std::int64_t>(target.size()) &&
              dims.size() <= target.size() - static_cast<std::size_t>(axis);
  for (std::size_t k = 0; fits && k < dims.size(); ++k) fits = target[static_cast<std::size_t>(axis) + k] == dims[k];
  if (!fits)
    e.invalid(fmt::format("dims [{}] can't be broadcast to [{}] at axis {}", fmt::join(dims, ", "),
                          fmt::join(target, ", "), axis));
  Ints aligned(target.size(), 1);
  std::copy(dims.begin(), dims.end(), aligned.begin() + axis);
  e.result(e.node("Expand", {e.node("Reshape", {e.in(0), e.int_list(aligned)}), e.int_list(target)}));
}

void broadcast_with_dims(Emitter& e) { e.result(e.node("Expand", {e.in(0), e.in(1)})); }

/// The batch dims of the two operands of a product in common.
void broadcast_for_dot(Emitter& e) {
  Ints a = e.dims(0), b = e.dims(1);
  if (a.size() < 2 || b.size() < 2) e.invalid("its inputs need at least two dims");
  const Ints matrix(a.end() - 2, a.end());
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  Ints all(std::max(a.size(), b.size()), 1);
  for (const Ints& d : {a, b})
    for (std::size_t k = 0; k < d.size(); ++k)
      if (std::int64_t& n = all[all.size() - d.size() + k]; n == 1) n = d[k];
  all.insert(all.end(), matrix.begin(), matrix.end());
  e.result(e.node("Expand", {e.in(0), e.int_list(all)}));
}

void scalar(Emitter& e) { e.result(e.node("Expand", {e.in(0), e.int_list(e.ints("scalar_bcst_dims"))})); }

void fill(Emitter& e) {
  if (e.shape(0).type != e.shape(1).type) e.invalid("its inputs need one element type");
  e.result(e.node("Expand", {e.in(0), e.node("Shape", {e.in(1)})}));
}

void dimensions_of(Emitter& e) {
  e.result(e.node("Shape", {e.in(0)}, {{"start", e.integer("start")}, {"end", e.integer("end")}}));
}

void slice(Emitter& e) {
  const Ints axes = e.ints("axes"), starts = e.ints("starts"), ends = e.ints("ends");
  if (e.inputs() != 1) e.refuse("bounds as inputs; give them as the attributes starts and ends");
  if (axes.size() != starts.size() || axes.size() != ends.size())
    e.invalid("the attributes axes, starts and ends need equal numbers of values");
  e.result(e.node("Slice", {e.in(0), e.int_list(starts), e.int_list(ends), e.int_list(axes)}));
}

std::string every(Emitter& e, std::size_t axes, std::int64_t from, std::int64_t to, const Ints& steps, const Ints& on) {
  return e.node("Slice",
                {e.in(0), e.int_list(Ints(axes, from)), e.int_list(Ints(axes, to)), e.int_list(on), e.int_list(steps)});
}

void step(Emitter& e) {
  const Ints axes = e.ints("axes"), steps = e.ints("steps");
  if (axes.size() != steps.size()) e.invalid("the attributes axes and steps need equal numbers of values");
  e.result(every(e, axes.size(), 0, std::int64_t{1} << 62, steps, axes));
}

void reverse(Emitter& e) {
  const Ints axes = e.ints("axes");
  e.result(every(e, axes.size(), -1, -(std::int64_t{1} << 62), Ints(axes.size(), -1), axes));
}

void concat(Emitter& e) { e.result(e.node("Concat", e.all_inputs(), {{"axis", e.integer("axis")}})); }

void pad(Emitter& e) {
  static const char* const kModes[] = {"constant", "reflect", "edge"};
  const std::size_t mode = e.choice("mode", {"constant_pad", "reflect_pad", "edge_pad"});
  const Ints pads = e.ints("pads");
  if (pads.size() != 2 * e.rank(0)) e.invalid("the attribute pads needs two values for each dim");
  Emitter::Names inputs{e.in(0), e.int_list(pads)};
  if (mode == 0 && e.number("value") != 0)
    inputs.push_back(e.node("Squeeze", {e.cast(e.scalar(DType::kFloat32, e.number("value")), e.type(0))}));
  e.result(e.node("Pad", inputs, {{"mode", std::string(kModes[mode])}}));
}

constexpr OperatorRule kRules[] = {
    {"broadcast", 1, 2, R"({"axis": 0, "out_lens": []})", broadcast},
    {"broadcast_for_dot", 2, 2, "{}", broadcast_for_dot},
    {"broadcast_with_dims", 2, 2, "{}", broadcast_with_dims},
    {"concat", 1, -1, R"({"axis": 0})", concat},
    {"dimensions_of", 1, 1, R"({"start": 0, "end": 0})", dimensions_of},
    {"fill", 2, 2, "{}", fill},
    {"flatten", 1, 1, R"({"axis": 1})", flatten},
    {"multibroadcast", 1, -1, R"({"out_lens": []})", multibroadcast},
    {"pad", 1, 1, R"({"mode": "constant_pad", "pads": [], "value": 0.0})", pad},
    {"reshape", 1, 1, R"({"dims": []})", reshape},
    {"reshape_lazy", 1, 1, R"({"dims": []})", reshape},
    {"reverse", 1, 1, R"({"axes": []})", reverse},
    {"scalar", 1, 1, R"({"scalar_bcst_dims": []})", scalar},
    {"slice", 1, 3, R"({"axes": [], "starts": [], "ends": []})", slice},
    {"squeeze", 1, 1, R"({"axes": []})", squeeze},
    {"step", 1, 1, R"({"axes": [], "steps": []})", step},
    {"transpose", 1, 1, R"({"permutation": []})", transpose},
    {"unsqueeze", 1, 1, R"({"axes": [], "steps": []})", unsqueeze},
};

}  // namespace

std::span<const OperatorRule> movement_operators() { return kRules; }

}  // namespace sardonyx::mgx
