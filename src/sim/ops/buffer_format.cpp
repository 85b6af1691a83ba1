// See buffer_format.h. Component lists of AMD's format names run from the highest bits to the lowest (2_10_10_10: two
// bits at the top), those here from the lowest.
#include "sim/ops/buffer_format.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

struct Layout {
  std::uint8_t components, bits[4];
};
/// gfx9's data formats in the order of their codes.
constexpr Layout kLayouts[15] = {{0, {}},
                                 {1, {8}},
                                 {1, {16}},
                                 {2, {8, 8}},
                                 {1, {32}},
                                 {2, {16, 16}},
                                 {3, {11, 11, 10}},
                                 {3, {10, 11, 11}},
                                 {4, {2, 10, 10, 10}},
                                 {4, {10, 10, 10, 2}},
                                 {4, {8, 8, 8, 8}},
                                 {2, {32, 32}},
                                 {4, {16, 16, 16, 16}},
                                 {3, {32, 32, 32}},
                                 {4, {32, 32, 32, 32}}};

/// A run of unified formats: one layout with number formats in ascending order.
struct Run {
  std::uint8_t first, layout;
  const char* numbers;  ///< digits of NumberFormat
};
constexpr Run kGfx10Runs[] = {{1, 1, "012345"},   {7, 2, "0123456"},  {14, 3, "012345"},  {20, 4, "456"},
                              {23, 5, "0123456"}, {30, 6, "0123456"}, {37, 7, "0123456"}, {44, 8, "012345"},
                              {50, 9, "012345"},  {56, 10, "012345"}, {62, 11, "456"},    {65, 12, "0123456"},
                              {72, 13, "456"},    {75, 14, "456"}};
constexpr Run kRuns[] = {{1, 1, "012345"},   {7, 2, "0123456"},  {14, 3, "012345"}, {20, 4, "456"},
                         {23, 5, "0123456"}, {30, 6, "6"},       {31, 7, "6"},      {32, 8, "0145"},
                         {36, 9, "012345"},  {42, 10, "012345"}, {48, 11, "456"},   {51, 12, "0123456"},
                         {58, 13, "456"},    {61, 14, "456"}};

BufferFormat make(unsigned layout, unsigned number) {
  BufferFormat f;
  f.number = static_cast<NumberFormat>(number);
  f.components = kLayouts[layout].components;
  std::memcpy(f.bits, kLayouts[layout].bits, sizeof f.bits);
  return f;
}

std::uint64_t field(const std::uint8_t* raw, unsigned at, unsigned bits) {
  std::uint64_t v = 0;
  std::memcpy(&v, raw + at / 32 * 4, at / 32 * 4 + 8 <= 16 ? 8 : 4);
  return v >> (at % 32) & ((1ull << bits) - 1);
}
unsigned position(const BufferFormat& f, int i) {
  unsigned at = 0;
  for (int k = 0; k < i; ++k) at += f.bits[k];
  return at;
}

/// Unsigned floats of 10 and 11 bits: five bits of exponent, no sign.
float smallFloat(std::uint32_t v, unsigned bits) {
  unsigned mantissaBits = bits - 5;
  std::uint32_t mantissa = v & ((1u << mantissaBits) - 1), exponent = v >> mantissaBits;
  return halfToFloat(static_cast<std::uint16_t>(exponent << 10 | mantissa << (10 - mantissaBits)));
}
std::uint32_t toSmallFloat(float x, unsigned bits) {
  if (!(x > 0) && x == x) return 0;
  std::uint16_t h = floatToHalf(x, 3);  // these formats truncate
  return h >> (10 - (bits - 5));
}

}  // namespace

BufferFormat bufferFormat(const Chip& chip, unsigned code) {
  if (chip.gen == Gen::kGfx9) {
    unsigned data = code & 15, number = code >> 4 & 7;
    if (data == 15 || number == 6) return {};
    if (number == 7) number = 6;
    BufferFormat f = make(data, number);
    // Floats have 16 or 32 bits, or are the packed 10 and 11 bit ones; 32-bit components are integers or floats.
    if (number == 6 && (f.bits[0] == 8 || data == 8 || data == 9)) return {};
    if (f.bits[0] == 32 && number < 4) return {};
    return f;
  }
  const std::span<const Run> runs = chip.gen == Gen::kGfx10 ? std::span<const Run>(kGfx10Runs) : kRuns;
  for (const Run& r : runs)
    if (code >= r.first && code < r.first + std::strlen(r.numbers))
      return make(r.layout, static_cast<unsigned>(r.numbers[code - r.first] - '0'));
  return {};
}

unsigned formatOfResource(const Chip& chip, std::uint32_t word3) {
  if (chip.gen == Gen::kGfx9) return (word3 >> 15 & 15) | (word3 >> 12 & 7) << 4;
  return word3 >> 12 & (chip.gen == Gen::kGfx10 ? 127 : 63);
}

std::uint32_t decodeComponent(const BufferFormat& f, const std::uint8_t* raw, int i) {
  unsigned bits = f.bits[i];
  auto v = static_cast<std::uint32_t>(field(raw, position(f, i), bits));
  auto s = static_cast<std::int32_t>(v << (32 - bits)) >> (32 - bits);
  switch (f.number) {
    case NumberFormat::kUnorm:
      return bitsOf(static_cast<float>(static_cast<double>(v) / static_cast<double>((1ull << bits) - 1)));
    case NumberFormat::kSnorm:
      return bitsOf(
          static_cast<float>(std::fmax(-1.0, static_cast<double>(s) / static_cast<double>((1ull << (bits - 1)) - 1))));
    case NumberFormat::kUscaled:
      return bitsOf(static_cast<float>(v));
    case NumberFormat::kSscaled:
      return bitsOf(static_cast<float>(s));
    case NumberFormat::kUint:
      return v;
    case NumberFormat::kSint:
      return static_cast<std::uint32_t>(s);
    case NumberFormat::kFloat:
      return bits == 32   ? v
             : bits == 16 ? bitsOf(halfToFloat(static_cast<std::uint16_t>(v)))
                          : bitsOf(smallFloat(v, bits));
  }
  return 0;
}

void encodeComponent(const BufferFormat& f, std::uint8_t* raw, int i, std::uint32_t value) {
  unsigned bits = f.bits[i], at = position(f, i);
  float x = asF32(value);
  if (x != x && !f.integer() && f.number != NumberFormat::kFloat) x = 0;
  double low = 0, high = static_cast<double>((1ull << bits) - 1), scale = 1;
  if (f.number == NumberFormat::kSnorm || f.number == NumberFormat::kSscaled) {
    high = static_cast<double>((1ull << (bits - 1)) - 1);
    low = f.number == NumberFormat::kSnorm ? -high : -high - 1;
  }
  if (f.number == NumberFormat::kUnorm || f.number == NumberFormat::kSnorm) scale = high;
  std::uint32_t v = value;
  if (f.number == NumberFormat::kFloat)
    v = bits == 32 ? value : bits == 16 ? floatToHalf(x) : toSmallFloat(x, bits);
  else if (!f.integer())
    v = static_cast<std::uint32_t>(
        static_cast<std::int64_t>(std::nearbyint(std::fmin(std::fmax(static_cast<double>(x) * scale, low), high))));
  if (bits < 32) v &= (1u << bits) - 1;
  std::uint32_t word;
  std::memcpy(&word, raw + at / 32 * 4, 4);
  word |= v << (at % 32);
  std::memcpy(raw + at / 32 * 4, &word, 4);
}

}  // namespace sardonyx::sim
