// What the processes of a group share: a mapped file with who is there, a barrier, and memory for what they exchange.
//
// Whether a process lives is told by a lock on the file (one byte for each rank), which the system takes back however
// the process ends. Nobody waits without looking at that.
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

  /// Opens the file, or makes it, and waits until all are there. Throws Error.
  Group(const std::filesystem::path& path, int rank, int size, double timeout_seconds);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Before steps that all processes do together, other than meet(): one that has left and did fewer of them is missed.
  /// Throws Error(kDevice) if the group is broken.
  void begin(std::uint64_t steps);
  /// Waits until every process is here. `what`: of the step that they do together; a process that does something else
  /// breaks the group. Throws Error(kDevice) if the group is broken.
  void meet(std::uint64_t what);
  /// kSlotBytes that this process writes before the next meet(), for the others.
  std::byte* mine() const { return slot(rank_, turn_); }
  /// What a process wrote there before the last meet(). It is there until the next one.
  const std::byte* of(int rank) const { return slot(rank, turn_ - 1); }

  void check() const;
  void fail(const std::string& why) noexcept;
  /// Whether the group is broken, a process that is gone, or has left too early, included.
  bool broken() noexcept;
  /// Rank 0 says it, the others wait for it.
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
