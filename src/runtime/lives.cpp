// What an executor finds out about a program before the first run: lifetimes of temporaries, which steps have sizes
// that are known at the start of a run, and which outputs steps can write to their place.
#include <algorithm>

#include "runtime/run.h"

namespace sardonyx {
namespace {

/// Calls `f` with every expression of a step that says how large something is.
template <typename F>
struct SizeVisitor {
  const F& f;

  void one(const Expr& e) const {
    if (e) f(e);
  }
  void all(const Exprs& list) const {
    for (const Expr& e : list) one(e);
  }
  void all(const std::vector<PostInfo>& post) const {
    for (const PostInfo& i : post) all(i.dims);
  }
  void all(const std::vector<TensorRef>& list) const {
    for (const TensorRef& t : list) all(t.shape);
  }

  void operator()(const LaunchStep& l) const {
    all(l.symbols);
    all(l.divisors);
    for (const Expr* e : {&l.points, &l.work, &l.limit, &l.repeat}) one(*e);
  }
  void operator()(const TileLaunchStep& t) const {
    all(t.symbols);
    all({t.batches, t.m, t.n, t.k});
    for (const TileLaunchStep::Library& l : t.library) all({l.batches, l.m, l.n, l.k});
    for (const CopiedWindows& w : t.windows) {
      all({w.offset, w.images, w.pitch});
      for (std::size_t k : {0, 1}) all({w.sizes[k], w.out[k], w.pitches[k], w.pads[k]});
    }
  }
  void operator()(const AttentionLaunchStep& n) const {
    all({n.needed, n.rule, n.batches, n.m, n.n, n.k, n.work, n.limit});
    for (const AttentionLaunchStep::Form& form : n.forms) {
      one(form.applies);
      for (const LaunchStep& x : form.launches) {
        all(x.symbols);
        one(x.points);
      }
    }
  }
  void operator()(const GemmStep& g) const {
    all(g.batch_a);
    all(g.batch_b);
    all({g.m, g.n, g.k});
    all(g.post);
  }
  void operator()(const ConvStep& c) const {
    for (const Exprs* list : {&c.pads_begin, &c.pads_end, &c.x_shape, &c.w_shape, &c.out_shape}) all(*list);
    all(c.post);
  }
  void operator()(const AttentionStep& a) const {
    for (const HeadRef* r : {&a.q, &a.k, &a.v, &a.bias, &a.out, &a.begin, &a.end, &a.sink}) {
      one(r->offset);
      all(r->strides);
    }
    all({a.batch, a.heads, a.queries, a.keys, a.head_dim, a.value_dim});
  }
  void operator()(const RoutineStep& r) const {
    all(r.inputs);
    all(r.outputs);
    all(r.params);
  }
  void operator()(const CheckStep& k) const { one(k.condition); }
  // Of what they run, the sizes are those of the steps inside.
  void operator()(const BindStep&) const {}
  void operator()(const IfStep&) const {}
  void operator()(const WhileStep&) const {}
};

template <typename F>
void for_sizes(const Program& p, const ProgramStep& s, const F& f) {
  const SizeVisitor<F> visitor{f};
  for (int b : s.writes) visitor.all(p.buffers[static_cast<std::size_t>(b)].shape);
  for (int b : s.reads) visitor.all(p.buffers[static_cast<std::size_t>(b)].shape);
  std::visit(visitor, s.op);
}

// See LaunchStep::limit.
Expr limit_of(const ProgramStep& s) {
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) return l->limit;
  if (const auto* a = std::get_if<AttentionLaunchStep>(&s.op)) return a->limit;
  return {};
}

bool has_assumptions(const Block& b);
// Whether a nested block assumes something.
bool has_assumptions(const ProgramStep& s) {
  if (const auto* i = std::get_if<IfStep>(&s.op))
    return has_assumptions(*i->then_block) || has_assumptions(*i->else_block);
  if (const auto* w = std::get_if<WhileStep>(&s.op)) return has_assumptions(*w->body);
  if (limit_of(s)) return true;
  const auto* c = std::get_if<CheckStep>(&s.op);
  return c && c->assumption;
}
bool has_assumptions(const Block& b) {
  return std::any_of(b.steps.begin(), b.steps.end(), [](const ProgramStep& s) { return has_assumptions(s); });
}

}  // namespace

void Executor::find_lives(const Block& b, const std::vector<bool>& inputs) {
  auto l = std::make_unique<Lives>();
  l->first_step = step_count_;
  step_count_ += static_cast<int>(b.steps.size());
  l->last_used.resize(b.steps.size());
  for (int k = 0; k < static_cast<int>(b.steps.size()); ++k) {
    const ProgramStep& s = b.steps[static_cast<std::size_t>(k)];
    bool known = true;
    for_sizes(*program_, s, [&](const Expr& e) {
      if (e->has_sym)
        visit(e, [&](const Expr& x) { known &= x->op != Op::kSym || inputs[static_cast<std::size_t>(x->i)]; });
    });
    l->known_at_start.push_back(known);
    for (int w : s.writes) {
      if (program_->buffers[static_cast<std::size_t>(w)].kind != BufferInfo::Kind::kTemporary) continue;
      if (l->range.emplace(w, std::make_pair(k, k)).second) l->temporaries.push_back(w);
    }
    for (int r : s.reads) {
      auto it = l->range.find(r);
      if (it != l->range.end()) it->second.second = std::max(it->second.second, k);
    }
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      find_lives(*i->then_block, inputs);
      find_lives(*i->else_block, inputs);
    }
    if (const auto* w = std::get_if<WhileStep>(&s.op)) find_lives(*w->body, inputs);
  }
  for (const TensorRef& o : b.outputs) {
    auto it = l->range.find(o.buffer);
    if (it != l->range.end()) it->second.second = INT32_MAX;
  }
  for (const auto& [buffer, range] : l->range)
    if (range.second != INT32_MAX) l->last_used[static_cast<std::size_t>(range.second)].push_back(buffer);
  lives_[&b] = std::move(l);
}

// Which outputs the steps of main write themselves, so that they can be written where the caller wants them.
void Executor::find_outputs() {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  direct_output_.assign(p.buffers.size(), -1);
  for (std::size_t k = p.main.outputs.size(); k-- > 0;) {
    const auto b = static_cast<std::size_t>(p.main.outputs[k].buffer);
    if (p.buffers[b].kind == BufferInfo::Kind::kTemporary && lives.range.count(static_cast<int>(b)))
      direct_output_[b] = static_cast<int>(k);
  }
  for (std::size_t k = 0; k < p.main.steps.size(); ++k) {
    const ProgramStep& s = p.main.steps[k];
    const auto* c = std::get_if<CheckStep>(&s.op);
    const bool control = std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
    // Results of control flow come in memory of their own.
    if (control && !separate_memory_)
      for (int w : s.writes) direct_output_[static_cast<std::size_t>(w)] = -1;
    const bool launch = std::holds_alternative<LaunchStep>(s.op) || std::holds_alternative<TileLaunchStep>(s.op) ||
                        std::holds_alternative<AttentionLaunchStep>(s.op) || c != nullptr || is_collective(s);
    launches_only_ = launches_only_ && launch && lives.known_at_start[k];
    const bool assumes = (c && c->assumption) || limit_of(s);
    if ((assumes && !lives.known_at_start[k]) || (control && has_assumptions(s))) early_outputs_ = false;
  }
  input_last_used_.assign(p.main.inputs.size(), -1);
  for (std::size_t k = 0; k < p.main.inputs.size(); ++k) {
    const int b = p.main.inputs[k].buffer;
    for (std::size_t j = 0; j < p.main.steps.size(); ++j) {
      const std::vector<int>& reads = p.main.steps[j].reads;
      if (std::find(reads.begin(), reads.end(), b) != reads.end()) input_last_used_[k] = static_cast<int>(j);
    }
    for (const TensorRef& o : p.main.outputs)
      if (o.buffer == b) input_last_used_[k] = INT32_MAX;
  }
}

}  // namespace sardonyx
