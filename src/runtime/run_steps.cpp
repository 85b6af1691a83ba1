// What steps other than control flow do, in two parts: what depends on sizes only (kept for the next run), and the
// rest.
#include <algorithm>

#include "codegen/index_range.h"
#include "codegen/loop_codegen.h"
#include "host/conv.h"
#include "host/parallel.h"
#include "onnx/external_data.h"
#include "runtime/run.h"
#include "tiles/by_definition.h"

namespace sardonyx {
namespace {

using Kernel = void (*)(char* const*, const std::int64_t*, std::int64_t, std::int64_t);

constexpr std::int64_t kGrain = 131072;  // operations worth a thread of their own
constexpr std::size_t kMaxArguments = 64;

// An addition of one value per channel (the dim `channel`) as the first post-operation is the library's bias.
int take_bias(std::vector<host::PostOp>& ops, std::vector<int>& operands, std::size_t channel, std::int64_t n) {
  if (ops.empty() || ops[0].kind != host::PostOp::Kind::kAddTensor || ops[0].dtype != DType::kFloat32) return -1;
  for (std::size_t k = 0; k < ops[0].dims.size(); ++k)
    if (ops[0].dims[k] != (k == channel ? n : 1)) return -1;
  const int bias = operands[0];
  ops.erase(ops.begin());
  operands.erase(operands.begin());
  return bias;
}

}  // namespace

PreparedLaunch Executor::Run::prepare(const LaunchStep& l) const {
  check(l.buffers.size() <= kMaxArguments, "a kernel with {} buffers", l.buffers.size());
  PreparedLaunch r;
  r.points = eval(l.points);
  if (r.points <= 0) return r;
  if (l.limit) check_limit(l.limit);
  for (const Expr& s : l.symbols) r.values.push_back(eval(s));
  for (const Expr& d : l.divisors) r.values.push_back(static_cast<std::int64_t>(codegen::divisor_argument(eval(d))));
  r.grain = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, eval(l.work)));
  if (e.gpu_) r.calls = gpu_calls(l, r);
  return r;
}

void Executor::Run::check_limit(const Expr& limit) const {
  std::int64_t largest = INT64_MAX;
  try {
    largest = eval(limit);
  } catch (const Error&) {
    largest = INT64_MAX;  // not even 64 bits suffice
  }
  if (largest > codegen::IndexRange::kLargest)
    throw AssumptionFailed("a tensor is too large for indices of 32 bits, which the program was made for");
}

void Executor::Run::execute(const LaunchStep& l, const PreparedLaunch& r) {
  if (r.points <= 0) return;
  if (e.gpu_) {
    for (const auto& c : r.calls) start(*c);
    return;
  }
  char* buffers[kMaxArguments];
  for (std::size_t k = 0; k < l.buffers.size(); ++k) buffers[k] = static_cast<char*>(at(l.buffers[k]));
  const auto kernel = reinterpret_cast<Kernel>(e.kernels_[static_cast<std::size_t>(l.kernel)]);
  if (r.points <= r.grain) return kernel(buffers, r.values.data(), 0, r.points);
  host::parallel_for(r.points, r.grain, threads,
                     [&](std::int64_t begin, std::int64_t end) { kernel(buffers, r.values.data(), begin, end); });
}

// Post-operations with their operands' extents and buffers.
void Executor::Run::post_ops(const std::vector<PostInfo>& infos, std::vector<host::PostOp>& ops,
                             std::vector<int>& operands) const {
  for (const PostInfo& i : infos) {
    host::PostOp op;
    op.kind = static_cast<host::PostOp::Kind>(i.kind);
    op.alpha = i.alpha;
    op.beta = i.beta;
    op.dtype = i.dtype;
    if (i.operand >= 0) {
      op.dims = dims(i.dims);
      operands.push_back(i.operand);
    }
    ops.push_back(std::move(op));
  }
}

// Constant weights are packed once for all steps that read them; the original is then only needed to be saved or packed
// differently.
void Executor::Run::finish_tile(PreparedTile& t, bool constant) const {
  t.scratch = t.kernel->scratch_bytes();
  if (!constant) return;
  const std::lock_guard lock(e.packed_mutex_);
  auto& slot = e.packed_[t.weights];
  if (!slot) {
    slot = t.kernel->pack(at(t.weights));
    onnx::forget_pages(at(t.weights), bytes(t.weights));
  }
  t.packed = slot;
  if (plan) t.place = plan->prefetch.add();
}

PreparedTile Executor::Run::prepare(const GemmStep& g) const {
  PreparedTile t;
  t.src = g.a;
  t.weights = g.b;
  t.out = g.out;
  host::GemmDesc d;
  d.batch_a = dims(g.batch_a);
  d.batch_b = dims(g.batch_b);
  d.m = eval(g.m);
  d.n = eval(g.n);
  d.k = eval(g.k);
  d.trans_a = g.trans_a;
  d.trans_b = g.trans_b;
  d.a = info(g.a).dtype;
  d.b = info(g.b).dtype;
  d.out = info(g.out).dtype;
  d.threads = threads;
  t.empty = bytes(g.out) == 0;
  if (t.empty) return t;
  post_ops(g.post, d.post, t.operands);
  if (d.k == 0) {
    t.definition = std::move(d);
    return t;
  }
  t.bias = take_bias(d.post, t.operands, std::max(d.batch_a.size(), d.batch_b.size()) + 1, d.n);
  d.bias = t.bias >= 0;
  const bool one_matrix = std::all_of(d.batch_b.begin(), d.batch_b.end(), [](std::int64_t x) { return x == 1; });
  d.b_constant = e.constants_[static_cast<std::size_t>(g.b)] != nullptr && one_matrix;
  std::string why;
  t.kernel = host::find_gemm(d, why);
  if (!t.kernel)
    fail(ErrorKind::kInternal, "internal error: the library refuses a matrix product of {}x{}x{}: {}", d.m, d.n, d.k,
         why);
  finish_tile(t, d.b_constant);
  return t;
}

PreparedTile Executor::Run::prepare(const ConvStep& c) const {
  PreparedTile t;
  t.src = c.x;
  t.weights = c.w;
  t.out = c.out;
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
  d.src = info(c.x).dtype;
  d.weights = info(c.w).dtype;
  d.dst = info(c.out).dtype;
  d.threads = threads;
  t.empty = bytes(c.out) == 0;
  if (t.empty) return t;
  post_ops(c.post, d.post, t.operands);
  t.bias = c.bias >= 0 ? c.bias : take_bias(d.post, t.operands, c.channels_last ? out.size() - 1 : 1, d.out_channels);
  d.bias = t.bias >= 0;
  d.weights_constant = e.constants_[static_cast<std::size_t>(c.w)] != nullptr;
  std::string why;
  t.kernel = host::find_convolution(d, why);
  if (!t.kernel) fail(ErrorKind::kInternal, "internal error: the library refuses a convolution: {}", why);
  finish_tile(t, d.weights_constant);
  return t;
}

void Executor::Run::tile(const PreparedTile& t) {
  if (t.empty) return;
  operand_addresses.clear();
  for (int o : t.operands) operand_addresses.push_back(at(o));
  if (t.definition)
    return tiles::gemm_by_definition(*t.definition, at(t.src), at(t.weights), operand_addresses, at(t.out));
  if (t.scratch > context.scratch_size) {
    context.scratch = allocate_lasting(t.scratch);
    context.scratch_size = t.scratch;
  }
  host::TileArgs args;
  args.src = at(t.src);
  args.packed = t.packed.get();
  args.weights = at(t.weights);
  if (t.bias >= 0) args.bias = at(t.bias);
  args.operands = operand_addresses;
  args.out = at(t.out);
  args.scratch = context.scratch.get();
  if (t.place >= 0) args.later = plan->prefetch.take(t.place, t.kernel->prefetches());
  t.kernel->run(args);
  if (t.place >= 0) plan->prefetch.set(t.place, t.packed->newest());
}

PreparedAttention Executor::Run::prepare(const AttentionStep& a) const {
  PreparedAttention r;
  host::AttentionDesc& d = r.desc;
  d.batch = eval(a.batch);
  d.heads = eval(a.heads);
  d.kv_heads = d.heads / a.group;
  d.queries = eval(a.queries);
  d.keys = eval(a.keys);
  d.head_dim = eval(a.head_dim);
  d.value_dim = eval(a.value_dim);
  d.scale = a.scale;
  d.threads = threads;
  r.empty = bytes(a.out.buffer) == 0;
  if (r.empty) return r;
  const auto place = [&](const HeadRef& t, host::HeadStrides& strides) {
    strides = {eval(t.strides[0]), eval(t.strides[1]), eval(t.strides[2]), eval(t.strides[3])};
    return eval(t.offset) * static_cast<std::int64_t>(size_of(info(t.buffer).dtype));
  };
  r.q = place(a.q, d.q);
  r.k = place(a.k, d.k);
  r.v = place(a.v, d.v);
  if (a.bias.buffer >= 0) {
    d.has_mask = true;
    d.mask_type = info(a.bias.buffer).dtype;
    r.mask = place(a.bias, d.mask);
  }
  const auto optional = [&](const HeadRef& t, bool& has, host::HeadStrides& strides) {
    has = t.buffer >= 0;
    return has ? place(t, strides) : 0;
  };
  r.begin = optional(a.begin, d.has_begin, d.begin);
  r.end = optional(a.end, d.has_end, d.end);
  r.sink = optional(a.sink, d.has_sink, d.sink);
  d.softcap = a.softcap;
  d.zero_empty = a.zero_empty;
  r.out = place(a.out, d.out);
  d.out.element = 1;
  d.q.element = d.v.element = 1;
  return r;
}

void Executor::Run::execute(const AttentionStep& a, const PreparedAttention& r) {
  if (r.empty) return;
  const auto data = [&](const HeadRef& t, std::int64_t offset) { return static_cast<char*>(at(t.buffer)) + offset; };
  const auto floats = [&](const HeadRef& t, std::int64_t offset) { return reinterpret_cast<float*>(data(t, offset)); };
  const auto limits = [&](const HeadRef& t, std::int64_t offset) {
    return t.buffer >= 0 ? reinterpret_cast<const std::int64_t*>(data(t, offset)) : nullptr;
  };
  host::AttentionTerms terms;
  terms.begin = limits(a.begin, r.begin);
  terms.end = limits(a.end, r.end);
  if (a.sink.buffer >= 0) terms.sink = floats(a.sink, r.sink);
  host::attention(r.desc, floats(a.q, r.q), floats(a.k, r.k), floats(a.v, r.v),
                  a.bias.buffer >= 0 ? data(a.bias, r.mask) : nullptr, floats(a.out, r.out), terms);
}

PreparedRoutine Executor::Run::prepare(const RoutineStep& s) const {
  PreparedRoutine r;
  for (const TensorRef& t : s.inputs) r.inputs.push_back(dims(t.shape));
  for (const TensorRef& t : s.outputs) r.outputs.push_back(dims(t.shape));
  for (const Expr& x : s.params) r.params.push_back(eval(x));
  if (is_collective(s.name) && e.gpu_) r.call = collective_call(s, r);
  return r;
}

void Executor::Run::execute(const RoutineStep& s, const PreparedRoutine& r) {
  if (is_collective(s.name)) return collective(s, r);
  const routines::Fn fn = routines::find(s.name);
  if (!fn) fail(ErrorKind::kInternal, "internal error: no routine '{}' on the host", s.name);
  routines::Call c;
  for (std::size_t k = 0; k < s.inputs.size(); ++k)
    c.inputs.push_back({at(s.inputs[k].buffer), info(s.inputs[k].buffer).dtype, r.inputs[k]});
  for (std::size_t k = 0; k < s.outputs.size(); ++k)
    c.outputs.push_back({at(s.outputs[k].buffer), info(s.outputs[k].buffer).dtype, r.outputs[k]});
  // Routines run on the host: what a GPU's program has of them goes there and back.
  std::vector<std::shared_ptr<void>> here;
  std::vector<void*> there;
  const auto size = [](const routines::Tensor& x) { return static_cast<std::size_t>(x.elements()) * size_of(x.dtype); };
  if (e.gpu_) {
    for (auto* list : {&c.inputs, &c.outputs})
      for (routines::Tensor& x : *list) {
        here.push_back(allocate_bytes(size(x)));
        if (list == &c.inputs)
          context.transfers->download(here.back().get(), x.data, size(x), stream);
        else
          there.push_back(x.data);
        x.data = here.back().get();
      }
  }
  c.params = r.params;
  c.floats = s.floats;
  c.threads = threads;
  fn(c);
  for (std::size_t k = 0; k < there.size(); ++k)
    context.transfers->upload(there[k], c.outputs[k].data, size(c.outputs[k]), stream);
}

std::int64_t Executor::Run::read_int(int buffer, std::size_t k) const {
  const void* a = at(buffer);
  std::uint64_t element = 0;
  const void* given = host_inputs.empty() ? nullptr : host_inputs[static_cast<std::size_t>(buffer)];
  if (given) {  // as it came: nothing is waited for
    a = given;
  } else if (e.gpu_) {
    const std::size_t size = size_of(info(buffer).dtype);
    context.transfers->download(&element, static_cast<const char*>(a) + k * size, size, stream);
    a = &element;
    k = 0;
  }
  switch (info(buffer).dtype) {
    case DType::kInt64:
    case DType::kUInt64:
      return static_cast<const std::int64_t*>(a)[k];
    case DType::kInt32:
      return static_cast<const std::int32_t*>(a)[k];
    case DType::kUInt32:
      return static_cast<const std::uint32_t*>(a)[k];
    case DType::kInt16:
      return static_cast<const std::int16_t*>(a)[k];
    case DType::kUInt16:
      return static_cast<const std::uint16_t*>(a)[k];
    case DType::kInt8:
      return static_cast<const std::int8_t*>(a)[k];
    case DType::kUInt8:
    case DType::kBool:
      return static_cast<const std::uint8_t*>(a)[k];
    case DType::kFloat32:
      return static_cast<std::int64_t>(static_cast<const float*>(a)[k]);
    default:
      fail(ErrorKind::kUnsupported, "a size of dtype {}", name(info(buffer).dtype));
  }
}

void Executor::Run::bind(const BindStep& b) {
  for (std::size_t k = 0; k < b.symbols.size(); ++k) symbols.set(b.symbols[k], read_int(b.buffer, k));
}

void Executor::Run::check_condition(const CheckStep& c) const {
  if (eval(c.condition)) return;
  if (c.assumption) throw AssumptionFailed(c.message);
  fail(ErrorKind::kInvalidArgument, "{}", c.message);
}

}  // namespace sardonyx
