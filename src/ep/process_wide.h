// Objects that all sessions of the process share. They are destroyed with the last factory, when ONNX Runtime unloads
// the library; it may be loaded again. At the end of the process they are not destroyed, because sessions may be
// destroyed later.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace sardonyx::ep {

struct ProcessWide {
  static constexpr std::size_t kMost = 8;  ///< more kinds of objects than there are
  std::mutex mutex;
  std::array<void (*)(), kMost> destroy{};
  std::size_t count = 0;
  /// Destroys all objects; later uses create new ones.
  void release() {
    const std::lock_guard lock(mutex);
    while (count > 0) destroy[--count]();
  }
};
inline constinit ProcessWide process_wide_objects;

/// The object of type T, created at first use.
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
