// Lowers to steps for the host: generated loops, and calls of host/'s GEMM, convolution and attention.
#include "codegen/loop_codegen.h"
#include "lower/lowering.h"
#include "support/error.h"
#include "tiles/match.h"

namespace sardonyx {
namespace {

class HostBlock : public BlockLowering {
 public:
  explicit HostBlock(ProgramBuilder& builder) : b_(builder) {}

  bool lower(const Step& step, std::vector<ProgramStep>& out) override {
    if (const auto* loop = std::get_if<LoopKernel>(&step.op)) return add(step, lower_loop(*loop), out);
    const auto* tile = std::get_if<TileKernel>(&step.op);
    if (!tile) return false;
    if (tile->node->as<MatMulOp>()) return add(step, lower_gemm(*tile), out);
    if (tile->node->as<AttentionOp>()) return add(step, lower_attention(*tile), out);
    return add(step, lower_conv(*tile), out);
  }

 private:
  bool add(const Step& step, StepOp op, std::vector<ProgramStep>& out) {
    ProgramStep p = b_.step_like(step);
    p.op = std::move(op);
    out.push_back(std::move(p));
    return true;
  }

  LaunchStep lower_loop(const LoopKernel& k) {
    const codegen::LoopSource s = codegen::generate_host_loop(k);
    LaunchStep l = launch(s);
    l.buffers = b_.buffers(s.buffers);
    return l;
  }

  // The launch, without its buffers.
  LaunchStep launch(const codegen::LoopSource& s) {
    LaunchStep l;
    l.kernel = b_.kernel(s.kernel);
    l.symbols = s.symbols;
    l.work_items = s.work_items;
    l.work = s.work;
    return l;
  }

  // `out`: the buffer of the product's result.
  AccumulatorEpilogue accumulator_epilogue(const TileKernel& t, int out) {
    AccumulatorEpilogue e;
    if (!t.epilogue) return e;
    const codegen::LoopSource s = codegen::generate_accumulator_epilogue(t);
    LaunchStep l = launch(s);
    for (Value* v : s.buffers) {
      const bool sums = v == t.node->outputs[0];
      if (sums) e.accumulators = static_cast<int>(l.buffers.size());
      l.buffers.push_back(sums ? out : b_.buffer(v));
    }
    e.launch.push_back(std::move(l));
    return e;
  }

  GemmStep lower_gemm(const TileKernel& t) {
    std::string why;
    const auto m = tiles::match_gemm(t, why);
    check(m.has_value(), "{}: no host kernel matches this GEMM: {}", t.node->origin, why);
    GemmStep g;
    g.a = b_.buffer(m->a);
    g.b = b_.buffer(m->b);
    g.out = b_.buffer(m->out);
    g.batch_a = m->batch_a;
    g.batch_b = m->batch_b;
    g.m = m->m;
    g.n = m->n;
    g.k = m->k;
    g.trans_a = m->trans_a;
    g.trans_b = m->trans_b;
    g.post = post_infos(m->post);
    if (m->integers) g.epilogue = accumulator_epilogue(t, g.out);
    return g;
  }

  AttentionStep lower_attention(const TileKernel& t) {
    std::string why;
    const auto m = tiles::match_attention(t, why);
    check(m.has_value(), "{}: no host kernel matches this attention: {}", t.node->origin, why);
    const auto ref = [&](const tiles::HeadTensor& h) {
      return h.value ? HeadRef{b_.buffer(h.value), h.offset, h.strides} : HeadRef{};
    };
    AttentionStep a;
    a.q = ref(m->q);
    a.k = ref(m->k);
    a.v = ref(m->v);
    a.bias = ref(m->bias);
    a.out = ref(m->out);
    a.begin = ref(m->begin);
    a.end = ref(m->end);
    a.sink = ref(m->sink);
    a.pages = ref(m->pages);
    a.page_rows = m->page_rows;
    a.k_page = m->k_page;
    a.v_page = m->v_page;
    a.k_scale = ref(m->k_scale);
    a.v_scale = ref(m->v_scale);
    a.k_scale_page = m->k_scale_page;
    a.v_scale_page = m->v_scale_page;
    a.batch = m->batch;
    a.heads = m->heads;
    a.queries = m->queries;
    a.keys = m->keys;
    a.head_dim = m->head_dim;
    a.value_dim = m->value_dim;
    a.group = m->group;
    a.scale = static_cast<float>(m->scale);
    a.softcap = static_cast<float>(m->softcap);
    a.zero_empty = m->zero_empty;
    return a;
  }

  ConvStep lower_conv(const TileKernel& t) {
    std::string why;
    const auto m = tiles::match_conv(t, true, why);
    check(m.has_value(), "{}: no host kernel matches this convolution: {}", t.node->origin, why);
    ConvStep c;
    c.x = b_.buffer(m->x);
    c.w = b_.buffer(m->w);
    c.bias = m->bias ? b_.buffer(m->bias) : -1;
    c.out = b_.buffer(m->out);
    c.strides = m->op->strides;
    c.dilations = m->op->dilations;
    c.pads_begin = m->op->pads_begin;
    c.pads_end = m->op->pads_end;
    c.groups = m->op->groups;
    c.transposed = m->op->transposed;
    c.channels_last = m->channels_last;
    c.x_shape = m->x->shape;
    c.w_shape = m->w->shape;
    c.out_shape = t.node->outputs[0]->shape;
    c.post = post_infos(m->post);
    c.padding = m->op->padding;
    c.exact = m->op->exact;
    if (m->integers) c.epilogue = accumulator_epilogue(t, c.out);
    return c;
  }

  std::vector<PostInfo> post_infos(const std::vector<tiles::PostStep>& steps) {
    std::vector<PostInfo> out;
    for (const tiles::PostStep& s : steps)
      out.push_back({s.op.kind, s.op.alpha, s.op.beta, s.op.dtype, s.operand ? b_.buffer(s.operand) : -1, s.dims});
    return out;
  }

  ProgramBuilder& b_;
};

class HostLowering : public Lowering {
 public:
  FuseOptions fuse_options() const override { return tiles::host_fuse_options(); }
  Target target() const override { return host_target(); }
  bool gpu_dialect() const override { return false; }
  std::size_t kernels_per_object() const override { return 8; }
  std::unique_ptr<BlockLowering> block(ProgramBuilder& builder, const std::vector<Step>&) const override {
    return std::make_unique<HostBlock>(builder);
  }
};

}  // namespace

std::unique_ptr<Lowering> host_lowering(const BuildOptions&) { return std::make_unique<HostLowering>(); }

}  // namespace sardonyx
