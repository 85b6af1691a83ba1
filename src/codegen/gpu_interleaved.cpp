// Loads of every second, third or fourth element, of which a loop reads all: the coordinates of points, real and
// imaginary parts. Threads would each load single elements far from those of their neighbours. Instead they load packs
// of neighbouring elements, and select.
#include <algorithm>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostInterleaved = 4;
constexpr std::size_t kMostKept = 256;  // bytes that a thread loads of one tensor

}  // namespace

void GpuGenerator::add_interleaved(const Expr& body, const Expr& var, Packing& p) {
  struct Found {
    Interleaved group;
    Exprs loads;
    std::vector<std::int64_t> places;
  };
  std::vector<Found> found;
  certain_loads(body, [&](const Expr& l) {
    Expr step, rest;
    std::int64_t stride = 0, place = 0;
    if (!idx::split_affine(l->args[0], var, step, rest) || !is_const_int(step, stride) || stride < 2 ||
        stride > kMostInterleaved)
      return;
    const auto known = std::ranges::find_if(found, [&](const Found& f) {
      return f.group.value == l->value && f.group.stride == stride && is_const_int(rest - f.group.first, place);
    });
    if (known != found.end()) {
      known->loads.push_back(l);
      known->places.push_back(place);
    } else {
      found.push_back({{l->value, l->dtype, static_cast<int>(stride), rest, {}}, {l}, {0}});
    }
  });
  for (Found& f : found) {
    const std::int64_t least = *std::ranges::min_element(f.places), stride = f.group.stride;
    f.group.loads.resize(static_cast<std::size_t>(stride));
    for (std::size_t k = 0; k < f.loads.size(); ++k)
      if (f.places[k] - least < stride) f.group.loads[static_cast<std::size_t>(f.places[k] - least)] = f.loads[k];
    f.group.first = f.group.first + Expr(least);
    // Only where all are read is memory known to have all. Packs begin at multiples of their length.
    Exprs conditions;
    if (std::ranges::all_of(f.group.loads, [](const Expr& l) { return static_cast<bool>(l); }) &&
        size_of(f.group.dtype) * static_cast<std::size_t>(p.length * stride) <= kMostKept &&
        multiple_of(f.group.first, p.length, conditions) && conditions.empty())
      p.interleaved.push_back(std::move(f.group));
  }
}

void GpuGenerator::load_interleaved(const Packing& p, const Expr& inner, const Expr& base,
                                    std::vector<std::pair<Expr, std::string>>& packs) {
  for (const Interleaved& i : p.interleaved) {
    const std::string at = emit_.value(substitute(i.first + inner * i.stride, {{inner, base}}));
    std::vector<std::string> names;
    for (int k = 0; k < i.stride; ++k) {
      names.push_back(emit_.fresh("v"));
      emit_.line(fmt::format("const auto {} = load_pack<{}>({} + {} + {});", names.back(), p.length,
                             emit_.buffer(i.value), at, k * p.length));
    }
    for (int k = 0; k < i.stride; ++k) {
      packs.emplace_back(i.loads[static_cast<std::size_t>(k)], emit_.fresh("v"));
      emit_.line(fmt::format("const auto {} = select_elements<{}, {}>({});", packs.back().second, k, i.stride,
                             fmt::join(names, ", ")));
    }
  }
}

}  // namespace sardonyx::codegen
