"""Float models whose GEMMs and convolutions run in 8 bits (precision int8 and fp8, with a calibration table), compared with the same
rounding in numpy's float64, and with the float model."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper

FP8 = {"gfx942": (ml_dtypes.float8_e4m3fnuz, 240.0), "gfx1201": (ml_dtypes.float8_e4m3fn, 448.0)}


def make(nodes, inputs, outputs, weights, opset=17):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs],
        [numpy_helper.from_array(w, n) for n, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def table(path, ranges):
    path.write_text("".join(f"{name} {value!r}\n" for name, value in ranges.items()))
    return path


def rounded(x, scale, kind="int8"):
    """What an operand becomes, as the numbers that are multiplied. The quotient is one of float32, as QuantizeLinear's."""
    q = (x.astype(np.float32) / np.float32(scale)).astype(np.float32)
    if kind == "int8":
        return np.clip(np.rint(q), -128, 127).astype(np.float64)
    dtype, largest = FP8[kind]
    return np.clip(q, -largest, largest).astype(dtype).astype(np.float64)


def steps(w, axis, kind="int8"):
    largest = 127.0 if kind == "int8" else FP8[kind][1]
    other = tuple(k for k in range(w.ndim) if k != axis)
    most = np.abs(w).max(axis=other, keepdims=True)
    return np.where(most > 0, (most / np.float32(largest)).astype(np.float32), np.float32(1))


def dense(x, w, largest, kind="int8", axis=1):
    """x times w, rounded: sums are exact in int32, and in float64 here."""
    sx, sw = np.float32(largest) / np.float32(127 if kind == "int8" else FP8[kind][1]), steps(w, axis, kind)
    product = rounded(x, sx, kind) @ (rounded(w, sw, kind) if axis == 1 else rounded(w, sw, kind).T)
    return product * float(sx) * sw.reshape(1, -1).astype(np.float64)


def close(got, want):
    # Both scales and what follows are float32's: a few roundings of 2^-24.
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6 * np.abs(want).max())


DEVICES = ("host", "sim:gfx1100", "sim:gfx942")


@pytest.mark.parametrize("device", DEVICES)
def test_products_are_those_of_rounded_operands(device, tmp_path):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 48)).astype(np.float32)
    w[:, 3] = 0  # a channel without a largest value
    v = rng.standard_normal((32, 48)).astype(np.float32)
    b = rng.standard_normal(32).astype(np.float32)
    m = make(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["r"]),
            helper.make_node("Gemm", ["r", "v", "b"], ["y"], transB=1, alpha=0.5, beta=2.0),
        ],
        [("x", ["n", 64])],
        [("y", ["n", 32])],
        {"w": w, "v": v, "b": b},
    )
    ranges = {"x": 2.0, "r": 25.0}  # less than the largest values: the rest is kept at the ends
    compiled = sardonyx.compile(m, device=device, precision="int8", calibration_table=table(tmp_path / "t", ranges))
    assert compiled.quantization == (2, ())
    for n in (1, 5, 70):
        x = np.random.default_rng(n).standard_normal((n, 64)).astype(np.float32)
        r = np.maximum(dense(x, w, ranges["x"]), 0).astype(np.float32)
        want = 0.5 * dense(r, v, ranges["r"], axis=0) + 2 * b
        # A value between two steps may be rounded to the other one by its last bit: one step of one operand then.
        step = ranges["r"] / 127 * np.abs(v).max() * 0.5
        got = compiled(x=x)["y"]
        assert np.mean(np.abs(got - want) > 1e-5 * np.abs(want).max()) < 0.02
        assert np.abs(got - want).max() <= 1.01 * step


@pytest.mark.parametrize("device", DEVICES)
def test_convolutions(device, tmp_path):
    rng = np.random.default_rng(1)
    w = rng.standard_normal((24, 16, 3, 3)).astype(np.float32)
    b = rng.standard_normal(24).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1], strides=[2, 1])
    m = make([node], [("x", ["n", 16, "h", 9])], [("y", ["n", 24, None, None])], {"w": w, "b": b})
    compiled = sardonyx.compile(m, device=device, precision="int8", calibration_table=table(tmp_path / "t", {"x": 3.0}))
    for n, h in ((1, 7), (3, 8)):
        x = rng.standard_normal((n, 16, h, 9)).astype(np.float32)
        sx, sw = np.float32(3.0) / np.float32(127), steps(w, 0)
        q, k = np.pad(rounded(x, sx), ((0, 0), (0, 0), (1, 1), (1, 1))), rounded(w, sw)
        columns = np.lib.stride_tricks.sliding_window_view(q, (3, 3), axis=(2, 3))[:, :, ::2]
        want = np.einsum("nchwij,ocij->nohw", columns, k) * float(sx) * sw.reshape(1, -1, 1, 1) + b.reshape(1, -1, 1, 1)
        close(compiled(x=x)["y"], want)


def attention_like():
    """What is and what is not rounded: weights on the right, on the left, none, a group, a nested graph, a tensor without a range."""
    rng = np.random.default_rng(2)
    weights = {n: rng.standard_normal((16, 16)).astype(np.float32) for n in ("w", "u", "t", "s")}
    weights["d"] = rng.standard_normal((16, 1, 3)).astype(np.float32)
    branch = lambda name, weight: helper.make_graph(
        [helper.make_node("MatMul", ["a", weight], [name], name=name)], name, [],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="right"),
        helper.make_node("MatMul", ["u", "a"], ["b"], name="left"),
        helper.make_node("MatMul", ["a", "b"], ["c"], name="none"),
        helper.make_node("Conv", ["c", "d"], ["e"], name="depthwise", group=16, pads=[1, 1]),
        helper.make_node("MatMul", ["e", "s"], ["f"], name="without"),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"]),
        helper.make_node("If", ["condition"], ["i"], then_branch=branch("then", "t"), else_branch=branch("else", "s")),
        helper.make_node("Add", ["f", "i"], ["y"]),
    ]
    return make(nodes, [("x", [2, 16, 16])], [("y", [2, 16, 16])], weights)


def test_what_has_no_range_or_no_weights_stays_in_float_and_is_named(tmp_path):
    m = attention_like()
    compiled = sardonyx.compile(m, precision="int8", calibration_table=table(tmp_path / "t", {"x": 3.5, "a": 18.0}))
    quantized, in_float = compiled.quantization
    assert quantized == 3, in_float  # and both branches
    reasons = {line.split("'")[1]: line for line in in_float}
    assert set(reasons) == {"left", "none", "depthwise", "without"}
    assert "not constant" in reasons["none"] and "groups" in reasons["depthwise"]
    assert "no range of 'e'" in reasons["without"]
    x = np.random.default_rng(3).standard_normal((2, 16, 16)).astype(np.float32)
    got, want = compiled(x=x)["y"], sardonyx.compile(m)(x=x)["y"]
    # Two products of 16 terms rounded to 1/254 of a range each.
    assert 1e-4 < np.abs(got - want).max() / np.abs(want).max() < 0.05


def calibrated(tmp_path):
    """A model, and the tables that ONNX Runtime's calibrator writes for it."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    w = np.random.default_rng(4).standard_normal((32, 16)).astype(np.float32)
    m = make([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["n", 32])], [("y", ["n", 16])], {"w": w})
    onnx.save(m, tmp_path / "m.onnx")
    examples = [np.random.default_rng(k).uniform(-3, 2, (4, 32)).astype(np.float32) for k in range(3)]

    class Examples(quantization.CalibrationDataReader):
        def __init__(self):
            self.feeds = iter([{"x": e} for e in examples])

        def get_next(self):
            return next(self.feeds, None)

    calibrator = quantization.create_calibrator(
        str(tmp_path / "m.onnx"), augmented_model_path=str(tmp_path / "augmented.onnx"),
        calibrate_method=quantization.CalibrationMethod.MinMax, extra_options={"symmetric": True},
    )  # fmt: skip
    calibrator.collect_data(Examples())
    quantization.write_calibration_table(calibrator.compute_data(), str(tmp_path))
    return m, w, float(np.abs(np.stack(examples)).max())


def test_every_form_of_a_table_says_the_same(tmp_path):
    m, w, largest = calibrated(tmp_path)
    bits = struct.unpack("<I", struct.pack("<f", largest / 127))[0]
    (tmp_path / "native.cache").write_text(f"TRT-8601-EntropyCalibration2\nx: {bits:08x}\ny: 3f000000\n")
    (tmp_path / "old.json").write_text(f'{{"x": [{-largest!r}, 1.0], "y": [-1.0, 2.0]}}')
    x = np.random.default_rng(9).uniform(-3, 2, (5, 32)).astype(np.float32)
    want = dense(x, w, largest)
    forms = ("calibration.json", "calibration.cache", "calibration.flatbuffers", "native.cache", "old.json")
    for form in forms:
        compiled = sardonyx.compile(m, precision="int8", calibration_table=tmp_path / form)
        assert compiled.quantization == (1, ()), form
        close(compiled(x=x)["y"], want)


def test_damaged_tables_are_refused(tmp_path):
    m, _, _ = calibrated(tmp_path)
    whole = (tmp_path / "calibration.flatbuffers").read_bytes()
    bad = {
        "empty": b"",
        "words": b"this is\nno table\n",
        "json": b'{"x": [1',
        "bound": b'{"x": "much"}',
        "deep": b'{"x": ' + b"[" * 100000,
        "infinite": b"x inf\n",
        "negative": b"x -1\n",
        "native": b"TRT-8601\nx: hello\n",
        "binary": bytes(range(256)),
        "zeros": bytes(64),
    } | {f"cut{k}": whole[:k] for k in range(1, len(whole) - 8, 7)}  # strings end with zeros
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(sardonyx.InvalidArgumentError, match="is not a calibration table"):
            sardonyx.compile(m, precision="int8", calibration_table=tmp_path / name)
    for k in range(0, len(whole), 3):  # offsets that lead anywhere: refused, or other numbers
        changed = bytearray(whole)
        changed[k] ^= 0xFF
        (tmp_path / "changed").write_bytes(changed)
        try:
            sardonyx.compile(m, precision="int8", calibration_table=tmp_path / "changed")
        except sardonyx.InvalidArgumentError:
            pass
    with pytest.raises(sardonyx.FileError, match="can't be read"):
        sardonyx.compile(m, precision="int8", calibration_table=tmp_path / "absent")


def test_without_a_table_the_error_says_how_to_make_one(tmp_path):
    m = make(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", ["n", 8])],
        [("y", ["n", 8])],
        {"w": np.eye(8, dtype=np.float32)},
    )
    for precision in ("int8", "fp8"):
        with pytest.raises(sardonyx.InvalidArgumentError, match=r"sardonyx quantize.*write_calibration_table"):
            sardonyx.compile(m, precision=precision)
    with pytest.raises(sardonyx.InvalidArgumentError, match="only used with precision"):
        sardonyx.compile(m, calibration_table=table(tmp_path / "t", {"x": 1.0}))


@pytest.mark.parametrize("device", ["host", "sim:gfx1100", "sim:gfx90a"])
def test_fp8_is_refused_where_nothing_multiplies_it(device, tmp_path):
    m = make(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [("x", ["n", 8])],
        [("y", ["n", 8])],
        {"w": np.eye(8, dtype=np.float32)},
    )
    with pytest.raises(sardonyx.UnsupportedError, match="gfx942, gfx950, gfx1200, gfx1201"):
        sardonyx.compile(m, device=device, precision="fp8", calibration_table=table(tmp_path / "t", {"x": 1.0}))


@pytest.mark.parametrize("chip", FP8)
def test_fp8_products_are_those_of_rounded_operands(chip, tmp_path):
    rng = np.random.default_rng(5)
    w = (rng.standard_normal((64, 48)) * np.exp(rng.standard_normal((64, 48)))).astype(np.float32)
    m = make([helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", ["n", 64])], [("y", ["n", 48])], {"w": w})
    compiled = sardonyx.compile(
        m, device=f"sim:{chip}", precision="fp8", calibration_table=table(tmp_path / "t", {"x": 3.0})
    )
    assert compiled.quantization == (1, ())
    for n in (1, 33):
        x = (rng.standard_normal((n, 64)) * np.exp(rng.standard_normal((n, 64)))).astype(np.float32)
        want = dense(x, w, 3.0, chip)
        # Sums of 64 terms in float32.
        np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize("chip", FP8)
def test_fp8_convolutions(chip, tmp_path):
    rng = np.random.default_rng(6)
    w, b = rng.standard_normal((16, 16, 3, 3)).astype(np.float32), rng.standard_normal(16).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1])
    m = make([node], [("x", ["n", 16, 5, 6])], [("y", ["n", 16, 5, 6])], {"w": w, "b": b})
    compiled = sardonyx.compile(
        m, device=f"sim:{chip}", precision="fp8", calibration_table=table(tmp_path / "t", {"x": 2.5})
    )
    x = rng.standard_normal((2, 16, 5, 6)).astype(np.float32)
    sx, sw = np.float32(2.5) / np.float32(FP8[chip][1]), steps(w, 0, chip)
    q = np.pad(rounded(x, sx, chip), ((0, 0), (0, 0), (1, 1), (1, 1)))
    columns = np.lib.stride_tricks.sliding_window_view(q, (3, 3), axis=(2, 3))
    want = np.einsum("nchwij,ocij->nohw", columns, rounded(w, sw, chip)) * float(sx) * sw.reshape(1, -1, 1, 1)
    want += b.reshape(1, -1, 1, 1)
    # Sums of 144 terms in float32.
    np.testing.assert_allclose(compiled(x=x)["y"], want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_the_command_line_says_what_stays_in_float(tmp_path):
    onnx.save(attention_like(), tmp_path / "m.onnx")
    program = Path(sardonyx.__file__).parents[2] / "bin" / "sardonyx"
    if not program.exists():
        pytest.skip("the command line is not beside this package")
    table(tmp_path / "t", {"x": 3.5, "a": 18.0})
    command = [program, "run", tmp_path / "m.onnx", "--precision", "int8"]
    done = subprocess.run([*command, "--calibration-table", tmp_path / "t"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        "3 of 7 GEMMs and convolutions run in int8" in done.stderr
        and "'depthwise' (Conv): it has groups" in done.stderr
    )
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "write_calibration_table" in done.stderr


PROVIDER = """
import sys, numpy as np, onnxruntime as ort, onnxruntime_ep_sardonyx as ep
folder = sys.argv[1]
devices = ep.register()
x = np.random.default_rng(9).uniform(-3, 2, (5, 32)).astype(np.float32)
def run(**options):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    so.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    so.add_provider_for_devices(devices[:1], options)
    return ort.InferenceSession(folder + "/m.onnx", so, enable_fallback=0).run(None, {"x": x})[0]
name = folder + "/calibration.flatbuffers"
y = run(precision="int8", calibration_table=name)
again = run(migraphx_int8_enable="1", migraphx_int8_calibration_table_name=name, migraphx_int8_use_native_calibration_table="0")
assert np.array_equal(y, again)
cached = run(precision="int8", calibration_table="calibration.json", cache_dir=folder)  # in the folder of caches, as MIGraphX looks for it
assert np.array_equal(y, cached)
assert not np.array_equal(y, run())
for options, message in (({"precision": "int8"}, "write_calibration_table"), ({"precision": "fp8", "calibration_table": name}, "gfx942")):
    try:
        run(**options)
        raise SystemExit("taken: " + str(options))
    except Exception as e:
        assert message in str(e), e
np.save(folder + "/y.npy", y)
"""


def test_the_provider_takes_a_table(tmp_path):
    pytest.importorskip("onnxruntime_ep_sardonyx")
    _, w, largest = calibrated(tmp_path)
    environment = os.environ | {"SARDONYX_DEVICE": "host"}
    done = subprocess.run([sys.executable, "-c", PROVIDER, tmp_path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    x = np.random.default_rng(9).uniform(-3, 2, (5, 32)).astype(np.float32)
    close(np.load(tmp_path / "y.npy"), dense(x, w, largest))
