// The table of chips: facts that the build cannot check by itself. chips.cpp has the consistency of its rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "compile/compiler.h"
#include "sardonyx/error.h"
#include "target/chip.h"
#include "target/describe.h"
#include "target/timing.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

TEST(Chips, EveryTargetOfTheCompilerIsARow) {
  std::set<std::string> targets;
  for (const std::string& t : known_targets())
    if (parse_target(t).kind != TargetKind::kHost) targets.insert(t);
  std::set<std::string> rows;
  for (const Chip& c : all_chips()) rows.insert(std::string(c.name));
  EXPECT_EQ(targets, rows);
}

// LLVM's own table, through the code objects that it writes: the ELF machine number is the chip's.
TEST(Chips, MachineNumbersAreThoseOfTheCompiler) {
  constexpr const char* kSource = "extern \"C\" [[clang::amdgpu_kernel]] void k(int* p) { *p = 1; }";
  int amd = 0;
  for (const Chip& c : all_chips()) {
    if (c.is_nvidia()) continue;
    const std::string code = compile(kSource, {}, parse_target(c.name));
    std::uint32_t flags = 0;
    ASSERT_GT(code.size(), 52u);
    std::memcpy(&flags, code.data() + 48, sizeof flags);  // e_flags of a 64-bit ELF header
    EXPECT_EQ(flags & 0xff, static_cast<unsigned>(c.elf_machine)) << c.name;
    EXPECT_EQ(chip_of_machine(flags & 0xff), &c);
    ++amd;
  }
  EXPECT_GE(amd, 12);
  EXPECT_EQ(chip_of_machine(0), nullptr);
}

// Kernels are told what the table says: the definitions of each chip reach the preprocessor, and agree with the
// generation that clang says the chip is of.
TEST(Chips, DefinitionsReachKernels) {
  for (const Chip& c : all_chips()) {
    std::string source;
    for (const std::string& d : kernel_definitions(c)) {
      const std::size_t eq = d.find('=');
      source += "#if !defined(" + d.substr(0, eq) + ")\n#error missing " + d + "\n#endif\n";
    }
    source += "#if defined(__GFX9__)\nstatic_assert(SDX_WAVE == 64);\n#else\nstatic_assert(SDX_WAVE == 32);\n#endif\n";
    EXPECT_NO_THROW(compile(source, {}, parse_target(c.name))) << c.name;
  }
}

TEST(Chips, DefinitionsOfEachFamily) {
  EXPECT_THAT(kernel_definitions(chip_of("gfx1030")), ElementsAre("SDX_WAVE=32"));
  EXPECT_THAT(kernel_definitions(chip_of("gfx90a")),
              ElementsAre("SDX_WAVE=64", "SDX_MATRIX_LAYOUT=kMfma", "SDX_MATRIX_F32=4", "SDX_MATRIX_F16=16",
                          "SDX_MATRIX_BF16=16", "SDX_MATRIX_I8=16", "SDX_NO_FLOAT_ATOMICS=1"));
  EXPECT_THAT(kernel_definitions(chip_of("gfx950")),
              ElementsAre("SDX_WAVE=64", "SDX_MATRIX_LAYOUT=kMfma", "SDX_MATRIX_F32=4", "SDX_MATRIX_F16=32",
                          "SDX_MATRIX_BF16=32", "SDX_MATRIX_I8=32", "SDX_MATRIX_F8_OCP=32", "SDX_DIES=8",
                          "SDX_BF16_CONVERT=1", "SDX_LOADS_TO_LDS=1", "SDX_NATIVE_MAXIMUM=1"));
  EXPECT_THAT(kernel_definitions(chip_of("sm_90a")),
              ElementsAre("SDX_WAVE=32", "SDX_MATRIX_LAYOUT=kMma", "SDX_MATRIX_F16=16", "SDX_MATRIX_BF16=16",
                          "SDX_MATRIX_I8=32", "SDX_MATRIX_F8_OCP=16", "SDX_F8_CONVERT=1", "SDX_NATIVE_MAXIMUM=1"));
}

TEST(Chips, Lookup) {
  EXPECT_EQ(find_chip("gfx942:sramecc+:xnack-"), &chip_of("gfx942"));
  EXPECT_EQ(find_chip("x86_64 znver4"), nullptr);
  EXPECT_EQ(find_chip(""), nullptr);
  try {
    chip_of("gfx000");
    FAIL() << "gfx000 is no chip";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(e.what(), testing::AllOf(HasSubstr("gfx000"), HasSubstr("gfx942"), HasSubstr("sm_90a")));
  }
  EXPECT_THAT(amd_chips(), IsSupersetOf({"gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"}));
  for (const std::string& name : amd_chips()) EXPECT_FALSE(chip_of(name).is_nvidia()) << name;
}

TEST(Chips, NvidiaCardsByCapability) {
  EXPECT_EQ(nvidia_chip(7, 5), nullptr);
  EXPECT_EQ(nvidia_chip(8, 0)->name, "sm_80");
  EXPECT_EQ(nvidia_chip(8, 9)->name, "sm_80");
  EXPECT_EQ(nvidia_chip(9, 0)->name, "sm_90a");
  EXPECT_EQ(nvidia_chip(10, 0)->name, "sm_90");  // sm_90a's instructions are on no later chip
  EXPECT_EQ(nvidia_chip(12, 0)->name, "sm_90");
}

TEST(Chips, CodeRunsOn) {
  EXPECT_TRUE(code_runs_on("gfx942", "gfx942"));
  EXPECT_FALSE(code_runs_on("gfx942", "gfx950"));
  EXPECT_TRUE(code_runs_on("sm_80", "sm_80") && code_runs_on("sm_80", "sm_90") && code_runs_on("sm_80", "sm_90a"));
  EXPECT_TRUE(code_runs_on("sm_90", "sm_90a"));
  EXPECT_FALSE(code_runs_on("sm_90", "sm_80"));
  EXPECT_FALSE(code_runs_on("sm_90a", "sm_90"));
  EXPECT_FALSE(code_runs_on("sm_80", "gfx942") || code_runs_on("gfx942", "sm_80"));
  EXPECT_TRUE(code_runs_on("x86_64 znver4", "x86_64 znver4"));
  EXPECT_FALSE(code_runs_on("x86_64", "sm_80"));
}

// Worked out from the register files and LDS pools: 512 registers by 8 and 64 KiB (CDNA 2, 3) or 160 KiB (CDNA 4), 1536
// by 24 or 1024 by 16 and 128 KiB (RDNA).
TEST(Chips, Occupancy) {
  const auto waves = [](std::string_view chip, int registers, std::uint32_t lds) {
    return waves_per_simd(chip_of(chip), registers, lds, 256);
  };
  EXPECT_EQ(waves("gfx942", 1, 0), 8);
  EXPECT_EQ(waves("gfx942", 64, 0), 8);
  EXPECT_EQ(waves("gfx942", 65, 0), 7);
  EXPECT_EQ(waves("gfx942", 128, 0), 4);
  EXPECT_EQ(waves("gfx942", 512, 0), 1);
  EXPECT_EQ(waves("gfx942", 64, 32768), 2);
  EXPECT_EQ(waves("gfx950", 64, 32768), 5);
  EXPECT_EQ(waves("gfx1100", 96, 0), 16);
  EXPECT_EQ(waves("gfx1100", 97, 0), 12);
  EXPECT_EQ(waves("gfx1102", 96, 0), 10);
  EXPECT_EQ(waves("gfx1100", 32, 65536), 4);
}

// Sizes of the register files of a pool of four SIMDs in KiB: ROCm documentation, "AMD GPU specifications".
TEST(Chips, RegisterFilesHaveTheirPublishedSizes) {
  const auto vector_kib = [](const Chip& c) { return c.registers.vector * c.wave * 4 * 4 / 1024; };
  const auto scalar_bytes = [](const Chip& c) { return c.registers.scalar * 4 * 4; };
  for (const char* cdna : {"gfx90a", "gfx942", "gfx950"}) {
    EXPECT_EQ(vector_kib(chip_of(cdna)), 512);
    EXPECT_EQ(scalar_bytes(chip_of(cdna)), 12800);
  }
  for (const char* large : {"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"})
    EXPECT_EQ(vector_kib(chip_of(large)), 768) << large;
  for (const char* small : {"gfx1030", "gfx1102", "gfx1103", "gfx1150"}) {
    EXPECT_EQ(vector_kib(chip_of(small)), 512) << small;
    EXPECT_EQ(scalar_bytes(chip_of(small)), 32 << 10);
  }
  for (const char* nvidia : {"sm_80", "sm_90", "sm_90a"}) EXPECT_EQ(vector_kib(chip_of(nvidia)), 256);  // 65,536
}

// Rates that the makers publish per clock and unit: "AMD matrix cores" and "Using the Matrix Cores of AMD RDNA 4
// architecture GPUs" on GPUOpen, "AMD CDNA 3 Architecture", "Introducing AMD CDNA 4 Architecture", and for an SM the
// A100 and H100 white papers. They do not come from the table's cycles.
TEST(Chips, RatesPerClock) {
  struct Row {
    const char* chip;
    double float32, float16, int8;
  };
  for (const Row& r : {Row{"gfx90a", 256, 1024, 1024}, Row{"gfx942", 256, 2048, 4096}, Row{"gfx950", 256, 4096, 8192},
                       Row{"gfx1030", 128, 256, 512}, Row{"gfx1100", 256, 512, 512}, Row{"gfx1201", 256, 1024, 2048},
                       Row{"sm_80", 128, 2048, 4096}, Row{"sm_90a", 256, 4096, 8192}}) {
    const Chip& c = chip_of(r.chip);
    EXPECT_EQ(operations_per_clock(c, DType::kFloat32), r.float32) << r.chip;
    EXPECT_EQ(operations_per_clock(c, DType::kFloat16), r.float16) << r.chip;
    EXPECT_EQ(operations_per_clock(c, DType::kBFloat16), r.float16 == 256 ? 128 : r.float16) << r.chip;
    EXPECT_EQ(operations_per_clock(c, DType::kInt8), r.int8) << r.chip;
  }
  EXPECT_EQ(operations_per_clock(chip_of("gfx942"), DType::kFloat8E4M3FNUZ), 4096);
  EXPECT_EQ(operations_per_clock(chip_of("gfx950"), DType::kFloat8E4M3FN), 8192);
  EXPECT_EQ(operations_per_clock(chip_of("gfx950"), DType::kFloat4E2M1), 16384);
  EXPECT_EQ(operations_per_clock(chip_of("gfx942"), DType::kFloat4E2M1), 0);
}

TEST(Chips, DriversCountRdnaInPairsOfUnits) {
  EXPECT_EQ(driver_units(chip_of("gfx1100")), 48);
  EXPECT_EQ(driver_units(chip_of("gfx942")), 304);
  EXPECT_EQ(driver_units(chip_of("sm_90a")), 132);
}

TEST(Chips, JsonHasEveryRow) {
  const auto json = nlohmann::json::parse(chips_json());
  ASSERT_EQ(json.size(), all_chips().size());
  EXPECT_EQ(json[1]["chip"], "gfx942");
  EXPECT_EQ(json[1]["float8"], "FNUZ");
  EXPECT_EQ(json[1]["products"][0]["name"], "Instinct MI300X");
  EXPECT_NEAR(json[1]["products"][0]["operations_per_second"]["float16"].get<double>(), 1307.4e12, 1e11);
}

TEST(Chips, TheSimulatorsClockKnowsEveryAmdChip) {
  for (const std::string& name : amd_chips()) EXPECT_NE(timing_facts(name), nullptr) << name << " is not in timing.h";
}

// docs/devices.md has the same table as `sardonyx devices --chips`.
TEST(Chips, DocumentationHasTheTable) {
  std::ifstream file(SARDONYX_DOCS "/devices.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str().find(chips_markdown()) != std::string::npos)
      << "replace the tables of \"Chips\" in docs/devices.md by what `sardonyx devices --chips` prints:\n"
      << chips_markdown();
}

}  // namespace
}  // namespace sardonyx
