// Operands that name half a register (v1.l, v1.h): RDNA 3 ISA, section 7.1.1, "16-bit operands"; LLVM's feature
// real-true16. Every such instruction that LLVM decodes is found by filling its encoding, as coverage_test.cpp does.
#include <map>
#include <regex>
#include <set>

#include "assembler.h"
#include "lab.h"
#include "sim/isa/decoder.h"

using namespace sardonyx::sim;

namespace {

using U = std::uint32_t;

/// The mnemonic with operands, of every instruction of the encodings VOP1, VOP2, VOPC and VOP3 with an operand of half
/// a register; destination v1 (and v[2:3] where it is wider), sources v8, v10, v12, all in lower halves.
std::set<std::string> instructionsOnHalves(const char* chip) {
  const U kVccLo = 106, vop1 = 0x7e000000, vop2 = 0, vopc = 0x7c000000, vop3 = 0xd4000000;
  std::set<std::string> found;
  Decoder& d = Decoder::shared(*findChip(chip), 32);
  auto tryOne = [&](U low, U high) {
    const U words[4] = {low, high, 0, 0};
    std::string text = d.text(reinterpret_cast<const std::uint8_t*>(words), sizeof words, 0);
    if (text.find(".l") == std::string::npos || text.find(".long") != std::string::npos) return;
    if (std::regex_match(text, std::regex("v_cndmask.* v12"))) return;  // LLVM decodes a mask in a vector register
    found.insert(text);
  };
  for (U op = 0; op < 256; ++op) tryOne(vop1 | op << 9 | 2u << 17 | 264, 0);
  for (U op = 0; op < 64; ++op) tryOne(vop2 | op << 25 | 2u << 17 | 10u << 9 | 264, 0x3c00);
  for (U op = 0; op < 256; ++op) tryOne(vopc | op << 17 | 10u << 9 | 264, 0);
  for (U op = 0; op < 1024; ++op)
    for (U dst : {2u, kVccLo})  // a mask as result, or as the third source
      for (U third : {268u, kVccLo}) tryOne(vop3 | op << 16 | dst, 264 | 266u << 9 | third << 18);
  return found;
}

struct Result {
  std::vector<U> v, s;
  bool operator==(const Result&) const = default;
};

/// Runs `text` on registers full of numbers, of which the halves of those in `swapped` have changed places.
Result execute(const char* chip, const std::string& text, const std::set<int>& swapped) {
  Lab lab(chip);
  std::uint64_t state = 88172645463325252ull;
  for (int r = 0; r < 32; ++r)
    for (int l = 0; l < lab.lanes(); ++l) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      // Halves are numbers of moderate size as floats, most of the time.
      U value = static_cast<U>(state >> 20);
      if (l % 4) value = (value & 0x83ff83ff) | (0x3000 + (value >> 5 & 0xc00)) | (0x3400 + (value >> 7 & 0x800)) << 16;
      lab.v(r, l) = swapped.count(r) ? value << 16 | value >> 16 : value;
    }
  lab.s(kVcc) = 0x5a5a3c96;
  lab.run(text);
  Result out;
  for (int r = 0; r < 32; ++r)
    for (int l = 0; l < lab.lanes(); ++l) {
      U value = lab.v(r, l);
      out.v.push_back(swapped.count(r) ? value << 16 | value >> 16 : value);
    }
  out.s.assign(lab.wave.s, lab.wave.s + 128);
  return out;
}

// An instruction on upper halves does to them what it does on lower halves to those: with the halves of a register
// swapped and its name changed from .l to .h, everything else comes out the same.
TEST(True16, UpperHalvesAreTreatedAsLowerOnes) {
  const std::regex half(R"(v(\d+)\.l)");
  for (const char* chip : {"gfx1100", "gfx1151", "gfx1201"}) {
    const std::set<std::string> all = instructionsOnHalves(chip);
    EXPECT_GT(all.size(), 150u) << chip;
    for (const std::string& text : all) {
      std::set<int> names;
      for (std::sregex_iterator m(text.begin(), text.end(), half), end; m != end; ++m) names.insert(std::stoi((*m)[1]));
      const Result low = execute(chip, text, {});
      for (int name : names) {
        // A register that is also read or written as a whole would not be the same thing with its halves swapped.
        const std::string r = "v" + std::to_string(name);
        if (std::regex_search(text, std::regex(r + R"((?!\d|\.))"))) continue;
        const std::string upper = std::regex_replace(text, std::regex(r + R"(\.l)"), r + ".h");
        EXPECT_TRUE(execute(chip, upper, {name}) == low) << chip << ": " << upper;
      }
    }
  }
}

TEST(True16, WritesLeaveTheOtherHalfAlone) {
  for (const char* chip : {"gfx1100", "gfx1150", "gfx1200", "gfx1201"}) {
    Lab lab(chip);
    lab.fill(18, 0x11112222u), lab.fill(25, 0x33334444u);
    lab.run("v_mov_b16 v18.h, v25.l");
    EXPECT_EQ(lab.v(18), 0x44442222u) << chip;
    lab.run("v_mov_b16 v18.l, v25.h");
    EXPECT_EQ(lab.v(18), 0x44443333u) << chip;
    lab.fill(1, 0x3c004000u), lab.fill(2, 0x42004400u);  // 1, 2; 3, 4
    lab.run("v_add_f16 v1.h, v1.l, v2.h");
    EXPECT_EQ(lab.v(1), 0x45004000u) << chip;  // 2 + 3
    lab.run("v_fma_f16 v1.l, v2.l, v2.h, v2.l");
    EXPECT_EQ(lab.v(1), 0x45004c00u) << chip;  // 4 * 3 + 4
    lab.run("v_swap_b16 v1.l, v2.h");
    EXPECT_EQ(lab.v(1), 0x45004200u) << chip;
    EXPECT_EQ(lab.v(2), 0x4c004400u) << chip;
    lab.run("v_add_f16 v200.h, v1.h, v2.l");  // registers above v127 have no room in VOP2
    EXPECT_EQ(lab.v(200), 0x48800000u) << chip;
    lab.run("v_cvt_f32_f16 v3, v2.h\nv_pack_b32_f16 v4, v1.h, v2.l\nv_cmp_lt_f16 vcc_lo, v1.l, v1.h");
    EXPECT_EQ(lab.f(3), 16.0f) << chip;
    EXPECT_EQ(lab.v(4), 0x44004500u) << chip;
    EXPECT_EQ(lab.s(kVcc), 0xffffffffu) << chip;
  }
}

// A pending load into one half does not stand in the way of the other: loads of d16 write no more than their half.
TEST(True16, WaitsAreForHalves) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    const bool gfx12 = std::string(chip) == "gfx1201";
    const std::string wait = gfx12 ? "\ns_wait_dscnt 0x0\n" : "\ns_waitcnt lgkmcnt(0)\n";
    const auto fault = [&](const std::string& text) {
      Lab lab(chip);
      Workgroup group;
      group.lds = {0x11, 0x22, 0x33, 0x44};
      lab.wave.group = &group;
      return lab.fault(text);
    };
    EXPECT_EQ(fault("ds_load_u16_d16_hi v1, v0\nv_mov_b16 v2.l, v1.l"), "") << chip;
    EXPECT_EQ(fault("ds_load_u16_d16 v1, v0\nv_mov_b16 v2.l, v1.h"), "") << chip;
    EXPECT_EQ(fault("ds_load_u16_d16 v1, v0\nds_load_u16_d16_hi v1, v0" + wait + "v_mov_b32 v2, v1"), "") << chip;
    for (const char* text :
         {"ds_load_u16_d16_hi v1, v0\nv_mov_b16 v2.l, v1.h", "ds_load_u16_d16 v1, v0\nv_mov_b16 v2.l, v1.l",
          "ds_load_u16_d16_hi v1, v0\nv_mov_b32 v2, v1", "ds_load_u16_d16 v1, v0\nv_mov_b32 v2, v1",
          "ds_load_b32 v1, v0\nv_mov_b16 v2.l, v1.h", "ds_load_u16_d16_hi v1, v0\nv_mov_b16 v1.h, v2.l",
          "ds_load_b32 v1, v0\nds_load_u16_d16 v1, v0\nv_mov_b16 v2.l, v1.h"})
      EXPECT_NE(fault(text).find("before a wait covers"), std::string::npos) << chip << ": " << text;
  }
}

// LLVM, GCNSubtarget::d16PreservesUnusedBits: with SRAM-ECC a load into half a register clears the other half.
TEST(HalfLoads, ClearTheOtherHalfWithSramEcc) {
  for (const char* chip : kChips) {
    const std::string name = chip;
    const bool clears = name.rfind("gfx9", 0) == 0, gfx11 = name.rfind("gfx11", 0) == 0 || name.rfind("gfx12", 0) == 0;
    const std::string load = gfx11 ? "ds_load_" : "ds_read_";
    const std::string wait = name.rfind("gfx12", 0) == 0 ? "\ns_wait_dscnt 0x0" : "\ns_waitcnt lgkmcnt(0)";
    Lab lab(chip);
    Workgroup group;
    group.lds = {0x81, 0x22, 0x33, 0x44};
    lab.wave.group = &group;
    for (int r = 1; r < 7; ++r) lab.fill(r, 0xaaaabbbbu);
    lab.wave.s[kM0] = ~0u;
    lab.run(load + "u16_d16 v1, v0" + wait + "\n" + load + "u16_d16_hi v2, v0" + wait);
    EXPECT_EQ(lab.v(1), clears ? 0x00002281u : 0xaaaa2281u) << chip;
    EXPECT_EQ(lab.v(2), clears ? 0x22810000u : 0x2281bbbbu) << chip;
    lab.run(load + "i8_d16 v3, v0" + wait + "\n" + load + "u8_d16_hi v4, v0" + wait);
    EXPECT_EQ(lab.v(3), clears ? 0x0000ff81u : 0xaaaaff81u) << chip;
    EXPECT_EQ(lab.v(4), clears ? 0x00810000u : 0x0081bbbbu) << chip;
  }
}

}  // namespace
