// Texts that take long to make and of which a few are needed soon: compiled code. They are made in the background, and
// at once when somebody needs one.
//
// The process has one set of background threads, with low priority: at most one less than it has CPUs, at least one.
// They start nothing while a thread waits for a text, and end when nothing is left. fork() waits for what they are
// making, and a child has no background; texts are then made by those who need them. So it is when the process ends.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace sardonyx {

/// All members are thread-safe.
class BackgroundTexts {
 public:
  using Make = std::function<std::string()>;

  /// `makers` are called at most once each, by any thread, or twice if the background takes long for a text that
  /// somebody waits for; the first result counts. `when_done` is called when all texts exist.
  explicit BackgroundTexts(std::vector<Make> makers, std::function<void()> when_done = {});
  /// Cancels what has not begun, and waits for what the background is making.
  ~BackgroundTexts();
  BackgroundTexts(const BackgroundTexts&) = delete;
  BackgroundTexts& operator=(const BackgroundTexts&) = delete;

  /// Lets up to `threads` background threads make all texts, in order.
  void start(int threads);
  std::size_t size() const;
  /// Text `k`, made here if nobody has begun. Throws what its maker threw, each time.
  const std::string& get(std::size_t k);
  bool ready(std::size_t k) const;
  /// How many texts exist, and how many of them were made by those who needed them.
  struct Counts {
    std::size_t ready = 0, on_demand = 0;
  };
  Counts counts() const;
  /// Whether all texts exist, or have failed.
  bool done() const;

  /// While an object of this type exists, the background starts nothing.
  class Pause {
   public:
    Pause();
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
  };

 private:
  friend struct BackgroundPool;
  struct Item;
  void run(Item& item, const Make& make, bool in_background);

  std::vector<Item> items_;
  std::function<void()> when_done_;
  int limit_ = 0;               ///< of background threads
  int running_ = 0;             ///< background threads that make a text
  std::size_t next_ = 0;        ///< no earlier item is waiting
  std::size_t unfinished_ = 0;  ///< items
  Counts counts_;
};

}  // namespace sardonyx
