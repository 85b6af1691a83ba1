// A program with every kind of step and expression, for tests of serialisation. It is valid by validate.h, but not
// meant to run.
#pragma once
#include <memory>

#include "program/program.h"

namespace sardonyx {

/// A choice by expressions of the sizes, of launches of one and two kernels.
inline ChoiceStep example_forms(const Expr& n, const Expr& half) {
  ChoiceStep forms;
  LaunchStep launch{1, {0, 6}, {n, half}, n * 256, {}};
  forms.choice = {"attention float16", n, half, half, 3, {}, {{{1, 2, 3, 4}, "large"}}};
  forms.choice.candidates = {{"small", {}, 1, {}},
                             {"large", compare(Op::kGe, n, 8), select(compare(Op::kGe, n, 8), 0, 2), {}}};
  forms.launches = {{launch}, {launch, launch}};
  forms.work = n * 3;
  forms.limit = n;
  return forms;
}

/// A choice among tilings, one with split-K and one with TMA, and a library's call.
inline ChoiceStep example_tiles(const Expr& n) {
  ChoiceStep tiles;
  LaunchStep tile{1, {0, 1, 6}, {n, 3}, {}, {}}, finish{0, {0, 1, 6, 6}, {n, 3, 2}, n * 256, {}};
  tiles.choice = {"product float16", 1, n, 3, 3, {}, {{{1, 2, 3, 3}, "library 1.0 #0"}}};
  GpuTiling general, split, copying;
  general.rows = general.cols = 64;
  split = copying = general;
  split.splits = 2;
  copying.tma = true;
  tiles.choice.candidates = {
      {"general", {}, {}, {general}}, {"split", {}, {}, {split}}, {"copying", {}, {}, {copying}}};
  tiles.launches = {{tile}, {tile, finish}, {tile}};
  CopiedOperands operands{{0, 0, 3, 0}, {1, 0, 3, 0}, {}};
  tiles.copied = {operands};
  tiles.partial = 6;
  tiles.type = DType::kFloat16;
  tiles.work = n * 18;
  tiles.library = {{0, 1, 6, -1, -1, 8, false, false, false, false, GemmActivation::kRelu, 1, n, 3, 3}};
  return tiles;
}

inline KernelSpec gemm_kernel() {
  KernelSpec gemm;
  gemm.family = KernelFamily::kGemm;
  gemm.body = "(...) {}";
  gemm.source = "struct P;";
  gemm.headers = {"attention.h"};
  gemm.bounds = {256, 2, 1, 8};
  gemm.shared_bytes = 4096;
  gemm.work_unit = WorkUnit::kLaunch;
  gemm.appends_in_place = true;
  return gemm;
}

inline std::shared_ptr<Program> example_program() {
  auto p = std::make_shared<Program>();
  p->symbol_names = {"batch", "count", "i", "trips"};
  p->target = "x86_64";
  const Expr n = symbol(0, "batch"), count = data_symbol(1, "count"), i = symbol(2, "i"), trips = symbol(3, "trips");
  const Expr half = binary(Op::kFloorDiv, n + 7, Expr(2));
  const Expr scaled =
      cast(binary(Op::kMul, cast(n, DType::kFloat32), constant_float(1.5, DType::kFloat32)), DType::kInt64);
  const Expr chosen = select(compare(Op::kLt, n, count), half, idx::max(scaled, count));

  p->buffers.push_back({BufferInfo::Kind::kInput, DType::kFloat32, {n, 3}, {}, "x", -1});                        // 0
  p->buffers.push_back({BufferInfo::Kind::kConstant, DType::kFloat32, {3, 3}, {}, "w", 0});                      // 1
  p->buffers.push_back({BufferInfo::Kind::kConstant, DType::kInt8, {5}, {}, "", 1});                             // 2
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kFloat32, {n, 3}, {1, 0}, "t", -1});                // 3
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kInt64, {1}, {}, "", -1});                          // 4
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kFloat32, {n, 3, half, chosen}, {}, "image", -1});  // 5
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kFloat32, {n, 3}, {}, "state", -1});                // 6
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kFloat32, {trips, n, 3}, {}, "stack", -1});         // 7
  p->buffers.push_back({BufferInfo::Kind::kTemporary, DType::kFloat32, {2 << 20}, {}, "workspace", -1});         // 8
  const auto bytes = [](std::size_t size) {
    std::byte* at = nullptr;
    Data d = make_data(size, &at);
    for (std::size_t k = 0; k < size; ++k) at[k] = static_cast<std::byte>(k);
    return d;
  };
  p->constants = {bytes(36), bytes(5)};
  p->kernels = {{"k0", {.body = "(char* const* b, const i64* s, i64 begin, i64 end) {}"}}, {"k1", gemm_kernel()}};
  p->objects = {std::string("\x7f"
                            "ELF\0\1\2",
                            7),
                ""};

  const auto add = [](Block& b, StepOp op, std::vector<int> reads, std::vector<int> writes) {
    b.steps.push_back({std::move(op), "node (Op)", std::move(reads), std::move(writes), {}});
  };
  add(p->init, LaunchStep{0, {1, 3}, {}, 9, 1}, {1}, {3});
  add(p->main, LaunchStep{1, {0, 3}, {n, half}, chosen, 3}, {0}, {3});
  PostInfo sum{PostKind::kAddTensor, 0, 0, DType::kFloat32, 1, {1, 3}},
      relu{PostKind::kRelu, 0.5f, 0.25f, DType::kFloat32, -1, {}};
  add(p->main, GemmStep{0, 1, 3, {}, {}, n, 3, 3, false, true, {sum, relu}}, {0, 1}, {3});
  ConvStep c;
  c.x = 5, c.w = 1, c.out = 5;
  c.strides = {2, 1}, c.dilations = {1, 3};
  c.pads_begin = {0, half}, c.pads_end = {1, 0};
  c.channels_last = true;
  c.x_shape = c.out_shape = {n, 3, half, chosen};
  c.w_shape = {3, 3, 1, 1};
  add(p->main, std::move(c), {1, 5}, {5});
  AttentionStep a;
  a.q = a.k = a.v = a.out = {6, 0, {n, 3, 1, 1}};
  a.q.buffer = 0;
  a.batch = n, a.heads = 2, a.queries = a.keys = half, a.head_dim = a.value_dim = 3;
  a.group = 2;
  a.scale = 0.125f;
  add(p->main, std::move(a), {0, 6}, {6});
  add(p->main, example_forms(n, half), {0}, {6});
  p->main.steps.back().when = compare(Op::kGt, n, 1);
  add(p->main, example_tiles(n), {0, 1}, {6, 8});
  add(p->main, RoutineStep{"topk", {{0, {n * 3}}}, {{3, {n, 3}}}, {count, 1}, {0.5, -1e300}}, {0}, {3});
  add(p->main, BindStep{4, {1}}, {4}, {});
  add(p->main, CheckStep{compare(Op::kLe, count, n), "too many", true}, {}, {});

  IfStep branch;
  branch.condition = count;
  branch.then_block = std::make_unique<Block>();
  branch.else_block = std::make_unique<Block>();
  branch.then_block->outputs = {{3, {n, 3}}};
  branch.else_block->outputs = {{0, {n, 3}}};
  add(*branch.then_block, LaunchStep{0, {3}, {i}, n, 1}, {}, {3});
  branch.then_symbols = {{2, n + 1}};
  branch.outputs = {{6, {n, 3}}};
  add(p->main, std::move(branch), {0, 3}, {6});

  WhileStep loop;
  loop.body = std::make_unique<Block>();
  loop.body->inputs = {{6, {n, 3}}};
  loop.body->outputs = {{6, {n, 3}}, {3, {n, 3}}};
  loop.initial = {{0, {n, 3}}};
  loop.outputs = {{6, {n, 3}}, {7, {trips, n, 3}}};
  loop.carried = loop.stacked = 1;
  loop.iteration = 2, loop.trips = 3;
  loop.trip_count = count;
  loop.next_condition = compare(Op::kLt, i, count);
  loop.carried_dims = {{1, n, count + 1}};
  loop.stacked_dims = {{2, half}};
  add(p->main, std::move(loop), {0, 3}, {6, 7});

  p->main.inputs = {{0, {n, 3}}};
  p->main.outputs = {{6, {n, 3}}, {7, {trips, n, 3}}};
  p->input_names = {"x"};
  p->output_names = {"state", "stack"};
  return p;
}

}  // namespace sardonyx
