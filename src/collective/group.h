// What the processes of a group share: a mapped file with the list of members, a barrier, and memory to exchange data.
//
// A process holds a lock on the file (one byte per rank), which the system releases however the process ends. So others
// can see whether it is alive, and check that whenever they wait.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace sardonyx {

class Group {
 public:
  static constexpr int kMaxSize = 64;
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 20;
  using LibraryId = std::array<std::byte, 128>;  ///< ncclUniqueId

  /// Opens or creates the file, and waits until all processes have joined. Throws Error.
  Group(const std::filesystem::path& path, int rank, int size, double timeout_seconds);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Call before `steps` common steps other than meet(); a process that left after fewer of them is then detected.
  /// Throws Error(kDevice) if the group is broken.
  void begin(std::uint64_t steps);
  /// Barrier. `what` identifies the common step; a process with a different one breaks the group. Throws Error(kDevice)
  /// if the group is broken.
  void meet(std::uint64_t what);
  /// kSlotBytes that this process fills for the others before the next meet().
  std::byte* mine() const { return slot(rank_, turn_); }
  /// What a process wrote there before the last meet(). Valid until the next one.
  const std::byte* of(int rank) const { return slot(rank, turn_ - 1); }

  void check() const;
  void fail(const std::string& why) noexcept;
  /// Whether the group is broken, for example because a process is gone or left too early.
  bool broken() noexcept;
  /// Rank 0 sets it, the others wait for it.
  void share_id(LibraryId& id);

 private:
  struct Member;
  struct Shared;
  void wait(const std::atomic<std::uint32_t>& counter, std::uint32_t least, int whose);
  std::byte* slot(int rank, std::uint32_t turn) const;
  void notify() const noexcept;
  bool alive(int rank) const noexcept;
  std::string reason() const;

  int rank_, size_;
  double timeout_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  Shared* shared_ = nullptr;
  std::uint32_t turn_ = 0;
};

}  // namespace sardonyx
