// Memory on large pages: aligned, disjoint, and freed with its last piece.
#include "support/pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace sardonyx {
namespace {

TEST(Pages, Aligned) {
  for (std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
    const auto p = allocate_on_large_pages(bytes);
    ASSERT_TRUE(p) << bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.get()) % 64, 0U) << bytes;
    std::memset(p.get(), 1, bytes);
  }
  EXPECT_FALSE(allocate_on_large_pages(SIZE_MAX - 5));
}

TEST(Pages, PiecesDoNotOverlapAndOutliveEachOther) {
  std::vector<std::shared_ptr<void>> pieces;
  const std::vector<std::size_t> sizes{100, 0, 64, std::size_t{1} << 20, 7, std::size_t{40} << 20, 3000};
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    pieces.push_back(allocate_piece(sizes[k]));
    ASSERT_TRUE(pieces[k]);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces[k].get()) % 64, 0U);
    std::memset(pieces[k].get(), static_cast<int>(k), sizes[k]);
  }
  pieces[0].reset();
  for (std::size_t k = 1; k < sizes.size(); ++k) {
    const auto* bytes = static_cast<const unsigned char*>(pieces[k].get());
    for (std::size_t i = 0; i < sizes[k]; i += 61) ASSERT_EQ(bytes[i], k);
  }
  EXPECT_FALSE(allocate_piece(SIZE_MAX - 5));
}

TEST(Pages, WhatIsGivenBackIsTakenAgain) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  auto first = allocate_reusable(6 * kMiB);
  ASSERT_TRUE(first);
  std::memset(first.get(), 1, 6 * kMiB);
  const auto second = allocate_reusable(6 * kMiB);
  EXPECT_NE(second, first);
  const void* place = first.get();
  first.reset();
  EXPECT_NE(allocate_reusable(12 * kMiB).get(), place) << "too small";
  EXPECT_NE(allocate_reusable(2 * kMiB).get(), place) << "wasteful";
  EXPECT_EQ(allocate_reusable(5 * kMiB).get(), place);
  EXPECT_EQ(allocate_reusable(6 * kMiB).get(), place) << "given back a second time";
  EXPECT_FALSE(allocate_reusable(SIZE_MAX - 5));
}

TEST(Pages, LittleIsKept) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  std::vector<std::shared_ptr<void>> blocks;
  for (int k = 0; k < 6; ++k) blocks.push_back(allocate_reusable(24 * kMiB));
  std::vector<const void*> places;
  for (auto& b : blocks) {
    places.push_back(b.get());
    b.reset();
  }
  // 64 MiB hold two of them: the last ones.
  std::vector<const void*> kept;
  blocks = {allocate_reusable(24 * kMiB), allocate_reusable(24 * kMiB)};
  for (const auto& b : blocks) kept.push_back(b.get());
  std::sort(kept.begin(), kept.end());
  std::sort(places.begin() + 4, places.end());
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), places.begin() + 4));
}

}  // namespace
}  // namespace sardonyx
