// The decoded instructions of a loaded code object, for one wave size; filled as execution reaches them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "sim/isa/decoder.h"

namespace sardonyx::sim {

class CodeObject;

class CodeImage {
 public:
  CodeImage(std::uint64_t base, std::uint64_t size, Decoder& decoder, const CodeObject* object)
      : base_(base),
        size_(size),
        decoder_(decoder),
        object_(object),
        slots_(new std::atomic<const Inst*>[size / 4 + 1]) {
    for (std::uint64_t i = 0; i <= size / 4; ++i) slots_[i].store(nullptr, std::memory_order_relaxed);
  }

  bool contains(std::uint64_t pc) const { return pc - base_ < size_ && (pc & 3) == 0; }
  /// `pc` must be contained. Never null.
  const Inst* at(std::uint64_t pc) {
    const Inst* inst = slots_[(pc - base_) >> 2].load(std::memory_order_acquire);
    return inst ? inst : decode(pc);
  }
  std::string text(std::uint64_t pc) const {
    return decoder_.text(reinterpret_cast<const std::uint8_t*>(pc), base_ + size_ - pc, pc);
  }
  const CodeObject* object() const { return object_; }
  std::uint64_t base() const { return base_; }
  std::uint64_t size() const { return size_; }

 private:
  const Inst* decode(std::uint64_t pc) {
    std::lock_guard lock(mutex_);
    auto& slot = slots_[(pc - base_) >> 2];
    if (const Inst* inst = slot.load(std::memory_order_acquire)) return inst;
    owned_.push_back(decoder_.decode(reinterpret_cast<const std::uint8_t*>(pc), base_ + size_ - pc, pc));
    slot.store(owned_.back().get(), std::memory_order_release);
    return owned_.back().get();
  }

  std::uint64_t base_, size_;
  Decoder& decoder_;
  const CodeObject* object_;
  std::unique_ptr<std::atomic<const Inst*>[]> slots_;
  std::vector<std::unique_ptr<Inst>> owned_;
  std::mutex mutex_;
};

}  // namespace sardonyx::sim
