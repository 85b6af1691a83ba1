// Runs on tensors in place, in host memory or in the memory of a (simulated) GPU, on callers' streams.
#include <atomic>
#include <cstring>
#include <thread>

#include "models.h"

namespace sardonyx {
namespace {

std::size_t count(const std::vector<std::int64_t>& dims) {
  std::size_t n = 1;
  for (std::int64_t d : dims) n *= static_cast<std::size_t>(d);
  return n;
}

/// A tensor in a device's memory.
struct There {
  Device device;
  std::shared_ptr<void> memory;
  TensorView view;

  There(const Device& d, const Tensor& t) : device(d), memory(d.allocate(t.bytes())) {
    device.copy(memory.get(), t.data, t.bytes(), CopyKind::kToDevice);
    view = {t.dtype, t.dims, memory.get(), true};
  }
};

/// Gives outputs memory of a device, and brings them to the host.
struct Outputs {
  Device device;
  std::map<std::size_t, std::shared_ptr<void>> memory;
  std::map<std::size_t, std::vector<std::int64_t>> dims;
  std::vector<std::size_t> asked;

  explicit Outputs(const Device& d) : device(d) {}
  OutputAllocator allocator() {
    return [this](std::size_t k, DType dtype, const std::vector<std::int64_t>& shape) {
      asked.push_back(k);
      dims[k] = shape;
      memory[k] = device.allocate(count(shape) * size_of(dtype));
      return OutputMemory{memory[k].get(), true};
    };
  }
  Tensor at(std::size_t k, DType dtype = DType::kFloat32) const {
    Tensor t = Tensor::allocate(dtype, dims.at(k));
    device.copy(t.data, memory.at(k).get(), t.bytes(), CopyKind::kToHost);
    return t;
  }
};

class DeviceTensors : public testing::TestWithParam<const char*> {
 protected:
  Device device = Device::open(GetParam());
  Options options = [this] {
    Options o;
    o.device = GetParam();
    return o;
  }();
};

TEST_P(DeviceTensors, CopiesThereAndBack) {
  for (const std::size_t bytes : {0ul, 1ul, 1000ul, 300000ul, 9000001ul}) {
    std::vector<unsigned char> a(bytes), b(bytes);
    for (std::size_t k = 0; k < bytes; ++k) a[k] = static_cast<unsigned char>(k * 7 + k / 251);
    const auto x = device.allocate(bytes), y = device.allocate(bytes);
    device.copy(x.get(), a.data(), bytes, CopyKind::kToDevice);
    device.copy(y.get(), x.get(), bytes, CopyKind::kOnDevice);
    device.copy(b.data(), y.get(), bytes, CopyKind::kToHost);
    EXPECT_EQ(a, b) << bytes;
  }
  const auto pinned = device.allocate_pinned(64), there = device.allocate(64), stream = device.create_stream();
  std::memset(pinned.get(), 5, 64);
  device.copy(there.get(), pinned.get(), 64, CopyKind::kToDevice, stream.get());
  const auto back = device.allocate_pinned(64);
  device.copy(back.get(), there.get(), 64, CopyKind::kToHost, stream.get());
  device.synchronize(stream.get());
  EXPECT_EQ(std::memcmp(pinned.get(), back.get(), 64), 0);
  EXPECT_GT(device.free_memory(), 0u);
  EXPECT_EQ(device.info().name.substr(0, 4), std::string(GetParam()).substr(0, 4));
}

TEST_P(DeviceTensors, InputsAndOutputsStayThere) {
  const CompiledModel m = dense().compile(options);
  const auto stream = device.create_stream();
  for (const std::int64_t batch : {1, 5, 5, 64, 0, 5}) {
    const auto [x, y] = dense_case(batch);
    const There in(device, x);
    Outputs out(device);
    RunOptions o;
    o.stream = stream.get();
    o.synchronize = false;
    m.run({in.view}, out.allocator(), o);
    device.synchronize(stream.get());
    EXPECT_EQ(out.dims.at(0), (std::vector<std::int64_t>{batch, 2}));
    EXPECT_EQ(values(out.at(0)), y) << batch;
    EXPECT_EQ(out.asked, std::vector<std::size_t>{0});
  }
}

// Kernels read and write 16 bytes at a time: memory that begins elsewhere goes through a copy, which takes arena.
TEST_P(DeviceTensors, MemoryThatBeginsAnywhere) {
  const auto [x, y] = dense_case(37);
  std::uint64_t arena[2];
  for (const std::size_t shift : {0, 4}) {
    const CompiledModel m = dense().compile(options);
    const auto in = device.allocate(x.bytes() + shift), out = device.allocate(37 * 2 * 4 + shift);
    char *from = static_cast<char*>(in.get()) + shift, *to = static_cast<char*>(out.get()) + shift;
    device.copy(from, x.data, x.bytes(), CopyKind::kToDevice);
    for (int run = 0; run < 3; ++run) {
      m.run({{x.dtype, x.dims, from, true}},
            [&](std::size_t, DType, const std::vector<std::int64_t>&) { return OutputMemory{to, true}; });
      Tensor t = Tensor::allocate(DType::kFloat32, {37, 2});
      device.copy(t.data, to, t.bytes(), CopyKind::kToHost);
      EXPECT_EQ(values(t), y);
    }
    arena[shift / 4] = m.memory().arena;
  }
  if (options.device != "host") {
    EXPECT_GT(arena[1], arena[0]);
  }
}

TEST_P(DeviceTensors, SomeOnTheHost) {
  GraphBuilder g;
  const std::string a = g.input("a", DType::kFloat32, {"n"}), b = g.input("b", DType::kFloat32, {"n"});
  g.output(g.op("Add", {a, b}), "sum");
  g.output(g.op("Sub", {a, b}), "difference");
  const CompiledModel m = g.compile(options);
  const There in(device, floats({2}, {1, 2}));
  const Tensor here = floats({2}, {10, 30});
  Tensor sum;
  Outputs out(device);
  m.run({in.view, {DType::kFloat32, {2}, here.data, false}},
        [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
          if (k == 1) return out.allocator()(k, dtype, dims);
          sum = Tensor::allocate(dtype, dims);
          return OutputMemory{sum.data, false};
        });
  EXPECT_EQ(values(sum), (std::vector<float>{11, 32}));
  EXPECT_EQ(values(out.at(1)), (std::vector<float>{-9, -28}));
}

// Outputs that no step can write to their place: an input, a constant, one value twice.
TEST_P(DeviceTensors, OutputsThatAreCopies) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n"});
  const std::string y = g.op("Neg", {x});
  g.output(x, "x");
  g.output(y, "y");
  g.output(g.op("Identity", {y}), "z");
  g.output(g.op("Identity", {g.constant(floats({2}, {7, 8}))}), "c");
  const CompiledModel m = g.compile(options);
  const There in(device, floats({3}, {1, 2, 3}));
  Outputs out(device);
  m.run({in.view}, out.allocator());
  EXPECT_EQ(values(out.at(0)), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(values(out.at(1)), (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(values(out.at(2)), (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(values(out.at(3)), (std::vector<float>{7, 8}));
  EXPECT_EQ(out.asked.size(), 4u);
}

TEST_P(DeviceTensors, SizesKnownLate) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n"});
  const std::string at = g.op("NonZero", {x});
  g.output(at, "at");
  g.output(g.op("Neg", {g.op("Cast", {at}, {{"to", std::int64_t{1}}})}), "y");
  const CompiledModel m = g.compile(options);
  const There in(device, floats({4}, {1, 0, 3, 4}));
  Outputs out(device);
  m.run({in.view}, out.allocator());
  EXPECT_EQ(out.dims.at(0), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(values(out.at(1)), (std::vector<float>{0, -2, -3}));
}

// Sizes that the program was not compiled for: memory of an output is requested only once.
TEST_P(DeviceTensors, DimsThatBroadcast) {
  GraphBuilder g;
  const std::string a = g.input("a", DType::kFloat32, {"n"}), b = g.input("b", DType::kFloat32, {"m"});
  g.output(g.op("Add", {a, b}), "y");
  const CompiledModel m = g.compile(options);
  const There one(device, floats({1}, {1})), two(device, floats({2}, {1, 2}));
  for (int k = 0; k < 2; ++k) {
    Outputs out(device);
    m.run({one.view, two.view}, out.allocator());
    EXPECT_EQ(out.asked.size(), 1u);
    EXPECT_EQ(values(out.at(0)), (std::vector<float>{2, 3}));
  }
}

// A program for each value of an input, which is read where it is.
TEST_P(DeviceTensors, InputsWhoseValueIsNeeded) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n"}), axes = g.input("axes", DType::kInt64, {1});
  g.output(g.op("Unsqueeze", {x, axes}), "y");
  const CompiledModel m = g.compile(options);
  const There in(device, floats({2}, {1, 2})), zero(device, tensor<std::int64_t>(DType::kInt64, {1}, {0})),
      one(device, tensor<std::int64_t>(DType::kInt64, {1}, {1}));
  Outputs out(device);
  m.run({in.view, zero.view}, out.allocator());
  EXPECT_EQ(out.dims.at(0), (std::vector<std::int64_t>{1, 2}));
  m.run({in.view, one.view}, out.allocator());
  EXPECT_EQ(out.dims.at(0), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(values(out.at(0)), (std::vector<float>{1, 2}));
}

TEST_P(DeviceTensors, ManyThreadsWithStreamsOfTheirOwn) {
  const CompiledModel m = dense().compile(options);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        const auto stream = device.create_stream();
        for (int k = 0; k < 6; ++k) {
          const auto [x, y] = dense_case(1 + (t * 7 + k * 13) % 30);
          const There in(device, x);
          Outputs out(device);
          RunOptions o;
          o.stream = stream.get();
          o.synchronize = k % 2 == 0;
          m.run({in.view}, out.allocator(), o);
          device.synchronize(stream.get());
          if (values(out.at(0)) != y) ++wrong;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(DeviceTensors, Refusals) {
  const CompiledModel m = dense().compile(options);
  const There in(device, dense_case(2).first);
  Outputs out(device);
  expect_error(ErrorKind::kInvalidArgument, {"0 inputs", "1"},
               [&] { m.run(std::vector<TensorView>{}, out.allocator()); });
  expect_error(ErrorKind::kInvalidArgument, {"no allocator"}, [&] { m.run({in.view}, OutputAllocator{}); });
  expect_error(ErrorKind::kInvalidArgument, {"'y'"}, [&] {
    m.run({in.view}, [](std::size_t, DType, const std::vector<std::int64_t>&) { return OutputMemory{}; });
  });
  struct Mine {};
  EXPECT_THROW(
      m.run({in.view}, [](std::size_t, DType, const std::vector<std::int64_t>&) -> OutputMemory { throw Mine(); }),
      Mine);
  TensorView wrong = in.view;
  wrong.dtype = DType::kInt32;
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "int32"}, [&] { m.run({wrong}, out.allocator()); });
  m.run({in.view}, out.allocator());
  EXPECT_EQ(values(out.at(0)), dense_case(2).second);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceTensors, testing::Values("host", "sim:gfx942", "sim:gfx1100"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

TEST(DeviceMemory, ALimitIsKept) {
  Options o;
  o.device = "sim:gfx942";
  o.device_memory_limit = 100000;
  const CompiledModel m = dense().compile(o);
  EXPECT_EQ(values(m.run({{"x", dense_case(100).first}}).at("y")), dense_case(100).second);
  const MemoryUse use = m.memory();
  EXPECT_GT(use.constants, 0u);
  EXPECT_GE(use.arena, 100u * 3 * 4);
  EXPECT_GE(use.now, use.arena);
  EXPECT_GE(use.peak, use.now);
  EXPECT_LE(use.peak, o.device_memory_limit);
  expect_error(ErrorKind::kDevice, {"limit", "100000"}, [&] { m.run({{"x", dense_case(10000).first}}); });
  EXPECT_EQ(values(m.run({{"x", dense_case(7).first}}).at("y")), dense_case(7).second);
}

TEST(DeviceMemory, AsynchronousRunsNeedAStream) {
  Options o;
  o.device = "sim:gfx942";
  RunOptions r;
  r.synchronize = false;
  expect_error(ErrorKind::kInvalidArgument, {"stream"},
               [&] { dense().compile(o).run({{"x", dense_case(1).first}}, r); });
}

TEST(DeviceMemory, UnknownNames) {
  expect_error(ErrorKind::kInvalidArgument, {"toaster"}, [] { Device::open("toaster"); });
  expect_error(ErrorKind::kDevice, {"hip"}, [] { Device::open("hip:63"); });
}

}  // namespace
}  // namespace sardonyx
