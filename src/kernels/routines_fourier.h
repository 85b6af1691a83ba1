// Fourier transforms on GPUs, whole in one workgroup: passes of mixed radix whose results are in order (Stockham's
// form; Govindaraju et al., "High performance discrete Fourier transforms on graphics processors", 2008). Elements stay
// in registers, and go through shared memory between passes.
#pragma once
#include "layout_fourier.h"
#include "routines.h"
#include "routines_input.h"
#include "unroll.h"

namespace sdx {

struct Complex32 {
  f32 re, im;
};
SDX_FN Complex32 operator+(Complex32 a, Complex32 b) { return {a.re + b.re, a.im + b.im}; }
SDX_FN Complex32 operator-(Complex32 a, Complex32 b) { return {a.re - b.re, a.im - b.im}; }
SDX_FN Complex32 operator*(Complex32 a, Complex32 b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
/// 0 - x, because LLVM 22 loses some negations of selected numbers where gfx90a and gfx942 compute two at a time.
SDX_FN Complex32 conjugate(Complex32 a) { return {a.re, 0 - a.im}; }

/// cos(2 pi k / n) and sin(2 pi k / n), for constants: by Taylor series, exact at quarters of a turn.
struct Turn {
  f64 cos, sin;
};
constexpr Turn constant_turn(int k, int n) {
  k %= n;
  if (4 * k % n == 0) {
    const int quarter = 4 * k / n;
    return {quarter % 2 ? 0. : 1. - quarter, quarter % 2 ? 2. - quarter : 0.};
  }
  const f64 x = 6.283185307179586 * (2 * k > n ? k - n : k) / n;
  f64 term = 1, c = 0, s = 0;
  for (int i = 0; i < 40; i += 2) {
    c += i % 4 ? -term : term;
    term *= x / (i + 1);
    s += i % 4 ? -term : term;
    term *= x / (i + 2);
  }
  return {c, s};
}

/// x e(+-k / n), e(t) = exp(2 pi i t), with a minus unless Inverse.
template <int K, int N, bool Inverse>
SDX_FN Complex32 turned(Complex32 x) {
  constexpr Turn t = constant_turn(K, N);
  constexpr f32 c = f32(t.cos), s = f32(Inverse ? t.sin : -t.sin);
  if constexpr (s == 0)
    return c > 0 ? x : Complex32{-x.re, -x.im};
  else if constexpr (c == 0)
    return s > 0 ? Complex32{-x.im, x.re} : Complex32{x.im, -x.re};
  else
    return x * Complex32{c, s};
}

/// e(+-k / N), 0 <= k < N. What is left of a quarter of a turn is exact; Taylor's polynomials are within 2^-25 up to an
/// eighth of a turn.
template <int N, bool Inverse>
SDX_FN Complex32 turn_of(u32 k) {
  const i32 quarter = i32(f32(k) * f32(4. / N) + 0.5f);
  const f32 x = f32(i32(4 * k) - quarter * N) * f32(1.5707963267948966 / N), z = x * x;
  const f32 s = x + x * z * (-1.f / 6 + z * (1.f / 120 + z * (-1.f / 5040 + z * (1.f / 362880))));
  const f32 c = 1 + z * (-0.5f + z * (1.f / 24 + z * (-1.f / 720 + z * (1.f / 40320 + z * (-1.f / 3628800)))));
  const f32 a = quarter & 1 ? s : c, b = quarter & 1 ? c : s;
  const f32 cosine = (quarter + 1) & 2 ? -a : a, sine = quarter & 2 ? -b : b;
  return {cosine, Inverse ? sine : -sine};
}

constexpr int first_factor(int n) {
  if (n % 4 == 0) return 4;
  for (int f = 2; f < n; ++f)
    if (n % f == 0) return f;
  return n;
}

/// The transform of an odd prime number of elements: pairs of opposite ones share their products.
template <int R, bool Inverse>
SDX_FN void prime_butterfly(Complex32 (&x)[R]) {
  constexpr int H = (R - 1) / 2;
  Complex32 sum[H], difference[H];
  const Complex32 first = x[0];
  each<H>([&](auto n) SDX_LAMBDA {
    constexpr int j = decltype(n)::value;
    sum[j] = x[j + 1] + x[R - 1 - j];
    difference[j] = x[j + 1] - x[R - 1 - j];
    x[0] = x[0] + sum[j];
  });
  each<H>([&](auto m) SDX_LAMBDA {
    constexpr int k = decltype(m)::value + 1;
    Complex32 a = first, b = {0, 0};
    each<H>([&](auto n) SDX_LAMBDA {
      constexpr int j = decltype(n)::value;
      constexpr Turn t = constant_turn((j + 1) * k, R);
      constexpr f32 c = f32(t.cos), s = f32(Inverse ? -t.sin : t.sin);
      a.re += sum[j].re * c, a.im += sum[j].im * c;
      b.re += difference[j].re * s, b.im += difference[j].im * s;
    });
    x[k] = {a.re + b.im, a.im - b.re};
    x[R - k] = {a.re - b.im, a.im + b.re};
  });
}

/// The transform of R elements, in place and in order.
template <int R, bool Inverse>
SDX_FN void butterfly(Complex32 (&x)[R]) {
  constexpr int A = first_factor(R), B = R / A;
  if constexpr (R == 2) {
    const Complex32 a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (R == 4) {
    const Complex32 a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = turned<1, 4, Inverse>(x[1] - x[3]);
    x[0] = a + c;
    x[1] = b + d;
    x[2] = a - c;
    x[3] = b - d;
  } else if constexpr (A == R) {
    prime_butterfly<R, Inverse>(x);
  } else {
    Complex32 y[B][A];
    each<B>([&](auto n) SDX_LAMBDA {
      constexpr int j = decltype(n)::value;
      each<A>([&](auto i) SDX_LAMBDA { y[j][decltype(i)::value] = x[B * decltype(i)::value + j]; });
      butterfly<A, Inverse>(y[j]);
    });
    each<A>([&](auto m) SDX_LAMBDA {
      constexpr int p = decltype(m)::value;
      Complex32 z[B];
      each<B>([&](auto n) SDX_LAMBDA {
        constexpr int j = decltype(n)::value;
        z[j] = turned<j * p, R, Inverse>(y[j][p]);
      });
      butterfly<B, Inverse>(z);
      each<B>([&](auto q) SDX_LAMBDA { x[p + A * decltype(q)::value] = z[decltype(q)::value]; });
    });
  }
}

template <int Places>
static SDX_SHARED f32 fourier_shared[Places];

/// N complex elements, of which each of a team's threads has some in registers. Lines: the most of a workgroup.
template <int N, bool Columns, bool Inverse, int Lines>
struct Fourier {
  static constexpr layout::FourierLayout kLayout = layout::fourier_layout(N, Columns, Lines);
  static constexpr layout::FourierPasses kPasses = kLayout.passes();
  static constexpr int kLines = kLayout.lines, kTeam = kLayout.threads();
  static constexpr int kParts = kLayout.halves() ? 1 : 2;

  static constexpr int radix(int pass) { return kPasses.radix[pass]; }
  static constexpr int done(int pass) { return pass == 0 ? 1 : done(pass - 1) * radix(pass - 1); }
  static constexpr int butterflies(int pass) { return N / radix(pass); }
  static constexpr int rounds(int pass) { return (butterflies(pass) + kTeam - 1) / kTeam; }

  /// Those of a thread in one pass.
  template <int Pass>
  struct Elements {
    Complex32 x[rounds(Pass)][radix(Pass)];
  };

  u32 line, thread;  ///< of the workgroup's lines, of the line's threads

  /// t: thread_id().
  SDX_FN Fourier(u32 t) {
    line = Columns ? t % kLines : t / kTeam;
    thread = Columns ? t / kLines : t % kTeam;
  }

  SDX_FN u32 place(u32 k) const {
    return Columns ? k * kLines + line : line * (layout::fourier_place(N) + 1) + k + k / 16;
  }
  /// Whether this thread has a butterfly in this round.
  template <int Pass>
  SDX_FN bool takes_part(int round) const {
    return (round + 1) * kTeam <= butterflies(Pass) || thread + u32(round) * kTeam < u32(butterflies(Pass));
  }
  /// Calls f(round, e, index(j, e)) for element e of each of this thread's butterflies, j.
  template <int Pass, class Index, class F>
  SDX_FN void each_element(const Index& index, const F& f) const {
    each<rounds(Pass)>([&](auto b) SDX_LAMBDA {
      constexpr int round = decltype(b)::value;
      const u32 j = thread + u32(round) * kTeam;
      if (!takes_part<Pass>(round)) return;
      each<radix(Pass)>([&](auto r) SDX_LAMBDA { f(round, decltype(r)::value, index(j, u32(decltype(r)::value))); });
    });
  }
  /// Calls f(round, radix's element, index of the transform's element) for what a pass reads, or writes.
  template <int Pass, class F>
  SDX_FN void reads(const F& f) const {
    each_element<Pass>([](u32 j, u32 e) SDX_LAMBDA { return j + e * u32(butterflies(Pass)); }, f);
  }
  template <int Pass, class F>
  SDX_FN void writes(const F& f) const {
    constexpr u32 D = done(Pass), R = radix(Pass);
    each_element<Pass>([](u32 j, u32 e) SDX_LAMBDA { return j / D * D * R + j % D + e * D; }, f);
  }

  template <int Pass>
  SDX_FN void transform(Elements<Pass>& v) const {
    constexpr u32 D = done(Pass), R = radix(Pass);
    each<rounds(Pass)>([&](auto b) SDX_LAMBDA {
      constexpr int round = decltype(b)::value;
      if (!takes_part<Pass>(round)) return;
      auto& x = v.x[round];
      loads_in_flight();
      if constexpr (D > 1) {
        // Powers of the first factor, each of two of about half its exponent, so that roundings hardly add up.
        Complex32 w[R];
        w[1] = turn_of<int(D * R), Inverse>((thread + u32(round) * kTeam) % D);
        each<int(R), 1>([&](auto r) SDX_LAMBDA {
          constexpr int e = decltype(r)::value;
          if constexpr (e > 1) w[e] = w[e / 2] * w[e - e / 2];
          x[e] = x[e] * w[e];
        });
      }
      butterfly<int(R), Inverse>(x);
      loads_in_flight();
    });
  }

  static SDX_FN f32& part(Complex32& x, int which) { return which == 0 ? x.re : x.im; }

  /// Passes elements through shared memory: `write` and `read` call their argument with each element and its place.
  template <class Write, class Read>
  SDX_FN void exchange(const Write& write, const Read& read) const {
    auto* shared = fourier_shared<kParts * kLayout.places()>;
    each<2 / kParts>([&](auto p) SDX_LAMBDA {
      constexpr int first = decltype(p)::value;
      barrier();
      write([&](Complex32& x, u32 k) SDX_LAMBDA {
        if constexpr (kParts == 2) {
          shared[2 * place(k)] = x.re;
          shared[2 * place(k) + 1] = x.im;
        } else
          shared[place(k)] = part(x, first);
      });
      barrier();
      read([&](Complex32& x, u32 k) SDX_LAMBDA {
        if constexpr (kParts == 2)
          x = {shared[2 * place(k)], shared[2 * place(k) + 1]};
        else
          part(x, first) = shared[place(k)];
      });
    });
  }

  /// Elements of the last pass, from those of Pass.
  template <int Pass = 0>
  SDX_FN auto finish(Elements<Pass>& v) const {
    transform<Pass>(v);
    if constexpr (Pass + 1 == kPasses.count)
      return v;
    else {
      Elements<Pass + 1> next;
      exchange([&](const auto& put)
                   SDX_LAMBDA { writes<Pass>([&](int round, int e, u32 k) SDX_LAMBDA { put(v.x[round][e], k); }); },
               [&](const auto& get) SDX_LAMBDA {
                 reads<Pass + 1>([&](int round, int e, u32 k) SDX_LAMBDA { get(next.x[round][e], k); });
               });
      return finish<Pass + 1>(next);
    }
  }
};

/// What a transform of `Length` samples is, and to which complex one it comes down. Real samples of an even length are
/// the real and imaginary parts of half as many.
template <int Length_, bool Inverse_, bool Onesided, int Components_>
struct FourierKind {
  static constexpr int Length = Length_, Components = Components_;
  static constexpr bool Inverse = Inverse_;
  static constexpr bool to_real = Inverse && Onesided, from_real = !Inverse && Components == 1;
  static constexpr bool half = (to_real || from_real) && Length % 2 == 0;
  static constexpr int n = half ? Length / 2 : Length;
  static constexpr int inputs = to_real ? Length / 2 + 1 : Length;
  static constexpr int bins = Onesided && !Inverse ? Length / 2 + 1 : Length;
  static constexpr int out_components = to_real ? 1 : 2;
};

/// The samples or bins of one transform. Packs: two neighbouring elements are loaded at once. What is not there is 0,
/// without branches, so that many loads are in flight.
template <class Kind, bool Columns, bool Packs, class X>
struct FourierInput {
  X x;
  i64 at;
  u32 have, inner;

  SDX_FN f32 element(i64 k) const { return cast<f32>(read_element(x, at + k)); }
  SDX_FN Complex32 pair(i64 k) const {
    if constexpr (Packs) {
      const auto both = read_pack<2>(x, at + k);
      return {cast<f32>(from_bits<input_element<X>>(both[0])), cast<f32>(from_bits<input_element<X>>(both[1]))};
    } else
      return {element(k), element(k + 1)};
  }
  SDX_FN i64 index(u32 k) const { return Columns ? i64(k) * inner : i64(k); }
  /// Number k, which may be complex.
  SDX_FN Complex32 number(u32 k) const {
    const bool there = k < have;
    const i64 from = index(there ? k : 0);
    const Complex32 v = Kind::Components == 2 ? pair(from * 2) : Complex32{element(from), 0};
    return there ? v : Complex32{0, 0};
  }
  SDX_FN Complex32 real_pair(u32 k) const {
    const bool first = 2 * k < have, second = 2 * k + 1 < have;
    const i64 from = index(first ? 2 * k : 0);
    const Complex32 v = Packs ? pair(from) : Complex32{element(from), element(index(second ? 2 * k + 1 : 0))};
    return {first ? v.re : 0, second ? v.im : 0};
  }
  /// Bin k of real samples. Those of the mean and of alternating samples are real.
  SDX_FN Complex32 bin(u32 k) const {
    Complex32 v = number(k);
    if (k == 0 || 2 * k == u32(Kind::Length)) v.im = 0;
    return v;
  }
  /// Element k of the complex transform.
  SDX_FN Complex32 operator()(u32 k) const {
    if constexpr (Kind::from_real && Kind::half)
      return real_pair(k);
    else if constexpr (Kind::to_real && Kind::half) {
      const Complex32 a = bin(k), b = conjugate(bin(u32(Kind::n) - k)), even = a + b;
      const Complex32 odd = (a - b) * turn_of<Kind::Length, true>(k);
      return {0.5f * (even.re - odd.im), 0.5f * (even.im + odd.re)};
    } else if constexpr (Kind::to_real) {  // the bins from the middle on are conjugates of others
      const bool mirrored = 2 * k > u32(Kind::Length);
      const Complex32 v = bin(mirrored ? Kind::Length - k : k);
      return mirrored ? conjugate(v) : v;
    } else
      return number(k);
  }
};

/// Where the results of one transform go.
template <class Kind, class T>
struct FourierOutput {
  T* y;
  i64 at;
  u32 inner;
  bool packs;
  static constexpr f32 kScale = Kind::Inverse ? 1.f / Kind::n : 1.f;

  SDX_FN void pair(i64 k, Complex32 v) const {
    const T a = cast<T>(v.re * kScale), b = cast<T>(v.im * kScale);
    if (packs) {
      Pack<T, 2> both;
      both[0] = to_bits(a), both[1] = to_bits(b);
      store_pack<2>(y + k, both);
    } else {
      y[k] = a;
      y[k + 1] = b;
    }
  }
  SDX_FN void bin(u32 k, Complex32 v) const { pair(at + i64(k) * inner * 2, v); }
  /// Element k of a complex transform that is not one of real samples.
  SDX_FN void operator()(u32 k, Complex32 v) const {
    if constexpr (Kind::to_real && Kind::half) {
      if (inner == 1) return pair(at + 2 * k, v);
      y[at + i64(2 * k) * inner] = cast<T>(v.re * kScale);
      y[at + i64(2 * k + 1) * inner] = cast<T>(v.im * kScale);
    } else if constexpr (Kind::to_real)
      y[at + i64(k) * inner] = cast<T>(v.re * kScale);
    else if (Kind::bins == Kind::Length || k < u32(Kind::bins))
      bin(k, v);
  }
};

/// The bins of real samples from the transform Z of half the length, which is in registers.
template <class Kind, class Transform, class Elements, class Output>
SDX_FN void store_real_bins(const Transform& f, Elements& v, const Output& out, bool valid) {
  constexpr int M = Kind::n, team = Transform::kTeam, rounds = (M + team) / team, last = Transform::kPasses.count - 1;
  Complex32 z[rounds], opposite[rounds];
  f.exchange(
      [&](const auto& put)
          SDX_LAMBDA { f.template writes<last>([&](int round, int e, u32 k) SDX_LAMBDA { put(v.x[round][e], k); }); },
      [&](const auto& get) SDX_LAMBDA {
        each<rounds>([&](auto b) SDX_LAMBDA {
          constexpr int round = decltype(b)::value;
          const u32 k = f.thread + u32(round) * team;
          if (k > u32(M)) return;
          get(z[round], k == u32(M) ? 0 : k);
          get(opposite[round], k == 0 ? 0 : u32(M) - k);
        });
      });
  if (!valid) return;
  loads_in_flight();
  each<rounds>([&](auto b) SDX_LAMBDA {
    constexpr int round = decltype(b)::value;
    const u32 k = f.thread + u32(round) * team;
    if (k > u32(M)) return;
    const Complex32 o = conjugate(opposite[round]), even = z[round] + o, twice_i_odd = z[round] - o;
    const Complex32 odd = Complex32{twice_i_odd.im, -twice_i_odd.re} * turn_of<Kind::Length, false>(k);
    const Complex32 x = {0.5f * (even.re + odd.re), 0.5f * (even.im + odd.im)};
    if constexpr (round % 4 == 3) loads_in_flight();
    out.bin(k, x);
    if constexpr (Kind::bins == Kind::Length)
      if (k != 0 && k != u32(M)) out.bin(u32(Kind::Length) - k, conjugate(x));
  });
}

/// x [lines / inner, samples, inner, components] -> y [lines / inner, bins, inner, out components]. Samples after those
/// that x has are 0.
template <class Kind, bool Columns, int Lines, class X, class T>
SDX_FN void routine_fourier(X x, T* y, i64 lines, i64 samples, i64 inner) {
  using Transform = Fourier<Kind::n, Columns, Kind::Inverse, Lines>;
  const bool in_packs = has_packs<2>(x) && (Kind::Components == 2 || (!Columns && samples % 2 == 0));
  constexpr bool odd_rows = Kind::out_components == 1 && Kind::bins % 2 != 0;
  const bool out_packs = aligned(y) && !odd_rows;
  const u32 have = u32(samples < Kind::inputs ? samples : Kind::inputs), step = Columns ? u32(inner) : 1;
  for (i64 first = i64(block_id()) * Transform::kLines; first < lines;
       first += i64(block_count()) * Transform::kLines) {
    u32 t = thread_id();
    hide(t);  // factors and places would stay in registers from one iteration to the next
    const Transform f(t);
    const bool valid = first + f.line < lines;
    const i64 line = valid ? first + f.line : lines - 1;
    const i64 outer = Columns ? line / inner : line, column = Columns ? line % inner : 0;
    const i64 from = (outer * samples * step + column) * Kind::Components;
    typename Transform::template Elements<0> v;
    const auto read = [&]<bool Packs>(const FourierInput<Kind, Columns, Packs, X>& in) SDX_LAMBDA {
      f.template reads<0>([&](int round, int e, u32 k) SDX_LAMBDA { v.x[round][e] = in(k); });
    };
    if (have == 0)  // there is no memory to read
      f.template reads<0>([&](int round, int e, u32) SDX_LAMBDA { v.x[round][e] = {0, 0}; });
    else if (in_packs)
      read(FourierInput<Kind, Columns, true, X>{x, from, have, step});
    else
      read(FourierInput<Kind, Columns, false, X>{x, from, have, step});
    const FourierOutput<Kind, T> out{y, (outer * Kind::bins * step + column) * Kind::out_components, step, out_packs};
    auto last = f.finish(v);
    if constexpr (Kind::from_real && Kind::half)
      store_real_bins<Kind>(f, last, out, valid);
    else if (valid)
      f.template writes<Transform::kPasses.count - 1>([&](int round, int e, u32 k)
                                                          SDX_LAMBDA { out(k, last.x[round][e]); });
  }
}

}  // namespace sdx
