// Loading PTX with a fake driver: as the assembler's machine code, or as text if there is no assembler or the driver
// refuses the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/driver.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;

std::vector<std::string> loaded;  // what the driver was given
bool takes_machine_code = true;

Driver driver() {
  Driver d;
  d.name = "cuda";
  d.form = &cuda_form();
  d.device_count = [](int* n) { return *n = 1, 0; };
  d.device_name = [](char* text, int size, int) {
    return std::strncpy(text, "a card", static_cast<std::size_t>(size)), 0;
  };
  d.total_memory = [](std::size_t* n, int) { return *n = 1 << 20, 0; };
  d.attribute = [](int* x, int which, int) { return *x = which == 75 ? 9 : which == 76 ? 0 : 132, 0; };
  d.version = [](int* v) { return *v = 12080, 0; };
  d.retain_context = [](void** c, int) { return *c = &loaded, 0; };
  d.get_context = [](void** c) { return *c = &loaded, 0; };
  d.set_context = [](void*) { return 0; };
  d.cuda_error = [](int, const char** text) { return *text = "device kernel image is invalid", 0; };
  d.module_load = [](void** module, const void* code) {
    const std::string text = static_cast<const char*>(code);
    if (text.starts_with("\177ELF") && !takes_machine_code) return 200;
    loaded.push_back(text);
    return *module = &loaded, 0;
  };
  d.module_unload = [](void*) { return 0; };
  d.module_function = [](void** f, void*, const char*) { return *f = &loaded, 0; };
  return d;
}

const std::string kPtx = ".version 8.1\n.target sm_90a\n.visible .entry one()\n{\n}\n.visible .entry two()\n{\n}\n";

PtxAssembler assembler() {
  return [](const std::string& ptx, const std::string& chip, int cuda) {
    return "\177ELF " + chip + " " + std::to_string(cuda) + (ptx.find("one()") != std::string::npos ? " one" : " two");
  };
}

TEST(PtxModule, KernelsAreMadeWhenTheyAreAskedFor) {
  const Driver d = driver();
  const auto module = make_gpu(d, 0, "cuda")->load(kPtx, assembler());
  loaded.clear();
  EXPECT_TRUE(module->lazy() && module->has("one") && !module->has("three"));
  EXPECT_TRUE(loaded.empty());
  for (const char* name : {"two", "one", "two"}) EXPECT_NE(module->function(name), nullptr);
  EXPECT_EQ(loaded, (std::vector<std::string>{"\177ELF sm_90a 12080 two", "\177ELF sm_90a 12080 one"}));
  EXPECT_THROW(module->function("three"), Error);
}

TEST(PtxModule, TheDriverCompilesWhatNoAssemblerMakes) {
  const Driver d = driver();
  const auto gpu = make_gpu(d, 0, "cuda");
  const auto none = [](const std::string&, const std::string&, int) { return std::optional<std::string>(); };
  for (const PtxAssembler& a : {PtxAssembler(), PtxAssembler(none)}) {
    loaded.clear();
    gpu->load(kPtx, a)->function("one");
    ASSERT_EQ(loaded.size(), 1u);
    EXPECT_THAT(loaded[0], testing::AllOf(HasSubstr(".version"), HasSubstr("one()"), testing::Not(HasSubstr("two()"))));
  }
}

// In a separate process: that it was refused is remembered.
TEST(PtxModule, RefusedMachineCodeIsSaidOnceAndCompiledByTheDriver) {
  const auto run = [] {
    const Driver d = driver();
    takes_machine_code = false;
    loaded.clear();
    int asked = 0;
    const auto module = make_gpu(d, 0, "cuda")->load(kPtx, [&](const std::string& p, const std::string& c, int v) {
      ++asked;
      return assembler()(p, c, v);
    });
    module->function("one");
    module->function("two");
    const bool texts = loaded.size() == 2 && loaded[0].starts_with(".version") && loaded[1].starts_with(".version");
    std::_Exit(texts && asked == 1 ? 0 : 1);
  };
  EXPECT_EXIT(
      run(), testing::ExitedWithCode(0),
      testing::AllOf(HasSubstr("image is invalid"), testing::Not(testing::ContainsRegex("not used.*not used"))));
}

}  // namespace
}  // namespace sardonyx
