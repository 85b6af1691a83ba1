// kernels/attention.h on GPUs, against the definition in float64: head sizes, types, causal, masks, splits, heads in
// groups.
#include <cmath>
#include <random>

#include "gpu_test.h"

namespace sardonyx {
namespace {

// Contiguous [B, H, S, D] tensors; HEAD and so on are replaced.
constexpr const char* kSource = R"(
#include "attention.h"
using namespace sdx;
struct P {
  using T = TYPE;
  using Out = TYPE;
  enum : int { kHeadDim = HEAD, kValueDim = VALUE, kQueryDirect = DIRECT, kKeyDirect = DIRECT, kValueDirect = DIRECT,
    kOutDirect = DIRECT, kPlain = !BIASED, kBounds = BOUNDS, kSink = SINK, kZeroEmpty = 1 };
  const T *q, *k, *v;
  const float* bias;
  T* o;
  i64 queries, keys, heads, group, low, high;
  SDX_FN const T* query(i64 b, i64 h, i64 s) const { return q + ((b * heads + h) * queries + s) * HEAD; }
  SDX_FN T query_at(i64 b, i64 h, i64 s, i64 d) const { return query(b, h, s)[d]; }
  SDX_FN const T* key(i64 b, i64 h) const { return k + (b * (heads / group) + h / group) * keys * HEAD; }
  SDX_FN i64 key_row() const { return HEAD; }
  SDX_FN T key_at(i64 b, i64 h, i64 t, i64 d) const { return key(b, h)[t * HEAD + d]; }
  SDX_FN const T* value(i64 b, i64 h) const { return v + (b * (heads / group) + h / group) * keys * VALUE; }
  SDX_FN i64 value_row() const { return VALUE; }
  SDX_FN T value_at(i64 b, i64 h, i64 t, i64 d) const { return value(b, h)[t * VALUE + d]; }
  SDX_FN f32 factor() const { return 0.125f; }
  SDX_FN f32 score(i64 b, i64 h, i64 s, i64 t, f32 x) const { return x * 0.125f + bias[s * keys + t]; }
  SDX_FN i64 begin(i64 b, i64 h, i64 s) const { return s + low; }
  SDX_FN i64 end(i64 b, i64 h, i64 s) const { return s + high; }
  SDX_FN f32 sink(i64 b, i64 h) const { return f32(h) * 0.25f; }
  SDX_FN Out* out(i64 b, i64 h, i64 s) const { return o + ((b * heads + h) * queries + s) * VALUE; }
  SDX_FN i64 out_step() const { return 1; }
  SDX_FN Out result(i64, i64, i64, i64, f32 x) const { return cast<Out>(x); }
};
#if defined(__GFX9__)
SDX_KERNEL SDX_MIN_WAVES(2)
#else
SDX_KERNEL
#endif
void run(const TYPE* q, const TYPE* k, const TYPE* v, const float* bias, TYPE* o, i64 queries, i64 keys,
                    i64 heads, i64 group, i64 low, i64 high, i64 unit, i64 splits, f32* partial, i64 points) {
  const AttentionSizes n{u32(queries), u32(keys), u32(heads), u32(unit), u32(splits), partial};
  attention<P, DECODE>(P{q, k, v, bias, o, queries, keys, heads, group, low, high}, n, u32(points));
}
SDX_KERNEL void merge(const TYPE* q, const TYPE* k, const TYPE* v, const float* bias, TYPE* o, i64 queries, i64 keys,
                    i64 heads, i64 group, i64 low, i64 high, i64 unit, i64 splits, f32* partial, i64 points) {
  const AttentionSizes n{u32(queries), u32(keys), u32(heads), u32(unit), u32(splits), partial};
  attention_merge(P{q, k, v, bias, o, queries, keys, heads, group, low, high}, n, points * heads * queries);
}
)";

struct Case {
  std::string type;
  int head, value, queries, keys, heads, group;
  bool direct, biased, bounds, sink, decode;
  int low, high, splits;
};

float half_value(std::uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const float x = e ? std::ldexp(1.0f + static_cast<float>(m) / 1024, e - 15) : std::ldexp(static_cast<float>(m), -24);
  return h & 0x8000 ? -x : x;
}
std::uint16_t half_bits(float f) {  // exact for the multiples of 1/64 below 4 that tests use
  if (f == 0) return 0;
  int e;
  const float m = std::frexp(std::fabs(f), &e);
  return static_cast<std::uint16_t>((f < 0 ? 0x8000 : 0) | (e + 14) << 10 | static_cast<int>((m * 2 - 1) * 1024));
}
std::uint16_t bfloat_bits(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<std::uint16_t>(u >> 16);
}

std::vector<std::uint8_t> encode(const std::vector<float>& x, const std::string& type) {
  const std::size_t size = type == "f32" ? 4 : 2;
  std::vector<std::uint8_t> bytes(x.size() * size);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint16_t bits = type == "f16" ? half_bits(x[i]) : bfloat_bits(x[i]);
    if (size == 4)
      std::memcpy(&bytes[i * 4], &x[i], 4);
    else
      std::memcpy(&bytes[i * 2], &bits, 2);
  }
  return bytes;
}

std::vector<float> decode(const std::vector<std::uint8_t>& bytes, const std::string& type) {
  std::vector<float> x(bytes.size() / (type == "f32" ? 4 : 2));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (type == "f32") {
      std::memcpy(&x[i], &bytes[i * 4], 4);
      continue;
    }
    std::uint16_t bits;
    std::memcpy(&bits, &bytes[i * 2], 2);
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    if (type == "f16")
      x[i] = half_value(bits);
    else
      std::memcpy(&x[i], &wide, 4);
  }
  return x;
}

std::vector<double> expected(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
                             const std::vector<float>& v, const std::vector<float>& bias) {
  std::vector<double> out;
  for (int b = 0; b < 2; ++b)
    for (int h = 0; h < c.heads; ++h)
      for (int s = 0; s < c.queries; ++s) {
        std::vector<double> p(static_cast<std::size_t>(c.keys));
        const int kv = b * (c.heads / c.group) + h / c.group;
        double sum = c.sink ? std::exp(h * 0.25) : 0;
        for (int t = 0; t < c.keys; ++t) {
          double x = 0;
          for (int d = 0; d < c.head; ++d)
            x += double(q[static_cast<std::size_t>(((b * c.heads + h) * c.queries + s) * c.head + d)]) *
                 k[static_cast<std::size_t>((kv * c.keys + t) * c.head + d)];
          x *= 0.125;
          if (c.biased) x += bias[static_cast<std::size_t>(s * c.keys + t)];
          const bool allowed = !c.bounds || (t >= s + c.low && t < s + c.high);
          p[static_cast<std::size_t>(t)] = allowed ? std::exp(x) : 0;
          sum += p[static_cast<std::size_t>(t)];
        }
        for (int e = 0; e < c.value; ++e) {
          double y = 0;
          for (int t = 0; t < c.keys; ++t)
            y += p[static_cast<std::size_t>(t)] * v[static_cast<std::size_t>((kv * c.keys + t) * c.value + e)];
          out.push_back(sum > 0 ? y / sum : 0);
        }
      }
  return out;
}

void run_case(Gpu& gpu, const Case& c) {
  SCOPED_TRACE(testing::Message() << gpu.info().name << " " << c.type << " head " << c.head << " value " << c.value
                                  << " queries " << c.queries << " keys " << c.keys << " heads " << c.heads << "/"
                                  << c.group << " direct " << c.direct << " biased " << c.biased << " bounds "
                                  << c.bounds << " sink " << c.sink << " decode " << c.decode << " splits "
                                  << c.splits);
  // Few blocks, so that each processes several items.
  std::string source = std::string("#define SDX_MOST_BLOCKS 3\n") + kSource;
  const auto put = [&](const std::string& what, const std::string& with) {
    for (std::size_t at; (at = source.find(what)) != std::string::npos;) source.replace(at, what.size(), with);
  };
  put("TYPE", c.type), put("HEAD", std::to_string(c.head)), put("VALUE", std::to_string(c.value));
  put("DIRECT", std::to_string(c.direct)), put("BIASED", std::to_string(c.biased));
  put("BOUNDS", std::to_string(c.bounds)), put("SINK", std::to_string(c.sink));
  put("DECODE", c.decode ? "true" : "false");
  const auto module = load_kernels(gpu, source);
  std::mt19937 random(7);
  const auto numbers = [&](int n) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& y : x) y = static_cast<float>(static_cast<int>(random() % 257) - 128) / 64;
    return x;
  };
  const auto q = numbers(2 * c.heads * c.queries * c.head), k = numbers(2 * c.heads / c.group * c.keys * c.head),
             v = numbers(2 * c.heads / c.group * c.keys * c.value), bias = numbers(c.queries * c.keys);
  const int rows = 2 * c.heads * c.queries;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(rows * c.value) * (c.type == "f32" ? 4 : 2), 0xff);
  const auto dq = on_gpu(gpu, encode(q, c.type)), dk = on_gpu(gpu, encode(k, c.type)),
             dv = on_gpu(gpu, encode(v, c.type)), db = on_gpu(gpu, bias), dout = on_gpu(gpu, out),
             partial = gpu.allocate(static_cast<std::size_t>(rows * c.splits * (c.value + 18)) * 4);
  void *pq = dq.get(), *pk = dk.get(), *pv = dv.get(), *pb = db.get(), *po = dout.get(), *pp = partial.get();
  std::int64_t n[] = {c.queries, c.keys, c.heads, c.group, c.low, c.high, c.decode ? c.group : 1, c.splits, 2};
  void* args[] = {&pq, &pk, &pv, &pb, &po, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &pp, &n[8]};
  start(gpu, module->function("run"), {3}, {256}, args);
  if (c.splits > 1) start(gpu, module->function("merge"), {3}, {256}, args);
  from_gpu(gpu, out, po);
  const auto got = decode(out, c.type);
  const auto want = expected(c, q, k, v, bias);
  // Probabilities and results are rounded to the type; values are below 2.
  const double tolerance = c.type == "f32" ? 3e-6 : c.type == "f16" ? 2e-3 : 1.6e-2;
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got[i])) << i;
    worst = std::max(worst, std::abs(got[i] - want[i]));
    ASSERT_NEAR(got[i], want[i], tolerance)
        << "row " << i / static_cast<std::size_t>(c.value) << " element " << i % static_cast<std::size_t>(c.value);
  }
}

TEST(Attention, IsTheDefinition) {
  //                    type head value queries keys heads group direct bias bounds sink decode low high splits
  const Case cases[] = {{"f16", 64, 64, 70, 150, 2, 1, true, false, false, false, false, 0, 0, 1},
                        {"f16", 128, 128, 40, 100, 1, 1, true, false, true, false, false, -1000, 61, 1},
                        {"f16", 128, 128, 200, 300, 1, 1, true, false, true, false, false, -20, 30, 1},
                        {"bf16", 64, 32, 33, 65, 2, 2, true, true, true, true, false, -20, 1, 1},
                        {"f16", 20, 36, 17, 37, 2, 1, false, true, false, false, false, 0, 0, 1},
                        {"bf16", 80, 96, 5, 200, 4, 4, true, false, true, false, true, -1000, 150, 2},
                        {"f16", 128, 128, 3, 300, 4, 2, true, false, false, true, true, 0, 0, 1},
                        {"f32", 64, 64, 37, 70, 2, 1, true, false, true, false, false, -1000, 0, 1},
                        {"f32", 20, 9, 4, 90, 2, 2, false, true, true, true, true, -60, 70, 3},
                        {"f32", 128, 128, 2, 130, 4, 4, true, false, false, false, true, 0, 0, 2}};
  for (const std::string& device : test_devices()) {
    const auto gpu = open_gpu(device);
    for (const Case& c : cases) run_case(*gpu, c);
  }
}

TEST(Attention, LongHeads) {
  for (const std::string& device : test_devices()) {
    const auto gpu = open_gpu(device);
    run_case(*gpu, {"f16", 256, 256, 18, 70, 1, 1, true, false, false, false, false, 0, 0, 1});
    run_case(*gpu, {"bf16", 256, 128, 2, 70, 2, 2, true, false, false, false, true, 0, 0, 2});
    run_case(*gpu, {"f32", 256, 256, 18, 40, 1, 1, true, false, false, false, false, 0, 0, 1});
  }
}

}  // namespace
}  // namespace sardonyx
