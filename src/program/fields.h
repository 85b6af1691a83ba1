// The fields of every part of a program, listed once, in the order in which they are written (archive.h). Writing,
// reading (serialize.cpp) and visiting (visit.cpp) use these lists. Private to this component.
#pragma once
#include "program/archive.h"
#include "program/program.h"

namespace sardonyx {

template <>
struct EnumRange<Op> {
  static constexpr int kCount = static_cast<int>(Op::kRandom) + 1;
};
template <>
struct EnumRange<PostKind> {
  static constexpr int kCount = kPostKinds;
};
template <>
struct EnumRange<GemmActivation> {
  static constexpr int kCount = static_cast<int>(GemmActivation::kGeluTanh) + 1;
};
template <>
struct EnumRange<BufferInfo::Kind> {
  static constexpr int kCount = static_cast<int>(BufferInfo::Kind::kTemporary) + 1;
};
template <>
struct EnumRange<KernelFamily> {
  static constexpr int kCount = static_cast<int>(KernelFamily::kCustom) + 1;
};
template <>
struct EnumRange<WorkUnit> {
  static constexpr int kCount = static_cast<int>(WorkUnit::kLaunch) + 1;
};

template <typename A>
void fields(A& a, typename A::template Ref<TableNode> n) {
  a(n.op, n.dtype, n.i, n.f, n.args);
}

template <typename A>
void fields(A& a, typename A::template Ref<BufferInfo> b) {
  a(b.kind, b.dtype, b.shape, b.storage_order, b.name, b.constant);
}

template <typename A>
void fields(A& a, typename A::template Ref<TensorRef> t) {
  a(t.buffer, t.shape);
}

template <typename A>
void fields(A& a, typename A::template Ref<LaunchStep> s) {
  a(s.kernel, s.buffers, s.symbols, s.work_items, s.work, s.divisors, s.limit, s.repeat, s.grid, s.block, s.shared);
}

template <typename A>
void fields(A& a, typename A::template Ref<GpuTiling> t) {
  a(t.rows, t.cols, t.alone_start, t.alone, t.busy_start, t.busy, t.few_rows, t.finish, t.splits, t.tma, t.cluster,
    t.threads, t.resident, t.tree_acc, t.groups);
}

template <typename A>
void fields(A& a, typename A::template Ref<ProblemSizes> s) {
  a(s.batches, s.m, s.n, s.k);
}

template <typename A>
void fields(A& a, typename A::template Ref<LibraryEpilogue> e) {
  a(e.bias, e.residual, e.activation);
}

template <typename A>
void fields(A& a, typename A::template Ref<TunedSize> t) {
  a(t.sizes, t.candidate, t.library);
}

template <typename A>
void fields(A& a, typename A::template Ref<Candidate> c) {
  a(c.name, c.applies, c.cost, c.tiling);
}

template <typename A>
void fields(A& a, typename A::template Ref<Choice> c) {
  a(c.problem, c.batches, c.m, c.n, c.k, c.candidates, c.tuned);
}

template <typename A>
void fields(A& a, typename A::template Ref<LibraryCall> l) {
  a(l.a, l.b, l.out, l.bias, l.residual, l.workspace, l.trans_a, l.trans_b, l.one_a, l.one_b, l.activation, l.batches,
    l.m, l.n, l.k);
}

template <typename A>
void fields(A& a, typename A::template Ref<CopiedOperand> t) {
  a(t.buffer, t.offset, t.pitch, t.batch, t.across, t.inner, t.heads, t.head);
}

template <typename A>
void fields(A& a, typename A::template Ref<CopiedWindows> w) {
  a(w.offset, w.images, w.pitch, w.channels);
  for (std::size_t k : {0, 1}) a(w.sizes[k], w.out[k], w.pitches[k], w.pads[k], w.strides[k], w.taps[k]);
}

template <typename A>
void fields(A& a, typename A::template Ref<CopiedOperands> c) {
  a(c.a, c.b, c.windows);
}

template <typename A>
void fields(A& a, typename A::template Ref<ChoiceStep> s) {
  a(s.choice, s.launches, s.copied, s.library, s.partial, s.type, s.work, s.limit);
}

template <typename A>
void fields(A& a, typename A::template Ref<PostInfo> p) {
  a(p.kind, p.alpha, p.beta, p.dtype, p.operand, p.dims);
}

template <typename A>
void fields(A& a, typename A::template Ref<AccumulatorEpilogue> e) {
  a(e.launch, e.accumulators);
}

template <typename A>
void fields(A& a, typename A::template Ref<GemmStep> s) {
  a(s.a, s.b, s.out, s.batch_a, s.batch_b, s.m, s.n, s.k, s.trans_a, s.trans_b, s.post, s.epilogue);
}

template <typename A>
void fields(A& a, typename A::template Ref<ConvStep> s) {
  a(s.x, s.w, s.bias, s.out, s.strides, s.dilations, s.pads_begin, s.pads_end, s.groups, s.transposed, s.channels_last,
    s.x_shape, s.w_shape, s.out_shape, s.post, s.epilogue, s.padding, s.exact);
}

template <typename A>
void fields(A& a, typename A::template Ref<HeadRef> r) {
  a(r.buffer, r.offset, r.strides);
}

template <typename A>
void fields(A& a, typename A::template Ref<AttentionStep> s) {
  a(s.q, s.k, s.v, s.bias, s.out, s.batch, s.heads, s.queries, s.keys, s.head_dim, s.value_dim, s.group, s.scale,
    s.begin, s.end, s.sink, s.softcap, s.zero_empty, s.pages, s.page_rows, s.k_page, s.v_page, s.k_scale, s.v_scale,
    s.k_scale_page, s.v_scale_page);
}

template <typename A>
void fields(A& a, typename A::template Ref<RoutineStep> s) {
  a(s.name, s.inputs, s.outputs, s.params, s.floats);
}

template <typename A>
void fields(A& a, typename A::template Ref<BindStep> s) {
  a(s.buffer, s.symbols);
}

template <typename A>
void fields(A& a, typename A::template Ref<CheckStep> s) {
  a(s.condition, s.message, s.assumption);
}

template <typename A>
void fields(A& a, typename A::template Ref<SymbolStep> s) {
  a(s.symbol, s.value);
}

template <typename A>
void fields(A& a, typename A::template Ref<IfStep> s) {
  a(s.condition, s.then_block, s.else_block, s.then_symbols, s.else_symbols, s.outputs);
}

template <typename A>
void fields(A& a, typename A::template Ref<WhileStep::CarriedDim> d) {
  a(d.symbol, d.initial, d.next);
}

template <typename A>
void fields(A& a, typename A::template Ref<WhileStep> s) {
  a(s.body, s.initial, s.outputs, s.carried, s.stacked, s.iteration, s.trips, s.trip_count, s.condition,
    s.next_condition, s.carried_dims, s.stacked_dims);
}

template <typename A>
void fields(A& a, typename A::template Ref<ProgramStep> s) {
  a(s.op, s.origin, s.reads, s.writes, s.when);
}

template <typename A>
void fields(A& a, typename A::template Ref<Block> b) {
  a(b.inputs, b.outputs, b.steps);
}

template <typename A>
void fields(A& a, typename A::template Ref<LaunchBounds> b) {
  a(b.threads, b.min_blocks, b.min_waves, b.cluster);
}

template <typename A>
void fields(A& a, typename A::template Ref<KernelSpec> k) {
  a(k.family, k.body, k.source, k.headers, k.bounds, k.shared_bytes, k.work_unit, k.appends_in_place);
}

template <typename A>
void fields(A& a, typename A::template Ref<KernelInfo> k) {
  a(k.symbol, k.spec, k.object);
}

/// A list of texts; writing compiles objects that are missing.
inline void fields(Writer& a, const Objects& objects) {
  std::vector<std::string> all;
  for (std::size_t k = 0; k < objects.size(); ++k) all.push_back(objects[k]);
  a(all);
}
inline void fields(Reader& a, Objects& objects) {
  std::vector<std::string> all;
  a(all);
  objects = Objects(std::move(all));
}

/// Everything except the constants and the names of symbols, which are written before expressions.
template <typename A>
void fields(A& a, typename A::template Ref<Program> p) {
  a(p.target, p.buffers, p.kernels, p.objects, p.init, p.main, p.input_names, p.output_names);
}

}  // namespace sardonyx
