// GPU code of loop kernels, for AMD and NVIDIA alike (kernels/gpu.h has what differs).
//
// A kernel of one stage has a thread for each element; one that reduces along contiguous memory has a workgroup for
// each element, whose threads share the reduction. A kernel of several stages has a workgroup for each point of its
// outer variables: scalars (reductions) are computed by all threads together, rows by threads side by side, with a
// barrier where a later stage reads what an earlier one wrote.
#include <algorithm>
#include <unordered_set>

#include "codegen/emit.h"
#include "codegen/loop_analysis.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kLongReduction = 64;  // worth a workgroup

class GpuGenerator {
 public:
  explicit GpuGenerator(const LoopKernel& kernel) : kernel_(kernel), emit_(text_) { emit_.plain_reductions = true; }

  GpuLoopSource run() {
    if (kernel_.stages.size() == 1 && kernel_.outer.empty())
      single(kernel_.stages[0]);
    else
      several();
    std::string head = "(";
    for (std::size_t k = 0; k < emit_.buffers.size(); ++k) {
      const Value* v = emit_.buffers[k];
      bool written = false;
      for (const Stage& st : kernel_.stages) written |= st.out == v;
      head += fmt::format("{}{}* __restrict b{}, ", written ? "" : "const ", storage_name(v->dtype), k);
    }
    for (std::size_t k = 0; k < emit_.symbols.size(); ++k) head += fmt::format("i64 s{}, ", k);
    GpuLoopSource g;
    g.workgroup_per_point = workgroup_;
    g.source.body = head + "i64 points) {\n" + text_ + "}\n";
    g.source.buffers = emit_.buffers;
    g.source.symbols = emit_.symbols;
    g.source.points = points_;
    g.source.work = work_;
    return g;
  }

 private:
  // Names variables from the number `q` of a point; `q` is used up.
  void decode(const Exprs& vars, const std::string& q) {
    for (std::size_t k = vars.size(); k-- > 0;) {
      const std::string i = emit_.fresh("o");
      if (k == 0)
        emit_.line(fmt::format("const i64 {} = {};", i, q));
      else {
        const std::string n = emit_.value(vars[k]->args[0]);
        emit_.line(fmt::format("const i64 {} = take_digit({}, {});", i, q, n));
      }
      emit_.bind(vars[k], i);
      known_.insert(vars[k]->i);
    }
  }

  void open_points() {
    emit_.open(workgroup_
                   ? "for (i64 p = block_id(); p < points; p += block_count())"
                   : fmt::format(
                         "for (i64 p = i64(block_id()) * {0} + thread_id(); p < points; p += i64(block_count()) * {0})",
                         kGpuThreads));
    emit_.line("i64 q = p;");
  }

  void store(const Value* out, const Expr& offset, const std::string& x) {
    const std::string at = emit_.value(offset);
    emit_.line(fmt::format("{}[{}] = {};", emit_.buffer(out), at, x));
  }

  // All variables of r but its own (and those of reductions inside) have values here.
  bool closed(const Expr& r) const {
    std::unordered_set<std::int64_t> own, used;
    visit(r, [&](const Expr& x) {
      if (x->op == Op::kVar) used.insert(x->i);
      for (const Expr& v : x->vars) own.insert(v->i);
    });
    return std::all_of(used.begin(), used.end(), [&](std::int64_t v) { return own.count(v) || known_.count(v); });
  }

  // Reductions that every thread of the workgroup needs: each thread takes a part, and all get the result.
  void cooperate(const Expr& body) {
    Exprs reductions;
    top_reductions(body, reductions);
    for (const Expr& r : reductions) {
      const auto kind = static_cast<ReduceKind>(r->i);
      if (kind >= ReduceKind::kArgMin || !closed(r)) continue;  // each thread does all of it
      const char* t = type_name(r->dtype);
      const std::string acc = emit_.fresh("r"), f = emit_.fresh("f"), n = emit_.fresh("n");
      bool contiguous;
      const Exprs vars = order_reduce_vars(r, contiguous);
      emit_.line(fmt::format("{} {} = {};", t, acc, Emitter::neutral(kind, r->dtype)));
      Expr count = 1;
      for (const Expr& v : vars) count = count * v->args[0];
      emit_.line(fmt::format("const i64 {} = {};", n, emit_.value(count)));
      emit_.open(fmt::format("for (i64 {0} = thread_id(); {0} < {1}; {0} += {2})", f, n, kGpuThreads));
      const std::string q = emit_.fresh("q");
      emit_.line(fmt::format("i64 {} = {};", q, f));
      decode(vars, q);
      const std::string x = emit_.value(r->args[0]);
      emit_.line(fmt::format("{} = {};", acc, Emitter::combine(kind, r->dtype, acc, x)));
      emit_.close();
      for (const Expr& v : vars) known_.erase(v->i);
      const std::string all = emit_.fresh("r");
      emit_.line(fmt::format("const {0} {1} = reduce_workgroup<{0}>({2}, []({0} a, {0} b) -> {0} {{ return {3}; }});",
                             t, all, acc, Emitter::combine(kind, r->dtype, "a", "b")));
      emit_.bind_value(r, all);
    }
  }

  // A workgroup for each element?
  static bool long_reduction(const Expr& body, const Exprs& vars) {
    Exprs reductions;
    top_reductions(body, reductions);
    if (reductions.empty() || (!vars.empty() && side_by_side(reductions, vars.back()))) return false;
    for (const Expr& r : reductions) {
      if (static_cast<ReduceKind>(r->i) >= ReduceKind::kArgMin) return false;
      Expr n = 1;
      for (const Expr& v : r->vars) n = n * v->args[0];
      std::int64_t count = 0;
      if (n->has_var || (is_const_int(n, count) && count < kLongReduction)) return false;
    }
    return true;
  }

  void single(const Stage& stage) {
    const auto [vars, body, offset] = flat_loop(stage);
    points_ = 1;
    for (const Expr& v : vars) points_ = points_ * v->args[0];
    work_ = cost_of(body);
    workgroup_ = long_reduction(body, vars);
    open_points();
    decode(vars, "q");
    if (workgroup_) cooperate(body);
    const std::string x = emit_.value(body);
    if (workgroup_) emit_.open("if (thread_id() == 0)");
    store(stage.out, offset, x);
    if (workgroup_) emit_.close();
    emit_.close();
  }

  void several() {
    workgroup_ = true;
    points_ = 1;
    for (const Expr& v : kernel_.outer) points_ = points_ * v->args[0];
    work_ = 0;
    open_points();
    decode(kernel_.outer, "q");
    for (std::size_t k = 0; k < kernel_.stages.size(); ++k) {
      const Stage& stage = kernel_.stages[k];
      Expr body = merge_reduce_vars(flatten_loads(stage.body));
      Expr offset = storage_offset(*stage.out, stage.index);
      Expr n = 1;
      for (const Expr& v : stage.inner) n = n * v->args[0];
      work_ = work_ + n * cost_of(body);
      if (stage.inner.empty()) {
        cooperate(body);
        const std::string x = emit_.value(body), local = emit_.fresh("x");
        emit_.line(fmt::format("const {} {} = {};", type_name(stage.out->dtype), local, x));
        emit_.bind_local(stage.out, local);
        if (!stage.stored) continue;
        emit_.open("if (thread_id() == 0)");
        store(stage.out, offset, local);
        emit_.close();
        continue;
      }
      const Exprs vars = merge_vars(stage.inner, body, offset);
      const std::string f = emit_.fresh("f"), q = emit_.fresh("q"), count = emit_.value(n);
      emit_.open(fmt::format("for (i64 {0} = thread_id(); {0} < {1}; {0} += {2})", f, count, kGpuThreads));
      emit_.line(fmt::format("i64 {} = {};", q, f));
      decode(vars, q);
      const std::string x = emit_.value(body);
      store(stage.out, offset, x);
      emit_.close();
      for (const Expr& v : vars) known_.erase(v->i);
      if (k + 1 < kernel_.stages.size()) emit_.line("barrier();");
    }
    emit_.close();
  }

  const LoopKernel& kernel_;
  std::string text_;
  Emitter emit_;
  Expr points_, work_;
  bool workgroup_ = false;
  std::unordered_set<std::int64_t> known_;  // variables in scope
};

}  // namespace

GpuLoopSource generate_gpu_loop(const LoopKernel& kernel) { return GpuGenerator(kernel).run(); }

}  // namespace sardonyx::codegen
