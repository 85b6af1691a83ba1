// Dual issue (RDNA 3 ISA, section 7.6, VOPD): both halves read their sources before either writes.
#include <bit>

#include "lab.h"

using namespace sardonyx::sim;

namespace {

std::uint32_t bits(float x) { return std::bit_cast<std::uint32_t>(x); }

TEST(Vopd, EachHalfAccumulatesIntoItsOwnDestination) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    for (int l = 0; l < lab.lanes(); ++l) {
      const auto x = static_cast<float>(l);
      lab.v(10, l) = bits(x), lab.v(11, l) = bits(100 + x), lab.v(13, l) = bits(2), lab.v(14, l) = bits(3);
    }
    lab.run("v_dual_fmac_f32 v10, v13, v10 :: v_dual_fmac_f32 v11, v14, v11");
    for (int l = 0; l < lab.lanes(); ++l) {
      const auto x = static_cast<float>(l);
      EXPECT_EQ(lab.v(10, l), bits(2 * x + x)) << chip;
      EXPECT_EQ(lab.v(11, l), bits(3 * (100 + x) + 100 + x)) << chip;
    }
  }
}

TEST(Vopd, ExchangesRegisters) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    for (int l = 0; l < lab.lanes(); ++l) lab.v(2, l) = 7, lab.v(5, l) = 9;
    lab.run("v_dual_mov_b32 v2, v5 :: v_dual_mov_b32 v5, v2");
    EXPECT_EQ(lab.v(2), 9u) << chip;
    EXPECT_EQ(lab.v(5), 7u) << chip;
  }
}

}  // namespace
