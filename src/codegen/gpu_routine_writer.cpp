#include "codegen/gpu_routine_writer.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/emit.h"
#include "codegen/gpu_computed_input.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {

RoutineWriter::RoutineWriter(const RoutineContext& c)
    : node_(*c.step.node),
      op_(*node_.as<RoutineOp>()),
      chip_(c.chip),
      precision_(c.precision),
      narrow_(c.precision != DType::kFloat32),
      loaded_(c.loaded),
      computed_(c.step.computed),
      from_inputs_(c.from_inputs) {
  for (const Value* v : node_.inputs) tensors_.push_back(v);
  inputs_ = static_cast<int>(node_.inputs.size());
  for (const Value* v : node_.outputs) tensors_.push_back(v);
}

void RoutineWriter::launch(const std::string& call, const std::vector<int>& tensors,
                           const std::vector<const char*>& types, const std::vector<int>& writes, const Exprs& values,
                           const Expr& threads, const Expr& repeat) {
  GpuRoutineLaunch l{{}, {}, writes, {}, values, {}, threads, {}, repeat, {}};
  std::string head, made;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    if (const ComputedInput* c = computed(tensors[k])) {
      ComputedInputSource s = computed_input(
          c->stage, chip_,
          {fmt::format("b{}", k), tensors.size() + l.read.size(), l.values, l.divisors, narrow_, from_inputs_});
      l.computes.push_back(c->input);
      made += s.text;
      l.read.insert(l.read.end(), s.buffers.begin(), s.buffers.end());
      l.values = std::move(s.values), l.divisors = std::move(s.divisors);
      if (s.limit) r.limit = r.limit ? idx::max(r.limit, s.limit) : s.limit;
      continue;
    }
    l.tensors.push_back(tensors[k]);
    const bool written = std::find(writes.begin(), writes.end(), tensors[k]) != writes.end();
    head += fmt::format("{}{}{}* b{}", head.empty() ? "" : ", ", written ? "" : "const ", types[k], k);
  }
  for (std::size_t k = 0; k < l.read.size(); ++k)
    head += fmt::format(", const {}* __restrict b{}", storage_name(l.read[k]->dtype), tensors.size() + k);
  for (std::size_t k = 0; k < l.values.size(); ++k) head += fmt::format(", i64 s{}", k);
  for (std::size_t k = 0; k < l.divisors.size(); ++k) head += fmt::format(", u64 d{}", k);
  if (repeat) head += ", i64 number";
  l.kernel.family = KernelFamily::kRoutine;
  l.kernel.body = "(" + head + ") {\n" + made + "  " + call + "\n}\n";
  l.kernel.headers = {header_};
  r.launches.push_back(std::move(l));
}

}  // namespace sardonyx::codegen
