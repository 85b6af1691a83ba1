// Targets other than the running host, errors of the back ends and parallel use.
#include "compile/compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/ELFObjectFile.h>

#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include "compile/host_module.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;

constexpr const char* kTwoKernels = R"(
  #include "index.h"
  extern "C" [[clang::device_kernel]] void add(const float* x, float* y, long n) {
    if (index() < n) y[index()] += x[index()];
  }
  extern "C" [[clang::device_kernel]] void sum(const float* x, float* y) {
    __attribute__((address_space(3))) [[clang::loader_uninitialized]] static float part[256];
    part[index()] = x[index()];
    barrier();
    for (int i = 0; i < 256; ++i) *y += part[i];
  }
)";

// CompileJob and compile() take a view, so the headers live here.
const std::vector<SourceFile>& headers() {
  static const std::vector<SourceFile> files = {{"index.h", R"(
    #ifdef __AMDGCN__
      inline int index() { return __builtin_amdgcn_workitem_id_x(); }
      inline void barrier() { __builtin_amdgcn_s_barrier(); }
    #else
      inline int index() { return __nvvm_read_ptx_sreg_tid_x(); }
      inline void barrier() { __syncthreads(); }
    #endif
  )"}};
  return files;
}

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "no Error";
  return {ErrorKind::kInternal, ""};
}

std::vector<std::string> targets(TargetKind kind) {
  std::vector<std::string> names;
  for (const std::string& n : known_targets())
    if (parse_target(n).kind == kind) names.push_back(n);
  return names;
}

/// The machine numbers that LLVM's documentation of code objects gives processors. (The table of chips has others;
/// tests/cpp/target compares it with the code objects of every chip.)
const std::map<std::string, unsigned>& documented_machines() {
  using namespace llvm::ELF;
  static const std::map<std::string, unsigned> numbers = {
      {"gfx90a", EF_AMDGPU_MACH_AMDGCN_GFX90A},   {"gfx942", EF_AMDGPU_MACH_AMDGCN_GFX942},
      {"gfx950", EF_AMDGPU_MACH_AMDGCN_GFX950},   {"gfx1030", EF_AMDGPU_MACH_AMDGCN_GFX1030},
      {"gfx1100", EF_AMDGPU_MACH_AMDGCN_GFX1100}, {"gfx1101", EF_AMDGPU_MACH_AMDGCN_GFX1101},
      {"gfx1102", EF_AMDGPU_MACH_AMDGCN_GFX1102}, {"gfx1103", EF_AMDGPU_MACH_AMDGCN_GFX1103},
      {"gfx1150", EF_AMDGPU_MACH_AMDGCN_GFX1150}, {"gfx1151", EF_AMDGPU_MACH_AMDGCN_GFX1151},
      {"gfx1200", EF_AMDGPU_MACH_AMDGCN_GFX1200}, {"gfx1201", EF_AMDGPU_MACH_AMDGCN_GFX1201}};
  return numbers;
}

TEST(Amd, CodeObjectsHaveKernelsDescriptorsAndMetadata) {
  EXPECT_THAT(targets(TargetKind::kAmdgpu), testing::IsSupersetOf([] {
                std::vector<std::string> names;
                for (const auto& [name, machine] : documented_machines()) names.push_back(name);
                return names;
              }()));
  for (const std::string& name : targets(TargetKind::kAmdgpu)) {
    SCOPED_TRACE(name);
    const std::string code = compile(kTwoKernels, headers(), parse_target(name));
    auto file = llvm::object::ObjectFile::createELFObjectFile(llvm::MemoryBufferRef(code, name));
    ASSERT_TRUE(static_cast<bool>(file));
    const auto* elf = llvm::dyn_cast<llvm::object::ELF64LEObjectFile>(file->get());
    ASSERT_NE(elf, nullptr);
    const auto& head = elf->getELFFile().getHeader();
    EXPECT_EQ(head.e_type, llvm::ELF::ET_DYN);
    EXPECT_EQ(head.e_machine, llvm::ELF::EM_AMDGPU);
    EXPECT_EQ(head.e_ident[llvm::ELF::EI_ABIVERSION], llvm::ELF::ELFABIVERSION_AMDGPU_HSA_V5);
    if (const auto known = documented_machines().find(name); known != documented_machines().end()) {
      EXPECT_EQ(head.e_flags & llvm::ELF::EF_AMDGPU_MACH, known->second);
    }

    std::map<std::string, std::uint64_t> sizes;
    for (const auto& symbol : elf->getDynamicSymbolIterators())
      sizes[llvm::cantFail(symbol.getName()).str()] = symbol.getSize();
    EXPECT_GT(sizes["add"], 0u);
    EXPECT_GT(sizes["sum"], 0u);
    EXPECT_EQ(sizes["add.kd"], 64u);
    EXPECT_EQ(sizes["sum.kd"], 64u);
    EXPECT_EQ(sizes.size(), 4u) << "nothing but kernels is visible";
    // The metadata is MessagePack; its strings stand in it as they are.
    EXPECT_THAT(code, HasSubstr("amdhsa.kernels"));
    EXPECT_THAT(code, HasSubstr(".kernarg_segment_size"));
    EXPECT_THAT(code, HasSubstr("amdgcn-amd-amdhsa--" + name));
  }
}

TEST(Compile, AnnotationsOfNvidiaKernelsBecomeLaunchBounds) {
  const std::string ptx = compile(R"(
    extern "C" [[clang::nvptx_kernel]] void one(float* x) { x[0] = 1; }
    extern "C" [[clang::nvptx_kernel]] __attribute__((annotate("nvvm.maxntid=288"), annotate("nvvm.minctasm=2"),
                                                      annotate("nvvm.cluster_dim=4,1,1"))) void two(float* x) {
      x[0] = 2;
    }
    extern "C" [[clang::nvptx_kernel]] void three(float* x) { x[0] = 3; })",
                                  {}, parse_target("sm_90a"));
  const std::size_t one = ptx.find(".entry one("), two = ptx.find(".entry two("), three = ptx.find(".entry three(");
  ASSERT_LT(one, two);
  ASSERT_LT(two, three);
  ASSERT_LT(three, ptx.size());
  // Definitions alone: a declaration would be taken for the kernel by what divides the text (device/ptx_kernels.h).
  std::size_t entries = 0;
  for (std::size_t at = ptx.find(".entry "); at != std::string::npos; at = ptx.find(".entry ", at + 1)) ++entries;
  EXPECT_EQ(entries, 3u) << ptx;
  for (const char* directive :
       {"\n.maxntid 288", "\n.minnctapersm 2", "\n.explicitcluster", "\n.reqnctapercluster 4, 1, 1"}) {
    EXPECT_EQ(ptx.substr(one, two - one).find(directive), std::string::npos) << directive;
    EXPECT_NE(ptx.substr(two, three - two).find(directive), std::string::npos) << directive;
    EXPECT_EQ(ptx.substr(three).find(directive), std::string::npos) << directive;
  }
}

TEST(Compile, StructParametersOfNvidiaKernelsAreNotCopied) {
  const std::string ptx = compile(R"(
    struct alignas(64) Map { long x[16]; };
    extern "C" [[clang::nvptx_kernel]] void first(const Map a, const Map b, long* y) {
      asm volatile("// one of %0 and %1" : : "l"(&a), "l"(&b));
    })",
                                  {}, parse_target("sm_90a"));
  EXPECT_THAT(ptx, HasSubstr(", first_param_0;"));
  EXPECT_THAT(ptx, HasSubstr(", first_param_1;"));
  EXPECT_THAT(ptx, HasSubstr("cvta.param.u64"));
  EXPECT_EQ(ptx.find(".local"), std::string::npos) << ptx;
}

TEST(Nvidia, PtxHasTheKernels) {
  for (const std::string& name : targets(TargetKind::kNvptx)) {
    const std::string ptx = compile(kTwoKernels, headers(), parse_target(name));
    EXPECT_THAT(ptx, HasSubstr(".target " + name + "\n"));
    EXPECT_THAT(ptx, HasSubstr(".visible .entry add("));
    EXPECT_THAT(ptx, HasSubstr(".visible .entry sum("));
    EXPECT_THAT(ptx, HasSubstr(".shared"));
    EXPECT_THAT(ptx, HasSubstr("bar"));
  }
}

TEST(Host, CompilesForOtherProcessors) {
  const char* source = "extern \"C\" void f(float* x, long n) { for (long i = 0; i < n; ++i) x[i] = x[i] * 2 + 1; }";
  const std::string arm = compile(source, {}, parse_target("aarch64"));
  const std::string x86 = compile(source, {}, parse_target("x86_64"));
  EXPECT_EQ(static_cast<unsigned char>(arm[18]), llvm::ELF::EM_AARCH64);
  EXPECT_EQ(static_cast<unsigned char>(x86[18]), llvm::ELF::EM_X86_64);
  const std::string other[] = {host_target().arch.starts_with("aarch64") ? x86 : arm};
  EXPECT_EQ(error_of([&] { HostModule{other}; }).kind(), ErrorKind::kCompile);
}

// The in-process pipeline must have the vectorisers that the clang driver turns on; cc1 alone leaves them out. Baseline
// x86-64 multiplies four floats by mulps (0f 59 with no prefix) and one by mulss (f3 0f 59).
TEST(Host, VectorisersRun) {
  const char* loop = R"(extern "C" void f(const float* __restrict x, float* __restrict y, long n) {
    for (long i = 0; i < n; ++i) y[i] = x[i] * 3; })";
  const char* straight = R"(extern "C" void f(const float* __restrict x, float* __restrict y) {
    y[0] = x[0] * 3; y[1] = x[1] * 3; y[2] = x[2] * 3; y[3] = x[3] * 3; })";
  const auto packed = [](const std::string& code) {
    int count = 0;
    for (std::size_t at = 1; (at = code.find("\x0f\x59", at)) != std::string::npos; ++at)
      count += code[at - 1] != '\xf3';
    return count;
  };
  const Target target = parse_target("x86_64");
  EXPECT_GT(packed(compile(loop, {}, target)), 0);
  EXPECT_GT(packed(compile(straight, {}, target)), 0);
  CompileOptions low;
  low.opt_level = 1;
  EXPECT_EQ(packed(compile(loop, {}, target, low)), 0);
  EXPECT_EQ(packed(compile(straight, {}, target, low)), 0);
}

TEST(Target, UnknownOnesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"gfx900", "sm_70", "", "x86", "mips", "gfx942 "}) {
    const Error e = error_of([&] { parse_target(name); });
    EXPECT_EQ(e.kind(), ErrorKind::kUnsupported);
    EXPECT_THAT(e.what(), HasSubstr("gfx90a, gfx942, gfx950, gfx1030, gfx1100, "));
    EXPECT_THAT(e.what(), HasSubstr("sm_80, sm_90, sm_90a"));
    for (const Chip& c : all_chips()) EXPECT_THAT(e.what(), HasSubstr(c.name));
  }
  EXPECT_EQ(error_of([] { compile("", {}, {TargetKind::kAmdgpu, "sm_90"}); }).kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(error_of([] { compile("", {}, {TargetKind::kHost, "x86_64 no-such-cpu"}); }).kind(), ErrorKind::kCompile);
  EXPECT_EQ(parse_target("host"), host_target());
  EXPECT_EQ(parse_target(host_target().arch), host_target());
}

TEST(Errors, EveryTargetRefusesWhatNobodyWouldRunOrDefine) {
  for (const std::string& name : known_targets()) {
    SCOPED_TRACE(name);
    const Target target = parse_target(name);
    const Error constructor =
        error_of([&] { compile("int f();\nint x = __builtin_bit_cast(int, 1.0f) + f();", {}, target); });
    EXPECT_THAT(constructor.what(), HasSubstr("kernel.cpp:2"));
    EXPECT_THAT(error_of([&] { compile("int a;\n int b = oops;", {}, target); }).what(), HasSubstr("kernel.cpp:2:10"));
    if (target.kind == TargetKind::kHost) continue;
    const Error undefined = error_of([&] {
      compile("extern \"C\" int foo(int); extern \"C\" [[clang::device_kernel]] void k(int* p) { *p = foo(*p); }", {},
              target);
    });
    EXPECT_EQ(undefined.kind(), ErrorKind::kCompile);
    EXPECT_THAT(undefined.what(), HasSubstr("foo"));
  }
}

// What would end the process in a clang of its own is an Error here, and compilation goes on afterwards.
TEST(Errors, FatalErrorsOfTheBackEndAreErrors) {
  const char* unselectable = R"(
    typedef float v __attribute__((ext_vector_type(32)));
    v mfma(float, float, v, int, int, int) __asm("llvm.amdgcn.mfma.f32.32x32x1f32");
    extern "C" [[clang::amdgpu_kernel]] void k(v* p) { *p = mfma(1, 2, *p, 0, 0, 0); })";
  for (int i = 0; i < 3; ++i) {
    const Error e = error_of([&] { compile(unselectable, {}, parse_target("gfx1030")); });
    EXPECT_EQ(e.kind(), ErrorKind::kCompile);
    EXPECT_THAT(e.what(), HasSubstr("Cannot select"));
    EXPECT_FALSE(compile(kTwoKernels, headers(), parse_target("gfx1030")).empty());
  }
}

TEST(Errors, FilesOfOneNameAreRefused) {
  const std::vector<SourceFile> twice = {{"a.h", "1"}, {"a.h", "2"}}, source = {{"kernel.cpp", "int x;"}};
  EXPECT_EQ(error_of([&] { compile("int y;", twice, host_target()); }).kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(error_of([&] { compile("int y;", source, host_target()); }).kind(), ErrorKind::kInvalidArgument);
}

TEST(Errors, LocalMemoryOverTheLimitIsRefused) {
  const Error e = error_of([] {
    compile(R"(__attribute__((address_space(3))) [[clang::loader_uninitialized]] static char big[200000];
               extern "C" [[clang::amdgpu_kernel]] void k(char* p, int i) { big[i] = 1; *p = big[i + 1]; })",
            {}, parse_target("gfx942"));
  });
  EXPECT_THAT(e.what(), HasSubstr("exceeds limit (65536)"));
}

TEST(Options, AreCheckedAndTakeEffect) {
  CompileOptions options;
  options.opt_level = 4;
  EXPECT_EQ(error_of([&] { compile("", {}, host_target(), options); }).kind(), ErrorKind::kInvalidArgument);
  options = {};
  options.extra_cc1 = {"-mllvm", "-stats"};
  EXPECT_EQ(error_of([&] { compile("", {}, host_target(), options); }).kind(), ErrorKind::kInvalidArgument);
  options = {};
  options.kernel_language = true;
  EXPECT_EQ(error_of([&] { compile("", {}, host_target(), options); }).kind(), ErrorKind::kInvalidArgument);
  options = {};
  options.defines = {"A", "B=7"};
  options.debug_info = true;
  const std::string objects[] = {
      compile("#ifdef A\nextern \"C\" int f() { return B; }\n#endif", {}, host_target(), options)};
  EXPECT_THAT(objects[0], HasSubstr(".debug_info"));
  const HostModule module{objects};
  EXPECT_EQ(reinterpret_cast<int (*)()>(module.find("f"))(), 7);
  for (int level = 0; level <= 3; ++level) {
    options.opt_level = level;
    for (const char* name : {"gfx942", "sm_90"})
      EXPECT_FALSE(compile(kTwoKernels, headers(), parse_target(name), options).empty()) << name << " -O" << level;
  }
}

// A leading #include is precompiled; a block comment before it hides it from that, and from nothing else.
TEST(PrecompiledHeader, ChangesNoCode) {
  const std::vector<SourceFile> files = {{"all.h", R"(#pragma once
    #include "inner.h"
    #ifdef TWICE
    constexpr int kTimes = 2;
    #else
    constexpr int kTimes = 1;
    #endif
    template <class T> struct Adder { static constexpr T kOne = 1; static T add(T x) { return x + kOne * kTimes; } };
    template struct Adder<long>;
    inline float scale(float x) { return kInner * Adder<float>::add(x); }
  )"},
                                         {"inner.h", "#pragma once\nstatic inline float kInner = 3.0f;\n"}};
  const std::string source = R"(#include "all.h"
    #ifdef __AMDGCN__
    #define KERNEL [[clang::amdgpu_kernel]]
    #elif defined(__NVPTX__)
    #define KERNEL [[clang::nvptx_kernel]]
    #else
    #define KERNEL
    #endif
    extern "C" KERNEL void f(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = scale(x[i]) + Adder<int>::add(i); }
  )";
  for (const char* name : {"host", "gfx942", "gfx1100", "sm_90a"}) {
    for (const bool twice : {false, true}) {
      CompileOptions options;
      if (twice) options.defines = {"TWICE"};
      const Target target = parse_target(name);
      const std::string with = compile("  // comment\n" + source, files, target, options);
      EXPECT_EQ(with, compile("/**/ " + source, files, target, options)) << name;
      EXPECT_EQ(with, compile(source, files, target, options)) << name;
      options.debug_info = true;
      EXPECT_FALSE(compile(source, files, target, options).empty());
    }
  }
}

TEST(PrecompiledHeader, ItsErrorsAreReported) {
  for (int i = 0; i < 2; ++i) {
    const std::vector<SourceFile> wrong = {{"all.h", "#pragma once\nint x = oops;\n"}};
    const Error e = error_of([&] { compile("#include \"all.h\"\n", wrong, host_target()); });
    EXPECT_THAT(e.what(), HasSubstr("from kernel.cpp:1"));
    EXPECT_THAT(e.what(), HasSubstr("all.h:2"));
  }
  const std::vector<SourceFile> plain = {{"all.h", "int x;\n"}};  // no #pragma once: included as often as it says
  EXPECT_NO_THROW(compile("#include \"all.h\"\nint y;", plain, host_target()));
  EXPECT_THAT(error_of([&] { compile("#include \"all.h\"\n#include \"all.h\"\n", plain, host_target()); }).what(),
              HasSubstr("redefinition"));
  EXPECT_THAT(error_of([&] { compile("#include \"none.h\"\n", plain, host_target()); }).what(), HasSubstr("none.h"));
}

TEST(Parallel, ThreadsCompileForAllTargetsAtOnce) {
  const std::vector<std::string> names = {"gfx942", "sm_90", "gfx1100", "gfx1201"};
  std::vector<std::string> expected;
  for (const auto& n : names) expected.push_back(compile(kTwoKernels, headers(), parse_target(n)));
  std::vector<std::jthread> threads;
  std::atomic<int> same = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        const std::size_t n = static_cast<std::size_t>(t + i) % names.size();
        same += compile(kTwoKernels, headers(), parse_target(names[n])) == expected[n];
        try {
          compile("int x = nothing;", {}, parse_target(names[n]));
        } catch (const Error&) {
          ++same;
        }
      }
    });
  threads.clear();
  EXPECT_EQ(same, 48);
}

}  // namespace
}  // namespace sardonyx
