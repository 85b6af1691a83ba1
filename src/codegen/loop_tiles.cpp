// See loop_tiles.h.
#include "codegen/loop_tiles.h"

#include <algorithm>
#include <vector>

namespace sardonyx::codegen {

std::int64_t strip_columns(const FlatLoop& loop, const Across& across) {
  constexpr std::int64_t kMost = 64;
  std::int64_t columns = 0;
  const bool whole = is_const_int(loop.vars[across.along]->args[0], columns) && columns % kSide == 0;
  const auto wide = [](const Expr& x) { return size_of(x->dtype) >= 4; };
  return whole && std::ranges::all_of(across.loads, wide) ? kSide : kMost;
}

void TransposedTiles::strip(const std::string& number, const std::string& lo, const std::string& hi) {
  const std::string first = emit_.fresh("u"), end = emit_.fresh("u");
  emit_.line(fmt::format("const i64 {} = {} * {};", first, number, columns_));
  emit_.line(fmt::format("const i64 {} = min({} + {}, {});", end, first, columns_, emit_.value(along_->args[0])));
  const std::string u0 = emit_.fresh("u"), columns = emit_.fresh("n"), t0 = emit_.fresh("v"), rows = emit_.fresh("n");
  emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3})", t0, lo, hi, kSide));
  emit_.line(fmt::format("const i64 {} = min(i64({}), {} - {});", rows, kSide, hi, t0));
  emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3})", u0, first, end, kSide));
  emit_.line(fmt::format("const i64 {} = min(i64({}), {} - {});", columns, kSide, end, u0));
  std::int64_t u = 0, t = 0;
  const bool known = is_const_int(along_->args[0], u) && is_const_int(inner_->args[0], t);
  if (known && u % kSide == 0 && t % kSide == 0) {
    tile({u0, t0});
  } else {
    emit_.open(fmt::format("if ({} == {} && {} == {})", columns, kSide, rows, kSide));
    tile({u0, t0});
    emit_.close();
    emit_.open("else");
    if (known) {  // a tile that begins before, of which only the rest is stored
      const std::string u1 = emit_.fresh("u"), t1 = emit_.fresh("v");
      emit_.line(fmt::format("const i64 {} = min({}, i64({}));", u1, u0, u - kSide));
      emit_.line(fmt::format("const i64 {} = min({}, i64({}));", t1, t0, t - kSide));
      tile({u1, t1, u0 + " - " + u1, u0 + " + " + columns + " - " + u1, t0 + " - " + t1,
            t0 + " + " + rows + " - " + t1});
    } else {
      elements({u0, t0, "0", columns, "0", rows}, [] {});
    }
    emit_.close();
  }
  emit_.close();
  emit_.close();
}

void TransposedTiles::index(const Expr& var, const std::string& first, const char* k) {
  const std::string i = emit_.fresh("i");
  emit_.line(fmt::format("const i64 {} = {} + {};", i, first, k));
  emit_.bind(var, i);
}

// Each round interleaves rows whose numbers differ in the highest bit, which rotates the bits of an element's position
// (row, column) by one.
void TransposedTiles::transpose_rows(const std::string& rows, const std::string& to) {
  const auto interleaved = [&](int first) {
    std::string lanes;
    for (int k = first; k < first + kSide / 2; ++k) lanes += fmt::format(", {}, {}", k, kSide + k);
    return fmt::format("__builtin_shufflevector({0}[k], {0}[k + {1}]{2})", rows, kSide / 2, lanes);
  };
  for (int round = 1; round < kSide; round *= 2) {
    emit_.open("");
    emit_.line(fmt::format("{0}_t next[{1}];", rows, kSide));
    emit_.line("#pragma clang loop unroll(full)");
    emit_.open(fmt::format("for (int k = 0; k < {}; ++k)", kSide / 2));
    emit_.line(fmt::format("next[2 * k] = {};", interleaved(0)));
    emit_.line(fmt::format("next[2 * k + 1] = {};", interleaved(kSide / 2)));
    emit_.close();
    emit_.line(fmt::format("__builtin_memcpy({}, next, sizeof(next));", rows));
    emit_.close();
  }
  emit_.line(fmt::format("__builtin_memcpy({}, {}, sizeof({}));", to, rows, rows));
}

void TransposedTiles::tile(const Part& p) {
  std::vector<std::string> tiles;
  for (const Expr& x : across_.loads) {
    tiles.push_back(emit_.fresh("a"));
    emit_.line(fmt::format("alignas(64) {} {}[{}][{}];", storage_name(x->dtype), tiles.back(), kSide, kSide));
    const bool in_registers = size_of(x->dtype) == 4;
    const std::string row = emit_.fresh("r");
    if (in_registers)
      emit_.line(fmt::format("typedef {0} {1}_t __attribute__((vector_size({2}))); {1}_t {1}[{3}];",
                             storage_name(x->dtype), row, 4 * kSide, kSide));
    emit_.line("#pragma clang loop unroll(full)");
    emit_.open(fmt::format("for (int t = 0; t < {}; ++t)", kSide));
    index(inner_, p.t0, "t");
    emit_.bind(along_, p.u0);
    const std::string from = emit_.buffer(x->value), at = emit_.value(x->args[0]);
    if (in_registers)
      emit_.line(fmt::format("__builtin_memcpy(&{0}[t], {1} + ({2}), {3});", row, from, at, 4 * kSide));
    else
      emit_.line(fmt::format("for (int c = 0; c < {}; ++c) {}[c][t] = {}[{} + c];", kSide, tiles.back(), from, at));
    emit_.close();
    if (in_registers) transpose_rows(row, tiles.back());
  }
  elements(p, [&] {
    for (std::size_t k = 0; k < tiles.size(); ++k)
      emit_.bind_value(across_.loads[k],
                       fmt::format("{}[c][t]{}", tiles[k], across_.loads[k]->dtype == DType::kBool ? " != 0" : ""));
  });
}

// Stores elements of a tile, with what `bind` binds for each.
void TransposedTiles::elements(const Part& p, const std::function<void()>& bind) {
  emit_.open(fmt::format("for (i64 c = {}; c < {}; ++c)", p.first_column, p.end_column));
  index(along_, p.u0, "c");
  emit_.line("#pragma clang loop vectorize(assume_safety)");
  emit_.open(fmt::format("for (i64 t = {}; t < {}; ++t)", p.first_row, p.end_row));
  index(inner_, p.t0, "t");
  bind();
  store_(emit_.value(body_));
  emit_.close();
  emit_.close();
}

}  // namespace sardonyx::codegen
