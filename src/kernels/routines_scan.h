// Running sums and products on GPUs.
#pragma once
#include "routines.h"
#include "routines_input.h"

namespace sdx {

/// A sum of floats of at most 32 bits in two float32: the sum, and what rounding has left (Knuth's two-sum). Many GPUs
/// compute float64 at a 16th to a 64th of the rate.
struct PairSum {
  f32 high, low;
};
SDX_FN PairSum operator+(PairSum a, PairSum b) {
  const f32 sum = a.high + b.high, of_b = sum - a.high;
  return {sum, a.low + b.low + ((a.high - (sum - of_b)) + (b.high - of_b))};
}

#if defined(__AMDGCN__) && !defined(__GFX9__)
inline constexpr bool kSlowDoubles = true;
#else
inline constexpr bool kSlowDoubles = false;
#endif

/// The arithmetic of a scan.
template <bool Product, class T>
struct Scan {
  static constexpr bool integer = is_int<T>;
  static constexpr bool pairs = !integer && !Product && (is_small_float<T> || (kSlowDoubles && sizeof(T) == 4));
  using A = select_type<integer, u64, select_type<pairs, PairSum, f64>>;
  static SDX_FN A neutral() {
    if constexpr (pairs)
      return {0, 0};
    else
      return Product ? 1 : 0;
  }
  static SDX_FN A combine(A a, A b) {
    if constexpr (Product)
      return a * b;
    else
      return a + b;
  }
  /// What a thread adds its elements to. What is left of an infinite sum is not a number.
  static SDX_FN A begin(A front) {
    if constexpr (pairs)
      return {front.high, front.high - front.high == 0 ? front.low : 0.f};
    else
      return front;
  }
  /// A few elements of 16 bits need no more than the second float32.
  static SDX_FN A add(A a, T x) {
    if constexpr (pairs && is_small_float<T>)
      return {a.high, a.low + cast<f32>(x)};
    else if constexpr (pairs)
      return a + PairSum{x, 0};
    else if constexpr (integer)
      return combine(a, A(x));
    else
      return combine(a, cast<f64>(x));
  }
  static SDX_FN A total(A a) {
    if constexpr (pairs && is_small_float<T>)
      return {a.low, 0};
    else
      return a;
  }
  static SDX_FN T result(A a) {
    if constexpr (pairs)
      return cast<T>(is_small_float<T> || a.high - a.high == 0 ? a.high + a.low : a.high);
    else if constexpr (integer)
      return T(a);
    else
      return cast<T>(a);
  }
};

/// Inclusive scan over the lanes of a wave that are a multiple of `step` apart.
template <class A, class F>
SDX_FN A scan_wave(A x, u32 step, F combine) {
  const u32 lane = thread_id() % kWave;
  for (u32 h = step; h < kWave; h *= 2) {
    const A before = from_lane(x, lane >= h ? lane - h : lane);
    if (lane >= h) x = combine(before, x);
  }
  return x;
}

/// Elements of a line, in the order of the scan. I: of indices.
template <bool Reverse, class X, class I = i64>
struct ScanLine {
  X x;  ///< a pointer, or Computed
  input_element<X>* y;
  I n, inner;
  SDX_FN I at(I k) const { return (Reverse ? n - 1 - k : k) * inner; }
};

/// Scans elements [from, to) of a line by a wave or a workgroup. Each thread has runs of V elements; 16 elements are in
/// flight.
template <bool Wave, bool Product, bool Exclusive, bool Reverse, class X>
SDX_FN void scan_range(ScanLine<Reverse, X> line, i64 from, i64 to,
                       typename Scan<Product, input_element<X>>::A before) {
  using T = input_element<X>;
  using S = Scan<Product, T>;
  using A = typename S::A;
  constexpr u32 V = 16 / sizeof(T), chunks = 16 / V, threads = Wave ? kWave : kThreads;
  const u32 thread = thread_id() % threads;
  const bool packed = line.inner == 1 && has_packs<V>(line.x) && aligned(line.y) &&
                      ((kPacksAnywhere<X, V> && kPacksAnywhere<const T*, V>) || (line.n % V == 0 && from % V == 0));
  const auto combine = [](A a, A b) { return S::combine(a, b); };
  for (i64 first = from; first < to; first += chunks * threads * V) {
    Pack<T, V> packs[chunks];
#pragma clang loop unroll(full)
    for (u32 c = 0; c < chunks; ++c) {
      if (Wave && first + c * threads * V >= to) break;  // short lines have fewer chunks
      const i64 k = first + (c * threads + thread) * V;
      if (packed && k + V <= to)
        packs[c] = read_pack<V>(line.x, Reverse ? line.n - V - k : k);
      else
#pragma clang loop unroll(full)
        for (u32 l = 0; l < V; ++l)
          packs[c][Reverse ? V - 1 - l : l] = k + l < to ? to_bits(read_element(line.x, line.at(k + l))) : 0;
    }
    loads_in_flight();
#pragma clang loop unroll(full)
    for (u32 c = 0; c < chunks; ++c) {
      if (Wave && first + c * threads * V >= to) break;
      const i64 k = first + (c * threads + thread) * V;
      const auto element = [&](u32 l) { return from_bits<T>(packs[c][Reverse ? V - 1 - l : l]); };
      A own = S::neutral();
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l)
        if (!Product || k + l < to) own = S::add(own, element(l));
      A front, total;
      if constexpr (Wave) {
        const A sum = scan_wave<A>(S::total(own), 1, combine), earlier = from_lane(sum, thread >= 1 ? thread - 1 : 0);
        front = thread >= 1 ? earlier : S::neutral();
        total = from_lane(sum, kWave - 1);
      } else
        front = scan_workgroup<A>(S::total(own), S::neutral(), combine, total);
      own = S::begin(combine(before, front));
      before = combine(before, total);
      Pack<T, V> results;
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l) {
        const auto next = S::add(own, element(l));
        results[Reverse ? V - 1 - l : l] = to_bits(S::result(Exclusive ? own : next));
        own = next;
      }
      if (packed && k + V <= to)
        store_pack<V>(line.y + (Reverse ? line.n - V - k : k), results);
      else
#pragma clang loop unroll(full)
        for (u32 l = 0; l < V; ++l)
          if (k + l < to) line.y[line.at(k + l)] = from_bits<T>(results[Reverse ? V - 1 - l : l]);
    }
  }
}

/// Of lines in several parts: the sum (product) of each part.
template <bool Product, bool Reverse, class X>
SDX_FN void routine_scan_totals(X x, u64* totals, i64 outer, i64 n, i64 inner, i64 part) {
  using T = input_element<X>;
  using S = Scan<Product, T>;
  using A = typename S::A;
  const i64 parts = (n + part - 1) / part;
  for (i64 b = block_id(); b < outer * inner * parts; b += block_count()) {
    const i64 p = b / parts, from = b % parts * part, to = min(n, from + part);
    const ScanLine<Reverse, X> line = {input_from(x, p / inner * n * inner + p % inner), nullptr, n, inner};
    A own = S::neutral();
#pragma clang loop unroll_count(8)
    for (i64 k = from + thread_id(); k < to; k += kThreads)
      own = S::add(own, read_element(line.x, line.at(k)));  // up to 32
    const A total = reduce_team(S::total(own), kThreads, [](A a, A b) { return S::combine(a, b); });
    if (thread_id() == 0) ((A*)totals)[b] = total;
  }
}

/// Running sums or products over lines of n elements with stride `inner`: a wave for each line of up to kScanInWave
/// elements, a workgroup for each part of longer ones.
/// `Waves`, `Groups`: lines may be so short, so long.
template <bool Waves, bool Groups, bool Product, bool Exclusive, bool Reverse, class X, class T>
SDX_FN void routine_scan_lines(X x, T* y, const u64* totals, i64 outer, i64 n, i64 inner, i64 part) {
  using S = Scan<Product, T>;
  using A = typename S::A;
  const i64 lines = outer * inner, parts = (n + part - 1) / part;
  const auto line = [&](i64 p) {
    const i64 base = p / inner * n * inner + p % inner;
    return ScanLine<Reverse, X>{input_from(x, base), y + base, n, inner};
  };
  if (Waves && (!Groups || n <= layout::kScanInWave)) {
    constexpr u32 waves = kThreads / kWave;
    for (i64 p = i64(block_id()) * waves + thread_id() / kWave; p < lines; p += i64(block_count()) * waves)
      scan_range<true, Product, Exclusive, Reverse>(line(p), 0, n, S::neutral());
    return;
  }
  if constexpr (!Groups) return;
  for (i64 b = block_id(); b < lines * parts; b += block_count()) {
    const i64 p = b / parts, of = b % parts;
    A before = S::neutral();
    if (parts > 1) {
      for (i64 j = thread_id(); j < of; j += kThreads) before = S::combine(before, ((const A*)totals)[p * parts + j]);
      before = reduce_team(before, kThreads, [](A a, A b) { return S::combine(a, b); });
    }
    scan_range<false, Product, Exclusive, Reverse>(line(p), of * part, min(n, (of + 1) * part), before);
  }
}

/// The same where neighbouring lines are contiguous: a thread for each line.
template <bool Product, bool Exclusive, bool Reverse, class X, class T>
SDX_FN void scan_threads(X x, T* y, i64 outer, i64 n, i64 inner) {
  using S = Scan<Product, T>;
  for (i64 p = first_thread(); p < outer * inner; p += all_threads()) {
    const i64 base = p / inner * n * inner + p % inner;
    const ScanLine<Reverse, X> line = {input_from(x, base), y + base, n, inner};
    typename S::A own = S::neutral();
    const auto add = [&](i64 k, T e) {
      const auto next = S::combine(own, S::total(S::add(S::neutral(), e)));
      line.y[line.at(k)] = S::result(S::begin(Exclusive ? own : next));
      own = next;
    };
    // Several loads at a time: the compiler does not move a load before a store that it may depend on.
    constexpr i64 ahead = 8;
    i64 k = 0;
    for (; k + ahead <= n; k += ahead) {
      T e[ahead];
#pragma clang loop unroll(full)
      for (i64 j = 0; j < ahead; ++j) e[j] = read_element(line.x, line.at(k + j));
#pragma clang loop unroll(full)
      for (i64 j = 0; j < ahead; ++j) add(k + j, e[j]);
    }
    for (; k < n; ++k) add(k, read_element(line.x, line.at(k)));
  }
}

template <class A, u32 N>
static SDX_SHARED A scan_columns_scratch[2][N];

/// Which rows a workgroup scans: all, or a part of them, of which it stores the sums or begins with those of earlier
/// parts.
enum class ScanPart { kAll, kTotals, kScan };

/// Columns by workgroups: W neighbouring threads have V columns each, the others divide the rows into segments of
/// Rows. The next rows are loaded while these are scanned. `totals`: for parts of `part` rows, their columns' sums.
template <u32 W, u32 V, u32 Rows, bool Product, bool Exclusive, bool Reverse, ScanPart Part, class I, class X, class T>
SDX_FN void scan_strips(X x, T* y, u64* totals, I outer, I n, I inner, I part) {
  using S = Scan<Product, T>;
  using A = typename S::A;
  constexpr u32 kSegment = Rows, kSegments = kThreads / W, kWaves = kThreads / kWave;
  const auto combine = [](A a, A b) { return S::combine(a, b); };
  const u32 place = thread_id() % W, segment = thread_id() / W, lane = thread_id() % kWave, wave = thread_id() / kWave;
  const I strips = (inner + W * V - 1) / (W * V);
  const I parts = Part == ScanPart::kAll ? 1 : (n + part - 1) / part;
  for (I g = I(block_id()); g < outer * strips * parts; g += I(block_count())) {
    const I of = Part == ScanPart::kAll ? 0 : g / (outer * strips), b = g - of * (outer * strips);
    const I from = Part == ScanPart::kAll ? 0 : of * part, to = Part == ScanPart::kAll ? n : min(n, from + part);
    // The last columns of a strip may be those of several threads.
    const I column = min(b % strips * (W * V) + place * V, inner - V), base = b / strips * n * inner + column;
    const ScanLine<Reverse, X, I> line = {input_from(x, base), y + base, n, inner};
    A* const own_totals = (A*)totals + b / strips * inner + column;  // those of the first part
    const auto row_at = [&](I first, u32 r) { return line.at(min(first + segment * kSegment + r, to - 1)); };
    decltype(fetch_pack<V>(x, 0)) next[kSegment];
    const auto load = [&](I first) {
#pragma clang loop unroll(full)
      for (u32 r = 0; r < kSegment; ++r) next[r] = fetch_pack<V>(line.x, row_at(first, r));
    };
    load(from);
    A before[V];
#pragma clang loop unroll(full)
    for (u32 l = 0; l < V; ++l) before[l] = S::neutral();
    if constexpr (Part == ScanPart::kScan)
      for (I j = 0; j < of; ++j)
#pragma clang loop unroll(full)
        for (u32 l = 0; l < V; ++l) before[l] = combine(before[l], own_totals[j * outer * inner + l]);
    u32 turn = 0;
    for (I first = from; first < to; first += kSegments * kSegment, turn ^= 1) {
      Pack<T, V> packs[kSegment];
#pragma clang loop unroll(full)
      for (u32 r = 0; r < kSegment; ++r) {  // zeros do not change sums
        const Pack<T, V> row = finish_pack<V>(line.x, next[r], row_at(first, r));
        packs[r] = first + segment * kSegment + r < to ? row : Pack<T, V>(0);
      }
      if (first + kSegments * kSegment < to) load(first + kSegments * kSegment);
      loads_in_flight();
      const I own_first = first + segment * kSegment;
      auto& scratch = scan_columns_scratch<A, kWaves * W * V>[turn];
      A sums[V];
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l) {
        A own = S::neutral();
#pragma clang loop unroll(full)
        for (u32 r = 0; r < kSegment; ++r) {
          const auto with = S::add(own, from_bits<T>(packs[r][l]));
          own = !Product || own_first + r < to ? with : own;
        }
        sums[l] = scan_wave<A>(S::total(own), W, combine);
        if (lane >= kWave - W) scratch[(wave * W + place) * V + l] = sums[l];
      }
      barrier();
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l) {
        const A earlier = from_lane(sums[l], lane >= W ? lane - W : lane);
        A front = before[l];
#pragma clang loop unroll(full)
        for (u32 w = 0; w < kWaves; ++w) {
          if (w == wave) front = before[l];
          before[l] = combine(before[l], scratch[(w * W + place) * V + l]);
        }
        if constexpr (Part == ScanPart::kTotals) continue;
        A own = S::begin(lane >= W ? combine(front, earlier) : front);
#pragma clang loop unroll(full)
        for (u32 r = 0; r < kSegment; ++r) {
          const auto with = S::add(own, from_bits<T>(packs[r][l]));
          packs[r][l] = to_bits(S::result(Exclusive ? own : with));
          own = with;
        }
      }
      if constexpr (Part == ScanPart::kTotals) continue;
#pragma clang loop unroll(full)
      for (u32 r = 0; r < kSegment; ++r)
        if (own_first + r < to) store_pack<V>(line.y + line.at(own_first + r), packs[r]);
    }
    if constexpr (Part == ScanPart::kTotals)
      if (segment == 0)
#pragma clang loop unroll(full)
        for (u32 l = 0; l < V; ++l) own_totals[of * outer * inner + l] = before[l];
    barrier();
  }
}

/// Lanes: those of scan_strips(), or 0 for one thread per line; Rows: of a thread of scan_strips(). Both: as `strips`
/// says.
template <u32 Lanes, u32 Rows, bool Both, bool Product, bool Exclusive, bool Reverse, class X, class T>
SDX_FN void routine_scan_columns(X x, T* y, i64 outer, i64 n, i64 inner, i64 strips) {
  constexpr u32 V = 8 / sizeof(T);
  constexpr bool anywhere = kPacksAnywhere<X, V> && kPacksAnywhere<const T*, V>;
  const bool packs = anywhere || (has_packs<V>(x) && aligned(y) && inner % V == 0);
  if constexpr (Lanes > 0)
    if (packs && (!Both || strips))
      return scan_strips<Lanes, V, Rows, Product, Exclusive, Reverse, ScanPart::kAll, i64>(x, y, nullptr, outer, n,
                                                                                           inner, n);
  if constexpr (Lanes == 0 || Both || !anywhere) scan_threads<Product, Exclusive, Reverse>(x, y, outer, n, inner);
}

/// Few columns of less than 2^31 elements, in parts of `part` rows, where packs may begin at any element: the sums of
/// each part.
template <u32 Lanes, bool Product, bool Reverse, class T>
SDX_FN void routine_scan_column_totals(const T* x, u64* totals, i64 outer, i64 n, i64 inner, i64 part) {
  scan_strips<Lanes, 8 / sizeof(T), layout::kScanSegment, Product, false, Reverse, ScanPart::kTotals, u32>(
      x, (T*)nullptr, totals, i32(outer), i32(n), i32(inner), i32(part));
}
/// And the scan of each part.
template <u32 Lanes, bool Product, bool Exclusive, bool Reverse, class T>
SDX_FN void routine_scan_column_parts(const T* x, T* y, const u64* totals, i64 outer, i64 n, i64 inner, i64 part) {
  scan_strips<Lanes, 8 / sizeof(T), layout::kScanSegment, Product, Exclusive, Reverse, ScanPart::kScan, u32>(
      x, y, (u64*)totals, i32(outer), i32(n), i32(inner), i32(part));
}

}  // namespace sdx
