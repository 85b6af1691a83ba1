#include "runtime/routine_step.h"

namespace sardonyx {
namespace {

std::size_t elements(const std::vector<std::int64_t>& dims) {
  std::size_t n = 1;
  for (const std::int64_t d : dims) n *= static_cast<std::size_t>(d);
  return n;
}

}  // namespace

RoutineSizes::RoutineSizes(const RoutineStep& step, const RunState& run) {
  for (const TensorRef& t : step.inputs) inputs.push_back(run.dims(t.shape));
  for (const TensorRef& t : step.outputs) outputs.push_back(run.dims(t.shape));
  for (const Expr& x : step.params) params.push_back(run.eval(x));
}

routines::Fn routine_function(const RoutineStep& step) {
  const routines::Fn fn = routines::find(step.name);
  if (!fn) fail(ErrorKind::kInternal, "internal error: no routine '{}' on the host", step.name);
  return fn;
}

routines::Call routine_call(const RoutineStep& step, const RoutineSizes& sizes, const RunState& run) {
  routines::Call c;
  for (std::size_t k = 0; k < step.inputs.size(); ++k) {
    const int b = step.inputs[k].buffer;
    c.inputs.push_back({run.at(b), run.info(b).dtype, sizes.inputs[k]});
  }
  for (std::size_t k = 0; k < step.outputs.size(); ++k) {
    const int b = step.outputs[k].buffer;
    c.outputs.push_back({run.at(b), run.info(b).dtype, sizes.outputs[k]});
  }
  c.params = sizes.params;
  c.floats = step.floats;
  c.threads = run.threads;
  return c;
}

void run_collective(const RoutineStep& step, const RoutineSizes& sizes, Communicator& group, const RunState& run,
                    void* stream) {
  const TensorRef &in = step.inputs[0], &out = step.outputs[0];
  const std::size_t count = elements(sizes.inputs[0]), results = elements(sizes.outputs[0]);
  if (count == 0) return;
  const DType dtype = run.info(in.buffer).dtype;
  const bool reduce = step.name == "all_reduce";
  check(run.info(out.buffer).dtype == dtype && results == count * (reduce ? 1 : static_cast<std::size_t>(group.size())),
        "a {} of {} to {} elements", step.name, count, results);
  if (reduce)
    group.all_reduce(run.at(in.buffer), run.at(out.buffer), count, dtype, stream);
  else
    group.all_gather(run.at(in.buffer), run.at(out.buffer), count * size_of(dtype), stream);
}

}  // namespace sardonyx
