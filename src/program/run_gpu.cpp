// Launches on a GPU: step by step, and as a captured graph once the sizes of a run have been seen before.
#include <algorithm>

#include "codegen/loop_codegen.h"
#include "codegen/tile_codegen.h"
#include "collective/peer.h"
#include "program/operand_maps.h"
#include "program/run.h"
#include "sardonyx/communicator.h"

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

bool GpuCall::place(const std::vector<void*>& address) {
  bool changed = false;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    void* a = address[static_cast<std::size_t>(buffers[k])];
    if (a == addresses[k]) continue;
    changed = true;
    addresses[k] = a;
    for (Map& m : maps)
      if (m.buffer == k && a) m.map = gpu->tensor_map(m.info, static_cast<char*>(a) + m.offset);
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
        e.kernels_[static_cast<std::size_t>(l.kernel)], static_cast<std::uint32_t>(std::min(blocks, kMaxBlocks)),
        codegen::kGpuThreads, p.kernels[static_cast<std::size_t>(l.kernel)].shared, l.buffers, std::move(values)));
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
    return codegen::launched_workgroups(t.tilings[tiling], batches, m, n, units);
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
    auto call = std::make_shared<GpuCall>(e.kernels_[at], static_cast<std::uint32_t>(blocks), codegen::kGpuThreads,
                                          p.kernels[at].shared, std::move(buffers), std::move(all));
    call->launch.starts_early = e.start_early_[at];
    return call;
  };
  const auto calls_of = [&](std::size_t tiling) {
    const std::int32_t shares = t.tilings[tiling].shares;
    std::vector<std::shared_ptr<GpuCall>> calls = {
        call_of(t.kernels[tiling], blocks_of(tiling), codegen::workgroups(t.tilings[tiling], batches, m, n), shares)};
    if (t.tilings[tiling].copies) {
      calls[0]->launch.block.x = static_cast<std::uint32_t>(t.tilings[tiling].threads);
      calls[0]->add_maps(*e.gpu_, operand_maps(t, t.tilings[tiling], {batches, m, n, k}));
    }
    if (shares > 1) {
      const std::int64_t threads = batches * m * ((n - 1) / codegen::kGpuFinish + 1);
      const auto blocks = static_cast<double>((threads - 1) / codegen::kGpuThreads + 1);
      calls.push_back(call_of(t.finish, blocks, blocks, shares));
    }
    return calls;
  };
  r.calls = calls_of(tiling_for(t, {batches, m, n, k}, [&](std::size_t tiling) {
    if (codegen::workgroups(t.tilings[tiling], batches, m, n) > INT32_MAX) return 1e9;
    double seconds = 0;
    for (const auto& call : calls_of(tiling)) {
      call->place(address);
      seconds += e.tuner_->timer(*e.gpu_, call->launch, stream);
    }
    return seconds;
  }));
  return r;
}

// What was measured, if anything was; else the tuner's choice, or that of the model of cost.
std::size_t Executor::Run::tiling_for(const TileLaunchStep& t, const TileSizes& s,
                                      const std::function<double(std::size_t)>& time) const {
  for (const TileLaunchStep::Tuned& x : t.tuned)
    if (x.batches == s.batches && x.m == s.m && x.n == s.n && x.k == s.k) return static_cast<std::size_t>(x.tiling);
  const int units = e.gpu_->info().units;
  if (e.tuner_ && t.tilings.size() > 1) return e.tuner_->choose(t, s, tilings_by_cost(t, s, units), time);
  return codegen::choose_tiling(t.tilings, s.batches, s.m, s.n, s.k, units);
}

void Executor::Run::execute(const TileLaunchStep&, const PreparedTileLaunch& r) {
  for (const auto& call : r.calls) start(*call);
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

// Runs the captured graph of this plan, making it first if need be. False if there is nothing to capture.
bool Executor::Run::replay() {
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
      if (const auto* t = std::get_if<PreparedTileLaunch>(&s)) calls = t->calls;
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
