"""The number of kernels of well-known models: a fusion that no longer applies shows here first.

The models are skeletons with generated weights; they are not in the repository (see CONTRIBUTING.md, SARDONYX_MODELS).
"""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import sardonyx as api
from cli_support import BUILD, sardonyx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SPEC = importlib.util.spec_from_file_location("models", Path(__file__).parents[2] / "benchmarks" / "models.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)


@pytest.mark.parametrize(
    ("name", "most"), [("resnet50", 58), ("resnet50_dynamo", 58), ("bert_base", 100), ("yolov5s", 90)]
)
def test_kernels_per_run(name, most):
    folder = models.folder()
    if folder is None:
        pytest.skip("SARDONYX_MODELS is not set: there are no models to load")
    path = models.fill(folder, BUILD / "models" / f"{name}.onnx")
    assert path.exists(), f"{folder} has no skeletons/{name}.onnx"
    report = json.loads(sardonyx("inspect", path, "--json", "-"))
    assert 0 < report["kernels_per_run"] <= most
    assert report["kernels_per_run"] == sum(report["program"]["launches"].values())


# Models of any batch have several tilings for each GEMM and convolution; nearly all of the time of compiling is theirs. Bounds are a few
# above the counts in November 2026: 121 and 59.
@pytest.mark.parametrize(("name", "chip", "most"), [("resnet50", "gfx942", 125), ("bert_base", "gfx950", 62)])
@pytest.mark.slow
def test_kernels_compiled_for_all_sizes(name, chip, most):
    folder = models.folder()
    if folder is None:
        pytest.skip("SARDONYX_MODELS is not set: there are no models to load")
    path = models.fill(folder, BUILD / "models" / f"{name}.onnx")
    assert 0 < len(api.code_report(path, chip, precision="fp16")) <= most


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("rows", [["n", "m"], [1, 70], [2, 40]])
def test_a_normalisation_is_one_kernel(device, rows):
    """Of known sizes too: the mean, one element a row, does not make its rows columns."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal(96).astype(np.float32), n) for n in ("s", "b")]
    info = lambda name: helper.make_tensor_value_info(name, 1, [*rows, 96])
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)
    graph = helper.make_graph([node], "g", [info("x")], [info("y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = api.compile(model, device=device)
    assert len(compiled.kernels()) == 1
    x = rng.standard_normal((2, 40, 96) if rows == ["n", "m"] else (*rows, 96)).astype(np.float32)
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    # sums of 96 elements in another order
    np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["host", "sim:gfx942", "sim:gfx1100"])
@pytest.mark.parametrize("dims", [{}, {"batch": 1, "n": 40}, {"batch": 3, "n": 40}, {"batch": 1}])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.slow(part=4)
def test_known_sizes_cost_no_kernels(device, dims, precision):
    """A batch of one, and sums as short as those of a pooling's windows: epilogues and attention are found all the same."""
    rng = np.random.default_rng(0)
    weights = {
        **{n: rng.standard_normal((32, 32)).astype(np.float32) / 6 for n in ("wq", "wk", "wv")},
        **{n: rng.standard_normal(32).astype(np.float32) for n in ("bq", "bk", "bv")},
        "scale": np.float32(32**-0.5),
    }
    nodes = []
    for t in "qkv":
        nodes += [
            helper.make_node("MatMul", ["x", f"w{t}"], [f"m{t}"]),
            helper.make_node("Add", [f"b{t}", f"m{t}"], [t]),
        ]
    nodes += [
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s0"]),
        helper.make_node("Mul", ["s0", "scale"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"]),
        helper.make_node("MatMul", ["o", "wq"], ["c"]),
        helper.make_node("Add", ["c", "bq"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    info = lambda name: helper.make_tensor_value_info(name, 1, ["batch", "n", 32])
    tensors = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [info("x")], [info("y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    symbolic = api.compile(model, device=device, precision=precision)
    compiled = api.compile(model, device=device, precision=precision, dims=dims)
    x = rng.standard_normal((dims.get("batch", 2), 40, 32)).astype(np.float32)
    launches = {m: len(m.profile({"x": x})[1]) for m in (symbolic, compiled)}
    assert launches[compiled] <= launches[symbolic]
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    # float16: four roundings of half a unit, 2**-11, each of values of up to 8; float32: sums of 32 in another order
    bound = 4 * 8 * 2**-11 if precision == "fp16" else 1e-4
    np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=0, atol=bound)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("keys_are_output", [False, True])
def test_rotated_keys_of_groups_are_attention(kv_heads, keys_are_output):
    """As exporters write it: keys are rotated, expanded to all query heads and transposed, element by element."""
    rng = np.random.default_rng(kv_heads)
    heads, size = 4, 16
    constants = {
        "split": np.array([0, 0, kv_heads, size]),
        "one": np.array([2]),
        "many": np.array([1, 1, heads // kv_heads, 1, 1]),
        "all": np.array([0, heads, -1, size]),
        "half": np.array([size // 2, size // 2]),
        "scale": np.float32(size**-0.5),
    }
    node = helper.make_node
    nodes = [
        node("Reshape", ["k", "split"], ["k1"]),
        node("Transpose", ["k1"], ["k2"], perm=[0, 2, 1, 3]),
        node("Split", ["k2", "half"], ["k3", "k4"], axis=-1),
        node("Neg", ["k4"], ["k5"]),
        node("Concat", ["k5", "k3"], ["k6"], axis=-1),
        node("Mul", ["k2", "cos"], ["k7"]),
        node("Mul", ["k6", "sin"], ["k8"]),
        node("Add", ["k7", "k8"], ["rotated"]),
        node("Reshape", ["v", "split"], ["v1"]),
        node("Transpose", ["v1"], ["v2"], perm=[0, 2, 1, 3]),
    ]
    for x, y in (("rotated", "keys"), ("v2", "values")):
        nodes += [
            node("Unsqueeze", [x, "one"], [f"{y}1"]),
            node("Tile", [f"{y}1", "many"], [f"{y}2"]),
            node("Reshape", [f"{y}2", "all"], [y]),
        ]
    nodes += [
        node("Transpose", ["keys"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s0"]),
        node("Mul", ["s0", "scale"], ["s1"]),
        node("Add", ["s1", "mask"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "values"], ["y"]),
    ]
    info = lambda name, dims: helper.make_tensor_value_info(name, 1, dims)
    rows, square = ["b", "s", kv_heads * size], ["b", heads, "s", size]
    inputs = {"q": square, "k": rows, "v": rows} | {n: [1, 1, "s", size] for n in ("cos", "sin")}
    inputs["mask"] = ["b", 1, "s", "s"]
    outputs = {"y": square} | ({"keys": square} if keys_are_output else {})
    graph = helper.make_graph(
        nodes,
        "g",
        [info(*i) for i in inputs.items()],
        [info(*o) for o in outputs.items()],
        [numpy_helper.from_array(c, n) for n, c in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = api.compile(model, device="host")
    names = [k.name for k in compiled.kernels()]
    assert names.count("attention") == 1 and "gemm" not in names
    assert len(names) == (3 if keys_are_output else 2), "keys once, attention, and keys as they are returned"
    for b, s in ((1, 1), (2, 7), (1, 40)):
        sizes = {"b": b, "s": s}
        feed = {n: rng.standard_normal([sizes.get(d, d) for d in dims]).astype("f4") for n, dims in inputs.items()}
        for got, want in zip(compiled(**feed).values(), ReferenceEvaluator(model).run(None, feed), strict=True):
            # sums of up to 40 elements in another order
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
def test_a_convolution_between_transpositions_is_one_kernel(device):
    """Channels last in the model and in memory: the transpositions of an exporter copy nothing."""
    weights = numpy_helper.from_array(np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1]),
    ]
    info = lambda name, shape: helper.make_tensor_value_info(name, 1, shape)
    graph = helper.make_graph(nodes, "g", [info("x", ["n", 5, 6, 8])], [info("y", ["n", 5, 6, 16])], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(1).standard_normal((2, 5, 6, 8)).astype(np.float32)
    compiled = api.compile(model, device=device)
    assert len(compiled.kernels()) == 1
    want = ReferenceEvaluator(model).run(None, {"x": x})[0]
    # sums of 72 products in another order
    np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-4, atol=1e-4)
