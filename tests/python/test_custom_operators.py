"""Operators of users: kernels in CUDA's language on the host and on simulated AMD GPUs, definitions, refusals."""

import subprocess

import custom_cases
import numpy as np
import onnx
import onnx.helper as oh
import pytest
import sardonyx
from cli_support import BUILD
from custom_cases import OPS, Case

CASES = custom_cases.cases()
CLI = BUILD / "bin" / "sardonyx"


def node(domain="test", op="Mine", inputs=("x",), outputs=("y",), shape=("n",), dtype=np.float32, **attributes):
    """A model of one node whose inputs have one shape and dtype."""
    kind = oh.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = oh.make_graph(
        [oh.make_node(op, list(inputs), list(outputs), "mine", domain=domain, **attributes)],
        "g",
        [oh.make_tensor_value_info(n, kind, list(shape)) for n in inputs if n],
        [onnx.ValueInfoProto(name=n) for n in outputs],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid(domain, 1)], ir_version=9)


def define(source="", name="test::Mine", **more):
    fields = {
        "inputs": ["x: float32[n]"],
        "outputs": ["y: float32[n]"],
        "kernel": "f",
        "grid": "ceildiv(n, 64)",
        "block": 64,
    }
    sardonyx.custom_operator(name, source=source, **({**fields, "arguments": ["x", "y", "n"]} | more))


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
def test_kernels_unchanged(device):
    """All of them in one program, whose dims are symbolic."""
    model = sardonyx.compile(custom_cases.model_of(CASES), device=device, custom_operators=OPS, cache_dir="")
    results = model.run(custom_cases.feed(CASES))
    wrong = [f"{c.name} {k}: {d}" for k, c in enumerate(CASES) if (d := custom_cases.differences(k, c, results))]
    assert not wrong, "\n".join(wrong)


def test_other_sizes_need_no_compilation():
    few = [c for c in custom_cases.cases(1) if c.op in ("Softmax", "Compact")]
    model = sardonyx.compile(custom_cases.model_of(few), custom_operators=OPS)
    for n in (1, 33, 500):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        feed = custom_cases.feed(few) | {"1.x": x}
        kept = x[x > 0.5]
        few[1] = Case("Compact", {"x": x}, {"kept": kept, "count": np.array([len(kept)], np.int32)}, unordered=True)
        results = model.run(feed)
        assert [custom_cases.differences(k, c, results) for k, c in enumerate(few)] == ["", ""]


def test_ptx_for_nvidia():
    """Every kernel compiles for sm_90; custom_cases.py runs them on a card."""
    report = sardonyx.code_report(custom_cases.model_of(CASES), "sm_90", custom_operators=OPS, cache_dir="")
    assert len({k.kernel for k in report}) >= len({c.op for c in CASES})


def test_program_file_has_the_code(tmp_path):
    few = [c for c in CASES if c.op in ("NMS", "TiledGemm")]
    model = sardonyx.compile(custom_cases.model_of(few), custom_operators=OPS)
    model.save(tmp_path / "m.sdx")
    results = sardonyx.load(tmp_path / "m.sdx").run(custom_cases.feed(few))
    assert [custom_cases.differences(k, c, results) for k, c in enumerate(few)] == ["", ""]


# Every function whose threads wait, in branches and loops, in blocks that are no multiple of a warp.
WAITS = """
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__device__ int from_branch(int v, int lane) {
  if (lane < 16) v += __shfl_xor_sync(0xffffu, v, 5);
  else v -= __shfl_down_sync(0xffff0000u, v, 3, 16);
  return v;
}

__global__ void f(const int* x, int* y, int n) {
  extern __shared__ int dynamic[];
  __shared__ int counts[4];
  const int t = threadIdx.x + blockDim.x * threadIdx.y, lane = t & 31, size = blockDim.x * blockDim.y;
  if (t < 4) counts[t] = 0;
  dynamic[t] = x[t];
  __syncthreads();
  int v = dynamic[(t + 7) % size];
  for (int round = 0; round < 3; ++round) {
    if (t < 64) v = from_branch(v, lane);      // whole warps
    __syncthreads();
    dynamic[t] = v;
    __syncthreads();
    v += dynamic[(t + 1) % size];
    __syncthreads();
  }
  if (t >= 64) return;                         // barriers count only those that stay
  v += __shfl_up_sync(~0u, v, 2) * 3 + __shfl_sync(~0u, v, 9) + __shfl_sync(~0u, v, lane + 1, 8);
  v += __popc(__ballot_sync(~0u, v & 1)) + 2 * __any_sync(~0u, v == 5) + 4 * __all_sync(~0u, v > -1000000);
  v += __syncthreads_count(v & 2) + 8 * __syncthreads_or(t == 63) + 16 * __syncthreads_and(t < 64);
  __syncwarp();
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  v += cg::reduce(tile, t, cg::plus<int>()) + tile.ballot(t & 1) + tile.meta_group_rank();
  v += __popc(__match_any_sync(~0u, t % 5)) + __reduce_max_sync(~0u, t);
  if (lane % 3 == 0) v += __popc(__activemask()) + atomicAdd(&counts[lane / 16], 0);
  const double wide = __shfl_xor_sync(~0u, v * 0.5, 1);
  y[t] = v + int(wide * 2);
}
"""


def waits_expected(x):
    """The same by arrays."""
    size, t = 72, np.arange(72)
    lane, v = t & 31, x[(t + 7) % 72].copy()
    for _ in range(3):
        w = v.copy()
        for k in range(64):
            if lane[k] < 16:
                w[k] = v[k] + v[(k & ~31) + (lane[k] ^ 5)]
            else:
                w[k] = v[k] - (v[k + 3] if lane[k] % 16 + 3 < 16 else v[k])
        v = w + w[(t + 1) % size]
    v, t, lane = v[:64].astype(np.int64), t[:64], lane[:64]
    warp = t & ~31
    up = np.where(lane >= 2, v[np.maximum(t - 2, 0)], v)
    v = v + up * 3 + v[warp + 9] + v[(t & ~7) + ((lane + 1) & 7)]
    votes = [(v[warp == w] & 1).sum() for w in (0, 32)]
    each = lambda f: np.array([f(v[warp == w]) for w in (0, 32)])[t // 32]
    v = v + np.array(votes)[t // 32] + 2 * each(lambda p: (p == 5).any()) + 4 * each(lambda p: (p > -1000000).all())
    v = v + ((v & 2) != 0).sum() + 8 + 16
    v = v + t.reshape(8, 8).sum(1)[t // 8] + 0xAA + t // 8
    v = v + np.array([(t[warp == w] % 5 == k % 5).sum() for k, w in zip(t, warp, strict=True)]) + warp + 31
    v = v + np.where(lane % 3 == 0, 11, 0)
    return (v + v[t ^ 1]).astype(np.int32)


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
def test_threads_wait(device):
    define(
        WAITS,
        inputs=["x: int32[n]"],
        outputs=["y: int32[64]"],
        grid=1,
        block=[24, 3],
        shared="4 * n",
        require=["n == 72"],
    )
    x = np.random.default_rng(3).integers(-50, 50, 72).astype(np.int32)
    model = sardonyx.compile(node(dtype=np.int32), device=device)
    np.testing.assert_array_equal(model(x=x)["y"], waits_expected(x))


MATH = """
template <class T> __global__ void f(const T* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = float(x[i]);
  float* out = y + 26 * i;
  *out++ = sinf(v); *out++ = cosf(v); *out++ = tanhf(v); *out++ = erff(v); *out++ = expf(v); *out++ = __expf(v);
  *out++ = rsqrtf(fabsf(v) + 0.5f); *out++ = logf(fabsf(v) + 0.1f); *out++ = powf(fabsf(v), 1.7f); *out++ = atan2f(v, 0.7f);
  *out++ = fmaxf(v, NAN); *out++ = fminf(v, 0.25f); *out++ = roundf(v * 2); *out++ = rintf(v * 2); *out++ = erfcf(v);
  *out++ = cbrtf(v); *out++ = hypotf(v, 2.f); *out++ = fmodf(v, 0.7f); *out++ = exp10f(v); *out++ = __saturatef(v);
  *out++ = float(__float2int_rn(v * 10)); *out++ = ldexpf(v, 3); *out++ = log1pf(fabsf(v)); *out++ = max(v, 1);
  *out++ = __popc(__float_as_uint(v)); *out++ = float(std::numeric_limits<int>::max() == INT_MAX && min(3u, 4) == 3);
}
"""


@pytest.mark.parametrize("device", ["host", "sim:gfx1100"])
def test_mathematics(device):
    define(MATH, inputs=["x: T[n]"], outputs=["y: float32[n, 26]"], kernel="f<T>")
    x = np.linspace(-3, 3, 67).astype(np.float16)
    y = sardonyx.compile(node(dtype=np.float16), device=device)(x=x)["y"]
    v = x.astype(np.float64)
    a, erf = np.abs(v), np.vectorize(__import__("math").erf)
    want = [
        np.sin(v),
        np.cos(v),
        np.tanh(v),
        erf(v),
        np.exp(v),
        np.exp(v),
        1 / np.sqrt(a + 0.5),
        np.log(a + 0.1),
        a**1.7,
    ]
    want += [
        np.arctan2(v, 0.7),
        v,
        np.minimum(v, 0.25),
        np.trunc(v * 2 + np.copysign(0.5, v)),
        np.rint(v * 2),
        1 - erf(v),
    ]
    want += [
        np.cbrt(v),
        np.hypot(v, 2),
        np.fmod(v, np.float32(0.7)),
        10**v,
        np.clip(v, 0, 1),
        np.rint(v.astype("f4") * 10),
    ]
    want += [v * 8, np.log1p(a), np.maximum(v, 1)]
    want += [np.bitwise_count(x.astype(np.float32).view(np.uint32)), np.ones(67)]
    # atol: float32's own rounding of arguments near zeros of the functions; 2^-22: __expf.
    np.testing.assert_allclose(y, np.stack(want, 1), rtol=1e-6, atol=3e-7)


def test_atomics_across_blocks():
    define(
        """
        __device__ int twice(int x) { return 2 * x; }
        __global__ void f(const float* x, float* y, int n) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) atomicAdd(&y[i % 3], x[i]);
          if (i < n) atomicMax((int*)&y[3], twice(i));
        }
        """,
        outputs=["y: float32[4] = 0"],
    )
    x = np.arange(50000, dtype=np.float32) % 7
    y = sardonyx.compile(node())(x=x)["y"]
    np.testing.assert_array_equal(y[:3], [x[k::3].sum() for k in range(3)])  # whole numbers below 2^24: exact
    assert y[3:].view(np.int32)[0] == 99998


def test_plain_cpp_and_included_file(tmp_path):
    (tmp_path / "part.h").write_text("#pragma once\ninline float half_of(float x) { return x / 2; }\n")
    source = tmp_path / "mine.cpp"
    source.write_text(
        '#include "part.h"\n#include "part.h"\n#include <algorithm>\n'
        "void f(const float* x, float* y, int n) { for (int i = 0; i < n; ++i) y[i] = std::max(half_of(x[i]), 0.f); }\n"
    )
    define(source, grid=1, block=1)
    x = np.array([-1, 4, 5], np.float32)
    for device in ("host", "sim:gfx1100"):
        np.testing.assert_array_equal(sardonyx.compile(node(), device=device)(x=x)["y"], [0, 2, 2.5])
    (tmp_path / "part.h").write_text("inline float half_of(float x) {\n  return y / 2; }\n")
    define(source, grid=1, block=1)
    with pytest.raises(sardonyx.CompileError, match=r"part\.h:2:10: error: .*'y'"):
        sardonyx.compile(node())


KERNEL = "__global__ void f(const float* x, float* y, int n) {\n  const int i = threadIdx.x;\n  %s\n}\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("y[i] = x[i] +;", "expected expression"),
        ('asm volatile("mov.u32 %0, %laneid;" : "=r"(n));', "inline assembly"),
        ('printf("%d", i);', "can't print"),
        ("__trap();", "report errors through an output"),
        ("float* p = new float[2]; y[i] = *p;", "declare a workspace"),
        ("auto* p = (float*)malloc(4); y[i] = *p;", "declare a workspace"),
        ("y[i] = unknown_function(x[i]);", "unknown_function"),
        (
            "double buffer[100000]; for (int k = 0; k < n; ++k) buffer[k] = x[k]; y[i] = buffer[n / 2] + buffer[i];",
            "stack frame",
        ),
    ],
)
def test_compile_errors_name_the_users_line(line, why, tmp_path):
    source = tmp_path / "wrong.cu"
    source.write_text(KERNEL % line)
    define(source)
    with pytest.raises(sardonyx.CompileError, match=why) as e:
        sardonyx.compile(node(), cache_dir="")
    assert "wrong.cu:3:" in str(e.value) or why == "stack frame"


def test_arguments_must_fit_the_kernel():
    define(KERNEL % "y[i] = x[i];", inputs=["x: float16[n]"])
    with pytest.raises(sardonyx.CompileError, match=r"no known conversion from .*__half.* to 'const float"):
        sardonyx.compile(node(dtype=np.float16), cache_dir="")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "Mine"}, "domain::Operator"),
        ({"name": "com.microsoft::Gelu"}, "operator of this name"),
        ({"inputs": ["x: float32"]}, "its dims are missing"),
        ({"inputs": ["x float32[n]"]}, "is not a name"),
        ({"inputs": ["x: float32[n", "z: T[]"]}, "']' is missing"),
        ({"inputs": ["x: float32[a..., b...]"]}, "two groups"),
        ({"outputs": []}, "no outputs"),
        ({"outputs": ["y: float32[m]"]}, "'m' is neither a dim"),
        ({"outputs": ["y: float32[k <= n]"]}, "not an output or workspace"),
        ({"outputs": ["x: float32[n]"]}, "'x' is a tensor already"),
        ({"outputs": ["y: float32[n] = z"]}, "neither 0 nor an input"),
        ({"attributes": ["a: number"]}, "not int, float"),
        ({"grid": "n +"}, "ends too early"),
        ({"grid": "(" * 100 + "n" + ")" * 100}, "nested more than"),
        ({"grid": "+".join(["n"] * 100)}, "operators in a row"),
        ({"grid": ["n"] * 4}, "1 to 3: x, y and z"),
        ({"let": ["n = 3"]}, "'n' is a dim already"),
        ({"source": ""}, "source is empty"),
        ({"expression": "x"}, "can't have a source"),
        ({"kernel": None}, "neither a kernel nor an expression"),
        ({"arguments": ["x", "y", "m"]}, "'m' is neither"),
        ({"launches": [("f", 1)]}, "not both"),
    ],
)
def test_malformed_definitions(change, why):
    with pytest.raises(sardonyx.InvalidArgumentError, match=why):
        define(**({"source": KERNEL % "y[i] = x[i];"} | change))


@pytest.mark.parametrize(
    ("change", "attributes", "why"),
    [
        ({"attributes": ["a: int"]}, {}, "attribute 'a' is missing"),
        ({}, {"a": 1}, "'a' is not in the operator's definition"),
        ({"inputs": ["x: float32[n, m]"]}, {}, "rank 1"),
        ({"inputs": ["x: float16[n]"]}, {}, "dtype float32"),
        ({"outputs": ["y: T[n]"]}, {}, "follows from no input"),
        ({"inputs": ["x: float32[n]", "z: float32[n]"]}, {}, "input 'z' is missing"),
        ({"block": 2000}, {}, "2000 threads"),
        ({"grid": "n / 2"}, {}, "// divides whole numbers"),
        ({"kernel": "f<{n}>"}, {}, "must be known when compiling"),
        ({"grid": "nothing(n)"}, {}, "no function nothing"),
        ({"grid": "n // 0"}, {}, "divisors are positive"),
    ],
)
def test_nodes_that_do_not_fit(change, attributes, why):
    define(KERNEL % "y[i] = x[i];", **change)
    with pytest.raises((sardonyx.InvalidModelError, sardonyx.UnsupportedError), match=why):
        sardonyx.compile(node(**attributes))


def test_faults_of_a_run():
    define(
        KERNEL % "if (i == 0) *(int*)(y + n) = n + 1;",
        outputs=["y: float32[c <= n + 1]"],
        workspace=["c: int32[1] = 0"],
    )
    define(
        "__global__ void f(const float* x, float* y, int* c, int n) { *c = int(x[0]); for (int i = 0; i < n; ++i) y[i] = x[i]; }",
        outputs=["y: float32[c <= n]"],
        workspace=["c: int32[1] = 0"],
        grid=1,
        block=1,
        arguments=["x", "y", "c", "n"],
    )
    model = sardonyx.compile(node())
    np.testing.assert_array_equal(model(x=np.float32([2, 5, 6]))["y"], [2, 5])
    for count in (4, -1):
        with pytest.raises(sardonyx.Error, match="wrote a count 'c' beyond"):
            model(x=np.float32([count, 5, 6]))
    define(KERNEL % "y[i] = x[i];", require=["n % 2 == 0"], grid="n - 4", block=2)
    model = sardonyx.compile(node())
    with pytest.raises(sardonyx.Error, match="requires n % 2 == 0"):
        model(x=np.zeros(3, np.float32))
    with pytest.raises(sardonyx.InvalidArgumentError, match="grid has -2 blocks"):
        model(x=np.zeros(2, np.float32))
    define(
        "__device__ int deep(int n) { volatile int a[999]; a[n % 999] = n; return n ? deep(n - 1) + a[n % 999] : 0; }\n"
        "__global__ void f(const float* x, float* y, int n) { y[threadIdx.x] = deep(n); __syncthreads(); }",
        grid=1,
        block=1,
    )
    model = sardonyx.compile(node(), cache_dir="")
    assert model(x=np.zeros(9, np.float32))["y"][0] == 45


def test_expression_fuses():
    sardonyx.custom_operator(
        "test::Gate",
        inputs=["x", "gate", "bias?"],
        attributes=["limit: float = 6", "kind: string = 'silu'"],
        expression="clip((x + bias if has(bias) else x) * (gate * sigmoid(gate) if kind == 'silu' else relu(gate)), -limit, limit)",
    )
    kinds = [oh.make_tensor_value_info(n, 1, ["a", "b"]) for n in "xg"] + [oh.make_tensor_value_info("c", 1, ["b"])]
    nodes = [
        oh.make_node("Mul", ["x", "x"], ["x2"]),
        oh.make_node("Gate", ["x2", "g", "c"], ["m"], domain="test", limit=4.0),
        oh.make_node("Gate", ["m", "g"], ["k"], domain="test", kind="relu"),
        oh.make_node("Add", ["k", "x"], ["y"]),
    ]
    graph = oh.make_graph(nodes, "g", kinds, [oh.make_tensor_value_info("y", 1, ["a", "b"])])
    model = sardonyx.compile(
        oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18), oh.make_opsetid("test", 1)], ir_version=9)
    )
    assert len(model.kernels()) == 1
    rng = np.random.default_rng(0)
    x, g, c = (rng.standard_normal(s).astype(np.float32) for s in ((3, 5), (3, 5), 5))
    m = np.clip((x * x + c) * g / (1 + np.exp(-g)), -4, 4)
    np.testing.assert_allclose(
        model(x=x, g=g, c=c)["y"], np.clip(m * np.maximum(g, 0), -6, 6) + x, rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("x + 0.5", "cast"),
        ("x + z", "'z' is neither"),
        ("nothing(x)", "no function nothing"),
        ("x + 'a'", "text is not a value"),
        ("sqrt(x)", "sqrt\\(\\) of int32"),
    ],
)
def test_expressions_refused(expression, why):
    with pytest.raises(sardonyx.Error, match=why):
        sardonyx.custom_operator("test::Mine", inputs=["x"], expression=expression)
        sardonyx.compile(node(dtype=np.int32))


def test_expression_of_integers():
    sardonyx.custom_operator(
        "test::Mine",
        inputs=["x: T[n]"],
        outputs=["y: float32[n]"],
        expression="cast(x // 3 + x % 3 * n, 'float32') / 2 if x != 7 else -1",
    )
    x = np.array([-5, 4, 7, 100], np.int32)
    y = sardonyx.compile(node(dtype=np.int32))(x=x)["y"]
    np.testing.assert_array_equal(y, np.where(x != 7, (x // 3 + x % 3 * 4) / 2, -1).astype(np.float32))


def test_unknown_operator_mentions_custom_ones():
    with pytest.raises(sardonyx.UnsupportedError, match=r"other::Nothing is not supported; .*custom-operators\.md"):
        sardonyx.compile(node("other", "Nothing"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[operator]]\nname = 3", r"ops.toml:2: 'name' is not a text"),
        ("[[operator]]\nname = 'a::B'\nsize = 3", r"ops.toml:3: unknown key 'size'"),
        ("[[operator]]\nname = 'a::B'\nsource = 'none.cu'", r"ops.toml:3: there is no file"),
        ("[[operator]\nname = 3", r"ops.toml:1"),
        ("operator = 3", r"no \[\[operator\]\]"),
        ("[[operator]]\ninputs = ['x']\nexpression = 'x'", "without a name"),
        ("[[operator]]\nname = 'a::B'\ngrid = [[1]]", "neither a text nor a whole number"),
        ("a = " + "[" * 5000, "ops.toml"),
        ("[.[a]", "ops.toml"),
        ("# \u00e9", "ops.toml:1: .*not ASCII"),
    ],
)
def test_malformed_files(text, why, tmp_path):
    (tmp_path / "ops.toml").write_text(text)
    with pytest.raises(sardonyx.InvalidArgumentError, match=why):
        sardonyx.compile(node(), custom_operators=tmp_path / "ops.toml")
    with pytest.raises(sardonyx.FileError):
        sardonyx.load_custom_operators(tmp_path / "none.toml")


def test_command_line(tmp_path):
    case = next(c for c in CASES if c.op == "Transpose")
    onnx.save(custom_cases.model_of([case]), tmp_path / "m.onnx")
    run = lambda *a: subprocess.run([CLI, *a], capture_output=True, text=True, cwd=tmp_path, check=False)
    got = run("inspect", "m.onnx", "--custom", str(OPS), "--kernels", "--source")
    assert got.returncode == 0, got.stderr
    assert "transposeNoBankConflicts<int16_t>" in got.stdout and "custom" in got.stdout
    got = run("inspect", "m.onnx")
    assert "test::Transpose is not supported" in got.stdout + got.stderr
    sizes = [f"--dim={d}={n}" for d, n in (("0.x.0", 45), ("0.x.1", 37))]
    got = run("run", "m.onnx", "--custom", str(OPS), *sizes)
    assert got.returncode == 0, got.stderr
