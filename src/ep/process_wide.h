// Objects that all sessions of the process share. They go with the last factory, when ONNX Runtime unloads the library:
// it may be loaded again, any number of times. At the end of the process nothing destroys them, since sessions may come
// later.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace sardonyx::ep {

struct ProcessWide {
  static constexpr std::size_t kMost = 8;
  std::mutex mutex;
  std::array<void (*)(), kMost> destroy{};
  std::size_t count = 0;
  /// Destroys all; what is asked for later is made anew.
  void release() {
    const std::lock_guard lock(mutex);
    while (count > 0) destroy[--count]();
  }
};
inline constinit ProcessWide process_wide_objects;

/// The one object of type T, made at first use.
template <typename T>
T& process_wide() {
  static constinit std::atomic<T*> object = nullptr;
  if (T* p = object.load(std::memory_order_acquire)) return *p;
  ProcessWide& all = process_wide_objects;
  const std::lock_guard lock(all.mutex);
  if (!object.load(std::memory_order_relaxed)) {
    all.destroy.at(all.count) = [] { delete object.exchange(nullptr); };
    object.store(new T, std::memory_order_release);
    ++all.count;
  }
  return *object.load(std::memory_order_relaxed);
}

}  // namespace sardonyx::ep
