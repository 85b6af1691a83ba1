// Scan: a loop over slices of its inputs that stacks its outputs. Opset 8 has a batch of sequences with optional
// lengths.
#include "ops/control_flow.h"
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

std::vector<std::int64_t> flags(OpContext& c, std::string_view name, std::size_t n) {
  std::vector<std::int64_t> v = c.attr_ints(name);
  if (v.empty()) v.assign(n, 0);
  c.require(v.size() == n, "{} has {} entries, not {}", name, v.size(), n);
  return v;
}

// The slice of x at position `at` along `axis`, without that axis.
Value* take(Graph& g, const Value* x, int axis, const Expr& at) {
  Exprs shape = x->shape;
  shape.erase(shape.begin() + axis);
  return tensor::generate(g, shape, [&](const Exprs& i) {
    Exprs j = i;
    j.insert(j.begin() + axis, at);
    return tensor::at(x, j);
  });
}

struct ScanParts {
  model::GraphPtr body;
  std::vector<Value*> states, scans;
  std::size_t outputs = 0;
};

ScanParts scan_parts(OpContext& c, int first) {
  ScanParts p;
  p.body = body_of(c, "body");
  const std::int64_t scans = c.attr("num_scan_inputs", 0), total = c.input_count() - first;
  c.require(scans > 0 && scans <= total, "num_scan_inputs is {} for {} inputs", scans, total);
  for (int k = first; k < c.input_count(); ++k) (k - first < total - scans ? p.states : p.scans).push_back(c.in(k));
  c.require(static_cast<std::int64_t>(p.body->inputs.size()) == total, "a body with {} inputs for {}",
            p.body->inputs.size(), total);
  c.require(p.body->outputs.size() >= p.states.size(), "a body with {} outputs for {} states", p.body->outputs.size(),
            p.states.size());
  p.outputs = p.body->outputs.size() - p.states.size();
  return p;
}

void scan_op(OpContext& c) {
  const ScanParts p = scan_parts(c, 0);
  const auto directions = flags(c, "scan_input_directions", p.scans.size()),
             axes = flags(c, "scan_input_axes", p.scans.size());
  const auto out_directions = flags(c, "scan_output_directions", p.outputs),
             out_axes = flags(c, "scan_output_axes", p.outputs);
  std::vector<int> axis;
  Expr length;
  for (std::size_t k = 0; k < p.scans.size(); ++k) {
    axis.push_back(c.axis(axes[k], p.scans[k]->rank()));
    const Expr& n = p.scans[k]->shape[static_cast<std::size_t>(axis.back())];
    if (length)
      c.graph().add_check(compare(Op::kEq, n, length),
                          fmt::format("scanned inputs of lengths {} and {}", to_string(length), to_string(n)));
    if (!length || is_const(n)) length = n;
  }
  const LoopResult r =
      add_while(c, p.states, length, Expr(), [&](Graph& g, const Expr& t, const std::vector<Value*>& carried) {
        std::vector<Value*> in = carried;
        for (std::size_t k = 0; k < p.scans.size(); ++k)
          in.push_back(take(g, p.scans[k], axis[k], directions[k] ? length - 1 - t : t));
        const std::vector<Value*> out = c.lowerer().lower_body(*p.body, g, in);
        const auto first_stacked = out.begin() + static_cast<std::ptrdiff_t>(carried.size());
        return LoopBody{{out.begin(), first_stacked}, {first_stacked, out.end()}, nullptr};
      });
  int k = 0;
  for (Value* v : r.carried) c.out(k++, v);
  for (std::size_t s = 0; s < r.stacked.size(); ++s) {
    Value* v = r.stacked[s];
    const int to = c.axis(out_axes[s], v->rank());
    if (to != 0 || out_directions[s]) {
      Exprs shape = v->shape;
      shape.erase(shape.begin());
      shape.insert(shape.begin() + to, length);
      v = tensor::generate(c.graph(), shape, [&](const Exprs& i) {
        Exprs j = i;
        j.erase(j.begin() + to);
        const Expr t = i[static_cast<std::size_t>(to)];
        j.insert(j.begin(), out_directions[s] ? length - 1 - t : t);
        return tensor::at(r.stacked[s], j);
      });
    }
    c.out(k++, v);
  }
}

// Opset 8: a batch of scans, one after the other, with optional lengths. One loop runs over batch * length; states
// restart with each batch.
void scan8_op(OpContext& c) {
  const ScanParts p = scan_parts(c, 1);
  const auto directions = flags(c, "directions", p.scans.size());
  Value* lens = c.opt(0);
  for (const Value* v : p.scans) c.require(v->rank() >= 2, "a scanned input of rank {}", v->rank());
  for (const Value* v : p.states) c.require(v->rank() >= 1, "a state of rank {}", v->rank());
  const Expr batch = p.scans[0]->shape[0], length = p.scans[0]->shape[1];
  for (const Value* v : p.scans)
    c.graph().add_check(logical_and(compare(Op::kEq, v->shape[0], batch), compare(Op::kEq, v->shape[1], length)),
                        "scanned inputs differ in batch or length");
  for (const Value* v : p.states)
    c.graph().add_check(compare(Op::kEq, v->shape[0], batch), "a state's batch differs from the scanned inputs'");
  c.graph().add_check(compare(Op::kGe, length, 1), "a scan over an empty sequence");
  std::vector<Value*> first;
  for (Value* s : p.states) first.push_back(take(c.graph(), s, 0, 0));
  const LoopResult r =
      add_while(c, first, batch * length, Expr(), [&](Graph& g, const Expr& n, const std::vector<Value*>& carried) {
        const Expr b = idx::floordiv(n, length), t = idx::mod(n, length);
        const Expr len = lens ? cast(tensor::at(lens, {b}), DType::kInt64) : length;
        std::vector<Value*> in;
        for (std::size_t k = 0; k < carried.size(); ++k)
          in.push_back(tensor::generate(g, carried[k]->shape, [&](const Exprs& i) {
            Exprs j = {b};
            j.insert(j.end(), i.begin(), i.end());
            return select(compare(Op::kEq, t, 0), tensor::at(p.states[k], j), tensor::at(carried[k], i));
          }));
        const std::vector<Value*> states = in;
        for (std::size_t k = 0; k < p.scans.size(); ++k) {
          // A reversed sequence starts at its own last element.
          const Expr at = directions[k] ? select(compare(Op::kLt, t, len), len - 1 - t, t) : t;
          in.push_back(take(g, take(g, p.scans[k], 0, b), 0, at));
        }
        const std::vector<Value*> out = c.lowerer().lower_body(*p.body, g, in);
        LoopBody body;
        for (std::size_t k = 0; k < out.size(); ++k) {
          Value* v = out[k];
          const bool state = k < states.size();
          c.require(!state || v->rank() == states[k]->rank(), "state {} changes its rank", k);
          for (std::size_t d = 0; state && d < v->shape.size(); ++d)
            g.add_check(compare(Op::kEq, v->shape[d], states[k]->shape[d]),
                        fmt::format("state {} changes its shape", k));
          if (lens)  // past the end a state stays and outputs are zeros
            v = tensor::generate(g, v->shape, [&](const Exprs& i) {
              return select(compare(Op::kLt, t, len), tensor::at(out[k], i),
                            state ? tensor::at(states[k], i) : constant(0, v->dtype));
            });
          if (state) body.carried.push_back(v);
          body.stacked.push_back(v);
        }
        return body;
      });
  for (std::size_t k = 0; k < r.stacked.size(); ++k) {
    Value* v = r.stacked[k];
    Exprs shape = {batch, length};
    shape.insert(shape.end(), v->shape.begin() + 1, v->shape.end());
    v = tensor::reshape(c.graph(), v, shape);
    c.out(static_cast<int>(k), k < p.states.size() ? take(c.graph(), v, 1, length - 1) : v);
  }
}

void any_scan_op(OpContext& c) { c.opset() >= 9 ? scan_op(c) : scan8_op(c); }

}  // namespace

void register_scan(OpRegistry& r) {
  r.add({.name = "Scan",
         .min_opset = 8,
         .lower = any_scan_op,
         .notes = "tensors only (no sequences or optionals); carried values may change their dims, not their rank"});
}

}  // namespace sardonyx
