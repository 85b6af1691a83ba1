// The bench itself: assembling, decoding, executing, EXEC, and what LLVM's disassembler must not be given.
#include "lab.h"

#include "sim/isa/decoder.h"

using namespace sardonyx::sim;

namespace {

TEST(LabTest, AddsActiveLanesOnEveryChip) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    for (int l = 0; l < lab.lanes(); ++l) lab.v(1, l) = static_cast<std::uint32_t>(l);
    lab.setExec(0x5);
    lab.run("v_or_b32 v2, v1, v1\nv_or_b32 v3, 64, v2");
    EXPECT_EQ(lab.v(3, 0), 64u);
    EXPECT_EQ(lab.v(3, 1), 0u);
    EXPECT_EQ(lab.v(3, 2), 66u);
  }
}

// LLVM 22 crashes on these; the simulator must call them unknown. VOP3 and buffer instructions with a literal that has
// no room, V_MFMA_*_F8F6F4 of scalar registers.
TEST(Decoding, EncodingsThatCrashLlvmAreUnknown) {
  const std::uint32_t codes[][4] = {{0xd058d9ff, 0x00228608},
                                    {0xe08eae7d, 0xffb13e17},
                                    {0xd3ae0240, 0x71019201},
                                    {0xd3ac0000, 0x00000200, 0xd3ae0240, 0x71019201}};
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"})
    for (const auto& code : codes) {
      Decoder& d = Decoder::shared(*findChip(chip), 64);
      auto inst = d.decode(reinterpret_cast<const std::uint8_t*>(code), sizeof code, 0);
      EXPECT_EQ(inst->fn, nullptr) << chip << std::hex << code[0];
    }
}

}  // namespace
