// cast<>() between every two element types against the definitions of the types and of ONNX's Cast.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "small_float.h"

namespace {

// The order of device/casts.cpp.
enum Type {
  kBool,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kE4M3FN,
  kE4M3FNUZ,
  kE5M2,
  kE5M2FNUZ,
  kE8M0,
  kE2M1,
  kI4,
  kU4,
  kI2,
  kU2,
  kTypes
};
const char* const kNames[] = {"bool",       "i8",     "i16",    "i32", "i64", "u8",       "u16",        "u32",
                              "u64",        "f16",    "bf16",   "f32", "f64", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2",
                              "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i4",  "u4",  "i2",       "u2"};
const int kSizes[] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

const SmallFloat* small_float(int type) {
  static const SmallFloat f16{5, 10, 15, true, -1, false, true}, bf16{8, 7, 127, true, -1, false, true},
      e4m3fn{4, 3, 7, false, 0x7f, false, true}, e4m3fnuz{4, 3, 8, false, -1, true, true},
      e5m2{5, 2, 15, true, -1, false, true}, e5m2fnuz{5, 2, 16, false, -1, true, true},
      e2m1{2, 1, 1, false, -1, false, false};
  switch (type) {
    case kF16:
      return &f16;
    case kBF16:
      return &bf16;
    case kE4M3FN:
      return &e4m3fn;
    case kE4M3FNUZ:
      return &e4m3fnuz;
    case kE5M2:
      return &e5m2;
    case kE5M2FNUZ:
      return &e5m2fnuz;
    case kE2M1:
      return &e2m1;
    default:
      return nullptr;
  }
}

bool is_float(int type) { return type >= kF16 && type <= kE2M1; }

// The exact value of an element given by its bits; long double holds every i64, u64 and f64.
long double decode(int type, u64 bits) {
  if (const SmallFloat* f = small_float(type)) {
    // Widening 65536 times over is slow; a table per type is not.
    static std::array<std::vector<double>, kTypes> tables;
    std::vector<double>& table = tables[type];
    if (table.empty())
      for (int code = 0; code < 2 * f->sign_code(); code++) table.push_back(f->value(code));
    return table[bits];
  }
  switch (type) {
    case kBool:
      return bits;
    case kI8:
    case kI4:
    case kI2:
      return static_cast<i8>(bits);
    case kI16:
      return static_cast<i16>(bits);
    case kI32:
      return static_cast<i32>(bits);
    case kI64:
      return static_cast<i64>(bits);
    case kF32:
      return bits_as<f32>(static_cast<u32>(bits));
    case kF64:
      return bits_as<f64>(bits);
    case kE8M0:
      return bits == 255 ? NAN : std::ldexp(1.0L, static_cast<int>(bits) - 127);
    default:
      return bits;  // unsigned integers
  }
}

// What a cast should give: certain bits, any NaN, or anything, where ONNX leaves it open.
struct Expected {
  enum Kind { kBits, kNan, kAnything } kind = kBits;
  u64 bits = 0;
};
constexpr Expected kAnyNan{Expected::kNan}, kUnspecified{Expected::kAnything};
Expected exactly(u64 bits) { return {Expected::kBits, bits}; }

// The low `size` bytes of an integer value given as a long double (|value| < 2^64).
u64 low_bits(long double value, int size) {
  const u64 magnitude = static_cast<u64>(std::fabs(value));
  const u64 bits = value < 0 ? u64(0) - magnitude : magnitude;
  return size == 8 ? bits : bits & ((u64(1) << 8 * size) - 1);
}

u64 narrow_integer(int type, u64 bits) {
  const int width = type == kI4 || type == kU4 ? 4 : 2;
  u64 low = bits & ((1u << width) - 1);
  if ((type == kI4 || type == kI2) && (low >> (width - 1))) low |= 0xffu << width & 0xff;
  return low;
}

// Float to integer as documented at the head of prelude_cast.h.
u64 float_to_integer(long double x, int size, bool is_signed) {
  const long double t = std::trunc(x);
  const auto inside = [&](int bits) { return t >= -std::ldexp(1.0L, bits) && t < std::ldexp(1.0L, bits); };
  if (size < 4 || (size == 4 && is_signed)) return low_bits(inside(31) ? t : -0x1p31L, size);
  if (size == 4 || is_signed) return low_bits(inside(63) ? t : -0x1p63L, size);
  if (t >= 0x1p64L) return 0;
  return t >= -0x1p63L ? low_bits(t, 8) : u64(1) << 63;
}

Expected to_e8m0(long double x, int variant) {
  const bool saturate = !(variant & 1), nearest = variant & 4, up = !(variant & 2) && !nearest;
  if (std::isnan(x)) return kAnyNan;
  if (x < 0 || (x == 0 && std::signbit(x))) return kUnspecified;
  const long double lowest = std::ldexp(1.0L, -127), highest = std::ldexp(1.0L, 127);
  if (x < lowest) return saturate ? exactly(0) : kAnyNan;
  if (x > highest) return saturate ? exactly(254) : kAnyNan;
  const int e = std::ilogb(x);
  const long double fraction = std::ldexp(x, -e);  // [1, 2)
  return exactly(static_cast<u64>(e + 127 + (up ? fraction > 1 : nearest ? fraction >= 1.5L : 0)));
}

Expected expected(int to, int from, int variant, u64 bits) {
  const long double x = decode(from, bits);
  if (to == from) return std::isnan(x) ? kAnyNan : exactly(bits);
  if (to == kBool) return exactly(!(x == 0));
  if (to == kE8M0) return to_e8m0(x, variant);
  if (const SmallFloat* f = small_float(to)) {
    const int code = f->round(x, !(variant & 1) && kSizes[to] == 1);
    if (code >= 0) return exactly(static_cast<u64>(code));
    return to == kE2M1 ? exactly(8) : kAnyNan;
  }
  if (to == kF32) return std::isnan(x) ? kAnyNan : exactly(bits_as<u32>(static_cast<f32>(x)));
  if (to == kF64) return std::isnan(x) ? kAnyNan : exactly(bits_as<u64>(static_cast<f64>(x)));
  if (to >= kI4) return exactly(narrow_integer(to, is_float(from) ? float_to_integer(x, 4, true) : low_bits(x, 8)));
  return exactly(is_float(from) ? float_to_integer(x, kSizes[to], to <= kI64) : low_bits(x, kSizes[to]));
}

bool is_nan(int type, u64 bits) { return std::isnan(decode(type, bits)); }

// Every element of an 8- or 16-bit type; of wider ones those around every value at which a narrower type rounds or
// ends.
std::vector<u64> inputs(int type) {
  std::vector<u64> v;
  if (type == kBool) return {0, 1};
  if (type >= kI4) {
    const int width = type == kI4 || type == kU4 ? 4 : 2;
    for (u64 i = 0; i < (1u << width); i++) v.push_back(narrow_integer(type, i));
    return v;
  }
  if (type == kE2M1) {
    for (u64 i = 0; i < 16; i++) v.push_back(i);
    return v;
  }
  if (kSizes[type] <= 2) {
    for (u64 i = 0; i < (u64(1) << 8 * kSizes[type]); i++) v.push_back(i);
    return v;
  }
  Random random{static_cast<u64>(type)};
  std::vector<double> points;
  for (int target : {kF16, kBF16, kE4M3FN, kE4M3FNUZ, kE5M2, kE5M2FNUZ, kE2M1}) {
    const SmallFloat* f = small_float(target);
    const int top = f->largest(), step = kSizes[target] == 2 ? 13 : 1;
    for (int code = 0; code <= top; code += step) {
      const double a = f->magnitude(code), b = code < top ? f->magnitude(code + 1) : 2 * a - f->magnitude(code - 1);
      points.insert(points.end(), {a, a / 2 + b / 2});
    }
    points.insert(points.end(), {f->magnitude(top), 1.5 * f->magnitude(top) - f->magnitude(top - 1) / 2});
  }
  for (int e = -130; e < 70; e++)
    for (double m : {1.0, 1.25, 1.5, 1.75}) points.push_back(std::ldexp(m, e));
  for (int i = 0; i < 300; i++) points.push_back(i * 0.5);
  if (type == kF32 || type == kF64) {
    points.insert(points.end(), {INFINITY, NAN, 3.4e38, 1e-45, 1e-310, 1e300, 0x1.fffffffp127});
    for (double p : points)
      for (double sign : {1.0, -1.0}) {
        const double x = sign * p;
        for (double y : {x, std::nextafter(x, INFINITY), std::nextafter(x, -INFINITY)})
          v.push_back(type == kF64 ? bits_as<u64>(y) : bits_as<u32>(static_cast<f32>(y)));
        if (type == kF32)
          for (float y : {std::nextafter(float(x), INFINITY), std::nextafter(float(x), -INFINITY)})
            v.push_back(bits_as<u32>(y));
      }
    for (int i = 0; i < 20'000; i++) v.push_back(type == kF64 ? random() : random() >> 32);
    return v;
  }
  const int size = kSizes[type];
  const u64 mask = size == 8 ? ~u64(0) : (u64(1) << 8 * size) - 1;
  for (double p : points)
    if (p < 0x1p64 && p == std::floor(p))
      for (int d : {-1, 0, 1}) {
        v.push_back((static_cast<u64>(p) + static_cast<u64>(d)) & mask);
        v.push_back((u64(0) - static_cast<u64>(p) + static_cast<u64>(d)) & mask);
      }
  for (int i = 0; i < 20'000; i++) v.push_back((random() >> (random() % 64)) & mask);
  return v;
}

using Kernel = void (*)(int, int, int, const void*, void*, i64);

void check(Kernel kernel, int to, int from, int variant) {
  const std::vector<u64> in = inputs(from);
  std::vector<u8> x(in.size() * kSizes[from]), y(in.size() * kSizes[to]);
  for (std::size_t i = 0; i < in.size(); i++) std::memcpy(&x[i * kSizes[from]], &in[i], kSizes[from]);
  kernel(to, from, variant, x.data(), y.data(), static_cast<i64>(in.size()));
  for (std::size_t i = 0; i < in.size(); i++) {
    u64 got = 0;
    std::memcpy(&got, &y[i * kSizes[to]], kSizes[to]);
    const Expected want = expected(to, from, variant, in[i]);
    if (want.kind == Expected::kAnything) continue;
    if (want.kind == Expected::kNan)
      ASSERT_TRUE(is_nan(to, got)) << kNames[from] << " " << double(decode(from, in[i])) << " -> " << kNames[to]
                                   << " variant " << variant << " is code " << got << ", should be NaN";
    else
      ASSERT_EQ(got, want.bits) << kNames[from] << " " << std::hexfloat << double(decode(from, in[i])) << " -> "
                                << kNames[to] << " variant " << variant;
  }
}

class Cast : public testing::TestWithParam<int> {};

TEST_P(Cast, MatchesDefinitionForEverySource) {
  const int to = GetParam();
  const int variants = to == kE8M0 ? 6 : to >= kE4M3FN && to <= kE5M2FNUZ ? 2 : 1;
  for (int from = 0; from < kTypes; from++)
    for (int variant = 0; variant < variants; variant++) {
      check(cast_any_base, to, from, variant);
      if (has_wide()) check(cast_any_wide, to, from, variant);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(To, Cast, testing::Range(0, int(kTypes)),
                         [](const testing::TestParamInfo<int>& info) { return std::string(kNames[info.param]); });

// Codes that ONNX's tables fix beyond "NaN": signs of NaN are free, but a float4 has none.
TEST(CastTable, SpecialValues) {
  const f32 x[] = {INFINITY, -INFINITY, NAN, -0.0f, 1e9f, -1e9f};
  u8 y[6];
  const auto run = [&](int to, int variant) { cast_any_base(to, kF32, variant, x, y, 6); };
  run(kE4M3FN, 0);
  EXPECT_EQ(y[0], 0x7e);
  EXPECT_EQ(y[1], 0xfe);
  EXPECT_EQ(y[3], 0x80);
  run(kE5M2, 0);
  EXPECT_EQ(y[0], 0x7b);
  EXPECT_EQ(y[4], 0x7b);
  run(kE5M2, 1);
  EXPECT_EQ(y[0], 0x7c);
  EXPECT_EQ(y[5], 0xfc);
  run(kE4M3FNUZ, 1);
  EXPECT_EQ(y[0], 0x80);
  EXPECT_EQ(y[3], 0x00);
  run(kE2M1, 0);
  EXPECT_EQ(y[0], 7);
  EXPECT_EQ(y[1], 15);
  EXPECT_EQ(y[2], 8);
  run(kE8M0, 0);
  EXPECT_EQ(y[0], 254);
  EXPECT_EQ(y[2], 255);
  EXPECT_EQ(y[5], 255);  // negative: ours to define
}

}  // namespace
