// Sequences of tensors: lists that are known when compiling, so that nothing of them is left in a program.
#include "ops/families.h"
#include "ops/parts.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMostElements = 4096;  // each is a node

/// The place that an input gives in a sequence of `count` tensors: negative numbers count from the end, and `count`
/// itself is allowed if `end`. Throws Error(kInvalidModel) for others.
std::size_t place(OpContext& c, int input, std::size_t count, bool end) {
  const auto given = c.const_ints(c.in(input), "the position in a sequence");
  c.require(given.size() == 1, "a position of {} elements", given.size());
  const auto n = static_cast<std::int64_t>(count);
  const std::int64_t at = given[0] < 0 ? given[0] + n : given[0];
  c.require(at >= 0 && (at < n || (end && at == n)), "position {} of a sequence of {} tensors", given[0], n);
  return static_cast<std::size_t>(at);
}

void empty_op(OpContext& c) { c.out_sequence(0, {}); }

void construct_op(OpContext& c) {
  Sequence s;
  for (int k = 0; k < c.input_count(); ++k) {
    s.push_back(c.in(k));
    c.require(s.back()->dtype == s[0]->dtype, "tensors of dtypes {} and {}", name(s[0]->dtype), name(s.back()->dtype));
  }
  c.out_sequence(0, std::move(s));
}

void insert_op(OpContext& c) {
  Sequence s = c.sequence(0);
  Value* x = c.in(1);
  c.require(s.empty() || s[0]->dtype == x->dtype, "a tensor of dtype {} in a sequence of {}", name(x->dtype),
            name(s.empty() ? x->dtype : s[0]->dtype));
  if (static_cast<std::int64_t>(s.size()) >= kMostElements)
    c.refuse("more than {} tensors in a sequence", kMostElements);
  const std::size_t at = c.has(2) ? place(c, 2, s.size(), true) : s.size();
  s.insert(s.begin() + static_cast<std::ptrdiff_t>(at), x);
  c.out_sequence(0, std::move(s));
}

void erase_op(OpContext& c) {
  Sequence s = c.sequence(0);
  c.require(!s.empty(), "the sequence is empty");
  s.erase(s.begin() + static_cast<std::ptrdiff_t>(c.has(1) ? place(c, 1, s.size(), false) : s.size() - 1));
  c.out_sequence(0, std::move(s));
}

void at_op(OpContext& c) {
  const Sequence& s = c.sequence(0);
  c.out(0, s[place(c, 1, s.size(), false)]);
}

void length_op(OpContext& c) {
  c.out(0, c.graph().add_content(DType::kInt64, {}, {Expr(static_cast<std::int64_t>(c.sequence(0).size()))}));
}

void concat_op(OpContext& c) {
  Sequence s = c.sequence(0);
  c.require(!s.empty(), "the sequence is empty");
  c.require(c.has_attr("axis"), "no axis");
  const bool stacks = c.attr("new_axis", 0) != 0;
  const int axis = c.axis(c.attr("axis", 0), s[0]->rank() + stacks);
  for (const Value* x : s) c.require(x->rank() == s[0]->rank(), "tensors of ranks {} and {}", s[0]->rank(), x->rank());
  if (stacks)
    for (Value*& x : s) x = tensor::unsqueeze(c.graph(), x, {axis});
  c.out(0, tensor::concat(c.graph(), s, axis));
}

// Sizes of the parts: given; or all of one size, of which the last may be smaller.
Exprs part_sizes(OpContext& c, const Expr& dim) {
  if (c.has(1) && c.in(1)->rank() == 1) {
    Exprs sizes = c.ints(c.in(1), true);
    check_parts(c, sizes, dim);
    return sizes;
  }
  const std::int64_t part = c.has(1) ? c.const_ints(c.in(1), "the size of parts").at(0) : 1;
  c.require(part > 0, "parts of size {}", part);
  std::int64_t size;
  if (!is_const_int(dim, size))
    c.refuse("how many parts of {} are in a dim of {} is not known when compiling; export the model with a fixed dim",
             part, to_string(dim));
  Exprs sizes;
  for (std::int64_t at = 0; at < size; at += part) {
    if (static_cast<std::int64_t>(sizes.size()) >= kMostElements)
      c.refuse("more than {} tensors in a sequence", kMostElements);
    sizes.emplace_back(std::min(part, size - at));
  }
  return sizes;
}

void split_op(OpContext& c) {
  Value* x = c.in(0);
  const int axis = c.axis(c.attr("axis", 0), x->rank());
  const bool squeezes = !c.has(1) && c.attr("keepdims", 1) == 0;
  Sequence s;
  Expr start = 0;
  for (const Expr& size : part_sizes(c, x->shape[static_cast<std::size_t>(axis)])) {
    s.push_back(tensor::slice(c.graph(), x, axis, start, size));
    if (squeezes) s.back() = tensor::squeeze(c.graph(), s.back(), {axis});
    start = start + size;
  }
  c.out_sequence(0, std::move(s));
}

}  // namespace

void register_sequence(OpRegistry& r) {
  constexpr const char* kKnown = "the position must be known when compiling";
  r.add({.name = "SequenceEmpty", .min_opset = 11, .lower = empty_op, .sequences = true});
  r.add({.name = "SequenceConstruct", .min_opset = 11, .lower = construct_op, .sequences = true});
  r.add({.name = "SequenceInsert", .min_opset = 11, .lower = insert_op, .notes = kKnown, .sequences = true});
  r.add({.name = "SequenceErase", .min_opset = 11, .lower = erase_op, .notes = kKnown, .sequences = true});
  r.add({.name = "SequenceAt", .min_opset = 11, .lower = at_op, .notes = kKnown, .sequences = true});
  r.add({.name = "SequenceLength", .min_opset = 11, .lower = length_op, .sequences = true});
  r.add({.name = "ConcatFromSequence", .min_opset = 11, .lower = concat_op, .sequences = true});
  r.add({.name = "SplitToSequence",
         .min_opset = 11,
         .lower = split_op,
         .notes = "the number of parts must be known when compiling",
         .sequences = true});
}

}  // namespace sardonyx
