"""sardonyx run: inputs, outputs, and errors for those that do not fit."""

import numpy as np
import onnx
import pytest
from cli_support import INVALID_ARGUMENT, INVALID_MODEL, IO, UNSUPPORTED, layer, sardonyx, save
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def model(tmp_path):
    return layer(tmp_path / "m.onnx")


def expected(x, w, b):
    y = np.maximum(x @ w + b, 0)
    return y, y.sum(1)


def identity(path, dtype, shape=("n", "k")):
    return save(
        path, [helper.make_node("Identity", ["x"], ["y"])], [("x", dtype, list(shape))], [("y", dtype, list(shape))]
    )


def test_npy_in_npz_out(model, tmp_path):
    path, w, b = model
    x = np.random.default_rng(1).standard_normal((5, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    out = sardonyx("run", path, "--input", f"x={tmp_path}/x.npy", "--output", tmp_path / "o.npz")
    assert "float32 [5, 3]" in out
    saved = np.load(tmp_path / "o.npz")
    assert sorted(saved) == ["total", "y"]
    y, total = expected(x, w, b)
    np.testing.assert_allclose(saved["y"], y, rtol=1e-5, atol=1e-6)  # four terms a sum
    np.testing.assert_allclose(saved["total"], total, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("writer", [np.savez, np.savez_compressed])
def test_npz_in(model, tmp_path, writer):
    path, w, b = model
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    writer(tmp_path / "in.npz", x=x, unrelated=np.arange(5))
    sardonyx("run", path, "-i", tmp_path / "in.npz", "-o", f"y={tmp_path}/y.npy", "-o", f"total={tmp_path}/t.pb")
    y, total = expected(x, w, b)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), y, rtol=1e-5, atol=1e-6)
    proto = onnx.load_tensor(tmp_path / "t.pb")
    assert proto.name == "total"
    np.testing.assert_allclose(numpy_helper.to_array(proto), total, rtol=1e-5, atol=1e-6)


def test_folder_of_test_data(model, tmp_path):
    path, w, b = model
    x = np.ones((2, 4), np.float32)
    (tmp_path / "set").mkdir()
    onnx.save_tensor(numpy_helper.from_array(x, "other name"), tmp_path / "set" / "input_0.pb")
    sardonyx("run", path, "-i", tmp_path / "set", "-o", tmp_path / "o.npz")
    np.testing.assert_allclose(np.load(tmp_path / "o.npz")["y"], expected(x, w, b)[0], rtol=1e-5, atol=1e-6)


def test_generated_inputs_repeat_and_can_be_saved(model, tmp_path):
    path, _, _ = model

    def run(name, *options):
        sardonyx("run", path, "--dim", "batch=6", *options, "--save-inputs", tmp_path / f"{name}.npz")
        return np.load(tmp_path / f"{name}.npz")["x"]

    first = run("a")
    assert first.shape == (6, 4) and np.all(np.abs(first) <= 1) and len(np.unique(first)) == 24
    np.testing.assert_array_equal(first, run("b"))
    assert not np.array_equal(first, run("c", "--seed", 7))
    assert np.all(run("d", "--fill", "x=2.5") == 2.5)
    low = run("e", "--range", "x=10:11")
    assert np.all((low >= 10) & (low <= 11))


def test_integers_are_generated_within_their_range(tmp_path):
    path = identity(tmp_path / "i.onnx", TensorProto.INT64)
    sardonyx("run", path, "--dim", "n=50", "--dim", "k=4", "--range", "x=-3:5", "-o", f"y={tmp_path}/y.npy")
    assert set(np.unique(np.load(tmp_path / "y.npy"))) == set(range(-3, 6))
    sardonyx("run", path, "--dim", "n=50", "--dim", "k=4", "-o", f"y={tmp_path}/y.npy")
    assert set(np.unique(np.load(tmp_path / "y.npy"))) == {0, 1}


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"],
)
def test_every_type_of_numpy(tmp_path, dtype):
    path = identity(tmp_path / "i.onnx", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, (3, 5)).astype(dtype)
    for name, array in (("c", x), ("fortran", np.asfortranarray(x)), ("swapped", x.astype(x.dtype.newbyteorder(">")))):
        np.save(tmp_path / f"{name}.npy", array)
        sardonyx("run", path, "-i", tmp_path / f"{name}.npy", "-o", tmp_path / "y.npy")
        y = np.load(tmp_path / "y.npy")
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks(tmp_path, dtype):
    import ml_dtypes

    t = np.dtype(getattr(ml_dtypes, dtype))
    path = identity(tmp_path / "i.onnx", helper.np_dtype_to_tensor_dtype(t))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(t)
    np.save(tmp_path / "x.npy", x)
    sardonyx("run", path, "-i", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert np.load(tmp_path / "y.npy").tobytes() == x.tobytes()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").view(t), x)


def test_errors_name_the_input_and_the_remedy(model, tmp_path):
    path, _, _ = model

    def fails(array, *options, name="x"):
        np.save(tmp_path / "x.npy", array)
        return sardonyx("run", path, "-i", f"{name}={tmp_path}/x.npy", *options, code=INVALID_ARGUMENT)

    good = np.zeros((2, 4), np.float32)
    assert "'x' has dtype float64; the model expects float32" in fails(good.astype(np.float64))
    assert "'x' has rank 1; the model expects 2: [batch, 4]" in fails(np.zeros(4, np.float32))
    assert "dim 1 is 5, but must be 4" in fails(np.zeros((2, 5), np.float32))
    assert "no input 'z'; its inputs are: x" in fails(good, name="z")
    assert "no input has a dim of this name; the model's symbolic dims are: batch" in fails(good, "--dim", "length=4")
    assert "has no output 'z'; its outputs are: y, total" in fails(good, "-o", "z=z.npy")
    assert "which output?" in fails(good, "-o", "z.npy")
    assert ".npy, .npz or .pb" in fails(good, "-o", "y=z.txt")
    assert "'x' is given twice" in fails(good, "--fill", "x=1")
    assert "--dim batch=N" in sardonyx("run", path, code=INVALID_ARGUMENT)
    assert "batch=4" in sardonyx("run", path, "--dim", "batch", code=INVALID_ARGUMENT)
    assert "batch=4" in sardonyx("run", path, "--dim", "batch=-1", code=INVALID_ARGUMENT)
    assert "overflow" in sardonyx("run", path, "--dim", f"batch={2**62}", code=INVALID_ARGUMENT)
    assert "'abc' is not a number" in sardonyx(
        "run", path, "--dim", "batch=1", "--fill", "x=abc", code=INVALID_ARGUMENT
    )
    assert "missing.npy" in sardonyx("run", path, "-i", "missing.npy", code=IO)
    assert "no.onnx" in sardonyx("run", tmp_path / "no.onnx", code=IO)
    assert "can't be written" in sardonyx("run", path, "--dim", "batch=1", "-o", tmp_path / "no" / "o.npz", code=IO)


def test_bad_models(tmp_path):
    (tmp_path / "noise.onnx").write_bytes(bytes(range(256)) * 4)
    assert "noise.onnx" in sardonyx("run", tmp_path / "noise.onnx", code=INVALID_MODEL)
    path = save(
        tmp_path / "odd.onnx",
        [helper.make_node("StringNormalizer", ["x"], ["y"], name="odd")],
        [("x", TensorProto.FLOAT, [1])],
        [("y", TensorProto.FLOAT, [1])],
    )
    assert "StringNormalizer" in sardonyx("run", path, code=UNSUPPORTED)


def header(text, version=1):
    body = text.encode()
    size = len(body).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + body


HOSTILE = {
    "empty": b"",
    "magic only": b"\x93NUMPY\x01\x00",
    "not numpy": b"PK\x03\x04" + b"x" * 100,
    "no dict": header("[1, 2]"),
    "open dict": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4)"),
    "key missing": header("{'descr': '<f4', 'shape': (2, 4), }"),
    "key twice": header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }"),
    "unknown key": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), 'x': 1}"),
    "code": header("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os').getpid(),), }"),
    "negative dim": header("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 4), }"),
    "dim overflows": header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"),
    "product overflows": header("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 2), }"),
    "rank": header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 200 + "), }"),
    "truncated": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }") + bytes(31),
    "header cut": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }")[:40],
    "huge header": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 64,
    "claims much": header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 4), }") + bytes(64),
}
REFUSED = {
    "pickle": header("{'descr': '|O', 'fortran_order': False, 'shape': (2, 4), }") + b"cos\nsystem\n",
    "records": header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 4), }") + bytes(32),
    "text": header("{'descr': '<U8', 'fortran_order': False, 'shape': (2, 4), }") + bytes(256),
    "version": header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }", 9) + bytes(32),
}


@pytest.mark.parametrize("case", [*HOSTILE, *REFUSED])
def test_hostile_npy(model, tmp_path, case):
    (tmp_path / "x.npy").write_bytes((HOSTILE | REFUSED)[case])
    code = UNSUPPORTED if case in REFUSED else INVALID_ARGUMENT
    assert "x.npy" in sardonyx("run", model[0], "-i", tmp_path / "x.npy", code=code)


def test_hostile_npz(model, tmp_path):
    import zipfile

    target = tmp_path / "x.npz"
    target.write_bytes(b"PK\x03\x04 is no archive")
    assert "x.npz" in sardonyx("run", model[0], "-i", target, code=INVALID_ARGUMENT)

    np.savez(target, x=np.arange(8, dtype=np.float32).reshape(2, 4))
    damaged = bytearray(target.read_bytes())
    at = damaged.index(np.float32(5).tobytes())
    damaged[at] ^= 255  # the sum no longer fits
    target.write_bytes(damaged)
    assert "damaged" in sardonyx("run", model[0], "-i", target, code=INVALID_ARGUMENT)

    # 16 TiB announced by an archive of some hundred bytes.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(
            "x.npy", header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 4), }") + bytes(64)
        )
    assert "truncated" in sardonyx("run", model[0], "-i", target, code=INVALID_ARGUMENT)

    np.savez(target, other=np.zeros(3))
    assert "no array in it has the name of an input" in sardonyx("run", model[0], "-i", target, code=INVALID_ARGUMENT)


def test_hostile_pb(model, tmp_path):
    (tmp_path / "x.pb").write_bytes(b"\xff" * 40)
    assert "x.pb" in sardonyx("run", model[0], "-i", tmp_path / "x.pb", code=INVALID_MODEL)


def test_model_that_depends_on_the_value_of_an_input(tmp_path):
    """It is compiled when the inputs are known, after it was loaded."""
    path = save(
        tmp_path / "m.onnx",
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        [("x", TensorProto.FLOAT, [2, 3]), ("axis", TensorProto.INT32, [])],
        [("y", TensorProto.FLOAT, [2, 3])],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "in.npz", x=x, axis=np.int32(1))
    sardonyx("run", path, "-i", tmp_path / "in.npz", "-o", f"y={tmp_path}/y.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.cumsum(x, 1))
