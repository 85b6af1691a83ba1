// See gemm_library.h. Both libraries have the same functions with other names and constants.
#include "vendor/gemm_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "support/error.h"

namespace sardonyx {
namespace {

// The libraries are column-major. They compute a row-major product as out^T = b^T a^T: their A is our b, and their rows
// are our columns.

/// An algorithm and its properties, as both libraries return them. The algorithm itself is smaller; the properties
/// follow at an offset that differs between the libraries.
struct Heuristic {
  alignas(8) std::array<unsigned char, 256> bytes;
};

/// Constants that differ between the libraries.
struct Numbers {
  int layout_batches, layout_stride;
  int trans_a, trans_b, epilogue, bias, bias_type;
  int plain, transposed;  // hipblasOperation_t, cublasOperation_t
  int compute_float32;
  std::size_t algorithm_bytes;  // then size_t workspace, int state, float waves, int reserved[4]
  bool alignments, gelu_tanh;
};
constexpr Numbers kCuda = {5, 6, 3, 4, 7, 8, 26, 0, 1, 68, 64, true, true};
constexpr Numbers kHip = {0, 1, 0, 1, 2, 3, 4, 111, 112, 2, 24, false, false};
// The same in both libraries.
constexpr int kMaxWorkspace = 1, kFirstAlignment = 5;  // preferences
constexpr int kRelu = 2, kBias = 4, kGelu = 32, kDefault = 1;
constexpr std::uint32_t kAlignment = 16;

int type_number(DType t) { return t == DType::kFloat16 ? 2 : t == DType::kBFloat16 ? 14 : 0; }

struct Functions {
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*layout_create)(void**, int type, std::uint64_t rows, std::uint64_t cols, std::int64_t ld) = nullptr;
  int (*layout_set)(void*, int, const void*, std::size_t) = nullptr;
  int (*layout_destroy)(void*) = nullptr;
  int (*matmul_create)(void**, int compute, int scale) = nullptr;
  int (*matmul_set)(void*, int, const void*, std::size_t) = nullptr;
  int (*matmul_destroy)(void*) = nullptr;
  int (*preference_create)(void**) = nullptr;
  int (*preference_set)(void*, int, const void*, std::size_t) = nullptr;
  int (*preference_destroy)(void*) = nullptr;
  int (*choose)(void*, void*, void*, void*, void*, void*, void*, int, void*, int*) = nullptr;
  int (*run)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*,
             void*, const void*, void*, std::size_t, void*) = nullptr;
};

/// A handle that the library's function destroys.
using Owned = std::unique_ptr<void, int (*)(void*)>;

class Library;

class Plan : public GemmPlan {
 public:
  Plan(std::shared_ptr<const Library> library, const LibraryGemm& p) : library_(std::move(library)), product_(p) {}
  void run(const LibraryTensors& t, GpuStream stream) const override;

  std::shared_ptr<const Library> library_;
  LibraryGemm product_;
  Heuristic chosen_{};
};

class Library : public GemmLibrary, public std::enable_shared_from_this<Library> {
 public:
  Library(std::shared_ptr<Gpu> gpu, bool cuda, void* handle, const std::string& file)
      : gpu_(std::move(gpu)), n_(cuda ? kCuda : kHip), library_name_(cuda ? "cuBLASLt" : "hipBLASLt") {
    const std::string prefix = cuda ? "cublasLt" : "hipblasLt";
    const auto find = [&](auto& to, const char* symbol) {
      void* f = dlsym(handle, (prefix + symbol).c_str());
      if (!f) fail(ErrorKind::kUnsupported, "{} has no {}{}", file, prefix, symbol);
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(f);
    };
    find(f_.create, "Create");
    find(f_.destroy, "Destroy");
    find(f_.layout_create, "MatrixLayoutCreate");
    find(f_.layout_set, "MatrixLayoutSetAttribute");
    find(f_.layout_destroy, "MatrixLayoutDestroy");
    find(f_.matmul_create, "MatmulDescCreate");
    find(f_.matmul_set, "MatmulDescSetAttribute");
    find(f_.matmul_destroy, "MatmulDescDestroy");
    find(f_.preference_create, "MatmulPreferenceCreate");
    find(f_.preference_set, "MatmulPreferenceSetAttribute");
    find(f_.preference_destroy, "MatmulPreferenceDestroy");
    find(f_.choose, "MatmulAlgoGetHeuristic");
    find(f_.run, "Matmul");
    const Gpu::Scope scope(*gpu_);
    require(f_.create(&handle_), "making a handle");
    if (cuda) {
      std::size_t (*version)() = nullptr;
      find(version, "GetVersion");
      // 130100 is 13.1.0; up to version 11 the minor number had one digit less
      const std::size_t v = version();
      name_ = fmt::format("{} {}.{}.{}", library_name_, v / 10000, v % 10000 / 100, v % 100);
    } else {
      int (*version)(void*, int*) = nullptr;
      find(version, "GetVersion");
      int v = 0;
      require(version(handle_, &v), "reading its version");
      name_ = fmt::format("{} {}.{}.{}", library_name_, v / 100000, v % 100000 / 100, v % 100);
    }
  }
  ~Library() override {
    try {
      const Gpu::Scope scope(*gpu_);
      if (handle_) f_.destroy(handle_);
    } catch (const Error&) {
      return;  // the driver is gone
    }
  }

  std::vector<std::shared_ptr<const GemmPlan>> plans(const LibraryGemm& p, int at_most) const override {
    std::vector<std::shared_ptr<const GemmPlan>> out;
    if (p.epilogue.activation == GemmActivation::kGeluTanh && !n_.gelu_tanh) return out;
    try {
      const Gpu::Scope scope(*gpu_);
      const Description d(*this, p, nullptr);
      void* made = nullptr;
      require(f_.preference_create(&made), "making preferences");
      const Owned preference(made, f_.preference_destroy);
      const std::uint64_t most = kLibraryWorkspace;
      require(f_.preference_set(made, kMaxWorkspace, &most, sizeof most), "setting a preference");
      for (int k = 0; n_.alignments && k < 4; ++k)
        require(f_.preference_set(made, kFirstAlignment + k, &kAlignment, sizeof kAlignment), "setting a preference");
      // Results are stored contiguously, each as large as the library's own structure.
      const std::size_t size = n_.algorithm_bytes + sizeof(std::size_t) + 6 * sizeof(int);
      std::vector<unsigned char> found(size * static_cast<std::size_t>(at_most));
      int count = 0;
      if (f_.choose(handle_, d.product.get(), d.a.get(), d.b.get(), d.out.get(), d.out.get(), made, at_most,
                    found.data(), &count) != 0)
        return out;  // the library does not support this GEMM
      for (int k = 0; k < std::min(count, at_most); ++k) {
        const unsigned char* at = found.data() + size * static_cast<std::size_t>(k);
        int state = 0;
        std::memcpy(&state, at + n_.algorithm_bytes + sizeof(std::size_t), sizeof state);
        if (state != 0) continue;
        auto plan = std::make_shared<Plan>(shared_from_this(), p);
        std::memcpy(plan->chosen_.bytes.data(), at, size);
        out.push_back(std::move(plan));
      }
    } catch (const Error&) {
      out.clear();  // what it cannot describe it cannot compute
    }
    return out;
  }

  void run(const Plan& plan, const LibraryTensors& t, GpuStream stream) const {
    const Gpu::Scope scope(*gpu_);
    const Description d(*this, plan.product_, t.bias);
    const float one = 1, zero = 0;
    require(f_.run(handle_, d.product.get(), &one, t.b, d.a.get(), t.a, d.b.get(), t.residual ? &one : &zero,
                   t.residual ? t.residual : t.out, d.out.get(), t.out, d.out.get(), plan.chosen_.bytes.data(),
                   t.workspace, kLibraryWorkspace, stream),
            "a matrix product");
  }

 private:
  /// The library's descriptors of a GEMM and its matrices.
  struct Description {
    Owned product, a, b, out;

    Description(const Library& l, const LibraryGemm& p, const void* bias)
        : product(nullptr, l.f_.matmul_destroy),
          a(layout(l, p.type, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.batches, p.one_b)),
          b(layout(l, p.type, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.batches, p.one_a)),
          out(layout(l, p.out, p.n, p.m, p.batches, false)) {
      void* made = nullptr;
      l.require(l.f_.matmul_create(&made, l.n_.compute_float32, type_number(DType::kFloat32)), "describing a product");
      product.reset(made);
      const auto set = [&](int what, const auto& value) {
        l.require(l.f_.matmul_set(made, what, &value, sizeof value), "describing a product");
      };
      set(l.n_.trans_a, p.trans_b ? l.n_.transposed : l.n_.plain);
      set(l.n_.trans_b, p.trans_a ? l.n_.transposed : l.n_.plain);
      int epilogue = p.epilogue.bias ? kBias : 0;
      if (p.epilogue.activation == GemmActivation::kRelu) epilogue |= kRelu;
      if (p.epilogue.activation == GemmActivation::kGeluTanh) epilogue |= kGelu;
      set(l.n_.epilogue, epilogue ? epilogue : kDefault);
      if (!p.epilogue.bias) return;
      set(l.n_.bias_type, type_number(p.out));
      if (bias) set(l.n_.bias, bias);
    }

    static Owned layout(const Library& l, DType type, std::int64_t rows, std::int64_t cols, std::int64_t batches,
                        bool one) {
      void* made = nullptr;
      l.require(l.f_.layout_create(&made, type_number(type), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(cols), rows),
                "describing a matrix");
      Owned out(made, l.f_.layout_destroy);
      if (batches == 1) return out;
      const auto count = static_cast<std::int32_t>(batches);
      const std::int64_t stride = one ? 0 : rows * cols;
      l.require(l.f_.layout_set(made, l.n_.layout_batches, &count, sizeof count), "describing a matrix");
      l.require(l.f_.layout_set(made, l.n_.layout_stride, &stride, sizeof stride), "describing a matrix");
      return out;
    }
  };

  void require(int code, const char* what) const {
    if (code != 0) fail(ErrorKind::kDevice, "{}: {} failed: status {}", library_name_, what, code);
  }

  std::shared_ptr<Gpu> gpu_;
  Numbers n_;
  std::string library_name_;
  Functions f_;
  void* handle_ = nullptr;
};

void Plan::run(const LibraryTensors& t, GpuStream stream) const { library_->run(*this, t, stream); }

std::shared_ptr<const GemmLibrary> open_library(const std::shared_ptr<Gpu>& gpu, const std::string& path,
                                                std::string& why) {
  const bool cuda = gpu->info().api == GpuApi::kCuda;
  std::vector<std::string> files = {path};
  if (path.empty() && gpu->info().simulated) {
    why = "a simulated GPU has no vendor library";
    return nullptr;
  }
  if (path.empty())
    files = cuda ? std::vector<std::string>{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}
                 : std::vector<std::string>{"libhipblaslt.so.1", "libhipblaslt.so.0", "libhipblaslt.so"};
  why.clear();
  for (const std::string& file : files) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* reason = dlerror();
      why += fmt::format("{}{}", why.empty() ? "" : "; ", reason ? reason : file);
      continue;
    }
    try {
      return std::make_shared<Library>(gpu, cuda, handle, file);
    } catch (const Error& error) {
      why = error.what();
      return nullptr;
    }
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<const GemmLibrary> open_gemm_library(const std::shared_ptr<Gpu>& gpu, const std::string& path,
                                                     std::string& why) {
  static std::mutex& mutex = *new std::mutex;
  // Never closed: a library's own threads and handles may be in use until the process ends.
  static auto& opened =
      *new std::map<std::pair<std::string, std::string>, std::pair<std::shared_ptr<const GemmLibrary>, std::string>>;
  const std::lock_guard lock(mutex);
  const auto [it, fresh] = opened.try_emplace({gpu->info().name, path});
  if (fresh) it->second.first = open_library(gpu, path, it->second.second);
  why = it->second.second;
  return it->second.first;
}

std::string library_candidate(const std::string& library, std::size_t at, const LibraryEpilogue& e) {
  std::string name = fmt::format("{} #{}", library, at);
  if (e.bias) name += " bias";
  if (e.residual) name += " residual";
  if (e.activation == GemmActivation::kRelu) name += " relu";
  if (e.activation == GemmActivation::kGeluTanh) name += " gelu";
  return name;
}

}  // namespace sardonyx
