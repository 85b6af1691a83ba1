// Captured graphs, shared weights, several GPUs at once.
#include <atomic>
#include <thread>

#include "device/device.h"
#include "models.h"
#include "runtime/gpu_call.h"

namespace sardonyx {
namespace {

Options on(const char* device, bool graphs = true) {
  Options o;
  o.device = device;
  o.graphs = graphs;
  return o;
}

/// A chain whose intermediate results are outputs too, so that several launches touch callers' memory.
CompiledModel chain(const Options& o) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n", "k"});
  const std::string s = g.op("ReduceSum", {x, g.constant(tensor<std::int64_t>(DType::kInt64, {1}, {0}))},
                             {{"keepdims", std::int64_t{0}}});
  const std::string t =
      g.op("ReduceMax", {g.op("Mul", {x, s}), g.constant(tensor<std::int64_t>(DType::kInt64, {1}, {1}))},
           {{"keepdims", std::int64_t{0}}});
  g.output(s, "s");
  g.output(t, "t");
  return g.compile(o);
}

std::vector<float> counting(std::int64_t n, float first) {
  std::vector<float> v;
  for (std::int64_t k = 0; k < n; ++k) v.push_back(first + static_cast<float>(k % 13));
  return v;
}

class Graphs : public testing::TestWithParam<const char*> {};

// Sizes come again in another order, so that arenas grow and graphs are used with buffers elsewhere.
TEST_P(Graphs, ReplayedRunsGiveTheSame) {
  const CompiledModel with = chain(on(GetParam())), without = chain(on(GetParam(), false)), host = chain(Options{});
  for (const std::int64_t n : {3, 3, 3, 50, 3, 50, 50, 3, 0, 0, 3})
    for (int k = 0; k < 2; ++k) {
      const Tensor x = floats({n, 4}, counting(n * 4, static_cast<float>(k)));
      const auto a = with.run({{"x", x}}), b = without.run({{"x", x}}), c = host.run({{"x", x}});
      for (const char* name : {"s", "t"}) {
        EXPECT_EQ(values(a.at(name)), values(c.at(name))) << n;
        EXPECT_EQ(values(b.at(name)), values(c.at(name))) << n;
      }
    }
}

// The same graph on inputs and outputs that move about in the device's memory.
TEST_P(Graphs, AddressesMayChange) {
  const CompiledModel m = chain(on(GetParam())), host = chain(Options{});
  const Device device = Device::open(GetParam());
  std::vector<std::shared_ptr<void>> kept;
  for (int k = 0; k < 6; ++k) {
    const Tensor x = floats({5, 4}, counting(20, static_cast<float>(k)));
    const auto in = device.allocate(x.bytes()), s = device.allocate(16), t = device.allocate(20);
    device.copy(in.get(), x.data, x.bytes(), CopyKind::kToDevice);
    m.run({{x.dtype, x.dims, in.get(), true}}, [&](std::size_t index, DType, const std::vector<std::int64_t>&) {
      return OutputMemory{index == 0 ? s.get() : t.get(), true};
    });
    Tensor got = floats({5}, std::vector<float>(5));
    device.copy(got.data, t.get(), 20, CopyKind::kToHost);
    EXPECT_EQ(values(got), values(host.run({{"x", x}}).at("t"))) << k;
    if (k % 2 == 0) kept.insert(kept.end(), {in, s, t});  // so that addresses are new
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, Graphs, testing::Values("sim:gfx942", "sim:gfx1100"),
                         [](const auto& info) { return std::string(info.param).substr(4); });

TEST(GpuCall, SaysWhetherAddressesChanged) {
  int function, a, b;
  GpuCall call(&function, 2, 64, 0, {1, 0}, {7});
  EXPECT_TRUE(call.place({&a, &b}));
  EXPECT_FALSE(call.place({&a, &b}));
  EXPECT_EQ(*static_cast<void**>(call.launch.arguments[0]), &b);
  EXPECT_EQ(*static_cast<void**>(call.launch.arguments[1]), &a);
  EXPECT_EQ(*static_cast<std::int64_t*>(call.launch.arguments[2]), 7);
  EXPECT_TRUE(call.place({&b, &b}));
}

/// y = x . w with 400 KB of weights.
GraphBuilder heavy(float first) {
  GraphBuilder g;
  g.output(g.op("MatMul",
                {g.input("x", DType::kFloat32, {"n", 1000}), g.constant(floats({1000, 100}, counting(100000, first)))}),
           "y");
  return g;
}

TEST(SharedWeights, AreOnTheCardOnce) {
  const Device device = Device::open("sim:gfx942");
  std::vector<CompiledModel> models;
  models.push_back(heavy(1).compile(on("sim:gfx942")));
  const std::uint64_t before = device.free_memory();
  for (int k = 0; k < 3; ++k) models.push_back(heavy(1).compile(on("sim:gfx942")));
  EXPECT_LT(before - device.free_memory(), 100000u);
  models.push_back(heavy(2).compile(on("sim:gfx942")));
  EXPECT_GE(before - device.free_memory(), 400000u);
  models.push_back(heavy(1).compile(on("sim:gfx1100")));  // another GPU: its own
  EXPECT_GE(models.back().memory().now, 400000u);
  const Tensor x = floats({1, 1000}, std::vector<float>(1000, 1));
  models.erase(models.begin());  // who uploaded them goes first
  const float first = values(models[0].run({{"x", x}}).at("y"))[0];
  EXPECT_EQ(values(models.back().run({{"x", x}}).at("y"))[0], first);
  EXPECT_EQ(values(models[3].run({{"x", x}}).at("y"))[0], first + 1000);
  models.clear();
  EXPECT_GE(device.free_memory(), before + 400000);
}

// Seven values in a row, of which two live at a time; inputs and outputs are the caller's.
TEST(DeviceMemory, TheArenaIsWhatLives) {
  GraphBuilder g;
  std::string x = g.input("x", DType::kFloat32, {"n"});
  for (const char* op : {"Exp", "Neg", "Exp", "Abs", "Sqrt", "Neg", "Exp", "Neg"}) x = g.op(op, {x});
  g.output(x, "y");
  Options o = on("sim:gfx942");
  o.fuse = false;
  const CompiledModel m = g.compile(o);
  const Device device = Device::open("sim:gfx942");
  const std::size_t n = 200000, bytes = 4 * n;
  const auto in = device.allocate(bytes), out = device.allocate(bytes);
  const std::uint64_t constants = m.memory().now, before = device.free_memory();
  for (int k = 0; k < 3; ++k)
    m.run({{DType::kFloat32, {static_cast<std::int64_t>(n)}, in.get(), true}},
          [&](std::size_t, DType, const std::vector<std::int64_t>&) { return OutputMemory{out.get(), true}; });
  EXPECT_LE(static_cast<double>(m.memory().arena), 1.15 * 2 * static_cast<double>(bytes));
  EXPECT_LE(static_cast<double>(m.memory().peak - constants), 1.15 * 2 * static_cast<double>(bytes));
  EXPECT_LE(static_cast<double>(before - device.free_memory()), 1.15 * 2 * static_cast<double>(bytes));
  EXPECT_GE(m.memory().arena, bytes);
}

// Two GPUs in one process, used by turns and by threads at the same time.
TEST(SeveralCards, AtOnce) {
  const CompiledModel a = dense().compile(on("sim:gfx942")), b = dense().compile(on("sim:gfx1100"));
  for (int k = 0; k < 3; ++k) {
    const auto [x, y] = dense_case(4 + k);
    EXPECT_EQ(values(a.run({{"x", x}}).at("y")), y);
    EXPECT_EQ(values(b.run({{"x", x}}).at("y")), y);
  }
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int k = 0; k < 8; ++k) {
          const auto [x, y] = dense_case(1 + (t + k) % 3);
          if (values((t + k) % 2 ? a.run({{"x", x}}).at("y") : b.run({{"x", x}}).at("y")) != y) ++wrong;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(SeveralCards, TheCurrentOneStays) {
  const auto a = open_gpu("sim:gfx942"), b = open_gpu("sim:gfx1100");
  const Gpu::Scope outer(*a);
  const std::uint64_t free = a->free_memory();
  {
    const Gpu::Scope inner(*b);
    const auto there = b->allocate(1 << 20);
    EXPECT_EQ(a->free_memory(), free);  // asked of `a` though `b` is current
  }
  const auto here = a->allocate(1 << 20);
  EXPECT_LE(a->free_memory() + (1 << 20), free);
}

}  // namespace
}  // namespace sardonyx
