// See layout_queries.h.
#include "fuse/layout_queries.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "graph/analysis.h"

namespace sardonyx {

std::vector<int> channels_last(int rank) {
  std::vector<int> order = {0};
  for (int k = 2; k < rank; ++k) order.push_back(k);
  order.push_back(1);
  return order;
}

std::vector<int> same_order(const Value* image, const Value* v) {
  std::vector<int> at(static_cast<std::size_t>(image->rank()), -1);  // dim of v
  int next = 0;
  for (int k = 0; k < image->rank(); ++k) {
    const Expr& d = image->shape[static_cast<std::size_t>(k)];
    if (next < v->rank() && idx::provably_equal(v->shape[static_cast<std::size_t>(next)], d))
      at[static_cast<std::size_t>(k)] = next++;
    else if (k < 2 || !is_const(d, 1))
      return {};
  }
  if (next != v->rank()) return {};
  std::vector<int> order;
  for (int k : channels_last(image->rank()))
    if (at[static_cast<std::size_t>(k)] >= 0) order.push_back(at[static_cast<std::size_t>(k)]);
  return order;
}

namespace {

// Whether `index` depends on the loop's variable `k` and on none of the others (a resized image reads at floor(y / 2)).
bool follows(const Expr& index, const Exprs& vars, std::size_t k) {
  for (std::size_t j = 0; j < vars.size(); ++j)
    if (mentions(index, vars[j]) != (j == k)) return false;
  return true;
}

// Whether `index` is of a dim that the loop reduces to 1: it depends on none of the loop's variables.
bool reduced(const Expr& index, const Exprs& vars, std::size_t k) {
  return is_const(vars[k]->args[0], 1) &&
         std::none_of(vars.begin(), vars.end(), [&](const Expr& v) { return mentions(index, v); });
}

}  // namespace

bool in_place_order(const LoopOp& l, const Value* v) {
  bool found = false;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value != v || x->args.size() != l.vars.size()) return;
    bool same_order = true;
    for (std::size_t k = 0; k < l.vars.size(); ++k) {
      Expr c, rest;
      same_order &= is_const(x->args[k], 0) || follows(x->args[k], l.vars, k) || reduced(x->args[k], l.vars, k) ||
                    (idx::split_affine(x->args[k], l.vars[k], c, rest) && !is_const(c, 0));
    }
    found |= same_order;
  });
  return found;
}

bool is_permuted(const Expr& load, const Exprs& vars) {
  if (load->args.size() != vars.size()) return false;
  const auto single = [](const Expr& v) { return is_const(v) || is_const(v->args[0], 1); };
  auto wanted = std::count_if(vars.begin(), vars.end(), [&](const Expr& v) { return !single(v); });
  bool moved = false;
  for (std::size_t k = 0; k < vars.size(); ++k) {
    if (is_const(load->args[k], 0)) continue;
    const auto at = std::find_if(vars.begin(), vars.end(), [&](const Expr& v) { return same(load->args[k], v); });
    if (at == vars.end()) return false;
    if (single(*at)) continue;
    --wanted;
    moved |= at - vars.begin() != static_cast<std::ptrdiff_t>(k);
  }
  return moved && wanted == 0;
}

Expr memory_offset(const Value& v, const Exprs& indices) {
  if (v.storage_order.empty()) return idx::linearize(indices, v.shape);
  Exprs i, d;
  for (int k : v.storage_order) {
    i.push_back(indices[static_cast<std::size_t>(k)]);
    d.push_back(v.shape[static_cast<std::size_t>(k)]);
  }
  return idx::linearize(i, d);
}

bool along_channels(const TileKernel& k, const Value* v) {
  bool all = v->rank() >= 3;
  visit(k.epilogue, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value != v) return;
    for (std::size_t d = 0; all && d < x->args.size(); ++d) {
      Expr c, rest;
      all = idx::split_affine(x->args[d], k.vars.back(), c, rest) && is_const(c, d == 1 ? 1 : 0);
    }
  });
  return all;
}

bool only_channels(const Value* v) {
  for (int k = 2; k < v->rank(); ++k)
    if (!is_const(v->shape[static_cast<std::size_t>(k)], 1)) return false;
  return true;
}

bool sums_channels(const MatMulOp& m, const Value* v) {
  bool all = v->rank() >= 3, any = false;
  for (const Expr& e : {m.a, m.b})
    visit(e, [&](const Expr& x) {
      if (x->op != Op::kLoad || x->value != v) return;
      any = true;
      for (std::size_t d = 0; all && d < x->args.size(); ++d) {
        Expr c, rest;
        all = idx::split_affine(x->args[d], m.k, c, rest) && is_const(c, d == 1 ? 1 : 0);
      }
    });
  return all && any;
}

bool vectors_of_channels(const Expr& x, const Exprs& vars) {
  if (!x->value->storage_order.empty() || x->args.empty()) return false;
  Expr c, rest;
  if (!idx::split_affine(x->args.back(), vars[1], c, rest) || !is_const(c, 1)) return false;
  return std::none_of(x->args.begin(), x->args.end() - 1, [&](const Expr& a) { return mentions(a, vars[1]); });
}

namespace {

// Whether `index`, which is not affine in the reduced variable r, moves with another variable by less than a window on
// average: an image is resized with several taps for each result, which are held inside of it.
bool overlaps_on_average(const Expr& index, const Expr& r) {
  Exprs others;
  visit(index, [&](const Expr& x) {
    if (x->op == Op::kVar && !same(x, r)) others.push_back(x);
  });
  std::int64_t taps = 0, results = 0, first = 0, last = 0, begin = 0, end = 0;
  if (index->has_load || others.size() != 1 || !mentions(index, r) || !is_const_int(r->args[0], taps) ||
      !is_const_int(others[0]->args[0], results) || results < 4)
    return false;
  const auto at = [&](std::int64_t result, std::int64_t tap, std::int64_t& to) {
    return is_const_int(substitute(index, {{others[0], Expr(result)}, {r, Expr(tap)}}), to);
  };
  // In the middle of the results, where few taps are held.
  const std::int64_t quarter = results / 4;
  if (!at(quarter, taps / 2, first) || !at(3 * quarter, taps / 2, last) || !at(2 * quarter, 0, begin) ||
      !at(2 * quarter, taps - 1, end))
    return false;
  const double step = std::abs(static_cast<double>(last - first)) / static_cast<double>(2 * quarter);
  return step < std::abs(static_cast<double>(end - begin)) + 1 && end != begin;
}

// Whether windows of a reduction overlap along its variable r: it loads v[... i + r ...], as a convolution along time
// does.
bool overlaps_along(const ExprNode& reduce, const Expr& r) {
  std::int64_t taps = 0;
  bool found = false;
  if (!is_const_int(r->args[0], taps)) return false;
  // In floating point: a model may give any step and dilation, whose product is no int64.
  const auto slides = [&](const Expr& index) {
    Expr dilation, rest, step, left;
    if (!idx::split_affine(index, r, dilation, rest)) {
      found = found || overlaps_on_average(index, r);
      return;
    }
    if (!is_const(dilation) || dilation->i == 0) return;
    visit(rest, [&](const Expr& i) {
      found = found || (i->op == Op::kVar && idx::split_affine(rest, i, step, left) && is_const(step) &&
                        std::abs(static_cast<double>(step->i)) <
                            static_cast<double>(taps) * std::abs(static_cast<double>(dilation->i)));
    });
  };
  visit(reduce.args[0], [&](const Expr& x) {
    if (x->op == Op::kLoad) std::for_each(x->args.begin(), x->args.end(), slides);
  });
  return found;
}

}  // namespace

bool reduces_windows(const Expr& body) {
  bool found = false;
  if (body->has_reduce)
    visit(body, [&](const Expr& x) {
      found |= x->op == Op::kReduce && (x->vars.size() > 1 || overlaps_along(*x, x->vars[0]));
    });
  return found;
}

bool has_overlapping_windows(const Expr& body) {
  bool found = false;
  if (body->has_reduce)
    visit(body, [&](const Expr& x) {
      if (x->op != Op::kReduce) return;
      for (const Expr& r : x->vars) found = found || overlaps_along(*x, r);
    });
  return found;
}

namespace {

// Whether a loop whose order of dims differs from v's reads v along its channels: +1, along its last dim: -1, otherwise
// 0.
int reads_along_channels(const LoopOp& l, const Value* v) {
  std::size_t last = l.vars.size();
  while (last > 0 && is_const(l.vars[last - 1]->args[0], 1)) --last;
  Exprs along;  // terms of one sum, or else neighbours in memory
  visit(l.body, [&](const Expr& x) {
    if (x->op == Op::kReduce && x->vars.size() == 1) along.push_back(x->vars[0]);
  });
  if (along.empty() && last > 0) along.push_back(l.vars[last - 1]);
  int vote = 0;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value != v || x->args.size() < 3) return;
    for (const Expr& a : along) {
      if (same(x->args[1], a)) vote = vote < 0 ? vote : 1;
      if (same(x->args.back(), a)) vote = -1;
    }
  });
  return vote;
}

// Whether neighbouring channels are contiguous in groups of whole vectors (the heads of tokens): the last index is
// channel % n, and the others take channel / n.
bool vectors_of_groups(const Expr& x, const Exprs& vars) {
  constexpr std::int64_t kVector = 8;  // elements of 16 bits in 16 bytes
  const Expr& last = x->args.back();
  Expr c, rest;
  if (!x->value->storage_order.empty() || last->op != Op::kMod || !is_const(last->args[1]) ||
      last->args[1]->i % kVector != 0 || !idx::split_affine(last->args[0], vars[1], c, rest) || !is_const(c, 1))
    return false;
  const Expr within = loop_var(last->args[1]), group = loop_var(idx::ceildiv(vars[1]->args[0], last->args[1]));
  return std::none_of(x->args.begin(), x->args.end() - 1, [&](const Expr& a) {
    return mentions(substitute(a, {{vars[1], group * last->args[1] + within}}), within);
  });
}

// Whether a loop over windows of an image reads an image that has its channels last as a shape, [n, y, x, c]: then it
// reads vectors of channels.
bool slides_over_vectors(const LoopOp& l) {
  bool any = false, all = l.vars.size() >= 3;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->args.size() < 3 || !mentions(x->args.back(), l.vars[1])) return;
    any = true;
    all = all && (vectors_of_channels(x, l.vars) || vectors_of_groups(x, l.vars));
  });
  return any && all;
}

// Whether a loop only copies an image that has its channels last as a shape: in that order, the copy is the image.
bool copies_vectors(const LoopOp& l) {
  return l.vars.size() >= 3 && l.body->op == Op::kLoad && l.body->args.size() == l.vars.size() &&
         vectors_of_channels(l.body, l.vars);
}

// Who reads each value.
using Users = std::unordered_map<const Value*, std::vector<const Node*>>;

constexpr int kLongestChain = 4;  // of element-wise loops between a window and what reads along its channels

struct Votes {
  int wanted = 0;        // users that read along the channels
  bool against = false;  // one that does not, or that is no loop
};

// How the users of v read it. Element-wise loops take over the order, so theirs are asked.
Votes votes_on(const Value* v, const Users& users, int depth = 0) {
  Votes all;
  const auto found = users.find(v);
  if (found == users.end()) return all;
  for (const Node* u : found->second) {
    const auto* loop = u->as<LoopOp>();
    const auto* m = u->as<MatMulOp>();
    const bool in_place = loop && in_place_order(*loop, v);
    const int vote = m ? (sums_channels(*m, v) ? 1 : -1) : !loop ? -1 : in_place ? 0 : reads_along_channels(*loop, v);
    all.wanted += vote > 0;
    all.against |= vote < 0;
    if (!in_place || loop->body->has_reduce || depth == kLongestChain) continue;
    const Votes next = votes_on(u->outputs[0], users, depth + 1);
    if (!next.against) all.wanted += next.wanted;
  }
  return all;
}

}  // namespace

std::unordered_set<const Value*> windows_read_along_channels(const Graph& g) {
  Users users;
  for (const auto& n : g.nodes)
    for (const Value* v : n->inputs) users[v].push_back(n.get());
  std::unordered_set<const Value*> found;
  for (auto it = g.nodes.rbegin(); it != g.nodes.rend(); ++it) {
    const auto* l = (*it)->as<LoopOp>();
    if (!l) continue;
    const Value* out = (*it)->outputs[0];
    if (out->rank() < 3) continue;
    if (!found.count(out)) {
      const bool windows = reduces_windows(l->body);
      if (!windows && !copies_vectors(*l)) continue;
      const Votes votes = votes_on(out, users);
      if (votes.against || (votes.wanted == 0 && !(windows && slides_over_vectors(*l)))) continue;
      found.insert(out);
    }
    for (const Value* v : (*it)->inputs)
      if (v->rank() == out->rank() && in_place_order(*l, v)) found.insert(v);
  }
  return found;
}

std::vector<int> order_of_remaining(const LoopOp& l) {
  std::vector<int> order;
  bool ok = true;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value->storage_order.empty() || x->args.size() <= l.vars.size()) return;
    std::vector<int> here;
    for (const int d : x->value->storage_order) {
      const Expr& index = x->args[static_cast<std::size_t>(d)];
      const auto at = std::ranges::find_if(l.vars, [&](const Expr& v) { return same(v, index); });
      if (at != l.vars.end())
        here.push_back(static_cast<int>(at - l.vars.begin()));
      else
        ok = ok && std::ranges::none_of(l.vars, [&](const Expr& v) { return mentions(index, v); });
    }
    ok = ok && (order.empty() || order == here);
    order = here;
  });
  return ok && order.size() == l.vars.size() && !std::ranges::is_sorted(order) ? order : std::vector<int>();
}

std::vector<int> order_of_transposes(const std::vector<Node*>& users, const Value* v) {
  std::vector<int> order;
  std::vector<const Expr*> reads;  // of reductions
  for (const Node* u : users) {
    const auto* l = u->as<LoopOp>();
    bool ok = l != nullptr;
    if (ok)
      visit(l->body, [&](const Expr& x) {
        if (x->op != Op::kLoad || x->value != v) return;
        if (l->body->has_reduce) return reads.push_back(&x);
        std::vector<int> here;
        for (const Expr& var : l->vars)
          for (std::size_t k = 0; k < x->args.size(); ++k)
            if (same(var, x->args[k])) here.push_back(static_cast<int>(k));
        ok = ok && here.size() == x->args.size() && here.size() == l->vars.size() && (order.empty() || order == here);
        order = here;
      });
    if (!ok) return {};
  }
  if (order.empty() || reads.empty() || std::ranges::is_sorted(order)) return {};
  for (const Node* u : users) {
    const auto& l = *u->as<LoopOp>();
    if (!l.body->has_reduce) continue;
    for (const Expr* x : reads)
      if (std::ranges::any_of(l.vars, [&](const Expr& var) {
            return mentions((*x)->args[static_cast<std::size_t>(order.back())], var);
          }))
        return {};
  }
  return order;
}

bool most_along(const LoopOp& l, int d) {
  double along = 0, against = 0;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    const Expr at = memory_offset(*x->value, x->args);
    double count = 1;  // of elements, as far as sizes are known
    for (const Expr& v : l.vars)
      count *= mentions(at, v) && is_const(v->args[0]) ? static_cast<double>(v->args[0]->i) : 1;
    const auto contiguous = [&](const Expr& var) {
      Expr factor, rest;
      return idx::split_affine(at, var, factor, rest) && is_const(factor, 1);
    };
    along += contiguous(l.vars[static_cast<std::size_t>(d)]) ? count : 0;
    against += contiguous(l.vars.back()) ? count : 0;
  });
  return along > against;
}

std::vector<int> order_of_stack(const LoopOp& l) {
  std::vector<int> order;
  bool ok = true;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value->storage_order.empty()) return;
    std::vector<int> here;
    for (const int d : x->value->storage_order) {
      const Expr& index = x->args[static_cast<std::size_t>(d)];
      const auto at = std::ranges::find_if(l.vars, [&](const Expr& v) { return same(v, index); });
      const int dim = static_cast<int>(at - l.vars.begin());
      ok = ok && at != l.vars.end() && std::ranges::find(here, dim) == here.end();
      here.push_back(dim);
    }
    ok = ok && (order.empty() || order == here);
    order = here;
  });
  if (!ok || order.empty() || order.size() >= l.vars.size()) return {};
  for (int d = 0; d < static_cast<int>(l.vars.size()); ++d)
    if (std::ranges::find(order, d) == order.end())
      order.insert(std::ranges::find_if(order, [&](int o) { return o > d; }), d);
  return order;
}

}  // namespace sardonyx
