// Memory instructions by name (kernels/memory.cpp), with results worked out from AMD's ISA documents: MI300 (CDNA3)
// ISA, chapters 9 "Vector Memory" and 11 "Local Data Share", RDNA3 ISA chapters 9 and 12, RDNA4 ISA chapters 9 to 11.
#include <bit>
#include <cmath>

#include "harness.h"

namespace {

using U = std::uint32_t;

class Memory : public SimTest {
 protected:
  bool is(const char* chip) const { return std::string(GetParam().chip) == chip; }
  bool gfx9() const { return std::string(GetParam().chip).substr(0, 4) == "gfx9"; }
  bool starts(const char* name) const { return std::string(GetParam().chip).rfind(name, 0) == 0; }
  bool gfx10() const { return starts("gfx10"); }
  bool gfx11() const { return starts("gfx11"); }
  bool gfx12() const { return starts("gfx12"); }
  /// Unified buffer format of gfx11 and gfx12, as gfx10 numbers it.
  U unified(U format) const {
    const std::pair<U, U> gfx10Codes[] = {{30, 36}, {36, 50}, {40, 54}, {42, 56}, {43, 57},
                                          {47, 61}, {56, 70}, {60, 74}, {61, 75}};
    for (auto [gfx11Code, gfx10Code] : gfx10Codes)
      if (gfx10() && format == gfx11Code) return gfx10Code;
    return format;
  }
  static std::vector<U> counting(std::size_t n) {
    std::vector<U> v(n);
    for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<U>(i);
    return v;
  }
};
SIM_TESTS(Memory);

float half(U h) { return static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(h))); }
U toHalf(float f) { return std::bit_cast<std::uint16_t>(static_cast<_Float16>(f)); }
U bits(float f) { return std::bit_cast<U>(f); }

// Each dword of a load is checked by itself; the scalar offset takes away from the bytes of a raw resource.
TEST_P(Memory, RawBufferBounds) {
  load("memory");
  const U word3 = gfx9() ? 0x27000 : 3u << 28 | 22u << 12, bytes = 100, scalar = 16;
  Buffer<U> in(counting(128)), out(256), target(std::vector<U>(128, 7));
  HIP_OK(launch("bufferRaw", {1}, {64}, in.get(), out.get(), target.get(), bytes, word3, scalar));
  auto got = out.read(), stored = target.read();
  for (U l = 0; l < 64; ++l)
    for (U k = 0; k < 4; ++k) {
      U offset = l * 4 + 8 + k * 4;  // without the scalar offset
      U want = offset + 4 <= bytes - scalar ? (offset + scalar) / 4 : 0;
      ASSERT_EQ(got[l * 4 + k], want) << l << " " << k;
    }
  for (U i = 0; i < 128; ++i) {
    U want = 7;
    if (i >= 4 && (i + 1) * 4 <= bytes) want = (i - 4) / 2 + (i % 2 ? 100 : 0);
    ASSERT_EQ(stored[i], want) << i;
  }
}

// OOB_SELECT 0 checks index and offset, 1 the index alone, 2 nothing; gfx9 checks the offset of swizzled resources
// only.
TEST_P(Memory, StructuredBufferBounds) {
  load("memory");
  const U stride = 12, records = 9;
  Buffer<U> in(counting(256));
  for (U select : {0u, 1u, 2u, 3u}) {
    if (gfx9() && select) break;
    Buffer<U> out(128);
    U word3 = gfx9() ? 0x27000 : select << 28 | 22u << 12;
    HIP_OK(launch("bufferStructured", {1}, {64}, in.get(), out.get(), stride, records, 0u, word3));
    auto got = out.read();
    for (U l = 0; l < 64; ++l)
      for (U k = 0; k < 2; ++k) {
        U index = l / 4, offset = l % 4 * 4 + k * 4;
        bool indexOk = index < records, offsetOk = offset + 4 <= stride;
        bool ok = gfx9()        ? indexOk
                  : select == 0 ? indexOk && offsetOk
                  : select == 1 ? indexOk
                  : select == 2 ? true
                                : offset + 4 <= records;
        ASSERT_EQ(got[l * 2 + k], ok ? (index * stride + offset) / 4 : 0)
            << "select " << select << " " << l << " " << k;
      }
  }
}

// Swizzled: index stride 8, elements of 4 bytes: ((index / 8) * stride + offset) * 8 + index % 8 * 4.
TEST_P(Memory, SwizzledBuffer) {
  load("memory");
  const U stride = 12, records = 13;
  Buffer<U> in(counting(256)), out(128);
  U word3 = gfx9() ? 0x27000 : 22u << 12;
  HIP_OK(launch("bufferStructured", {1}, {64}, in.get(), out.get(), stride, records,
                gfx9() || gfx10() ? 1u << 31 : 1u << 30, word3));
  auto got = out.read();
  for (U l = 0; l < 64; ++l)
    for (U k = 0; k < 2; ++k) {
      U index = l / 4, offset = l % 4 * 4 + k * 4;
      bool ok = index < records && offset + 4 <= stride;
      U at = ((index / 8) * stride + offset) * 8 + index % 8 * 4;
      ASSERT_EQ(got[l * 2 + k], ok ? at / 4 : 0) << l << " " << k;
    }
}

struct TypedCase {
  const char* name;
  U data, number, unified;  // gfx9's formats; gfx11's
  U stride, components;
};
// Loads convert to registers, stores convert back: what was loaded must be stored as it was.
TEST_P(Memory, TypedBuffers) {
  load("memory");
  const TypedCase cases[] = {{"8_8_8_8 unorm", 10, 0, 42, 4, 4},    {"8_8_8_8 snorm", 10, 1, 43, 4, 4},
                             {"8_8_8_8 sint", 10, 5, 47, 4, 4},     {"16_16 float", 5, 7, 29, 4, 2},
                             {"16 uscaled", 2, 2, 9, 2, 1},         {"32_32_32 float", 13, 7, 60, 12, 3},
                             {"2_10_10_10 uint", 9, 4, 40, 4, 4},   {"2_10_10_10 unorm", 9, 0, 36, 4, 4},
                             {"16_16_16_16 sint", 12, 5, 56, 8, 4}, {"32_32_32_32 uint", 14, 4, 61, 16, 4},
                             {"10_11_11 float", 6, 7, 30, 4, 3}};
  for (const TypedCase& c : cases) {
    SCOPED_TRACE(c.name);
    Random r(5);
    std::vector<U> source(64 * c.stride / 4 + 4);
    for (auto& v : source) v = r.u32() & (std::string(c.name).find("float") != std::string::npos ? 0x3bef3bef : ~0u);
    if (c.number == 1)  // -1 has two codes; a store gives the higher one
      for (auto& v : source) v |= 0x01010101;
    const U xyzw = 4 | 5 << 3 | 6 << 6 | 7 << 9;
    U word3 = xyzw | (gfx9() ? c.number << 12 | c.data << 15 : unified(c.unified) << 12);
    Buffer<U> in(source), out(256), target(std::vector<U>(source.size()));
    HIP_OK(launch("bufferTyped", {1}, {64}, in.get(), out.get(), target.get(), c.stride, word3));
    auto got = out.read(), back = target.read();
    std::vector<U> want(source.begin(), source.begin() + 64 * c.stride / 4);
    back.resize(want.size());
    EXPECT_EQ(back, want);
    const auto* bytes = reinterpret_cast<const unsigned char*>(source.data());
    for (U l = 0; l < 64; ++l) {
      const unsigned char* e = bytes + l * c.stride;
      U word;
      std::memcpy(&word, e, 4);
      auto s8 = static_cast<signed char>(e[1]);
      U second = got[l * 4 + 1], fourth = got[l * 4 + 3];
      bool integer = c.number == 4 || c.number == 5;
      if (c.components < 4) {
        ASSERT_EQ(fourth, integer ? 1u : bits(1.0f)) << l;
      }
      switch (c.unified) {
        case 42:
          ASSERT_EQ(second, bits(static_cast<float>(e[1] / 255.0))) << l;
          break;
        case 43:
          ASSERT_EQ(second, bits(static_cast<float>(std::fmax(s8 / 127.0, -1)))) << l;
          break;
        case 47:
          ASSERT_EQ(second, static_cast<U>(s8)) << l;
          break;
        case 29:
          ASSERT_EQ(second, bits(half(word >> 16))) << l;
          break;
        case 9:
          ASSERT_EQ(got[l * 4], bits(static_cast<float>(word & 0xffff))) << l;
          ASSERT_EQ(second, 0u) << l;
          break;
        case 40:
          ASSERT_EQ(second, word >> 10 & 0x3ff) << l;
          ASSERT_EQ(fourth, word >> 30) << l;
          break;
        case 36:
          ASSERT_EQ(fourth, bits(static_cast<float>((word >> 30) / 3.0))) << l;
          break;
        case 30:  // x: 11 bits, 5 of exponent
          ASSERT_EQ(got[l * 4], bits(half((word & 0x7ff) << 4))) << l;
          break;
        default:
          break;
      }
    }
  }
}

TEST_P(Memory, TypedBuffersOfHalves) {
  load("memory");
  const U xyzw = 4 | 5 << 3 | 6 << 6 | 7 << 9;
  Random r(6);
  std::vector<U> source(64);
  for (auto& v : source) v = r.u32();
  Buffer<U> in(source), out(128), target(std::vector<U>(64));
  HIP_OK(launch("bufferTypedHalf", {1}, {64}, in.get(), out.get(), target.get(), 4u,
                xyzw | (gfx9() ? 10u << 15 : unified(42) << 12)));
  auto got = out.read();
  for (U l = 0; l < 64; ++l)
    for (U c = 0; c < 4; ++c)
      ASSERT_EQ(got[l * 2 + c / 2] >> (c % 2 * 16) & 0xffff,
                toHalf(static_cast<float>((source[l] >> (8 * c) & 255) / 255.0)))
          << l;
  EXPECT_EQ(target.read(), source);  // eleven bits hold eight
  Buffer<U> signedOut(128);
  HIP_OK(launch("tbufferLoad", {1}, {64}, in.get(), signedOut.get(), xyzw));
  got = signedOut.read();
  for (U l = 0; l < 64; ++l) {
    ASSERT_EQ(got[l * 2], static_cast<U>(static_cast<std::int16_t>(source[l])));
    ASSERT_EQ(got[l * 2 + 1], static_cast<U>(static_cast<std::int32_t>(source[l]) >> 16));
  }
}

TEST_P(Memory, ScalarLoads) {
  load("memory");
  Buffer<U> in(std::vector<U>{0x11223344, 0x55667788, 0x80ff9911, 4, 5, 6, 7, 8}), out(4);
  HIP_OK(launch("scalarBuffer", {1}, {1}, in.get(), out.get(), 20u));
  EXPECT_EQ(out.read(), (std::vector<U>{0x80ff9911, 4, 5, 0}));  // the last dword begins at byte 20
  if (!gfx12()) return;
  HIP_OK(launch("scalarSmall", {1}, {32}, in.get(), out.get()));
  EXPECT_EQ(out.read(), (std::vector<U>{0x33, 0x11, 0x1122, 0x5566}));
}

TEST_P(Memory, SpecialLdsOperations) {
  load("memory");
  Buffer<U> out(64 * 16);
  HIP_OK(launch("ldsSpecial", {1}, {64}, out.get()));
  auto got = out.read();
  auto cell = [](U i) { return i * 0x01010101u + 0x100; };
  for (U l = 0; l < 64; ++l) {
    U c[4] = {cell(l * 4), cell(l * 4 + 1), cell(l * 4 + 2), cell(l * 4 + 3)};
    std::vector<U> want;
    want.push_back(c[0]);
    c[0] = (c[0] & ~0xff00u) | 0x1200;
    want.push_back(gfx12() ? 0 : c[1]);
    if (!gfx12()) c[1] = c[1] >= 0x20000000u ? c[1] - 0x20000000u : c[1] + 5;
    want.insert(want.end(), {c[2], c[3]});
    c[2] = 7, c[3] = 8;
    want.insert(want.end(), {c[0], c[1]});
    c[0] = 5;  // the top bit asked for it; the second stays
    want.insert(want.end(), c, c + 4);
    want.insert(want.end(), c + 1, c + 4);
    want.push_back(0x3f800000);
    want.push_back((c[2] >> 8 & 0xff) << 16 | (gfx9() ? 0 : 0xabcd));  // SRAM-ECC clears the other half
    want.push_back(cell(l * 4 + 512) ^ cell(l * 4 + 1024));
    for (U k = 0; k < 16; ++k) ASSERT_EQ(got[l * 16 + k], want[k]) << l << " " << k;
  }
}

TEST_P(Memory, AppendConsumeAndAddressesByLane) {
  load("memory");
  Buffer<U> out(256);
  HIP_OK(launch("ldsCounts", {1}, {32}, out.get()));
  auto got = out.read();
  const U start = 0x01010101u + 0x100;
  for (U l = 0; l < 32; ++l) {
    ASSERT_EQ(got[l], l % 3 ? 0 : start) << l;
    ASSERT_EQ(got[64 + l], l < 5 ? start + 11 : 0) << l;
    ASSERT_EQ(got[128 + l], start + 11 - 5);
    ASSERT_EQ(got[192 + l], l < 31 ? (l + 1) * 3 : 96u * 0x01010101u + 0x100)
        << l;  // cell 65 + l: the next lane's store
  }
}

TEST_P(Memory, LoadsIntoLds) {
  if (!gfx9()) return;  // gfx11 and gfx12 have none
  load("memory");
  Buffer<U> in(counting(256)), out(128);
  HIP_OK(launch("bufferToLds", {1}, {64}, in.get(), out.get(), 240u));
  auto got = out.read();
  for (U l = 0; l < 64; ++l) {
    U offset = (63 - l) * 4 + 64;
    U want = offset + 4 <= 240 ? offset / 4 : 0;
    if (l == 5) want = (16 + l) * 0x01010101u + 0x100;  // not active: its place keeps what it had
    ASSERT_EQ(got[l], want) << l;
    ASSERT_EQ(got[64 + l], l % 4 ? 0 : l / 4) << l;  // bytes of small numbers
  }
  if (is("gfx90a")) return;
  Buffer<U> out2(512);
  HIP_OK(launch("globalToLds", {1}, {64}, in.get(), out2.get()));
  got = out2.read();
  for (U l = 0; l < 64; ++l) ASSERT_EQ(got[l], l * 2 + 2) << l;
  if (!is("gfx950")) return;
  for (U i = 0; i < 256; ++i) ASSERT_EQ(got[64 + i], i);
  for (U i = 0; i < 192; ++i) ASSERT_EQ(got[320 + i], i / 3 * 4 + i % 3);
}

TEST_P(Memory, LoadIntoLdsNeedsItsWait) {
  if (!gfx9()) return;
  load("memory");
  Buffer<U> in(counting(256)), out(64);
  EXPECT_EQ(launch("missingTransferWait", {1}, {64}, in.get(), out.get()), hipErrorLaunchFailure);
  std::string message = sardonyxSimLastFailure();
  EXPECT_NE(message.find("LDS is read before a wait covers \"buffer_load_dword"), std::string::npos) << message;
}

// Elements of `bits` bits at element index i of a byte string.
U element(const std::vector<U>& data, U byte, U index, U width) {
  const auto* p = reinterpret_cast<const unsigned char*>(data.data()) + byte;
  U at = index * width, v = p[at / 8];
  if (at % 8 + width > 8) v |= static_cast<U>(p[at / 8 + 1]) << 8;
  return v >> at % 8 & ((1u << width) - 1);
}

// CDNA4: within 16 lanes, a matrix of 16 columns whose rows lie in consecutive lanes; lane c receives column c.
TEST_P(Memory, TransposingLoadsFromLds) {
  if (!is("gfx950")) return;
  load("memory");
  Random r(9);
  std::vector<U> source(2048);
  for (auto& v : source) v = r.u32();
  Buffer<U> in(source), out(1024);
  HIP_OK(launch("ldsTranspose", {1}, {64}, in.get(), out.get()));
  auto got = out.read();
  struct {
    U base, bits, count, bytes, dwords;
  } forms[] = {{0, 16, 4, 8, 2}, {128, 8, 8, 8, 2}, {256, 4, 16, 8, 2}, {384, 6, 16, 12, 3}};
  for (auto f : forms)
    for (U l = 0; l < 64; ++l)
      for (U k = 0; k < f.count; ++k) {
        // Row k of the block of 16 lanes is the row's 16 elements in order.
        U c = l % 16, lane = l / 16 * 16 + (k * 16 + c) / f.count, index = (k * 16 + c) % f.count;
        std::vector<U> result(got.begin() + f.base + l * f.dwords, got.begin() + f.base + (l + 1) * f.dwords);
        result.push_back(0);
        ASSERT_EQ(element(result, 0, k, f.bits), element(source, lane * f.bytes, index, f.bits))
            << f.bits << " " << l << " " << k;
      }
}

// RDNA4: 16-bit elements are transposed within 8 lanes; with rows of 16 bytes addressed as the kernel does, the 8-bit
// form hands lane l column l % 16, rows (l / 16) * 8 on.
TEST_P(Memory, TransposingLoadsFromMemory) {
  if (!gfx12()) return;
  load("memory");
  Random r(10);
  std::vector<U> source(256);
  for (auto& v : source) v = r.u32();
  Buffer<U> in(source), out(256);
  HIP_OK(launch("globalTranspose", {1}, {32}, in.get(), out.get()));
  auto got = out.read();
  std::vector<U> wide(got.begin(), got.begin() + 128), narrow(got.begin() + 128, got.begin() + 192);
  for (U l = 0; l < 32; ++l)
    for (U e = 0; e < 8; ++e) {
      ASSERT_EQ(element(wide, l * 16, e, 16), element(source, (l / 8 * 8 + e) * 16, l % 8, 16)) << l << " " << e;
      ASSERT_EQ(element(narrow, l * 8, e, 8), element(source, (l / 16 * 8 + e) * 16, l % 16, 8)) << l << " " << e;
    }
}

template <class T>
T applied(int op, T old, T data) {
  using S = std::make_signed_t<T>;
  switch (op) {
    case 0:
      return data;
    case 1:
      return old + data;
    case 2:
      return old - data;
    case 3:
      return static_cast<T>(std::min(static_cast<S>(old), static_cast<S>(data)));
    case 4:
      return std::min(old, data);
    case 5:
      return static_cast<T>(std::max(static_cast<S>(old), static_cast<S>(data)));
    case 6:
      return std::max(old, data);
    case 7:
      return old & data;
    case 8:
      return old | data;
    case 9:
      return old ^ data;
    case 10:
      return old >= data ? 0 : old + 1;
    default:
      return old == 0 || old > data ? data : old - 1;
  }
}
template <class T>
void integerAtomics(Memory* test, hipError_t (*run)(Memory*, T*, T*, T*)) {
  Random r(11);
  std::vector<T> cells(12 * 64), operands(64);
  for (auto& v : cells) v = static_cast<T>(r.next() >> (r.u32() % 40));
  for (auto& v : operands) v = static_cast<T>(r.next() >> (r.u32() % 40));
  operands[0] = 0, operands[1] = ~T{0}, cells[11 * 64 + 2] = 0;
  Buffer<T> memory(cells), old(12 * 64), data(operands);
  HIP_OK(run(test, memory.get(), old.get(), data.get()));
  auto after = memory.read();
  EXPECT_EQ(old.read(), cells);
  for (int op = 0; op < 12; ++op)
    for (std::size_t l = 0; l < 64; ++l) {
      std::size_t i = static_cast<std::size_t>(op) * 64 + l;
      ASSERT_EQ(after[i], applied(op, cells[i], operands[l])) << op << " " << l;
    }
}
TEST_P(Memory, IntegerAtomics) {
  load("memory");
  struct Access : Memory {
    using Memory::launch;
  };
  integerAtomics<U>(this, [](Memory* t, U* a, U* b, U* c) {
    return static_cast<Access*>(t)->launch("atomics32", {1}, {64}, a, b, c);
  });
  integerAtomics<std::uint64_t>(this, [](Memory* t, std::uint64_t* a, std::uint64_t* b, std::uint64_t* c) {
    return static_cast<Access*>(t)->launch("atomics64", {1}, {64}, a, b, c);
  });
}

TEST_P(Memory, AtomicsThroughAResource) {
  load("memory");
  Buffer<U> cells(counting(128));
  HIP_OK(launch("atomicsBuffer", {1}, {64}, cells.get(), 160u, gfx9() ? 0x27000u : 3u << 28 | 22u << 12));
  auto got = cells.read();
  for (U l = 0; l < 64; ++l) {
    U sum = l + l + 1;  // 40 cells lie inside; outside, nothing changes and zero returns
    bool inside = l < 40;
    ASSERT_EQ(got[64 + l], inside ? sum : 0) << l;
    ASSERT_EQ(got[l], !inside ? l : l % 2 ? 1000 + l : sum) << l;
  }
}

TEST_P(Memory, FloatAtomics) {
  load("memory");
  Random r(12);
  std::vector<U> cells(640), operands(64);
  // Small multiples of 1/4 in halves of 16 and 32 bits: sums are exact.
  for (auto& v : operands)
    v = toHalf(static_cast<float>(r.u32() % 16) / 4 + 1) << 16 | toHalf(static_cast<float>(r.u32() % 16) / 4 + 1);
  for (std::size_t i = 0; i < 640; ++i) cells[i] = operands[i % 64] ^ (i < 384 ? 0x00800000u : 0);
  Buffer<U> memory(cells), data(operands);
  HIP_OK(launch("atomicsFloat", {1}, {64}, memory.get(), data.get()));
  auto got = memory.read();
  auto f = [](U v) { return std::bit_cast<float>(v); };
  auto d = [](U low, U high) { return std::bit_cast<double>(static_cast<std::uint64_t>(high) << 32 | low); };
  auto bf = [&](U v) { return f(v << 16); };
  for (std::size_t l = 0; l < 64; ++l) {
    ASSERT_EQ(f(got[l]), gfx10() ? f(cells[l]) : f(cells[l]) + f(operands[l])) << l;
    ASSERT_EQ(f(got[64 + l]), 2.0f + f(operands[l])) << l;
    U x = operands[l];
    bool pk = !gfx10() && !gfx11(), bf16 = pk && !is("gfx90a");
    for (int s : {0, 16}) {
      U want = pk ? toHalf(half(cells[128 + l] >> s) + half(x >> s)) : cells[128 + l] >> s & 0xffff;
      ASSERT_EQ(got[128 + l] >> s & 0xffff, want) << l;
      if (bf16) {
        U old = cells[192 + l] >> s & 0xffff, now = got[192 + l] >> s & 0xffff;
        float sum = bf(old) + bf(x >> s & 0xffff);
        // Rounded to nearest even at bit 16.
        ASSERT_EQ(now, (bits(sum) + 0x7fff + (bits(sum) >> 16 & 1)) >> 16) << l;
        ASSERT_EQ(got[256 + l] >> s & 0xffff, toHalf(half(cells[256 + l] >> s) + half(x >> s))) << l;
      }
    }
    if (!gfx9()) {
      ASSERT_EQ(f(got[320 + l]), std::fmax(f(cells[320 + l]), f(x))) << l;
    } else {
      std::size_t a = 384 + 2 * l, b = 512 + 2 * l;
      ASSERT_EQ(d(got[a], got[a + 1]), d(cells[a], cells[a + 1]) + d(0, x)) << l;
      ASSERT_EQ(d(got[b], got[b + 1]), std::fmin(d(cells[b], cells[b + 1]), d(0, x))) << l;
    }
  }
}

TEST_P(Memory, FlatAperturesAndUnalignedLoads) {
  load("memory");
  std::vector<unsigned char> source(256);
  for (std::size_t i = 0; i < 256; ++i) source[i] = static_cast<unsigned char>(i * 7);
  Buffer<unsigned char> in(source);
  Buffer<U> out(192);
  HIP_OK(launch("flatApertures", {1}, {64}, out.get(), in.get()));
  auto got = out.read();
  for (U l = 0; l < 64; ++l) {
    ASSERT_EQ(got[64 + l], l % 2 ? 5000 + l : l * 8 + l % 8) << l;
    U want;
    std::memcpy(&want, &source[l * 3 + 1], 4);
    ASSERT_EQ(got[128 + l], want) << l;
  }
}

TEST_P(Memory, AtomicsMustBeAligned) {
  load("memory");
  Buffer<U> cells(std::vector<U>(80));
  EXPECT_EQ(launch("misalignedAtomic", {1}, {64}, reinterpret_cast<char*>(cells.get())), hipErrorLaunchFailure);
  std::string message = sardonyxSimLastFailure();
  EXPECT_NE(message.find("is not aligned to 4"), std::string::npos) << message;
}

}  // namespace
