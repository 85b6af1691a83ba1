// Host code: compiled, linked into this process and executed.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "compile/backend.h"
#include "compile/compiler.h"
#include "compile/host_module.h"
#include "support/error.h"

namespace sardonyx {
namespace {

HostModule load(std::string_view source, std::span<const SourceFile> headers = {}) {
  const std::string objects[] = {compile(source, headers, host_target())};
  return HostModule(objects);
}

template <typename Function>
Function* function(const HostModule& module, const char* name) {
  void* address = module.find(name);
  EXPECT_NE(address, nullptr) << name;
  return reinterpret_cast<Function*>(address);
}

std::string error_of(const std::function<void()>& work, ErrorKind kind) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error";
  return {};
}

TEST(Host, RunsTwoKernels) {
  const std::vector<SourceFile> headers = {{"prelude.h", "using i64 = __INT64_TYPE__;\n#include \"inner.h\"\n"},
                                           {"inner.h", "constexpr float kScale = 3.0f;\n"}};
  const HostModule module = load(R"(
    #include "prelude.h"
    extern "C" void scale(const float* x, float* y, i64 n) { for (i64 i = 0; i < n; ++i) y[i] = x[i] * kScale; }
    extern "C" float sum(const float* x, i64 n) { float s = 0; for (i64 i = 0; i < n; ++i) s += x[i]; return s; }
  )",
                                 headers);
  std::vector<float> x(1000), y(1000);
  for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
  function<void(const float*, float*, std::int64_t)>(module, "scale")(x.data(), y.data(), 1000);
  EXPECT_EQ(y[999], 2997.0f);
  EXPECT_EQ(function<float(const float*, std::int64_t)>(module, "sum")(y.data(), 1000), 3.0f * 999 * 500);
  EXPECT_EQ(module.find("absent"), nullptr);
}

TEST(Host, CallsMathAndMemoryFunctionsOfTheProcess) {
  const HostModule module = load(R"(
    extern "C" float expf(float); extern "C" double tgamma(double);
    extern "C" void* memcpy(void*, const void*, unsigned long);
    extern "C" float f(float x) { return expf(x) + __builtin_tanhf(x); }
    extern "C" double g(double x) { return tgamma(x); }
    extern "C" void copy(void* to, const void* from, unsigned long n) { memcpy(to, from, n); }
  )");
  EXPECT_EQ(function<float(float)>(module, "f")(0.5f), std::exp(0.5f) + std::tanh(0.5f));
  EXPECT_EQ(function<double(double)>(module, "g")(5.0), 24.0);
  int a = 7, b = 0;
  function<void(void*, const void*, unsigned long)>(module, "copy")(&b, &a, sizeof a);
  EXPECT_EQ(b, 7);
}

TEST(Host, KeepsNanInfinityAndSignedZero) {
  const HostModule module = load(R"(
    extern "C" bool is_nan(float x) { return x != x; }
    extern "C" float times_zero(float x) { return x * 0.0f; }
    extern "C" float plus_zero(float x) { return x + 0.0f; }
    extern "C" float difference(float x, float y) { return (x + y) - y; }
    extern "C" float divide(float x, float y) { return x / y; }
  )");
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(function<bool(float)>(module, "is_nan")(nan));
  EXPECT_TRUE(std::isnan(function<float(float)>(module, "times_zero")(inf)));
  EXPECT_FALSE(std::signbit(function<float(float)>(module, "plus_zero")(-0.0f)));
  EXPECT_EQ(function<float(float, float)>(module, "difference")(1.0f, 0x1p30f), 0.0f);
  EXPECT_EQ(function<float(float, float)>(module, "divide")(1.0f, 0.0f), inf);
}

TEST(Host, ContractionCanBeForbidden) {
  const HostModule module = load(R"(
    extern "C" float apart(float a, float b, float c) {
      #pragma clang fp contract(off)
      float p = a * b; return p - c;
    }
  )");
  const float a = 1.0f + 0x1p-12f;
  volatile float product = a * a;
  // Fused, this would be the product's rounding error.
  EXPECT_EQ(function<float(float, float, float)>(module, "apart")(a, a, product), 0.0f);
}

TEST(Host, ContractsAcrossStatements) {
  const HostModule module = load(R"(
    extern "C" float f(float a, float b, float c) { float p = a * b; return p - c; }
    #if defined(__FMA__) || defined(__aarch64__)
    extern "C" bool fuses() { return true; }
    #endif
  )");
  if (module.find("fuses") == nullptr) GTEST_SKIP() << "this CPU has no fused multiply-add";
  const float a = 1.0f + 0x1p-12f;
  volatile float product = a * a;
  EXPECT_EQ(function<float(float, float, float)>(module, "f")(a, a, product), std::fma(a, a, -product));
  EXPECT_NE(std::fma(a, a, -product), 0.0f);
}

// A CPU without instructions for 16-bit floats calls functions: x86-64 without extensions is one.
TEST(Host, ConvertsSixteenBitFloatsWithoutInstructions) {
  if (!host_target().arch.starts_with("x86_64")) GTEST_SKIP() << "aarch64 always has instructions for it";
  const char* source = R"(
    extern "C" void all(unsigned* difference) {
      for (unsigned i = 0; i < 65536; ++i) {
        unsigned short bits = i;
        float f = __builtin_bit_cast(_Float16, bits);
        if (f != f) { difference[0] += (_Float16)f == (_Float16)f; continue; }
        difference[0] += __builtin_bit_cast(unsigned short, (_Float16)f) != bits;
        difference[0] += __builtin_bit_cast(unsigned short, (_Float16)(double)f) != bits;
      }
    }
    extern "C" void halves(const float* x, unsigned short* y, long n) {
      for (long i = 0; i < n; ++i) y[i] = __builtin_bit_cast(unsigned short, (_Float16)x[i]);
    }
    extern "C" void halves_of_double(const double* x, unsigned short* y, long n) {
      for (long i = 0; i < n; ++i) y[i] = __builtin_bit_cast(unsigned short, (_Float16)x[i]);
    }
    extern "C" void bfloats(const float* x, unsigned short* y, long n) {
      for (long i = 0; i < n; ++i) y[i] = __builtin_bit_cast(unsigned short, (__bf16)x[i]);
    }
  )";
  const std::string objects[] = {compile(source, {}, parse_target("x86_64"))};
  const HostModule soft{objects};
  unsigned differences = 0;
  function<void(unsigned*)>(soft, "all")(&differences);
  EXPECT_EQ(differences, 0u);

  // Every 2^16 / 7th float or so, and values around the places where rounding ties and ranges end.
  std::vector<float> x;
  for (std::uint64_t b = 0; b < (std::uint64_t{1} << 32); b += 9361)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(b)));
  for (float v :
       {65504.0f, 65519.99f, 65520.0f, 0x1p-24f, 0x1p-25f, 0x1.000002p-25f, 0x1.8p-24f, 0x1.ffcp-15f, 2049.0f, 2051.0f,
        1e30f, 0x1.feffffp127f, 0x1.ff0000p127f, 0x1.008p0f, 0x1.018p0f, 0x1p-133f, 0x1p-134f, 0x1.8p-134f})
    for (float s : {v, -v, std::nextafter(v, 0.0f), std::nextafter(v, 1e38f)}) x.push_back(s);
  std::vector<std::uint16_t> got(x.size());
  function<void(const float*, std::uint16_t*, long)>(soft, "bfloats")(x.data(), got.data(),
                                                                      static_cast<long>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto b = std::bit_cast<std::uint32_t>(x[i]);
    // Round to nearest even by the usual integer addition.
    if (std::isnan(x[i]))
      EXPECT_GT(got[i] & 0x7fff, 0x7f80);
    else
      ASSERT_EQ(got[i], (b + 0x7fff + (b >> 16 & 1)) >> 16) << x[i];
  }
  function<void(const float*, std::uint16_t*, long)>(soft, "halves")(x.data(), got.data(), static_cast<long>(x.size()));
  // The reference: scale so that float's own rounding to an integer does the work.
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float a = std::fabs(x[i]);
    std::uint32_t want = 0;
    if (std::isnan(a)) {
      EXPECT_GT(got[i] & 0x7fff, 0x7c00);
      continue;
    }
    if (a >= 65520.0f)
      want = 0x7c00;
    else if (a < 0x1p-14f)
      want = static_cast<std::uint32_t>(std::nearbyint(a * 0x1p24f));
    else {
      const int e = std::ilogb(a);
      want = static_cast<std::uint32_t>((e + 14) * 1024 + std::nearbyint(std::ldexp(a, 10 - e)));
    }
    ASSERT_EQ(got[i], want | (std::signbit(x[i]) ? 0x8000u : 0u)) << x[i];
  }
  // One rounding, not two: by way of float this would tie and go down to even.
  const double once[] = {1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-11, 1 + 0x3p-11, -(1 + 0x1p-11 + 0x1p-40)};
  function<void(const double*, std::uint16_t*, long)>(soft, "halves_of_double")(once, got.data(), 4);
  EXPECT_EQ(got[0], 0x3c01);
  EXPECT_EQ(got[1], 0x3c00);
  EXPECT_EQ(got[2], 0x3c02);
  EXPECT_EQ(got[3], 0xbc01);
}

TEST(Host, ObjectsMayReferToEachOther) {
  const std::string objects[] = {
      compile("extern \"C\" int one() { return 1; }", {}, host_target()),
      compile("extern \"C\" int one(); extern \"C\" int two() { return one() + 1; }", {}, host_target())};
  const HostModule module{objects};
  EXPECT_EQ(function<int()>(module, "two")(), 2);
  const HostModule moved = HostModule{objects};
  EXPECT_EQ(function<int()>(moved, "two")(), 2);
}

TEST(Host, RefusesWhatItCannotLink) {
  EXPECT_NE(
      error_of([] { load("extern \"C\" int system(const char*); extern \"C\" int f() { return system(\"\"); }"); },
               ErrorKind::kCompile)
          .find("system"),
      std::string::npos);
  const std::string one = compile("extern \"C\" int one() { return 1; }", {}, host_target());
  const std::string twice[] = {one, one};
  EXPECT_NE(error_of([&] { HostModule{twice}; }, ErrorKind::kCompile).find("one"), std::string::npos);
  CompileOptions allow;
  allow.extra_cc1 = {"-Wno-error=global-constructors"};
  const std::string constructor[] = {
      compile("struct S { int x; S() { asm(\"\" : \"=r\"(x)); } }; S s;", {}, host_target(), allow)};
  EXPECT_NE(error_of([&] { HostModule{constructor}; }, ErrorKind::kCompile).find("constructor"), std::string::npos);
  const std::string garbage[] = {"not an object"};
  error_of([&] { HostModule{garbage}; }, ErrorKind::kCompile);
  const std::string cut[] = {one.substr(0, one.size() / 2)};
  error_of([&] { HostModule{cut}; }, ErrorKind::kCompile);
}

// Whatever is wrong with an object, it is refused or linked; it is never read or written outside of itself.
TEST(Host, DamagedObjectsDoNoHarm) {
  const std::string good = compile(R"(
    extern "C" float expf(float);
    static float table[3] = {1, 2, 3};
    static float* pointers[2] = {table, table + 1};
    extern "C" float f(int i) { return expf(table[i]) + *pointers[i & 1]; }
    extern "C" int g(int i) { switch (i) { case 0: return 5; case 1: return 17; case 2: return 4; case 3: return 99; case 4: return 1; } return 0; })",
                                   {}, host_target());
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at)
    for (const unsigned char flip : {0x01, 0x80, 0xff}) {
      std::string bad[] = {good};
      bad[0][at] = static_cast<char>(bad[0][at] ^ flip);
      try {
        const HostModule module{bad};
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::kCompile) << e.what();
        ++refused;
      }
    }
  EXPECT_GT(refused, 100);
  for (std::size_t size = 0; size < good.size(); size += 7) {
    const std::string cut[] = {good.substr(0, size)};
    error_of([&] { HostModule{cut}; }, ErrorKind::kCompile);
  }
}

TEST(Host, LinksDataTablesAndFarFunctions) {
  const HostModule module = load(R"(
    extern "C" float expf(float);
    static float table[3] = {1, 2, 3};
    static float* pointers[2] = {table + 2, table + 1};
    int counter;
    extern "C" int count() { return ++counter; }
    extern "C" float f(int i) { return expf(0) + *pointers[i]; }
    using F = float(float);
    extern "C" F* take() { return expf; }
  )");
  EXPECT_EQ(function<float(int)>(module, "f")(0), 4.0f);
  EXPECT_EQ(function<float(int)>(module, "f")(1), 3.0f);
  EXPECT_EQ(function<int()>(module, "count")(), 1);
  EXPECT_EQ(function<int()>(module, "count")(), 2);
  EXPECT_EQ(function<float (*())(float)>(module, "take")()(0), 1.0f);
}

// What other architectures use.
TEST(Host, JitLinkDoesTheSame) {
  const std::string objects[] = {
      compile("extern \"C\" float expf(float); extern \"C\" float one() { return expf(0); }", {}, host_target()),
      compile("extern \"C\" float one(); extern \"C\" float two() { return one() + 1; }", {}, host_target())};
  std::unordered_map<std::string, void*> symbols;
  const auto code = compiler_backend().jit_link(std::span(objects), host_runtime(), symbols);
  EXPECT_EQ(reinterpret_cast<float (*)()>(symbols.at("two"))(), 2.0f);
  const std::string missing[] = {objects[1]};
  EXPECT_NE(
      error_of([&] { compiler_backend().jit_link(std::span(missing), host_runtime(), symbols); }, ErrorKind::kCompile)
          .find("one"),
      std::string::npos);
}

TEST(Host, CompileErrorsNameTheLine) {
  const std::string text = error_of([] { compile("int a;\nint b = oops;\n", {}, host_target()); }, ErrorKind::kCompile);
  EXPECT_NE(text.find("kernel.cpp:2:9"), std::string::npos) << text;
  EXPECT_NE(text.find("oops"), std::string::npos) << text;
}

TEST(Host, SeesNoFileSystem) {
  error_of([] { compile("#include <stdio.h>\n", {}, host_target()); }, ErrorKind::kCompile);
  error_of([] { compile("#include \"/etc/hostname\"\n", {}, host_target()); }, ErrorKind::kCompile);
}

TEST(Host, DeepNestingIsRefusedNotACrash) {
  std::string source = "extern \"C\" float f(float x) { return ";
  for (int i = 0; i < 100000; ++i) source += "(x+";
  error_of([&] { compile(source, {}, host_target()); }, ErrorKind::kCompile);
  std::string chain = "extern \"C\" int f(int x) { return x";
  for (int i = 0; i < 3000; ++i) chain += "^x*" + std::to_string(i);
  EXPECT_NO_THROW(compile(chain + ";}", {}, host_target()));
}

}  // namespace
}  // namespace sardonyx
