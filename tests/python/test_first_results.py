"""A run compiles first what it needs; the rest follows in the background, or when another run needs it."""

import contextlib
import subprocess
import sys
import threading

import cli_support
import numpy as np
import onnx
import onnx.helper as oh
import onnx.parser
import pytest
import sardonyx
from onnx import TensorProto, numpy_helper

#: Sizes for which AMD's cost model takes different tilings.
SMALL, LARGE = 3, 700


@contextlib.contextmanager
def no_background():
    pause = sardonyx._sardonyx.BackgroundPause()
    try:
        yield
    finally:
        del pause


def dense():
    """softmax(relu(x w)) of any number of rows."""
    w = np.random.default_rng(0).standard_normal((256, 192)).astype(np.float16) / 16
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["a"]),
        oh.make_node("Relu", ["a"], ["b"]),
        oh.make_node("Softmax", ["b"], ["y"]),
    ]
    graph = oh.make_graph(
        nodes,
        "dense",
        [oh.make_tensor_value_info("x", TensorProto.FLOAT16, ["n", 256])],
        [oh.make_tensor_value_info("y", TensorProto.FLOAT16, ["n", 192])],
        [numpy_helper.from_array(w, "w")],
    )
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def rows(n):
    return np.random.default_rng(n).standard_normal((n, 256)).astype(np.float16)


def files(folder):
    return sum(1 for f in folder.rglob("*") if f.is_file())


def branches():
    """Two branches that have no kernel in common; which one runs depends on data."""
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n] x, bool c) => (float[n] y) {
          s = Sigmoid(x)
          y = If (c) <then_branch = a () => (float[n] p) { e = Exp(s)  q = Neg(e)  p = Tanh(q) },
                      else_branch = b () => (float[n] r) { l = Log(s)  r = CumSum(l, axis) }>
        }""".replace("s = Sigmoid", "axis = Constant <value = int64 {0}> ()\n s = Sigmoid")
    )


def feed(flag, n=9):
    return {"x": np.linspace(-1, 1, n, dtype=np.float32), "c": np.array(flag)}


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1100"])
def test_a_run_compiles_what_it_needs(device):
    with no_background():
        model = sardonyx.compile(dense(), device=device, cache_dir="")
        at_start = model.compiled
        assert at_start.ready == at_start.on_demand < at_start.objects // 2
        first = model(x=rows(SMALL))["y"]
        after_first = model.compiled
        # The GEMM's tiling, and with split-K perhaps what adds the sums.
        assert 1 <= after_first.ready - at_start.ready <= 2 and after_first.ready < after_first.objects
        model(x=rows(SMALL))
        assert model.compiled == after_first
        large = model(x=rows(LARGE))["y"]
        after_large = model.compiled
        assert after_first.ready < after_large.ready < after_large.objects
        assert after_large.on_demand == after_large.ready
    ahead = sardonyx.compile(dense(), device=device, cache_dir="", compile_ahead=True)
    # The same kernels whatever is ready, so the same bits.
    assert ahead(x=rows(SMALL))["y"].tobytes() == first.tobytes()
    assert ahead(x=rows(LARGE))["y"].tobytes() == large.tobytes()


def test_the_choice_does_not_depend_on_what_is_ready():
    with no_background():
        early = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="")
        ahead = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="", compile_ahead=True)
        for n in (SMALL, 40, LARGE, 129):
            names = [[s.kernel for s in m.profile({"x": rows(n)})[1]] for m in (early, ahead)]
            assert names[0] == names[1]


def test_compile_ahead_leaves_nothing_for_later():
    model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="", compile_ahead=True)
    c = model.compiled
    assert c.objects == c.ready == c.on_demand >= 2
    model(x=rows(SMALL))
    assert model.compiled == c


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_branches_compile_when_they_are_taken(device):
    with no_background():
        model = sardonyx.compile(branches(), device=device, cache_dir="")
        start = model.compiled
        assert start.ready < start.objects
        got = model.run(feed(True))["y"]
        taken = model.compiled
        assert start.ready < taken.ready < taken.objects
        other = model.run(feed(False))["y"]
        assert model.compiled.ready == taken.objects
    s = 1 / (1 + np.exp(-feed(True)["x"]))
    np.testing.assert_allclose(got, np.tanh(-np.exp(s)), rtol=1e-5)  # a few roundings of float32
    np.testing.assert_allclose(other, np.cumsum(np.log(s)), rtol=1e-5)


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_the_background_compiles_the_rest(device):
    model = sardonyx.compile(branches() if device == "host" else dense(), device=device, cache_dir="")
    model.wait()
    done = model.compiled
    assert done.ready == done.objects
    if device == "host":
        model.run(feed(False))
    else:
        model(x=rows(LARGE))
    assert model.compiled == done


def test_saving_waits_for_all_kernels(tmp_path):
    with no_background():
        model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="")
        model.save(tmp_path / "dense.sdx")
        assert model.compiled.ready == model.compiled.objects
    loaded = sardonyx.load(tmp_path / "dense.sdx", device="sim:gfx942")
    for n in (SMALL, LARGE):
        assert loaded(x=rows(n))["y"].tobytes() == model(x=rows(n))["y"].tobytes()
    assert loaded.compiled.ready == loaded.compiled.objects


def test_the_cache_gets_kernels_as_they_are_made(tmp_path):
    def cached():
        return files(tmp_path)

    with no_background():
        model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir=tmp_path)
        model(x=rows(SMALL))
        assert cached() == model.compiled.ready < model.compiled.objects
        # Another model finds them, and adds what it needs.
        second = sardonyx.compile(dense(), device="sim:gfx942", cache_dir=tmp_path)
        second(x=rows(SMALL))
        assert cached() == model.compiled.ready
        second(x=rows(LARGE))
        assert cached() == second.compiled.ready > model.compiled.ready
    second.wait()
    assert cached() == second.compiled.objects


def test_compiling_on_the_command_line_compiles_all(tmp_path):
    onnx.save(dense(), tmp_path / "dense.onnx")
    objects = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="", compile_ahead=True).compiled.objects
    for more in (["--device", "sim:gfx942"], ["--arch", "gfx942"]):
        cache = tmp_path / more[1].replace(":", "")
        cli_support.sardonyx("compile", tmp_path / "dense.onnx", *more, "--cache-dir", cache, "-q")
        assert files(cache) == objects
        # A model that may compile in the background finds them, although its own units would be smaller.
        with no_background():
            model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir=cache)
            c = model.compiled
            assert c.objects == c.ready == objects
            assert model(x=rows(LARGE))["y"].shape == (LARGE, 192)
        assert files(cache) == objects


def test_units_are_larger_where_all_is_compiled():
    """Kernels of different candidates share an object, up to eight on AMD; each object costs time."""
    with no_background():
        by_need = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="").compiled.objects
    ahead = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="", compile_ahead=True)
    kernels = len(sardonyx.code_report(dense(), "gfx942", cache_dir=""))
    assert ahead.compiled.objects == -(-kernels // 8) < by_need <= kernels


def test_an_incomplete_cache_is_not_waited_for(tmp_path):
    """If an object of a program that was compiled ahead is missing, a run again compiles only what it needs."""
    sardonyx.compile(dense(), device="sim:gfx942", cache_dir=tmp_path, compile_ahead=True)
    next(f for f in sorted(tmp_path.rglob("*")) if f.is_file()).unlink()
    with no_background():
        model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir=tmp_path)
        model(x=rows(SMALL))
        assert model.compiled.ready < model.compiled.objects


def faulty():
    """A branch whose kernel has an error."""
    sardonyx.custom_operator(
        "test::Faulty",
        inputs=["x: T[n]"],
        outputs=["y: T[n]"],
        source="__global__ void f(const float* x, float* y, int n) { y[0] = no_such_name; }",
        kernel="f",
        grid="1",
        block="32",
        arguments=["x", "y", "n"],
    )
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "test" : 1]>
        g (float[n] x, bool c) => (float[n] y) {
          y = If (c) <then_branch = a () => (float[n] p) { p = Tanh(x) },
                      else_branch = b () => (float[n] r) { r = test.Faulty(x) }>
        }"""
    )
    return model


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_an_error_in_a_custom_kernel_is_reported_before_the_model_is_ready(device):
    with pytest.raises(sardonyx.CompileError, match="no_such_name"):
        sardonyx.compile(faulty(), device=device, cache_dir="")


def test_several_threads_and_sizes():
    sizes = [SMALL, 40, 129, LARGE, 17, 64]
    model = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="")
    results = {}

    def work(n):
        results[n] = model(x=rows(n))["y"]

    threads = [threading.Thread(target=work, args=(n,)) for n in sizes]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ahead = sardonyx.compile(dense(), device="sim:gfx942", cache_dir="", compile_ahead=True)
    for n in sizes:
        assert results[n].tobytes() == ahead(x=rows(n))["y"].tobytes()


@pytest.mark.parametrize(
    "end", ["del model", "pass", "import sys; sys.exit(3)", "import os; pid = os.fork(); pid and os.waitpid(pid, 0)"]
)
def test_ending_while_the_background_compiles(end, tmp_path):
    """Closing the model, ending the process with the model alive, and a child of fork() that ends."""
    onnx.save(dense(), tmp_path / "dense.onnx")
    code = f"""
import sardonyx
model = sardonyx.compile({str(tmp_path / "dense.onnx")!r}, device="sim:gfx942", cache_dir="")
assert model.compiled.ready < model.compiled.objects
{end}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3 if "exit" in end else 0, "")
