// Code objects whose instructions were damaged: whatever the bytes mean now, a launch ends or fails, and the process
// goes on. Containers cut short are refused.
#include <elf.h>

#include "harness.h"

namespace {

std::string readKernel(const std::string& name) {
  std::ifstream file(std::string(SIM_KERNELS) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Robustness, DamagedInstructions) {
  Random r(1);
  for (const char* chip : {"gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"}) {
    ASSERT_EQ(sardonyxSimConfigure((std::string("{\"chips\": [\"") + chip + "\"], \"check_global_races\": true, " +
                                    "\"check_uninitialized\": false, \"max_instructions_per_wave\": 20000}")
                                       .c_str()),
              0);
    for (auto [stem, kernel] : {std::pair{"basic", "vectorAdd"}, {"shared", "reduceLds"}, {"memory", "ldsSpecial"}}) {
      const std::string whole = readKernel(std::string(stem) + "." + chip + ".O2.co");
      ASSERT_GT(whole.size(), sizeof(Elf64_Ehdr));
      Elf64_Ehdr header;
      std::memcpy(&header, whole.data(), sizeof header);
      std::size_t offset = 0, size = 0;
      for (int i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr p;
        std::memcpy(&p, whole.data() + header.e_phoff + static_cast<std::size_t>(i) * sizeof p, sizeof p);
        if (p.p_type == PT_LOAD && (p.p_flags & PF_X)) offset = p.p_offset, size = p.p_filesz;
      }
      ASSERT_GT(size, 0u);
      for (int round = 0; round < 20; ++round) {
        std::string damaged = whole;
        for (std::uint32_t k = r.u32() % 150 + 1; k > 0; --k)
          damaged[offset + r.u32() % size] = static_cast<char>(r.u32());
        hipModule_t module;
        hipFunction_t f;
        HIP_OK(hipModuleLoadData(&module, damaged.data()));
        HIP_OK(hipModuleGetFunction(&f, module, kernel));
        Buffer<float> memory(std::vector<float>(4096));
        float* p = memory.get();
        std::uint32_t n = 64;
        void* params[] = {&p, &p, &p, &n};
        hipError_t e = hipModuleLaunchKernel(f, 2, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr);
        EXPECT_TRUE(e == hipSuccess || e == hipErrorLaunchFailure) << e;
        HIP_OK(hipModuleUnload(module));
      }
    }
  }
}

TEST(Robustness, DamagedContainers) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx1100"]})"), 0);
  Random r(2);
  for (const char* name : {"saxpy.plain.hipfb", "saxpy.compressed.hipfb", "basic.gfx1100.O2.co"}) {
    const std::string whole = readKernel(name);
    ASSERT_GT(whole.size(), 1000u);
    const std::string path = testing::TempDir() + "/damaged.image";
    for (int round = 0; round < 60; ++round) {
      std::string damaged = whole;
      for (int k = 0; k < 20; ++k)
        damaged[r.u32() % (round % 2 ? 400 : static_cast<std::uint32_t>(whole.size()))] = static_cast<char>(r.u32());
      if (round % 5 == 0) damaged.resize(r.u32() % damaged.size());
      // From a file: an image in memory has the length that it claims, as HIP's interface passes none.
      std::ofstream(path, std::ios::binary) << damaged;
      hipModule_t module;
      if (hipModuleLoad(&module, path.c_str()) == hipSuccess) {
        HIP_OK(hipModuleUnload(module));
      }
    }
  }
}

}  // namespace
