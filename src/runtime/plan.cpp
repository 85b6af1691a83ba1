// Symbol values and the arena's plan for inputs with given dims.
#include "runtime/memory_plan.h"
#include "runtime/run.h"

namespace sardonyx {

ArenaPlan Executor::plan(const SymbolValues& symbols) const {
  const Program& p = *program_;
  return plan(symbols, {std::vector<bool>(p.main.inputs.size(), separate_memory_),
                        std::vector<bool>(p.main.outputs.size(), separate_memory_)});
}

ArenaPlan Executor::plan(const SymbolValues& symbols, const Staged& staged) const {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  std::vector<bool> elsewhere(p.buffers.size());
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k) {
    const auto b = static_cast<std::size_t>(p.main.outputs[k].buffer);
    // On devices that use host memory, other outputs are handed over without a copy.
    if (!separate_memory_ || (direct_output_[b] == static_cast<int>(k) && !staged.outputs[k])) elsewhere[b] = true;
  }
  ArenaPlan plan;
  std::vector<Lifetime> list;
  for (std::size_t k = 0; k < p.main.inputs.size(); ++k) {
    const int b = p.main.inputs[k].buffer;
    if (staged.inputs[k])
      list.push_back({b, buffer_bytes(p.buffers[static_cast<std::size_t>(b)], symbols), -1, input_last_used_[k]});
  }
  for (int t : lives.temporaries) {
    if (elsewhere[static_cast<std::size_t>(t)]) continue;
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(t)];
    bool known = true;
    for (const Expr& d : b.shape) known = known && evaluable(d, symbols);
    if (!known) {
      ++plan.unplanned;
      continue;
    }
    const auto& range = lives.range.at(t);
    list.push_back({t, buffer_bytes(b, symbols), range.first, range.second});
  }
  std::vector<std::size_t> offsets;
  plan.total = plan_memory(list, offsets, backend_->alignment());
  plan.live = most_alive(list);
  for (std::size_t k = 0; k < list.size(); ++k) plan.offsets.emplace_back(list[k].buffer, offsets[k]);
  return plan;
}

SymbolValues Executor::bind(const std::vector<std::vector<std::int64_t>>& input_dims) const {
  const Program& p = *program_;
  check(input_dims.size() == p.main.inputs.size(), "{} inputs for {}", input_dims.size(), p.main.inputs.size());
  SymbolValues symbols;
  const auto info = [&](std::size_t k) -> const BufferInfo& {
    return p.buffers[static_cast<std::size_t>(p.main.inputs[k].buffer)];
  };
  // First binds dims that are a symbol alone, then checks all dims.
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    if (input_dims[k].size() != b.shape.size())
      fail(ErrorKind::kInvalidArgument, "input '{}' has rank {}; the model expects {} {}", b.name, input_dims[k].size(),
           b.shape.size(), to_string(b.shape));
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      if (input_dims[k][d] < 0)
        fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is negative ({})", b.name, d, input_dims[k][d]);
      const Expr& e = b.shape[d];
      if (e->op == Op::kSym && !symbols.has(static_cast<int>(e->i)))
        symbols.set(static_cast<int>(e->i), input_dims[k][d]);
    }
  }
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      const std::int64_t wanted = evaluate(b.shape[d], symbols);
      if (wanted == input_dims[k][d]) continue;
      const std::string what = is_const(b.shape[d]) ? "" : to_string(b.shape[d]) + " = ";
      fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is {}, but must be {}{}", b.name, d, input_dims[k][d], what,
           wanted);
    }
  }
  return symbols;
}

std::vector<std::vector<std::int64_t>> Executor::output_dims(const SymbolValues& symbols) const {
  std::vector<std::vector<std::int64_t>> out;
  for (const TensorRef& o : program_->main.outputs) {
    out.emplace_back();
    for (const Expr& d : o.shape) out.back().push_back(evaluable(d, symbols) ? evaluate(d, symbols) : -1);
  }
  return out;
}

}  // namespace sardonyx
