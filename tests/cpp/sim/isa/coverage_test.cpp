// Which instructions of each chip have a handler. Every opcode number of every encoding is filled with a few operand
// patterns and decoded by LLVM: what LLVM knows, the simulator must execute, or the table below must say why not.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "sim/isa/decoder.h"
#include "sim/ops/table.h"

using namespace sardonyx::sim;

namespace {

/// One encoding: fixed bits of the first dword, and where its opcode is.
struct Encoding {
  const char* name;
  std::uint32_t fixed, fixedMask;
  int opShift, opBits;
};

// ISA documents, "Microcode Formats".
const Encoding kGfx9[] = {
    {"SOP2", 0x80000000, 0xc0000000, 23, 7},   {"SOPK", 0xb0000000, 0xf0000000, 23, 5},
    {"SOP1", 0xbe800000, 0xff800000, 8, 8},    {"SOPC", 0xbf000000, 0xff800000, 16, 7},
    {"SOPP", 0xbf800000, 0xff800000, 16, 7},   {"VOP2", 0x00000000, 0x80000000, 25, 6},
    {"VOP1", 0x7e000000, 0xfe000000, 9, 8},    {"VOPC", 0x7c000000, 0xfe000000, 17, 8},
    {"VOP3", 0xd0000000, 0xfc000000, 16, 10},  {"VOP3P", 0xd3800000, 0xff800000, 16, 7},
    {"SMEM", 0xc0000000, 0xfc000000, 18, 8},   {"DS", 0xd8000000, 0xfc000000, 17, 8},
    {"FLAT", 0xdc000000, 0xfc00c000, 18, 7},   {"SCRATCH", 0xdc004000, 0xfc00c000, 18, 7},
    {"GLOBAL", 0xdc008000, 0xfc00c000, 18, 7}, {"MUBUF", 0xe0000000, 0xfc000000, 18, 7},
    {"MTBUF", 0xe8000000, 0xfc000000, 15, 4},  {"MIMG", 0xf0000000, 0xfc000000, 18, 7},
};
const Encoding kGfx10[] = {
    {"SOP2", 0x80000000, 0xc0000000, 23, 7},    {"SOPK", 0xb0000000, 0xf0000000, 23, 5},
    {"SOP1", 0xbe800000, 0xff800000, 8, 8},     {"SOPC", 0xbf000000, 0xff800000, 16, 7},
    {"SOPP", 0xbf800000, 0xff800000, 16, 7},    {"VOP2", 0x00000000, 0x80000000, 25, 6},
    {"VOP1", 0x7e000000, 0xfe000000, 9, 8},     {"VOPC", 0x7c000000, 0xfe000000, 17, 8},
    {"VOP3", 0xd4000000, 0xfc000000, 16, 10},   {"VOP3P", 0xcc000000, 0xff800000, 16, 7},
    {"VINTRP", 0xc8000000, 0xfc000000, 16, 2},  {"SMEM", 0xf4000000, 0xfc000000, 18, 8},
    {"DS", 0xd8000000, 0xfc000000, 18, 8},      {"FLAT", 0xdc000000, 0xfc00c000, 18, 7},
    {"SCRATCH", 0xdc004000, 0xfc00c000, 18, 7}, {"GLOBAL", 0xdc008000, 0xfc00c000, 18, 7},
    {"MUBUF", 0xe0000000, 0xfc000000, 18, 8},   {"MTBUF", 0xe8000000, 0xfc000000, 16, 3},
    {"MIMG", 0xf0000000, 0xfc000000, 18, 7},    {"EXP", 0xf8000000, 0xfc000000, 4, 6},
};
const Encoding kGfx11[] = {
    {"SOP2", 0x80000000, 0xc0000000, 23, 7},    {"SOPK", 0xb0000000, 0xf0000000, 23, 5},
    {"SOP1", 0xbe800000, 0xff800000, 8, 8},     {"SOPC", 0xbf000000, 0xff800000, 16, 7},
    {"SOPP", 0xbf800000, 0xff800000, 16, 7},    {"VOP2", 0x00000000, 0x80000000, 25, 6},
    {"VOP1", 0x7e000000, 0xfe000000, 9, 8},     {"VOPC", 0x7c000000, 0xfe000000, 17, 8},
    {"VOP3", 0xd4000000, 0xfc000000, 16, 10},   {"VOP3P", 0xcc000000, 0xff800000, 16, 7},
    {"VINTERP", 0xcd000000, 0xff000000, 16, 7}, {"VOPD", 0xc8000000, 0xfc000000, 17, 9},
    {"SMEM", 0xf4000000, 0xfc000000, 18, 8},    {"DS", 0xd8000000, 0xfc000000, 18, 8},
    {"FLAT", 0xdc000000, 0xfc030000, 18, 7},    {"SCRATCH", 0xdc010000, 0xfc030000, 18, 7},
    {"GLOBAL", 0xdc020000, 0xfc030000, 18, 7},  {"MUBUF", 0xe0000000, 0xfc000000, 18, 8},
    {"MTBUF", 0xe8000000, 0xfc000000, 15, 4},   {"MIMG", 0xf0000000, 0xfc000000, 18, 8},
    {"LDSDIR", 0xce000000, 0xff000000, 20, 2},  {"EXP", 0xf8000000, 0xfc000000, 4, 6},
};
const Encoding kGfx12[] = {
    {"SOP2", 0x80000000, 0xc0000000, 23, 7},    {"SOPK", 0xb0000000, 0xf0000000, 23, 5},
    {"SOP1", 0xbe800000, 0xff800000, 8, 8},     {"SOPC", 0xbf000000, 0xff800000, 16, 7},
    {"SOPP", 0xbf800000, 0xff800000, 16, 7},    {"VOP2", 0x00000000, 0x80000000, 25, 6},
    {"VOP1", 0x7e000000, 0xfe000000, 9, 8},     {"VOPC", 0x7c000000, 0xfe000000, 17, 8},
    {"VOP3", 0xd4000000, 0xfc000000, 16, 10},   {"VOP3P", 0xcc000000, 0xff800000, 16, 7},
    {"VINTERP", 0xcd000000, 0xff000000, 16, 7}, {"VOPD", 0xc8000000, 0xfc000000, 17, 9},
    {"SMEM", 0xf4000000, 0xfc000000, 13, 6},    {"VDS", 0xd8000000, 0xfc000000, 18, 8},
    {"VFLAT", 0xec000000, 0xff000000, 14, 8},   {"VSCRATCH", 0xed000000, 0xff000000, 14, 8},
    {"VGLOBAL", 0xee000000, 0xff000000, 14, 8}, {"VBUFFER", 0xc4000000, 0xfc000000, 14, 8},
    {"VIMAGE", 0xd0000000, 0xfc000000, 14, 8},  {"VSAMPLE", 0xe4000000, 0xfc000000, 14, 8},
    {"VDSDIR", 0xce000000, 0xff000000, 20, 2},  {"VEXPORT", 0xf8000000, 0xfc000000, 4, 6},
};

struct Found {
  int decoded = 0, refused = 0;
  std::set<std::string> examples;  ///< refused forms
};

class Lister {
 public:
  Lister(const Chip& chip, int waveSize) : decoder_(Decoder::shared(chip, waveSize)) {
    switch (chip.gen) {
      case Gen::kGfx9:
        for (const Encoding& e : kGfx9) list(e);
        break;
      case Gen::kGfx10:
        for (const Encoding& e : kGfx10) list(e);
        break;
      case Gen::kGfx11:
        for (const Encoding& e : kGfx11) list(e);
        break;
      case Gen::kGfx12:
        for (const Encoding& e : kGfx12) list(e);
        break;
    }
  }
  std::map<std::string, Found> found;

 private:
  std::uint32_t random() {
    state_ ^= state_ << 13, state_ ^= state_ >> 17, state_ ^= state_ << 5;
    return state_;
  }
  void list(const Encoding& e) {
    std::uint32_t opMask = ((1u << e.opBits) - 1) << e.opShift;
    for (std::uint32_t op = 0; op < 1u << e.opBits; ++op) {
      if (((op << e.opShift) & e.fixedMask & ~e.fixed) != 0) continue;
      for (int k = 0; k < 48; ++k) {
        std::uint32_t words[5];
        for (auto& w : words) w = random();
        // Half of the fills are sparse: most fields zero, which reserved fields need.
        if (k % 2)
          for (auto& w : words) w &= random() & random();
        words[0] = (words[0] & ~(e.fixedMask | opMask)) | e.fixed | op << e.opShift;
        tryOne(e, words);
      }
    }
  }
  void tryOne(const Encoding&, const std::uint32_t (&words)[5]) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(words);
    std::string text = decoder_.text(bytes, sizeof words, 0);
    if (text.compare(0, 5, ".long") == 0) return;
    auto inst = decoder_.decode(bytes, sizeof words, 0);
    std::string name = text.substr(0, text.find(' '));
    for (const char* suffix : {"_dpp8", "_dpp", "_sdwa", "_e64", "_e32"}) {
      std::string s = suffix;
      if (name.size() > s.size() && name.compare(name.size() - s.size(), s.size(), s) == 0)
        name.resize(name.size() - s.size());
    }
    // Operands that only other chips or graphics have: not of interest here.
    for (const char* reserved : {"src_flat_scratch_base", "src_pops_exiting", "src_lds_direct"})
      if (text.find(reserved) != std::string::npos) return;
    Found& f = found[name];
    ++f.decoded;
    if (inst->fn) return;
    ++f.refused;
    f.examples.insert(text);
  }

  Decoder& decoder_;
  std::uint32_t state_ = 12345;
};

/// What is left out on purpose: instructions by the start of their name, operand forms by a word of their text.
struct LeftOut {
  const char* start;
  const char* word;
  const char* reason;
};
const LeftOut kLeftOut[] = {
    {"image_", "", "textures: no kernel of ROCm's compute libraries uses them"},
    {"exp", "", "output of graphics shaders"},
    {"v_interp_", "", "interpolation of graphics attributes"},
    {"lds_direct_load", "", "graphics attributes in LDS"},
    {"lds_param_load", "", "graphics attributes in LDS"},
    {"ds_direct_load", "", "graphics attributes in LDS"},
    {"ds_param_load", "", "graphics attributes in LDS"},
    {"ds_bvh_stack", "", "ray tracing"},
    {"ds_sub_gs_reg_rtn", "", "streamout of graphics"},
    {"v_screen_partition_4se_b32", "", "partition of the screen in graphics"},
    {"s_endpgm_ordered_ps_done", "", "pixel shaders"},
    {"global_atomic_ordered_add_b64", "", "ordered append of graphics"},
    {"", " gds", "global data share: removed from ROCm's compute interface"},
    {"", " tfe", "loads that report residency of textures"},
    {"buffer_load_format_x", " lds", "format conversion on the way to LDS"},
    {"s_store_", "", "scalar writes: compilers do not use them, vector memory does not see them"},
    {"s_buffer_store_", "", "scalar writes, as above"},
    {"s_scratch_", "", "scalar access to scratch: not used by compilers"},
    {"s_atomic_", "", "scalar atomics: in LLVM's tables, in no supported chip's ISA document"},
    {"s_buffer_atomic_", "", "scalar atomics, as above"},
    {"s_dcache_discard", "", "discards scalar writes"},
    {"s_atc_probe", "", "prefetch of address translations for graphics"},
    {"global_load_block", "", "of gfx1250; LLVM decodes it for all of gfx12"},
    {"global_store_block", "", "as above"},
    {"scratch_load_block", "", "as above"},
    {"scratch_store_block", "", "as above"},
    {"s_barrier_init", "", "named barriers: of gfx1250, not in RDNA4's ISA document"},
    {"s_barrier_join", "", "as above"},
    {"s_barrier_leave", "", "as above"},
    {"s_alloc_vgpr", "", "dynamic registers: a mode that HSA kernels are not launched in"},
    {"s_cbranch_g_fork", "", "branch stack of older chips: compilers use EXEC"},
    {"s_cbranch_i_fork", "", "as above"},
    {"s_cbranch_join", "", "as above"},
    {"s_setvskip", "", "as above"},
    {"s_subvector_loop", "", "halves of a wave64 one after the other: not used by compilers"},
    {"s_rfe_", "", "return from the trap handler: privileged"},
    {"v_illegal", "", "an illegal instruction by definition"},
    {"v_mfma_ld_scale_b32", "", "the first half of V_MFMA_SCALE_* without the second"},
};

TEST(Coverage, EveryInstructionHasAHandlerOrAReason) {
  std::set<const LeftOut*> used;
  for (const Chip& chip : allChips()) {
    for (int size : {32, 64}) {
      if (size == 32 ? !chip.allowsWave32 : !chip.allowsWave64) continue;
      Lister l(chip, size);
      EXPECT_GT(l.found.size(), 900u) << chip.name;
      for (const auto& [name, f] : l.found) {
        for (const std::string& example : f.examples) {
          bool excused = false;
          for (const LeftOut& out : kLeftOut) {
            if (name.compare(0, std::string(out.start).size(), out.start) != 0) continue;
            if (example.find(out.word) == std::string::npos) continue;
            excused = true;
            used.insert(&out);
          }
          EXPECT_TRUE(excused) << chip.name << " wave" << size << ": " << example
                               << (findOp(name) ? ": this operand form is not implemented" : ": not implemented");
        }
      }
    }
  }
  for (const LeftOut& out : kLeftOut)
    EXPECT_TRUE(used.count(&out)) << out.start << out.word << " is listed as left out, but nothing needs it";
}

// Facts of LLVM's instruction descriptions that isa/encoding.h repeats, by their consequences.
TEST(Coverage, NamesOfDualIssueHalves) {
  EXPECT_NE(findOp("v_dot2acc_f32_f16"), nullptr);
  EXPECT_EQ(findOp("no_such_instruction"), nullptr);
  EXPECT_GT(allOps().size(), 1500u);
}

}  // namespace
