"""Divided mixtures of experts: the devices' results add up to that of the undivided layer."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import TensorProto, helper, numpy_helper
from sardonyx.errors import InvalidModelError
from sardonyx.llm.shard_experts import divide_experts
from sardonyx.llm.shard_graph import Divider
from sardonyx.llm.shard_weights import WeightFiles, WeightWriter

EXPERTS, HIDDEN, TOKENS = 3, 32, 5
MS = "com.microsoft"
SWIGLU = {"activation_type": "swiglu", "activation_alpha": 1.7, "activation_beta": 1.0}


def layer(inner: int, bits: int = 0, zeros: bool = False, gate: bool = False, bias: bool = True, **attributes: Any):
    """A model of one node whose weights are random."""
    rng = np.random.default_rng(1)
    fusion, block = attributes.get("swiglu_fusion", 0), attributes.get("block_size", 0)
    weights: dict[str, np.ndarray] = {}

    def add(name: str, array: np.ndarray) -> str:
        weights[name] = array
        return name

    names, zero_names = [], []
    shapes = {1: (inner * (2 if fusion else 1), HIDDEN), 2: (HIDDEN, inner), 3: (inner, HIDDEN)}
    for number, (n, k) in shapes.items():
        if number == 3 and not gate:
            continue
        if bits:
            blocks = -(-k // block) if block else 1
            names.append(add(f"w{number}", rng.integers(0, 256, (EXPERTS, n, k * bits // 8), np.uint8)))
            scale = rng.uniform(0.5, 1.5, (EXPERTS, n, blocks) if block else (EXPERTS, n)) / 2**bits
            names.append(add(f"s{number}", scale.astype(np.float32)))
            if zeros:
                shape = (EXPERTS, n, -(-blocks * bits // 8)) if block else (EXPERTS, -(-n * bits // 8))
                zero_names.append(add(f"z{number}", rng.integers(0, 256, shape, np.uint8)))
        else:
            names.append(add(f"w{number}", rng.standard_normal((EXPERTS, n, k)).astype(np.float32) / k**0.5))
        names.append(add(f"b{number}", rng.standard_normal((EXPERTS, n)).astype(np.float32)) if bias else "")
    if zero_names:
        names += [""] * (9 - len(names)) + zero_names
    if bits:
        attributes["expert_weight_bits"] = bits
    node = helper.make_node(
        "QMoE" if bits else "MoE", ["x", "router", *names], ["y"], "experts", domain=MS, k=2, **attributes
    )
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "layer",
        [info("x", TensorProto.FLOAT, [TOKENS, HIDDEN]), info("router", TensorProto.FLOAT, [TOKENS, EXPERTS])],
        [info("y", TensorProto.FLOAT, [TOKENS, HIDDEN])],
        [numpy_helper.from_array(a, name) for name, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10
    )


def divided(model: onnx.ModelProto, folder: Path, rank: int, size: int) -> tuple[bool, onnx.ModelProto]:
    """A device's part, whose output is its part of the sum."""
    part = onnx.ModelProto()
    part.CopyFrom(model)
    folder.mkdir(exist_ok=True)
    with open(folder / f"{rank}.data", "wb") as file:
        d = Divider(part, WeightFiles(".", part.graph.initializer), WeightWriter(f"{rank}.data", file), rank, size)
        done = divide_experts(d, part.graph.node[0])
    part.graph.initializer.extend(d.added)
    used = set(part.graph.node[0].input)
    kept = [i for i in part.graph.initializer if i.name in used]
    del part.graph.initializer[:]
    part.graph.initializer.extend(kept)
    onnx.save(part, folder / f"{rank}.onnx")
    return done, part


CASES: dict[str, dict[str, Any]] = {
    "relu": {"inner": 48, "activation_type": "relu"},
    "relu, no bias": {"inner": 48, "activation_type": "relu", "bias": False},
    "a gate of its own": {"inner": 48, "activation_type": "silu", "gate": True},
    "interleaved gates": {"inner": 48, **SWIGLU, "swiglu_fusion": 1},
    "gates before the rest": {"inner": 48, **SWIGLU, "swiglu_fusion": 2},
    "int4 with a scale a row": {"inner": 48, "bits": 4, "activation_type": "relu", "zeros": True},
    "int4 in blocks": {"inner": 96, "bits": 4, "block_size": 32, **SWIGLU, "swiglu_fusion": 1, "zeros": True},
    "int4 in blocks, symmetric": {"inner": 64, "bits": 4, "block_size": 16, **SWIGLU, "swiglu_fusion": 2},
    "int8 in blocks, a gate of its own": {
        "inner": 64, "bits": 8, "block_size": 16, "activation_type": "silu", "gate": True, "zeros": True,
    },
    "int2": {"inner": 96, "bits": 2, "block_size": 16, "activation_type": "relu", "zeros": True},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.slow(part=4)
def test_parts_add_up(tmp_path: Path, name: str, size: int) -> None:
    model = layer(**CASES[name])
    onnx.save(model, tmp_path / "whole.onnx")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((TOKENS, HIDDEN)).astype(np.float32)
    router = rng.standard_normal((TOKENS, EXPERTS)).astype(np.float32)
    (whole,) = sardonyx.compile(tmp_path / "whole.onnx")(x=x, router=router).values()
    total = np.zeros_like(whole)
    elements = []
    for rank in range(size):
        done, part = divided(model, tmp_path / "parts", rank, size)
        assert done
        elements.append(sum(int(np.prod(i.dims)) for i in part.graph.initializer))
        (y,) = sardonyx.compile(tmp_path / "parts" / f"{rank}.onnx")(x=x, router=router).values()
        total += y
    # Sums of at most 96 products and as many biases in another order: a few units of float32 of the largest.
    np.testing.assert_allclose(total, whole, rtol=0, atol=1e-5 * np.abs(whole).max())
    weights = sum(int(np.prod(i.dims)) for i in model.graph.initializer)
    assert max(elements) < weights * (0.75 if size == 2 else 0.67)  # an odd number of blocks is not divided evenly


def test_what_stays_whole(tmp_path: Path) -> None:
    for model in (
        layer(8, bits=4, block_size=16, activation_type="relu"),  # narrower than two blocks
        layer(48, bits=4, activation_type="relu", quant_type="fp4"),  # which the library refuses
    ):
        done, part = divided(model, tmp_path / "parts", 1, 2)
        assert not done and part.graph.node[0] == model.graph.node[0]


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    for change, why in (("w1", "outputs instead of"), ("s2", "elements instead of"), ("w2", "dims instead of")):
        model = layer(64, bits=4, block_size=16, activation_type="relu")
        for i in model.graph.initializer:
            if i.name == change:
                array = numpy_helper.to_array(i)
                i.CopyFrom(numpy_helper.from_array(array[0] if change == "w2" else array[:, :-1], change))
        with pytest.raises(InvalidModelError, match=why):
            divided(model, tmp_path / "parts", 0, 2)
