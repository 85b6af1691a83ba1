// Einsum: sums of products by labelled axes. Operands are contracted two at a time, from the left unless another order
// needs far fewer multiplications; a contraction of floats becomes a matmul, everything else a loop.
#include <algorithm>
#include <map>
#include <set>

#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// Letters stand for themselves; the dims of "..." are numbered from the last one: kEllipsis, kEllipsis + 1 ...
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 1000;

struct Operand {
  Value* v = nullptr;
  Labels labels;  // one per axis
};

bool contains(const Labels& l, Label x) { return std::find(l.begin(), l.end(), x) != l.end(); }

class Einsum {
 public:
  explicit Einsum(OpContext& c) : c_(c), g_(c.graph()) {}

  Value* run() {
    parse();
    for (const Operand& o : operands_) learn_sizes(o);
    for (Operand& o : operands_) o = simplified(o);
    for (const auto& [i, j] : order()) {
      const Operand a = operands_[i], b = operands_[j];
      operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(j));
      operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(i));
      Labels needed = output_;
      for (const Operand& o : operands_) needed.insert(needed.end(), o.labels.begin(), o.labels.end());
      const Operand both = contract(sum_out(a, needed, b.labels), sum_out(b, needed, a.labels), needed);
      operands_.insert(operands_.begin() + static_cast<std::ptrdiff_t>(i), both);
    }
    return permuted(sum_out(operands_[0], output_, {}), output_).v;
  }

 private:
  // Which of the operands left are contracted in each step, the first before the second; the result takes the place of
  // the first.
  struct Order {
    double multiplications = 0;
    std::vector<std::pair<std::size_t, std::size_t>> steps;
  };

  std::vector<std::pair<std::size_t, std::size_t>> order() const {
    constexpr std::size_t kMostOperands = 5;  // of which there are 180 orders
    constexpr double kWorthwhile = 0.5;       // of the multiplications from the left
    std::vector<Labels> terms;
    for (const Operand& o : operands_) terms.push_back(o.labels);
    const Order left = best_order(terms, true);
    if (terms.size() < 3 || terms.size() > kMostOperands) return left.steps;
    Order best = best_order(terms, false);
    return best.multiplications < kWorthwhile * left.multiplications ? best.steps : left.steps;
  }

  Order best_order(const std::vector<Labels>& terms, bool from_left) const {
    if (terms.size() < 2) return {};
    Order best;
    for (std::size_t i = 0; i + 1 < terms.size() && (!from_left || i == 0); ++i) {
      for (std::size_t j = i + 1; j < terms.size() && (!from_left || j == 1); ++j) {
        std::vector<Labels> rest = terms;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(j));
        std::set<Label> all(terms[i].begin(), terms[i].end()), kept(output_.begin(), output_.end());
        all.insert(terms[j].begin(), terms[j].end());
        for (std::size_t k = 0; k < rest.size(); ++k)
          if (k != i) kept.insert(rest[k].begin(), rest[k].end());
        rest[i].clear();
        double multiplications = 1;
        for (Label l : all) {
          multiplications *= typical(sizes_.at(l));
          if (kept.count(l)) rest[i].push_back(l);
        }
        Order found = best_order(rest, from_left);
        found.multiplications += multiplications;
        found.steps.insert(found.steps.begin(), {i, j});
        if (best.steps.empty() || found.multiplications < best.multiplications) best = std::move(found);
      }
    }
    return best;
  }

  static double typical(const Expr& size) {
    constexpr double kSymbolic = 64;
    std::int64_t n = 0;
    return is_const_int(size, n) ? static_cast<double>(n) : kSymbolic;
  }

  void parse() {
    std::string text;
    for (char ch : c_.attr_s("equation", ""))
      if (ch != ' ') text += ch;
    const std::size_t arrow = text.find("->");
    std::vector<std::string> terms(1);
    for (char ch : text.substr(0, arrow)) {
      if (ch == ',')
        terms.emplace_back();
      else
        terms.back() += ch;
    }
    c_.require(static_cast<int>(terms.size()) == c_.input_count(), "equation '{}' for {} operands", text,
               c_.input_count());
    int ellipsis = 0;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      Value* v = c_.in(static_cast<int>(k));
      const Labels letters = read(terms[k], 0);
      const int dots = v->rank() - static_cast<int>(letters.size());
      const bool has_dots = terms[k].find('.') != std::string::npos;
      c_.require(has_dots ? dots >= 0 : dots == 0, "term '{}' for an operand of rank {}", terms[k], v->rank());
      ellipsis = std::max(ellipsis, dots);
      operands_.push_back({v, read(terms[k], dots)});
    }
    if (arrow != std::string::npos) {
      output_ = read(text.substr(arrow + 2), text.find('.', arrow) == std::string::npos ? 0 : ellipsis);
    } else {  // the dims of "...", then the letters that appear once, in order
      for (int k = ellipsis; k-- > 0;) output_.push_back(kEllipsis + k);
      std::map<Label, int> count;
      for (const Operand& o : operands_)
        for (Label l : o.labels) ++count[l];
      for (const auto& [l, n] : count)
        if (n == 1 && l < kEllipsis) output_.push_back(l);
    }
    std::set<Label> known, seen;
    for (const Operand& o : operands_) known.insert(o.labels.begin(), o.labels.end());
    for (Label l : output_) {
      c_.require(known.count(l) > 0, "an output label of '{}' is in no operand", text);
      c_.require(seen.insert(l).second, "an output label of '{}' appears twice", text);
    }
  }

  // Labels of a term, its "..." standing for `dots` dims.
  Labels read(const std::string& term, int dots) {
    Labels out;
    c_.require(term.find("...") == term.rfind("..."), "more than one '...' in term '{}'", term);
    for (std::size_t k = 0; k < term.size(); ++k) {
      if (term.compare(k, 3, "...") == 0) {
        for (int d = dots; d-- > 0;) out.push_back(kEllipsis + d);
        k += 2;
        continue;
      }
      c_.require(std::isalpha(static_cast<unsigned char>(term[k])) != 0, "'{}' in term '{}'", term[k], term);
      out.push_back(static_cast<unsigned char>(term[k]));
    }
    return out;
  }

  void learn_sizes(const Operand& o) {
    for (std::size_t k = 0; k < o.labels.size(); ++k) {
      const Expr d = o.v->shape[k];
      Expr& size = sizes_[o.labels[k]];
      if (!size || is_const(size, 1))
        size = d;
      else if (!is_const(d, 1)) {
        g_.add_check(compare(Op::kEq, size, d),
                     fmt::format("an axis label has sizes {} and {}", to_string(size), to_string(d)));
        if (is_const(d)) size = d;
      }
    }
  }

  // Takes the diagonal of repeated labels, and drops axes of 1 that broadcast.
  Operand simplified(const Operand& o) {
    Labels kept;
    Exprs shape;
    for (std::size_t k = 0; k < o.labels.size(); ++k) {
      const Label l = o.labels[k];
      const bool broadcast = is_const(o.v->shape[k], 1) && !is_const(sizes_.at(l), 1);
      if (broadcast || contains(kept, l)) continue;
      kept.push_back(l);
      shape.push_back(sizes_.at(l));
    }
    if (kept.size() == o.labels.size()) return o;
    Value* v = tensor::generate(g_, shape, [&](const Exprs& i) {
      Exprs at;
      for (std::size_t k = 0; k < o.labels.size(); ++k) {
        const auto it = std::find(kept.begin(), kept.end(), o.labels[k]);
        at.push_back(it == kept.end() || is_const(o.v->shape[k], 1) ? Expr(0)
                                                                    : i[static_cast<std::size_t>(it - kept.begin())]);
      }
      return tensor::at(o.v, at);
    });
    return {v, kept};
  }

  // Sums over labels that neither `needed` nor `other` has.
  Operand sum_out(const Operand& o, const Labels& needed, const Labels& other) {
    Operand r = o;
    r.labels.clear();
    std::vector<int> axes;
    for (std::size_t k = 0; k < o.labels.size(); ++k) {
      if (contains(needed, o.labels[k]) || contains(other, o.labels[k]))
        r.labels.push_back(o.labels[k]);
      else
        axes.push_back(static_cast<int>(k));
    }
    if (axes.empty()) return r;
    const DType t = o.v->dtype, w = tensor::accumulator(t);
    Value* sum = tensor::reduce(g_, ReduceKind::kSum, o.v, axes, false, [&](const Expr& e) { return cast(e, w); });
    r.v = tensor::cast(g_, sum, t);
    return r;
  }

  Operand permuted(const Operand& o, const Labels& order) {
    std::vector<int> perm;
    for (Label l : order)
      perm.push_back(static_cast<int>(std::find(o.labels.begin(), o.labels.end(), l) - o.labels.begin()));
    return {tensor::transpose(g_, o.v, perm), order};
  }

  Operand contract(const Operand& a, const Operand& b, const Labels& needed) {
    Labels batch, m, n, summed;
    for (Label l : a.labels) (!contains(b.labels, l) ? m : contains(needed, l) ? batch : summed).push_back(l);
    for (Label l : b.labels)
      if (!contains(a.labels, l)) n.push_back(l);
    // What is innermost in the result is innermost in the matmul's: columns, those of the right operand.
    const auto innermost =
        std::find_if(output_.rbegin(), output_.rend(), [&](Label l) { return contains(m, l) || contains(n, l); });
    if (!n.empty() && innermost != output_.rend() && contains(m, *innermost)) return contract(b, a, needed);
    if (summed.empty() || !is_float(a.v->dtype)) {
      const Labels out = joined(batch, m, n);
      return {product(a, b, out, summed), out};
    }
    // The matrices of a batch, in the order of the output, and those of one operand only, which all share the other's.
    Labels matrices = batch;
    if (const Labels of_a = take_outer(a, m, n, summed); !of_a.empty())
      matrices = in_output_order(joined(batch, of_a, {}));
    else if (const Labels of_b = take_outer(b, n, m, summed); !of_b.empty())
      matrices = in_output_order(joined(batch, of_b, {}));
    const auto size = [&](const Labels& ls) {
      Expr p = 1;
      for (Label l : ls) p = p * sizes_.at(l);
      return p;
    };
    const auto matrix = [&](const Operand& o, const Labels& rows, const Labels& columns) {
      Labels order;
      Exprs shape;
      for (Label l : matrices) {
        const bool own = contains(o.labels, l);
        if (own) order.push_back(l);
        shape.push_back(own ? sizes_.at(l) : Expr(1));
      }
      shape.push_back(size(rows));
      shape.push_back(size(columns));
      return tensor::reshape(g_, permuted(o, joined(order, rows, columns)).v, shape);
    };
    const Labels out = joined(matrices, m, n);
    Exprs shape;
    for (Label l : out) shape.push_back(sizes_.at(l));
    return {tensor::reshape(g_, tensor::matmul(g_, matrix(a, m, summed), matrix(b, summed, n)), shape), out};
  }

  Labels in_output_order(Labels l) const {
    std::ranges::stable_sort(l, {}, [&](Label x) { return std::ranges::find(output_, x) - output_.begin(); });
    return l;
  }

  static Labels joined(Labels x, const Labels& y, const Labels& z) {
    x.insert(x.end(), y.begin(), y.end());
    x.insert(x.end(), z.begin(), z.end());
    return x;
  }

  // Of the labels that only `o` has, those of dims outside of the summed ones, where others are inside: there each has
  // a matrix of its own, as a batch has, because all of them as rows or columns of one matrix would have to be copied
  // side by side. They are taken out of `own`. None if the result would have to be rearranged: it has `others` outside,
  // nor if the operand is copied in any case: its summed dims are apart.
  Labels take_outer(const Operand& o, Labels& own, const Labels& others, const Labels& summed) const {
    constexpr double kLeastLines = 32;
    Labels outer, inner;
    bool inside = false, ended = false;
    for (Label l : o.labels) {
      const bool sums = contains(summed, l);
      if (sums && ended) return {};
      ended |= inside && !sums;
      inside |= sums;
      if (contains(own, l)) (inside ? inner : outer).push_back(l);
    }
    double lines = 1;
    for (Label l : inner) lines *= typical(sizes_.at(l));
    if (outer.empty() || lines < kLeastLines) return {};
    Labels all = joined(outer, others, inner);
    std::erase_if(all, [&](Label l) { return !contains(output_, l); });
    const Labels sorted = in_output_order(all);
    for (std::size_t k = 0; k < outer.size() && k < sorted.size(); ++k)
      if (!contains(outer, sorted[k])) return {};
    own = inner;
    return outer;
  }

  // Elements multiplied by label and summed over `summed`.
  Value* product(const Operand& a, const Operand& b, const Labels& out, const Labels& summed) {
    std::map<Label, Expr> var;
    Exprs vars, reduced;
    for (Label l : out) vars.push_back(var[l] = loop_var(sizes_.at(l)));
    for (Label l : summed) reduced.push_back(var[l] = loop_var(sizes_.at(l)));
    const DType t = a.v->dtype, w = tensor::accumulator(t);
    const auto element = [&](const Operand& o) {
      Exprs i;
      for (Label l : o.labels) i.push_back(var.at(l));
      return cast(tensor::at(o.v, i), w);
    };
    return g_.add_loop(vars, cast(reduce(ReduceKind::kSum, reduced, binary(Op::kMul, element(a), element(b))), t));
  }

  OpContext& c_;
  Graph& g_;
  std::vector<Operand> operands_;
  Labels output_;
  std::map<Label, Expr> sizes_;
};

void einsum_op(OpContext& c) {
  c.require(c.input_count() > 0, "no operands");
  for (int k = 1; k < c.input_count(); ++k) c.require(c.in(k)->dtype == c.in(0)->dtype, "operands of different dtypes");
  c.out(0, Einsum(c).run());
}

}  // namespace

void register_einsum(OpRegistry& r) { r.add({.name = "Einsum", .lower = einsum_op, .dtypes = "numbers"}); }

}  // namespace sardonyx
