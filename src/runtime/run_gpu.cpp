// Launches on a GPU: step by step, and as a captured graph once the sizes of a run have been seen before.
#include <algorithm>
#include <array>
#include <limits>

#include "codegen/loop_codegen.h"
#include "codegen/tile_codegen.h"
#include "collective/peer.h"
#include "runtime/operand_maps.h"
#include "runtime/run.h"
#include "sardonyx/communicator.h"
#include "support/warning.h"

namespace sardonyx {

namespace {

constexpr std::size_t kMaxArguments = 64;
constexpr std::size_t kSumBytes = 4;          // of a sum that waits to be added to others
constexpr std::int64_t kMaxBlocks = 1 << 20;  // of loop kernels, whose threads go on to further points

}  // namespace

GpuCall::GpuCall(void* function, std::uint32_t blocks, std::uint32_t threads, std::uint32_t shared_bytes,
                 std::vector<int> b, std::vector<std::int64_t> v)
    : buffers(std::move(b)), addresses(buffers.size()), values(std::move(v)) {
  for (void*& a : addresses) arguments.push_back(static_cast<void*>(&a));
  for (std::int64_t& x : values) arguments.push_back(&x);
  launch = {function, {blocks}, {threads}, shared_bytes, arguments.data()};
}

void GpuCall::add_maps(Gpu& g, std::vector<Map> list) {
  gpu = &g;
  maps = std::move(list);
  std::vector<void*> first;
  for (Map& m : maps) first.push_back(&m.map);
  arguments.insert(arguments.begin(), first.begin(), first.end());
  launch.arguments = arguments.data();
}

/// What a call of a library's needs, in the order of its buffers.
struct GpuCall::LibraryWork : GpuWork {
  std::shared_ptr<const ProductPlan> plan;
  std::array<void*, 6> at{};  ///< a, b, bias, residual, out, workspace

  void give(GpuStream stream) const override { plan->run({at[0], at[1], at[2], at[3], at[4], at[5]}, stream); }
};

GpuCall::GpuCall(std::shared_ptr<const ProductPlan> plan, const std::vector<int>& b)
    : work_(std::make_shared<LibraryWork>()) {
  work_->plan = std::move(plan);
  check(b.size() == work_->at.size(), "a library's product of {} tensors", b.size());
  for (std::size_t k = 0; k < b.size(); ++k)
    if (b[k] >= 0) {
      buffers.push_back(b[k]);
      slots_.push_back(k);
    }
  addresses.resize(buffers.size());
  launch.work = work_.get();
}

bool GpuCall::place(const std::vector<void*>& address) {
  bool changed = false;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    void* a = address[static_cast<std::size_t>(buffers[k])];
    if (a == addresses[k]) continue;
    changed = true;
    addresses[k] = a;
    for (Map& m : maps)
      if (m.buffer == k && a) m.map = gpu->tensor_map(m.info, static_cast<char*>(a) + m.offset);
    if (work_) work_->at[slots_[k]] = a;
  }
  return changed;
}

std::vector<std::shared_ptr<GpuCall>> Executor::Run::gpu_calls(const LaunchStep& l, const PreparedLaunch& r) const {
  const std::int64_t blocks = (r.points - 1) / codegen::kGpuThreads + 1, repeat = l.repeat ? eval(l.repeat) : 1;
  std::vector<std::shared_ptr<GpuCall>> calls;
  for (std::int64_t number = 0; number < repeat; ++number) {
    std::vector<std::int64_t> values = r.values;
    if (l.repeat) values.push_back(number);
    calls.push_back(std::make_shared<GpuCall>(
        e.gpu_kernel(l.kernel), static_cast<std::uint32_t>(std::min(blocks, kMaxBlocks)), codegen::kGpuThreads,
        p.kernels[static_cast<std::size_t>(l.kernel)].spec.shared_bytes, l.buffers, std::move(values)));
    calls.back()->launch.starts_early = e.start_early_[static_cast<std::size_t>(l.kernel)];
  }
  return calls;
}

PreparedTileLaunch Executor::Run::prepare(const TileLaunchStep& t) const {
  check(e.gpu_ != nullptr && t.buffers.size() <= kMaxArguments && t.symbols.size() <= kMaxArguments,
        "a tile kernel that can't be launched");
  PreparedTileLaunch r;
  std::vector<std::int64_t> values;
  for (const Expr& s : t.symbols) values.push_back(eval(s));
  const std::int64_t batches = eval(t.batches), m = eval(t.m), n = eval(t.n), k = eval(t.k);
  values.insert(values.end(), {batches, m, n, k});
  if (batches <= 0 || m <= 0 || n <= 0) return r;
  const int units = e.gpu_->info().units;
  const auto blocks_of = [&](std::size_t tiling) {
    return launched_workgroups(t.tilings[tiling], batches, m, n, units);
  };
  const auto call_of = [&](int kernel, double blocks, double tiles, std::int32_t shares) {
    if (std::max({m, n, k}) > INT32_MAX || std::max(blocks, tiles) > INT32_MAX)
      fail(ErrorKind::kUnsupported, "a product of {} times {}x{}x{} is larger than kernels count", batches, m, n, k);
    std::vector<int> buffers = t.buffers;
    std::vector<std::int64_t> all = values;
    if (shares > 1) {
      check(bytes(t.partial) / kSumBytes / shares >= static_cast<std::size_t>(batches * m * n),
            "there is no room for {} shares of {} sums", shares, batches * m * n);
      buffers.push_back(t.partial);
      all.push_back(shares);
    }
    const auto at = static_cast<std::size_t>(kernel);
    auto call =
        std::make_shared<GpuCall>(e.gpu_kernel(kernel), static_cast<std::uint32_t>(blocks), codegen::kGpuThreads,
                                  p.kernels[at].spec.shared_bytes, std::move(buffers), std::move(all));
    call->launch.starts_early = e.start_early_[at];
    return call;
  };
  const auto calls_of = [&](std::size_t tiling) {
    const std::int32_t shares = t.tilings[tiling].shares;
    std::vector<std::shared_ptr<GpuCall>> calls = {
        call_of(t.kernels[tiling], blocks_of(tiling), workgroups(t.tilings[tiling], batches, m, n), shares)};
    calls[0]->launch.block.x = static_cast<std::uint32_t>(t.tilings[tiling].threads);
    if (t.tilings[tiling].copies) {
      calls[0]->add_maps(*e.gpu_, operand_maps(t, t.tilings[tiling], {batches, m, n, k}, symbols));
    }
    if (shares > 1) {
      const std::int64_t threads = batches * m * ((n - 1) / codegen::kGpuFinish + 1);
      const auto blocks = static_cast<double>((threads - 1) / codegen::kGpuThreads + 1);
      calls.push_back(call_of(t.finish, blocks, blocks, shares));
    }
    return calls;
  };
  std::vector<std::string> names = t.names;
  const std::vector<std::shared_ptr<GpuCall>> library = library_calls(t, names);
  const std::size_t tilings = t.tilings.size();
  const std::size_t chosen = candidate_for(t, {batches, m, n, k}, names, [&](std::size_t candidate) {
    double seconds = 0;
    if (candidate < tilings && workgroups(t.tilings[candidate], batches, m, n) > INT32_MAX) return 1e9;
    try {
      for (const auto& call : candidate < tilings
                                  ? calls_of(candidate)
                                  : std::vector<std::shared_ptr<GpuCall>>{library[candidate - tilings]}) {
        call->place(address);
        seconds += e.tuner_->timer(*e.gpu_, call->launch, stream);
      }
    } catch (const Error& error) {
      if (candidate < tilings) throw;
      warn(fmt::format("{} is no candidate: {}", names[candidate], error.what()));
      return std::numeric_limits<double>::infinity();
    }
    return seconds;
  });
  if (chosen < tilings) {
    r.calls = calls_of(chosen);
    return r;
  }
  r.library = names[chosen];
  e.library_used_ = true;
  r.calls = {library[chosen - tilings]};
  std::vector<GpuTiling> possible = t.tilings;
  r.own = calls_of(choose_tiling(possible, batches, m, n, k, e.gpu_->info().units));
  return r;
}

// The product as calls of a vendor's library, whose names follow the tilings': as many as the tuner wants, or those
// that were chosen for some size.
std::vector<std::shared_ptr<GpuCall>> Executor::Run::library_calls(const TileLaunchStep& t,
                                                                   std::vector<std::string>& names) const {
  std::vector<std::shared_ptr<GpuCall>> calls;
  if (t.library.empty() || e.library_path_ == "off") return calls;
  constexpr int kMostPlans = 8;
  const int wanted = e.tuner_ ? e.tuner_->library_candidates() : kMostPlans;
  const bool chosen = std::any_of(t.tuned.begin(), t.tuned.end(), [](const auto& x) { return !x.library.empty(); });
  if (wanted == 0 || (!e.tuner_ && !chosen)) return calls;
  const auto library = e.product_library();
  if (!library) return calls;
  const TileLaunchStep::Library& l = t.library.front();
  LibraryProduct p{eval(l.batches),
                   eval(l.m),
                   eval(l.n),
                   eval(l.k),
                   l.trans_a,
                   l.trans_b,
                   l.one_a,
                   l.one_b,
                   info(l.a).dtype,
                   info(l.out).dtype,
                   l.bias >= 0,
                   l.residual >= 0,
                   static_cast<ProductActivation>(l.activation)};
  if (std::min({p.batches, p.m, p.n, p.k}) <= 0 || std::max({p.batches, p.m, p.n, p.k}) > INT32_MAX) return calls;
  const auto plans = library->plans(p, wanted);
  for (std::size_t k = 0; k < plans.size(); ++k) {
    calls.push_back(
        std::make_shared<GpuCall>(plans[k], std::vector<int>{l.a, l.b, l.bias, l.residual, l.out, l.workspace}));
    names.push_back(library_candidate(library->name(), k, p));
  }
  return calls;
}

std::size_t Executor::Run::candidate_for(const TileLaunchStep& t, const TileSizes& s,
                                         const std::vector<std::string>& names,
                                         const std::function<double(std::size_t)>& time) const {
  const int units = e.gpu_->info().units;
  if (e.tuner_ && names.size() > 1)
    return e.tuner_->choose(t.problem, s, names, t.names.size(), tilings_by_cost(t, s, units), time);
  return chosen_tiling(t, s, names, units);
}

// From now on our own kernel does what a library's has not done.
void Executor::Run::give_up(const PreparedTileLaunch& r, const std::string& why) const {
  r.failed = true;
  warn(fmt::format("{} failed, and our own kernel goes on: {}", r.library, why));
}

void Executor::Run::execute(const TileLaunchStep&, const PreparedTileLaunch& r) {
  if (!r.library.empty() && !r.failed) {
    try {
      for (const auto& call : r.calls) start(*call);
      return;
    } catch (const Error& error) {
      give_up(r, error.what());
    }
  }
  for (const auto& call : r.current()) start(*call);
}

void Executor::Run::start(GpuCall& call) {
  call.place(address);
  for (std::size_t k = 0; k < call.addresses.size(); ++k)
    check(call.addresses[k] != nullptr || bytes(call.buffers[k]) == 0, "buffer {} is not in memory", call.buffers[k]);
  e.gpu_->launch(call.launch, stream);
}

// Whether all of a run's work is launches of known sizes, so that it can be one graph.
bool Executor::Run::can_be_captured() const {
  if (!e.gpu_ || !e.launches_only_ || options.profile || !e.graphs_ || !plan->complete) return false;
  return plan->arena.unplanned == 0;
}

// Runs the captured graph of this plan, making it first if need be. False if there is nothing to capture. Should a
// library's work not be recordable, our own kernels replace it.
bool Executor::Run::replay() {
  if (!e.library_used_) return replay_launches();
  std::vector<const PreparedTileLaunch*> theirs;
  for (const PreparedStep& s : plan->steps)
    if (const auto* t = std::get_if<PreparedTileLaunch>(&s); t && !t->library.empty() && !t->failed)
      theirs.push_back(t);
  if (theirs.empty()) return replay_launches();
  try {
    return replay_launches();
  } catch (const Error& error) {
    plan->captured.reset();
    for (const PreparedTileLaunch* t : theirs) give_up(*t, error.what());
  }
  return replay_launches();
}

bool Executor::Run::replay_launches() {
  if (!plan->captured) {
    auto c = std::make_unique<CapturedRun>();
    std::vector<bool> fixed(address.size());
    for (const auto& [buffer, offset] : plan->arena.offsets) fixed[static_cast<std::size_t>(buffer)] = true;
    for (std::size_t k = 0; k < e.constants_.size(); ++k) fixed[k] = fixed[k] || e.constants_[k] != nullptr;
    std::vector<GpuLaunch> launches;
    c->pieces.emplace_back();
    // Launches since the last step that other processes take part in become a graph.
    const auto cut = [&](int step) {
      CapturedRun::Piece& piece = c->pieces.back();
      if (!launches.empty()) {
        piece.graph = e.gpu_->make_graph(launches);
        c->usable = c->usable && piece.graph;
      }
      piece.collective = step;
      launches.clear();
      if (step >= 0) c->pieces.push_back({nullptr, c->calls.size()});
    };
    const Lives& lives = *e.lives_.at(&p.main);
    for (std::size_t k = 0; k < p.main.steps.size(); ++k) {
      const PreparedStep& s = plan->steps[static_cast<std::size_t>(lives.first_step) + k];
      std::vector<std::shared_ptr<GpuCall>> calls;
      if (is_collective(p.main.steps[k])) {
        if (const auto& call = std::get<PreparedRoutine>(s).call) {
          calls.push_back(call);
          ++c->collective_calls;
        } else {
          cut(static_cast<int>(k));
          continue;
        }
      }
      if (const auto* l = std::get_if<PreparedLaunch>(&s)) calls = l->calls;
      if (const auto* t = std::get_if<PreparedTileLaunch>(&s)) calls = t->current();
      for (const auto& call : calls) {
        call->place(address);
        if (std::any_of(call->buffers.begin(), call->buffers.end(),
                        [&](int b) { return !fixed[static_cast<std::size_t>(b)]; }))
          c->outside.push_back(c->calls.size());
        c->calls.push_back(call.get());
        c->piece_of.push_back(c->pieces.size() - 1);
        launches.push_back(call->launch);
      }
    }
    c->arena = context.arena.get();
    cut(-1);
    plan->captured = std::move(c);
  }
  CapturedRun& c = *plan->captured;
  if (!c.usable || c.calls.empty()) return false;
  if (c.collective_calls > 0)
    dynamic_cast<const LaunchedCollectives&>(*e.communicator_).begin_launches(c.collective_calls);
  const auto update = [&](std::size_t k) {
    const CapturedRun::Piece& piece = c.pieces[c.piece_of[k]];
    if (c.calls[k]->place(address)) piece.graph->set(k - piece.first, c.calls[k]->launch);
  };
  if (c.arena == context.arena.get()) {
    for (std::size_t k : c.outside) update(k);
  } else {
    for (std::size_t k = 0; k < c.calls.size(); ++k) update(k);
    c.arena = context.arena.get();
  }
  const int first_step = e.lives_.at(&p.main)->first_step;
  for (const CapturedRun::Piece& piece : c.pieces) {
    if (piece.graph) piece.graph->launch(stream);
    if (piece.collective < 0) continue;
    const auto k = static_cast<std::size_t>(piece.collective);
    const PreparedStep& kept = plan->steps[static_cast<std::size_t>(first_step) + k];
    collective(std::get<RoutineStep>(p.main.steps[k].op), std::get<PreparedRoutine>(kept));
  }
  return true;
}

}  // namespace sardonyx
