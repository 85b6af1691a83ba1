// Lowers to steps for GPUs: launches of generated kernels, some of which run only for certain sizes.
#include <algorithm>
#include <optional>

#include "codegen/attention_codegen.h"
#include "codegen/attention_step.h"
#include "codegen/contraction.h"
#include "codegen/gpu_routines.h"
#include "codegen/loop_codegen.h"
#include "codegen/tile_codegen.h"
#include "graph/analysis.h"
#include "lower/library_step.h"
#include "lower/lowering.h"
#include "program/launch.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMostRowTiles = 3;  // GEMMs that each compute the rows of a shared left operand

/// Threads with which every SIMD has one wave.
std::int64_t one_wave_each(const Chip& chip) { return std::int64_t{chip.product().units} * chip.simds * chip.wave; }

/// The conjunction of two conditions; empty: always.
Expr both(const Expr& a, const Expr& b) { return !a ? b : !b ? a : logical_and(a, b); }

class GpuBlock : public BlockLowering {
 public:
  GpuBlock(ProgramBuilder& builder, const std::vector<Step>& steps)
      : b_(builder), options_(builder.options()), row_tiles_(find_row_tiles(steps)), one_query_(find_one_query(steps)) {
    for (const Step& s : steps)
      for (const Value* v : s.reads) {
        const auto* loop = std::get_if<LoopKernel>(&s.op);
        const bool rounds = loop && std::all_of(loop->stages.begin(), loop->stages.end(), [](const Stage& stage) {
                              return !stage.stored || (is_float(stage.out->dtype) && size_of(stage.out->dtype) <= 2);
                            });
        const auto [known, fresh] = for_halves_.emplace(storage_of(v), rounds);
        known->second = known->second && rounds;
      }
  }

  bool lower(const Step& s, std::vector<ProgramStep>& out) override {
    const std::size_t first = out.size();
    if (!lower_kernel(s, out)) return false;
    // With one query per sequence, another kernel computes the same.
    if (const auto replaced = one_query_.find(&s); replaced != one_query_.end()) {
      const Expr not_replaced = logical_not(replaced->second->applies);
      for (std::size_t k = first; k < out.size(); ++k) out[k].when = both(out[k].when, not_replaced);
      if (std::holds_alternative<TileKernel>(s.op)) lower_attention_step(s, *replaced->second, out);
    }
    return true;
  }

 private:
  /// For a GEMM that computes the rows of its left operand itself if there are few, and for the step that computes them
  /// otherwise.
  struct RowTile {
    std::optional<codegen::GpuRowTile> tile;  ///< empty for a step that computes the rows
    Expr few;                                 ///< bool: the GEMMs compute them
  };
  using RowTiles = std::unordered_map<const Step*, RowTile>;
  /// Steps of attention, with the kernel that replaces them if there is one query per sequence.
  using OneQuery = std::unordered_map<const Step*, std::shared_ptr<const codegen::GpuAttentionStep>>;

  // Whether only loops read the value that store results of 16 bits (the sums of parts of a softmax).
  bool is_for_halves(const Value* v) const {
    const auto found = for_halves_.find(v);
    return found != for_halves_.end() && found->second &&
           std::none_of(v->graph->outputs.begin(), v->graph->outputs.end(),
                        [&](const Value* o) { return storage_of(o) == v; });
  }

  codegen::TileSelection selection() const {
    codegen::TileSelection s{options_.choices, options_.all_tilings};
    s.narrow_floats = options_.precision != DType::kFloat32;
    // Results of init steps are not in memory before these have run.
    s.unpacked = options_.unpacked_weights;
    if (!b_.in_init) s.loaded = [this](const Value* v) { return b_.is_loaded(v); };
    return s;
  }

  bool lower_kernel(const Step& s, std::vector<ProgramStep>& out) {
    if (const auto* node = std::get_if<NodeStep>(&s.op)) return lower_routine(s, *node, out);
    const auto row_tile = row_tiles_.find(&s);
    const auto* loop = std::get_if<LoopKernel>(&s.op);
    if (loop) {
      ProgramStep p = b_.step_like(s);
      if (row_tile != row_tiles_.end()) p.when = logical_not(row_tile->second.few);
      p.op = lower_loop(*loop);
      out.push_back(std::move(p));
      return true;
    }
    const auto& t = std::get<TileKernel>(s.op);
    if (row_tile != row_tiles_.end())
      lower_row_tile(s, row_tile->second, out);
    else if (t.node->as<MatMulOp>())
      lower_gemm(t, b_.step_like(s), out);
    else if (t.node->as<AttentionOp>())
      add_choice(codegen::generate_gpu_attention(t, options_.target, selection()), b_.step_like(s), out);
    else
      add_choice(codegen::generate_gpu_tile(t, options_.target, selection()), b_.step_like(s), out);
    return true;
  }

  LaunchStep lower_loop(LoopKernel k) {
    // Kernels compute in float32 what is stored in 16 bits.
    for (Stage& s : k.stages) s.body = codegen::widened_result(s.body, s.out->dtype);
    codegen::take_maxima_of_codes(k);
    const Chip& chip = chip_of(options_.target);
    const codegen::GpuLoopSource s = codegen::generate_gpu_loop(
        k, {.from_inputs = [this](std::int64_t id) { return b_.is_input_symbol(id); },
            .of_halves = options_.precision != DType::kFloat32,
            .in_blocks = chip.policy.block_transposes,
            .loads_first = chip.policy.loads_first,
            .least_threads = chip.policy.fills_simds ? one_wave_each(chip) : 0,
            .row_bytes = chip.policy.row_bytes,
            .half_extremes = chip.policy.half_extremes,
            .matrix_windows = chip.layout() == MatrixLayout::kMfma,
            .any_address = chip.policy.any_address,
            .is_for_halves = [&](const Value* v) { return chip.policy.long_rows && is_for_halves(v); },
            .packs_float8 = chip.policy.packs_float8,
            .guarded_loads = chip.policy.guarded_loads,
            .quad_gathers = chip.policy.quad_gathers});
    LaunchStep l;
    l.kernel = b_.kernel(s.kernel);
    l.buffers = b_.buffers(s.buffers);
    l.symbols = s.values;
    l.divisors = s.divisors;
    l.work_items = s.threads;
    l.work = s.work;
    l.limit = s.limit;
    return l;
  }

  // Lowers a routine to launches of device code, if it has that form.
  bool lower_routine(const Step& s, const NodeStep& step, std::vector<ProgramStep>& out) {
    const Node& node = *step.node;
    const auto routine = codegen::generate_gpu_routine(
        step, chip_of(options_.target), options_.precision,
        [this](const Value* v) { return !b_.in_init && b_.is_loaded(v); },
        [this](std::int64_t id) { return b_.is_input_symbol(id); });
    check(routine || step.computed.empty(), "{}: computes an input of a routine that runs on the CPU", s.origin);
    if (!routine) return false;
    std::vector<int> tensors;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const bool in_memory = std::none_of(step.computed.begin(), step.computed.end(),
                                          [&](const ComputedInput& c) { return c.input == k; });
      tensors.push_back(in_memory ? b_.buffer(node.inputs[k]) : -1);
    }
    for (Value* v : node.outputs) tensors.push_back(b_.buffer(v));
    for (const auto& w : routine->workspace) tensors.push_back(b_.temporary(w.dtype, {w.elements}));
    if (const auto& x = routine->rearranged) tensors.push_back(rearrange(x->value, x->elements, s.origin, out));
    const auto at = [&](int k) { return tensors[static_cast<std::size_t>(k)]; };
    const auto origin_with = [&](const ComputedInput& c, const std::string& others) {
      return join_origins(c.stage.out->producer->origin, others);
    };
    for (const ComputedInput& c : routine->stored) {
      ProgramStep p;
      p.origin = origin_with(c, node.origin);
      Stage stage = c.stage;
      stage.out = node.outputs[0];
      LaunchStep l = lower_loop({{}, {std::move(stage)}});
      p.writes = {b_.buffer(node.outputs[0])};
      for (const int b : l.buffers)
        if (b != p.writes[0]) p.reads.push_back(b);
      p.op = std::move(l);
      out.push_back(std::move(p));
    }
    for (const auto& launch : routine->launches) {
      if (launch.when && is_const(launch.when, 0)) continue;  // never true for the sizes that are known
      ProgramStep p;
      p.origin = node.origin;
      for (const ComputedInput& c : step.computed)
        if (std::find(launch.computes.begin(), launch.computes.end(), c.input) != launch.computes.end())
          p.origin = origin_with(c, p.origin);
      p.when = launch.when;
      LaunchStep l;
      l.kernel = b_.kernel(launch.kernel);
      for (const int k : launch.tensors) l.buffers.push_back(at(k));
      for (Value* v : launch.read) l.buffers.push_back(b_.buffer(v));
      p.reads = l.buffers;  // includes what it writes: earlier launches may have written parts
      for (const int k : launch.writes)
        if (std::find(p.writes.begin(), p.writes.end(), at(k)) == p.writes.end()) p.writes.push_back(at(k));
      l.symbols = launch.values;
      l.divisors = launch.divisors;
      l.work_items = launch.threads;
      l.work = 1;
      l.limit = routine->limit;
      l.repeat = launch.repeat;
      p.op = std::move(l);
      out.push_back(std::move(p));
    }
    return true;
  }

  // Appends `p` as a choice. `library`: the GEMM that a vendor's library may compute as well, or null.
  void add_choice(const codegen::GpuChoice& g, ProgramStep p, std::vector<ProgramStep>& out,
                  const TileKernel* library = nullptr) {
    if (p.when && is_const(p.when, 0)) return;  // never true for the sizes that are known
    ChoiceStep c;
    c.choice = g.choice;
    c.copied = g.copied;
    c.type = g.type;
    c.work = g.work;
    c.limit = g.limit;
    if (g.partial) {
      c.partial = b_.temporary(DType::kFloat32, {g.partial});
      p.writes.push_back(c.partial);
    }
    std::vector<int> kernels;
    for (const KernelSpec& spec : g.kernels) kernels.push_back(b_.kernel(spec));
    for (const auto& launches : g.launches) {
      std::vector<LaunchStep>& list = c.launches.emplace_back();
      for (const codegen::GpuChoice::Launch& x : launches) {
        LaunchStep& l = list.emplace_back();
        l.kernel = kernels[x.kernel];
        l.buffers = b_.buffers(g.buffers);
        if (x.partial) l.buffers.push_back(c.partial);
        l.symbols = x.symbols.empty() ? g.symbols : x.symbols;
        l.symbols.insert(l.symbols.end(), x.more.begin(), x.more.end());
        l.work_items = x.work_items;
      }
    }
    if (library) add_library(b_, *library, c);
    for (const LibraryCall& l : c.library) {
      p.writes.push_back(l.workspace);
      if (l.bias >= 0 && std::find(p.reads.begin(), p.reads.end(), l.bias) == p.reads.end()) p.reads.push_back(l.bias);
    }
    p.op = std::move(c);
    out.push_back(std::move(p));
  }

  OneQuery find_one_query(const std::vector<Step>& steps) const {
    OneQuery found;
    for (const codegen::AttentionStepParts& parts : codegen::find_attention_steps(steps)) {
      auto made = codegen::generate_gpu_attention_step(parts, options_.target);
      if (!made) continue;
      const auto step = std::make_shared<const codegen::GpuAttentionStep>(std::move(*made));
      for (const Step* s : {parts.rotation, parts.append, parts.attention}) found[s] = step;
    }
    return found;
  }

  void lower_attention_step(const Step& s, const codegen::GpuAttentionStep& one, std::vector<ProgramStep>& out) {
    const auto& t = std::get<TileKernel>(s.op);
    const auto* op = t.node->as<AttentionOp>();
    const int partial = b_.temporary(DType::kFloat32, {one.partial});
    ProgramStep p;
    p.origin = s.origin;
    // It writes to the cache that it reads, and must keep what other launches have written there.
    p.writes = {b_.buffer(t.out), b_.buffer(const_cast<Value*>(op->k->value)),
                b_.buffer(const_cast<Value*>(op->v->value))};
    p.reads = b_.buffers(one.buffers);
    p.reads.insert(p.reads.end(), p.writes.begin(), p.writes.end());
    p.reads.push_back(partial);
    p.writes.push_back(partial);
    for (const codegen::GpuAttentionStep::Kernel& k : one.kernels) {
      LaunchStep l;
      l.kernel = b_.kernel(k.spec);
      l.buffers = b_.buffers(one.buffers);
      l.buffers.push_back(partial);
      l.symbols = one.symbols;
      l.work_items = k.blocks * kGpuThreads;
      l.work = one.work;
      l.limit = one.limit;
      ProgramStep own;
      own.origin = p.origin;
      own.reads = p.reads;
      own.writes = p.writes;
      own.when = k.when;
      own.op = std::move(l);
      out.push_back(std::move(own));
    }
    out.back().writes = {b_.buffer(t.out)};  // the launch that merges the splits
  }

  RowTiles find_row_tiles(const std::vector<Step>& steps) const {
    RowTiles found;
    for (const Step& s : steps) {
      const auto* rows = std::get_if<LoopKernel>(&s.op);
      if (!rows || rows->stages.size() != 2 || s.writes.size() != 1) continue;
      const Value* made = s.writes[0];
      bool ok = true;
      for (Value* v : made->graph->outputs) ok &= storage_of(v) != made;
      RowTiles users;
      for (const Step& u : steps) {
        if (std::find(u.reads.begin(), u.reads.end(), made) == u.reads.end()) continue;
        const auto* t = std::get_if<TileKernel>(&u.op);
        ok = ok && t && t->node->as<MatMulOp>() && users.size() < kMostRowTiles;
        if (!ok) break;
        auto tile = codegen::generate_gpu_row_tile(*t, *rows, options_.target, selection());
        ok = tile.has_value();
        if (!ok) break;
        const Expr few = compare(Op::kLe, tile->m, tile->rows);
        users[&u] = {std::move(tile), few};
      }
      if (!ok || users.empty()) continue;
      found[&s] = {{}, users.begin()->second.few};
      found.merge(users);
    }
    return found;
  }

  void lower_row_tile(const Step& s, const RowTile& r, std::vector<ProgramStep>& out) {
    ProgramStep p = b_.step_like(s), own;
    own.origin = p.origin;
    own.writes = p.writes;
    for (const int b : b_.buffers(r.tile->source.buffers))
      if (std::find(own.writes.begin(), own.writes.end(), b) == own.writes.end()) own.reads.push_back(b);
    own.when = r.few;
    add_choice(r.tile->source, std::move(own), out);
    p.reads.insert(p.reads.end(), p.writes.begin(), p.writes.end());  // keep what the other launch has written
    p.when = logical_not(r.few);
    lower_gemm(std::get<TileKernel>(s.op), std::move(p), out);
  }

  // Lowers a GEMM. With quantised weights there are two forms; the number of rows decides which one runs.
  void lower_gemm(const TileKernel& t, ProgramStep p, std::vector<ProgramStep>& out) {
    const auto unpacked = codegen::generate_gpu_unpacked_tile(t, options_.target, selection());
    const auto direct = codegen::generate_gpu_tile(t, options_.target, selection());
    if (!unpacked) return add_choice(direct, std::move(p), out, &t);
    const Expr few = compare(Op::kLe, unpacked->rows, unpacked->above), many = both(p.when, logical_not(few));
    ProgramStep step = copy_of(p);
    step.when = both(p.when, few);
    add_choice(direct, std::move(step), out);
    const int buffer = unpacked->kept ? unpack_at_load(*unpacked, p.origin) : unpack(*unpacked, p.origin, many, out);
    step = std::move(p);
    step.when = many;
    step.reads.insert(step.reads.end(), step.writes.begin(), step.writes.end());  // as for the direct form
    step.reads.push_back(buffer);
    add_choice(unpacked->source, std::move(step), out);
  }

  /// Appends a step that unpacks the weights if `when`; returns their buffer.
  int unpack(const codegen::GpuUnpackedTile& t, const std::string& origin, const Expr& when,
             std::vector<ProgramStep>& out) {
    const int buffer =
        b_.temporary(t.unpacked->dtype, {select(when, idx::max(1, t.unpacked->elements()), Expr(std::int64_t{1}))});
    b_.place(t.unpacked, buffer);
    ProgramStep p;
    p.origin = origin;
    p.when = when;
    LaunchStep l;
    l.kernel = b_.kernel(t.unpack);
    l.buffers = b_.buffers(t.buffers);
    p.reads = l.buffers;
    p.writes = {buffer};
    l.buffers.push_back(buffer);
    l.symbols = t.symbols;
    l.work_items = t.threads;
    l.work = 1;
    p.op = std::move(l);
    out.push_back(std::move(p));
    return buffer;
  }

  /// The same, once, when the program is loaded.
  int unpack_at_load(const codegen::GpuUnpackedTile& t, const std::string& origin) {
    return compute(t.unpacked, t.elements, origin, b_.program().init.steps);
  }

  /// The buffer of a value that is computed when the program is loaded, if what it is computed from is in memory then.
  int rearrange(const std::shared_ptr<Value>& value, const LoopKernel& elements, const std::string& origin,
                std::vector<ProgramStep>& out) {
    bool loaded = !b_.in_init;
    visit(elements.stages[0].body, [&](const Expr& x) { loaded &= x->op != Op::kLoad || b_.is_loaded(x->value); });
    return compute(value, elements, origin, loaded ? b_.program().init.steps : out);
  }

  int compute(const std::shared_ptr<Value>& value, const LoopKernel& elements, const std::string& origin,
              std::vector<ProgramStep>& out) {
    const int buffer = b_.temporary(value->dtype, value->shape);
    b_.place(value, buffer);
    LaunchStep l = lower_loop(elements);
    ProgramStep p;
    p.origin = origin;
    for (const int b : l.buffers)
      if (b != buffer) p.reads.push_back(b);
    p.writes = {buffer};
    p.op = std::move(l);
    out.push_back(std::move(p));
    return buffer;
  }

  static ProgramStep copy_of(const ProgramStep& p) {
    ProgramStep c;
    c.origin = p.origin;
    c.reads = p.reads;
    c.writes = p.writes;
    c.when = p.when;
    return c;
  }

  ProgramBuilder& b_;
  const BuildOptions& options_;
  RowTiles row_tiles_;
  OneQuery one_query_;
  std::unordered_map<const Value*, bool> for_halves_;
};

class GpuLowering : public Lowering {
 public:
  explicit GpuLowering(const BuildOptions& options) : target_(options.target) {}
  FuseOptions fuse_options() const override { return codegen::gpu_fuse_options(target_); }
  Target target() const override { return parse_target(target_); }
  bool gpu_dialect() const override { return true; }
  std::size_t kernels_per_object() const override {
    return static_cast<std::size_t>(chip_of(target_).policy.kernels_per_module);
  }
  std::unique_ptr<BlockLowering> block(ProgramBuilder& builder, const std::vector<Step>& steps) const override {
    return std::make_unique<GpuBlock>(builder, steps);
  }

 private:
  std::string target_;
};

}  // namespace

std::unique_ptr<Lowering> gpu_lowering(const BuildOptions& options) { return std::make_unique<GpuLowering>(options); }

}  // namespace sardonyx
