// How the kernels of Fourier transforms divide them: compiled by the kernels, and by the library, which launches them.
// Freestanding: no includes.
#pragma once

namespace sdx::layout {

inline constexpr int kMostFourier = 8192;     ///< complex elements that a workgroup transforms at a time
inline constexpr int kMostRadix = 25;         ///< complex elements of a butterfly, which are in registers
inline constexpr int kFourierPasses = 4;      ///< the most
inline constexpr int kFourierShared = 32768;  ///< bytes of a workgroup, of which two fit on all GPUs
inline constexpr int kFourierThreads = 256;   ///< of a workgroup
inline constexpr int kFourierNeighbours = 8;  ///< transforms next to each other, so that 64 bytes are read at a time

/// Radices of the passes of a transform of n complex elements (mixed radix: Cooley and Tukey 1965).
struct FourierPasses {
  int count = 0;
  int radix[kFourierPasses] = {};
  constexpr int largest() const { return radix[0]; }
};

/// Whether n is a product of `passes` radices of at most `most`, in descending order; `of` receives them.
constexpr bool divide_fourier(int n, int passes, int most, FourierPasses& of) {
  if (passes == 1) {
    if (n > most || n < 2) return false;
    of.radix[of.count++] = n;
    return true;
  }
  for (int r = most; r >= 2; --r) {
    if (n % r != 0) continue;
    of.radix[of.count++] = r;
    if (divide_fourier(n / r, passes - 1, r, of)) return true;
    --of.count;
  }
  return false;
}

/// As few passes as there are with radices of at most `largest`, whose largest is as small as there is. None where n is
/// too long or has too large a prime factor.
constexpr FourierPasses fourier_passes(int n, int largest = kMostRadix) {
  if (n < 2 || n > kMostFourier) return {};
  for (int passes = 1; passes <= kFourierPasses; ++passes)
    for (int most = 2; most <= largest; ++most) {
      FourierPasses of;
      if (divide_fourier(n, passes, most, of)) return of;
    }
  return {};
}

/// Places of shared memory that n complex elements take: one in 17 is not used, against bank conflicts.
constexpr int fourier_place(int n) { return n + n / 16; }

/// A workgroup transforms `lines` vectors of n complex elements, each by `threads` threads.
struct FourierLayout {
  int n;
  bool columns;  ///< vectors are columns of a matrix: lanes belong to neighbouring vectors
  int lines = 1;
  int largest = kMostRadix;  ///< of the passes' radices, at most

  constexpr FourierPasses passes() const { return fourier_passes(n, largest); }
  constexpr int threads() const { return kFourierThreads / lines; }
  constexpr int places() const { return columns ? lines * n : lines * (fourier_place(n) + 1); }
  /// Real and imaginary parts are exchanged one after the other, because both would take too much.
  constexpr bool halves() const { return places() * 8 > kFourierShared; }
};

/// The largest radix has a butterfly for each thread, where shared memory is enough. Of columns, at least
/// kFourierNeighbours; if these are too long, lines is 0. Of rows, `most_lines` where smaller radices allow it: with
/// few vectors, more workgroups whose threads have less to compute each.
constexpr FourierLayout fourier_layout(int n, bool columns, int most_lines = kFourierThreads) {
  FourierLayout l{n, columns, kFourierThreads};
  const int butterflies = n / l.passes().largest();
  while (l.lines > 1 && (l.places() * 4 > kFourierShared || (l.threads() < butterflies && !columns))) l.lines /= 2;
  if (!columns) {
    for (int largest = 0; l.lines > most_lines; l.lines /= 2, l.largest = largest) {
      largest = n / (2 * l.threads());
      if (fourier_passes(n, largest).count == 0) break;
    }
    return l;
  }
  while (l.lines > kFourierNeighbours && l.threads() < butterflies) l.lines /= 2;
  if (l.lines < kFourierNeighbours) l.lines = 0;
  return l;
}

}  // namespace sdx::layout
