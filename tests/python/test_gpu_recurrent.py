"""Recurrent layers on simulated AMD GPUs, against the host: all steps in one launch where the weights fit the registers, otherwise a launch for
each step. What NVIDIA's code consists of."""

import os
import re

import numpy as np
import onnx
import onnx.helper as oh
import pytest
import sardonyx
from cli_support import sardonyx as cli
from onnx import numpy_helper

CHIPS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
DEVICES = [f"sim:{chip}" for chip in CHIPS] + list(filter(None, [os.environ.get("SARDONYX_TEST_DEVICE")]))
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def layer(
    op, hidden, steps, batch, width=5, direction="bidirectional", peepholes=False, element=np.float32, **attributes
):
    gates, directions = GATES[op], 2 if direction == "bidirectional" else 1
    rng = np.random.default_rng(hidden + steps)
    floats, scale = oh.np_dtype_to_tensor_dtype(np.dtype(element)), hidden**-0.5
    shapes = {
        "w": (directions, gates * hidden, width),
        "r": (directions, gates * hidden, hidden),
        "b": (directions, 2 * gates * hidden),
    }
    if peepholes:
        shapes["p"] = (directions, 3 * hidden)
    stored = [numpy_helper.from_array(rng.uniform(-scale, scale, s).astype(element), n) for n, s in shapes.items()]
    states = ["h0", "c0"] if op == "LSTM" else ["h0"]
    outputs = ["y", "h", "c"] if op == "LSTM" else ["y", "h"]
    names = ["x", "w", "r", "b", "lengths", *states, *(["p"] if peepholes else [])]
    node = oh.make_node(op, names, outputs, hidden_size=hidden, direction=direction, **attributes)
    inputs = [
        oh.make_tensor_value_info("x", floats, [steps, "n", width]),
        oh.make_tensor_value_info("lengths", onnx.TensorProto.INT32, ["n"]),
        *(oh.make_tensor_value_info(s, floats, [directions, "n", hidden]) for s in states),
    ]
    graph = oh.make_graph([node], "g", inputs, [oh.make_tensor_value_info(o, floats, None) for o in outputs], stored)
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    feeds = {
        "x": rng.standard_normal((steps, batch, width)).astype(element),
        "lengths": np.array([steps, *rng.integers(0, steps + 1, batch - 1)], np.int32),
        **{s: rng.uniform(-1, 1, (directions, batch, hidden)).astype(element) for s in states},
    }
    return model, feeds


def check(model, feeds, chip, rtol=1e-4, atol=2e-5):
    want = sardonyx.compile(model)(**feeds)
    got = sardonyx.compile(model, device=f"sim:{chip}")(**feeds)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=rtol, atol=atol, err_msg=name)  # sums in another order


# Both sides of what one thread, four lanes and a wave have; more sequences than lanes of a unit; the last of each kind
# does not fit the registers.
SIZES = [
    ("RNN", {}, [(1, 3), (100, 5), (220, 2), (257, 2), (600, 1)]),
    ("GRU", {}, [(33, 2), (64, 6), (128, 3), (140, 2), (200, 1)]),
    ("GRU", {"linear_before_reset": 1}, [(31, 20), (100, 2), (128, 3), (129, 1)]),
    ("LSTM", {}, [(17, 3), (64, 5), (96, 3), (104, 2), (128, 2), (130, 2)]),
    ("LSTM", {"input_forget": 1}, [(40, 2)]),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("op, attributes, hidden, batch", [(op, a, *size) for op, a, sizes in SIZES for size in sizes])
def test_sizes(chip, op, attributes, hidden, batch):
    check(*layer(op, hidden, 4, batch, **attributes), chip)


# A launch for each step, with code for one sequence, up to four and up to eight, and vectors of four weights and fewer.
# Waves divide a unit's sums where the units are few; some have none, and some chunks of a row are not full.
LAUNCHES = [
    ("RNN", {}, [(601, 3), (264, 9), (700, 8)]),
    ("GRU", {}, [(200, 8), (150, 3), (202, 9)]),
    ("GRU", {"linear_before_reset": 1}, [(203, 1), (256, 9)]),
    ("LSTM", {}, [(130, 1), (132, 3), (133, 8), (256, 4)]),
    ("LSTM", {"input_forget": 1, "peepholes": True, "clip": 0.4}, [(136, 9)]),
]


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(
    "op, attributes, hidden, batch", [(op, a, *size) for op, a, sizes in LAUNCHES for size in sizes]
)
def test_a_launch_for_each_step(chip, op, attributes, hidden, batch):
    check(*layer(op, hidden, 3, batch, **attributes), chip)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("op, hidden, batch", [("RNN", 33, 1), ("GRU", 20, 9), ("LSTM", 70, 3)])
def test_float64_has_a_launch_for_each_step(chip, op, hidden, batch):
    """Its sums are exact to 2**-52 or so of 70 terms."""
    check(*layer(op, hidden, 5, batch, element=np.float64), chip, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    "op, hidden, batch, attributes", [("LSTM", 520, 1, {}), ("GRU", 524, 6, {}), ("RNN", 2050, 2, {})]
)
def test_launches_read_weights_of_16_bits(chip, op, hidden, batch, attributes, tmp_path):
    """The model's precision, where the state stays in float32: errors are those of the weights."""
    model, feeds = layer(op, hidden, 3, batch, direction="forward", **attributes)
    want = sardonyx.compile(model)(**feeds)
    got = sardonyx.compile(model, device=f"sim:{chip}", precision="fp16")(**feeds)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, atol=2e-3, err_msg=name)
    text = kernels_of(model, tmp_path, f"sim:{chip}", "fp16")
    assert "RecurrentStep<f16," in text and "RecurrentStep<f32," not in text


def test_weights_that_are_an_input():
    """They have any values, and are in memory only when the launches before have ended."""
    model, feeds = layer("LSTM", 132, 4, 2)
    r = next(w for w in model.graph.initializer if w.name == "r")
    model.graph.initializer.remove(r)
    model.graph.input.append(oh.make_tensor_value_info("r", onnx.TensorProto.FLOAT, r.dims))
    check(model, feeds | {"r": numpy_helper.to_array(r)}, "gfx942")


@pytest.mark.parametrize("op, hidden", [("GRU", 180), ("LSTM", 144)])
def test_weights_of_16_bits(op, hidden):
    """Where they fit neither registers nor LDS in float32. The state stays in float32: errors are those of the weights."""
    model, feeds = layer(op, hidden, 6, 2)
    want = sardonyx.compile(model)(**feeds)
    got = sardonyx.compile(model, device="sim:gfx950", precision="fp16")(**feeds)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, atol=2e-3, err_msg=name)


ACTIVATIONS = [
    (
        "GRU",
        {"activations": ["HardSigmoid", "ScaledTanh"], "activation_alpha": [0.3, 1.1], "activation_beta": [0.4, 0.7]},
    ),
    ("LSTM", {"activations": ["Softsign", "LeakyRelu", "Elu"], "activation_alpha": [0.1, 0.9]}),
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
]


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("op, attributes", ACTIVATIONS)
def test_activations_and_clip(chip, direction, op, attributes):
    check(*layer(op, 24, 5, 3, direction=direction, clip=0.8, **attributes), chip)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_peepholes_and_layout(chip):
    check(*layer("LSTM", 48, 5, 3, peepholes=True), chip)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1100"])
def test_a_layer_is_one_launch(chip, tmp_path):
    """Whatever its steps; a launch for each took 4 to 5 us, most of it the way to the GPU."""
    model, _ = layer("GRU", 128, 100, 1)
    onnx.save(model, tmp_path / "m.onnx")
    text = cli("inspect", tmp_path / "m.onnx", "--device", f"sim:{chip}", "--kernels", "--source")
    assert "routine_recurrent_scan<" in text and "routine_recurrent<" not in text


def ptx_of(model, precision, folder):
    onnx.save(model, folder / "m.onnx")
    options = ["--arch", "sm_90a", "-o", folder / "m.sdx", "--precision", precision, "--cache-dir", ""]
    cli("compile", folder / "m.onnx", *options, "--quiet")
    kernels = (folder / "m.sdx").read_bytes().split(b".entry ")
    return [p for p in kernels if b"ex2.approx" in p and b"mma.sync" not in p]  # without those for many sequences


CLUSTERS = [
    ("GRU", 64, "fp32", 1),
    ("GRU", 128, "fp32", 2),
    ("LSTM", 128, "fp32", 2),
    ("LSTM", 256, "fp32", 8),
    ("GRU", 384, "fp32", 8),
    ("LSTM", 512, "fp16", 8),
    ("LSTM", 650, "fp16", 11),
]


@pytest.mark.parametrize("op, hidden, precision, cluster", CLUSTERS)
def test_workgroups_of_a_cluster_send_the_state_with_its_signal(op, hidden, precision, cluster, tmp_path):
    """A barrier of the cluster in each step would wait for the stores of results."""
    attributes = {"linear_before_reset": 1} if op == "GRU" else {}
    # One of the two directions: both call the same functions.
    (code,) = ptx_of(layer(op, hidden, 50, 1, direction="forward", **attributes)[0], precision, tmp_path)
    assert b".local" not in code
    readers = -(-hidden // (256 // max(s for s in (1, 2, 4, 8, 16) if 256 // s * cluster >= hidden)))
    assert code.count(b"st.async") == (readers if cluster > 1 else 0)
    assert code.count(b"barrier.cluster.wait") == (cluster > 1)
    assert (b".reqnctapercluster %d" % cluster in code) == (cluster > 1)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_loads_weights_before_it_waits_for_the_one_before(precision, tmp_path):
    """As many as registers hold, in code for one sequence, up to four and up to eight."""
    kernels = ptx_of(layer("LSTM", 1024, 50, 1, direction="forward")[0], precision, tmp_path)
    assert len(kernels) == 3
    early = [code[: code.index(b"griddepcontrol.wait")].count(b"ld.global.v4") for code in kernels]
    assert sorted(early) == [8, 8, 16]  # the last: of one sequence, in 16 bits all of them
    assert all(b".local" not in code for code in kernels)


# Tiles of 16 units and sequences, some of them not full; a wave with several tiles, and waves without one; more
# sequences than the multiprocessors would take one by one.
MANY = [
    ("RNN", 20, {}),
    ("RNN", 256, {}),  # the most weights and states in shared memory
    ("GRU", 40, {"linear_before_reset": 1}),
    ("LSTM", 17, {}),
    ("LSTM", 64, {"input_forget": 1}),
]


@pytest.mark.parametrize("chip, sequences", [("gfx90a", 250), ("gfx942", 330), ("gfx1100", 110), ("gfx1201", 75)])
@pytest.mark.parametrize("op, hidden, attributes", MANY)
def test_many_sequences_are_multiplied_by_matrix_instructions(chip, sequences, op, hidden, attributes):
    """With 16 bits. Weights and the state that they are multiplied with are float16, so sums of up to 256 terms of less than 1 are
    2**-11 times 8 or so wrong, which later steps don't add to."""
    model, feeds = layer(op, hidden, 3, sequences, peepholes=op == "LSTM", **attributes)
    want = sardonyx.compile(model)(**feeds)
    got = sardonyx.compile(model, device=f"sim:{chip}", precision="fp16")(**feeds)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, atol=3e-3, err_msg=name)


# More units than a workgroup's 64, and sequences than its 32 or (of 1024 and more in both directions) 128; a last step of K that is not
# whole.
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "op, hidden, sequences, attributes",
    [
        ("RNN", 520, 140, {}),
        ("GRU", 328, 133, {"linear_before_reset": 1}),
        ("LSTM", 136, 300, {"direction": "reverse"}),
        ("LSTM", 384, 130, {"input_forget": 1}),
        ("LSTM", 136, 600, {}),
    ],
)
def test_steps_of_many_sequences_are_multiplied_by_matrix_instructions(device, op, hidden, sequences, attributes):
    """With 16 bits, and weights that no workgroup can keep: sums of up to 520 terms, as above."""
    model, feeds = layer(op, hidden, 3, sequences, peepholes=op == "LSTM", **attributes)
    want = sardonyx.compile(model)(**feeds)
    got = sardonyx.compile(model, device=device, precision="fp16")(**feeds)
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, atol=3e-3, err_msg=name)


@pytest.mark.parametrize(
    "op, hidden, attributes", [("RNN", 256, {}), ("GRU", 128, {"linear_before_reset": 1}), ("LSTM", 128, {})]
)
def test_shared_memory_of_many_sequences(op, hidden, attributes, tmp_path):
    """The largest layers that are multiplied so: CUDA 12.8's assembler takes 48 KB."""
    onnx.save(layer(op, hidden, 9, 1, direction="forward", **attributes)[0], tmp_path / "m.onnx")
    options = ["--arch", "sm_90a", "-o", tmp_path / "m.sdx", "--precision", "fp16", "--cache-dir", "", "--quiet"]
    cli("compile", tmp_path / "m.onnx", *options)
    texts = (tmp_path / "m.sdx").read_bytes().split(b".version ")[1:]
    tiles = [t for t in texts if b"tile_weights" in t]
    assert tiles
    for text in tiles:
        assert sum(int(n) for n in re.findall(rb"\.shared [^;]*\[(\d+)\];", text)) <= 48 << 10


def kernels_of(model, folder, device, precision):
    onnx.save(model, folder / "m.onnx")
    options = ["--device", device, "--precision", precision, "--kernels", "--source"]
    return cli("inspect", folder / "m.onnx", *options)


def test_where_tiles_are_used(tmp_path):
    """Not in float32, nor where the state may be large, sums of r * h are needed or the weights don't fit."""
    both = kernels_of(layer("LSTM", 64, 9, 1)[0], tmp_path, "sim:gfx942", "fp16")
    assert "routine_recurrent_tiles<" in both and "routine_recurrent_scan<" in both  # few sequences may come
    assert "routine_recurrent_tiles<" not in kernels_of(layer("LSTM", 64, 9, 1)[0], tmp_path, "sim:gfx942", "fp32")
    steps = kernels_of(layer("LSTM", 384, 9, 1)[0], tmp_path, "sim:gfx942", "fp16")
    assert all(f"routine_recurrent_step_tiles<RecurrentStepTiles<384, 4, {n}>, 2>" in steps for n in (2, 8))
    for layer_of_steps in (layer("LSTM", 384, 9, 1, activations=["Relu"] * 6), layer("LSTM", 380, 9, 1)):
        assert "recurrent_step_tiles<" not in kernels_of(layer_of_steps[0], tmp_path, "sim:gfx942", "fp16")
    for op, hidden, attributes in [
        ("RNN", 64, {"activations": ["Relu", "Relu"]}),
        ("GRU", 64, {}),
        ("LSTM", 256, {}),
    ]:
        text = kernels_of(layer(op, hidden, 9, 1, **attributes)[0], tmp_path, "sim:gfx942", "fp16")
        assert "routine_recurrent_tiles<" not in text, (op, hidden)
