// Non-maximum suppression and determinants on GPUs.
#pragma once
#include "routines.h"

namespace sdx {

struct Box {
  f32 y0, x0, y1, x1;
};
SDX_FN f32 box_area(Box b) { return (b.y1 - b.y0) * (b.x1 - b.x0); }
template <bool Centre>
SDX_FN Box box_corners(const f32* b) {
  if constexpr (Centre) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};
  const auto low = [](f32 p, f32 q) { return q < p ? q : p; };
  const auto high = [](f32 p, f32 q) { return p < q ? q : p; };
  return {low(b[0], b[2]), low(b[1], b[3]), high(b[0], b[2]), high(b[1], b[3])};
}
SDX_FN bool boxes_overlap(Box a, Box b, f32 threshold) {
  const f32 h = (b.y1 < a.y1 ? b.y1 : a.y1) - (a.y0 < b.y0 ? b.y0 : a.y0);
  const f32 w = (b.x1 < a.x1 ? b.x1 : a.x1) - (a.x0 < b.x0 ? b.x0 : a.x0);
  if (!(h > 0 && w > 0) || !(box_area(a) > 0 && box_area(b) > 0)) return false;
  const f32 common = h * w;
  return common / (box_area(a) + box_area(b) - common) > threshold;
}

static SDX_SHARED u64 boxes_shared[2048];

/// One workgroup per class of each image. It sorts candidates by falling score, then keeps one after another and
/// discards those that overlap it: their upper half is set to ones. `order`: n numbers for each workgroup; `kept`:
/// `most` box numbers; `found`: how many were kept.
template <bool Centre>
SDX_FN void routine_nms(const f32* boxes, const f32* scores, const f32* iou, const f32* least, u64* order, i64* kept,
                        i64* found, i64 images, i64 classes, i64 n, i64 most) {
  for (i64 k = block_id(); k < images * classes; k += block_count()) {
    const f32* score = scores + k * n;
    const f32* box = boxes + k / classes * n * 4;
    u64* list = n <= 2048 ? (u64*)boxes_shared : order + k * n;
    barrier();
    // Candidates first, by falling score, then by rising number. Comparisons with NaN are false, so it is no candidate.
    i64 count = 0;
    for (i64 first = 0; first < n; first += kThreads) {
      const i64 j = first + thread_id();
      const bool candidate = j < n && score[j] > *least;
      i64 total;
      const i64 at = count + scan_counts(candidate, total);
      count += total;
      if (candidate) list[at] = u64(~ordered_bits(score[j])) << 32 | u64(j);
    }
    sort_workgroup<u64>(list, count, [](u64 a, u64 b) { return a < b; });
    i64 number = 0;
    for (i64 c = 0; c < count && number < most; ++c) {
      const u64 e = list[c];
      const bool out = (e >> 32) == ~u32(0);
      if (out) continue;  // the same in all threads
      const i64 j = i64(u32(e));
      if (thread_id() == 0) kept[k * most + number] = j;
      ++number;
      const Box better = box_corners<Centre>(box + j * 4);
      barrier();
      for (i64 o = c + 1 + thread_id(); o < count; o += kThreads) {
        const u64 other = list[o];
        if ((other >> 32) != ~u32(0) && boxes_overlap(box_corners<Centre>(box + i64(u32(other)) * 4), better, *iou))
          list[o] = u64(~u32(0)) << 32 | u32(other);
      }
      barrier();
    }
    if (thread_id() == 0) found[k] = number;
  }
}

/// In one workgroup: the rows (image, class, box) of all classes, one after another.
SDX_FN void routine_nms_rows(const i64* kept, const i64* found, i64* selected, i64* count, i64 all, i64 classes,
                             i64 most) {
  i64 at = 0;
  for (i64 k = 0; k < all; ++k) {
    for (i64 j = thread_id(); j < found[k]; j += kThreads) {
      i64* row = selected + (at + j) * 3;
      row[0] = k / classes;
      row[1] = k % classes;
      row[2] = kept[k * most + j];
    }
    at += found[k];
  }
  if (thread_id() == 0) *count = at;
}

/// One workgroup per matrix: LU decomposition with partial pivoting in `workspace`, [batch, n, n].
template <class T>
SDX_FN void routine_determinant(const T* x, T* y, f64* workspace, i64 batch, i64 n) {
  for (i64 b = block_id(); b < batch; b += block_count()) {
    f64* a = workspace + b * n * n;
    for (i64 k = thread_id(); k < n * n; k += kThreads) a[k] = cast<f64>(x[b * n * n + k]);
    f64 det = 1;
    barrier();
    for (i64 k = 0; k < n; ++k) {
      Best<f64> best = {0, -1};
      for (i64 i = k + thread_id(); i < n; i += kThreads)
        best = better<true, false>(best, Best<f64>{fabs(a[i * n + k]), i32(i)});
      best = reduce_team(best, kThreads, [](Best<f64> p, Best<f64> q) { return better<true, false>(p, q); });
      const i64 pivot = best.at;
      if (best.value == 0) {
        det = 0;
        break;
      }
      if (pivot != k) {
        for (i64 j = thread_id(); j < n; j += kThreads) {
          const f64 e = a[k * n + j];
          a[k * n + j] = a[pivot * n + j];
          a[pivot * n + j] = e;
        }
        det = -det;
        barrier();
      }
      const f64 p = a[k * n + k];
      det *= p;
      // Columns after k only: column k is not read again.
      const i64 rest = n - k - 1;
      for (i64 q = thread_id(); q < rest * rest; q += kThreads) {
        const i64 i = k + 1 + q / rest, j = k + 1 + q % rest;
        a[i * n + j] -= a[i * n + k] / p * a[k * n + j];
      }
      barrier();
    }
    barrier();
    if (thread_id() == 0) y[b] = cast<T>(det);
  }
}

}  // namespace sdx
