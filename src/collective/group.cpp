#include "collective/group.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

#include "support/error.h"

namespace sardonyx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeaderBytes = std::size_t{64} << 10;  // Group::Shared; exchange slots follow
constexpr int kSpins = 200;                // before a thread sleeps: others often arrive within that time
constexpr long kSleep = 20 * 1000 * 1000;  // ns, until it checks whether the others are alive
constexpr std::uint32_t kIntact = 0, kBreaking = 1, kBroken = 2;  // Shared::state

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen) {
  const timespec limit = {0, kSleep};
  ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace

/// A process's part of the file. Each counter is written by its own process only.
struct alignas(64) Group::Member {
  std::atomic<std::uint32_t> joined, arrived, left;
  std::atomic<std::uint64_t> steps;                ///< started by this process
  std::array<std::atomic<std::uint64_t>, 2> what;  ///< for the current turn and the previous one
};

/// The start of the file; initially all zero.
struct Group::Shared {
  std::atomic<std::uint32_t> size;   ///< of the group, as set by the first process
  std::atomic<std::uint32_t> ticks;  ///< counts arrivals; waiting processes sleep on it
  std::atomic<std::uint32_t> state;  ///< kIntact ...
  std::atomic<std::uint32_t> id_said;
  LibraryId id;
  char reason[512];
  std::array<Member, kMaxSize> members;
};

Group::Group(const std::filesystem::path& path, int rank, int size, double timeout)
    : rank_(rank), size_(size), timeout_(timeout) {
  static_assert(sizeof(Shared) <= kHeaderBytes && std::atomic<std::uint64_t>::is_always_lock_free);
  if (size < 1 || size > kMaxSize)
    sardonyx::fail(ErrorKind::kInvalidArgument, "a group has 1 to {} processes, not {}", kMaxSize, size);
  if (rank < 0 || rank >= size)
    sardonyx::fail(ErrorKind::kInvalidArgument, "rank {} is not from 0 to {}", rank, size - 1);
  bytes_ = kHeaderBytes + static_cast<std::size_t>(size) * 2 * kSlotBytes;
  const auto refuse = [&](const char* what) {
    const std::string why = std::strerror(errno);
    if (file_ >= 0) ::close(file_);
    sardonyx::fail(ErrorKind::kIo, "the group's file '{}' can't be {}: {}", path.string(), what, why);
  };
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file_ < 0) refuse("opened");
  struct stat info{};
  if (::fstat(file_, &info) != 0) refuse("read");
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid()) {
    errno = EPERM;
    refuse("trusted: it is no file of this user's");
  }
  // All processes extend it to the same length; new bytes are zero. posix_fallocate reports a lack of memory now rather
  // than as a SIGBUS later.
  if (const int code = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes_))) {
    errno = code;
    refuse("made large enough");
  }
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  if (::fcntl(file_, F_OFD_SETLK, &lock) != 0) {
    const bool taken = errno == EAGAIN || errno == EACCES;
    if (!taken) refuse("locked");
    ::close(file_);
    sardonyx::fail(ErrorKind::kInvalidArgument, "another process has rank {} of the group '{}'", rank, path.string());
  }
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) refuse("mapped");
  shared_ = static_cast<Shared*>(memory);
  try {
    std::uint32_t said = 0;
    if (!shared_->size.compare_exchange_strong(said, static_cast<std::uint32_t>(size)) &&
        said != static_cast<std::uint32_t>(size))
      sardonyx::fail(ErrorKind::kInvalidArgument, "rank {} says that the group has {} processes, another one {}", rank,
                     size, said);
    Member& me = shared_->members[static_cast<std::size_t>(rank)];
    if (me.joined.exchange(1) != 0)
      sardonyx::fail(ErrorKind::kInvalidArgument, "the group's file '{}' was used by another group before",
                     path.string());
    notify();
    for (int r = 0; r < size; ++r) wait(shared_->members[static_cast<std::size_t>(r)].joined, 1, r);
  } catch (...) {
    ::munmap(shared_, bytes_);
    ::close(file_);
    throw;
  }
}

Group::~Group() {
  shared_->members[static_cast<std::size_t>(rank_)].left.store(1);
  ::munmap(shared_, bytes_);
  ::close(file_);  // releases the lock: processes that wait for this one see that it is gone
}

void Group::notify() const noexcept {
  shared_->ticks.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&shared_->ticks), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool Group::alive(int rank) const noexcept {
  if (rank == rank_) return true;
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return ::fcntl(file_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::string Group::reason() const { return {shared_->reason, ::strnlen(shared_->reason, sizeof shared_->reason)}; }

void Group::check() const {
  if (shared_->state.load() == kIntact) return;
  while (shared_->state.load() == kBreaking) ::usleep(100);
  sardonyx::fail(ErrorKind::kDevice, "the group of {} processes is broken: {}", size_, reason());
}

void Group::fail(const std::string& why) noexcept {
  std::uint32_t intact = kIntact;
  if (!shared_->state.compare_exchange_strong(intact, kBreaking)) return;
  const std::size_t n = std::min(why.size(), sizeof shared_->reason - 1);
  std::memcpy(shared_->reason, why.data(), n);
  shared_->reason[n] = 0;
  shared_->state.store(kBroken);
  notify();
}

bool Group::broken() noexcept {
  const std::uint64_t mine = shared_->members[static_cast<std::size_t>(rank_)].steps.load();
  for (int r = 0; r < size_; ++r) {
    const Member& other = shared_->members[static_cast<std::size_t>(r)];
    if (!other.joined.load() || alive(r)) continue;
    // A process that has taken part in all steps so far may leave.
    if (other.left.load() == 0)
      fail("rank " + std::to_string(r) + " is gone");
    else if (other.steps.load() < mine)
      fail("rank " + std::to_string(r) + " has left the group");
  }
  return shared_->state.load() != kIntact;
}

void Group::begin(std::uint64_t steps) {
  shared_->members[static_cast<std::size_t>(rank_)].steps.fetch_add(steps);
  check();
}

void Group::wait(const std::atomic<std::uint32_t>& counter, std::uint32_t least, int whose) {
  const auto there = [&] { return static_cast<std::int32_t>(counter.load(std::memory_order_acquire) - least) >= 0; };
  for (int k = 0; k < kSpins; ++k) {
    if (there()) return;
    ::sched_yield();
  }
  const auto start = Clock::now();
  for (;;) {
    const std::uint32_t seen = shared_->ticks.load();
    if (there()) return;
    check();
    futex_wait(shared_->ticks, seen);
    if (there()) return;
    if (shared_->ticks.load() == seen && broken()) check();
    if (std::chrono::duration<double>(Clock::now() - start).count() > timeout_)
      fail(fmt::format("rank {} waited {:.0f} s for rank {}", rank_, timeout_, whose));
  }
}

void Group::meet(std::uint64_t what) {
  begin(1);
  const std::size_t side = turn_ & 1U;
  Member& me = shared_->members[static_cast<std::size_t>(rank_)];
  me.what[side].store(what, std::memory_order_relaxed);
  me.arrived.store(++turn_, std::memory_order_release);
  notify();
  for (int r = 0; r < size_; ++r) {
    const Member& other = shared_->members[static_cast<std::size_t>(r)];
    wait(other.arrived, turn_, r);
    if (other.what[side].load(std::memory_order_relaxed) == what) continue;
    fail(fmt::format("ranks {} and {} call different collectives: their models, or the sizes of their inputs, differ",
                     std::min(r, rank_), std::max(r, rank_)));
    check();
  }
}

std::byte* Group::slot(int rank, std::uint32_t turn) const {
  return reinterpret_cast<std::byte*>(shared_) + kHeaderBytes +
         (static_cast<std::size_t>(rank) * 2 + (turn & 1U)) * kSlotBytes;
}

void Group::share_id(LibraryId& id) {
  if (rank_ == 0) {
    shared_->id = id;
    shared_->id_said.store(1, std::memory_order_release);
    notify();
  } else {
    wait(shared_->id_said, 1, 0);
    id = shared_->id;
  }
}

}  // namespace sardonyx
