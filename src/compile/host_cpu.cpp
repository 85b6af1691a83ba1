// CPU detection. On x86-64 with CPUID (Intel's Software Developer's Manual, volume 2A, CPUID; AMD's Architecture
// Programmer's Manual, volume 3, appendix E), so that finding compiled code in the cache needs no LLVM.
#include "compile/host_cpu.h"

#include "support/error.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <algorithm>
#include <cstdint>

#include "host/simd.h"
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace sardonyx {

#if defined(__x86_64__)
namespace {

enum Leaf { k1, k7, k7_1, kExtended, kLeaves };
enum Register { kEax, kEbx, kEcx, kEdx };
enum State { kNone, kAvx, kAvx512 };  // what the operating system must save

struct Feature {
  const char* name;
  Leaf leaf;
  Register reg;
  int bit;
  State state = kNone;
};

// Features that code generation may use, by LLVM's names; sorted, because the text is part of cache keys.
constexpr Feature kFeatures[] = {
    {"adx", k7, kEbx, 19},
    {"aes", k1, kEcx, 25},
    {"avx", k1, kEcx, 28, kAvx},
    {"avx2", k7, kEbx, 5, kAvx},
    {"avx512bf16", k7_1, kEax, 5, kAvx512},
    {"avx512bitalg", k7, kEcx, 12, kAvx512},
    {"avx512bw", k7, kEbx, 30, kAvx512},
    {"avx512cd", k7, kEbx, 28, kAvx512},
    {"avx512dq", k7, kEbx, 17, kAvx512},
    {"avx512f", k7, kEbx, 16, kAvx512},
    {"avx512fp16", k7, kEdx, 23, kAvx512},
    {"avx512ifma", k7, kEbx, 21, kAvx512},
    {"avx512vbmi", k7, kEcx, 1, kAvx512},
    {"avx512vbmi2", k7, kEcx, 6, kAvx512},
    {"avx512vl", k7, kEbx, 31, kAvx512},
    {"avx512vnni", k7, kEcx, 11, kAvx512},
    {"avx512vpopcntdq", k7, kEcx, 14, kAvx512},
    {"avxvnni", k7_1, kEax, 4, kAvx},
    {"bmi", k7, kEbx, 3},
    {"bmi2", k7, kEbx, 8},
    {"cx16", k1, kEcx, 13},
    {"f16c", k1, kEcx, 29, kAvx},
    {"fma", k1, kEcx, 12, kAvx},
    {"gfni", k7, kEcx, 8},
    {"lzcnt", kExtended, kEcx, 5},
    {"movbe", k1, kEcx, 22},
    {"pclmul", k1, kEcx, 1},
    {"popcnt", k1, kEcx, 23},
    {"prfchw", kExtended, kEcx, 8},
    {"sahf", kExtended, kEcx, 0},
    {"sha", k7, kEbx, 29},
    {"sse3", k1, kEcx, 0},
    {"sse4.1", k1, kEcx, 19},
    {"sse4.2", k1, kEcx, 20},
    {"sse4a", kExtended, kEcx, 6},
    {"ssse3", k1, kEcx, 9},
    {"vaes", k7, kEcx, 9, kAvx},
    {"vpclmulqdq", k7, kEcx, 10, kAvx},
};

/// LLVM's name of the CPU, which selects instruction costs: AMD's Zen by family and model. Others use a generic level.
const char* zen(unsigned family, unsigned model) {
  if (family == 0x17) return model < 0x30 ? "znver1" : "znver2";
  if (family == 0x19) {
    const bool four = (model >= 0x10 && model <= 0x1f) || (model >= 0x60 && model <= 0x7f) || (model >= 0xa0);
    return four ? "znver4" : "znver3";
  }
  return family == 0x1a ? "znver5" : nullptr;
}

}  // namespace

std::string detect_host_cpu() {
  std::uint32_t leaves[kLeaves][4] = {};
  const auto read = [&](Leaf to, unsigned leaf, unsigned subleaf) {
    __get_cpuid_count(leaf, subleaf, &leaves[to][0], &leaves[to][1], &leaves[to][2], &leaves[to][3]);
  };
  read(k1, 1, 0);
  read(k7, 7, 0);
  if (leaves[k7][kEax] >= 1) read(k7_1, 7, 1);
  read(kExtended, 0x80000001, 0);
  State saved = kNone;
  if (leaves[k1][kEcx] >> 27 & 1) {  // OSXSAVE
    std::uint32_t low = 0, high = 0;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved = (low & 0xe6) == 0xe6 ? kAvx512 : (low & 0x6) == 0x6 ? kAvx : kNone;
  }
  // Generated code has the limit of the library's own kernels, so that a machine with less can be tried.
  const host::VectorLevel level = host::vector_level();
  if (level != host::VectorLevel::kAvx512) saved = std::min(saved, level == host::VectorLevel::kAvx2 ? kAvx : kNone);
  std::string features;
  const auto has = [&](const Feature& f) { return (leaves[f.leaf][f.reg] >> f.bit & 1) != 0 && saved >= f.state; };
  const auto has_all = [&](std::initializer_list<std::string_view> names) {
    for (const Feature& f : kFeatures)
      for (std::string_view n : names)
        if (n == f.name && !has(f)) return false;
    return true;
  };
  for (const Feature& f : kFeatures)
    features += fmt::format("{}{}{}", features.empty() ? "" : ",", has(f) ? '+' : '-', f.name);

  const std::uint32_t signature = leaves[k1][kEax];
  const unsigned family = (signature >> 8 & 15) + (signature >> 20 & 255);
  const unsigned model = (signature >> 4 & 15) | (signature >> 12 & 0xf0);
  std::uint32_t top = 0, vendor[3] = {};
  __get_cpuid(0, &top, &vendor[0], &vendor[2], &vendor[1]);
  const std::string_view maker(reinterpret_cast<const char*>(vendor), sizeof vendor);
  const char* cpu = maker == "AuthenticAMD" || maker == "HygonGenuine" ? zen(family, model) : nullptr;
  if (cpu == nullptr) {  // the levels of the x86-64 psABI
    const bool v2 = has_all({"cx16", "sahf", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"});
    const bool v3 = v2 && has_all({"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"});
    const bool v4 = v3 && has_all({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"});
    cpu = v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
    // LLVM prefers vectors of 256 bits on this level, for CPUs whose clock falls with 512. Since Ice Lake it hardly
    // does, and exp, erf and divisions take two thirds of the time.
    if (v4 && has_all({"avx512vbmi2", "avx512vpopcntdq"})) features += ",-prefer-256-bit";
  }
  return fmt::format("x86_64 {} {}", cpu, features);
}

#elif defined(__aarch64__)

std::string detect_host_cpu() {
  const unsigned long caps = getauxval(AT_HWCAP);
  return fmt::format("aarch64 generic {}dotprod,{}fullfp16", caps & HWCAP_ASIMDDP ? '+' : '-',
                     caps & HWCAP_ASIMDHP ? '+' : '-');
}

#else

std::string detect_host_cpu() {
  fail(ErrorKind::kUnsupported, "Sardonyx compiles for x86-64 and AArch64 hosts, and this machine is neither");
}

#endif

}  // namespace sardonyx
