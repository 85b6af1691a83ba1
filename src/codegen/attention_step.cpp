// See attention_step.h.
#include "codegen/attention_step.h"

#include <algorithm>

#include "codegen/attention_source.h"
#include "codegen/contraction.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kMostElements = 512;    // elements of a group of heads that share keys
constexpr std::int64_t kMostGroup = 8;         // heads that share keys: limited by registers
constexpr std::int64_t kMostBlocks = 1 << 20;  // workgroups of a launch; far above any batch
constexpr int kCluster = kStepCluster;
constexpr std::int64_t kMostClustered = 256;  // blocks of clusters of kCluster
// Many sequences are bound by memory, and more blocks for each of them only wait more often: for their queries, and for
// each other. Up to so many units clusters of four blocks are the fastest nevertheless (H200); heads of more than 64
// elements leave room for fewer blocks.
constexpr std::int64_t kMostFours = 66, kMostLongFours = 44;
// From so many units on (an H200's multiprocessors), single blocks have so many keys at most. A much longer sequence
// than the others would keep one busy after all others have ended.
constexpr std::int64_t kFewestSingles = 132, kMostSingleKeys = 1024;
constexpr std::int64_t kClusters = 33;       // clusters that fill a card: two blocks on each of an H200's 132 SMs
constexpr std::int64_t kClusterKeys = 1024;  // minimum keys of a cluster, 128 of each of its 8 blocks
constexpr std::int64_t kSplitBlocks = 256;   // the same without clusters
constexpr std::int64_t kSplitKeys = 128;     // minimum keys of a split: fewer do not pay for combining the results

const Value* memory_of(const Value* v) { return storage_of(const_cast<Value*>(v)); }

bool is_read(const Step& s, const Value* v) {
  return std::any_of(s.reads.begin(), s.reads.end(), [&](const Value* r) { return memory_of(r) == v; });
}

const RoutineOp* append_of(const Step& s) {
  const auto* n = std::get_if<NodeStep>(&s.op);
  const auto* r = n ? n->node->as<RoutineOp>() : nullptr;
  const bool own = r && (r->name == "append" || r->name == "append_own_rows");
  return own && n->node->inputs.size() == 5 ? r : nullptr;
}

class StepGenerator : AttentionSource {
 public:
  StepGenerator(const AttentionStepParts& parts, std::string_view arch)
      : AttentionSource(std::get<TileKernel>(parts.attention->op), arch),
        rotation_(std::get<LoopKernel>(parts.rotation->op).stages[0]),
        node_(*std::get<NodeStep>(parts.append->op).node),
        append_(*append_of(*parts.append)),
        paged_(append_.name == "append_own_rows"),
        kv_heads_(node_.outputs[0]->shape[paged_ ? 2 : 1]) {}

  std::optional<GpuAttentionStep> run() {
    if (!fits()) return {};
    const Value* key = node_.outputs[0];
    const Expr one_query = s_->args[0], size(extent(d_));
    one_ = {{s_, Expr(0)}};
    const Expr head = loop_var(kv_heads_);

    functions(head, size);
    std::string head_text = "(", members, values, after;
    const bool waits = chip_.has(Feature::kDependentLaunch);
    for (std::size_t i = 0; i < emit_.buffers.size(); ++i) {
      const Value* x = emit_.buffers[i];
      const bool written = x == memory_of(kernel_.out) || x == memory_of(key) || x == memory_of(node_.outputs[1]);
      const std::string t = fmt::format("{}{}*", written ? "" : "const ", storage_name(x->dtype));
      // The cache before and after the step may be the same memory.
      head_text += fmt::format("{} b{}, ", t, i);
      members += fmt::format("  {} b{};\n", t, i);
      values += fmt::format("{}({})__builtin_assume_aligned(b{}, 16)", i ? ", " : "", t, i);
      if (waits) after += fmt::format("b{0} = after_wait(b{0});\n", i);
    }
    const bool clusters = chip_.has(Feature::kClusters),
               matrices = clusters && takes_step_mma(type_, extent(d_), this->group());
    const std::string wait =
        matrices ? fmt::format("  SDX_FN void wait() {{\n    wait_for_launch();\n{}  }}\n", after) : "";
    std::string sizes = "f32* partial, ";
    for (std::size_t i = 0; i < emit_.symbols.size(); ++i) {
      sizes += fmt::format("i64 s{}, ", i);
      members += fmt::format("  i64 s{};\n", i);
      values += fmt::format(", s{}", i);
    }
    const std::int64_t group = this->group();
    const std::string problem = fmt::format(
        "struct P {{\n  using T = {};\n  using Stored = T;\n  using Out = {};\n  enum : int {{ kDim = {}, kValueDim = "
        "{}, kGroup = {}, "
        "kPlain "
        "= {}, kBounds = {}, kSink = {}, kZeroEmpty = {}, kAppends = 1, kKeyStride = {}, kValueStride = {} "
        "}};\n{}{}{}}};\n{}P p{{{}}};\n",
        storage_name(type_), storage_name(kernel_.out->dtype), extent(d_), extent(d_), group, int(plain_),
        int(a_.begin || a_.end), int(bool(a_.sink)), int(a_.zero_empty), key_stride_, value_stride_, members, text_,
        wait, matrices ? "" : "const ", values);
    sizes += "i64 batch, i64 keys, i64 heads, i64 splits, i64 capacity, i64 past_rows) {\n";

    const Expr batch = b_->args[0], heads = h_->args[0], keys = t_->args[0], units = batch * kv_heads_;
    const Expr splits =
        clusters
            ? step_parts(units, keys)
            : idx::max(1, idx::min(idx::ceildiv(kSplitBlocks, idx::max(units, 1)), idx::ceildiv(keys, kSplitKeys)));
    const Expr blocks = units * splits * Expr(clusters ? kCluster : 1);
    GpuAttentionStep step;
    const Expr takes = matrices   ? compare(Op::kLe, units, kMostBlocks / kCluster)
                       : clusters ? compare(Op::kLe, blocks, kMostClustered)
                                  : compare(Op::kLe, blocks, kMostBlocks);
    step.applies = logical_and(compare(Op::kEq, one_query, 1), takes);
    step.buffers = emit_.buffers;
    step.symbols = emit_.symbols;
    step.limit = idx::max(keys, batch * heads);
    // Keys in pages may be read up to the end of the page table.
    const Expr capacity = paged_ ? keys : key->shape[2], past_rows = paged_ ? keys : node_.inputs[3]->shape[2];
    for (const Expr& x : {batch, keys, heads, splits, capacity, past_rows}) step.symbols.push_back(x);
    const Expr parts = logical_and(step.applies, compare(Op::kGt, splits, 1));
    step.partial = select(parts, batch * heads * splits * Expr((extent(d_) + 15) / 16 * 16 + 2), 1);
    const std::string numbers = "{u32(keys), u32(heads), u32(splits), capacity, past_rows, partial}, u32(batch)";
    // The next launch may start while the few workgroups of this one still run.
    const std::string begin =
        waits ? "start_next_launch();\nwait_for_launch();\n" + after + "partial = after_wait(partial);\n" : "";
    step.work = operations();
    const auto add = [&](const std::string& prologue, const std::string& call, const Expr& blocks, const Expr& when,
                         LaunchBounds bounds = {}, std::uint32_t lds = 0) {
      step.kernels.push_back(
          {attention_spec(head_text + sizes + prologue + problem + call + ";\n}\n", arch_, bounds, lds), blocks, when});
    };
    if (matrices) {
      for (const auto& [cluster, when] : step_clusters(units, keys, extent(d_))) {
        if (is_const(when, 0)) continue;
        const std::uint32_t lds = step_mma_bytes(extent(d_), group, cluster, true, paged_);
        const bool large = cluster == kCluster;
        LaunchBounds bounds{.cluster = bound_of_cluster(cluster)};
        // Many sequences are bound by memory. Heads of up to 64 elements need few enough registers (76 instead of 96)
        // for three workgroups on a multiprocessor, as without a new row; longer ones would spill.
        if (!large && paged_ && extent(d_) <= 64) bounds.threads = kGpuThreads, bounds.min_blocks = 3;
        add("", fmt::format("attention_step_mma<P, {}, {}>(p, {})", cluster, lds, numbers),
            large ? blocks : units * cluster, logical_and(step.applies, when), bounds, lds);
      }
    } else {
      add(begin, "attention_step(p, " + numbers + ")", blocks, step.applies,
          {.cluster = clusters ? static_cast<std::uint32_t>(kCluster) : 0});
    }
    add(begin,
        fmt::format("attention_merge(p, {{1, u32(keys), u32(heads), {}, u32(splits), partial}}, batch * heads)", group),
        batch * heads, parts);
    return step;
  }

 private:
  std::int64_t group() const { return h_->args[0]->i / kv_heads_->i; }

  bool fits() {
    std::int64_t d = 0, e = 0, heads = 0, kv_heads = 0;
    const Value *key = node_.outputs[0], *value = node_.outputs[1];
    if (!is_const_int(h_->args[0], heads) || !is_const_int(kv_heads_, kv_heads) || kv_heads < 1 ||
        heads % kv_heads != 0 || !is_const_int(d_->args[0], d) || !is_const_int(e_->args[0], e) || d != e)
      return false;
    const std::int64_t lanes = d / vec_;
    if (d % vec_ != 0 || lanes > 32 || (lanes & (lanes - 1)) != 0 || heads / kv_heads > kMostGroup ||
        heads / kv_heads * d > kMostElements)
      return false;
    for (const Value* v :
         {key, value, static_cast<const Value*>(node_.inputs[3]), static_cast<const Value*>(node_.inputs[4])})
      if (v->rank() != 4 || !v->storage_order.empty() || v->dtype != type_) return false;
    for (const Expr& x : {a_.begin, a_.end})
      if (x && (mentions(x, h_) || mentions(x, t_))) return false;
    if (memory_of(a_.q->value) != rotation_.out || rotation_.out->dtype != type_) return false;
    if (paged_) return fits_pages(d);
    // Keys and values are the cache, in its own layout.
    const Expr shared = idx::floordiv(h_, Expr(heads / kv_heads));
    const auto from = [&](const Expr& load, const Value* v, const Expr& element) {
      return memory_of(load->value) == memory_of(v) &&
             idx::provably_equal(idx::linearize(load->args, load->value->shape),
                                 idx::linearize({b_, shared, t_, element}, v->shape));
    };
    return from(a_.k, key, d_) && from(a_.v, value, e_);
  }

  // Pages are read by one kernel only. A sequence's new row is its last key, as with causal attention.
  bool fits_pages(std::int64_t dim) {
    if (!chip_.has(Feature::kClusters) || !takes_step_mma(type_, dim, group()) || !a_.end) return false;
    if (memory_of(a_.k->value) != memory_of(node_.outputs[0]) || memory_of(a_.v->value) != memory_of(node_.outputs[1]))
      return false;
    k_ = operand("key", a_.k, t_, d_), v_ = operand("value", a_.v, t_, e_);
    find_pages(k_, v_);
    return page_rows_ != 0;
  }

  // The element that the rotation stores at this offset of its output.
  Expr rotated(const Expr& flat) const {
    const Exprs at = idx::delinearize(flat, rotation_.out->shape);
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < at.size(); ++k)
      if (!is_const(rotation_.index[k])) r.emplace_back(rotation_.index[k], at[k]);
    return flatten_loads(substitute(widened_result(rotation_.body, type_), r));
  }

  void functions(const Expr& head, const Expr& size) {
    const Expr query = substitute(a_.q, one_);
    function("T query(i64 b, i64 h, i64 d)", {{b_, "b"}, {h_, "h"}, {d_, "d"}},
             [&] { returns(rotated(idx::linearize(query->args, query->value->shape))); });
    // Element d of the head is at b * stride + offset + head * size + d of the tensor that is appended (one token).
    const auto fresh = [&](std::size_t which) {
      const Expr rows = paged_ ? Expr(1) : append_.params[0];  // of a sequence
      return b_ * rows * append_.params[2 + 2 * which] + append_.params[3 + 2 * which] + head * size + d_;
    };
    const std::vector<std::pair<Expr, std::string>> vars = {{b_, "b"}, {head, "h"}, {d_, "d"}};
    function("T new_key(i64 b, i64 h, i64 d)", vars, [&] { returns(rotated(fresh(0))); });
    const Value* value = node_.inputs[2];
    function("T new_value(i64 b, i64 h, i64 d)", vars, [&] {
      returns(flatten_loads(load(const_cast<Value*>(value), value->dtype, idx::delinearize(fresh(1), value->shape))));
    });
    if (paged_)
      pages();
    else
      function("i64 start(i64 b)", {{b_, "b"}},
               [&] { returns(flatten_loads(load(node_.inputs[0], node_.inputs[0]->dtype, {b_}))); });
    const auto tensor = [&](const std::string& name, const Value* v) {
      function(name, {}, [&] { returns_address(memory_of(v), 0); });
    };
    tensor("const T* past_key()", node_.inputs[3]);
    tensor("const T* past_value()", node_.inputs[4]);
    tensor("T* key()", node_.outputs[0]);
    tensor("T* value()", node_.outputs[1]);
    scores();
    limits();
    out();
  }

  void pages() {
    // They are read where they lay before the step: the kernel has the new row in shared memory.
    const Value* before[] = {node_.inputs[3], node_.inputs[4]};
    for (const Operand* o : {&k_, &v_})
      function(fmt::format("const T* {}_page(i64 b, i64 h, i64 t)", o->name), {{b_, "b"}, {h_, "h"}, {t_, "t"}},
               [&] { returns_address(memory_of(before[o == &v_]), o->start); });
    const Expr end = is_const(s_) ? a_.end : substitute(a_.end, one_);
    function("i64 start(i64 b)", {{b_, "b"}}, [&] { returns(flatten_loads(end) - 1); });
    function("const i64* slots()", {}, [&] { returns_address(memory_of(node_.inputs[0]), 0); });
    function("i64 cache_rows()", {}, [&] { returns(node_.outputs[0]->shape[0] * node_.outputs[0]->shape[1]); });
  }

  const Stage& rotation_;
  const Node& node_;
  const RoutineOp& append_;
  const bool paged_;  ///< keys and values lie in pages
  const Expr kv_heads_;
  std::vector<std::pair<Expr, Expr>> one_;
};

}  // namespace

std::vector<AttentionStepParts> find_attention_steps(const std::vector<Step>& steps) {
  std::vector<AttentionStepParts> found;
  for (const Step& s : steps) {
    const auto* t = std::get_if<TileKernel>(&s.op);
    const auto* a = t ? t->node->as<AttentionOp>() : nullptr;
    if (!a || a->q->op != Op::kLoad || a->k->op != Op::kLoad || a->v->op != Op::kLoad) continue;
    AttentionStepParts p{.attention = &s};
    for (const Step& u : steps) {
      if (&u == &s) break;
      if (append_of(u) && memory_of(std::get<NodeStep>(u.op).node->outputs[0]) == memory_of(a->k->value)) p.append = &u;
      const auto* loop = std::get_if<LoopKernel>(&u.op);
      if (loop && loop->stages.size() == 1 && loop->outer.empty() && loop->stages[0].out == memory_of(a->q->value))
        p.rotation = &u;
    }
    if (!p.append || !p.rotation) continue;
    // Nothing else may use the rotated values.
    const Stage& stage = std::get<LoopKernel>(p.rotation->op).stages[0];
    bool ok = !stage.body->has_reduce && stage.out->storage_order.empty() &&
              memory_of(std::get<NodeStep>(p.append->op).node->inputs[1]) == stage.out;
    for (const Expr& i : stage.index) ok &= is_const(i, 0) || i->op == Op::kVar;
    for (const Value* v : stage.out->graph->outputs) ok &= memory_of(v) != stage.out;
    for (const Step& u : steps) ok &= &u == &s || &u == p.append || !is_read(u, stage.out);
    if (ok) found.push_back(p);
  }
  return found;
}

bool takes_step_mma(DType type, std::int64_t dim, std::int64_t group) {
  return size_of(type) == 2 && dim % 16 == 0 && group <= kMostGroup && group * dim <= kMostElements;
}

std::vector<StepCluster> step_clusters(const Expr& units, const Expr& keys, std::int64_t dim) {
  const Expr eight = compare(Op::kLe, units, kMostClustered / kCluster),
             up_to_four = compare(Op::kLe, units, dim <= 64 ? kMostFours : kMostLongFours),
             many = logical_not(up_to_four),
             single = logical_and(compare(Op::kGe, units, kFewestSingles), compare(Op::kLe, keys, kMostSingleKeys));
  return {{kCluster, eight},
          {4, logical_and(up_to_four, logical_not(eight))},
          {2, logical_and(many, logical_not(single))},
          {1, logical_and(many, single)}};
}

Expr step_parts(const Expr& units, const Expr& keys) {
  return idx::max(1, idx::min(idx::ceildiv(kClusters, idx::max(units, 1)), idx::floordiv(keys, kClusterKeys)));
}

std::optional<GpuAttentionStep> generate_gpu_attention_step(const AttentionStepParts& parts, std::string_view arch) {
  return StepGenerator(parts, arch).run();
}

}  // namespace sardonyx::codegen
