"""sardonyx.quantize(to="mixed"): the budget holds on other data, the bound is what it says, and the fastest choice is taken."""

import json
import sys

import gguf_files
import numpy as np
import onnx
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT
from cli_support import sardonyx as command
from onnx import helper
from sardonyx.llm.convert import convert_gguf
from sardonyx.quantization.budget import Decisions, Found, Own, Perplexity, Relative, _failures, t_quantile
from sardonyx.quantization.costs import HostCost, marked
from sardonyx.quantization.onnx_model import OnnxModel
from sardonyx.quantization.switches import Switches
from test_quantize import make

PYTHON = {"SARDONYX_PYTHON": sys.executable}


class FakeCost:
    """Times by type, so that tests neither measure nor compile for GPUs."""

    what = "made up"

    def __init__(self, *_):
        pass

    def layers(self, model, products):
        makers = {v: n for n in model.proto.graph.node for v in n.output}

        def seconds(node):
            if node.op_type == "MatMulNBits":
                return {8: 0.7, 4: 0.6}[next(a.i for a in node.attribute if a.name == "bits")]
            maker = makers[node.input[1]].op_type if node.input[1] in makers else ""
            return {"DequantizeLinear": 0.5, "Reshape": 0.4}.get(maker, 1.0)  # a Reshape: float8's

        return [seconds(n) for n in products], 0.1

    def total(self, models):
        out = []
        for m in models:
            nodes = [n for n in m.proto.graph.node if n.op_type in ("MatMul", "MatMulNBits", "Gemm")]
            out.append(0.1 + sum(self.layers(m, nodes)[0]))
        return out


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr("sardonyx.quantization.mixed.cost_of", lambda *a: FakeCost())


def network(seed=0, width=256):
    """MatMuls large enough to be faster in 8 bits; "rough" has channels of uneven size, so that 8 bits cost it the most."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: rng.standard_normal(shape).astype(np.float32) / 16
    weights = {f"w{k}": normal(width, width) for k in range(4)}
    weights |= {"uneven": np.exp(2.5 * rng.standard_normal(width)).astype(np.float32), "small": np.float32(0.02)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"], name="second"),
        helper.make_node("Mul", ["c", "uneven"], ["d"]),
        helper.make_node("MatMul", ["d", "w2"], ["e"], name="rough"),
        helper.make_node("Mul", ["e", "small"], ["f"]),
        helper.make_node("Add", ["c", "f"], ["g"]),
        helper.make_node("MatMul", ["g", "w3"], ["y"], name="head"),
    ]
    return make(nodes, [("x", ["n", width])], [("y", ["n", width])], weights)


def samples(count, seed, width=256):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((64, width)).astype(np.float32)} for _ in range(count)]


def test_the_budget_holds_on_other_data_and_the_time_is_the_shortest(made_up):
    model = network()
    found = {}
    for budget in (0.004, 0.02, 0.5):
        done = sardonyx.quantize(model, samples(18, 1), to="mixed", budget=budget, target="gfx942")
        mixed = done.report.mixed
        e = sardonyx.evaluate(done.model, samples(12, 2), reference=model).outputs[0].relative
        chosen = next(p for p in mixed.curve if p.chosen)
        assert e <= chosen.bound <= budget and mixed.checked == 12
        assert chosen.seconds == min(p.seconds for p in mixed.curve if (p.meets and p.name != "mixed") or p.chosen)
        assert [p.seconds for p in mixed.curve] == sorted(p.seconds for p in mixed.curve)
        assert {"int8", "fp8", "int4", "int8-weights", "float"} <= {p.name for p in mixed.curve}
        assert len(done.report.layers) + len(done.report.kept) == 4
        onnx.checker.check_model(done.model)
        found[budget] = chosen.seconds
    assert found[0.5] < found[0.004]


def test_the_most_sensitive_node_stays(made_up):
    """With types of one kind, the order is that of time saved for error added, and reasons are given."""
    done = sardonyx.quantize(network(), samples(18, 3), to="mixed", budget=0.01, types=["int8"], target="sm_90a")
    names = {v.name: v for v in done.report.layers}
    assert names and all(v.type == "int8" and v.relative > 0 for v in names.values())
    alone = sardonyx.quantize(network(), samples(18, 3), to="mixed", budget=1, types=["int8"], target="sm_90a")
    order = [v.name for v in alone.report.layers]  # most sensitive first
    assert set(names) == set(order[len(order) - len(names) :])
    for name in order[: len(order) - len(names)]:
        assert "other nodes save more for the error that it adds" in done.report.kept[name]
    out = sardonyx.quantize(network(), samples(18, 3), to="mixed", budget=1, exclude=["fi*"], target="sm_90a")
    assert out.report.kept["first (MatMul)"] == "excluded by a pattern"


def test_on_the_host_times_are_measured():
    done = sardonyx.quantize(network(), samples(12, 4), to="mixed", budget=0.5)
    mixed = done.report.mixed
    assert "measured on the host" in mixed.cost
    chosen = next(p for p in mixed.curve if p.chosen)
    assert chosen.seconds <= min(p.seconds for p in mixed.curve if p.meets and p.name != "mixed")
    # float8 is not faster where nothing multiplies it.
    assert "fp8" not in {p.name for p in mixed.curve}


def test_metrics_of_the_user(tmp_path, made_up):
    calls = []

    def error(outputs, reference, inputs):
        calls.append(inputs["x"].shape)
        return float(np.abs(outputs["y"] - reference["y"]).mean())

    done = sardonyx.quantize(network(), samples(9, 5), to="mixed", metric=error, budget=10, target="gfx942")
    assert calls and done.report.mixed.metric == "error" and any(p.chosen and p.counts for p in done.report.mixed.curve)
    strict = sardonyx.quantize(network(), samples(9, 5), to="mixed", metric=error, budget=1e-9, target="gfx942")
    assert not strict.report.layers and next(p for p in strict.report.mixed.curve if p.chosen).name == "float"
    (tmp_path / "metric.py").write_text("def error(outputs, reference, inputs):\n    return 1 / 0\n")
    with pytest.raises(sardonyx.InvalidArgumentError, match="failed: ZeroDivisionError"):
        sardonyx.quantize(network(), samples(9, 5), to="mixed", metric=str(tmp_path / "metric.py"), budget=1)


def test_measures():
    r = {"y": np.array([[3.0, 4.0], [0.0, 1.0]], np.float32)}
    x = {"y": np.array([[3.0, 4.5], [0.0, 1.0]], np.float32)}
    above, below = Relative().of(x, r, {})
    assert above == 0.25 and below == 26
    assert Relative().of({"y": np.full((2, 2), np.nan, np.float32)}, r, {})[0] == np.inf
    flipped = {"y": np.array([[5.0, 4.5], [0.0, 1.0]], np.float32)}
    assert [v.tolist() for v in Decisions().of(flipped, r, {})] == [[1], [2]]
    logits = np.log(np.array([[[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]]], np.float32))
    worse = np.log(np.array([[[0.5, 0.5], [0.8, 0.2], [0.5, 0.5]]], np.float32))
    terms = Perplexity("y", "ids")
    above, below = terms.of({"y": worse}, {"y": logits}, {"ids": np.array([[1, 0, 0]])})
    assert below == 2 and above == pytest.approx(np.log(0.9 / 0.8), rel=1e-5)
    assert terms.error(above / below) == pytest.approx(np.sqrt(0.9 / 0.8) - 1, rel=1e-5)


def test_bounds():
    # Tables of Student's distribution.
    for p, freedom, want in ((0.999, 1, 318.31), (0.99, 5, 3.365), (0.999, 14, 3.787), (0.95, 100, 1.660)):
        assert t_quantile(p, freedom) == pytest.approx(want, rel=1e-3)
    rng = np.random.default_rng(0)
    own = Own(lambda o, r, i: 0.0, "own")
    below = np.array([1.0])

    def trials(draw, n, confidence):
        missed = 0
        for _ in range(400):
            a, b = draw(n), draw(n)
            missed += b.mean() > Found(own, [(np.array([x]), below) for x in a]).bound(confidence)
        return missed / 400

    # The bound is exceeded at most as often as it says; 400 trials of 0.05 have a standard deviation of 0.011.
    assert trials(lambda n: 1 + rng.random(n), 12, 0.95) < 0.08
    assert trials(lambda n: (rng.random(n) < 0.1).astype(float), 30, 0.95) < 0.08
    assert trials(lambda n: rng.gamma(4, 1, n), 12, 0.95) < 0.08
    assert trials(lambda n: rng.lognormal(0, 1, n), 40, 0.95) < 0.08
    # 1.8 % and 7 % by Student's distribution alone: samples without a large error have a small variance, too.
    assert trials(lambda n: rng.lognormal(0, 1, n), 40, 0.999) < 0.015
    assert trials(lambda n: np.where(rng.random(n) < 0.1, 20, 1) * rng.gamma(4, 0.25, n), 100, 0.999) < 0.01
    # Counts of failures: those of the beta-binomial distribution, by which 3 failures of 30 may be 14 of 30 others.
    failed = np.array([1.0] * 3 + [0.0] * 27)
    found = Found(own, [(np.array([x]), below) for x in failed]).bound(0.999)
    assert found == pytest.approx(_failures(3, 30, 0.999) / 30)
    same = Found(own, [(np.array([0.5]), below)] * 9)
    assert same.error == 0.5 and same.bound(0.999) == 0.5  # all alike
    assert Found(own, [(np.array([0.0]), below)] * 9).bound(0.999) > 0  # no failure among few proves little


def test_switches_compute_what_the_written_models_do():
    from sardonyx.quantization.layers import find_layers
    from sardonyx.quantization.qdq import INT8, QdqWriter
    from sardonyx.quantization.ranges import Range

    model = OnnxModel(network())
    products, _ = find_layers(model, (), grouped=False)
    ranges = {p.activation: Range(-3.0, 3.0) for p in products}

    def writer(m):
        w = QdqWriter(m, INT8, ranges, symmetric=True, per_channel=True)
        return lambda p, kind: w.quantise(p)

    kinds = [["int8"], ["int8"], [], ["int8"]]
    switches = Switches(model, products, kinds, writer, {"threads": 1})
    assert [i.name for i in switches.inputs] == ["x"]
    x = samples(1, 6)[0]
    plain = sardonyx.compile(network())(x)["y"]
    np.testing.assert_allclose(switches.run(x, [None] * 4)["y"], plain, rtol=1e-5, atol=1e-5)
    written = OnnxModel(network())
    chosen = [p for k, p in enumerate(find_layers(written, (), grouped=False)[0]) if k in (0, 3)]
    write = writer(written)
    for p in chosen:
        write(p, "int8")
    want = sardonyx.compile(written.proto)(x)["y"]
    got = switches.run(x, ["int8", None, None, "int8"])["y"]
    # The same integers; a value in the middle between two may be rounded to either.
    assert np.sqrt(np.mean((got - want) ** 2)) < 1e-3 * np.abs(want).max() and not np.array_equal(got, plain)


def test_times_are_those_of_the_nodes():
    model = OnnxModel(network(width=64))
    nodes = [n for n in model.proto.graph.node if n.op_type == "MatMul"]
    known = [v for n in model.proto.graph.node for v in n.output]
    names = [n.name for n in onnx.load_model_from_string(marked(model, nodes, known)).graph.node]
    assert [n.startswith("sardonyx_layer_") for n in names] == [n.op_type == "MatMul" for n in model.proto.graph.node]
    cost = HostCost(lambda inputs: samples(1, 7, 64)[0], known, {})
    layers, rest = cost.layers(model, nodes)
    assert len(layers) == 4 and min(layers) > 0 and rest > 0
    launches = sardonyx.estimate(network(width=64), "gfx942", sizes={"n": 64})
    assert sum("MatMul" in n for e in launches for n in e.nodes) == 4 and all(e.seconds >= e.roofline for e in launches)
    assert sum(e.operations for e in launches) == 4 * 2 * 64**3
    assert any(e.tiling > 0 for e in sardonyx.estimate(network(width=64), "sm_90a", sizes={"n": 64}, precision="fp16"))
    with pytest.raises(sardonyx.InvalidArgumentError, match="dim 'n' has no size"):
        sardonyx.estimate(network(width=64), "gfx942")
    with pytest.raises(sardonyx.InvalidArgumentError, match="estimates are for GPUs"):
        sardonyx.estimate(network(width=64), "host")


def test_language_models(tmp_path, made_up):
    gguf_files.write(tmp_path / "m.gguf", "llama", "Q8_0")
    convert_gguf(tmp_path / "m.gguf", tmp_path / "float", precision="fp32")
    text = ["the end and then the end of the end " * 12]
    done = sardonyx.quantize(tmp_path / "float", text, to="mixed", budget=0.2, output=tmp_path / "out", context=16,
                             target="gfx942", types=["int8-weights", "int4"], weights="rtn")  # fmt: skip
    assert done.report.mixed.metric == "perplexity" and done.report.mixed.checked >= 6
    e = sardonyx.evaluate(tmp_path / "out", text, reference=tmp_path / "float", context=16)
    assert e.text.ratio < 1.2
    assert {n.op_type for n in done.model.graph.node} >= {"MatMulNBits"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 0}, "the budget is 0"),
        ({"metric": "speed"}, "a metric is"),
        ({"metric": "perplexity"}, "folder of a language model"),
        ({"metric": lambda o, r, i: 0.0}, "needs a budget"),
        ({"types": ["int5"]}, "chooses among"),
        ({"target": "gfx1"}, "the target 'gfx1' is not"),
        ({"confidence": 1.5}, "the confidence is 1.5"),
        ({"weights": "awq"}, "gptq or rtn"),
        ({"exclude": ["*"]}, "no MatMul, Gemm or Conv"),
        ({"data": samples(8, 8)}, "needs at least 9 samples"),
        ({"data": None}, "needs data"),
    ],
)
def test_what_is_refused(arguments, message):
    given = {"data": samples(9, 8), "to": "mixed", **arguments}
    with pytest.raises(sardonyx.InvalidArgumentError, match=message):
        sardonyx.quantize(network(width=64) if "data" not in arguments else network(), given.pop("data"), **given)


def test_the_command(tmp_path):
    onnx.save(network(), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=np.stack([s["x"] for s in samples(12, 9)]))
    arguments = [
        "quantize",
        tmp_path / "m.onnx",
        "--data",
        tmp_path / "data.npz",
        "--to",
        "mixed",
        "--target",
        "gfx942",
    ]
    out = command(*arguments, "--budget", 0.5, "--types", "int8,fp8", "-o", tmp_path / "q.onnx", "--json",
                  tmp_path / "q.json", "--plot", tmp_path / "q.svg", **PYTHON)  # fmt: skip
    assert "budget 0.5 (relative), checked on 8 samples" in out and "chosen" in out and "estimated for gfx942" in out
    report = json.loads((tmp_path / "q.json").read_text())
    assert sum(p["chosen"] for p in report["mixed"]["curve"]) == 1 and report["mixed"]["budget"] == 0.5
    assert "<svg" in (tmp_path / "q.svg").read_text()
    sardonyx.compile(tmp_path / "q.onnx")
    for wrong, message in (
        (["--types", "int9"], "chooses among"),
        (["--metric", "none.py"], "can't be run"),
        (["--budget", 0.5, "--plot", "a.txt"], "plots are written as"),
    ):
        assert message in command(*arguments, *wrong, code=INVALID_ARGUMENT, **PYTHON)
