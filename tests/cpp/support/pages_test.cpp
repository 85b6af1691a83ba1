// Memory on large pages: aligned, not shared, and given back with its last piece.
#include "support/pages.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sardonyx
