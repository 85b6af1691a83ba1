// Operators that read or write parts of tensors, by position or by comparing elements.
#include <algorithm>

#include "tflite/operator.h"

namespace sardonyx::tflite {
namespace {

void slice(Operator& op) {  // begin, size; a size of -1 is all that follows
  const std::string x = op.as_output(0);
  std::vector<std::int64_t> axes;
  for (std::int64_t k = 0; k < op.rank(0); ++k) axes.push_back(k);
  const auto begin = op.constant_ints(1), size = op.constant_ints(2);
  std::string starts = op.ints(1), ends;
  if (begin && size) {
    op.require(begin->size() == axes.size() && size->size() == axes.size(), "begin and size do not fit the input");
    std::vector<std::int64_t> e;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      op.require((*begin)[k] >= 0 && (*size)[k] >= -1, "begin or size is negative");
      std::int64_t end = 0;
      if ((*size)[k] == -1 || __builtin_add_overflow((*begin)[k], (*size)[k], &end)) end = INT64_MAX;
      e.push_back(end);
    }
    ends = op.make.ints(e);
  } else {
    const std::string sizes = op.ints(2), zero = op.make.scalar(DType::kInt64, 0);
    const std::string all = op.make.ints_as(DType::kInt64, {INT64_MAX}, true);
    ends = op.make.add("Where", {op.make.add("Less", {sizes, zero}), all, op.make.add("Add", {starts, sizes})});
  }
  const std::string a = op.make.ints(axes);
  op.set(0, op.make.add("Slice", {x, starts, ends, a}));
}

bool bit(std::int64_t mask, std::int64_t k) { return k >= 0 && k < 63 && (mask >> k & 1) != 0; }

// What the masks of STRIDED_SLICE make of its entries.
struct StridedSlice {
  std::vector<std::int64_t> entries, axes;  ///< those that read a dim, and the dim
  std::vector<std::int64_t> dropped;        ///< dims that disappear, before
  std::vector<std::int64_t> added;          ///< and dims of size 1 that appear, after the others are gone
};

// Entries after an ellipsis count dims from the end, so that the rank needs not be known.
StridedSlice entries_of(Operator& op, std::int64_t n, std::int64_t ellipsis, std::int64_t new_axes,
                        std::int64_t shrunk) {
  StridedSlice s;
  std::int64_t split = n;
  for (std::int64_t k = 0; k < n; ++k)
    if (bit(ellipsis, k)) {
      op.require(split == n, "there are several ellipses");
      split = k;
    }
  std::int64_t axis = 0, place = 0;
  for (std::int64_t k = 0; k < split; ++k) {
    if (bit(new_axes, k)) {
      s.added.push_back(place++);
      continue;
    }
    s.entries.push_back(k);
    s.axes.push_back(axis);
    if (bit(shrunk, k))
      s.dropped.push_back(axis);
    else
      ++place;
    ++axis;
  }
  axis = place = -1;
  for (std::int64_t k = n - 1; k > split; --k) {
    if (bit(new_axes, k)) {
      s.added.push_back(place--);
      continue;
    }
    s.entries.push_back(k);
    s.axes.push_back(axis);
    if (bit(shrunk, k))
      s.dropped.push_back(axis);
    else
      --place;
    --axis;
  }
  return s;
}

/// Where `masked`, the constants; elsewhere the computed numbers.
std::string where_masked(Operator& op, const std::vector<std::int64_t>& masked,
                         const std::vector<std::int64_t>& constants, const std::string& computed) {
  if (std::none_of(masked.begin(), masked.end(), [](std::int64_t m) { return m != 0; })) return computed;
  const std::string mask = op.make.ints_as(DType::kBool, masked), values = op.make.ints(constants);
  return op.make.add("Where", {mask, values, computed});
}

void strided_slice(Operator& op) {
  op.require(op.rank(1) == 1 && op.in(1).shape[0] >= 0 && op.in(1).shape[0] <= 16, "begin is no short vector");
  const std::int64_t n = op.in(1).shape[0];
  const auto mask = [&](int field) { return std::int64_t{op.option<std::int32_t>(field, 0)}; };
  const std::int64_t begins = mask(0), ends = mask(1), shrunk = mask(4);
  if (op.option<bool>(5, false)) op.refuse("an end that counts from the beginning");
  const StridedSlice s = entries_of(op, n, mask(2), mask(3), shrunk);
  const auto all_steps = op.known_ints(3, "a stride");
  op.require(static_cast<std::int64_t>(all_steps.size()) == n, "there are not as many strides as numbers in begin");
  std::string x = op.as_output(0);
  if (!s.entries.empty()) {
    std::vector<std::int64_t> steps, open_begin, open_end, first, last;
    for (const std::int64_t e : s.entries) {
      const bool drop = bit(shrunk, e);
      const std::int64_t step = drop ? 1 : all_steps[static_cast<std::size_t>(e)];
      op.require(step != 0, "a stride is 0");
      steps.push_back(step);
      open_begin.push_back(!drop && (bit(begins, e)));
      open_end.push_back(!drop && (bit(ends, e)));
      first.push_back(step > 0 ? 0 : INT64_MAX);
      last.push_back(step > 0 ? INT64_MAX : INT64_MIN);
    }
    const std::string which = op.make.ints(s.entries);
    const auto chosen = [&](std::size_t k) { return op.make.add("Gather", {op.ints(k), which}); };
    const std::string begin = where_masked(op, open_begin, first, chosen(1));
    std::string end = where_masked(op, open_end, last, chosen(2));
    if (!s.dropped.empty()) {  // one element: up to the next, and for -1 up to the end
      std::vector<std::int64_t> dropped;
      for (const std::int64_t e : s.entries) dropped.push_back(bit(shrunk, e) ? 1 : 0);
      const std::string one = op.make.scalar(DType::kInt64, 1), minus = op.make.scalar(DType::kInt64, -1);
      const std::string all = op.make.ints_as(DType::kInt64, {INT64_MAX}, true);
      const std::string next =
          op.make.add("Where", {op.make.add("Equal", {begin, minus}), all, op.make.add("Add", {begin, one})});
      end = op.make.add("Where", {op.make.ints_as(DType::kBool, dropped), next, end});
    }
    const std::string axes = op.make.ints(s.axes), strides = op.make.ints(steps);
    x = op.make.add("Slice", {x, begin, end, axes, strides});
  }
  if (!s.dropped.empty()) x = op.make.add("Squeeze", {x, op.make.ints(s.dropped)});
  if (!s.added.empty()) x = op.make.add("Unsqueeze", {x, op.make.ints(s.added)});
  op.set(0, x);
}

void gather(Operator& op) {
  const std::int64_t axis = checked_axis(op, op.option<std::int32_t>(0, 0), op.rank(0));
  std::int64_t batch = op.option<std::int32_t>(1, 0);
  if (batch < 0) batch += op.rank(1);
  const std::string x = op.as_output(0), at = op.raw(1);
  if (batch == 0) return op.set(0, op.make.add("Gather", {x, at}, {{"axis", axis}}));
  op.require(batch > 0 && batch <= axis && batch <= op.rank(1), "there are more batch dims than the axis allows");
  const std::string last = op.make.ints({-1});
  const std::string wide = op.in(1).dtype == DType::kInt64 ? at : op.make.cast(at, DType::kInt64);
  const std::string points = op.make.add("Unsqueeze", {wide, last});
  // GatherND reads along the first dim after the batch: the axis moves there, and the dims before it move back to their
  // place after the indices' dims.
  std::vector<std::int64_t> there, back;
  for (std::int64_t d = 0; d < batch; ++d) there.push_back(d), back.push_back(d);
  there.push_back(axis);
  for (std::int64_t d = batch; d < op.rank(0); ++d)
    if (d != axis) there.push_back(d);
  const std::int64_t indices = op.rank(1) - batch, passed = axis - batch;
  for (std::int64_t d = 0; d < passed; ++d) back.push_back(batch + indices + d);
  for (std::int64_t d = 0; d < indices; ++d) back.push_back(batch + d);
  for (std::int64_t d = axis + 1; d < op.rank(0); ++d) back.push_back(indices + d - 1);
  const std::string moved = passed == 0 ? x : op.make.transpose(x, there);
  const std::string y = op.make.add("GatherND", {moved, points}, {{"batch_dims", batch}});
  op.set(0, passed == 0 ? y : op.make.transpose(y, back));
}

void embedding_lookup(Operator& op) {  // ids, table
  const std::string table = op.real(1);
  op.set_real(0, op.make.add("Gather", {table, op.raw(0)}));
}

std::string wide(Operator& op, std::size_t k) {
  return op.in(k).dtype == DType::kInt64 ? op.raw(k) : op.make.cast(op.raw(k), DType::kInt64);
}

void gather_nd(Operator& op) { op.set(0, op.make.add("GatherND", {op.as_output(0), wide(op, 1)})); }

void scatter_nd(Operator& op) {  // indices, updates, shape: equal indices add up
  const std::string at = wide(op, 0), updates = op.raw(1);
  const std::string zero = op.make.scalar(op.out(0).dtype, 0);
  const std::string zeros = op.make.add("Expand", {zero, op.ints(2)});
  op.set(0, op.make.add("ScatterND", {zeros, at, updates}, {{"reduction", std::string("add")}}));
}

void dynamic_update_slice(Operator& op) {  // operand, update, start
  // The positions along each axis, start clamped so that the update fits; one Where per element would read all.
  const std::int64_t rank = op.rank(0);
  op.require(rank > 0 && rank == op.rank(1), "operand and update differ in rank");
  Nodes& m = op.make;
  const std::string x = op.as_output(0), update = op.raw(1);
  const std::string room = m.add("Sub", {m.add("Shape", {x}), m.add("Shape", {update})});
  const std::string zero = m.scalar(DType::kInt64, 0), one = m.scalar(DType::kInt64, 1);
  const std::string start = m.add("Max", {m.add("Min", {op.ints(2), room}), zero});
  const std::string size = m.add("Shape", {update});
  Inputs coordinates;
  for (std::int64_t k = 0; k < rank; ++k) {
    const std::string which = m.ints_as(DType::kInt64, {k}, true);
    const std::string from = m.add("Gather", {start, which}), count = m.add("Gather", {size, which});
    std::vector<std::int64_t> shape(static_cast<std::size_t>(rank), 1);
    shape[static_cast<std::size_t>(k)] = -1;
    const std::string line = m.add("Range", {from, m.add("Add", {from, count}), one});
    const std::string all = m.add("Expand", {m.reshape(line, shape), size});
    coordinates.push_back(m.add("Unsqueeze", {all, m.ints({-1})}));
  }
  const std::string points = m.add("Concat", std::move(coordinates), {{"axis", std::int64_t{-1}}});
  op.set(0, m.add("ScatterND", {x, points, update}));
}

void one_hot(Operator& op) {  // indices, depth, on, off
  const std::string depth = op.int_scalar(1);
  const std::string last = op.make.ints({0});
  const std::string off = op.make.add("Unsqueeze", {op.raw(3), last}), on = op.make.add("Unsqueeze", {op.raw(2), last});
  const std::string values = op.make.add("Concat", {off, on}, {{"axis", std::int64_t{0}}});
  const std::string at = wide(op, 0);
  // ONNX counts negative indices from the end; TFLite has no element there.
  const std::string zero = op.make.scalar(DType::kInt64, 0);
  const std::string valid = op.make.add("Where", {op.make.add("Less", {at, zero}), depth, at});
  op.set(0, op.make.add("OneHot", {valid, depth, values}, {{"axis", std::int64_t{op.option<std::int32_t>(0, 0)}}}));
}

void select(Operator& op) {
  std::string condition = op.raw(0);
  const std::int64_t rank = op.rank(1);
  if (op.rank(0) == 1 && rank > 1) {  // one condition for each row
    std::vector<std::int64_t> shape(static_cast<std::size_t>(rank), 1);
    shape[0] = -1;
    condition = op.make.reshape(condition, shape);
  }
  op.set(0, op.make.add("Where", {condition, op.as_output(1), op.as_output(2)}));
}

void select_v2(Operator& op) { op.set(0, op.make.add("Where", {op.raw(0), op.as_output(1), op.as_output(2)})); }

void where(Operator& op) {
  std::string x = op.raw(0);
  if (op.in(0).dtype != DType::kBool) x = op.make.cast(x, DType::kBool);
  op.set(0, op.make.transpose(op.make.add("NonZero", {x}), {1, 0}));
}

void reverse(Operator& op) {
  const auto axes = op.known_ints(1, "an axis");
  const std::vector<std::int64_t> first(axes.size(), INT64_MAX), last(axes.size(), INT64_MIN), step(axes.size(), -1);
  const std::string x = op.as_output(0), s = op.make.ints(first), e = op.make.ints(last);
  const std::string a = op.make.ints(axes), steps = op.make.ints(step);
  op.set(0, op.make.add("Slice", {x, s, e, a, steps}));
}

void reverse_sequence(Operator& op) {
  const std::int64_t time = op.option<std::int32_t>(0, 0), batch = op.option<std::int32_t>(1, 0);
  if (time < 0 || batch < 0 || time > 1 || batch > 1 || time == batch)
    op.refuse(fmt::format("sequences along dim {} of batch {}", time, batch));
  op.set(0,
         op.make.add("ReverseSequence", {op.as_output(0), op.ints(1)}, {{"time_axis", time}, {"batch_axis", batch}}));
}

void top_k(Operator& op) {
  op.require(op.in(0).quantization == op.out(0).quantization, "the scales of input and result differ");
  const std::string x = op.raw(0), k = op.ints(1);
  const auto found = op.make.add_many("TopK", {x, k}, 2, {{"axis", std::int64_t{-1}}});
  op.set(0, found[0]);
  op.set(1, op.out(1).dtype == DType::kInt64 ? found[1] : op.make.cast(found[1], op.out(1).dtype));
}

void arg(Operator& op) {
  const auto axes = op.known_ints(1, "an axis");
  op.require(axes.size() == 1, "there must be one axis");
  const std::string at = op.make.add(op.onnx(), {op.raw(0)}, {{"axis", axes[0]}, {"keepdims", std::int64_t{0}}});
  op.set(0, op.out(0).dtype == DType::kInt64 ? at : op.make.cast(at, op.out(0).dtype));
}

void unique(Operator& op) {
  const auto found = op.make.add_many("Unique", {op.raw(0)}, 3, {{"sorted", std::int64_t{0}}});
  op.set(0, found[0]);
  op.set(1, op.out(1).dtype == DType::kInt64 ? found[2] : op.make.cast(found[2], op.out(1).dtype));
}

void cumsum(Operator& op) {
  const std::string x = op.real(0), axis = op.int_scalar(1);
  op.set_real(0, op.make.add("CumSum", {x, axis},
                             {{"exclusive", std::int64_t{op.option<bool>(0, false)}},
                              {"reverse", std::int64_t{op.option<bool>(1, false)}}}));
}

// Inputs: boxes, scores, most results, IoU and score thresholds, and in version 5 sigma. The results are padded with
// zeros, and their number is the last output.
void non_max_suppression(Operator& op) {
  Nodes& m = op.make;
  const bool scored = op.outputs() == 3;
  if (scored) {
    const TensorInfo& sigma = op.in(5);
    if (!sigma.constant || sigma.dtype != DType::kFloat32 || sigma.constant->as<float>().size() != 1 ||
        sigma.constant->as<float>()[0] != 0)
      op.refuse("soft suppression");
  }
  const std::string first = m.ints({0}), both = m.ints({0, 1});
  const std::string boxes = m.add("Unsqueeze", {op.real(0), first}), scores = m.add("Unsqueeze", {op.real(1), both});
  const std::string most = op.ints(2), iou = m.reshape(op.raw(3), {1}), least = m.reshape(op.raw(4), {1});
  const std::string found = m.add("NonMaxSuppression", {boxes, scores, most, iou, least});
  const std::string column = m.ints_as(DType::kInt64, {2}, true);
  const std::string at = m.add("Gather", {found, column}, {{"axis", std::int64_t{1}}});
  const std::string count = m.add("Shape", {at});
  const std::string missing = m.add("Concat", {first, m.add("Sub", {most, count})}, {{"axis", std::int64_t{0}}});
  op.set(0, m.cast(m.add("Pad", {at, missing}), op.out(0).dtype));
  if (scored) op.set(1, m.add("Pad", {m.add("Gather", {op.real(1), at}), missing}));
  op.set(scored ? 2 : 1, m.cast(m.reshape(count, {}), op.out(scored ? 2 : 1).dtype));
}

constexpr Rule kRules[] = {
    {7, "EMBEDDING_LOOKUP", embedding_lookup},
    {36, "GATHER", gather},
    {45, "STRIDED_SLICE", strided_slice},
    {48, "TOPK_V2", top_k},
    {56, "ARG_MAX", arg, "ArgMax"},
    {64, "SELECT", select},
    {65, "SLICE", slice},
    {79, "ARG_MIN", arg, "ArgMin"},
    {85, "ONE_HOT", one_hot},
    {103, "UNIQUE", unique},
    {105, "REVERSE_V2", reverse},
    {107, "GATHER_ND", gather_nd},
    {109, "WHERE", where},
    {112, "REVERSE_SEQUENCE", reverse_sequence},
    {120, "NON_MAX_SUPPRESSION_V4", non_max_suppression},
    {121, "NON_MAX_SUPPRESSION_V5", non_max_suppression},
    {122, "SCATTER_ND", scatter_nd},
    {123, "SELECT_V2", select_v2},
    {128, "CUMSUM", cumsum},
    {151, "DYNAMIC_UPDATE_SLICE", dynamic_update_slice},
};

}  // namespace

std::span<const Rule> index_rules() { return kRules; }

}  // namespace sardonyx::tflite
