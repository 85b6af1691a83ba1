// nms: non-maximum suppression of boxes.
#include <algorithm>

#include "host/parallel.h"
#include "routines/families.h"
#include "support/error.h"

namespace sardonyx::routines {
namespace {

struct Box {
  float y0, x0, y1, x1;
  float area() const { return (y1 - y0) * (x1 - x0); }
};

Box corners(const float* b, bool centre) {
  if (centre) return {b[1] - b[3] / 2, b[0] - b[2] / 2, b[1] + b[3] / 2, b[0] + b[2] / 2};  // x, y, width, height
  return {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3])};
}

bool overlap(const Box& a, const Box& b, float threshold) {
  const float h = std::min(a.y1, b.y1) - std::max(a.y0, b.y0), w = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  if (!(h > 0 && w > 0) || !(a.area() > 0 && b.area() > 0)) return false;
  const float common = h * w;
  return common / (a.area() + b.area() - common) > threshold;
}

// nms
//   inputs:  boxes [batch, n, 4] float32: two opposite corners (y, x, y, x), or x and y of the centre, width, height;
//            scores [batch, classes, n] float32; iou [1] float32; score [1] float32
//   outputs: selected [batch * classes * most, 3] int64: (batch, class, box), sorted by batch, class and
//            descending score; count [1] int64: the number of rows that are valid
//   params:  whether boxes are in centre format; most: the maximum number of boxes per class (<= n)
// A box is a candidate if its score exceeds `score`. It is removed if its intersection over union with a selected box
// exceeds `iou`. Of equal scores the first box wins.
void nms(Call& c) {
  const Tensor &boxes = c.inputs[0], &scores = c.inputs[1];
  const float iou = *c.inputs[2].as<float>(), least = *c.inputs[3].as<float>();
  const std::int64_t batch = scores.dims[0], classes = scores.dims[1], n = scores.dims[2];
  const bool centre = c.params[0] != 0;
  const std::int64_t most = c.params[1];
  auto* selected = c.outputs[0].as<std::int64_t>();
  std::vector<std::int64_t> found(static_cast<std::size_t>(batch * classes));
  host::parallel_for(batch * classes, 1, c.threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> order;
    std::vector<Box> kept;
    for (std::int64_t k = begin; k < end; ++k) {
      const float* s = scores.as<float>() + k * n;
      const float* b = boxes.as<float>() + k / classes * n * 4;
      order.clear();
      kept.clear();
      for (std::int64_t j = 0; j < n; ++j)
        if (s[j] > least) order.push_back(j);
      std::sort(order.begin(), order.end(),
                [&](std::int64_t p, std::int64_t q) { return s[p] > s[q] || (s[p] == s[q] && p < q); });
      for (std::int64_t j : order) {
        if (static_cast<std::int64_t>(kept.size()) >= most) break;
        const Box box = corners(b + j * 4, centre);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& better) { return overlap(box, better, iou); }))
          continue;
        std::int64_t* row = selected + (k * most + static_cast<std::int64_t>(kept.size())) * 3;
        row[0] = k / classes;
        row[1] = k % classes;
        row[2] = j;
        kept.push_back(box);
      }
      found[static_cast<std::size_t>(k)] = static_cast<std::int64_t>(kept.size());
    }
  });
  std::int64_t count = 0;  // rows of all classes are moved together
  for (std::size_t k = 0; k < found.size(); ++k) {
    const std::int64_t* from = selected + static_cast<std::int64_t>(k) * most * 3;
    std::copy(from, from + found[k] * 3, selected + count * 3);
    count += found[k];
  }
  *c.outputs[1].as<std::int64_t>() = count;
}

}  // namespace

void register_nms(Table& t) { t["nms"] = nms; }

}  // namespace sardonyx::routines
