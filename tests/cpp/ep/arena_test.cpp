// The arena: pieces are disjoint, free pieces are merged, and the limit is never exceeded.
#include "ep/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "support/error.h"

namespace sardonyx::ep {
namespace {

struct Device {
  std::size_t taken = 0, free = SIZE_MAX;
  Arena::Source source() {
    return {[this](std::size_t n) -> std::shared_ptr<void> {
              if (taken + n > free) throw Error(ErrorKind::kDevice, "the device is full");
              taken += n;
              return {std::aligned_alloc(256, n), [this, n](void* p) {
                        taken -= n;
                        std::free(p);
                      }};
            },
            {}};
  }
};

TEST(Arena, PiecesAreDisjointAndComeBackTogether) {
  Device device;
  {
    Arena arena(device.source(), {}, "test");
    std::map<char*, std::size_t> live;
    std::mt19937 random(7);
    for (int k = 0; k < 20000; ++k) {
      if (live.size() < 50 && random() % 2) {
        const std::size_t n = 1 + random() % 100000;
        char* p = static_cast<char*>(arena.allocate(n));
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(p) % 256, 0u);
        const auto next = live.lower_bound(p);
        ASSERT_TRUE(next == live.end() || p + n <= next->first);
        ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= p);
        live[p] = n;
      } else if (!live.empty()) {
        const auto it = std::next(live.begin(), random() % live.size());
        arena.free(it->first);
        live.erase(it);
      }
    }
    for (const auto& [p, n] : live) arena.free(p);
    const ArenaStats s = arena.stats();
    EXPECT_EQ(s.in_use, 0u);
    // All in one piece again: the whole of the largest chunk can be had without a new one.
    arena.free(arena.allocate(s.total / 2));
    EXPECT_EQ(arena.stats().extensions, s.extensions);
  }
  EXPECT_EQ(device.taken, 0u);
}

TEST(Arena, TheLimitIsKeptAndTheMessageSaysTheSizes) {
  Device device;
  Arena arena(device.source(), {.limit = 1 << 20, .same_as_requested = false}, "memory on hip:0");
  void* p = arena.allocate(900 << 10);
  EXPECT_LE(device.taken, std::size_t{1} << 20);
  try {
    arena.allocate(200 << 10);
    FAIL() << "more than the limit";
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_EQ(e.kind(), ErrorKind::kDevice);
    for (const char* part : {"memory on hip:0", "204800", "1048576", "gpu_mem_limit"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  arena.free(p);
  EXPECT_NE(arena.allocate(1 << 20), nullptr);  // what is free went back to the device
}

TEST(Arena, SameAsRequestedTakesNoMore) {
  Device device;
  Arena arena(device.source(), {.limit = 0, .same_as_requested = true}, "test");
  arena.allocate(1000);
  EXPECT_EQ(device.taken, 1024u);
}

TEST(Arena, WhenTheDeviceIsFullLessIsTaken) {
  Device device;
  device.free = 300 << 10;  // less than the first power of two
  Arena arena(device.source(), {}, "test");
  EXPECT_NE(arena.allocate(256 << 10), nullptr);
  EXPECT_THROW(arena.allocate(256 << 10), Error);
}

}  // namespace
}  // namespace sardonyx::ep
