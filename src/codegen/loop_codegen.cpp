// Host code of loop kernels.
//
// A kernel of one stage is split here: adjacent dims that all accesses run through together become one, the innermost (contiguous) one becomes
// the vectorised loop, cut into blocks so that there is parallelism, the others the points. A kernel of several stages is parallel over its outer
// variables only.
#include "codegen/loop_codegen.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/emit.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kBlock = 8192;       // elements of the vectorised loop per point
constexpr std::int64_t kReduceBlock = 256;  // the same when each element is a reduction
constexpr int kTile = 64;                   // elements reduced side by side

// An access runs through dims a and b (b inside a) as through one dim if a's stride is b's stride times b's extent.
bool collapsible(const Expr& offset, const Expr& a, const Expr& b) {
  Expr ca, cb, rest;
  if (!idx::split_affine(offset, a, ca, rest) || !idx::split_affine(offset, b, cb, rest)) return false;
  return idx::provably_equal(ca, cb * b->args[0]);
}

bool uses(const Expr& e, const Expr& var) {
  if (!e->has_var) return false;
  bool used = false;
  visit(e, [&](const Expr& x) { used |= x->op == Op::kVar && x->i == var->i; });
  return used;
}

// True if a and b only occur in indices of loads, all collapsible. The expression is walked as it is: replacing loads would let it
// simplify, and conditions on a and b vanish.
bool only_in_loads(const Expr& e, const Expr& a, const Expr& b, std::unordered_set<const ExprNode*>& seen) {
  if (!e->has_var || !seen.insert(e.get()).second) return true;
  if (e->op == Op::kVar) return e->i != a->i && e->i != b->i;
  if (e->op == Op::kLoad) return collapsible(e->args[0], a, b);
  for (const Expr& x : e->args)
    if (!only_in_loads(x, a, b, seen)) return false;
  return true;
}

// True if a and b only occur in indices of loads, all collapsible, and in `store`.
bool can_merge(const Expr& body, const Expr& store, const Expr& a, const Expr& b) {
  std::unordered_set<const ExprNode*> seen;
  return (!store || collapsible(store, a, b)) && only_in_loads(body, a, b, seen);
}

// Merges adjacent variables where possible; body and store are rewritten.
Exprs merge_vars(Exprs vars, Expr& body, Expr& store) {
  for (std::size_t k = vars.size(); k-- > 1;) {
    const Expr a = vars[k - 1], b = vars[k];
    if (!can_merge(body, store, a, b)) continue;
    const Expr u = loop_var(a->args[0] * b->args[0]);
    const std::vector<std::pair<Expr, Expr>> r = {{a, Expr(0)}, {b, u}};
    body = substitute(body, r);
    if (store) store = substitute(store, r);
    vars[k - 1] = u;
    vars.erase(vars.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return vars;
}

// The same for the variables of reductions.
Expr merge_reduce_vars(const Expr& e) {
  if (!e->has_reduce) return e;
  return rewrite(e, [](const Expr& x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->op != Op::kReduce) return Expr();
    Expr body = merge_reduce_vars(x->args[0]), none;
    const auto kind = static_cast<ReduceKind>(x->i);
    Exprs vars = merge_vars(x->vars, body, none);
    return reduce(kind, vars, body);
  });
}

// Reductions of `e` that are always evaluated (not inside another one, not on one side of a select), operands first.
void top_reductions(const Expr& e, Exprs& out) {
  if (!e->has_reduce) return;
  if (e->op == Op::kReduce) {
    for (const Expr& r : out)
      if (same(r, e)) return;
    if (e->args[0]->has_reduce) top_reductions(e->args[0], out);
    for (const Expr& r : out)
      if (same(r, e)) return;
    out.push_back(e);
    return;
  }
  if (e->op == Op::kSelect) return top_reductions(e->args[0], out);
  for (const Expr& a : e->args) top_reductions(a, out);
}

// Whether reductions run better side by side over `inner` (contiguous in memory) than one after another.
bool side_by_side(const Exprs& reductions, const Expr& inner) {
  if (reductions.empty()) return false;
  int with = 0, without = 0;
  for (const Expr& r : reductions) {
    if (static_cast<ReduceKind>(r->i) >= ReduceKind::kArgMin || r->args[0]->has_reduce) return false;
    for (const Expr& v : r->vars)
      if (uses(v->args[0], inner)) return false;
    with += unit_stride_loads(r->args[0], inner);
    for (const Expr& v : r->vars) without += unit_stride_loads(r->args[0], v);
  }
  return with > 0 && with >= without;
}

Expr cost_of(const Expr& e) {
  // Operations per evaluation; a reduction multiplies by its extents.
  std::int64_t own = 0;
  Expr total = 0;
  std::vector<Expr> stack = {e};
  std::unordered_map<const ExprNode*, bool> seen;
  while (!stack.empty()) {
    const Expr x = stack.back();
    stack.pop_back();
    if (seen[x.get()]) continue;
    seen[x.get()] = true;
    if (x->op == Op::kConst || x->op == Op::kVar || x->op == Op::kSym) continue;
    own += (x->op >= Op::kExp && x->op <= Op::kSigmoid) || x->op == Op::kPow ? 8 : 1;
    if (x->op == Op::kReduce) {
      Expr n = 1;
      for (const Expr& v : x->vars) n = n * v->args[0];
      if (n->has_var) n = 64;
      total = total + n * cost_of(x->args[0]);
      continue;
    }
    for (const Expr& a : x->args) stack.push_back(a);
  }
  return total + Expr(own);
}

class Generator {
 public:
  explicit Generator(const LoopKernel& kernel) : kernel_(kernel), emit_(text_) {}

  LoopSource run() {
    if (kernel_.stages.size() == 1 && kernel_.outer.empty()) single(kernel_.stages[0]);
    else several();
    LoopSource s;
    std::string head = "(char* const* b, const i64* s, i64 begin, i64 end) {\n";
    for (std::size_t k = 0; k < emit_.buffers.size(); ++k) {
      const Value* v = emit_.buffers[k];
      bool written = false;
      for (const Stage& st : kernel_.stages) written |= st.out == v;
      head += fmt::format("  {0}{1}* __restrict b{2} = ({0}{1}*)b[{2}];\n", written ? "" : "const ", storage_name(v->dtype), k);
    }
    for (std::size_t k = 0; k < emit_.symbols.size(); ++k) head += fmt::format("  const i64 s{0} = s[{0}];\n", k);
    s.body = head + text_ + "}\n";
    s.buffers = emit_.buffers;
    s.symbols = emit_.symbols;
    s.points = points_;
    s.work = work_;
    return s;
  }

 private:
  // Names outer variables from the point number in `q`.
  void decode(const Exprs& outer, const std::string& q) {
    for (std::size_t k = outer.size(); k-- > 0;) {
      const std::string i = emit_.fresh("o");
      if (k == 0) emit_.line(fmt::format("const i64 {} = {};", i, q));
      else {
        const std::string n = emit_.value(outer[k]->args[0]);
        emit_.line(fmt::format("const i64 {0} = i64(u64({1}) % u64({2})); {1} = i64(u64({1}) / u64({2}));", i, q, n));
      }
      emit_.bind(outer[k], i);
    }
  }

  void store(const Value* out, const Expr& offset, const std::string& x) {
    const std::string at = emit_.value(offset);
    emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), at, x));
  }

  // for (var in [lo, hi)) out[offset] = body, with reductions side by side if that is better.
  void innermost(const Stage& stage, const Expr& var, const Expr& body, const Expr& offset, const std::string& lo, const std::string& hi) {
    Exprs reductions;
    top_reductions(body, reductions);
    if (side_by_side(reductions, var)) {
      const std::string t0 = emit_.fresh("v"), n = emit_.fresh("n");
      emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; {0} += {3})", t0, lo, hi, kTile));
      emit_.line(fmt::format("const i64 {} = min(i64({}), {} - {});", n, kTile, hi, t0));
      std::vector<std::string> arrays;
      for (const Expr& r : reductions) {
        const auto kind = static_cast<ReduceKind>(r->i);
        const std::string a = emit_.fresh("a");
        emit_.line(fmt::format("{} {}[{}];", type_name(r->dtype), a, kTile));
        emit_.line(fmt::format("for (int t = 0; t < {}; ++t) {}[t] = {};", kTile, a, Emitter::neutral(kind, r->dtype)));
        for (const Expr& v : r->vars) {
          const std::string i = emit_.fresh("i"), extent = emit_.value(v->args[0]);
          emit_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, extent));
          emit_.bind(v, i);
        }
        // Whole tiles have a constant trip count, which vectorises without a remainder.
        for (const bool whole : {true, false}) {
          emit_.open(whole ? fmt::format("if ({} == {})", n, kTile) : "else");
          emit_.line("#pragma clang loop vectorize(assume_safety)");
          emit_.open(fmt::format("for (int t = 0; t < {}; ++t)", whole ? std::to_string(kTile) : n));
          const std::string i = emit_.fresh("i");
          emit_.line(fmt::format("const i64 {} = {} + t;", i, t0));
          emit_.bind(var, i);
          for (std::size_t j = 0; j < arrays.size(); ++j) emit_.bind_value(reductions[j], arrays[j] + "[t]");
          const std::string x = emit_.value(r->args[0]);
          emit_.line(fmt::format("{0}[t] = {1};", a, Emitter::combine(kind, r->dtype, a + "[t]", x)));
          emit_.close();
          emit_.close();
        }
        for (std::size_t j = 0; j < r->vars.size(); ++j) emit_.close();
        arrays.push_back(a);
      }
      emit_.line("#pragma clang loop vectorize(assume_safety)");
      emit_.open(fmt::format("for (int t = 0; t < {}; ++t)", n));
      const std::string i = emit_.fresh("i");
      emit_.line(fmt::format("const i64 {} = {} + t;", i, t0));
      emit_.bind(var, i);
      for (std::size_t j = 0; j < arrays.size(); ++j) emit_.bind_value(reductions[j], arrays[j] + "[t]");
      const std::string x = emit_.value(body);
      store(stage.out, offset, x);
      emit_.close();
      emit_.close();
      return;
    }
    const std::string i = emit_.fresh("i");
    if (!body->has_reduce) emit_.line("#pragma clang loop vectorize(assume_safety)");
    emit_.open(fmt::format("for (i64 {0} = {1}; {0} < {2}; ++{0})", i, lo, hi));
    emit_.bind(var, i);
    const std::string x = emit_.value(body);
    store(stage.out, offset, x);
    emit_.close();
  }

  void single(const Stage& stage) {
    Expr body = merge_reduce_vars(flatten_loads(stage.body));
    Expr offset = storage_offset(*stage.out, stage.index);
    // Dims in memory order, without those of extent 1.
    std::vector<int> order = stage.out->storage_order;
    if (order.empty())
      for (int k = 0; k < stage.out->rank(); ++k) order.push_back(k);
    Exprs vars;
    std::vector<std::pair<Expr, Expr>> ones;
    for (int d : order) {
      const Expr& v = stage.index[static_cast<std::size_t>(d)];
      if (v->op != Op::kVar) continue;
      if (is_const(v->args[0], 1)) ones.emplace_back(v, Expr(0));
      else vars.push_back(v);
    }
    body = substitute(body, ones);
    offset = substitute(offset, ones);
    vars = merge_vars(vars, body, offset);
    if (vars.empty()) {  // one element
      points_ = 1;
      work_ = cost_of(body);
      emit_.open("if (begin < end)");
      const std::string x = emit_.value(body);
      store(stage.out, offset, x);
      emit_.close();
      return;
    }
    const Expr inner = vars.back();
    const Exprs outer(vars.begin(), vars.end() - 1);
    const std::int64_t block = body->has_reduce ? kReduceBlock : kBlock;
    std::int64_t n = 0;
    const bool blocked = !is_const_int(inner->args[0], n) || n > block;
    Expr outer_points = 1;
    for (const Expr& v : outer) outer_points = outer_points * v->args[0];
    const Expr blocks = blocked ? idx::ceildiv(inner->args[0], block) : Expr(1);
    points_ = outer_points * blocks;
    work_ = cost_of(body) * idx::min(inner->args[0], block);
    open_points();
    std::string lo = "0", hi;
    const std::string extent = emit_.value(inner->args[0]);
    if (blocked) {
      const std::string nb = emit_.value(blocks);
      emit_.line(fmt::format("const i64 lo = i64(u64(q) % u64({0})) * {1}; q = i64(u64(q) / u64({0}));", nb, block));
      emit_.line(fmt::format("const i64 hi = min(lo + {}, {});", block, extent));
      lo = "lo";
      hi = "hi";
    } else hi = extent;
    decode(outer, "q");
    innermost(stage, inner, body, offset, lo, hi);
    emit_.close();
  }

  // The loop over points. The compiler must not vectorise it: where small constant inner loops have been unrolled into it, LLVM 22 takes time
  // exponential in the length of the body (VPlan's isSingleScalar).
  void open_points() {
    emit_.line("#pragma clang loop vectorize(disable)");
    emit_.open("for (i64 p = begin; p < end; ++p)");
    emit_.line("i64 q = p;");
  }

  void several() {
    points_ = 1;
    for (const Expr& v : kernel_.outer) points_ = points_ * v->args[0];
    work_ = 0;
    open_points();
    decode(kernel_.outer, "q");
    for (const Stage& stage : kernel_.stages) {
      Expr body = merge_reduce_vars(flatten_loads(stage.body));
      Expr offset = storage_offset(*stage.out, stage.index);
      Expr n = 1;
      for (const Expr& v : stage.inner) n = n * v->args[0];
      work_ = work_ + n * cost_of(body);
      if (stage.inner.empty()) {
        const std::string x = emit_.value(body);
        const std::string local = emit_.fresh("x");
        emit_.line(fmt::format("const {} {} = {};", type_name(stage.out->dtype), local, x));
        emit_.bind_local(stage.out, local);
        if (stage.stored) store(stage.out, offset, local);
        continue;
      }
      // Innermost the dim that is contiguous in memory.
      Exprs vars = merge_vars(stage.inner, body, offset);
      for (std::size_t k = 0; k + 1 < vars.size(); ++k) {
        const std::string i = emit_.fresh("i"), extent = emit_.value(vars[k]->args[0]);
        emit_.open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, extent));
        emit_.bind(vars[k], i);
      }
      const std::string extent = emit_.value(vars.back()->args[0]);
      innermost(stage, vars.back(), body, offset, "0", extent);
      for (std::size_t k = 0; k + 1 < vars.size(); ++k) emit_.close();
    }
    emit_.close();
  }

  const LoopKernel& kernel_;
  std::string text_;
  Emitter emit_;
  Expr points_, work_;
};

}  // namespace

LoopSource generate_host_loop(const LoopKernel& kernel) { return Generator(kernel).run(); }

}  // namespace sardonyx::codegen
