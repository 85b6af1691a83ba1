// Programs that several processes run together.
#include "runtime/run.h"
#include "sardonyx/communicator.h"

namespace sardonyx {
namespace {

template <typename F>
void for_routines(const Block& b, const F& f) {
  for (const ProgramStep& s : b.steps) {
    if (const auto* r = std::get_if<RoutineStep>(&s.op)) f(s, *r);
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      for_routines(*i->then_block, f);
      for_routines(*i->else_block, f);
    }
    if (const auto* w = std::get_if<WhileStep>(&s.op)) for_routines(*w->body, f);
  }
}

}  // namespace

// A program with collectives needs a group of the size that it was compiled for.
void Executor::check_group() {
  const Communicator* group = backend_->communicator();
  for_routines(program_->main, [&](const ProgramStep& s, const RoutineStep& r) {
    if (!is_collective(r.name)) return;
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
