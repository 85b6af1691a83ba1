// Scatter, ScatterElements, ScatterND, TensorScatter and MaxUnpool: writing elements to positions that are data.
#include <optional>

#include "graph/analysis.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// The order is that of the "scatter" routine's parameter.
int reduction_of(OpContext& c) {
  const std::string name = c.attr_s("reduction", "none");
  static constexpr const char* names[] = {"none", "add", "mul", "min", "max"};
  for (int k = 0; k < 5; ++k)
    if (name == names[k]) return k;
  c.invalid("reduction is '{}'", name);
}

// An index from data as a row-major component: negative ones count from the end; an index out of range becomes -1.
Expr component(const Expr& raw, const Expr& size, Expr& valid) {
  const Expr k = tensor::wrap_index(cast(raw, DType::kInt64), size);
  valid = logical_and(valid, logical_and(compare(Op::kGe, k, 0), compare(Op::kLt, k, size)));
  return k;
}

// Known data, indices and updates, as in shape computations, need no kernel.
bool fold(OpContext& c, Value* data, Value* rows, Value* updates, int reduction, std::int64_t inner) {
  if (!data->content || !rows->content || !updates->content || reduction != 0) return false;
  Exprs out = *data->content;
  for (std::size_t m = 0; m < rows->content->size(); ++m) {
    std::int64_t row;
    if (!is_const_int((*rows->content)[m], row)) return false;
    const auto at = static_cast<std::size_t>(row * inner), from = m * static_cast<std::size_t>(inner);
    c.require(row >= 0 && at + static_cast<std::size_t>(inner) <= out.size(), "an index is out of range");
    for (std::size_t j = 0; j < static_cast<std::size_t>(inner); ++j) out[at + j] = (*updates->content)[from + j];
  }
  std::vector<std::int64_t> dims;
  if (!constant_dims(data->shape, dims)) return false;
  c.out(0, c.graph().add_content(data->dtype, dims, std::move(out)));
  return true;
}

// output = data with row rows[m] (of `inner` elements) replaced by, or combined with, row m of the updates.
void scatter_rows(OpContext& c, Value* data, Value* rows, Value* updates, int reduction, const Expr& inner) {
  Graph& g = c.graph();
  c.require(data->dtype == updates->dtype, "updates of dtype {} for {}", name(updates->dtype), name(data->dtype));
  if (is_const(rows->elements(), 0)) return c.out(0, data);
  if (reduction != 0 && (bits_of(data->dtype) < 8 || size_of(data->dtype) > 8))
    c.refuse("a reduction of {} elements", name(data->dtype));
  // Known indices are checked while compiling, because GPU kernels cannot report errors.
  if (rows->content)
    for (const Expr& row : *rows->content) {
      std::int64_t known;
      c.require(!is_const_int(row, known) || known >= 0, "an index is out of range");
    }
  std::int64_t width;
  if (is_const_int(inner, width) && fold(c, data, rows, updates, reduction, width)) return;
  Value* y =
      tensor::routine(g, "scatter", {data, rows, updates}, {reduction, inner}, {}, {{data->dtype, data->shape}})[0];
  c.out(0, y);
}

constexpr int kMostSteps = 8;   // loops and views between a Range and its use: exporters write two to four
constexpr int kMostLoads = 64;  // of all loops together: each may load many tensors, which would multiply

// An element of v as an expression of positions and sizes, through the loops and views that compute v. Where it depends
// on data, it loads them, or is empty if `of_data` is false.
Expr computed_element(const Value* v, const Exprs& at, int steps, int& loads, bool of_data = false) {
  const Expr data = of_data ? load(v, v->dtype, at) : Expr();
  if (--loads < 0) return data;
  if (v->content && v->content->size() == 1) return (*v->content)[0];
  const Node* n = v->producer;
  if (!n || steps == 0) return data;
  if (n->as<ViewOp>()) {
    const Value* of = n->inputs[0];
    return computed_element(of, idx::delinearize(idx::linearize(at, v->shape), of->shape), steps - 1, loads, of_data);
  }
  const auto* l = n->as<LoopOp>();
  if (!l || l->body->has_reduce) return data;
  std::vector<std::pair<Expr, Expr>> positions;
  for (std::size_t k = 0; k < at.size(); ++k) positions.emplace_back(l->vars[k], at[k]);
  bool known = true;
  const Expr e = rewrite(substitute(l->body, positions), [&](const Expr& x) -> Expr {
    if (!x->has_load || !known) return x;
    if (x->op != Op::kLoad) return Expr();
    const Expr inner = computed_element(x->value, x->args, steps - 1, loads, of_data);
    known = known && inner && (of_data || !inner->has_load);
    return known ? inner : x;
  });
  return known ? e : Expr();
}

/// Row m goes to row first + m * step.
struct Progression {
  Expr first;
  std::int64_t step = 1;
};

std::optional<Progression> progression_of(const Value* rows) {
  if (rows->rank() != 1) return {};
  if (rows->content) {
    Progression p;
    std::int64_t first = 0, second = 0, at = 0;
    const Exprs& all = *rows->content;
    if (all.empty() || !is_const_int(all[0], first) || first < 0) return {};
    if (all.size() > 1 && (!is_const_int(all[1], second) || second <= first)) return {};
    p.first = first, p.step = all.size() > 1 ? second - first : 1;
    for (std::size_t m = 0; m < all.size(); ++m)
      if (!is_const_int(all[m], at) || at != first + static_cast<std::int64_t>(m) * p.step) return {};
    return p;
  }
  const Expr m = loop_var(rows->shape[0]);
  int loads = kMostLoads;
  Expr row = computed_element(rows, {m}, kMostSteps, loads);
  if (!row) return {};
  // Rows out of range became -1. No element of the output lies there, so that the row itself serves as well.
  if (row->op == Op::kSelect && is_const(row->args[2], -1)) row = row->args[1];
  Progression p;
  p.first = substitute(row, {{m, 0}});
  if (!is_const_int(substitute(row, {{m, 1}}) - p.first, p.step) || p.step <= 0) return {};
  if (!same(row, p.first + m * p.step)) return {};
  return p;
}

// The progression along an axis of known indices of this shape; none if an index is not a number, or if slices differ.
std::optional<Progression> known_progression(const Exprs& content, const Exprs& shape, std::size_t axis,
                                             const Expr& size) {
  std::vector<std::int64_t> dims;
  if (content.empty() || !constant_dims(shape, dims)) return {};
  std::int64_t inner = 1;
  for (std::size_t k = axis + 1; k < dims.size(); ++k) inner *= dims[k];
  std::vector<std::int64_t> at;
  for (const Expr& x : content) {
    at.push_back(0);
    if (!is_const_int(tensor::wrap_index(cast(x, DType::kInt64), size), at.back())) return {};
  }
  Progression p;
  p.first = at[0];
  if (dims[axis] > 1) p.step = at[static_cast<std::size_t>(inner)] - at[0];
  if (p.step <= 0) return {};
  for (std::size_t k = 0; k < at.size(); ++k)
    if (at[k] != at[0] + static_cast<std::int64_t>(k) / inner % dims[axis] * p.step) return {};
  return p;
}

// Where whole slices are written along an axis (torch's select_scatter and slice_scatter), and the same elements in all
// of them: the progression of their indices.
std::optional<Progression> progression_along(const Value* indices, std::size_t axis, const Value* data) {
  for (std::size_t k = 0; k < data->shape.size(); ++k)
    if (k != axis && !idx::provably_equal(indices->shape[k], data->shape[k])) return {};
  if (indices->content) return known_progression(*indices->content, indices->shape, axis, data->shape[axis]);
  Exprs vars;
  for (const Expr& d : indices->shape) vars.push_back(loop_var(d));
  int loads = kMostLoads;
  const Expr raw = computed_element(indices, vars, kMostSteps, loads);
  if (!raw) return {};
  const Expr at = tensor::wrap_index(cast(raw, DType::kInt64), data->shape[axis]), &m = vars[axis];
  for (std::size_t k = 0; k < vars.size(); ++k)
    if (k != axis && mentions(at, vars[k])) return {};
  Progression p;
  p.first = is_const(m) ? at : substitute(at, {{m, 0}});
  if (is_const(indices->shape[axis], 1)) return p;
  if (!is_const_int(substitute(at, {{m, 1}}) - p.first, p.step) || p.step <= 0) return {};
  if (!same(at, p.first + m * p.step)) return {};
  return p;
}

// Elements at known distances along an axis (a slice that is assigned to) are chosen by position: a loop, which is
// fused like any other.
void scatter_progression(OpContext& c, Value* data, const Expr& count, Value* updates, const Progression& p,
                         std::size_t axis = 0) {
  c.require(data->dtype == updates->dtype, "updates of dtype {} for {}", name(updates->dtype), name(data->dtype));
  const Expr last = p.first + (count - 1) * p.step;
  const Expr inside = logical_and(compare(Op::kGe, p.first, 0), compare(Op::kLt, last, data->shape[axis]));
  c.graph().add_check(logical_or(inside, compare(Op::kEq, count, 0)), "an index is out of range");
  c.out(0, tensor::generate(c.graph(), data->shape, [&](const Exprs& i) {
          const Expr from = i[axis] - p.first, m = idx::floordiv(from, p.step);
          Expr written = logical_and(compare(Op::kGe, from, 0), compare(Op::kLt, m, count));
          if (p.step > 1) written = logical_and(written, compare(Op::kEq, idx::mod(from, p.step), 0));
          Exprs j = i;
          j[axis] = m;
          return select(written, tensor::at(updates, j), tensor::at(data, i));
        }));
}

// ScatterElements whose indices are repeated along the last dims, as by an Expand (torch's scatter_add of rows): whole
// rows go to the same place, so that there is an index for each row only. Returns whether that is so.
bool scatter_repeated(OpContext& c, Value* data, const Value* indices, Value* updates, std::size_t axis,
                      int reduction) {
  if (indices->content) return false;
  Exprs vars;
  for (const Expr& d : indices->shape) vars.push_back(loop_var(d));
  int loads = kMostLoads;
  const Expr raw = computed_element(indices, vars, kMostSteps, loads, true);
  std::size_t kept = vars.size();
  while (kept > axis + 1 && !mentions(raw, vars[kept - 1]) &&
         idx::provably_equal(indices->shape[kept - 1], data->shape[kept - 1]))
    --kept;
  const auto first = [&](const Exprs& all) {
    return Exprs(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept));
  };
  const Expr inner = idx::product(Exprs(data->shape.begin() + static_cast<std::ptrdiff_t>(kept), data->shape.end()));
  if (!raw || is_const(inner, 1)) return false;
  Value* rows = tensor::generate(c.graph(), first(indices->shape), [&](const Exprs& i) {
    std::vector<std::pair<Expr, Expr>> positions;
    for (std::size_t k = 0; k < kept; ++k) positions.emplace_back(vars[k], i[k]);
    Expr valid = constant_bool(true);
    Exprs j = i;
    j[axis] = component(substitute(raw, positions), data->shape[axis], valid);
    return select(valid, idx::linearize(j, first(data->shape)), Expr(-1));
  });
  scatter_rows(c, data, rows, updates, reduction, inner);
  return true;
}

void scatter_elements_op(OpContext& c) {
  Value *data = c.in(0), *indices = c.in(1), *updates = c.in(2);
  const auto axis = static_cast<std::size_t>(c.axis(c.attr("axis", 0), data->rank()));
  c.require(indices->rank() == data->rank() && updates->rank() == data->rank(),
            "data, indices and updates differ in rank");
  for (std::size_t k = 0; k < data->shape.size(); ++k) {
    c.graph().add_check(compare(Op::kEq, indices->shape[k], updates->shape[k]), "indices and updates differ in shape");
    if (k != axis)
      c.graph().add_check(compare(Op::kLe, indices->shape[k], data->shape[k]),
                          fmt::format("dim {} of the indices is larger than the data's", k));
  }
  const int reduction = c.opset() >= 16 ? reduction_of(c) : 0;
  if (reduction == 0 && !(data->content && updates->content))
    if (const auto p = progression_along(indices, axis, data))
      return scatter_progression(c, data, indices->shape[axis], updates, *p, axis);
  if (scatter_repeated(c, data, indices, updates, axis, reduction)) return;
  Value* rows = tensor::generate(c.graph(), indices->shape, [&](const Exprs& i) {
    Expr valid = constant_bool(true);
    Exprs j = i;
    j[axis] = component(tensor::at(indices, i), data->shape[axis], valid);
    return select(valid, idx::linearize(j, data->shape), Expr(-1));
  });
  scatter_rows(c, data, rows, updates, reduction, 1);
}

void scatter_nd_op(OpContext& c) {
  Value *data = c.in(0), *indices = c.in(1), *updates = c.in(2);
  c.require(indices->rank() >= 1, "indices of rank 0");
  std::int64_t n;
  if (!is_const_int(indices->shape.back(), n))
    c.refuse("indices whose last dim, {}, is not known when compiling", to_string(indices->shape.back()));
  c.require(n >= 0 && n <= data->rank(), "indices of {} components into a tensor of rank {}", n, data->rank());
  const auto rows_rank = static_cast<std::size_t>(indices->rank() - 1);
  const Exprs outer(data->shape.begin(), data->shape.begin() + n), inner(data->shape.begin() + n, data->shape.end());
  Exprs expected(indices->shape.begin(), indices->shape.end() - 1);
  expected.insert(expected.end(), inner.begin(), inner.end());
  c.require(expected.size() == updates->shape.size(), "updates of rank {}, not {}", updates->rank(), expected.size());
  for (std::size_t k = 0; k < expected.size(); ++k)
    c.graph().add_check(compare(Op::kEq, expected[k], updates->shape[k]),
                        fmt::format("updates of shape {}, not {}", to_string(updates->shape), to_string(expected)));
  const Exprs row_shape(indices->shape.begin(), indices->shape.begin() + static_cast<std::ptrdiff_t>(rows_rank));
  Value* rows = tensor::generate(c.graph(), row_shape, [&](const Exprs& i) {
    Expr valid = constant_bool(true);
    Exprs j;
    for (std::int64_t k = 0; k < n; ++k) {
      Exprs at = i;
      at.push_back(k);
      j.push_back(component(tensor::at(indices, at), outer[static_cast<std::size_t>(k)], valid));
    }
    return select(valid, idx::linearize(j, outer), Expr(-1));
  });
  const int reduction = c.opset() >= 16 ? reduction_of(c) : 0;
  if (n == 1 && reduction == 0 && !data->content)
    if (const auto p = progression_of(rows)) return scatter_progression(c, data, rows->shape[0], updates, *p);
  scatter_rows(c, data, rows, updates, reduction, idx::product(inner));
}

// past with update written at positions w, w + 1 ... of the sequence axis, w given per batch. A pure index expression.
void tensor_scatter_op(OpContext& c) {
  Value *past = c.in(0), *update = c.in(1), *start = c.opt(2);
  const std::string mode = c.attr_s("mode", "linear");
  c.require(mode == "linear" || mode == "circular", "mode is '{}'", mode);
  c.require(past->rank() == update->rank() && past->dtype == update->dtype, "past and update differ in rank or dtype");
  const auto axis = static_cast<std::size_t>(c.axis(c.attr("axis", -2), past->rank()));
  c.require(axis != 0, "the sequence axis can't be the batch axis");
  for (std::size_t k = 0; k < past->shape.size(); ++k)
    if (k != axis)
      c.graph().add_check(compare(Op::kEq, past->shape[k], update->shape[k]),
                          fmt::format("past and update differ in dim {}", k));
  if (start) c.require(start->rank() == 1, "write_indices of rank {}", start->rank());
  if (start)
    c.graph().add_check(compare(Op::kEq, start->shape[0], past->shape[0]),
                        "write_indices has not one element per batch");
  const Expr size = past->shape[axis], length = update->shape[axis];
  c.graph().add_check(compare(Op::kLe, length, size), "the update is longer than the cache");
  c.out(0, tensor::generate(c.graph(), past->shape, [&](const Exprs& i) {
          const Expr first = start ? cast(tensor::at(start, {i[0]}), DType::kInt64) : Expr(0);
          Expr k = i[axis] - first;
          if (mode == "circular") k = idx::mod(k, size);
          const Expr written = logical_and(compare(Op::kGe, k, 0), compare(Op::kLt, k, length));
          Exprs j = i;
          j[axis] = k;
          return select(written, tensor::at(update, j), tensor::at(past, i));
        }));
}

// The inverse of MaxPool: elements go to the flat positions that MaxPool returned, everything else is 0.
void max_unpool_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *indices = c.in(1);
  const int rank = x->rank();
  c.require(rank >= 3 && indices->rank() == rank, "an input of rank {} with indices of rank {}", rank, indices->rank());
  const auto spatial = static_cast<std::size_t>(rank - 2);
  const auto kernel = c.attr_ints("kernel_shape");
  const auto strides = c.attr_ints("strides", std::vector<std::int64_t>(spatial, 1));
  const auto pads = c.attr_ints("pads", std::vector<std::int64_t>(2 * spatial, 0));
  c.require(kernel.size() == spatial && strides.size() == spatial && pads.size() == 2 * spatial,
            "kernel_shape, strides or pads of a wrong length");
  Exprs natural = {x->shape[0], x->shape[1]};
  for (std::size_t k = 0; k < spatial; ++k)
    natural.push_back((x->shape[k + 2] - 1) * strides[k] + kernel[k] - pads[k] - pads[spatial + k]);
  Exprs shape = natural;
  if (c.has(2)) {
    shape = c.ints(c.in(2), true);
    c.require(static_cast<int>(shape.size()) == rank, "an output shape of {} dims for rank {}", shape.size(), rank);
  }
  // Positions count in the shape before output_shape extends it.
  Value* rows = tensor::generate(g, x->shape, [&](const Exprs& i) {
    const Expr flat = cast(tensor::at(indices, i), DType::kInt64);
    const Exprs at = idx::delinearize(flat, natural);
    Expr valid = compare(Op::kGe, flat, 0);
    for (std::size_t k = 0; k < at.size(); ++k) valid = logical_and(valid, compare(Op::kLt, at[k], shape[k]));
    return select(valid, idx::linearize(at, shape), Expr(-1));
  });
  for (std::size_t k = 0; k < x->shape.size(); ++k)
    g.add_check(compare(Op::kEq, indices->shape[k], x->shape[k]), "indices and input differ in shape");
  Value* zeros = tensor::generate(g, shape, [&](const Exprs&) { return constant(0, x->dtype); });
  scatter_rows(c, zeros, rows, x, 0, 1);
}

}  // namespace

void register_scatter(OpRegistry& r) {
  const char* notes =
      "an index out of range is an error; on a GPU, where it is known only in the run, that update is left out";
  r.add({.name = "Scatter", .lower = scatter_elements_op, .notes = notes});
  r.add({.name = "ScatterElements", .lower = scatter_elements_op, .notes = notes});
  r.add({.name = "ScatterND", .lower = scatter_nd_op, .notes = notes});
  r.add(
      {.name = "TensorScatter", .lower = tensor_scatter_op, .notes = "positions outside of the cache are not written"});
  r.add({.name = "MaxUnpool", .lower = max_unpool_op, .dtypes = "numbers", .notes = notes});
}

}  // namespace sardonyx
