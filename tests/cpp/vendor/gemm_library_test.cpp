// GEMMs of a vendor's library: choices with a stub on simulated GPUs, and captured graphs with a driver that only
// records its calls.
#include "vendor/gemm_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "device/driver.h"
#include "models.h"
#include "support/error.h"
#include "tune/database.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

/// A copy of the stub, whose settings are its own.
struct Stub {
  fs::path path;
  void* handle = nullptr;
  Stub(const char* name, int version, const char* from = STUB)
      : path(fs::temp_directory_path() / fmt::format("sardonyx-stub-{}-{}.so", name, ::getpid())) {
    fs::copy_file(from, path, fs::copy_options::overwrite_existing);
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    configure(version, 2, 0);
  }
  ~Stub() { fs::remove(path); }
  void configure(int version, int ways, int fail) const {
    reinterpret_cast<void (*)(int, int, int)>(dlsym(handle, "stub_configure"))(version, ways, fail);
  }
  int runs() const { return reinterpret_cast<int (*)()>(dlsym(handle, "stub_runs"))(); }
};

struct File {
  fs::path path;
  explicit File(const char* name) : path(fs::temp_directory_path() / fmt::format("sardonyx-{}-{}", name, ::getpid())) {
    fs::remove(path);
  }
  ~File() { fs::remove(path); }
};

std::vector<float> counting(std::int64_t n, int modulus) {
  std::vector<float> v;
  for (std::int64_t k = 0; k < n; ++k) v.push_back(static_cast<float>(k % modulus) - 2);
  return v;
}

constexpr std::int64_t kK = 24, kN = 40;

/// relu(x w + bias + residual)
CompiledModel layer(const std::string& device, const std::string& library, const fs::path& database,
                    const std::string& tuning) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n", kK}), r = g.input("r", DType::kFloat32, {"n", kN});
  const std::string p = g.op("MatMul", {x, g.constant(floats({kK, kN}, counting(kK * kN, 7)))});
  const std::string s = g.op("Add", {g.op("Add", {p, g.constant(floats({kN}, counting(kN, 5)))}), r});
  g.output(g.op("Relu", {s}), "y");
  Options o;
  o.device = device;
  o.product_library = library;
  o.tuning_database = database;
  o.tuning = tuning;
  return g.compile(o);
}

std::vector<float> result(const CompiledModel& m, std::int64_t n) {
  return values(
      m.run({{"x", floats({n, kK}, counting(n * kK, 11))}, {"r", floats({n, kN}, counting(n * kN, 3))}}).at("y"));
}

std::vector<float> wanted(std::int64_t n) { return result(layer("host", "", {}, "off"), n); }

constexpr const char* kDevice = "sim:gfx942";

// Times of simulated GPUs say nothing, but the stub is always faster than their interpreter.
TEST(GemmLibrary, IsChosenWhereItIsFasterAndOfTheSameVersion) {
  const Stub one("one", 100203), other("other", 100204), old("old", 1, OLD_STUB);
  const File file("library.tuning");
  const CompiledModel tuned = layer(kDevice, one.path, file.path, "exhaustive");
  for (int k = 0; k < 3; ++k) EXPECT_EQ(result(tuned, 6), wanted(6));
  EXPECT_GT(one.runs(), 3);
  std::set<std::string> names;
  for (const TuningRow& r : TuningDatabase(file.path, false).rows()) {
    names.insert(r.candidate);
    EXPECT_EQ(r.library.has_value(), r.candidate.starts_with("hipBLASLt ")) << r.candidate;
    if (r.library) {
      EXPECT_EQ(*r.library, (LibraryEpilogue{true, true, GemmActivation::kRelu}));
    }
  }
  EXPECT_TRUE(names.count("hipBLASLt 1.2.3 #0 bias residual relu") &&
              names.count("hipBLASLt 1.2.3 #1 bias residual relu"))
      << fmt::format("{}", fmt::join(names, ", "));

  const auto uses = [&](const Stub& stub, const std::string& library, std::int64_t n) {
    const int before = stub.runs();
    const CompiledModel m = layer(kDevice, library, file.path, "off");
    EXPECT_EQ(result(m, n), wanted(n));
    EXPECT_EQ(result(m, n), wanted(n));
    return stub.runs() - before;
  };
  EXPECT_EQ(uses(one, one.path, 6), 2);
  EXPECT_EQ(uses(one, one.path, 7), 0);      // what was not measured is ours
  EXPECT_EQ(uses(one, "off", 6), 0);         // forbidden
  EXPECT_EQ(uses(one, "", 6), 0);            // not there
  EXPECT_EQ(uses(one, old.path, 6), 0);      // misses a function
  EXPECT_EQ(uses(other, other.path, 6), 0);  // of another version
  // A version that was not measured is timed beside what is known; forbidden, it is not.
  const int before = other.runs();
  EXPECT_EQ(result(layer(kDevice, "off", file.path, "exhaustive"), 6), wanted(6));
  EXPECT_EQ(other.runs(), before);
  EXPECT_EQ(result(layer(kDevice, other.path, file.path, "first-use"), 6), wanted(6));
  EXPECT_GT(other.runs(), before);
  EXPECT_GT(uses(one, one.path, 6) + uses(other, other.path, 6), 0);
}

TEST(GemmLibrary, FailuresFallBackToOurKernel) {
  const Stub stub("failing", 100000);
  const File file("failing.tuning");
  EXPECT_EQ(result(layer(kDevice, stub.path, file.path, "exhaustive"), 5), wanted(5));
  const CompiledModel m = layer(kDevice, stub.path, file.path, "off");
  stub.configure(100000, 2, 1);
  const int before = stub.runs();
  testing::internal::CaptureStderr();
  for (int k = 0; k < 3; ++k) EXPECT_EQ(result(m, 5), wanted(5));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(stub.runs(), before);  // it failed once, and is not asked again
  EXPECT_NE(said.find("hipBLASLt 1.0.0 #"), std::string::npos) << said;
  EXPECT_NE(said.find("status 6"), std::string::npos) << said;
  EXPECT_NE(said.find("failed, our own"), std::string::npos) << said;
  EXPECT_EQ(said.find("failed, our own"), said.rfind("failed, our own")) << said;  // said once

  // While it is timed: no candidate.
  const File fresh("fresh.tuning");
  stub.configure(100000, 2, 1000000);
  EXPECT_EQ(result(layer(kDevice, stub.path, fresh.path, "exhaustive"), 5), wanted(5));
  for (const TuningRow& r : TuningDatabase(fresh.path, false).rows()) EXPECT_FALSE(r.library) << r.candidate;
  stub.configure(100000, 2, 0);
}

// All forms of operands.
TEST(GemmLibrary, TransposedAndBatched) {
  const Stub stub("forms", 100000);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool one_b : {false, true}) {
        const auto model = [&](const char* device, const fs::path& database) {
          GraphBuilder g;
          const std::int64_t batch = 3;
          using Dims = std::vector<GraphBuilder::Dim>;
          const std::string x = g.input("x", DType::kFloat32, ta ? Dims{batch, kK, "n"} : Dims{batch, "n", kK});
          Dims w = tb ? Dims{kN, kK} : Dims{kK, kN};
          if (!one_b) w.insert(w.begin(), batch);
          const std::string y = g.input("w", DType::kFloat32, w);
          const auto turned = [&](const std::string& v, bool all) {
            return g.op("Transpose", {v},
                        {{"perm", all ? std::vector<std::int64_t>{0, 2, 1} : std::vector<std::int64_t>{1, 0}}});
          };
          g.output(g.op("MatMul", {ta ? turned(x, true) : x, tb ? turned(y, !one_b) : y}), "y");
          Options o;
          o.device = device;
          if (!database.empty()) {
            o.product_library = stub.path;
            o.tuning_database = database;
            o.tuning = "first-use";
          }
          return g.compile(o);
        };
        const auto run = [&](const CompiledModel& m) {
          std::vector<std::int64_t> w = tb ? std::vector<std::int64_t>{kN, kK} : std::vector<std::int64_t>{kK, kN};
          if (!one_b) w.insert(w.begin(), 3);
          const std::int64_t n = 10;
          return values(
              m.run({{"x", floats(ta ? std::vector<std::int64_t>{3, kK, n} : std::vector<std::int64_t>{3, n, kK},
                                  counting(3 * n * kK, 11))},
                     {"w", floats(w, counting(kK * kN * (one_b ? 1 : 3), 7))}})
                  .at("y"));
        };
        const File file("forms.tuning");
        const int before = stub.runs();
        EXPECT_EQ(run(model(kDevice, file.path)), run(model("host", {}))) << ta << tb << one_b;
        EXPECT_GT(stub.runs(), before) << ta << tb << one_b;
      }
}

// ---- graphs

std::vector<std::string> asked;

struct Work : GpuWork {
  bool fails = false;
  void give(GpuStream) const override {
    asked.push_back("work");
    if (fails) sardonyx::fail(ErrorKind::kDevice, "it does not work");
  }
};

Driver writing_driver() {
  Driver d;
  d.name = "cuda";
  d.form = &cuda_form();
  static std::intptr_t node = 0;
  d.graph_create = [](void** g, unsigned) { return *g = reinterpret_cast<void*>(&node), 0; };
  d.graph_destroy = [](void*) { return 0; };
  d.graph_add_kernel = [](void** n, void*, void* const*, std::size_t after, const void*) {
    *n = reinterpret_cast<void*>(++node);
    return asked.push_back(after ? "kernel after" : "kernel"), 0;
  };
  d.graph_add_order = [](void*, void* const*, void* const*, const void*, std::size_t) {
    return asked.push_back("early"), 0;
  };
  d.graph_instantiate = [](void** e, void*, unsigned long long) { return *e = reinterpret_cast<void*>(&node), 0; };
  d.graph_set_kernel = [](void*, void*, const void*) { return asked.push_back("set kernel"), 0; };
  d.graph_launch = [](void*, void*) { return 0; };
  d.graph_release = [](void*) { return 0; };
  d.capture_begin = [](void*, int mode) { return asked.push_back(fmt::format("begin {}", mode)), 0; };
  d.capture_end = [](void*, void** g) {
    *g = reinterpret_cast<void*>(&node);
    return asked.push_back("end"), 0;
  };
  d.graph_add_graph = [](void** n, void*, void* const*, std::size_t after, void*) {
    *n = reinterpret_cast<void*>(++node);
    return asked.push_back(after ? "graph after" : "graph"), 0;
  };
  d.graph_set_graph = [](void*, void*, void*) { return asked.push_back("set graph"), 0; };
  return d;
}

TEST(LibraryInGraphs, IsRecordedAndOrderedWhole) {
  const Driver d = writing_driver();
  const std::shared_ptr<Gpu> gpu = open_gpu(kDevice);
  Work work;
  GpuLaunch early, library;
  early.starts_early = true;
  library.work = &work;
  asked.clear();
  const std::vector<GpuLaunch> launches = {early, early, library, early, early};
  const auto graph = make_graph(d, gpu, launches);
  ASSERT_TRUE(graph);
  // Our kernels start early after our own only.
  EXPECT_EQ(asked, (std::vector<std::string>{"kernel", "kernel", "early", "begin 1", "work", "end", "graph after",
                                             "kernel after", "kernel", "early"}));
  asked.clear();
  graph->set(2, library);
  graph->set(3, early);
  EXPECT_EQ(asked, (std::vector<std::string>{"begin 1", "work", "end", "set graph", "set kernel"}));
  // What fails while it is recorded ends the recording.
  work.fails = true;
  asked.clear();
  EXPECT_THROW(make_graph(d, gpu, launches), Error);
  EXPECT_EQ(asked.back(), "end");
  // A driver that can't record has no graph for such work, but for others.
  Driver without = d;
  without.capture_begin = nullptr;
  EXPECT_FALSE(make_graph(without, gpu, launches));
  EXPECT_TRUE(make_graph(without, gpu, std::vector<GpuLaunch>{early}));
}

}  // namespace
}  // namespace sardonyx
