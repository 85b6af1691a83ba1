// kernels/matrix.h: products of 16x16 tiles with every element type on every chip, of small integers, which all types
// hold exactly, so that results are exact too.
#include <random>

#include "gpu_test.h"

namespace sardonyx {
namespace {

constexpr const char* kSource = R"(
#include "matrix.h"
using namespace sdx;
// out[16][16] = a[16][k] . b[16][k]^T for k of two steps.
template <class T>
SDX_FN void tile(const T* a, const T* b, auto* out) {
  using M = Matrix<T>;
  const u32 lane = thread_id();
  if (lane >= kWave) return;
  typename M::Acc acc[M::kCount] = {};
  for (int step = 0; step < 2; ++step) {
    vec16 x[M::kVectorsA], y[M::kVectorsB];
    for (int v = 0; v < M::kVectorsA; ++v)
      x[v] = ((const vec16*)(a + M::row_a(lane, v) * 2 * M::kStep + step * M::kStep))[M::chunk(lane, v)];
    for (int v = 0; v < M::kVectorsB; ++v)
      y[v] = ((const vec16*)(b + M::row_b(lane, v) * 2 * M::kStep + step * M::kStep))[M::chunk(lane, v)];
    M::mma(x, y, acc);
  }
  for (int e = 0; e < M::kCount; ++e) out[M::acc_row(lane, e) * 16 + M::acc_col(lane, e)] = acc[e];
}
SDX_KERNEL void run(const TYPE* a, const TYPE* b, Matrix<TYPE>::Acc* out) { tile(a, b, out); }
SDX_KERNEL void step(int* out) { out[0] = Matrix<TYPE>::kStep; }
)";

struct Type {
  const char* name;
  std::size_t size;
  std::uint32_t (*encode)(int);  // of -3..3
};

std::uint32_t f32_bits(int v) {
  const float f = static_cast<float>(v);
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

// sign, then the table of 0, 1, 2, 3 in the format.
std::uint32_t small(int v, std::uint32_t sign, std::initializer_list<std::uint32_t> table) {
  return table.begin()[v < 0 ? -v : v] | (v < 0 ? sign : 0);
}

const Type kTypes[] = {
    {"f32", 4, f32_bits},
    {"f16", 2, [](int v) { return small(v, 0x8000, {0, 0x3c00, 0x4000, 0x4200}); }},
    {"bf16", 2, [](int v) { return f32_bits(v) >> 16; }},
    {"i8", 1, [](int v) { return static_cast<std::uint32_t>(v) & 0xff; }},
    {"f8e4m3fn", 1, [](int v) { return small(v, 0x80, {0, 0x38, 0x40, 0x44}); }},
    {"f8e5m2", 1, [](int v) { return small(v, 0x80, {0, 0x3c, 0x40, 0x42}); }},
    {"f8e4m3fnuz", 1, [](int v) { return small(v, 0x80, {0, 0x40, 0x48, 0x4c}); }},
    {"f8e5m2fnuz", 1, [](int v) { return small(v, 0x80, {0, 0x40, 0x44, 0x46}); }},
};

TEST(Matrix, ProductsOfTilesAreExact) {
  for (const std::string& device : test_devices()) {
    const auto gpu = open_gpu(device);
    for (const Type& type : kTypes) {
      SCOPED_TRACE(device + " " + type.name);
      std::string source = kSource;
      for (std::size_t at; (at = source.find("TYPE")) != std::string::npos;) source.replace(at, 4, type.name);
      const auto module = load_kernels(*gpu, source);
      std::vector<std::int32_t> step(1);
      auto there = on_gpu(*gpu, step);
      void* p = there.get();
      void* step_args[] = {&p};
      start(*gpu, module->function("step"), {1}, {256}, step_args);
      from_gpu(*gpu, step, p);
      const int k = 2 * step[0];
      ASSERT_GT(k, 0);
      std::mt19937 random(1);
      std::vector<int> a(static_cast<std::size_t>(16 * k)), b(a.size());
      for (auto* m : {&a, &b})
        for (int& x : *m) x = static_cast<int>(random() % 7) - 3;
      auto encode = [&](const std::vector<int>& m) {
        std::vector<std::uint8_t> bytes(m.size() * type.size);
        for (std::size_t i = 0; i < m.size(); ++i) {
          const std::uint32_t x = type.encode(m[i]);
          std::memcpy(&bytes[i * type.size], &x, type.size);
        }
        return on_gpu(*gpu, bytes);
      };
      const auto da = encode(a), db = encode(b), dout = on_gpu(*gpu, std::vector<float>(256));
      void *pa = da.get(), *pb = db.get(), *pout = dout.get();
      void* args[] = {&pa, &pb, &pout};
      start(*gpu, module->function("run"), {1}, {256}, args);
      std::vector<std::int32_t> out(256);
      from_gpu(*gpu, out, pout);
      for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 16; ++j) {
          int want = 0;
          for (int x = 0; x < k; ++x)
            want += a[static_cast<std::size_t>(i * k + x)] * b[static_cast<std::size_t>(j * k + x)];
          std::int32_t got = out[static_cast<std::size_t>(i * 16 + j)];
          if (std::string(type.name) != "i8") {
            float f;
            std::memcpy(&f, &got, 4);
            got = static_cast<int>(f);
          }
          ASSERT_EQ(got, want) << i << ", " << j;
        }
    }
  }
}

}  // namespace
}  // namespace sardonyx
