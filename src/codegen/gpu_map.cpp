// GPU kernels with one thread per element or per pack: contiguous elements are loaded and stored 16 bytes at a time.
// Elements that packs do not cover are processed one by one; so are all elements if sizes or addresses at run time do
// not allow packs.
#include <algorithm>
#include <optional>
#include <set>

#include "codegen/gpu_generator.h"
#include "codegen/selected_sines.h"

namespace sardonyx::codegen {

// Whether a condition has the same value for all elements of a pack.
bool splits(const Expr& body, const Expr& inner) {
  return body->op == Op::kSelect && !uses_var(body->args[0], inner) &&
         (body->args[1]->has_load || body->args[2]->has_load);
}

namespace {

constexpr std::int64_t kLongestPack = 8;
constexpr std::int64_t kLeastPacks = 4;  // of a part of a row whose last pack overlaps with the one before
constexpr std::size_t kMostParts = 16;

// A select between two bodies that is uniform over packs: its condition is as above, or compares the position in the
// row with a multiple of every pack's length (the halves of a rotated head).
struct Sides {
  Expr condition, then, otherwise;
};

// x, if the condition is that the position in the row is less than x.
std::optional<std::int64_t> less_than(const Expr& condition, const Expr& inner) {
  Expr step, rest;
  std::int64_t by = 0;
  if (condition->op != Op::kLt || condition->args[0]->dtype != DType::kInt64 ||
      !idx::split_affine(condition->args[0] - condition->args[1], inner, step, rest) || !is_const(step, 1) ||
      !is_const_int(rest, by))
    return {};
  return -by;
}

std::optional<Sides> sides_of(const Expr& body, const Expr& inner) {
  if (body->op == Op::kCast) {
    std::optional<Sides> s = sides_of(body->args[0], inner);
    const auto again = [&](const Expr& side) {
      return rewrite(body, [&](const Expr& x) { return same(x, body->args[0]) ? side : Expr(); });
    };
    if (s) s->then = again(s->then), s->otherwise = again(s->otherwise);
    return s;
  }
  if (body->op != Op::kSelect) return {};
  const Expr& c = body->args[0];
  const std::optional<std::int64_t> below = less_than(c, inner);
  const bool halves = below && *below % kLongestPack == 0 && (body->args[1]->has_load || body->args[2]->has_load);
  if (!halves && !splits(body, inner)) return {};
  return Sides{c, body->args[1], body->args[2]};
}

// The bodies at the leaves of these selects.
void leaves(const Expr& body, const Expr& inner, Exprs& out) {
  const auto s = sides_of(body, inner);
  if (!s) {
    out.push_back(body);
    return;
  }
  leaves(s->then, inner, out);
  leaves(s->otherwise, inner, out);
}

// The body where low <= inner < high, which no select divides.
Expr within(const Expr& body, const Expr& inner, std::int64_t low, std::int64_t high) {
  return rewrite(body, [&](const Expr& x) -> Expr {
    const std::optional<std::int64_t> at = x->op == Op::kSelect ? less_than(x->args[0], inner) : std::nullopt;
    if (!at || (*at > low && *at < high)) return {};
    return within(x->args[*at >= high ? 1 : 2], inner, low, high);
  });
}

// The parts of the innermost variable's range in which selects that compare it with constants take one side each: those
// of a concatenation, whatever their lengths and whatever is computed of them. One part if there are no such selects.
void find_segments(const Expr& body, const Expr& inner, std::int64_t n, std::vector<GpuGenerator::Segment>& out) {
  std::set<std::int64_t> ends = {n};
  visit(body, [&](const Expr& x) {
    if (x->op != Op::kSelect || (!x->args[1]->has_load && !x->args[2]->has_load)) return;
    const std::optional<std::int64_t> at = less_than(x->args[0], inner);
    if (at && *at > 0 && *at < n) ends.insert(*at);
  });
  std::int64_t low = 0;
  for (const std::int64_t end : ends) {
    out.push_back({low, end, within(body, inner, low, end)});
    low = end;
  }
}

// Whether it is an element of a tensor, or a constant.
bool only_loads(const Expr& e) {
  return e->op == Op::kLoad || is_const(e) || (e->op == Op::kCast && only_loads(e->args[0]));
}

// Whether packs would lie in several parts, of which things are computed, and nothing is loaded as a pack: a thread
// would go through the parts' sides for one element after the other, while threads with one element each mostly agree.
// Parts that are only loaded are no branches: a thread's loads are all issued first.
bool divides_packs(const Expr& body, const Expr& inner, const Packing& p) {
  std::int64_t n = 0;
  if (!p.loads.empty() || !p.pieces.empty() || !is_const_int(inner->args[0], n)) return false;
  std::vector<GpuGenerator::Segment> parts;
  find_segments(body, inner, n, parts);
  return std::ranges::any_of(parts, [&](const auto& part) { return part.low % p.length != 0; }) &&
         std::ranges::any_of(parts, [](const auto& part) { return !only_loads(part.body); });
}

}  // namespace

// Packs that begin at any element: where rows, or their parts, are no multiples of a pack, the last pack of each
// overlaps with the one before. Empty where aligned packs are at least half as long, or a part is too short.
std::optional<GpuGenerator::Segments> GpuGenerator::segments_of(const FlatLoop& f, int aligned) const {
  std::int64_t n = 0;
  if (!row_options_.any_address || !is_const_int(f.vars.back()->args[0], n)) return {};
  Segments s;
  find_segments(f.body, f.vars.back(), n, s.parts);
  Exprs bodies;
  for (const Segment& part : s.parts) leaves(part.body, f.vars.back(), bodies);
  s.packing = find_packing(bodies, {{kernel_.stages[0].out, f.offset}}, f.vars.back(), true);
  add_pieces(bodies, f.vars.back(), s.packing);
  const std::int64_t v = s.packing.length;
  if (v <= 2 * aligned || s.parts.size() > kMostParts) return {};
  // Loads of another kind would be repeated where packs overlap.
  if (s.packing.loads.empty() && s.packing.pieces.empty()) return {};
  std::int64_t single = 0;
  for (Segment& part : s.parts) {
    const std::int64_t length = part.high - part.low;
    part.singly = length < kLeastPacks * v;
    if (part.singly) single += length;
    s.packs += part.singly ? length : (length + v - 1) / v;
  }
  // Of several parts, some may be short (what fills a row up): their elements have a thread each.
  if (single > s.packs / 2) return {};
  return s;
}

void GpuGenerator::segments(const FlatLoop& f, const Segments& s) {
  const Expr inner = f.vars.back(), base = loop_var(inner->args[0]);
  Exprs vars(f.vars.begin(), f.vars.end() - 1);
  const Expr group = loop_var(s.packs);
  vars.push_back(group);
  Expr items = 1;
  for (const Expr& v : vars) items = items * v->args[0];
  const std::string q = emit_.fresh("q");
  const bool narrow = open_items(items, "0", q, true);
  decode(vars, q, narrow);
  const std::string g = emit_.value(group), at = emit_.fresh("i");
  const char* type = emit_.type_of(base);
  const int v = s.packing.length;
  std::int64_t before = 0;
  for (std::size_t k = 0; k < s.parts.size(); ++k) {
    const Segment& part = s.parts[k];
    const std::int64_t length = part.high - part.low, packs = part.singly ? length : (length + v - 1) / v;
    const std::string own = before == 0 ? g : fmt::format("({} - {})", g, before);
    if (s.parts.size() > 1)
      emit_.open(k + 1 == s.parts.size() ? "else"
                                         : fmt::format("{}if ({} < {})", k > 0 ? "else " : "", g, before + packs));
    if (part.singly) {
      emit_.line(fmt::format("const {0} {1} = {0}({2} + {3});", type, at, own, part.low));
      emit_.bind(inner, at);
      const std::string x = emit_.value(part.body);
      store(kernel_.stages[0].out, f.offset, x);
    } else {
      emit_.line(fmt::format("const {0} {1} = min({0}({2} * {3} + {4}), {0}({5}));", type, at, own, v, part.low,
                             part.high - v));
      emit_.bind(base, at);
      pack_body(part.body, s.packing, inner, base, f.offset);
    }
    if (s.parts.size() > 1) emit_.close();
    before += packs;
  }
  emit_.close();
  threads_ = items;
  work_ = work_ * v;
}

// Whether there is one body, beside constants where packs may begin at any element.
bool GpuGenerator::has_one_body(const Exprs& leaves) const {
  const auto with_loads = std::ranges::count_if(leaves, [](const Expr& e) { return e->has_load; });
  return leaves.size() == 1 || (row_options_.any_address && with_loads == 1);
}

void GpuGenerator::map(const FlatLoop& loop) {
  FlatLoop f = loop;
  if (!f.vars.empty() && has_far_sines(f.body)) f.body = merge_selected_sines(f.body, f.vars.back());
  work_ = cost_of(f.body);
  Expr items = 1;
  for (const Expr& v : f.vars) items = items * v->args[0];
  std::string from = "0";
  bool in_blocks = false;
  threads_ = items;
  if (!f.vars.empty() && !f.body->has_reduce) {
    Exprs bodies;
    leaves(f.body, f.vars.back(), bodies);
    Packing p = find_packing(bodies, {{kernel_.stages[0].out, f.offset}}, f.vars.back());
    const Expr& n = f.vars.back()->args[0];
    std::int64_t c = 0;
    if (p.length > 1 && f.vars.size() > 1) {
      while (p.length > 1 && is_const_int(n, c) && c % p.length != 0) p.length /= 2;
      if (!is_const(n)) p.multiples.push_back(n);
    }
    add_pieces(bodies, f.vars.back(), p);
    std::optional<Blocks> b;
    const bool one_body = has_one_body(bodies);
    if (in_blocks_ && p.length > 1 && one_body && !n->has_var) b = blocks_of(f, p, false);
    if (one_body)
      if (const std::optional<Blocks> o = overlapping_blocks_of(f, b ? 2 * p.length : 2)) return blocks(f, *o);
    const std::optional<JoinedRows> j = p.length <= 2 ? joined_rows_of(f) : std::nullopt;
    if (!j || j->length <= p.length)
      if (const std::optional<Segments> s = segments_of(f, p.loads.empty() && p.pieces.empty() ? 1 : p.length))
        return segments(f, *s);
    if (!b && p.length > 1 && divides_packs(f.body, f.vars.back(), p)) p = {};
    if (p.length == 1 && suits_lines(f)) {
      lines(f);
      return;
    }
    if (j && j->length > p.length) {
      joined_rows(f, *j);
      from = "done";
      threads_ = idx::ceildiv(items, j->length);
      work_ = work_ * j->length;
      p.length = 1;
    }
    if (!b && from == "0" && p.length > 1 && bodies.size() == 1) add_interleaved(f.body, f.vars.back(), p);
    if (!b && from == "0" && p.interleaved.empty()) p.length = gather_length(f, p);
    if (b && from == "0") {
      blocks(f, *b);
      in_blocks = true;
      emit_.line("if (done) return;");
    } else if (p.length > 1 && !n->has_var && !(is_const_int(n, c) && c < p.length)) {
      map_packs(f, p);
      from = "done";
      threads_ = idx::ceildiv(items, p.length);
      work_ = work_ * p.length;
    }
  }
  const std::string q = emit_.fresh("q");
  const bool narrow = open_items(items, from, q, from == "0" && !in_blocks);
  decode(f.vars, q, narrow);
  const std::string x = emit_.value(f.body);
  store(kernel_.stages[0].out, f.offset, x);
  emit_.close();
}

void GpuGenerator::map_packs(const FlatLoop& f, const Packing& p) {
  const Expr inner = f.vars.back();
  const Expr count = idx::floordiv(inner->args[0], p.length);
  const Expr group = loop_var(count), base = loop_var(inner->args[0]);
  Exprs vars(f.vars.begin(), f.vars.end() - 1);
  Expr rows = 1;
  for (const Expr& v : vars) rows = rows * v->args[0];
  vars.push_back(group);
  const Expr items = rows * count;
  emit_.line(fmt::format("{} done = 0;", range_.narrow(rows * inner->args[0]) ? "u32" : "i64"));
  emit_.open(fmt::format("if ({})", pack_condition(p, {kernel_.stages[0].out})));
  const std::string q = emit_.fresh("q");
  const bool narrow = open_items(items, "0", q, true);
  decode(vars, q, narrow);
  const std::string at = emit_.fresh("i");
  emit_.line(fmt::format("const {} {} = {} * {};", emit_.type_of(base), at, emit_.value(group), p.length));
  emit_.bind(base, at);
  pack_body(f.body, p, inner, base, f.offset);
  emit_.close();
  emit_.line(fmt::format("done = {};", emit_.value(items * Expr(p.length))));
  emit_.close();
  clear(vars);
}

// Loads the packs that `body` needs.
void GpuGenerator::load_packs(const Expr& body, const Packing& p, const Expr& inner, const Expr& base,
                              std::vector<std::pair<Expr, std::string>>& packs) {
  load_interleaved(p, inner, base, packs);
  certain_loads(body, [&](const Expr& l) {
    for (const auto& [known, name] : packs)
      if (same(known, l)) return;
    for (const Expr& packed : p.loads) {
      if (!same(packed, l)) continue;
      const std::string at = emit_.value(substitute(l->args[0], {{inner, base}}));
      const std::string name = emit_.fresh("v");
      emit_.line(fmt::format("const auto {} = load_pack<{}>({} + {});", name, p.length, emit_.buffer(l->value), at));
      packs.emplace_back(l, name);
      return;
    }
    if (!uses_var(l, inner)) emit_.value(l);  // once for all elements of the pack
  });
  const Exprs loads = all_loads(body);
  for (const Piece& piece : p.pieces) {
    if (std::ranges::none_of(loads, [&](const Expr& l) { return same(l, piece.load); })) continue;
    const std::string name = emit_.fresh("v");
    emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(piece.load->dtype), p.length, name));
    load_piece(piece, name, p.length, inner, base);
    packs.emplace_back(piece.load, name);
  }
}

void GpuGenerator::pack_body(const Expr& body, const Packing& p, const Expr& inner, const Expr& base,
                             const Expr& offset) {
  if (const auto s = sides_of(body, inner)) {
    const std::string c = emit_.value(substitute(s->condition, {{inner, base}}));
    emit_.open(fmt::format("if ({})", c));
    pack_body(s->then, p, inner, base, offset);
    emit_.close();
    emit_.open("else");
    pack_body(s->otherwise, p, inner, base, offset);
    emit_.close();
    return;
  }
  std::vector<std::pair<Expr, std::string>> packs;
  load_packs(body, p, inner, base, packs);
  const Value* out = kernel_.stages[0].out;
  const std::string y = emit_.fresh("y");
  emit_.line(fmt::format("Pack<{}, {}> {};", storage_name(out->dtype), p.length, y));
  const std::string first = emit_.value(base);
  const bool sines = has_far_sines(body);
  if (sines) {
    emit_.open("with_sines([&](auto& sines)");
    emit_.sines = "sines";
  }
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int l = 0; l < {}; ++l)", p.length));
  const std::string i = emit_.fresh("i");
  emit_.line(fmt::format("const {} {} = {} + l;", emit_.type_of(inner), i, first));
  emit_.bind(inner, i);
  for (const auto& [l, name] : packs) emit_.bind_value(l, element_text(l->dtype, name + "[l]"));
  emit_.guards_loads = guarded_loads_;
  const std::string x = emit_.value(body);
  emit_.guards_loads = false;
  emit_.line(fmt::format("{}[l] = {};", y, bits_text(out->dtype, x)));
  emit_.close();
  if (sines) {
    emit_.close(");");
    emit_.sines.clear();
  }
  const std::string at = emit_.value(substitute(offset, {{inner, base}}));
  emit_.line(fmt::format("store_pack<{}>({} + {}, {});", p.length, emit_.buffer(out), at, y));
}

}  // namespace sardonyx::codegen
