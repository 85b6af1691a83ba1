// Two functions of AMD's library have C++ linkage as well: its hip_ext.h declares them outside of extern "C". Declared
// here with AMD's names of the types, which decide the symbols; the other headers may not be included beside them.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

struct ihipModuleSymbol_t;
struct ihipModule_t;
struct ihipStream_t;
struct ihipEvent_t;

int hipExtModuleLaunchKernel(ihipModuleSymbol_t*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t, std::size_t, ihipStream_t*, void**, void**, ihipEvent_t*,
                             ihipEvent_t*, std::uint32_t);
int hipHccModuleLaunchKernel(ihipModuleSymbol_t*, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t,
                             std::uint32_t, std::uint32_t, std::size_t, ihipStream_t*, void**, void**, ihipEvent_t*,
                             ihipEvent_t*);
extern "C" {
int hipModuleLoad(ihipModule_t**, const char*);
int hipModuleUnload(ihipModule_t*);
int hipModuleGetFunction(ihipModuleSymbol_t**, ihipModule_t*, const char*);
int hipMalloc(void**, std::size_t);
int hipFree(void*);
int hipMemset(void*, int, std::size_t);
int hipMemcpy(void*, const void*, std::size_t, int);
int sardonyxSimConfigure(const char*);
const char* sardonyxSimLastFailure(void);
}

namespace {

TEST(CppLinkage, LaunchesByItemsInBothForms) {
  ASSERT_EQ(sardonyxSimConfigure(R"({"chips": ["gfx1100"]})"), 0);
  ihipModule_t* module = nullptr;
  ASSERT_EQ(hipModuleLoad(&module, (std::string(SIM_KERNELS) + "/faults.gfx1100.O2.co").c_str()), 0);
  ihipModuleSymbol_t* kernel = nullptr;
  ASSERT_EQ(hipModuleGetFunction(&kernel, module, "storeOne"), 0);
  void* out = nullptr;
  ASSERT_EQ(hipMalloc(&out, 256), 0);
  void* params[] = {&out};
  for (bool hcc : {false, true}) {
    ASSERT_EQ(hipMemset(out, 0, 256), 0);
    const int code =
        hcc ? hipHccModuleLaunchKernel(kernel, 48, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr, nullptr, nullptr)
            : hipExtModuleLaunchKernel(kernel, 48, 1, 1, 32, 1, 1, 0, nullptr, params, nullptr, nullptr, nullptr, 0);
    ASSERT_EQ(code, 0) << sardonyxSimLastFailure();
    std::uint32_t got[64];
    ASSERT_EQ(hipMemcpy(got, out, sizeof got, 2), 0);
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(got[i], i < 48 ? 1u : 0u) << hcc << " " << i;  // the last workgroup is partial
  }
  EXPECT_EQ(hipFree(out), 0);
  EXPECT_EQ(hipModuleUnload(module), 0);
}

}  // namespace
