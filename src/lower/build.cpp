// From a schedule to steps over numbered buffers, and kernels to machine code.
#include "lower/build.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "codegen/attention_codegen.h"
#include "codegen/attention_step.h"
#include "codegen/contraction.h"
#include "codegen/gpu_routines.h"
#include "codegen/loop_codegen.h"
#include "codegen/tile_codegen.h"
#include "compile/backend.h"
#include "compile/compiler.h"
#include "fuse/schedule.h"
#include "kernel_sources.h"
#include "lower/library_step.h"
#include "target/chip.h"
#include "tiles/match.h"

namespace sardonyx {
namespace {

// Kernels of one translation unit: enough to share the headers' cost, few enough to compile in parallel. On the host
// and AMD's GPUs each is an object to be linked or loaded. What PTX comes of is large (the kernels of Hopper's matrix
// instructions) and taken apart by kernels in the end: ResNet-50 takes 18 s of CPU time in twos, 20 in fours and ones,
// 23 in eights.
constexpr std::size_t kKernelsPerObject = 8, kKernelsPerPtx = 2;

constexpr std::size_t kMostRowTiles = 3;  // products of one left operand that make its rows, each for itself

class Builder {
 public:
  Builder(Graph& g, const BuildOptions& options)
      : graph_(g), options_(options), program_(std::make_shared<Program>()) {}

  std::shared_ptr<Program> run() {
    for (const Value* v : graph_.inputs)
      for (const Expr& d : v->shape)
        if (d->op == Op::kSym) input_symbols_.insert(d->i);
    Schedule schedule = fuse(graph_, fuse_options_of(options_));
    for (Value* v : graph_.inputs) program_->input_names.push_back(v->name);
    program_->output_names = graph_.output_names;
    lower_graph(schedule, program_->main);
    for (int k = 0; k < graph_.symbols().size(); ++k) program_->symbol_names.push_back(graph_.symbols().info(k).name);
    compile_kernels();
    return program_;
  }

 private:
  bool is_gpu() const { return !options_.target.empty(); }
  std::size_t kernels_per_object() const {
    return is_gpu() && chip_of(options_.target).is_nvidia() ? kKernelsPerPtx : kKernelsPerObject;
  }

  int buffer(Value* v) {
    v = storage_of(v);
    auto it = ids_.find(v);
    if (it != ids_.end()) return it->second;
    BufferInfo b;
    b.dtype = v->dtype;
    b.shape = v->shape;
    b.storage_order = v->storage_order;
    b.name = v->name;
    if (v->is_constant()) {
      b.kind = BufferInfo::Kind::kConstant;
      b.constant = static_cast<int>(program_->constants.size());
      program_->constants.push_back(v->constant());
    } else if (!v->producer && !v->graph->parent()) {
      b.kind = BufferInfo::Kind::kInput;
    }
    program_->buffers.push_back(std::move(b));
    return ids_[v] = static_cast<int>(program_->buffers.size()) - 1;
  }

  std::vector<TensorRef> refs(const std::vector<Value*>& vs) {
    std::vector<TensorRef> out;
    for (Value* v : vs) out.push_back({buffer(v), v->shape});
    return out;
  }

  std::vector<int> buffers(const std::vector<Value*>& vs) {
    std::vector<int> out;
    for (Value* v : vs) out.push_back(buffer(v));
    return out;
  }

  codegen::TileSelection selection() const {
    codegen::TileSelection s{options_.choices, options_.all_tilings, {}};
    // What steps of init write is not there before they have run.
    if (!in_init_)
      s.loaded = [this](const Value* v) {
        const Value* stored = storage_of(const_cast<Value*>(v));
        return stored->is_constant() || loaded_.count(stored) > 0;
      };
    return s;
  }

  void lower_graph(Schedule& s, Block& block) {
    block.inputs = refs(s.graph->inputs);
    const bool outer = in_init_;
    in_init_ = true;
    std::vector<ProgramStep> init = lower_steps(s.init);  // of constants only, also in a nested graph: once for all
    in_init_ = outer;
    for (const Step& step : s.init)
      for (Value* v : step.writes) loaded_.insert(storage_of(v));
    program_->init.steps.insert(program_->init.steps.end(), std::make_move_iterator(init.begin()),
                                std::make_move_iterator(init.end()));
    block.steps = lower_steps(s.steps);
    block.outputs = refs(s.graph->outputs);
  }

  std::vector<ProgramStep> lower_steps(std::vector<Step>& steps) {
    std::vector<ProgramStep> out;
    const RowTiles row_tiles = find_row_tiles(steps);
    const OneQuery one_query = find_one_query(steps);
    for (Step& s : steps) {
      const std::size_t first = out.size();
      const auto replaced = one_query.find(&s);
      const auto unless_replaced = [&] {
        if (replaced == one_query.end()) return;
        for (std::size_t k = first; k < out.size(); ++k) {
          if (auto* a = std::get_if<AttentionLaunchStep>(&out[k].op)) {
            a->needed = select(replaced->second->applies, 0, 1);
            continue;
          }
          auto& l = std::get<LaunchStep>(out[k].op);
          l.points = select(replaced->second->applies, 0, l.points);
        }
        if (std::holds_alternative<TileKernel>(s.op)) lower_attention_step(s, *replaced->second, out);
      };
      if (lower_gpu_routine(s, out)) {
        unless_replaced();
        continue;
      }
      ProgramStep p;
      p.origin = s.origin;
      for (Value* v : s.reads) p.reads.push_back(buffer(v));
      for (Value* v : s.writes) p.writes.push_back(buffer(v));
      if (const auto made = row_tiles.find(&s); made != row_tiles.end()) {
        lower_row_tile(s, made->second, p, out);
        continue;
      }
      if (auto* k = std::get_if<LoopKernel>(&s.op))
        p.op = lower_loop(*k);
      else if (auto* t = std::get_if<TileKernel>(&s.op); t && is_gpu() && t->node->as<AttentionOp>()) {
        p.op = lower_attention_forms(codegen::generate_gpu_attention(*t, options_.target, selection()), *t, p);
        out.push_back(std::move(p));
        unless_replaced();
        continue;
      } else if (t && is_gpu() && t->node->as<MatMulOp>()) {
        lower_product(*t, 1, p, out);
        continue;
      } else if (t)
        p.op = lower_tile(*t);
      else
        p.op = lower_node(std::get<NodeStep>(s.op));
      if (const auto* tile = std::get_if<TileLaunchStep>(&p.op)) add_room(*tile, p);
      out.push_back(std::move(p));
      unless_replaced();
    }
    return out;
  }

  // Attention's steps that one kernel replaces where there is one query a sequence: what replaces each of them.
  using OneQuery = std::unordered_map<const Step*, std::shared_ptr<const codegen::GpuAttentionStep>>;

  OneQuery find_one_query(const std::vector<Step>& steps) const {
    OneQuery found;
    if (!is_gpu()) return found;
    for (const codegen::AttentionStepParts& parts : codegen::find_attention_steps(steps)) {
      auto made = codegen::generate_gpu_attention_step(parts, options_.target);
      if (!made) continue;
      const auto step = std::make_shared<const codegen::GpuAttentionStep>(std::move(*made));
      for (const Step* s : {parts.rotation, parts.append, parts.attention}) found[s] = step;
    }
    return found;
  }

  void lower_attention_step(const Step& s, const codegen::GpuAttentionStep& one, std::vector<ProgramStep>& out) {
    ProgramStep p;
    p.origin = s.origin;
    const auto& t = std::get<TileKernel>(s.op);
    // It writes what it reads of the cache; what other launches have written of any of these stays.
    for (Value* v : one.source.buffers) p.reads.push_back(buffer(v));
    for (const Value* v :
         {static_cast<const Value*>(t.out), t.node->as<AttentionOp>()->k->value, t.node->as<AttentionOp>()->v->value})
      p.writes.push_back(buffer(const_cast<Value*>(v)));
    lower_gpu_attention(one.source, t, p, out);
    out.back().writes = {buffer(t.out)};  // what puts parts together
  }

  // Working memory of a tile kernel is written by its step.
  static void add_room(const TileLaunchStep& tile, ProgramStep& p) {
    if (tile.partial >= 0) p.writes.push_back(tile.partial);
    for (const TileLaunchStep::Library& l : tile.library) {
      p.writes.push_back(l.workspace);
      if (l.bias >= 0 && std::find(p.reads.begin(), p.reads.end(), l.bias) == p.reads.end()) p.reads.push_back(l.bias);
    }
  }

  // Products that make their rows themselves where there are few of them, and the steps that do it for others.
  struct RowTile {
    std::optional<codegen::GpuRowTile> tile;  // empty: the step that makes rows
    Expr rows, most;                          // how many there are; for how many the products make them
  };
  using RowTiles = std::unordered_map<const Step*, RowTile>;

  RowTiles find_row_tiles(const std::vector<Step>& steps) const {
    RowTiles found;
    if (!is_gpu()) return found;
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
        const Expr m = tile->source.m, most = tile->rows;
        users[&u] = {std::move(tile), m, most};
      }
      if (!ok || users.empty()) continue;
      found[&s] = {{}, users.begin()->second.rows, users.begin()->second.most};
      found.merge(users);
    }
    return found;
  }

  void lower_row_tile(Step& s, const RowTile& r, ProgramStep& p, std::vector<ProgramStep>& out) {
    const Expr few = idx::max(0, idx::min(1, r.most + 1 - r.rows)), many = idx::max(0, idx::min(1, r.rows - r.most));
    if (auto* k = std::get_if<LoopKernel>(&s.op)) {
      LaunchStep l = lower_loop(*k);
      l.points = l.points * many;
      p.op = std::move(l);
      out.push_back(std::move(p));
      return;
    }
    const auto& t = std::get<TileKernel>(s.op);
    ProgramStep own;
    own.origin = p.origin;
    own.writes = p.writes;
    TileLaunchStep step = launch_of(r.tile->source);
    for (const int b : step.buffers)
      if (std::find(own.writes.begin(), own.writes.end(), b) == own.writes.end()) own.reads.push_back(b);
    step.batches = step.batches * few;
    own.op = std::move(step);
    out.push_back(std::move(own));
    p.reads.insert(p.reads.end(), p.writes.begin(), p.writes.end());  // what the other launch has written stays
    lower_product(t, many, p, out);
  }

  // A product, `times` 1 or 0: with weights of few bits in two forms, of which one is launched.
  void lower_product(const TileKernel& t, const Expr& times, const ProgramStep& p, std::vector<ProgramStep>& out) {
    const auto unpacked = codegen::generate_gpu_unpacked_tile(t, options_.target, selection());
    const Expr above = unpacked ? Expr(unpacked->above) : Expr(0);
    const auto add = [&](TileLaunchStep step, const Expr& when) {
      ProgramStep own;
      own.origin = p.origin;
      own.reads = p.reads;
      own.writes = p.writes;
      step.batches = step.batches * times * when;
      add_room(step, own);
      own.op = std::move(step);
      out.push_back(std::move(own));
    };
    const codegen::GpuTileSource direct = codegen::generate_gpu_tile(t, options_.target, selection());
    if (!unpacked) {
      TileLaunchStep step = launch_of(direct);
      add_library(library_builder(), t, direct, step);
      return add(std::move(step), 1);
    }
    const Expr& m = unpacked->source.m;
    const Expr many = idx::max(0, idx::min(1, m - above)), few = idx::max(0, idx::min(1, above + 1 - m));
    add(launch_of(direct), few);
    BufferInfo room;
    room.dtype = unpacked->unpacked->dtype;
    room.shape = {idx::max(1, unpacked->unpacked->elements() * many * times)};
    const int unpacked_buffer = static_cast<int>(program_->buffers.size());
    program_->buffers.push_back(std::move(room));
    ids_[unpacked->unpacked.get()] = unpacked_buffer;
    unpacked_.push_back(unpacked->unpacked);
    ProgramStep unpack;
    unpack.origin = p.origin;
    LaunchStep l;
    l.kernel = kernel(unpacked->unpack);
    l.buffers = buffers(unpacked->buffers);
    unpack.reads = l.buffers;
    unpack.writes = {unpacked_buffer};
    l.buffers.push_back(unpacked_buffer);
    l.symbols = unpacked->symbols;
    l.points = unpacked->threads * many * times;
    l.work = 1;
    unpack.op = std::move(l);
    out.push_back(std::move(unpack));
    add(launch_of(unpacked->source), many);
    out.back().reads.insert(out.back().reads.end(), p.writes.begin(), p.writes.end());  // as the direct form wrote it
    out.back().reads.push_back(unpacked_buffer);
  }

  // A routine as launches of device code, if it has that form.
  bool lower_gpu_routine(const Step& s, std::vector<ProgramStep>& out) {
    const auto* step = std::get_if<NodeStep>(&s.op);
    if (!is_gpu() || !step) return false;
    const auto routine = codegen::generate_gpu_routine(*step->node);
    if (!routine) return false;
    std::vector<int> tensors = buffers(step->node->inputs);
    for (Value* v : step->node->outputs) tensors.push_back(buffer(v));
    for (const auto& room : routine->room) {
      BufferInfo b;
      b.dtype = room.dtype;
      b.shape = {room.elements};
      tensors.push_back(static_cast<int>(program_->buffers.size()));
      program_->buffers.push_back(std::move(b));
    }
    const auto at = [&](int k) { return tensors[static_cast<std::size_t>(k)]; };
    for (const auto& launch : routine->launches) {
      ProgramStep p;
      p.origin = s.origin;
      LaunchStep l;
      l.kernel = kernel(launch.kernel);
      for (const int k : launch.tensors) l.buffers.push_back(at(k));
      p.reads = l.buffers;  // also what it writes: earlier launches may have written parts
      for (const int k : launch.writes)
        if (std::find(p.writes.begin(), p.writes.end(), at(k)) == p.writes.end()) p.writes.push_back(at(k));
      l.symbols = launch.values;
      l.points = launch.threads;
      l.work = 1;
      l.limit = routine->limit;
      l.repeat = launch.repeat;
      p.op = std::move(l);
      out.push_back(std::move(p));
    }
    return true;
  }

  // The number of the kernel with this spec.
  int kernel(const KernelSpec& spec) {
    std::vector<int>& same_text = kernel_ids_[spec.body];
    for (const int k : same_text)
      if (program_->kernels[static_cast<std::size_t>(k)].spec == spec) return k;
    const int number = static_cast<int>(program_->kernels.size());
    const std::string prefix = spec.family == KernelFamily::kAttention ? "attention" : "k";
    program_->kernels.push_back(
        {prefix + std::to_string(number), spec, number / static_cast<int>(kernels_per_object())});
    same_text.push_back(number);
    return number;
  }

  TileLaunchStep lower_gpu_tile(const TileKernel& t) {
    const codegen::GpuTileSource s = codegen::generate_gpu_tile(t, options_.target, selection());
    TileLaunchStep step = launch_of(s);
    add_library(library_builder(), t, s, step);
    return step;
  }

  LibraryBuilder library_builder() {
    return {options_, *program_, [this](Value* v) { return buffer(v); }};
  }

  TileLaunchStep launch_of(const codegen::GpuTileSource& s) {
    TileLaunchStep step;
    for (const auto& k : s.kernels) {
      step.kernels.push_back(kernel(k.spec));
      step.names.push_back(k.name);
    }
    step.problem = s.problem;
    for (const codegen::TunedSize& x : s.tuned) {
      const auto at = std::find(step.names.begin(), step.names.end(), x.candidate);
      if (at != step.names.end())
        step.tuned.push_back({x.batches, x.m, x.n, x.k, static_cast<std::int32_t>(at - step.names.begin())});
    }
    if (s.partial) {
      BufferInfo b;
      b.shape = {s.partial};
      step.partial = static_cast<int>(program_->buffers.size());
      program_->buffers.push_back(std::move(b));
      step.finish = kernel(s.finish);
    }
    step.tilings = s.tilings;
    step.copied_a = {s.copied_a.buffer, s.copied_a.at.offset, s.copied_a.at.pitch, s.copied_a.at.batch};
    step.copied_b = {s.copied_b.buffer, s.copied_b.at.offset, s.copied_b.at.pitch, s.copied_b.at.batch};
    if (s.windows) step.windows.push_back(*s.windows);
    step.buffers = buffers(s.buffers);
    step.symbols = s.symbols;
    step.batches = s.batches;
    step.m = s.m;
    step.n = s.n;
    step.k = s.k;
    return step;
  }

  static Expr operations_of(const TileKernel& attention) {
    // batch, head, query, key, elements of a key and of a value
    const Exprs& vars = attention.node->as<AttentionOp>()->vars;
    Expr operations = 2 * (vars[4]->args[0] + vars[5]->args[0]);
    for (std::size_t v = 0; v < 4; ++v) operations = operations * vars[v]->args[0];
    return operations;
  }

  AttentionLaunchStep lower_attention_forms(const codegen::GpuAttentionForms& g, const TileKernel& t, ProgramStep& p) {
    AttentionLaunchStep a;
    a.rule = g.rule;
    a.problem = g.problem;
    a.batches = g.batches;
    a.m = g.m;
    a.n = g.n;
    a.k = g.k;
    a.work = operations_of(t);
    a.limit = g.source.limit;
    if (g.source.partial) {
      BufferInfo b;
      b.shape = {g.source.partial};
      a.partial = static_cast<int>(program_->buffers.size());
      program_->buffers.push_back(std::move(b));
      p.writes.push_back(a.partial);
    }
    for (const auto& form : g.forms) {
      AttentionLaunchStep::Form& f = a.forms.emplace_back();
      f.name = form.name;
      f.applies = form.applies;
      for (const auto& launch : form.launches) {
        const codegen::GpuAttentionKernel& k = g.source.kernels[launch.kernel];
        LaunchStep l;
        l.kernel = kernel(k.spec);
        l.buffers = buffers(g.source.buffers);
        if (k.partial) l.buffers.push_back(a.partial);
        l.symbols = g.source.symbols;
        l.symbols.push_back(launch.parts);
        l.points = launch.points * kGpuThreads;
        l.work = a.work;
        f.launches.push_back(std::move(l));
      }
    }
    for (const codegen::TunedSize& x : g.tuned)
      for (std::size_t k = 0; k < a.forms.size(); ++k)
        if (a.forms[k].name == x.candidate)
          a.tuned.push_back({x.batches, x.m, x.n, x.k, static_cast<std::int32_t>(k), ""});
    return a;
  }

  // Several launches, which share working memory; `step` has what they read and write.
  void lower_gpu_attention(const codegen::GpuAttentionSource& s, const TileKernel& t, const ProgramStep& step,
                           std::vector<ProgramStep>& out) {
    int partial = -1;
    if (s.partial) {
      BufferInfo b;
      b.shape = {s.partial};
      partial = static_cast<int>(program_->buffers.size());
      program_->buffers.push_back(std::move(b));
    }
    const Expr operations = operations_of(t);
    for (const codegen::GpuAttentionKernel& k : s.kernels) {
      LaunchStep l;
      l.kernel = kernel(k.spec);
      l.buffers = buffers(s.buffers);
      if (k.partial) l.buffers.push_back(partial);
      l.symbols = s.symbols;
      l.points = k.points * kGpuThreads;
      l.work = operations;
      l.limit = s.limit;
      ProgramStep p;
      p.origin = step.origin;
      p.reads = step.reads;
      p.writes = step.writes;
      p.reads.insert(p.reads.end(), p.writes.begin(), p.writes.end());  // what an earlier launch has written stays
      if (k.partial) {
        p.reads.push_back(partial);
        p.writes.push_back(partial);
      }
      p.op = std::move(l);
      out.push_back(std::move(p));
    }
  }

  decltype(ProgramStep::op) lower_tile(const TileKernel& t) {
    if (is_gpu()) return lower_gpu_tile(t);
    std::string why;
    if (t.node->as<MatMulOp>()) {
      const auto m = tiles::match_gemm(t, why);
      check(m.has_value(), "{}: a matrix product lost its kernel: {}", t.node->origin, why);
      GemmStep g{buffer(m->a), buffer(m->b), buffer(m->out), m->batch_a, m->batch_b, m->m,
                 m->n,         m->k,         m->trans_a,     m->trans_b, {}};
      g.post = post_infos(m->post);
      return g;
    }
    if (t.node->as<AttentionOp>()) {
      const auto m = tiles::match_attention(t, why);
      check(m.has_value(), "{}: attention lost its kernel: {}", t.node->origin, why);
      auto ref = [&](const tiles::HeadTensor& h) {
        return h.value ? HeadRef{buffer(h.value), h.offset, h.strides} : HeadRef{};
      };
      AttentionStep a{ref(m->q),
                      ref(m->k),
                      ref(m->v),
                      ref(m->bias),
                      ref(m->out),
                      ref(m->begin),
                      ref(m->end),
                      ref(m->sink),
                      m->batch,
                      m->heads,
                      m->queries,
                      m->keys,
                      m->head_dim,
                      m->value_dim,
                      m->group,
                      static_cast<float>(m->scale),
                      static_cast<float>(m->softcap),
                      m->zero_empty};
      return a;
    }
    const auto m = tiles::match_conv(t, true, why);
    check(m.has_value(), "{}: a convolution lost its kernel: {}", t.node->origin, why);
    ConvStep c;
    c.x = buffer(m->x);
    c.w = buffer(m->w);
    c.bias = m->bias ? buffer(m->bias) : -1;
    c.out = buffer(m->out);
    c.strides = m->op->strides;
    c.dilations = m->op->dilations;
    c.pads_begin = m->op->pads_begin;
    c.pads_end = m->op->pads_end;
    c.groups = m->op->groups;
    c.transposed = m->op->transposed;
    c.channels_last = m->layout == host::ImageLayout::kChannelsLast;
    c.x_shape = m->x->shape;
    c.w_shape = m->w->shape;
    c.out_shape = t.node->outputs[0]->shape;
    c.post = post_infos(m->post);
    return c;
  }

  std::vector<PostInfo> post_infos(const std::vector<tiles::PostStep>& steps) {
    std::vector<PostInfo> out;
    for (const tiles::PostStep& s : steps)
      out.push_back({s.op.kind, s.op.alpha, s.op.beta, s.op.dtype, s.operand ? buffer(s.operand) : -1, s.dims});
    return out;
  }

  // Kernels of GPUs compute in float32 what they keep in 16 bits.
  static LoopKernel widened(LoopKernel k) {
    for (Stage& s : k.stages) s.body = codegen::widened_result(s.body, s.out->dtype);
    return k;
  }

  LaunchStep lower_loop(const LoopKernel& k) {
    LaunchStep l;
    if (is_gpu()) {
      const codegen::GpuLoopSource s = codegen::generate_gpu_loop(
          widened(k),
          {[this](std::int64_t id) { return input_symbols_.count(id) > 0; }, options_.precision != DType::kFloat32});
      l.kernel = kernel(s.kernel);
      l.buffers = buffers(s.buffers);
      l.symbols = s.values;
      l.divisors = s.divisors;
      l.points = s.threads;
      l.work = s.work;
      l.limit = s.limit;
      return l;
    }
    const codegen::LoopSource s = codegen::generate_host_loop(k);
    l.kernel = kernel(s.kernel);
    l.buffers = buffers(s.buffers);
    l.symbols = s.symbols;
    l.points = s.points;
    l.work = s.work;
    return l;
  }

  decltype(ProgramStep::op) lower_node(NodeStep& s) {
    Node& n = *s.node;
    if (const auto* r = n.as<RoutineOp>())
      return RoutineStep{r->name, refs(n.inputs), refs(n.outputs), r->params, r->floats};
    if (const auto* b = n.as<BindOp>()) {
      BindStep step{buffer(n.inputs[0]), {}};
      for (const Expr& e : b->symbols) step.symbols.push_back(static_cast<int>(e->i));
      return step;
    }
    if (const auto* c = n.as<CheckOp>()) return CheckStep{c->condition, c->message, c->assumption};
    if (const auto* i = n.as<IfOp>()) {
      IfStep step;
      step.condition = i->condition;
      step.then_block = std::make_unique<Block>();
      step.else_block = std::make_unique<Block>();
      lower_graph(*s.bodies[0], *step.then_block);
      lower_graph(*s.bodies[1], *step.else_block);
      step.then_symbols = symbol_steps(i->then_symbols);
      step.else_symbols = symbol_steps(i->else_symbols);
      step.outputs = refs(n.outputs);
      return step;
    }
    const auto* w = n.as<WhileOp>();
    check(w != nullptr, "{}: a node of unknown kind", n.origin);
    WhileStep step;
    step.body = std::make_unique<Block>();
    lower_graph(*s.bodies[0], *step.body);
    step.carried = w->carried;
    step.stacked = w->stacked;
    step.initial = refs({n.inputs.begin(), n.inputs.begin() + w->carried});
    step.outputs = refs(n.outputs);
    if (w->iteration) step.iteration = static_cast<int>(w->iteration->i);
    if (w->trips) step.trips = static_cast<int>(w->trips->i);
    step.trip_count = w->trip_count;
    step.condition = w->condition;
    step.next_condition = w->next_condition;
    for (const auto& d : w->carried_dims)
      step.carried_dims.push_back({static_cast<int>(d.symbol->i), d.initial, d.next});
    step.stacked_dims = symbol_steps(w->stacked_dims);
    return step;
  }

  static std::vector<SymbolStep> symbol_steps(const std::vector<SymbolBinding>& list) {
    std::vector<SymbolStep> out;
    for (const SymbolBinding& b : list) out.push_back({static_cast<int>(b.symbol->i), b.value});
    return out;
  }

  void compile_kernels() {
    std::vector<SourceFile> headers;
    for (const EmbeddedFile& f : kKernelSources) headers.push_back({f.name, std::string(f.text())});
    const Target target = is_gpu() ? parse_target(options_.target) : host_target();
    program_->target = target.arch;
    std::vector<CompileJob> jobs;
    for (std::size_t k = 0; k < program_->kernels.size(); k += kernels_per_object()) {
      CompileJob job;
      job.headers = headers;
      job.target = target;
      job.options.extra_cc1 = {"-fwrapv"};
      const std::size_t end = std::min(k + kernels_per_object(), program_->kernels.size());
      std::vector<const KernelSpec*> specs;
      for (std::size_t j = k; j < end; ++j) specs.push_back(&program_->kernels[j].spec);
      job.source = includes_of(specs, is_gpu());
      for (std::size_t j = k; j < end; ++j)
        job.source += definition_of(program_->kernels[j].spec, program_->kernels[j].symbol, is_gpu());
      jobs.push_back(std::move(job));
    }
    program_->objects = compile_all(jobs, options_.threads, options_.cache, options_.progress);
    release_compiler_memory();
  }

  Graph& graph_;
  const BuildOptions& options_;
  std::shared_ptr<Program> program_;
  std::unordered_map<const Value*, int> ids_;
  std::unordered_map<std::string, std::vector<int>> kernel_ids_;  // by text
  std::unordered_set<std::int64_t> input_symbols_;                // dims of inputs
  std::vector<std::shared_ptr<Value>> unpacked_;                  // weights in working memory, known by their addresses
  std::unordered_set<const Value*> loaded_;                       // what steps of init write
  bool in_init_ = false;
};

}  // namespace

FuseOptions fuse_options_of(const BuildOptions& options) {
  FuseOptions o = options.target.empty() ? tiles::host_fuse_options() : codegen::gpu_fuse_options(options.target);
  o.disabled = !options.fuse;
  o.precision = options.precision;
  return o;
}

std::shared_ptr<Program> build_program(Graph& graph, const BuildOptions& options) {
  return Builder(graph, options).run();
}

}  // namespace sardonyx
