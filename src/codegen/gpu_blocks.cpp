// GPU kernels that transpose: the result is contiguous along one variable, an operand along another. Each thread
// computes a square block, which it transposes in registers, so that both are accessed 16 bytes at a time. Neighbouring
// threads have neighbouring blocks along both variables: a wave reads and writes whole cache lines.
#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kLanes = 8;                // blocks along the operand's variable that neighbouring threads have
constexpr std::int64_t kLeastElements = 1 << 15;  // fewer give too few threads
constexpr std::size_t kMostOperands = 2;          // that are transposed: each takes up to 32 registers

// How often kLanes must be halved until it divides `rows`, as a factor.
std::int64_t divisions_of(std::int64_t rows) {
  std::int64_t by = 1;
  while (rows % (kLanes / by) != 0) by *= 2;
  return by;
}

// The same for blocks that may overlap: all of a few rows, or about as many with which few blocks are computed twice.
std::int64_t lanes_of(std::int64_t rows) {
  if (rows <= 2 * kLanes) return rows;
  std::int64_t best = kLanes, least = rows;
  for (const std::int64_t lanes : {8, 7, 9, 6, 10, 5}) {
    const std::int64_t twice = (rows + lanes - 1) / lanes * lanes - rows;
    if (twice < least) least = twice, best = lanes;
  }
  return best;
}

// The body below `end`, of a loop that fills the rest of its innermost dim with a constant; otherwise all of it.
struct Filled {
  Expr body;
  std::int64_t end = 0;  // 0: nothing is filled
};
Filled without_filling(const Expr& body, const Expr& inner) {
  Expr e = body;
  while (e->op == Op::kCast) e = e->args[0];
  std::int64_t end = 0;
  if (e->op == Op::kSelect && e->args[0]->op == Op::kLt && same(e->args[0]->args[0], inner) && is_const(e->args[2]) &&
      is_const_int(e->args[0]->args[1], end) && end > 0)
    return {e->args[1], end};
  return {body};
}

Expr product_of_extents(const Exprs& vars) {
  Expr n = 1;
  for (const Expr& v : vars) n = n * v->args[0];
  return n;
}

// Declares a C++ variable with the value of `v`.
void bind_to(Emitter& emit, const Expr& v, const std::string& value) {
  const std::string name = emit.fresh("i");
  emit.line(fmt::format("const {} {} = {};", emit.type_of(v), name, value));
  emit.bind(v, name);
}

// Opens a loop over a block's rows, whose positions `at` begin at `base`; `end`: from there on, the last one is taken
// again. Returns the row's number.
std::string open_block_rows(Emitter& emit, const Expr& at, const Expr& base, int length, std::int64_t end) {
  const std::string k = emit.fresh("k"), first = emit.value(base);
  emit.line("#pragma unroll");
  emit.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", k, length));
  bind_to(emit, at,
          end > 0 ? fmt::format("min({0}({1} + {2}), {0}({3}))", emit.type_of(at), first, k, end - 1)
                  : fmt::format("{} + {}", first, k));
  return k;
}

}  // namespace

std::optional<GpuGenerator::Blocks> GpuGenerator::blocks_of(const FlatLoop& f, const Packing& p, bool overlaps) const {
  const Expr inner = f.vars.back();
  const Filled filled = without_filling(f.body, inner);
  std::vector<GuardedLoad> crossing;
  const std::vector<GuardedLoad> loads = guarded_loads(filled.body);
  if (loads.empty() || (filled.end > 0 && !p.loads.empty())) return {};
  for (const GuardedLoad& g : loads) {
    const bool packed = std::ranges::any_of(p.loads, [&](const Expr& l) { return same(l, g.load); }) ||
                        std::ranges::any_of(p.pieces, [&](const Piece& x) { return same(x.load, g.load); });
    if (uses_var(g.load, inner) && !packed)
      crossing.push_back(g);
    else if (!g.conditions.empty() && !packed)
      return {};  // would be read where it does not exist
  }
  if (crossing.empty() || crossing.size() > kMostOperands) return {};
  const Expr elements = product_of_extents(f.vars);
  if (is_const(elements) && elements->i < kLeastElements) return {};
  for (std::size_t k = 0; k + 1 < f.vars.size(); ++k) {
    const Expr& across = f.vars[k];
    std::int64_t n = 0;
    if (!is_const_int(across->args[0], n) || (overlaps ? n < p.length : n % p.length != 0)) continue;
    Blocks b{k, p, {}, {}, overlaps};
    const bool suits = std::all_of(crossing.begin(), crossing.end(), [&](const GuardedLoad& g) {
      const Expr& l = g.load;
      Expr step, rest;
      if (static_cast<int>(size_of(l->dtype)) * p.length > 16) return false;
      if (g.conditions.empty() && idx::split_affine(l->args[0], across, step, rest)) {
        b.crossing.push_back(l);
        return is_const(step, 1) && (overlaps || multiple_of(rest, p.length, b.packing.multiples));
      }
      const std::optional<Expr> whole =
          g.times == 1 ? whole_packs(l->args[0], g.conditions, across, p.length) : std::nullopt;
      if (whole) b.pieces.push_back({l, inside_of(g), *whole});
      return whole.has_value();
    });
    // Packs of the other operands, and of the result, start at any value of `across`.
    if (suits) return b;
  }
  return {};
}

// Blocks of extents that are no multiples of a pack. Empty where packs are shorter than `least`.
std::optional<GpuGenerator::Blocks> GpuGenerator::overlapping_blocks_of(const FlatLoop& f, int least) const {
  std::int64_t n = 0;
  if (!row_options_.any_address || !in_blocks_ || !is_const_int(f.vars.back()->args[0], n)) return {};
  Packing p = find_packing({f.body}, {{kernel_.stages[0].out, f.offset}}, f.vars.back(), true);
  add_pieces({f.body}, f.vars.back(), p);
  if (p.length < least || n < p.length) return {};
  return blocks_of(f, p, true);
}

void GpuGenerator::blocks(const FlatLoop& f, const Blocks& b) {
  const int length = b.packing.length;
  const Expr inner = f.vars.back(), across = f.vars[b.across];
  const std::int64_t rows = (across->args[0]->i + length - 1) / length;
  const std::int64_t lanes = b.overlaps ? lanes_of(rows) : kLanes / divisions_of(rows);
  const Expr outer_row = loop_var((rows + lanes - 1) / lanes), lane = loop_var(lanes),
             group =
                 loop_var(b.overlaps ? idx::ceildiv(inner->args[0], length) : idx::floordiv(inner->args[0], length));
  const Expr row = loop_var(across->args[0]), base = loop_var(inner->args[0]), at = loop_var(inner->args[0]);
  Exprs vars;
  for (std::size_t k = 0; k + 1 < f.vars.size(); ++k)
    if (k != b.across) vars.push_back(f.vars[k]);
  for (const Expr& v : {outer_row, group, lane}) vars.push_back(v);
  const Expr items = product_of_extents(vars), elements = product_of_extents(f.vars);
  Packing aligned = b.packing;
  aligned.loads.insert(aligned.loads.end(), b.crossing.begin(), b.crossing.end());
  emit_.line("bool done = false;");
  emit_.open(fmt::format("if ({})", pack_condition(aligned, {kernel_.stages[0].out})));
  const std::string q = emit_.fresh("q");
  const bool narrow = open_items(items, "0", q, true);
  decode(vars, q, narrow);
  // The last block along a variable that is no multiple of a block overlaps with the one before.
  const auto bind_block = [&](const Expr& v, const std::string& number) {
    const std::int64_t last = b.overlaps ? v->args[0]->i - length : 0;
    bind_to(emit_, v,
            b.overlaps ? fmt::format("min({0}({1} * {2}), {0}({3}))", emit_.type_of(v), number, length, last)
                       : fmt::format("{} * {}", number, length));
  };
  bind_block(row, fmt::format("({} * {} + {})", emit_.value(outer_row), lanes, emit_.value(lane)));
  bind_block(base, emit_.value(group));
  std::vector<std::pair<Expr, std::string>> held;
  for (const Expr& l : b.crossing) held.emplace_back(l, emit_.fresh("b"));
  for (const Piece& piece : b.pieces) held.emplace_back(piece.load, emit_.fresh("b"));
  for (const auto& [l, name] : held)
    emit_.line(fmt::format("Pack<{}, {}> {}[{}];", storage_name(l->dtype), length, name, length));
  // Of what the block holds of loads from number `first` to before `last`; `load_row` loads along one row, binding
  // `at`.
  const std::int64_t end = without_filling(f.body, inner).end;  // beyond, the last element is read again
  const auto rows_of = [&](std::size_t first, std::size_t last, const auto& load_row) {
    if (first == last) return;
    const std::string k = open_block_rows(emit_, at, base, length, end);
    for (std::size_t i = first; i < last; ++i) load_row(i, fmt::format("{}[{}]", held[i].second, k));
    emit_.close();
  };
  const std::size_t always = b.crossing.size();
  const auto load_pack_of_row = [&](std::size_t i, const std::string& name) {
    const Expr& l = held[i].first;
    const std::string from = emit_.value(substitute(l->args[0], {{inner, at}, {across, row}}));
    emit_.line(fmt::format("{} = load_pack<{}>({} + {});", name, length, emit_.buffer(l->value), from));
  };
  rows_of(0, always, load_pack_of_row);
  for (std::size_t i = always; i < held.size(); ++i) {
    const Piece& p = b.pieces[i - always];
    const auto in_row = [&](const Expr& e) { return substitute(e, {{inner, at}}); };
    const Piece of_row = {in_row(p.load), in_row(p.inside), in_row(p.whole)};
    const auto load_mostly = [&](std::size_t, const std::string& name) {
      load_piece(of_row, name, length, across, row);
    };
    if (uses_var(p.whole, inner)) {
      rows_of(i, i + 1, load_mostly);
      continue;
    }
    emit_.open(fmt::format("if ({})", emit_.value(substitute(p.whole, {{across, row}}))));
    rows_of(i, i + 1, load_pack_of_row);
    emit_.close();
    emit_.open("else");
    rows_of(i, i + 1, [&](std::size_t, const std::string& name) { load_elements(of_row, name, length, across, row); });
    emit_.close();
  }

  const std::string j = emit_.fresh("j");
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", j, length));
  bind_to(emit_, across, fmt::format("{} + {}", emit_.value(row), j));
  std::vector<std::pair<Expr, std::string>> packs;
  load_packs(f.body, b.packing, inner, base, packs);
  const Value* out = kernel_.stages[0].out;
  const std::string y = emit_.fresh("y");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), length, y));
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", length));
  bind_to(emit_, inner, fmt::format("{} + l", emit_.value(base)));
  for (const auto& [l, name] : packs) emit_.bind_value(l, element_text(l->dtype, name + "[l]"));
  for (const auto& [l, name] : held) emit_.bind_value(l, element_text(l->dtype, fmt::format("{}[l][{}]", name, j)));
  const std::string x = emit_.value(f.body);
  emit_.line(fmt::format("{}[l] = {};", y, bits_text(out->dtype, x)));
  emit_.close();
  const std::string to = emit_.value(substitute(f.offset, {{inner, base}}));
  emit_.line(fmt::format("store_pack<{}>({} + {}, {});", length, emit_.buffer(out), to, y));
  emit_.close();
  emit_.close();
  emit_.line("done = true;");
  emit_.close();
  clear(vars);
  // Sizes that are not multiples take the general form: one thread an element.
  threads_ = items;
  for (const Expr& m : aligned.multiples)
    threads_ = select(compare(Op::kEq, idx::mod(m, length), 0), threads_, elements);
  work_ = work_ * length * length;
}

}  // namespace sardonyx::codegen
