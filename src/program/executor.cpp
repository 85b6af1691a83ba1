// Running a program on the host: symbols from input shapes, an arena laid out once per set of shapes, then the steps.
#include "program/executor.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "host/attention.h"
#include "host/conv.h"
#include "host/gemm.h"
#include "host/parallel.h"
#include "program/memory_plan.h"
#include "routines/routine.h"
#include "tiles/by_definition.h"

namespace sardonyx {

namespace {

std::shared_ptr<void> allocate(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46)) fail(ErrorKind::kInvalidArgument, "a tensor of {} bytes is needed for these input shapes; use smaller ones", bytes);
  void* p = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return std::shared_ptr<void>(p, std::free);
}

using Kernel = void (*)(char* const*, const std::int64_t*, std::int64_t, std::int64_t);

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;  // so that their bytes can be counted
constexpr std::int64_t kGrain = 131072;  // operations worth a thread of their own

bool evaluable(const Expr& e, const SymbolValues& s) {
  bool ok = true;
  if (e->has_sym) visit(e, [&](const Expr& x) { ok &= x->op != Op::kSym || s.has(static_cast<int>(x->i)); });
  return ok;
}

std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols) {
  std::vector<std::int64_t> d;
  std::int64_t n = 1;
  for (const Expr& x : shape) {
    d.push_back(evaluate(x, symbols));
    if (d.back() < 0) fail(ErrorKind::kInvalidArgument, "these inputs give a tensor the negative dim {} ({})", d.back(), to_string(shape));
    if (d.back() && (__builtin_mul_overflow(n, d.back(), &n) || n > kMaxElements)) fail(ErrorKind::kInvalidArgument, "these inputs give a tensor of too many elements ({})", to_string(shape));
  }
  return d;
}

std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols) {
  std::size_t n = size_of(b.dtype);
  for (std::int64_t d : evaluate_dims(b.shape, symbols)) n *= static_cast<std::size_t>(d);
  return n;
}

}  // namespace

/// Where each temporary of a block is first written and last used.
struct Executor::Lives {
  std::vector<int> temporaries;
  std::unordered_map<int, std::pair<int, int>> range;  ///< INT32_MAX: an output of the block
};

void Executor::find_lives(const Block& b) {
  auto l = std::make_unique<Lives>();
  for (int k = 0; k < static_cast<int>(b.steps.size()); ++k) {
    const ProgramStep& s = b.steps[static_cast<std::size_t>(k)];
    for (int w : s.writes) {
      if (program_->buffers[static_cast<std::size_t>(w)].kind != BufferInfo::Kind::kTemporary) continue;
      if (l->range.emplace(w, std::make_pair(k, k)).second) l->temporaries.push_back(w);
    }
    for (int r : s.reads) {
      auto it = l->range.find(r);
      if (it != l->range.end()) it->second.second = std::max(it->second.second, k);
    }
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      find_lives(*i->then_block);
      find_lives(*i->else_block);
    }
    if (const auto* w = std::get_if<WhileStep>(&s.op)) find_lives(*w->body);
  }
  for (const TensorRef& o : b.outputs) {
    auto it = l->range.find(o.buffer);
    if (it != l->range.end()) it->second.second = INT32_MAX;
  }
  lives_[&b] = std::move(l);
}

/// What one run at a time uses, kept between runs: an arena, and where things lie in it for the shapes last seen.
struct Executor::Context {
  std::shared_ptr<void> arena;
  std::size_t arena_size = 0;
  std::shared_ptr<void> scratch;  // working memory of tile kernels
  std::size_t scratch_size = 0;
  std::map<std::vector<std::int64_t>, ArenaPlan> plans;  // by values of the inputs' symbols
};

struct Executor::Run {
  Executor& e;
  const Program& p;
  Context& context;
  const RunOptions& options;
  int threads;
  SymbolValues symbols;
  std::vector<void*> address;
  std::unordered_map<int, std::shared_ptr<void>> owned;  // buffers outside of the arena

  std::int64_t eval(const Expr& x) const { return evaluate(x, symbols); }

  std::vector<std::int64_t> dims(const Exprs& shape) const { return evaluate_dims(shape, symbols); }
  std::size_t bytes(int buffer) const { return buffer_bytes(p.buffers[static_cast<std::size_t>(buffer)], symbols); }

  void* at(int buffer) const {
    void* a = address[static_cast<std::size_t>(buffer)];
    check(a != nullptr, "buffer {} is not in memory", buffer);
    return a;
  }

  routines::Tensor tensor(const TensorRef& r) const { return {at(r.buffer), p.buffers[static_cast<std::size_t>(r.buffer)].dtype, dims(r.shape)}; }

  void launch(const LaunchStep& l) {
    char* buffers[64];
    std::int64_t values[64];
    check(l.buffers.size() <= 64 && l.symbols.size() <= 64, "a kernel with {} buffers", l.buffers.size());
    for (std::size_t k = 0; k < l.buffers.size(); ++k) buffers[k] = static_cast<char*>(at(l.buffers[k]));
    for (std::size_t k = 0; k < l.symbols.size(); ++k) values[k] = eval(l.symbols[k]);
    const std::int64_t points = eval(l.points);
    if (points <= 0) return;
    const auto kernel = reinterpret_cast<Kernel>(e.kernels_[static_cast<std::size_t>(l.kernel)]);
    const std::int64_t work = std::max<std::int64_t>(1, eval(l.work));
    const std::int64_t grain = std::max<std::int64_t>(1, kGrain / work);
    host::parallel_for(points, grain, threads, [&](std::int64_t begin, std::int64_t end) { kernel(buffers, values, begin, end); });
  }

  // Post-operations with their operands' extents and addresses.
  void post_ops(const std::vector<PostInfo>& infos, std::vector<host::PostOp>& ops, std::vector<const void*>& operands) const {
    for (const PostInfo& i : infos) {
      host::PostOp op;
      op.kind = static_cast<host::PostOp::Kind>(i.kind);
      op.alpha = i.alpha;
      op.beta = i.beta;
      op.dtype = i.dtype;
      if (i.operand >= 0) {
        op.dims = dims(i.dims);
        operands.push_back(at(i.operand));
      }
      ops.push_back(std::move(op));
    }
  }

  // An addition of one value per channel (the dim `channel`) as the first post-operation is the library's bias.
  static const void* take_bias(std::vector<host::PostOp>& ops, std::vector<const void*>& operands, std::size_t channel, std::int64_t n) {
    if (ops.empty() || ops[0].kind != host::PostOp::Kind::kAddTensor || ops[0].dtype != DType::kFloat32) return nullptr;
    for (std::size_t k = 0; k < ops[0].dims.size(); ++k)
      if (ops[0].dims[k] != (k == channel ? n : 1)) return nullptr;
    const void* bias = operands[0];
    ops.erase(ops.begin());
    operands.erase(operands.begin());
    return bias;
  }

  void run_tile(const host::TileKernel& kernel, host::TileArgs& args, int weights, bool constant) {
    std::shared_ptr<host::PackedWeights> packed;
    if (constant) {
      std::lock_guard lock(e.packed_mutex_);
      auto& slot = e.packed_[weights];
      if (!slot) slot = kernel.pack(at(weights));
      packed = slot;
      args.packed = packed.get();
    } else {
      args.weights = at(weights);
    }
    const std::size_t scratch = kernel.scratch_bytes();
    if (scratch > context.scratch_size) {
      context.scratch = allocate(scratch);
      context.scratch_size = scratch;
    }
    args.scratch = context.scratch.get();
    kernel.run(args);
  }

  void gemm(const GemmStep& g) {
    host::GemmDesc d;
    d.batch_a = dims(g.batch_a);
    d.batch_b = dims(g.batch_b);
    d.m = eval(g.m);
    d.n = eval(g.n);
    d.k = eval(g.k);
    d.trans_a = g.trans_a;
    d.trans_b = g.trans_b;
    d.a = p.buffers[static_cast<std::size_t>(g.a)].dtype;
    d.b = p.buffers[static_cast<std::size_t>(g.b)].dtype;
    d.out = p.buffers[static_cast<std::size_t>(g.out)].dtype;
    d.threads = threads;
    if (bytes(g.out) == 0) return;
    std::vector<const void*> operands;
    post_ops(g.post, d.post, operands);
    if (d.k == 0) return tiles::gemm_by_definition(d, at(g.a), at(g.b), operands, at(g.out));
    host::TileArgs args;
    args.bias = take_bias(d.post, operands, std::max(d.batch_a.size(), d.batch_b.size()) + 1, d.n);
    d.bias = args.bias != nullptr;
    d.b_constant = e.constants_[static_cast<std::size_t>(g.b)] != nullptr && d.batch_b.empty();
    std::string why;
    const auto kernel = host::find_gemm(d, why);
    if (!kernel) fail(ErrorKind::kInternal, "internal error: the library refuses a matrix product of {}x{}x{}: {}", d.m, d.n, d.k, why);
    args.src = at(g.a);
    args.out = at(g.out);
    args.operands = operands;
    run_tile(*kernel, args, g.b, d.b_constant);
  }

  void conv(const ConvStep& c) {
    host::ConvDesc d;
    const auto x = dims(c.x_shape), w = dims(c.w_shape), out = dims(c.out_shape);
    d.spatial = static_cast<int>(c.strides.size());
    d.batch = x[0];
    d.in_channels = x[1];
    d.out_channels = out[1];
    d.groups = c.groups;
    for (std::size_t k = 0; k < c.strides.size(); ++k) {
      d.in[k] = x[k + 2];
      d.out[k] = out[k + 2];
      d.kernel[k] = w[k + 2];
      d.stride[k] = c.strides[k];
      d.dilation[k] = c.dilations[k];
      d.pad_begin[k] = eval(c.pads_begin[k]);
      d.pad_end[k] = eval(c.pads_end[k]);
    }
    d.transposed = c.transposed;
    d.layout = c.channels_last ? host::ImageLayout::kChannelsLast : host::ImageLayout::kChannelsFirst;
    d.src = p.buffers[static_cast<std::size_t>(c.x)].dtype;
    d.weights = p.buffers[static_cast<std::size_t>(c.w)].dtype;
    d.dst = p.buffers[static_cast<std::size_t>(c.out)].dtype;
    d.threads = threads;
    if (bytes(c.out) == 0) return;
    std::vector<const void*> operands;
    post_ops(c.post, d.post, operands);
    host::TileArgs args;
    args.bias = c.bias >= 0 ? at(c.bias) : take_bias(d.post, operands, c.channels_last ? out.size() - 1 : 1, d.out_channels);
    d.bias = args.bias != nullptr;
    d.weights_constant = e.constants_[static_cast<std::size_t>(c.w)] != nullptr;
    std::string why;
    const auto kernel = host::find_convolution(d, why);
    if (!kernel) fail(ErrorKind::kInternal, "internal error: the library refuses a convolution: {}", why);
    args.src = at(c.x);
    args.out = at(c.out);
    args.operands = operands;
    run_tile(*kernel, args, c.w, d.weights_constant);
  }

  // A tensor's first element, its distances through `strides`.
  const char* head_tensor(const HeadRef& r, host::HeadStrides& strides) const {
    strides = {eval(r.strides[0]), eval(r.strides[1]), eval(r.strides[2]), eval(r.strides[3])};
    return static_cast<const char*>(at(r.buffer)) + static_cast<std::size_t>(eval(r.offset)) * size_of(p.buffers[static_cast<std::size_t>(r.buffer)].dtype);
  }

  void attention(const AttentionStep& a) {
    host::AttentionDesc d;
    d.batch = eval(a.batch);
    d.heads = eval(a.heads);
    d.kv_heads = d.heads / a.group;
    d.queries = eval(a.queries);
    d.keys = eval(a.keys);
    d.head_dim = eval(a.head_dim);
    d.value_dim = eval(a.value_dim);
    d.scale = a.scale;
    d.threads = threads;
    if (bytes(a.out.buffer) == 0) return;
    const void* q = head_tensor(a.q, d.q);
    const void* k = head_tensor(a.k, d.k);
    const void* v = head_tensor(a.v, d.v);
    const void* mask = nullptr;
    if (a.bias.buffer >= 0) {
      d.has_mask = true;
      d.mask_type = p.buffers[static_cast<std::size_t>(a.bias.buffer)].dtype;
      mask = head_tensor(a.bias, d.mask);
    }
    const char* out = head_tensor(a.out, d.out);
    d.out.element = 1;
    d.q.element = d.v.element = 1;
    host::attention(d, static_cast<const float*>(q), static_cast<const float*>(k), static_cast<const float*>(v), mask, reinterpret_cast<float*>(const_cast<char*>(out)));
  }

  void routine(const RoutineStep& r) {
    const routines::Fn fn = routines::find(r.name);
    if (!fn) fail(ErrorKind::kInternal, "internal error: no routine '{}' on the host", r.name);
    routines::Call c;
    for (const TensorRef& t : r.inputs) c.inputs.push_back(tensor(t));
    for (const TensorRef& t : r.outputs) c.outputs.push_back(tensor(t));
    for (const Expr& x : r.params) c.params.push_back(eval(x));
    c.floats = r.floats;
    c.threads = threads;
    fn(c);
  }

  std::int64_t read_int(int buffer, std::size_t k) const {
    const void* a = at(buffer);
    switch (p.buffers[static_cast<std::size_t>(buffer)].dtype) {
      case DType::kInt64: case DType::kUInt64: return static_cast<const std::int64_t*>(a)[k];
      case DType::kInt32: return static_cast<const std::int32_t*>(a)[k];
      case DType::kUInt32: return static_cast<const std::uint32_t*>(a)[k];
      case DType::kInt16: return static_cast<const std::int16_t*>(a)[k];
      case DType::kUInt16: return static_cast<const std::uint16_t*>(a)[k];
      case DType::kInt8: return static_cast<const std::int8_t*>(a)[k];
      case DType::kUInt8: case DType::kBool: return static_cast<const std::uint8_t*>(a)[k];
      case DType::kFloat32: return static_cast<std::int64_t>(static_cast<const float*>(a)[k]);
      default: fail(ErrorKind::kUnsupported, "a size of dtype {}", name(p.buffers[static_cast<std::size_t>(buffer)].dtype));
    }
  }

  void step(const ProgramStep& s) {
    if (const auto* l = std::get_if<LaunchStep>(&s.op)) return launch(*l);
    if (const auto* g = std::get_if<GemmStep>(&s.op)) return gemm(*g);
    if (const auto* c = std::get_if<ConvStep>(&s.op)) return conv(*c);
    if (const auto* a = std::get_if<AttentionStep>(&s.op)) return attention(*a);
    if (const auto* r = std::get_if<RoutineStep>(&s.op)) return routine(*r);
    if (const auto* b = std::get_if<BindStep>(&s.op)) {
      for (std::size_t k = 0; k < b->symbols.size(); ++k) symbols.set(b->symbols[k], read_int(b->buffer, k));
      return;
    }
    if (const auto* c = std::get_if<CheckStep>(&s.op)) {
      if (!eval(c->condition)) {
        if (c->assumption) throw AssumptionFailed(c->message);
        fail(ErrorKind::kInvalidArgument, "{}", c->message);
      }
      return;
    }
    if (const auto* i = std::get_if<IfStep>(&s.op)) return branch(*i);
    loop(std::get<WhileStep>(s.op));
  }

  // ---- nested blocks

  // Runs a nested block; afterwards its outputs' memory is in the result and its other temporaries are gone.
  std::vector<std::shared_ptr<void>> nested(const Block& b) {
    const Lives& lives = *e.lives_.at(&b);
    block(b, lives);
    std::vector<std::shared_ptr<void>> out;
    for (const TensorRef& o : b.outputs) out.push_back(share(o.buffer));
    for (int t : lives.temporaries) {
      address[static_cast<std::size_t>(t)] = nullptr;
      owned.erase(t);
    }
    return out;
  }

  // The memory of a buffer, shared: nobody writes to it again. What is not owned (an input, a constant, the arena) is copied.
  std::shared_ptr<void> share(int buffer) {
    auto it = owned.find(buffer);
    if (it != owned.end()) return it->second;
    const std::size_t n = bytes(buffer);
    std::shared_ptr<void> copy = allocate(n);
    std::memcpy(copy.get(), at(buffer), n);
    return copy;
  }

  // Makes `memory` the content of an output of a control-flow step: copied if the output has its place in the arena.
  void give(const TensorRef& r, std::shared_ptr<void> memory) {
    void*& a = address[static_cast<std::size_t>(r.buffer)];
    if (a) {
      std::memcpy(a, memory.get(), bytes(r.buffer));
      return;
    }
    a = memory.get();
    owned[r.buffer] = std::move(memory);
  }

  void branch(const IfStep& s) {
    const bool taken = eval(s.condition) != 0;
    auto out = nested(taken ? *s.then_block : *s.else_block);
    for (const SymbolStep& b : taken ? s.then_symbols : s.else_symbols) symbols.set(b.symbol, eval(b.value));
    for (std::size_t k = 0; k < s.outputs.size(); ++k) give(s.outputs[k], out[k]);
  }

  void loop(const WhileStep& w) {
    for (const auto& d : w.carried_dims) symbols.set(d.symbol, eval(d.initial));
    const auto carried = static_cast<std::size_t>(w.carried);
    std::vector<std::shared_ptr<void>> values;
    for (std::size_t k = 0; k < carried; ++k) values.push_back(borrow(w.initial[k].buffer));
    std::vector<std::vector<std::shared_ptr<void>>> stacks(static_cast<std::size_t>(w.stacked));
    std::vector<std::size_t> piece(static_cast<std::size_t>(w.stacked));
    std::int64_t trips = 0;
    bool more = !w.condition || eval(w.condition) != 0;
    while (more && (!w.trip_count || trips < eval(w.trip_count))) {
      if (w.iteration >= 0) symbols.set(w.iteration, trips);
      for (std::size_t k = 0; k < carried; ++k) {
        const int b = w.body->inputs[k].buffer;
        address[static_cast<std::size_t>(b)] = values[k].get();
        owned[b] = values[k];
      }
      auto out = nested(*w.body);
      for (std::size_t k = 0; k < stacks.size(); ++k) {
        const TensorRef& r = w.body->outputs[carried + k];
        std::size_t n = size_of(p.buffers[static_cast<std::size_t>(r.buffer)].dtype);
        for (std::int64_t d : dims(r.shape)) n *= static_cast<std::size_t>(d);
        if (trips > 0 && n != piece[k]) fail(ErrorKind::kInvalidArgument, "a scan output changes its shape from one iteration to the next");
        piece[k] = n;
        stacks[k].push_back(out[carried + k]);
      }
      if (w.next_condition) more = eval(w.next_condition) != 0;
      std::vector<std::int64_t> next, stacked;
      for (const auto& d : w.carried_dims) next.push_back(eval(d.next));
      for (const SymbolStep& d : w.stacked_dims) stacked.push_back(eval(d.value));
      for (std::size_t k = 0; k < next.size(); ++k) symbols.set(w.carried_dims[k].symbol, next[k]);
      for (std::size_t k = 0; k < stacked.size(); ++k) {
        if (trips > 0 && symbols.value[static_cast<std::size_t>(w.stacked_dims[k].symbol)] != stacked[k])
          fail(ErrorKind::kInvalidArgument, "a scan output changes its shape from one iteration to the next");
        symbols.set(w.stacked_dims[k].symbol, stacked[k]);
      }
      for (std::size_t k = 0; k < carried; ++k) values[k] = out[k];
      ++trips;
    }
    for (std::size_t k = 0; k < carried && trips > 0; ++k) {
      const int b = w.body->inputs[k].buffer;
      address[static_cast<std::size_t>(b)] = nullptr;
      owned.erase(b);
    }
    if (trips == 0)
      for (const SymbolStep& d : w.stacked_dims) symbols.set(d.symbol, 0);
    if (w.trips >= 0) symbols.set(w.trips, trips);
    for (std::size_t k = 0; k < carried; ++k) {
      if (trips == 0) values[k] = share(w.initial[k].buffer);
      give(w.outputs[k], values[k]);
    }
    for (std::size_t k = 0; k < stacks.size(); ++k) {
      std::shared_ptr<void> all = allocate(piece[k] * stacks[k].size());
      for (std::size_t j = 0; j < stacks[k].size(); ++j) std::memcpy(static_cast<char*>(all.get()) + j * piece[k], stacks[k][j].get(), piece[k]);
      give(w.outputs[carried + k], std::move(all));
    }
  }

  // A buffer's memory without a copy; it must outlive the loan.
  std::shared_ptr<void> borrow(int buffer) {
    auto it = owned.find(buffer);
    if (it != owned.end()) return it->second;
    return std::shared_ptr<void>(at(buffer), [](void*) {});
  }

  void block(const Block& b, const Lives& lives) {
    for (int k = 0; k < static_cast<int>(b.steps.size()); ++k) {
      const ProgramStep& s = b.steps[static_cast<std::size_t>(k)];
      const bool control = std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
      for (int w : s.writes)
        if (!control && !address[static_cast<std::size_t>(w)]) {
          owned[w] = allocate(bytes(w));
          address[static_cast<std::size_t>(w)] = owned[w].get();
        }
      const auto start = std::chrono::steady_clock::now();
      try {
        step(s);
      } catch (const AssumptionFailed&) {
        throw;
      } catch (const Error& error) {
        const std::string text = error.what();
        if (s.origin.empty() || text.find(s.origin) != std::string::npos) throw;
        throw Error(error.kind(), s.origin + ": " + text);
      }
      if (options.profile) {
        const auto what = [&]() -> std::string {
          if (const auto* l = std::get_if<LaunchStep>(&s.op)) return p.kernels[static_cast<std::size_t>(l->kernel)].symbol;
          if (const auto* r = std::get_if<RoutineStep>(&s.op)) return r->name;
          if (std::get_if<GemmStep>(&s.op)) return "gemm";
          if (std::get_if<ConvStep>(&s.op)) return "conv";
          if (std::get_if<AttentionStep>(&s.op)) return "attention";
          return "control";
        };
        options.profile->push_back({what(), s.origin, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()});
      }
      auto free_after = [&](int buffer) {
        auto it = lives.range.find(buffer);
        if (it == lives.range.end() || it->second.second != k) return;
        auto o = owned.find(buffer);
        if (o == owned.end()) return;
        address[static_cast<std::size_t>(buffer)] = nullptr;
        owned.erase(o);
      };
      for (int r : s.reads) free_after(r);
      for (int w : s.writes) free_after(w);
    }
  }
};

Executor::Executor(std::shared_ptr<const Program> program, int threads) : program_(std::move(program)), threads_(std::max(1, threads)) {
  const Program& p = *program_;
  module_ = std::make_unique<HostModule>(p.objects);
  for (const KernelInfo& k : p.kernels) {
    kernels_.push_back(module_->find(k.symbol));
    check(kernels_.back() != nullptr, "kernel {} is not in the compiled code", k.symbol);
  }
  find_lives(p.init);
  find_lives(p.main);
  constants_.assign(p.buffers.size(), nullptr);
  for (std::size_t k = 0; k < p.buffers.size(); ++k)
    if (p.buffers[k].kind == BufferInfo::Kind::kConstant) {
      const Data& d = p.constants[static_cast<std::size_t>(p.buffers[k].constant)];
      constants_[k] = d.bytes;
      constant_bytes_ += d.size;
    }
  // Constants that the model computes from constants.
  if (!p.init.steps.empty()) {
    Context context;
    RunOptions options;
    Run run{*this, p, context, options, threads_, {}, {}, {}};
    run.address.resize(p.buffers.size());
    for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);
    const Lives keep;  // nothing is freed on the way
    run.block(p.init, keep);
    std::vector<bool> used(p.buffers.size());
    for (const ProgramStep& s : p.main.steps)
      for (int r : s.reads) used[static_cast<std::size_t>(r)] = true;
    for (const TensorRef& o : p.main.outputs) used[static_cast<std::size_t>(o.buffer)] = true;
    for (auto& [buffer, memory] : run.owned)
      if (used[static_cast<std::size_t>(buffer)]) {
        constants_[static_cast<std::size_t>(buffer)] = memory.get();
        constant_bytes_ += run.bytes(buffer);
        constant_owners_.push_back(memory);
      }
  }
}

Executor::~Executor() = default;

std::unique_ptr<Executor::Context> Executor::acquire() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Context>();
  auto c = std::move(idle_.back());
  idle_.pop_back();
  return c;
}

void Executor::release(std::unique_ptr<Context> c) {
  std::lock_guard lock(mutex_);
  arena_bytes_ = std::max(arena_bytes_, c->arena_size);
  idle_.push_back(std::move(c));
}

ArenaPlan Executor::plan(const SymbolValues& symbols) const {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  std::vector<bool> is_output(p.buffers.size());
  for (const TensorRef& o : p.main.outputs) is_output[static_cast<std::size_t>(o.buffer)] = true;
  ArenaPlan plan;
  std::vector<Lifetime> list;
  for (int t : lives.temporaries) {
    if (is_output[static_cast<std::size_t>(t)]) continue;
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(t)];
    bool known = true;
    for (const Expr& d : b.shape) known = known && evaluable(d, symbols);
    if (!known) {
      ++plan.unplanned;
      continue;
    }
    const auto& range = lives.range.at(t);
    list.push_back({t, buffer_bytes(b, symbols), range.first, range.second});
  }
  std::vector<std::size_t> offsets;
  plan.total = plan_memory(list, offsets);
  for (std::size_t k = 0; k < list.size(); ++k) plan.offsets.emplace_back(list[k].buffer, offsets[k]);
  return plan;
}

SymbolValues Executor::bind(const std::vector<std::vector<std::int64_t>>& input_dims) const {
  const Program& p = *program_;
  check(input_dims.size() == p.main.inputs.size(), "{} inputs for {}", input_dims.size(), p.main.inputs.size());
  SymbolValues symbols;
  const auto info = [&](std::size_t k) -> const BufferInfo& { return p.buffers[static_cast<std::size_t>(p.main.inputs[k].buffer)]; };
  // Bare symbols are bound first, then everything is checked.
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    if (input_dims[k].size() != b.shape.size()) fail(ErrorKind::kInvalidArgument, "input '{}' has rank {}; the model wants {} {}", b.name, input_dims[k].size(), b.shape.size(), to_string(b.shape));
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      if (input_dims[k][d] < 0) fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is negative ({})", b.name, d, input_dims[k][d]);
      const Expr& e = b.shape[d];
      if (e->op == Op::kSym && !symbols.has(static_cast<int>(e->i))) symbols.set(static_cast<int>(e->i), input_dims[k][d]);
    }
  }
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      const std::int64_t wanted = evaluate(b.shape[d], symbols);
      if (wanted == input_dims[k][d]) continue;
      const std::string what = is_const(b.shape[d]) ? "" : to_string(b.shape[d]) + " = ";
      fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is {}, but {}{} is wanted", b.name, d, input_dims[k][d], what, wanted);
    }
  }
  return symbols;
}

std::vector<std::vector<std::int64_t>> Executor::output_dims(const SymbolValues& symbols) const {
  std::vector<std::vector<std::int64_t>> out;
  for (const TensorRef& o : program_->main.outputs) {
    out.emplace_back();
    for (const Expr& d : o.shape) out.back().push_back(evaluable(d, symbols) ? evaluate(d, symbols) : -1);
  }
  return out;
}

std::vector<HostTensor> Executor::run(const std::vector<HostTensor>& inputs, const RunOptions& options) {
  const Program& p = *program_;
  if (inputs.size() != p.main.inputs.size()) fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), p.main.inputs.size());
  auto context = acquire();
  struct Release {
    Executor& e;
    std::unique_ptr<Context>& c;
    ~Release() { e.release(std::move(c)); }
  } release{*this, context};
  Run run{*this, p, *context, options, options.threads > 0 ? options.threads : threads_, {}, {}, {}};
  run.address.resize(p.buffers.size());
  for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);

  std::vector<std::int64_t> key;
  std::vector<std::vector<std::int64_t>> input_dims;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(p.main.inputs[k].buffer)];
    if (inputs[k].dtype != b.dtype) fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model wants {}", b.name, name(inputs[k].dtype), name(b.dtype));
    input_dims.push_back(inputs[k].dims);
    key.insert(key.end(), inputs[k].dims.begin(), inputs[k].dims.end());
    run.address[static_cast<std::size_t>(p.main.inputs[k].buffer)] = inputs[k].data;
  }
  run.symbols = bind(input_dims);

  const Lives& lives = *lives_.at(&p.main);
  auto it = context->plans.find(key);
  if (it == context->plans.end()) {
    ArenaPlan plan = this->plan(run.symbols);
    if (context->plans.size() > 64) context->plans.clear();
    it = context->plans.emplace(key, std::move(plan)).first;
  }
  if (it->second.total > context->arena_size) {
    context->arena.reset();
    context->arena_size = 0;
    context->arena = allocate(it->second.total);
    context->arena_size = it->second.total;
  }
  for (const auto& [buffer, offset] : it->second.offsets) run.address[static_cast<std::size_t>(buffer)] = static_cast<char*>(context->arena.get()) + offset;

  run.block(p.main, lives);

  std::vector<HostTensor> out;
  std::unordered_map<int, int> given;
  for (const TensorRef& o : p.main.outputs) {
    HostTensor t;
    t.dtype = p.buffers[static_cast<std::size_t>(o.buffer)].dtype;
    t.dims = run.dims(o.shape);
    auto own = run.owned.find(o.buffer);
    if (own != run.owned.end() && !given[o.buffer]++) {
      t.owner = own->second;
      t.data = t.owner.get();
    } else {  // an input, a constant, or an output given twice
      t = allocate_tensor(t.dtype, t.dims);
      std::memcpy(t.data, run.at(o.buffer), t.bytes());
    }
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace sardonyx
