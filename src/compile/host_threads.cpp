#include "compile/host_threads.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::size_t kStack = 256 << 10;  // bytes of a thread; frames are limited when kernels are compiled
constexpr std::uint64_t kCanary = 0x5ad0c0de5ad0c0deu;
constexpr std::uint32_t kWarp = 32;

/// As kernels/custom_threads.h declares it.
struct HostThread {
  std::uint32_t thread[3], block[3], block_size[3], grid_size[3];
};

/// What clang's emulated TLS knows of a variable: __shared__ arrays are such.
struct SharedVariable {
  std::size_t size, align;
  std::uintptr_t index;
  const void* initial;
};
SharedVariable dynamic_shared = {0, 0, 0, nullptr};

struct Fiber {
  enum class Waits : std::uint8_t { kNot, kForBlock, kForWarp, kDone };
  void* stack_pointer = nullptr;
  std::array<std::uint32_t, 3> thread{};
  Waits waits = Waits::kNot;
  bool predicate = false;
  std::uint32_t mask = 0, source = 0;
  const void* call = nullptr;  ///< of a warp function without a mask: lanes that wait in one call are together
  std::uint64_t value = 0;     ///< given to a warp function
  std::uint64_t result = 0;    ///< of the wait that has ended
  std::uint64_t lanes = 0;
};

struct FreeStacks {
  std::size_t bytes;
  void operator()(char* p) const { ::munmap(p, bytes); }
};

}  // namespace

struct BlockThreads::State {
  HostThread here{};
  std::size_t dynamic_bytes = 0;
  std::vector<std::pair<const SharedVariable*, void*>> shared;
  bool overflow = false, no_memory = false;

  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  std::vector<Fiber> fibers;
  std::size_t running = 0;
  std::unique_ptr<char, FreeStacks> stacks{nullptr, FreeStacks{0}};
  void* scheduler = nullptr;  ///< its stack pointer
};

namespace {

thread_local BlockThreads::State* current = nullptr;

}  // namespace

// Saves the registers that a called function must preserve on the stack, and continues on another stack.
extern "C" void sardonyx_switch_stack(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl sardonyx_switch_stack
.hidden sardonyx_switch_stack
.type sardonyx_switch_stack,@function
sardonyx_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size sardonyx_switch_stack,.-sardonyx_switch_stack
)");
namespace {
constexpr std::size_t kSavedWords = 6;  // before the return address
}  // namespace
#elif defined(__aarch64__)
asm(R"(
.text
.globl sardonyx_switch_stack
.hidden sardonyx_switch_stack
.type sardonyx_switch_stack,%function
sardonyx_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size sardonyx_switch_stack,.-sardonyx_switch_stack
)");
#else
#error "switching stacks needs a few lines of assembly for this CPU"
#endif

namespace {

using Waits = Fiber::Waits;

void to_scheduler() {
  BlockThreads::State& s = *current;
  sardonyx_switch_stack(&s.fibers[s.running].stack_pointer, s.scheduler);
}

void fiber_main() {
  current->function(current->argument);
  current->fibers[current->running].waits = Waits::kDone;
  to_scheduler();
  std::abort();  // a thread that has returned is not resumed
}

/// Runs a thread until it waits or returns.
void resume(BlockThreads::State& s, std::size_t k) {
  s.running = k;
  std::copy(s.fibers[k].thread.begin(), s.fibers[k].thread.end(), s.here.thread);
  sardonyx_switch_stack(&s.scheduler, s.fibers[k].stack_pointer);
}

char* stack_of(BlockThreads::State& s, std::size_t k) { return s.stacks.get() + k * kStack; }

bool prepare(BlockThreads::State& s) {
  const std::uint32_t* n = s.here.block_size;
  const std::size_t count = std::size_t{n[0]} * n[1] * n[2];
  if (s.stacks.get_deleter().bytes < count * kStack) {
    s.stacks.reset();
    void* p =
        ::mmap(nullptr, count * kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;
    s.stacks = {static_cast<char*>(p), FreeStacks{count * kStack}};
  }
  s.fibers.assign(count, Fiber());
  for (std::size_t k = 0; k < count; ++k) {
    Fiber& f = s.fibers[k];
    f.thread = {static_cast<std::uint32_t>(k % n[0]), static_cast<std::uint32_t>(k / n[0] % n[1]),
                static_cast<std::uint32_t>(k / n[0] / n[1])};
    *reinterpret_cast<std::uint64_t*>(stack_of(s, k)) = kCanary;
    // Stacks begin on different cache lines of a page, so that those of a block do not displace each other.
    auto* top = reinterpret_cast<std::uint64_t*>(stack_of(s, k) + kStack - (k % 64 + 1) * 64);
#if defined(__x86_64__)
    *--top = 0;  // a function expects the stack to be 8 beside a multiple of 16
    *--top = reinterpret_cast<std::uint64_t>(&fiber_main);
    top -= kSavedWords;
    std::fill(top, top + kSavedWords, 0);
#else
    top -= 20;
    std::fill(top, top + 20, 0);
    top[11] = reinterpret_cast<std::uint64_t>(&fiber_main);  // x30
#endif
    f.stack_pointer = top;
  }
  return true;
}

/// Lets the lanes of a warp that wait for a warp function go on. `lanes`: bits of the fibers from `first` on.
void exchange(BlockThreads::State& s, std::size_t first, std::uint32_t lanes) {
  std::uint32_t votes = 0;
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(rest));
    votes |= static_cast<std::uint32_t>(s.fibers[first + lane].predicate) << lane;
  }
  for (std::uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
    Fiber& f = s.fibers[first + static_cast<std::uint32_t>(std::countr_zero(rest))];
    f.result = lanes >> (f.source & 31) & 1 ? s.fibers[first + (f.source & 31)].value : f.value;
    f.lanes = lanes | std::uint64_t{votes} << 32;
    f.waits = Waits::kNot;
  }
}

/// The lanes that wait in the same warp function as fiber k, as bits from `first` on: with a mask the lanes that gave
/// the same one, without a mask those in the same call.
std::uint32_t waiting_with(const BlockThreads::State& s, std::size_t k, std::size_t first, std::size_t end) {
  const Fiber& f = s.fibers[k];
  std::uint32_t group = 0;
  for (std::size_t j = first; j < end; ++j) {
    const Fiber& g = s.fibers[j];
    if (g.waits == Waits::kForWarp && g.mask == f.mask && (f.mask != 0 || g.call == f.call))
      group |= std::uint32_t{1} << (j - first);
  }
  return group;
}

/// Completes warp functions; `stuck`: no thread of the block can go on, so the lanes that have come are all. True if
/// any lane goes on.
bool complete(BlockThreads::State& s, std::size_t first, std::size_t end, bool stuck) {
  bool any = false;
  std::uint32_t live = 0, seen = 0;
  std::size_t earliest = end;  // the call without a mask that comes first in the code
  for (std::size_t k = first; k < end; ++k) live |= std::uint32_t{s.fibers[k].waits != Waits::kDone} << (k - first);
  for (std::size_t k = first; k < end; ++k) {
    const Fiber& f = s.fibers[k];
    if (f.waits != Waits::kForWarp || (seen >> (k - first) & 1)) continue;
    if (f.mask == 0) {
      if (earliest == end || std::less<>()(f.call, s.fibers[earliest].call)) earliest = k;
      continue;
    }
    const std::uint32_t mask = f.mask, group = waiting_with(s, k, first, end);
    seen |= group;
    if ((mask & live & ~group) != 0 && !stuck) continue;
    exchange(s, first, group);
    any = true;
    if (stuck) break;  // the others may come now
  }
  // Lanes in a branch or loop go on before those that wait behind it, so that they meet there.
  if (any || earliest == end) return any;
  exchange(s, first, waiting_with(s, earliest, first, end));
  return true;
}

void run_warp(BlockThreads::State& s, std::size_t first, std::size_t end) {
  for (bool any = true; any;) {
    any = false;
    for (std::size_t k = first; k < end; ++k)
      if (s.fibers[k].waits == Waits::kNot) resume(s, k);
    any = complete(s, first, end, false);
  }
}

/// All threads that have not returned wait for the block. False if there are none.
bool pass_barrier(BlockThreads::State& s) {
  std::uint64_t live = 0, votes = 0;
  for (const Fiber& f : s.fibers) {
    live += f.waits == Waits::kForBlock;
    votes += f.waits == Waits::kForBlock && f.predicate;
  }
  for (Fiber& f : s.fibers) {
    if (f.waits != Waits::kForBlock) continue;
    f.result = votes | live << 32;
    f.waits = Waits::kNot;
  }
  return live != 0;
}

void run_block(void (*function)(void*), void* argument) {
  BlockThreads::State& s = *current;
  s.function = function;
  s.argument = argument;
  if (!prepare(s)) {
    s.no_memory = true;
    return;
  }
  const std::size_t n = s.fibers.size();
  const auto end_of = [n](std::size_t first) { return std::min<std::size_t>(n, first + kWarp); };
  for (bool any = true; any;) {
    for (std::size_t w = 0; w < n; w += kWarp) run_warp(s, w, end_of(w));
    any = false;
    for (std::size_t w = 0; w < n && !any; w += kWarp) any = complete(s, w, end_of(w), true);
    if (!any) any = pass_barrier(s);
  }
  for (std::size_t k = 0; k < n; ++k)
    s.overflow = s.overflow || *reinterpret_cast<std::uint64_t*>(stack_of(s, k)) != kCanary;
}

std::uint64_t block_wait(std::uint32_t predicate) {
  BlockThreads::State& s = *current;
  Fiber& f = s.fibers[s.running];
  f.predicate = predicate != 0;
  f.waits = Waits::kForBlock;
  to_scheduler();
  return f.result;
}

[[gnu::noinline]] std::uint64_t warp_exchange(std::uint32_t mask, std::uint64_t value, std::uint32_t source,
                                              std::uint32_t predicate, std::uint64_t* lanes) {
  BlockThreads::State& s = *current;
  Fiber& f = s.fibers[s.running];
  f.mask = mask;
  f.call = __builtin_return_address(0);
  f.value = value;
  f.source = source;
  f.predicate = predicate != 0;
  f.waits = Waits::kForWarp;
  to_scheduler();
  *lanes = f.lanes;
  return f.result;
}

HostThread* host_thread() { return &current->here; }

void* shared_address(const SharedVariable* v) {
  BlockThreads::State& s = *current;
  for (const auto& [known, address] : s.shared)
    if (known == v) return address;
  const bool is_dynamic = v == &dynamic_shared;
  const std::size_t align = std::max<std::size_t>(is_dynamic ? 128 : v->align, 64);
  const std::size_t bytes = std::max<std::size_t>(is_dynamic ? s.dynamic_bytes : v->size, 1);
  void* p = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!p) std::abort();  // some KiB
  s.shared.emplace_back(v, p);
  return p;
}

template <typename T>
void* address(T* f) {
  return reinterpret_cast<void*>(f);
}

const RuntimeSymbol kSymbols[] = {
    {"sdx_host_thread", address(host_thread)},
    {"sdx_run_block", address(run_block)},
    {"sdx_block_wait", address(block_wait)},
    {"sdx_warp_exchange", address(warp_exchange)},
    {"__emutls_get_address", address(shared_address)},
    {"__emutls_v.", &dynamic_shared},  // extern __shared__ arrays, whatever their names
};

}  // namespace

BlockThreads::BlockThreads(std::size_t shared) {
  thread_local State kept;  // with its stacks, which later launches use again
  state_ = &kept;
  kept.dynamic_bytes = shared;
  kept.overflow = kept.no_memory = false;
  current = state_;
}

BlockThreads::~BlockThreads() {
  for (const auto& [variable, memory] : state_->shared) std::free(memory);
  state_->shared.clear();
  current = nullptr;
}

void BlockThreads::check(std::string_view kernel) const {
  if (state_->no_memory) fail(ErrorKind::kDevice, "out of memory: the stacks of a block of {}", kernel);
  if (state_->overflow)
    fail(ErrorKind::kDevice, "a thread of {} used more than the {} KiB of its stack; is there a recursion?", kernel,
         kStack >> 10);
}

std::span<const RuntimeSymbol> block_runtime() { return kSymbols; }

}  // namespace sardonyx
