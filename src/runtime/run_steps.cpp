// Executes the steps of a run in order: memory for what they write, preparation, and the steps that only read and check
// sizes.
#include <chrono>

#include "program/visit.h"
#include "runtime/run.h"
#include "support/placed_error.h"
#include "support/profiler.h"

namespace sardonyx {

void Executor::Run::step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared) {
  if (const auto* b = std::get_if<BindStep>(&s.op)) return bind(*b);
  if (const auto* c = std::get_if<CheckStep>(&s.op)) return check_condition(*c, s.origin);
  if (const auto* i = std::get_if<IfStep>(&s.op)) return branch(*i);
  if (const auto* w = std::get_if<WhileStep>(&s.op)) return loop(*w);
  if (!prepared) prepared = queue.prepare(s, *this);
  prepared->enqueue(*this);
}

// Adds the step's place in the model to error messages.
void Executor::Run::run_step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared) {
  const ProfilerRange range(s.origin);
  try {
    step(s, prepared);
  } catch (const AssumptionFailed&) {
    throw;
  } catch (const Error& error) {
    rethrow_at(error, s.origin);
  }
}

void Executor::Run::profiled_step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared) {
  const std::optional<double> before = queue.estimated_seconds();
  const auto start = std::chrono::steady_clock::now();
  run_step(s, prepared);
  queue.synchronize();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (before) seconds = *queue.estimated_seconds() - *before;
  options.profile->push_back({prepared ? prepared->name() : "control", s.origin, seconds});
}

void Executor::Run::block(const Block& b, const Lives& lives) {
  for (std::size_t k = 0; k < b.steps.size(); ++k) {
    const ProgramStep& s = b.steps[k];
    const bool control = is_control(s);
    for (int w : s.writes)
      if (!control && !address[static_cast<std::size_t>(w)] && !(outputs && outputs->place(*this, w))) {
        owned[w] = queue.allocate(bytes(w));
        address[static_cast<std::size_t>(w)] = owned[w].get();
      }
    std::unique_ptr<PreparedStep> once;
    const bool keep = plan && lives.known_at_start[k];
    auto& prepared = keep ? plan->steps[static_cast<std::size_t>(lives.first_step) + k] : once;
    if (const bool runs = !s.when || eval(s.when) != 0; runs && options.profile)
      profiled_step(s, prepared);
    else if (runs)
      run_step(s, prepared);
    if (owned.empty()) continue;
    for (int buffer : lives.last_used[k]) {
      auto o = owned.find(buffer);
      if (o == owned.end()) continue;
      address[static_cast<std::size_t>(buffer)] = nullptr;
      owned.erase(o);
    }
  }
}

// Whether the whole run consists of launches of known sizes, so that it can be captured.
bool Executor::Run::can_be_captured() const {
  return e.launches_only_ && !options.profile && plan->complete && plan->arena.unplanned == 0;
}

bool Executor::Run::replay() {
  const auto first = static_cast<std::size_t>(e.lives_.at(&program.main)->first_step);
  return queue.replay(PreparedSteps(plan->steps).subspan(first, program.main.steps.size()), plan->captured, *this);
}

// A failure in one process breaks its group, so that the others do not wait for it.
void Executor::Run::all_steps() {
  try {
    if (!can_be_captured() || !replay()) block(program.main, *e.lives_.at(&program.main));
  } catch (const AssumptionFailed&) {
    throw;  // in all processes
  } catch (const std::exception& error) {
    Communicator* group = e.backend_->communicator();
    if (e.collective_) group->fail(fmt::format("rank {}: {}", group->rank(), error.what()));
    throw;
  }
}

std::int64_t Executor::Run::read_int(int buffer, std::size_t k) const {
  const void* a = at(buffer);
  std::uint64_t element = 0;
  const void* given = host_inputs.empty() ? nullptr : host_inputs[static_cast<std::size_t>(buffer)];
  if (given) {  // the caller's memory: no copy to wait for
    a = given;
  } else if (e.separate_memory_) {
    const std::size_t size = size_of(info(buffer).dtype);
    queue.download(&element, static_cast<const char*>(a) + k * size, size);
    a = &element;
    k = 0;
  }
  switch (info(buffer).dtype) {
    case DType::kInt64:
    case DType::kUInt64:
      return static_cast<const std::int64_t*>(a)[k];
    case DType::kInt32:
      return static_cast<const std::int32_t*>(a)[k];
    case DType::kUInt32:
      return static_cast<const std::uint32_t*>(a)[k];
    case DType::kInt16:
      return static_cast<const std::int16_t*>(a)[k];
    case DType::kUInt16:
      return static_cast<const std::uint16_t*>(a)[k];
    case DType::kInt8:
      return static_cast<const std::int8_t*>(a)[k];
    case DType::kUInt8:
    case DType::kBool:
      return static_cast<const std::uint8_t*>(a)[k];
    case DType::kFloat32:
      return static_cast<std::int64_t>(static_cast<const float*>(a)[k]);
    default:
      fail(ErrorKind::kUnsupported, "a size of dtype {}", name(info(buffer).dtype));
  }
}

void Executor::Run::bind(const BindStep& b) {
  for (std::size_t k = 0; k < b.symbols.size(); ++k) symbols.set(b.symbols[k], read_int(b.buffer, k));
}

void Executor::Run::check_condition(const CheckStep& c, const std::string& origin) const {
  if (eval(c.condition)) return;
  if (c.assumption) throw AssumptionFailed(c.message);
  throw PlacedError(ErrorKind::kInvalidArgument, c.message, origin);
}

}  // namespace sardonyx
