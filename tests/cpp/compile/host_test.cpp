// Host code: compiled, linked into this process and executed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

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
  EXPECT_NE(error_of([] { load("struct S { int x; S() { asm(\"\" : \"=r\"(x)); } }; S s;"); }, ErrorKind::kCompile)
                .find("constructor"),
            std::string::npos);
  const std::string garbage[] = {"not an object"};
  error_of([&] { HostModule{garbage}; }, ErrorKind::kCompile);
  const std::string cut[] = {one.substr(0, one.size() / 2)};
  error_of([&] { HostModule{cut}; }, ErrorKind::kCompile);
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
