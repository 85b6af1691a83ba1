// Steps that several processes do together.
#include "collective/peer.h"
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

bool is_collective(const ProgramStep& s) {
  const auto* r = std::get_if<RoutineStep>(&s.op);
  return r && is_collective(r->name);
}

// The model's nodes are for a group, and this process must be in one of the right size.
void Executor::check_group() {
  for_routines(program_->main, [&](const ProgramStep& s, const RoutineStep& r) {
    if (!is_collective(r.name)) return;
    check(r.inputs.size() == 1 && r.outputs.size() == 1 && r.params.size() == 1, "a malformed {}", r.name);
    if (!communicator_)
      fail(ErrorKind::kInvalidArgument,
           "{} is computed by several processes together: each needs a communicator (Options::communicator, Python's "
           "communicator=)",
           s.origin);
    const std::int64_t wanted = evaluate(r.params[0], SymbolValues());
    if (wanted != 0 && wanted != communicator_->size())
      fail(ErrorKind::kInvalidArgument, "{} is for a group of {}, and this one has {} processes", s.origin, wanted,
           communicator_->size());
    collective_ = true;
  });
}

// As one launch, if the communicator has it for this size.
std::shared_ptr<GpuCall> Executor::Run::collective_call(const RoutineStep& s, const PreparedRoutine& r) const {
  const auto* launched = dynamic_cast<const LaunchedCollectives*>(e.communicator_.get());
  std::size_t elements = 1;
  for (const std::int64_t d : r.inputs[0]) elements *= static_cast<std::size_t>(d);
  if (!launched || elements == 0) return nullptr;
  const TensorRef &in = s.inputs[0], &out = s.outputs[0];
  const DType dtype = info(in.buffer).dtype;
  const auto l = s.name == "all_reduce" ? launched->sum_launch(elements, dtype)
                                        : launched->gather_launch(elements * size_of(dtype));
  if (!l) return nullptr;
  auto call = std::make_shared<GpuCall>(l->function, l->blocks, PeerExchange::kThreads, 0,
                                        std::vector<int>{in.buffer, out.buffer}, l->values);
  call->launch.starts_early = l->starts_early;
  return call;
}

void Executor::Run::collective(const RoutineStep& s, const PreparedRoutine& r) {
  if (r.call) {
    dynamic_cast<const LaunchedCollectives&>(*e.communicator_).begin_launches(1);
    return start(*r.call);
  }
  const TensorRef &in = s.inputs[0], &out = s.outputs[0];
  std::size_t elements = 1, results = 1;
  for (const std::int64_t d : r.inputs[0]) elements *= static_cast<std::size_t>(d);
  for (const std::int64_t d : r.outputs[0]) results *= static_cast<std::size_t>(d);
  if (elements == 0) return;
  const DType dtype = info(in.buffer).dtype;
  const bool reduce = s.name == "all_reduce";
  check(info(out.buffer).dtype == dtype &&
            results == elements * (reduce ? 1 : static_cast<std::size_t>(e.communicator_->size())),
        "a {} of {} to {} elements", s.name, elements, results);
  if (reduce)
    e.communicator_->all_reduce(at(in.buffer), at(out.buffer), elements, dtype, stream);
  else
    e.communicator_->all_gather(at(in.buffer), at(out.buffer), elements * size_of(dtype), stream);
  if (scope) scope->again();
}

// The steps of a run. What fails in one process breaks the group, so that the others do not wait for it.
void Executor::Run::all_steps() {
  try {
    if (!can_be_captured() || !replay()) block(p.main, *e.lives_.at(&p.main));
  } catch (const AssumptionFailed&) {
    throw;  // in all of them
  } catch (const std::exception& error) {
    if (e.collective_) e.communicator_->fail(fmt::format("rank {}: {}", e.communicator_->rank(), error.what()));
    throw;
  }
}

}  // namespace sardonyx
