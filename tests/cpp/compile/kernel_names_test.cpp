// Names given to kernels after they were compiled.
#include "compile/kernel_names.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "compile/kernel_code.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using Names = std::map<std::string, std::string, std::less<>>;

std::string source(std::string_view attribute) {
  const std::string kernel = "extern \"C\" __attribute__((" + std::string(attribute) + ")) void ";
  return kernel + kernel_placeholder("k0") + "(float* x) { x[0] = 1; }\n" + kernel + kernel_placeholder("k10") +
         "(float* y) { y[0] = 2; }\n" + kernel + kernel_placeholder("k1") + "(float* y, int n) { y[n] = 3; }\n";
}

const Names kNames = {{kernel_placeholder("k0"), "k0_short"},
                      {kernel_placeholder("k1"), "k1"},
                      {kernel_placeholder("k10"), "k10_" + std::string(kKernelNameLength - 4, 'x')}};

std::vector<std::string> symbols_of(const std::string& code, const Target& target) {
  std::vector<std::string> out;
  for (const KernelCode& k : read_kernel_code(code, target)) out.push_back(k.symbol);
  return out;
}

template <typename T>
const T* at(const std::string& bytes, std::uint64_t offset) {
  return reinterpret_cast<const T*>(bytes.data() + offset);
}

/// Looks a symbol up as a loader does, through the hash table.
bool is_found(const std::string& code, const char* name) {
  const auto* header = at<Elf64_Ehdr>(code, 0);
  const auto* sections = at<Elf64_Shdr>(code, header->e_shoff);
  for (int k = 0; k < header->e_shnum; ++k) {
    if (sections[k].sh_type != SHT_HASH) continue;
    const auto* hash = at<Elf64_Word>(code, sections[k].sh_offset);
    const Elf64_Shdr& table = sections[sections[k].sh_link];
    const auto* symbols = at<Elf64_Sym>(code, table.sh_offset);
    const char* strings = at<char>(code, sections[table.sh_link].sh_offset);
    std::uint32_t h = 0;
    for (const char* c = name; *c; ++c) {
      h = (h << 4) + static_cast<unsigned char>(*c);
      const std::uint32_t high = h & 0xf0000000;
      h ^= high >> 24;
      h &= ~high;
    }
    for (Elf64_Word s = hash[2 + h % hash[0]]; s != 0; s = hash[2 + hash[0] + s])
      if (std::strcmp(strings + symbols[s].st_name, name) == 0) return true;
  }
  return false;
}

TEST(KernelNames, OfAmd) {
  const Target target = parse_target("gfx942");
  const std::string before = compile(source("amdgpu_kernel"), {}, target);
  const std::string after = rename_kernels(before, target.kind, kNames);
  EXPECT_EQ(after.size(), before.size());
  const std::string& last = kNames.at(kernel_placeholder("k10"));
  EXPECT_EQ(symbols_of(after, target), (std::vector<std::string>{"k0_short", last, "k1"}));
  EXPECT_EQ(after.find("sdx_k_"), std::string::npos);
  for (const std::string& name : {std::string("k0_short"), std::string("k1"), last}) {
    EXPECT_TRUE(is_found(after, name.c_str())) << name;
    EXPECT_TRUE(is_found(after, (name + ".kd").c_str())) << name;
  }
  EXPECT_FALSE(is_found(after, kernel_placeholder("k0").c_str()));
  EXPECT_EQ(rename_kernels(before, target.kind, kNames), after);
  // Of kernels that are not named, everything stays.
  EXPECT_EQ(symbols_of(rename_kernels(before, target.kind, {}), target), symbols_of(before, target));
}

TEST(KernelNames, OfPtx) {
  const Target target = parse_target("sm_90");
  const std::string after = rename_kernels(compile(source("nvptx_kernel"), {}, target), target.kind, kNames);
  EXPECT_EQ(symbols_of(after, target),
            (std::vector<std::string>{"k0_short", kNames.at(kernel_placeholder("k10")), "k1"}));
  EXPECT_EQ(after.find("sdx_k_"), std::string::npos);
  EXPECT_NE(after.find("[k0_short_param_0]"), std::string::npos);
}

TEST(KernelNames, DamagedCodeIsRefused) {
  const std::string code = compile(source("amdgpu_kernel"), {}, parse_target("gfx942"));
  for (std::size_t size = 0; size < code.size(); size += 97)
    EXPECT_THROW(rename_kernels(code.substr(0, size), TargetKind::kAmdgpu, kNames), Error) << size;
  for (std::size_t k = 0; k < code.size(); k += 7) {
    std::string damaged = code;
    damaged[k] = static_cast<char>(0xff);
    try {
      rename_kernels(damaged, TargetKind::kAmdgpu, kNames);
    } catch (const Error&) {  // either is fine: no crash, no hang
    }
  }
  EXPECT_THROW(kernel_placeholder(std::string(kKernelNameLength, 'k')), Error);
}

}  // namespace
}  // namespace sardonyx
