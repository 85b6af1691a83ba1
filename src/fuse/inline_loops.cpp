// Inlining: a load of a value that a loop computes becomes that loop's body at the loaded indices, if recomputing it
// costs no more than storing and loading it.
#include "fuse/inline_loops.h"

#include <algorithm>
#include <set>

#include "fuse/body_facts.h"
#include "fuse/byte_stores.h"
#include "fuse/compute_views.h"
#include "fuse/epilogues.h"
#include "fuse/narrow_stores.h"
#include "fuse/reduction_digits.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxNodes = 600;                    // of one body: larger ones compile slowly and spill registers
constexpr int kCheap = 4;                                 // operations that may be repeated
constexpr int kLoad = 4;                                  // operations in the time of a load from a cache
constexpr std::size_t kFewLoads = 6;                      // of what is repeated where arithmetic is cheap
constexpr std::size_t kMaxConsumerNodes = 2 * kMaxNodes;  // of the consumer, with what is inlined into it
constexpr std::int64_t kOftenGathered = 4;                // times that even a cheap value is not computed again
constexpr std::int64_t kFewerElements = 32;               // times that the consumer's are more
constexpr std::int64_t kMostTerms = 8;                    // of a reduction that is written out
constexpr std::int64_t kFewTerms = 64;                    // of sums that a loop computes in another order
constexpr std::size_t kMaxReads =
    32;  // tensors that one body reads: the runtime passes 64 pointers to a kernel at most

class Inliner {
 public:
  /// `keep`: values that are not inlined. `in_place_only`: only loads at the position that the consumer writes.
  /// `report`: where remarks go; may be null.
  Inliner(Graph& g, const std::unordered_set<const Value*>& keep, bool in_place_only, const FuseOptions& options,
          const FuseOptions* report)
      : g_(g),
        keep_(keep),
        bytes_(g),
        report_(report && report->remarks ? report : nullptr),
        in_place_only_(in_place_only),
        lazy_selections_(options.lazy_selections),
        operations_per_byte_(options.operations_per_byte),
        transposed_constants_(options.transposed_constants) {
    required_ = required_values(g);
    constants_ = constant_nodes(g);
    for (const auto& n : g.nodes) count_uses(*n);
    for (const auto& n : g.nodes)
      if (n->as<ConvOp>() || n->as<AttentionOp>())
        for (const Value* v : n->inputs) required_.insert(storage_of(v));
  }

  void run() {
    for (const auto& n : g_.nodes) {
      if (auto* l = n->as<LoopOp>()) {
        consumer_ = n.get();
        consumer_constant_ = constants_.count(n.get()) > 0;
        vars_ = l->vars;
        start_consumer(l->body);
        l->body = resolve(l->body, false);
        refresh_inputs(*n);
      } else if (auto* m = n->as<MatMulOp>(); m && !in_place_only_) {
        consumer_ = n.get();
        m->a = operand(m->a, false);
        if (m->end) {
          const Expr stand_in = loop_var(m->group->args[0]);
          m->b = operand(of_group(*m, stand_in), transposed_constants_);
          m->owner = operand(m->owner, false);
          m->end = operand(m->end, false);
          m->b = substitute(m->b, {{stand_in, m->owner}});
        } else {
          m->b = operand(m->b, transposed_constants_);
        }
        refresh_inputs(*n);
      }
    }
  }

 private:
  void count_uses(const Node& n) {
    auto count = [&](const Expr& e) {
      if (!e) return;
      std::unordered_map<const ExprNode*, Loads> known;
      for (const auto& [v, uses] : loads_in(e, known)) uses_[v] += uses;
    };
    if (const auto* l = n.as<LoopOp>())
      count(l->body);
    else if (const auto* m = n.as<MatMulOp>()) {
      count(m->a);
      count(m->b);
      count(m->end);
    } else if (!n.as<ViewOp>())
      for (const Value* v : n.inputs) ++uses_[storage_of(v)];
    for (const Value* v : n.inputs) consumers_[storage_of(v)].insert(&n);
  }

  using Loads = std::unordered_map<const Value*, int>;

  // How often each value is loaded; with lazy selections, by the side that loads it more often. `known`: results of
  // selections.
  Loads loads_in(const Expr& e, std::unordered_map<const ExprNode*, Loads>& known) const {
    Loads uses;
    if (lazy_selections_ && e->op != Op::kLoad && e->op != Op::kReduce && e->args.size() == 1)
      return loads_in(e->args[0], known);
    if (!lazy_selections_ || e->op != Op::kSelect) {
      std::unordered_set<Expr, ExprHash, ExprSame> loads;  // equal ones are evaluated once
      visit(e, [&](const Expr& x) {
        if (x->op == Op::kLoad && loads.insert(x).second) ++uses[storage_of(x->value)];
      });
      return uses;
    }
    const auto it = known.find(e.get());
    if (it != known.end()) return it->second;
    uses = loads_in(e->args[1], known);
    for (const auto& [v, n] : loads_in(e->args[2], known)) uses[v] = std::max(uses[v], n);
    for (const auto& [v, n] : loads_in(e->args[0], known)) uses[v] += n;
    return known[e.get()] = uses;
  }

  bool reads_tile_output(const LoopOp& l) const {
    for (const Value* v : loads_of(l.body)) {
      const Value* s = storage_of(v);
      if (s->producer && (s->producer->as<MatMulOp>() || s->producer->as<ConvOp>() || s->producer->as<AttentionOp>()))
        return true;
    }
    return false;
  }

  void start_consumer(const Expr& body) {
    reads_.clear();
    nodes_ = 0;
    note_body(body);
  }

  void note_body(const Expr& body) {
    visit(body, [&](const Expr& x) {
      ++nodes_;
      if (x->op == Op::kLoad) reads_.insert(storage_of(x->value));
    });
  }

  // Whether the consumer with this body inlined is still small enough for one kernel.
  bool fits_consumer(const LoopOp& l, const BodyFacts& f) const {
    if (f.loads <= 1) return true;
    if (nodes_ + f.nodes > kMaxConsumerNodes) return false;
    std::size_t reads = reads_.size() - 1;  // v itself is no longer read
    for (const Value* v : loads_of(l.body)) reads += !reads_.count(storage_of(v));
    return reads <= kMaxReads;
  }

  // Why the loop that computes v is not recomputed where `at` loads it; null if it is.
  const char* obstacle(const Value* v, const Exprs& at, bool in_reduce) {
    const Node* p = v->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || v->graph != &g_) return "";  // nothing to inline
    if (l->body->has_reduce)
      return moves_short_sums(v, *l, at, in_reduce) ? nullptr : "it is a reduction, which would be repeated";
    if (keep_.count(v)) return "it is the epilogue of a convolution";
    if (in_place_only_ && (in_reduce || !in_place(v, at))) return "";  // maybe in a later round
    const BodyFacts f = facts_of(l->body);
    if (constants_.count(p) && !consumer_constant_ && !expands_constant(*l, f, *v))
      return "it is constant and computed once, when the program is loaded";
    const bool required = required_.count(v) > 0;
    if (f.nodes > kMaxNodes) return "its expression is too large";
    if (!fits_consumer(*l, f)) return "the kernel would become too large, or read too many tensors";
    const bool repeated = in_reduce || repeats(at) || gathers_more(v, at);
    const int uses = uses_[v];
    if (f.loads == 0 && f.cost <= kCheap) return nullptr;
    if (f.movement && f.loads <= 1 && masks_for_a_tile(v, *l))
      return "it is better the epilogue of the tile kernel before it";
    if (f.movement && f.loads <= 1) return !required || uses > 1 ? nullptr : "it must be in memory and has one user";
    if (required) return "it must be in memory: an output, a routine or a convolution reads it";
    if (bytes_.stores(v)) return "its 8 bits are better stored by the tile kernel before it";
    const bool multiple = consumers_[v].size() > 1;
    if (multiple && reads_tile_output(*l)) return "it is better the epilogue of the tile kernel before it";
    if (multiple && finishes_sums(v, *l)) return "it is better computed with the sums that it reads";
    if (f.movement && f.loads > 1 && reads_one_part(*l, at)) return nullptr;
    if (f.movement && f.loads > 1)  // concat, pad of several
      return uses == 1 && !repeated && f.loads <= 4 ? nullptr
                                                    : "it selects from several tensors, and is used repeatedly";
    if (!f.movement && gathers_more(v, at, kOftenGathered)) return "it is gathered many times";
    if (is_cheap_to_repeat(v, *l, at)) return nullptr;
    if (!in_reduce && hides_behind_memory(v, *l, f, at)) return nullptr;
    // Overlapping windows would load both operands of a sum again for each tap.
    if (in_reduce && f.loads > 1 && repeated_beyond_reduce(at)) return "overlapping windows would load it repeatedly";
    if (f.cost <= kCheap && f.loads <= 2)
      return uses <= 4 && (!in_reduce || f.cost <= 2 || uses == 1) ? nullptr : "it has many uses";
    if (in_reduce && uses == 1) return repeated_beyond_reduce(at) ? "a reduction would compute it repeatedly" : nullptr;
    const bool once = !repeated && (uses == 1 || (consumers_[v].size() == 1 && uses <= 2 && f.cost < 10));
    return once ? nullptr : "recomputing it costs more than storing it";
  }

  // Whether the loop adds another tensor to sums (a depthwise convolution and its residual) that it alone reads, each
  // once: their kernel stores its result instead of theirs, and each of its consumers reads one tensor instead of two.
  bool finishes_sums(const Value* v, const LoopOp& l) const {
    int sums = 0, others = 0;
    for (const Value* x : loads_of(l.body)) {
      const Node* p = x->producer;
      if ((p && constants_.count(p) > 0) || !idx::provably_nonnegative(x->elements() - v->elements())) continue;
      const auto* from = p ? p->as<LoopOp>() : nullptr;
      const bool own = from && from->body->has_reduce && x->graph == &g_ && !required_.count(x) &&
                       consumers_.at(storage_of(x)).size() == 1 && idx::provably_equal(x->elements(), v->elements());
      ++(own ? sums : others);
    }
    return sums > 0 && others > 0;
  }

  // Whether the loop replaces some elements of a tile kernel's result (those above the diagonal), and a GEMM reads that
  // from memory: then it may be the kernel's epilogue, and other consumers need not repeat it.
  bool masks_for_a_tile(const Value* v, const LoopOp& l) {
    if (l.body->op != Op::kSelect || !reads_tile_output(l)) return false;
    bool in_place = true;
    visit(l.body, [&](const Expr& x) {
      in_place = in_place && (x->op != Op::kLoad || idx::provably_equal(idx::linearize(x->args, x->value->shape),
                                                                        idx::linearize(l.vars, v->shape)));
    });
    return in_place && std::ranges::any_of(consumers_[v], [](const Node* n) { return n->as<MatMulOp>() != nullptr; });
  }

  // Whether the consumer only moves what the loop computes, sums of few terms (samples of an image, for each channel of
  // a head), and would read along memory where the loop does not. Then the sums are computed in the consumer's order.
  bool moves_short_sums(const Value* v, const LoopOp& l, const Exprs& at, bool in_reduce) {
    const auto* c = consumer_->as<LoopOp>();
    if (!c || in_reduce || in_place_only_ || consumers_[v].size() != 1 || uses_[v] != 1 || required_.count(v) > 0)
      return false;
    Expr moved = c->body;
    while (moved->op == Op::kCast) moved = moved->args[0];
    if (moved->op != Op::kLoad || storage_of(moved->value) != v || vars_.empty() || l.vars.empty() || repeats(at) ||
        !idx::provably_equal(v->elements(), consumer_->outputs[0]->elements()))
      return false;
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t k = 0; k < at.size(); ++k) to.emplace_back(l.vars[k], at[k]);
    bool few = true;
    visit(l.body, [&](const Expr& x) {
      std::int64_t terms = 0;
      if (x->op != Op::kReduce) return;
      few = few && x->vars.size() == 1 && is_const_int(x->vars[0]->args[0], terms) && terms <= kFewTerms;
    });
    return few && loads_along(substitute(l.body, to), vars_.back()) > loads_along(l.body, l.vars.back());
  }

  // Whether the consumer, the only one, takes less time to compute an element wherever it reads it than to load it from
  // memory, where another kernel stored it.
  bool is_cheap_to_repeat(const Value* v, const LoopOp& l, const Exprs& at) {
    if (operations_per_byte_ == 0 || consumers_[v].size() != 1 || !consumer_->as<LoopOp>()) return false;
    std::unordered_set<Expr, ExprHash, ExprSame> loads, own;  // own: with other elements for each term of a reduction
    bool gathers = false;
    double cost = 0, terms = 1;
    for (const Expr& r : reduced_)
      if (std::int64_t n = 0; is_const_int(r->args[0], n)) terms *= static_cast<double>(n);
    const auto varies = [&](const Expr& x) {  // what does not is computed once for all terms
      for (std::size_t d = 0; d < at.size(); ++d)
        if (mentions(x, l.vars[d]) && std::ranges::any_of(reduced_, [&](const Expr& r) { return same(r, at[d]); }))
          return true;
      return false;
    };
    visit(l.body, [&](const Expr& x) {
      cost += cost_of(x) / (varies(x) ? 1 : terms);
      if (x->op != Op::kLoad) return;
      gathers |= gathered(x->args);
      if (loads.insert(x).second && varies(x)) own.insert(x);
    });
    const double loaded = static_cast<double>(own.size()) + static_cast<double>(loads.size() - own.size()) / terms;
    if (gathers || loads.size() > kFewLoads) return false;
    double times = uses_[v];  // that each element is computed
    for (const Exprs* scope : {&vars_, &reduced_})
      for (const Expr& var : *scope) {
        std::int64_t n = 0;
        if (std::any_of(at.begin(), at.end(), [&](const Expr& i) { return same(i, var); })) continue;
        if (!is_const_int(var->args[0], n)) return false;
        times *= static_cast<double>(n);
      }
    for (std::size_t d = 0; d < at.size(); ++d) {
      std::int64_t n = 0;
      if (is_const(at[d]) && is_const_int(l.vars[d]->args[0], n))
        times /= static_cast<double>(n);
      else if (at[d]->op != Op::kVar)
        return false;  // windows, and gathers
    }
    times = std::max(times, 1.0);
    const double stored = 2.0 * static_cast<double>(size_of(v->dtype)) * static_cast<double>(operations_per_byte_);
    return times * (cost + kLoad * loaded) <= stored + times * kLoad;
  }

  // Whether a few elements (decays of each channel), which would need a launch of their own, are computed while the
  // consumer, the only one, waits for memory.
  bool hides_behind_memory(const Value* v, const LoopOp& l, const BodyFacts& f, const Exprs& at) {
    const auto* c = consumer_->as<LoopOp>();
    if (operations_per_byte_ == 0 || !c || consumers_[v].size() != 1 || uses_[v] != 1 || f.loads != 1 || gathered(at))
      return false;
    const Value* out = consumer_->outputs[0];
    if (!idx::provably_nonnegative(out->elements() - Expr(kFewerElements) * v->elements(), true)) return false;
    bool own_launch = true;  // a loop, a reduction or a tile kernel before it might compute it too
    visit(l.body, [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      const Node* p = storage_of(x->value)->producer;
      own_launch = own_launch && !gathered(x->args) && (!p || p->as<RoutineOp>());
    });
    if (!own_launch) return false;
    std::int64_t bytes = 0;
    for (const Value* x : loads_of(c->body))
      if (idx::provably_nonnegative(x->elements() - out->elements()))
        bytes += static_cast<std::int64_t>(size_of(x->dtype));
    return facts_of(c->body).cost + f.cost + kLoad <= operations_per_byte_ * bytes;  // that it reads, anyway
  }

  bool should_inline(const Value* v, const Exprs& at, bool in_reduce) {
    const char* why = obstacle(v, at, in_reduce);
    if (why && *why && report_) {
      const Node& p = *v->producer;
      if (reported_.insert({&p, consumer_}).second)
        report_->remarks({"inline_loops",
                          p.origin,
                          why,
                          {{"into", consumer_->origin},
                           {"uses", std::to_string(uses_[v])},
                           {"cost", std::to_string(facts_of(p.as<LoopOp>()->body).cost)}}});
    }
    return !why;
  }

  // An element is needed more than once if a variable of the consumer is missing in the index.
  bool repeats(const Exprs& at) const {
    return std::any_of(vars_.begin(), vars_.end(), [&](const Expr& var) {
      return !is_const(var->args[0], 1) &&
             std::none_of(at.begin(), at.end(), [&](const Expr& i) { return mentions(i, var); });
    });
  }

  static bool gathered(const Exprs& at) {
    return std::ranges::any_of(at, [](const Expr& i) { return i->has_load; });
  }

  // Or if the consumer gathers more elements than v has `times`: the features of points for each of their neighbours.
  bool gathers_more(const Value* v, const Exprs& at, std::int64_t times = 1) const {
    return gathered(at) &&
           idx::provably_nonnegative(consumer_->outputs[0]->elements() - Expr(times) * v->elements() - 1, true);
  }

  // The consumer reads v at the very position it writes.
  bool in_place(const Value* v, const Exprs& at) const {
    return idx::provably_equal(idx::linearize(at, v->shape), idx::linearize(vars_, consumer_->outputs[0]->shape));
  }

  // Within a reduction, an element is computed once if all variables of the consumer and the reduction occur in the
  // index.
  bool repeated_beyond_reduce(const Exprs& at) const {
    if (repeats(at)) return true;
    for (const Expr& i : at)
      if (i->op != Op::kVar && !is_const(i)) return true;  // windows overlap
    return false;
  }

  Expr resolve(const Expr& e, bool in_reduce) {
    return rewrite(e, [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op == Op::kReduce && !in_reduce) {
        if (const Expr terms = terms_of_selection(x)) return resolve(terms, false);
        reduced_ = x->vars;
        const Expr body = resolve(x->args[0], true);
        reduced_.clear();
        return body.get() == x->args[0].get() ? x : reduce(static_cast<ReduceKind>(x->i), x->vars, body);
      }
      if (x->op != Op::kLoad) return Expr();
      Expr y = through_views(x);
      Exprs i;
      bool changed = y.get() != x.get();
      for (const Expr& a : y->args) {
        i.push_back(resolve(a, in_reduce));
        changed |= i.back().get() != a.get();
      }
      if (changed) y = load(y->value, y->dtype, i);
      const Value* v = y->value;
      if (Expr s = splat_of(v)) return s;
      if (Expr known = known_element(*v, i)) return known;
      if (!should_inline(v, i, in_reduce)) return y;
      const auto* l = v->producer->as<LoopOp>();
      reads_.erase(storage_of(v));
      note_body(l->body);
      consumer_->origin = join_origins(v->producer->origin, consumer_->origin);
      std::vector<std::pair<Expr, Expr>> r;
      for (std::size_t k = 0; k < i.size(); ++k) r.emplace_back(l->vars[k], i[k]);
      // The producer's body is already resolved (nodes are in order), but its loads may now be cheap at these indices.
      return substitute(freshen_reduce_vars(l->body), r);
    });
  }

  // A reduction of few terms over the dim along which a tensor is concatenated (or stacked), as its terms: each of them
  // reads one of the parts, so that the tensor need not be stored. Empty for other reductions.
  Expr terms_of_selection(const Expr& r) const {
    std::int64_t n = 0;
    Op op = Op::kAdd;
    switch (static_cast<ReduceKind>(r->i)) {
      case ReduceKind::kSum:
        break;
      case ReduceKind::kProd:
        op = Op::kMul;
        break;
      case ReduceKind::kMin:
        op = Op::kMin;
        break;
      case ReduceKind::kMax:
        op = Op::kMax;
        break;
      default:
        return {};
    }
    if (r->vars.size() != 1 || !is_const_int(r->vars[0]->args[0], n) || n < 2 || n > kMostTerms ||
        r->args[0]->has_reduce)
      return {};
    bool selects = false;
    visit(r->args[0], [&](const Expr& x) {
      const Node* p = x->op == Op::kLoad && x->value->graph == &g_ ? x->value->producer : nullptr;
      const auto* l = p ? p->as<LoopOp>() : nullptr;
      if (!l || l->body->op != Op::kSelect || !is_movement(l->body)) return;
      for (std::size_t d = 0; d < x->args.size(); ++d)
        selects |= same(x->args[d], r->vars[0]) && mentions(l->body->args[0], l->vars[d]);
    });
    if (!selects) return {};
    Expr all;
    for (std::int64_t k = 0; k < n; ++k) {
      const Expr term = substitute(r->args[0], {{r->vars[0], Expr(k)}});
      all = all ? binary(op, all, term) : term;
    }
    return all;
  }

  static bool is_movement(const Expr& body) { return facts_of(body).movement; }

  // Operands of tile kernels: only views and data movement with affine indices are inlined, and of what is constant
  // only transposes of matrices of floats, if `transposes`.
  Expr operand(const Expr& e, bool transposes) {
    if (e->op != Op::kLoad) return e;
    Expr y = through_views(e);
    for (int depth = 0; depth < 8; ++depth) {
      const Node* p = y->value->producer;
      const auto* l = p ? p->as<LoopOp>() : nullptr;
      if (!l || l->body->op != Op::kLoad || y->value->graph != &g_) break;
      if (constants_.count(p) && !(transposes && is_float(y->dtype) && transposed_matrix(y->value))) break;
      std::vector<std::pair<Expr, Expr>> r;
      for (std::size_t k = 0; k < y->args.size(); ++k) r.emplace_back(l->vars[k], y->args[k]);
      const Expr z = through_views(substitute(l->body, r));
      if (!affine(z)) break;
      consumer_->origin = join_origins(p->origin, consumer_->origin);
      y = z;
    }
    return affine(y) ? y : e;
  }

  static bool affine(const Expr& x) {
    bool ok = true;
    for (const Expr& i : x->args)
      visit(i, [&](const Expr& e) {
        ok &= e->op != Op::kFloorDiv && e->op != Op::kMod && e->op != Op::kLoad && e->op != Op::kMin &&
              e->op != Op::kMax && e->op != Op::kSelect;
      });
    return ok;
  }

  Graph& g_;
  const std::unordered_set<const Value*>& keep_;
  const ByteStores bytes_;
  const FuseOptions* report_;
  std::set<std::pair<const Node*, const Node*>> reported_;  // producer and consumer
  bool in_place_only_, lazy_selections_;
  std::int64_t operations_per_byte_;
  bool transposed_constants_;
  std::unordered_set<const Value*> required_;
  std::unordered_set<const Node*> constants_;
  std::unordered_map<const Value*, int> uses_;
  std::unordered_map<const Value*, std::unordered_set<const Node*>> consumers_;
  Node* consumer_ = nullptr;
  bool consumer_constant_ = false;
  Exprs vars_, reduced_;                    // of the consumer, and of the reductions around what is being resolved
  std::unordered_set<const Value*> reads_;  // tensors that the consumer has read so far, and its nodes
  std::size_t nodes_ = 0;
};

}  // namespace

void inline_loops(Graph& g, const FuseOptions& options) {
  // First round: only what is read in place. It shows which element-wise loops become epilogues of convolutions; those
  // must not be inlined into a pooling or concatenation that follows.
  std::unordered_set<const Value*> keep;
  Inliner(g, keep, true, options, nullptr).run();
  remove_dead_nodes(g);
  FuseOptions quiet = options;
  quiet.remarks = nullptr;  // the pass "epilogues" makes them
  for (const Epilogue& e : find_epilogues(g, quiet))
    if (e.kernel.node->as<ConvOp>()) keep.insert(e.kernel.out);
  // Twice: the first round leaves loops with fewer uses, which the second may inline.
  Inliner(g, keep, false, options, nullptr).run();
  remove_dead_nodes(g);
  narrow_stores(g);
  Inliner(g, keep, false, options, &options).run();
  remove_dead_nodes(g);
}

}  // namespace sardonyx
