"""CUDA's device functions and parts of the C++ standard library in custom operators, on the host and on simulated GPUs."""

import fractions

import numpy as np
import pytest
import sardonyx
from test_custom_operators import node

DEVICES = ["host", "sim:gfx942", "sim:gfx1100"]


def run(source, device, x, outputs, **more):
    """One block of as many threads as `x` has elements."""
    fields = {"kernel": "f", "grid": 1, "block": "n", "arguments": None} | more
    names = [o.split(":")[0] for o in outputs]
    kind = np.dtype(x.dtype).name
    fields["arguments"] = fields["arguments"] or ["x", *names, "n"]
    sardonyx.custom_operator("test::Mine", source=source, inputs=[f"x: {kind}[n]"], outputs=outputs, **fields)
    model = sardonyx.compile(node(outputs=names, dtype=x.dtype), device=device, cache_dir="")
    return list(model(x=x).values())


# Of two lanes a and b, wide enough for their sums: what each name gives.
CLAMP = {"ss": lambda x, t: np.clip(x, np.iinfo(t).min, np.iinfo(t).max), "us": lambda x, t: np.clip(x, 0, np.iinfo(t).max)}  # fmt: skip
SIMD = {
    "add": ("u", lambda a, b, t: a + b),
    "sub": ("u", lambda a, b, t: a - b),
    "addss": ("s", lambda a, b, t: CLAMP["ss"](a + b, t)),
    "addus": ("u", lambda a, b, t: CLAMP["us"](a + b, t)),
    "subss": ("s", lambda a, b, t: CLAMP["ss"](a - b, t)),
    "subus": ("u", lambda a, b, t: CLAMP["us"](a - b, t)),
    "maxs": ("s", lambda a, b, t: np.maximum(a, b)),
    "maxu": ("u", lambda a, b, t: np.maximum(a, b)),
    "mins": ("s", lambda a, b, t: np.minimum(a, b)),
    "minu": ("u", lambda a, b, t: np.minimum(a, b)),
    "absdiffs": ("s", lambda a, b, t: abs(a - b)),
    "absdiffu": ("u", lambda a, b, t: abs(a - b)),
    "avgs": ("s", lambda a, b, t: (a + b + (a + b >= 0)) >> 1),
    "avgu": ("u", lambda a, b, t: (a + b + 1) >> 1),
    "haddu": ("u", lambda a, b, t: (a + b) >> 1),
    "cmpeq": ("u", lambda a, b, t: -(a == b).astype(np.int64)),
    "cmpgts": ("s", lambda a, b, t: -(a > b).astype(np.int64)),
    "cmpgtu": ("u", lambda a, b, t: -(a > b).astype(np.int64)),
    "cmples": ("s", lambda a, b, t: -(a <= b).astype(np.int64)),
    "setltu": ("u", lambda a, b, t: (a < b).astype(np.int64)),
    "setges": ("s", lambda a, b, t: (a >= b).astype(np.int64)),
}
ALONE = {"abs": lambda a, t: abs(a), "absss": lambda a, t: CLAMP["ss"](abs(a), t), "neg": lambda a, t: -a, "negss": lambda a, t: CLAMP["ss"](-a, t)}  # fmt: skip


def lanes(words, n, signed):
    kind = {2: np.int16, 4: np.int8}[n]
    return np.ascontiguousarray(words).view(kind if signed else f"u{np.dtype(kind).name}"), kind


@pytest.mark.parametrize("device", DEVICES)
def test_integers_side_by_side_in_a_word(device):
    calls, wants = [], []
    x = np.random.default_rng(0).integers(0, 2**32, 64, dtype=np.uint32)
    x[:4] = 0x80808080, 0x7F7F80FF, 0x80007FFF, 0
    y = np.roll(x, 1)
    y[40:] ^= 0x00FF0001  # lanes that are equal
    for n in (2, 4):
        for name, (sign, f) in SIMD.items():
            (a, kind), (b, _) = lanes(x, n, sign == "s"), lanes(y, n, sign == "s")
            got = f(a.astype(np.int64), b.astype(np.int64), kind if sign == "s" else a.dtype)
            calls.append(f"__v{name}{n}(v, w)")
            wants.append(got.astype(f"i{4 // n}").view(np.uint32))
        for name, f in ALONE.items():
            a, kind = lanes(x, n, True)
            calls.append(f"__v{name}{n}(v)")
            wants.append(f(a.astype(np.int64), kind).astype(kind).view(np.uint32))
        for sign in "su":
            (a, _), (b, _) = lanes(x, n, sign == "s"), lanes(y, n, sign == "s")
            calls.append(f"__vsad{sign}{n}(v, w)")
            wants.append(abs(a.astype(np.int64) - b).reshape(-1, n).sum(1).astype(np.uint32))
    body = " ".join(f"y[{k} * n + i] = {c};" for k, c in enumerate(calls))
    source = f"""
__global__ void f(const unsigned* x, unsigned* y, int n) {{
  const int i = threadIdx.x;
  const unsigned v = x[i], w = x[(i + n - 1) % n] ^ (i >= 40 ? 0x00ff0001u : 0u);
  {body}
}}
"""
    (got,) = run(source, device, x, [f"y: uint32[{len(calls)}, n]"])
    wrong = [c for c, g, w in zip(calls, got, wants, strict=True) if not np.array_equal(g, w)]
    assert not wrong


def towards(exact, suffix):
    """A fraction as float32, rounded in a direction."""
    near = np.float32(float(exact))
    up = suffix == "ru" or (suffix == "rz" and exact < 0)
    if up and fractions.Fraction(float(near)) < exact:
        near = np.nextafter(near, np.float32(np.inf))
    if not up and fractions.Fraction(float(near)) > exact:
        near = np.nextafter(near, np.float32(-np.inf))
    return near


@pytest.mark.parametrize("device", DEVICES)
def test_directions_of_rounding(device):
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(64) * 2.0 ** rng.integers(-30, 30, 64)).astype(np.float32)
    y = np.roll(x, 1)
    exact = {
        "__fadd_": ("v, w", lambda a, b: a + b),
        "__fsub_": ("v, w", lambda a, b: a - b),
        "__fmul_": ("v, w", lambda a, b: a * b),
        "__fmaf_": ("v, w, v", lambda a, b: a * b + a),
        "__fdiv_": ("v, w", lambda a, b: a / b),
        "__frcp_": ("v", lambda a, b: 1 / a),
        "__int2float_": ("1234567890 + i", None),
    }
    calls = [(name, suffix) for name in exact for suffix in ("rz", "ru", "rd")]
    body = " ".join(f"y[{k} * n + i] = {c}{s}({exact[c][0]});" for k, (c, s) in enumerate(calls))
    source = f"""
__global__ void f(const float* x, float* y, int n) {{
  const int i = threadIdx.x;
  const float v = x[i], w = x[(i + n - 1) % n];
  {body}
}}
"""
    (got,) = run(source, device, x, [f"y: float32[{len(calls)}, n]"])
    for k, (name, suffix) in enumerate(calls):
        f = exact[name][1]
        pairs = zip(x, y, strict=True)
        of = [fractions.Fraction(1234567890 + i) for i in range(64)] if f is None else [f(*map(fractions.Fraction, map(float, p))) for p in pairs]  # fmt: skip
        np.testing.assert_array_equal(got[k], [towards(e, suffix) for e in of], err_msg=f"{name}{suffix}")
    source = (
        "__global__ void f(const float* x, float* y, int n) { y[threadIdx.x] = __fsqrt_rd(fabsf(x[threadIdx.x])); }"
    )
    (got,) = run(source, device, x, ["y: float32[n]"])
    root = np.sqrt(abs(x.astype(np.float64)))
    down = root.astype(np.float32)
    down = np.where(down > root, np.nextafter(down, np.float32(0)), down)
    np.testing.assert_array_equal(got, down)


HALVES = """
#include <cuda_fp16.h>
__global__ void f(const half* x, half* y, int* z, int n) {
  const int i = threadIdx.x;
  const half a = x[i], b = x[(i + 1) % n];
  const half2 p = __halves2half2(a, b), q = __lowhigh2highlow(p), two = __float2half2_rn(2.f);
  half* o = y + 12 * i;
  *out(o, 0) = __hadd_sat(a, b); *out(o, 1) = __hfma_relu(a, b, CUDART_ONE_FP16); *out(o, 2) = __high2half(__hmul2_sat(p, two));
  *out(o, 3) = __low2half(__hgt2(p, q)); *out(o, 4) = __high2half(__hne2(p, q)); *out(o, 5) = __low2half(h2floor(p));
  *out(o, 6) = __high2half(h2cos(p)); *out(o, 7) = __hmax_nan(a, b); *out(o, 8) = __hmin_nan(a, b); *out(o, 9) = hexp10(a);
  *out(o, 10) = __short2half_rn((short)i); *out(o, 11) = __low2half(__highs2half2(p, q));
  int* k = z + 8 * i;
  k[0] = __hblt2(p, q); k[1] = __hlt2_mask(p, q); k[2] = __hltu(a, b); k[3] = __hne(a, b); k[4] = __half2int_rd(a);
  k[5] = __half2short_ru(a); k[6] = __hisinf(a); k[7] = __half2uint_rz(a);
}
""".replace("__global__", "__device__ __forceinline__ half* out(half* o, int k) { return o + k; }\n__global__")


@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_halves(device):
    x = np.linspace(-3, 3, 32).astype(np.float16)
    x[5], x[6], x[7], x[9], x[10] = np.nan, np.inf, -np.inf, 1.5, 1.5
    y, z = run(HALVES, device, x, ["y: float16[n, 12]", "z: int32[n, 8]"])
    a, b = x.astype(np.float64), np.roll(x, -1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        limit = lambda v: np.where(np.isnan(v), 0, np.clip(v, 0, 1))
        relu = a * b + 1
        values = [limit(a + b), np.where(relu < 0, 0, relu), limit(2 * b), a > b, (a < b) | (a > b), np.floor(a)]
        values += [np.cos(b), np.maximum(a, b), np.minimum(a, b), 10**a, np.arange(32), b]
        whole = lambda v, t: np.clip(np.nan_to_num(v, nan=0, posinf=1e30, neginf=-1e30), np.iinfo(t).min, np.iinfo(t).max)  # fmt: skip
        less = np.where(a < b, 0xFFFF, 0) | np.where(b < a, 0xFFFF0000, 0)
        integers = [np.zeros(32), less.astype(np.uint32).view(np.int32), ~(a >= b), (a < b) | (a > b)]
        integers += [whole(np.floor(a), np.int32), whole(np.ceil(a), np.int16), np.where(np.isinf(a), np.sign(a), 0)]
        integers += [whole(np.trunc(a), np.uint32).astype(np.uint32).view(np.int32)]
    # Functions in float are rounded once to float16, of which 1e-3 is one unit.
    np.testing.assert_allclose(y.astype(np.float64), np.stack(values, 1), rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(z, np.stack(integers, 1).astype(np.int64))


LIBRARY = """
#include <tuple>
#include <type_traits>
#include <functional>
#include <vector>
enum class Kind : short { kA };
struct Wide { double a; int b; };
template <class T> __device__ auto twice(T x) -> std::enable_if_t<std::is_convertible_v<T, double>, T> { return x + x; }
template <int... N> __device__ int sum(std::integer_sequence<int, N...>) { return (N + ... + 0); }
template <class Op, class T> __device__ T all(const T (&x)[3], Op op) { return op(op(x[0], x[1]), x[2]); }
__global__ void f(const int* x, int* y, int n) {
  const int i = threadIdx.x;
  __shared__ std::aligned_storage_t<sizeof(Wide), alignof(Wide)> raw;
  Wide* wide = reinterpret_cast<Wide*>(&raw);
  if (i == 0) *wide = Wide{0.5, 7};
  __syncthreads();
  const auto [a, b] = std::make_tuple(x[i], 2.5f);
  int c, d;
  std::tie(c, d) = std::make_tuple(a + 1, a - 1);
  const int three[] = {c, d, 4};
  int* o = y + 10 * i;
  o[0] = wide->b + sizeof(raw); o[1] = twice(a) + int(2 * b); o[2] = sum(std::make_integer_sequence<int, 5>());
  o[3] = all(three, std::plus<int>()) + 100 * all(three, std::multiplies<>()); o[4] = std::exchange(c, 9) + c;
  o[5] = std::is_same_v<std::underlying_type_t<Kind>, short> + 2 * std::is_enum_v<Kind> + 4 * std::is_same_v<std::common_type_t<int, float>, float>;
  o[6] = std::bit_cast<int>(1.0f) + std::popcount(7u) + std::countl_zero(1u); o[7] = std::pow(a, 2) + std::hypotf(3, 4) + sqrt(16u);
  int e; const float m = frexpf(12.5f * a, &e); o[8] = int(m * 1024) * 100 + e; o[9] = nextafterf(a, 1e9f) > a;
}
""".replace("std::hypotf", "hypotf")


@pytest.mark.parametrize("device", DEVICES)
def test_standard_library(device):
    x = np.arange(-3, 9).astype(np.int32)
    (got,) = run(LIBRARY, device, x, ["y: int32[n, 10]"])
    a = x.astype(np.int64)
    m, e = np.frexp(12.5 * a)
    ones = np.ones_like(a)
    want = [23 * ones, 2 * a + 5, 10 * ones, 2 * a + 4 + 400 * (a * a - 1), a + 10, 7 * ones]
    want += [(0x3F800000 + 34) * ones, a * a + 9, (m * 1024).astype(np.int64) * 100 + e, ones]
    np.testing.assert_array_equal(got, np.stack(want, 1))


TOGETHER = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
__global__ void f(const int* x, int* y, int* counts, int n) {
  __shared__ int copy[96];
  __shared__ int4 wide[2];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, copy, x + n / 2 * 0, sizeof(int) * 64);
  if (threadIdx.x < 2) __pipeline_memcpy_async(&wide[threadIdx.x], reinterpret_cast<const int4*>(x) + threadIdx.x, sizeof(int4));
  __pipeline_commit(); __pipeline_wait_prior(0);
  cg::wait(block);
  const int t = cg::this_grid().thread_rank();
  int* o = y + 6 * t;
  o[0] = copy[63 - t] + wide[1].z;
  o[1] = o[2] = o[3] = 0;
  if (t % 3 == 0) {
    cg::coalesced_group some = cg::coalesced_threads();
    int first = 0;
    if (some.thread_rank() == 0) first = atomicAdd(counts, some.size());
    o[1] = some.shfl(first, 0) + some.thread_rank();
    o[2] = cg::reduce(some, t, cg::plus<int>()) + 1000 * some.ballot(t % 2);
    o[3] = some.shfl_down(t, 1);
  }
  o[4] = __popc(__activemask());
  auto tile = cg::tiled_partition<16>(block);
  o[5] = cg::exclusive_scan(tile, t) + 10000 * cg::inclusive_scan(tile, 1);
  if (clock64() == 0 && n < 0) o[5] = clock();
}
"""


@pytest.mark.parametrize("device", DEVICES)
def test_lanes_of_a_branch_are_a_group(device):
    """Lanes that wait behind a branch do not count: they execute another call."""
    x = np.random.default_rng(2).integers(0, 99, 64).astype(np.int32)
    y, counts = run(TOGETHER, device, x, ["y: int32[n, 6]", "counts: int32[1] = 0"])
    t = np.arange(64)
    third, warp = t % 3 == 0, t // 32
    groups = [t[third & (warp == w)] for w in (0, 1)]
    assert counts[0] == sum(map(len, groups)) and sorted(y[third, 1]) == list(range(counts[0]))
    rank = lambda k, w: int(np.searchsorted(groups[w], k))
    votes = [sum((int(k) % 2) << r for r, k in enumerate(g)) for g in groups]
    for k in t:
        g = groups[warp[k]]
        want = [x[63 - k] + x[6], None, 0, 0, 32, None]
        if third[k]:
            want[2] = g.sum() + 1000 * votes[warp[k]]
            want[3] = g[min(rank(k, warp[k]) + 1, len(g) - 1)]
        first = k // 16 * 16
        want[5] = np.arange(first, k).sum() + 10000 * (k - first + 1)
        assert [int(v) for v, w in zip(y[k], want, strict=True) if w is not None] == [int(w) for w in want if w is not None]  # fmt: skip


LOCKSTEP = """
__constant__ const float kFactors[2] = {1, 2};
template <unsigned Size>
__device__ void of_a_warp(volatile float* s, unsigned t) {
  if (Size >= 64) s[t] += s[t + 32];
  if (Size >= 32) s[t] += s[t + 16];
  if (Size >= 16) s[t] += s[t + 8];
  if (Size >= 8) s[t] += s[t + 4];
  if (Size >= 4) s[t] += s[t + 2];
  if (Size >= 2) s[t] += s[t + 1];
}
template <unsigned Size>
__global__ void f(const float* x, float* y, int n) {
  extern __shared__ float s[];
  const unsigned t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (Size >= 128) { if (t < 64) s[t] += s[t + 64]; __syncthreads(); }
  if (t < 32) of_a_warp<Size>(s, t);
  if (t == 0) { volatile float once[1]; once[0] = s[0] * kFactors[1]; y[0] = once[0]; }
}
"""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [32, 128])
def test_lanes_execute_together_between_volatile_stores(device, size):
    """Reductions from before __syncwarp(), which each lane would otherwise compute with what others have not stored yet."""
    x = np.random.default_rng(4).integers(0, 9, size).astype(np.float32)
    (got,) = run(LOCKSTEP, device, x, ["y: float32[1]"], kernel=f"f<{size}>", shared="4 * n + 128")
    assert got[0] == 2 * x.sum()


@pytest.mark.parametrize("device", DEVICES)
def test_a_constant_without_a_value_is_refused(device):
    """Host code would copy it there."""
    source = "__constant__ float c[4];\n__global__ void f(const float* x, float* y, int n) { y[0] = c[0]; }\n"
    with pytest.raises(sardonyx.CompileError, match=r":1:20: error: .*const float\[4\]"):
        run(source, device, np.ones(2, np.float32), ["y: float32[1]"])
