// Typed buffer accesses (buffer_load_format_*, tbuffer_*): elements are converted from and to the format that the
// resource or the instruction names. A load or store lies inside the resource as a whole or not at all. ISA documents,
// "Typed Buffer Memory Operations" and "Buffer Image Formats".
#include "sim/exec/fault.h"
#include "sim/isa/operands.h"
#include "sim/ops/buffer_format.h"
#include "sim/ops/families.h"
#include "sim/ops/resource.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

BufferFormat formatOf(const Wave& w, const Inst& in, const Resource& r) {
  unsigned code = in.imm2 & kTyped ? static_cast<unsigned>(in.imm2 >> 8 & 0x7f) : formatOfResource(*w.chip, r.word3());
  BufferFormat f = bufferFormat(*w.chip, code);
  if (!f.components) throw Fault("the buffer format " + std::to_string(code) + " does not exist on this chip");
  return f;
}

/// What the destination select `sel` picks: 0, 1, or component sel - 4; components the format lacks are 0, 0, 0, 1.
U selected(const BufferFormat& f, const std::uint8_t* raw, U sel) {
  U one = f.integer() ? 1 : bitsOf(1.0f);
  if (sel == 1) return one;
  if (sel < 4) return 0;
  int i = static_cast<int>(sel - 4);
  if (i >= f.components) return i == 3 ? one : 0;
  return decodeComponent(f, raw, i);
}
U narrow(const BufferFormat& f, U v) { return f.integer() ? v & 0xffff : floatToHalf(asF32(v)); }
U widen(const BufferFormat& f, U half) {
  if (!f.integer()) return bitsOf(halfToFloat(static_cast<std::uint16_t>(half)));
  return f.number == NumberFormat::kSint ? static_cast<U>(static_cast<std::int16_t>(half)) : half & 0xffff;
}

enum class Width { kFull, kHalf, kHighHalf };

template <int kComponents, Width kWidth>
void load(Wave& w, const Inst& in) {
  Resource r(w, in);
  BufferFormat f = formatOf(w, in, r);
  forActive(w.mask, [&](int l) {
    std::uint8_t raw[16] = {};
    // What lies outside reads as a zero element; selected constants stay.
    r.read(l, f.bytes(), raw);
    U v[4];
    for (int c = 0; c < kComponents; ++c) v[c] = selected(f, raw, r.word3() >> (3 * c) & 7);
    for (int c = 0; c < kComponents; ++c) {
      if (kWidth == Width::kFull) {
        w.row(in.dst[0], c)[l] = v[c];
      } else {
        U& to = w.row(in.dst[0], c / 2)[l];
        bool high = kWidth == Width::kHighHalf || (c & 1);
        // The first component of a register decides what becomes of its other half, the second fills that half.
        U half = narrow(f, v[c]);
        to = c & 1 ? (to & 0xffff) | half << 16 : withLoadedHalf(w, to, half, high);
      }
    }
  });
}

template <int kComponents, Width kWidth>
void store(Wave& w, const Inst& in) {
  Resource r(w, in);
  BufferFormat f = formatOf(w, in, r);
  forActive(w.mask, [&](int l) {
    std::uint8_t raw[16] = {};
    for (int c = 0; c < kComponents && c < f.components; ++c) {
      U v;
      if (kWidth == Width::kFull)
        v = w.row(in.src[1], c)[l];
      else
        v = widen(f, w.row(in.src[1], c / 2)[l] >> (kWidth == Width::kHighHalf || (c & 1) ? 16 : 0));
      encodeComponent(f, raw, c, v);
    }
    r.write(l, f.bytes(), raw);
  });
}

template <int kComponents>
void addCount(OpTable& t, const std::string& suffix) {
  for (const char* p : {"buffer", "tbuffer"}) {
    std::string prefix = p;
    t.add(prefix + "_load_format_" + suffix, load<kComponents, Width::kFull>);
    t.add(prefix + "_store_format_" + suffix, store<kComponents, Width::kFull>);
    auto half = [&](const char* verb) {
      return prefix + verb + "format_d16_" + suffix + "|" + prefix + verb + "d16_format_" + suffix;
    };
    t.add(half("_load_"), load<kComponents, Width::kHalf>);
    t.add(half("_store_"), store<kComponents, Width::kHalf>);
  }
}

}  // namespace

void addBufferTyped(OpTable& t) {
  addCount<1>(t, "x");
  addCount<2>(t, "xy");
  addCount<3>(t, "xyz");
  addCount<4>(t, "xyzw");
  t.add("buffer_load_format_d16_hi_x|buffer_load_d16_hi_format_x", load<1, Width::kHighHalf>);
  t.add("buffer_store_format_d16_hi_x|buffer_store_d16_hi_format_x", store<1, Width::kHighHalf>);
}

}  // namespace sardonyx::sim
