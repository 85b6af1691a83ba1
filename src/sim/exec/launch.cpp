// Checks a launch, sets up its memory and runs its workgroups on the host's cores.
#include "sim/exec/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "sim/exec/device_memory.h"
#include "sim/exec/fault.h"
#include "sim/exec/interpreter.h"
#include "sim/exec/memory_checks.h"
#include "sim/exec/wave.h"
#include "sim/timing/estimate.h"
#include "sim/timing/recording.h"

namespace sardonyx::sim {
namespace {

constexpr std::size_t kMaxResident = 1024;      // workgroups one thread holds at once, when they wait for each other
constexpr std::uint32_t kDynamicStack = 16384;  // scratch of a lane when the compiler could not bound the stack

/// Device memory for the life of one launch.
struct Block {
  std::uint64_t address = 0;
  Block(std::size_t size, MemoryKind kind, int device)
      : address(DeviceMemory::instance().allocate(size, kind, device)) {
    if (!address) throw Fault(fmt::format("no memory for {} bytes that the launch needs", size));
  }
  ~Block() { DeviceMemory::instance().release(address); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
};

struct Resident {
  std::unique_ptr<Workgroup> group;
  std::unique_ptr<Block> scratch;
};

void work(Launch& launch) {
  std::vector<std::uint64_t> counts;
  Traffic traffic;
  if (launch.config->summary) counts.resize(static_cast<std::size_t>(Category::kCount));
  std::deque<Resident> resident;
  std::vector<std::unique_ptr<Block>> freeScratch;
  std::uint64_t scratch = scratchBytes(launch);
  try {
    std::size_t stalled = 0;  // workgroups in a row that did not finish in their turn
    while (!launch.failed.load(std::memory_order_relaxed)) {
      if (stalled >= resident.size() && resident.size() < kMaxResident) {
        // All resident workgroups may be waiting for one that has not started.
        stalled = 0;
        std::uint64_t index = launch.nextGroup.fetch_add(1, std::memory_order_relaxed);
        if (index < (launch.recording ? launch.recording->count() : launch.groups())) {
          if (launch.recording) index = launch.recording->at(index);
          if (index == timing::Recording::kSkip) continue;
          Resident r;
          if (scratch) {
            if (freeScratch.empty())
              freeScratch.push_back(std::make_unique<Block>(scratch, MemoryKind::kScratch, launch.device));
            r.scratch = std::move(freeScratch.back());
            freeScratch.pop_back();
          }
          r.group = startWorkgroup(launch, index, r.scratch ? r.scratch->address : 0);
          if (launch.recording) launch.recording->attach(*r.group);
          resident.push_front(std::move(r));
        } else if (!resident.empty()) {
          // They wait for workgroups on other host threads, which need the CPU more.
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
      }
      if (resident.empty()) break;
      Resident r = std::move(resident.front());
      resident.pop_front();
      GroupState state = runWorkgroup(launch, *r.group, counts.empty() ? nullptr : &counts);
      if (state == GroupState::kFinished) {
        stalled = 0;
        if (!counts.empty()) traffic += r.group->traffic;
        if (launch.recording) launch.recording->collect(*r.group);
        if (r.scratch) freeScratch.push_back(std::move(r.scratch));
      } else {
        ++stalled;
        resident.push_back(std::move(r));
      }
    }
  } catch (const Fault& f) {
    launch.failWith(f.what());
  } catch (const std::exception& e) {
    launch.failWith(fmt::format("kernel {}: {}", launch.kernel->shown, e.what()));
  }
  if (!counts.empty()) {
    std::lock_guard lock(launch.mutex);
    if (launch.counts.empty()) launch.counts.resize(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) launch.counts[i] += counts[i];
    launch.traffic += traffic;
  }
}

std::string refuse(const LaunchRequest& r, std::uint32_t lds) {
  const Kernel& k = *r.kernel;
  std::uint64_t items = static_cast<std::uint64_t>(r.block[0]) * r.block[1] * r.block[2];
  if (!items || !r.grid[0] || !r.grid[1] || !r.grid[2])
    return fmt::format("kernel {}: empty grid ({}, {}, {}) or workgroup ({}, {}, {})", k.shown, r.grid[0], r.grid[1],
                       r.grid[2], r.block[0], r.block[1], r.block[2]);
  if (items > 1024 || items > k.maxWorkgroup)
    return fmt::format("kernel {}: a workgroup of {} work-items; the chip takes 1024, the kernel was compiled for {}",
                       k.shown, items, k.maxWorkgroup);
  for (int d = 0; d < 3; ++d)
    if (k.requiredWorkgroup[d] && k.requiredWorkgroup[d] != r.block[d])
      return fmt::format("kernel {}: the workgroup is ({}, {}, {}); the kernel requires ({}, {}, {})", k.shown,
                         r.block[0], r.block[1], r.block[2], k.requiredWorkgroup[0], k.requiredWorkgroup[1],
                         k.requiredWorkgroup[2]);
  if (lds > static_cast<std::uint32_t>(r.chip->ldsBytes))
    return fmt::format("kernel {}: {} bytes of LDS; {} has {}", k.shown, lds, r.chip->name, r.chip->ldsBytes);
  if (r.arguments == nullptr && k.explicitBytes())
    return fmt::format("kernel {}: it takes {} bytes of arguments, none were passed", k.shown, k.explicitBytes());
  return {};
}

}  // namespace

Launch::Launch() = default;
Launch::~Launch() = default;

void Launch::failWith(std::string text) {
  std::lock_guard lock(mutex);
  if (message.empty()) message = std::move(text);
  failed.store(true);
}

void fillKernarg(const LaunchRequest& r, const Launch& launch, std::uint8_t* segment) {
  const Kernel& k = *r.kernel;
  std::size_t given = std::min<std::size_t>({r.argumentBytes, k.explicitBytes(), k.kernargBytes});
  if (given) std::memcpy(segment, r.arguments, given);
  for (const KernelArg& a : k.args) {
    if (!a.hidden()) continue;
    std::uint64_t v = 0;
    auto tail = [&](int d) { return static_cast<std::uint64_t>(r.total[d] ? r.total[d] % r.block[d] : 0); };
    auto items = [&](int d) { return r.total[d] ? r.total[d] : static_cast<std::uint64_t>(r.grid[d]) * r.block[d]; };
    std::string_view kind = std::string_view(a.kind).substr(7);
    char last = kind.empty() ? ' ' : kind.back();
    int d = last == 'x' ? 0 : last == 'y' ? 1 : 2;
    if (kind.substr(0, 12) == "block_count_")
      v = items(d) / r.block[d];
    else if (kind.substr(0, 11) == "group_size_")
      v = r.block[d];
    else if (kind.substr(0, 10) == "remainder_")
      v = tail(d);
    else if (kind.substr(0, 14) == "global_offset_")
      v = 0;
    else if (kind == "grid_dims")
      v = r.grid[2] > 1 || r.block[2] > 1 ? 3 : r.grid[1] > 1 || r.block[1] > 1 ? 2 : 1;
    else if (kind == "private_base")
      v = kPrivateAperture >> 32;
    else if (kind == "shared_base")
      v = kSharedAperture >> 32;
    else if (kind == "queue_ptr")
      v = launch.queue;
    else if (kind == "dynamic_lds_size")
      v = r.dynamicLds;
    // The rest (printf and hostcall buffers, heap, default queue, completion action, multigrid argument) stay null.
    if (a.size <= 8) std::memcpy(segment + a.offset, &v, a.size);
  }
}

std::string runLaunch(const LaunchRequest& r, const Config& config, LaunchCounts* report) {
  const Kernel& k = *r.kernel;
  std::uint64_t lds = static_cast<std::uint64_t>(k.groupBytes) + r.dynamicLds;
  std::string refusal = refuse(r, static_cast<std::uint32_t>(std::min<std::uint64_t>(lds, ~0u)));
  if (!refusal.empty()) {
    if (report) report->refused = true;
    return refusal;
  }
  Launch launch;
  launch.kernel = &k;
  launch.chip = r.chip;
  launch.config = &config;
  launch.device = r.device;
  for (int d = 0; d < 3; ++d) launch.grid[d] = r.grid[d], launch.block[d] = r.block[d], launch.total[d] = r.total[d];
  launch.ldsBytes = static_cast<std::uint32_t>(lds);
  if (config.checkGlobalRaces && launch.groups() > 0 && launch.groups() <= GlobalShadow::kMaxGroups)
    launch.shadow = std::make_unique<GlobalShadow>(launch.groups());
  if (config.timing != Timing::kOff) {
    const TimingFacts* facts = timing_facts(r.chip->name);
    if (!facts) return timing::noClock(r.chip->name);
    launch.recording = std::make_unique<timing::Recording>(launch, *facts, config.timing == Timing::kAll);
  }
  launch.privateBytes = k.privateBytes + (k.dynamicStack ? kDynamicStack : 0);
  static std::atomic<std::uint64_t> dispatches{0};
  launch.dispatchId = dispatches.fetch_add(1);
  try {
    // Whole cache lines, as the runtime allocates them: the compiler loads past the last argument where alignment
    // allows.
    Block kernarg(std::max<std::uint32_t>((k.kernargBytes + 63) & ~63u, 64), MemoryKind::kKernarg, r.device);
    Block packet(64, MemoryKind::kKernarg, r.device), queue(256, MemoryKind::kKernarg, r.device);
    launch.kernarg = kernarg.address;
    launch.dispatchPacket = packet.address;
    launch.queue = queue.address;
    fillKernarg(r, launch, reinterpret_cast<std::uint8_t*>(kernarg.address));
    // hsa_kernel_dispatch_packet_t, HSA Runtime Programmer's Reference, section 2.9.
    struct {
      std::uint16_t header, setup, workgroup[3], reserved;
      std::uint32_t grid[3], privateBytes, groupBytes;
      std::uint64_t object, kernarg, reserved2, signal;
    } p = {};
    p.setup = 3;
    for (int d = 0; d < 3; ++d) {
      p.workgroup[d] = static_cast<std::uint16_t>(r.block[d]);
      p.grid[d] = r.total[d] ? r.total[d] : r.grid[d] * r.block[d];
    }
    p.privateBytes = launch.privateBytes;
    p.groupBytes = launch.ldsBytes;
    p.object = k.descriptor;
    p.kernarg = launch.kernarg;
    static_assert(sizeof p == 64);
    std::memcpy(reinterpret_cast<void*>(packet.address), &p, sizeof p);
    // amd_queue_t: apertures' upper halves at bytes 64 and 68, for code that asks the queue for them.
    std::uint32_t apertures[2] = {static_cast<std::uint32_t>(kSharedAperture >> 32),
                                  static_cast<std::uint32_t>(kPrivateAperture >> 32)};
    std::memcpy(reinterpret_cast<void*>(queue.address + 64), apertures, sizeof apertures);

    unsigned threads =
        config.threads > 0 ? static_cast<unsigned>(config.threads) : std::max(1u, std::thread::hardware_concurrency());
    threads = static_cast<unsigned>(std::min<std::uint64_t>(threads, launch.groups()));
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work, std::ref(launch));
    work(launch);
    for (auto& t : others) t.join();
  } catch (const Fault& f) {
    return fmt::format("kernel {}: {}", k.shown, f.what());
  }
  if (report && !launch.counts.empty()) {
    report->traffic = launch.traffic;
    report->byCategory = launch.counts;
  }
  if (launch.recording && launch.message.empty()) try {
      report->estimate = std::make_shared<timing::Estimate>(timing::estimate(launch, *r.caches));
    } catch (const std::exception& e) {
      return fmt::format("kernel {}: its time cannot be estimated: {}", k.shown, e.what());
    }
  std::lock_guard lock(launch.mutex);
  return launch.message;
}

}  // namespace sardonyx::sim
