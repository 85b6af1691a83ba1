// Programs that several processes run together.
#include "program/visit.h"
#include "runtime/run.h"
#include "sardonyx/communicator.h"

namespace sardonyx {
// A program with collectives needs a group of the size that it was compiled for.
void Executor::check_group() {
  const Communicator* group = backend_->communicator();
  for_steps(program_->main, [&](const ProgramStep& s) {
    if (!is_collective(s)) return;
    const auto& r = std::get<RoutineStep>(s.op);
    check(r.inputs.size() == 1 && r.outputs.size() == 1 && r.params.size() == 1, "a malformed {}", r.name);
    if (!group)
      fail(ErrorKind::kInvalidArgument,
           "{} is computed by several processes together: each needs a communicator (Options::communicator, Python's "
           "communicator=)",
           s.origin);
    const std::int64_t wanted = evaluate(r.params[0], SymbolValues());
    if (wanted != 0 && wanted != group->size())
      fail(ErrorKind::kInvalidArgument, "{} is for a group of {}, and this one has {} processes", s.origin, wanted,
           group->size());
    collective_ = true;
  });
}

}  // namespace sardonyx
