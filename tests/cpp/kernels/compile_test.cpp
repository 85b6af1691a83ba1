// The prelude's machine code: loops over its functions are vectorised, and no external functions are called.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(KERNEL_FOLDER) + "/" + name);
  EXPECT_TRUE(file.good()) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Names of the functions of which clang's optimisation record says that it vectorised their loop.
std::set<std::string> vectorised(const std::string& record) {
  std::set<std::string> names;
  std::istringstream lines(read(record));
  bool wanted = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("--- !", 0) == 0) wanted = false;
    if (line.rfind("Name:", 0) == 0) wanted = line.find("Vectorized") != std::string::npos;
    if (wanted && line.rfind("Function:", 0) == 0) names.insert(line.substr(line.find_first_not_of(' ', 9)));
  }
  return names;
}

TEST(Compile, MathLoopsAreVectorised) {
  const std::set<std::string> names = vectorised("math_wide.yaml");
  for (const char* name :
       {"exp",   "exp2", "expm1", "log",     "log2", "log10", "log1p",    "sqrt", "rsqrt",    "sin",
        "cos",   "tan",  "asin",  "acos",    "atan", "sinh",  "cosh",     "tanh", "asinh",    "acosh",
        "atanh", "erf",  "pow",   "sigmoid", "silu", "mish",  "softplus", "gelu", "softsign", "gelu_tanh",
        "floor", "ceil", "trunc", "round",   "sign", "abs",   "min",      "max",  "copysign"})
    for (const char* type : {"f32", "f64"}) {
      const std::string kernel = std::string(name) + "_" + type + "_wide";
      EXPECT_TRUE(names.count(kernel)) << kernel;
    }
  for (const char* kernel :
       {"bounded_sin_f32_wide", "bounded_cos_f32_wide", "exp_f16_wide", "gelu_f16_wide", "gelu_bf16_wide",
        "clamp_f32_wide", "normal_wide", "random_uniform_wide", "shl_i32_wide", "min_i64_wide", "max_u8_wide"})
    EXPECT_TRUE(names.count(kernel)) << kernel;
}

TEST(Compile, CastLoopsAreVectorised) {
  const std::set<std::string> names = vectorised("casts_wide.yaml");
  for (const char* pair :
       {"f32_f16",    "f16_f32",    "f32_bf16",   "bf16_f32", "f32_i8",       "i8_f32",       "f32_u8",
        "u8_f32",     "i32_f32",    "f32_i32",    "f32_i64",  "f32_f8e4m3fn", "f8e4m3fn_f32", "f32_f8e5m2",
        "f8e5m2_f32", "f32_f8e8m0", "f32_f4e2m1", "f32_i4",   "f64_f32",      "f32_f64"}) {
    const std::string kernel = std::string("cast_") + pair + "_wide";
    EXPECT_TRUE(names.count(kernel)) << kernel;
  }
}

// A freestanding compiler may still call memcpy and its kin; the prelude gives it no reason to.
TEST(Compile, NothingOutsideIsCalled) {
  std::istringstream lines(read("undefined.txt"));
  for (std::string line; std::getline(lines, line);) EXPECT_EQ(line.find(" U "), std::string::npos) << line;
}

TEST(Compile, GpuCodeExists) {
  for (const char* name : {"math_gfx942.o", "math_gfx1100.o", "math_sm_90.ptx"})
    EXPECT_GT(read(name).size(), 10'000u) << name;
  // PTX calls nothing that it does not define: libdevice, the CUDA SDK's library of such functions, is not there.
  const std::string text = read("math_sm_90.ptx");
  EXPECT_EQ(text.find(".extern .func"), std::string::npos);
  for (std::size_t at = text.find("call.uni"); at != std::string::npos; at = text.find("call.uni", at + 1))
    EXPECT_TRUE(text.substr(at, 200).find("reduce_quadrant_large") != std::string::npos ||
                text.substr(at, 200).find("far_sine") != std::string::npos)
        << text.substr(at, 200);
}

// PTX shifts by the low 32 bits of a count; a 64-bit count must reach it masked (see shl in prelude_basic.h).
TEST(Compile, PtxShiftsByMaskedCounts) {
  const std::string text = read("math_sm_90.ptx");
  for (const char* name : {"shl_i64", "shr_i64"}) {
    const std::size_t begin = text.find(std::string("Begin function ") + name), end = text.find("End function", begin);
    ASSERT_NE(end, std::string::npos) << name;
    EXPECT_NE(text.substr(begin, end - begin).find(", 63;"), std::string::npos) << name;
  }
}

}  // namespace
