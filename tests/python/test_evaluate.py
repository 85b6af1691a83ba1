"""sardonyx.evaluate() and `sardonyx evaluate`: measures equal those of numpy on all samples at once; samples of every form."""

import json
import math
import sys

import gguf_files
import numpy as np
import pytest
import sardonyx
from cli_support import INVALID_ARGUMENT, IO, MISMATCH, layer
from cli_support import sardonyx as command
from onnx import numpy_helper
from sardonyx.llm.convert import convert_gguf
from sardonyx.quantization.measures import Measure

PYTHON = {"SARDONYX_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A layer, and one of slightly other weights; samples of different batch sizes."""
    folder = tmp_path_factory.mktemp("pair")
    layer(folder / "a.onnx", 1.01)
    layer(folder / "b.onnx")
    rng = np.random.default_rng(0)
    return folder, [{"x": rng.standard_normal((n, 4)).astype(np.float32)} for n in (1, 5, 3)]


def test_measures_are_those_of_all_samples_together(pair):
    folder, samples = pair
    e = sardonyx.evaluate(folder / "a.onnx", samples, reference=folder / "b.onnx", layers=True)
    assert e.samples == 3 and [v.name for v in e.outputs] == ["y", "total"]
    # Layers are in the model's order, with their nodes; outputs are not listed again.
    assert [(v.name, v.node) for v in e.layers] == [("product", "product (MatMul)"), ("sum", "bias (Add)")]
    a, b = (sardonyx.compile(folder / f"{n}.onnx") for n in "ab")
    y, r = (np.concatenate([m(s)["y"] for s in samples]).astype(np.float64) for m in (a, b))
    v, d = e.outputs[0], np.abs(y - r)
    relative = math.sqrt((d**2).sum() / (r**2).sum())
    assert v.elements == y.size and v.equal == pytest.approx((y == r).mean())
    # The same sums in another order.
    assert (v.max_error, v.mean_error, v.relative) == pytest.approx((d.max(), d.mean(), relative), rel=1e-12)
    assert v.cosine == pytest.approx((y * r).sum() / np.sqrt((y**2).sum() * (r**2).sum()), rel=1e-12)
    assert v.sqnr == pytest.approx(-20 * math.log10(relative), rel=1e-12)
    assert v.top1 == np.mean(y.argmax(-1) == r.argmax(-1)) and v.decisions == 9
    assert e.outputs[1].top1 is None  # one dim is no classifier's output
    same = sardonyx.evaluate(folder / "a.onnx", samples)
    assert same.outputs[0].relative == 0 and same.outputs[0].sqnr == math.inf and same.outputs[0].top1 == 1


def test_values_that_are_not_finite_or_saturated_are_counted():
    m = Measure()
    nan, inf = math.nan, math.inf
    m.add(np.array([1, nan, inf, 65504, 7], np.float32), np.array([1, nan, 2, 7e4, 7e5], np.float32))
    m.add(np.array([-inf, 3, -65504], np.float16), np.array([-inf, nan, -65504], np.float16))
    m.add(np.zeros(3, np.float32), np.zeros(4, np.float32))
    v = m.result("x")
    assert (v.nonfinite, v.reference_nonfinite, v.saturated, v.reference_saturated) == (3, 3, 2, 3)
    assert v.equal == 4 / 8 and v.reference_largest == 7e5 and v.other_shapes == 1 and v.samples == 3
    assert v.max_error == 7e5 - 7  # of the elements that are finite in both
    nothing = Measure().result("x")
    assert math.isnan(nothing.relative) and math.isnan(nothing.cosine) and nothing.top1 is None


def test_samples_of_every_form(pair, tmp_path):
    folder, _samples = pair
    model = folder / "a.onnx"
    x = np.random.default_rng(1).standard_normal((6, 2, 4)).astype(np.float32)  # six samples of batch 2
    np.savez(tmp_path / "all.npz", x=x)
    many, single, pb = tmp_path / "many", tmp_path / "single", tmp_path / "pb"
    for path in (many, single, pb / "test_data_set_0", pb / "test_data_set_1"):
        path.mkdir(parents=True)
    for k in range(6):
        np.savez(many / f"{k}.npz", x=x[k], label=k)
        np.save(single / f"{k}.npy", x[k])
    for k in range(2):
        tensor = numpy_helper.from_array(x[k])
        (pb / f"test_data_set_{k}" / "input_0.pb").write_bytes(tensor.SerializeToString())
    script = tmp_path / "samples.py"
    script.write_text(
        f"import numpy as np\ndef samples():\n    yield from np.load({str(tmp_path / 'all.npz')!r})['x']\n"
    )
    counts = {tmp_path / "all.npz": 6, many: 6, single: 6, pb: 2, script: 6}
    for data, count in counts.items():
        e = sardonyx.evaluate(model, data, reference=folder / "b.onnx")
        want = sardonyx.evaluate(model, [{"x": v} for v in x[:count]], reference=folder / "b.onnx")
        assert e.samples == count and e.outputs == want.outputs, data
    assert sardonyx.evaluate(model, many, samples=2).samples == 2
    assert sardonyx.evaluate(model, lambda: iter(x)).samples == 6
    # Floats become each model's own: a model in fp16 takes the same samples.
    assert sardonyx.evaluate(model, [x[0].astype(np.float64)]).samples == 1


def test_data_that_do_not_fit_are_refused(pair, tmp_path):
    folder, samples = pair
    model = folder / "a.onnx"
    bad = tmp_path / "bad.npz"
    bad.write_bytes(b"PK\x03\x04 no archive")
    empty = tmp_path / "empty"
    empty.mkdir()
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(b"")
    np.savez(tmp_path / "other.npz", z=np.zeros((1, 4), np.float32))
    np.savez(tmp_path / "rank.npz", x=np.zeros((1, 1, 1, 4), np.float32))
    np.savez(tmp_path / "objects.npz", x=np.array([None]))
    script = tmp_path / "s.py"
    script.write_text("x = 1")
    cases = {
        bad: "can't be read",
        empty: "no samples",
        images: "preprocessing",
        tmp_path / "other.npz": "has no array with the name of an input",
        tmp_path / "rank.npz": "has 4 dims",
        tmp_path / "objects.npz": "can't be read",
        script: "does not define a function samples",
    }
    for data, message in cases.items():
        with pytest.raises(sardonyx.InvalidArgumentError, match=message):
            sardonyx.evaluate(model, data)
    for data, message in (([], "no samples"), ([{"y": 1}], "no 'x'"), ([{"x": np.zeros((1, 4), np.int32)}], "int32")):
        with pytest.raises(sardonyx.InvalidArgumentError, match=message):
            sardonyx.evaluate(model, data)
    with pytest.raises(sardonyx.FileError, match="no such file"):
        sardonyx.evaluate(model, tmp_path / "none")
    with pytest.raises(sardonyx.InvalidArgumentError, match="no output 'z' in common"):
        sardonyx.evaluate(model, samples, classifiers=["z"])
    with pytest.raises(sardonyx.InvalidArgumentError, match="not compiled yet"):
        sardonyx.evaluate(sardonyx.compile(model), samples, reference=model, options={"precision": "fp32"})


def test_the_command(pair, tmp_path):
    folder, samples = pair
    for k, s in enumerate(samples):
        np.savez(tmp_path / f"{k}.npz", **s)
    arguments = ["evaluate", folder / "a.onnx", "--reference", folder / "b.onnx", "--data", tmp_path]
    file, chart = tmp_path / "e.json", tmp_path / "e.svg"
    pytest.importorskip("matplotlib")
    out = command(*arguments, "--layers", "--saturation", "--json", file, "--plot", chart, **PYTHON)
    assert "3 samples" in out and "product (MatMul)" in out and "no value leaves the range of float16" in out
    found = json.loads(file.read_text())
    want = sardonyx.evaluate(folder / "a.onnx", samples, reference=folder / "b.onnx", layers=True)
    assert found["outputs"] == json.loads(json.dumps(want.as_dict()))["outputs"] and found["samples"] == 3
    assert chart.read_text().startswith("<?xml")
    assert "relative error" in command(*arguments, "--max-relative", 1e-9, code=MISMATCH, **PYTHON)
    command(*arguments, "--max-relative", 1, **PYTHON)
    assert "--help" in command(*arguments, "--sample", 1, "--x", code=INVALID_ARGUMENT, **PYTHON)
    assert "could not be written" in command(*arguments, "--json", tmp_path / "no" / "e.json", code=IO, **PYTHON)
    assert "evaluate" in command("--help")


def test_perplexity_of_language_models(tmp_path):
    gguf_files.write(tmp_path / "m.gguf", "llama", "Q8_0")
    for name, precision in (("own", "int4"), ("reference", "fp32")):
        convert_gguf(tmp_path / "m.gguf", tmp_path / name, precision=precision, activations="fp32")
    text = "the end and then the end of the end " * 3
    (tmp_path / "text.txt").write_text(text)
    e = sardonyx.evaluate(tmp_path / "own", tmp_path / "text.txt", reference=tmp_path / "reference", context=16)
    # The same by hand, from the logits of each window.
    from sardonyx.llm.genai_folder import read_folder
    from sardonyx.quantization.text_agreement import decoder_inputs, windows

    loss, count = 0.0, 0
    folder = read_folder(tmp_path / "reference")
    model = sardonyx.compile(folder.model)
    for ids in windows(folder.path, tmp_path / "text.txt", 16):
        logits = model(decoder_inputs(model.inputs, folder, ids))[folder.logits][0].astype(np.float64)
        p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        loss -= np.log(p[np.arange(len(ids) - 1), ids[1:]]).sum()
        count += len(ids) - 1
    assert e.text.tokens == count and e.samples > 1
    # Logarithms of float32 there, of float64 here.
    assert e.text.reference_perplexity == pytest.approx(math.exp(loss / count), rel=1e-5)
    assert e.text.perplexity != e.text.reference_perplexity and e.text.divergence > 0
    (tmp_path / "data").mkdir()
    with pytest.raises(sardonyx.InvalidArgumentError, match=r"no \.txt"):
        sardonyx.evaluate(tmp_path / "own", tmp_path / "data")
    with pytest.raises(sardonyx.InvalidArgumentError, match="another one's"):
        sardonyx.evaluate(tmp_path / "own", [text], reference=folder.model)
