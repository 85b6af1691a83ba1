// Loads that follow memory in pieces: along a dim that is padded, mirrored or wrapped around, most packs lie in memory
// as they are wanted. They are loaded as packs, the elements of the others one by one.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "codegen/gpu_generator.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostPositions = 1 << 12;  // of a variable whose values are all tried
constexpr int kMostParts = 4096;                  // of an expression

// Calls `found` for every load, with the conditions under which it is evaluated; once for each part of an expression
// that is under the same conditions.
class ConditionalLoads {
 public:
  explicit ConditionalLoads(std::function<void(const Expr&, const Exprs&)> found) : found_(std::move(found)) {}

  void visit(const Expr& e) {
    if (!e->has_load || seen(e)) return;
    levels_.back().insert(e.get());
    if (e->op == Op::kLoad) found_(e, conditions_);
    if (e->op != Op::kSelect) {
      for (const Expr& a : e->args) visit(a);
      return;
    }
    visit(e->args[0]);
    under(e->args[0], e->args[1]);
    under(logical_not(e->args[0]), e->args[2]);
  }
  /// False if there are so many parts that some were left out.
  bool complete() const { return left_ > 0; }

 private:
  using Level = std::unordered_set<const ExprNode*>;

  bool seen(const Expr& e) {
    if (left_ == 0 || --left_ == 0) return true;
    return std::ranges::any_of(levels_, [&](const Level& l) { return l.contains(e.get()); });
  }
  void under(const Expr& condition, const Expr& e) {
    conditions_.push_back(condition);
    levels_.emplace_back();
    visit(e);
    levels_.pop_back();
    conditions_.pop_back();
  }

  std::function<void(const Expr&, const Exprs&)> found_;
  Exprs conditions_;
  std::vector<Level> levels_ = std::vector<Level>(1);  // parts that were visited under each of them
  int left_ = kMostParts;
};

void split_conjunction(const Expr& e, Exprs& out) {
  if (e->op != Op::kAnd) return out.push_back(e);
  split_conjunction(e->args[0], out);
  split_conjunction(e->args[1], out);
}

}  // namespace

bool only_of(const Expr& e, const Expr& var) {
  bool only = !e->has_load && !e->has_sym && !e->has_reduce;
  visit(e, [&](const Expr& x) { only &= x->op != Op::kVar || x->i == var->i; });
  return only;
}

Expr part_along(const Expr& e, const Expr& var) {
  if (e->op == Op::kAdd) return part_along(e->args[0], var) + part_along(e->args[1], var);
  if (e->op == Op::kSub) return part_along(e->args[0], var) - part_along(e->args[1], var);
  return uses_var(e, var) ? e : Expr(0);
}

std::optional<Expr> GpuGenerator::whole_packs(const Expr& offset, const Exprs& conditions, const Expr& var,
                                              int length) const {
  std::int64_t n = 0, x = 0;
  if (!row_options_.any_address || !is_const_int(var->args[0], n) || n < length || n > kMostPositions) return {};
  const Expr along = part_along(offset, var);
  if (!uses_var(along, var) || !only_of(along, var)) return {};
  Expr inside = constant_bool(true), others = inside;  // conditions on `var`, and on other variables
  for (const Expr& c : conditions) {
    if (c->has_load || c->has_reduce || (uses_var(c, var) && !only_of(c, var))) return {};
    Expr& all = uses_var(c, var) ? inside : others;
    all = logical_and(all, c);
  }
  std::vector<std::int64_t> at;
  std::vector<bool> exists;
  for (std::int64_t i = 0; i < n; ++i) {
    const Expr e = substitute(inside, {{var, Expr(i)}});
    if (!is_const_int(substitute(along, {{var, Expr(i)}}), x) || !is_const(e)) return {};
    at.push_back(x);
    exists.push_back(e->i != 0);
  }
  std::int64_t whole = 0;
  for (std::size_t first = 0, end = static_cast<std::size_t>(length); end <= at.size(); ++first, ++end) {
    bool all = true;
    for (std::size_t i = first; i < end; ++i)
      all &= exists[i] && at[i] == at[first] + static_cast<std::int64_t>(i - first);
    // The test of the kernel: the ends exist, and are as far apart as in a whole pack.
    if (all != (exists[first] && exists[end - 1] && at[end - 1] - at[first] == length - 1)) return {};
    whole += all;
  }
  if (2 * whole < n - length + 1) return {};
  const auto last = [&](const Expr& e) { return substitute(e, {{var, var + Expr(length - 1)}}); };
  return logical_and(logical_and(others, compare(Op::kEq, last(along) - along, length - 1)),
                     logical_and(inside, last(inside)));
}

std::vector<GpuGenerator::GuardedLoad> GpuGenerator::guarded_loads(const Expr& body) {
  std::vector<GuardedLoad> found;
  ConditionalLoads loads([&](const Expr& l, const Exprs& conditions) {
    for (GuardedLoad& known : found)
      if (same(known.load, l)) {
        known.times += 1;
        return;
      }
    found.push_back({l, {}});
    for (const Expr& c : conditions) split_conjunction(c, found.back().conditions);
  });
  loads.visit(body);
  certain_loads(body, [&](const Expr& l) {  // on both sides of a select, too
    for (GuardedLoad& g : found)
      if (same(g.load, l)) g.conditions.clear();
  });
  return loads.complete() ? found : std::vector<GuardedLoad>();
}

// Adds the loads that are no packs everywhere, but in most places along `var`.
void GpuGenerator::add_pieces(const Exprs& bodies, const Expr& var, Packing& p) const {
  if (!row_options_.any_address || p.length < 2) return;
  for (const Expr& body : bodies)
    for (const GuardedLoad& g : guarded_loads(body)) {
      Expr step, rest;
      const auto is_load = [&](const Expr& x) { return same(x, g.load); };
      if (g.times != 1 || !uses_var(g.load, var) || std::ranges::any_of(p.loads, is_load) ||
          std::ranges::any_of(p.pieces, [&](const Piece& x) { return is_load(x.load); }))
        continue;
      // Loads that are always evaluated, and all of whose packs follow memory, are packs or cannot be.
      if (g.conditions.empty() && idx::split_affine(g.load->args[0], var, step, rest)) continue;
      if (size_of(g.load->dtype) * static_cast<std::size_t>(p.length) > 16) continue;
      if (const std::optional<Expr> whole = whole_packs(g.load->args[0], g.conditions, var, p.length))
        p.pieces.push_back({g.load, inside_of(g), *whole});
    }
}

Expr GpuGenerator::inside_of(const GuardedLoad& g) {
  Expr all = constant_bool(true);
  for (const Expr& c : g.conditions) all = logical_and(all, c);
  return all;
}

// Loads the pack `name` of a piece from `first` on, along `var`.
void GpuGenerator::load_piece(const Piece& piece, const std::string& name, int length, const Expr& var,
                              const Expr& first) {
  const Expr& l = piece.load;
  emit_.open(fmt::format("if ({})", emit_.value(substitute(piece.whole, {{var, first}}))));
  const std::string at = emit_.value(substitute(l->args[0], {{var, first}}));
  emit_.line(fmt::format("{} = load_pack<{}>({} + {});", name, length, emit_.buffer(l->value), at));
  emit_.close();
  emit_.open("else");
  load_elements(piece, name, length, var, first);
  emit_.close();
}

// The same, element by element.
void GpuGenerator::load_elements(const Piece& piece, const std::string& name, int length, const Expr& var,
                                 const Expr& first) {
  const DType t = piece.load->dtype;
  const std::string k = emit_.fresh("k"), i = emit_.fresh("i"), from = emit_.value(first);
  emit_.line("#pragma unroll");
  emit_.open(fmt::format("for (int {0} = 0; {0} < {1}; ++{0})", k, length));
  emit_.line(fmt::format("const {} {} = {} + {};", emit_.type_of(var), i, from, k));
  emit_.bind(var, i);
  emit_.guards_loads = guarded_loads_;
  const std::string x = emit_.value(select(piece.inside, piece.load, constant(0, t)));
  emit_.guards_loads = false;
  emit_.line(fmt::format("{}[{}] = {};", name, k, bits_text(t, x)));
  emit_.close();
}

}  // namespace sardonyx::codegen
