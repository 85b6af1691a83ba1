"""`sardonyx inspect --passes` and `--remarks`, in text, JSON and the page; and Python's pass_report()."""

import itertools
import json

import numpy as np
import pytest
import sardonyx as package
from cli_support import INVALID_ARGUMENT, layer, sardonyx, save
from onnx import TensorProto, helper


@pytest.fixture
def model(tmp_path):
    return layer(tmp_path / "m.onnx")[0]


@pytest.fixture
def two_heads(tmp_path):
    """A product that two nodes read: no epilogue."""
    return save(
        tmp_path / "m.onnx",
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Relu", ["p"], ["a"], name="relu"),
            helper.make_node("Softmax", ["p"], ["b"], name="softmax"),
        ],
        [("x", TensorProto.FLOAT, ["n", 64])],
        [("a", TensorProto.FLOAT, ["n", 32]), ("b", TensorProto.FLOAT, ["n", 32])],
        [("w", np.ones((64, 32), np.float32))],
    )


def test_passes_that_changed_the_graph(model):
    text = sardonyx("inspect", model, "--passes")
    assert text.index("// import\n") < text.index("// inline_loops\n")
    assert "matmul float32[i0 < batch, i1 < 3; i2 < 4]" in text and '@"product (MatMul)"' in text
    assert "// fill_channels" not in text  # it changed nothing
    assert "not done, because" not in text


def test_remarks_name_pass_node_and_reason(two_heads):
    text = sardonyx("inspect", two_heads, "--remarks")
    assert "epilogues" in text and "product (MatMul)" in text and "nodes read its result" in text
    assert "// import" not in text


def test_json_has_passes(model):
    plain = json.loads(sardonyx("inspect", model, "--json", "-"))
    assert "passes" not in plain and "remarks" not in plain
    passes = json.loads(sardonyx("inspect", model, "--json", "-", "--passes"))["passes"]
    assert passes[0]["pass"] == "import" and len(passes) > 1
    assert all(a["text"] != b["text"] for a, b in itertools.pairwise(passes))


def test_json_has_remarks(two_heads):
    j = json.loads(sardonyx("inspect", two_heads, "--json", "-", "--remarks"))
    remark = next(r for r in j["remarks"] if r["pass"] == "epilogues")
    assert remark["node"] == "product (MatMul)" and remark["values"] == {"fused loops": "0"}


def test_page_has_both(two_heads, tmp_path):
    sardonyx("inspect", two_heads, "--html", tmp_path / "g.html")
    page = (tmp_path / "g.html").read_text()
    assert '"pass":"import"' in page and "nodes read its result" in page


def test_no_fuse_has_fewer_passes(model):
    assert "// inline_loops" not in sardonyx("inspect", model, "--passes", "--no-fuse")


def test_compiled_programs_have_no_passes(model, tmp_path):
    sardonyx("compile", model, "-o", tmp_path / "m.sdx")
    message = sardonyx("inspect", tmp_path / "m.sdx", "--passes", code=INVALID_ARGUMENT)
    assert "compiled already" in message
    sardonyx("inspect", tmp_path / "m.sdx", "--html", tmp_path / "g.html")
    assert "compiled already" in (tmp_path / "g.html").read_text()


@pytest.mark.parametrize("options", [[], ["--precision", "fp16"], ["--no-fuse"], ["--fix", "n=3"]], ids=str)
def test_python_has_the_same_report(two_heads, options):
    j = json.loads(sardonyx("inspect", two_heads, "--json", "-", "--passes", *options))
    keywords = {"--precision": {"precision": "fp16"}, "--no-fuse": {"fuse": False}, "--fix": {"dims": {"n": 3}}}
    report = package.pass_report(two_heads, **keywords[options[0]] if options else {})
    assert [list(p) for p in report.passes] == [[p["pass"], p["nested"], p["text"]] for p in j["passes"]]
    assert [list(r) for r in report.remarks] == [list(r.values()) for r in j["remarks"]]
    assert report.passes[0].pass_name == "import"


def test_python_report_of_a_gpu(two_heads):
    """Of bytes, too."""
    report = package.pass_report(two_heads.read_bytes(), "gfx942", precision="fp16")
    assert "narrow_floats" in [p.pass_name for p in report.passes]
    remark = next(r for r in report.remarks if r.pass_name == "epilogues")
    assert (remark.node, remark.values) == ("product (MatMul)", {"fused loops": "0"})
    assert "nodes read its result" in remark.reason


def test_python_report_refuses(two_heads):
    with pytest.raises(package.UnsupportedError, match='unknown target "gfx1"'):
        package.pass_report(two_heads, "gfx1")
    with pytest.raises(TypeError, match=r"pass_report.. has no option 'presicion'; did you mean 'precision'"):
        package.pass_report(two_heads, presicion="fp16")
