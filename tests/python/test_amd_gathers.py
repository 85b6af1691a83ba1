"""Loops that load single elements on AMD's GPUs, as those that resize images do: how many elements a thread computes
(codegen/gpu_gathers.cpp), and indices that come from floats."""

import re

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import helper, numpy_helper
from test_amd_main_loops import instructions

CHIPS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]


def resized(mode, shape, scales, dtype=np.float16, **attributes):
    t = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, **attributes)
    x, y = helper.make_tensor_value_info("x", t, shape), helper.make_tensor_value_info("y", t, None)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(np.array(scales, np.float32), "scales")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_values(mode, chip):
    """Larger and smaller images, in packs of any length; channels last too, whose packs are contiguous."""
    cases = [
        ([1, 3, 20, 24], [1, 1, 2, 2], {}),
        ([2, 2, 31, 40], [1, 1, 1.5, 0.4], {}),
        ([1, 2, 16, 64], [1, 1, 3, 0.5], {"coordinate_transformation_mode": "asymmetric"}),
        ([1, 2, 16, 20], [1, 1, 2, 4], {"coordinate_transformation_mode": "align_corners"}),
        ([1, 12, 10, 16], [1, 2, 2, 1], {}),
    ]
    for number, (shape, scales, attributes) in enumerate(cases):
        model = resized(mode, shape, scales, np.float32, **attributes)
        x = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
        want = sardonyx.compile(model).run({"x": x})["y"]
        got = sardonyx.compile(model, device=f"sim:{chip}").run({"x": x})["y"]
        # Sums of 16 products of float32, in any order.
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6, err_msg=str(cases[number]))


def widest_store(model, chip, folder):
    onnx.save(model, folder / "m.onnx")
    words = {"dword": 1, "b32": 1, "short": 0.5, "b16": 0.5, "dwordx2": 2, "b64": 2, "dwordx4": 4, "b128": 4}
    stores = [
        re.match(r"global_store_(\w+?)(_d16_hi)?\s", text)
        for _, text, _ in instructions(folder / "m.onnx", chip, folder)
    ]
    return 4 * max(words[s[1]] for s in stores if s)


def test_lanes_of_gathers_are_close(tmp_path):
    """CDNA's L1 serves lanes one after another that are 8 bytes apart: 16.1 us on gfx942 with packs of 16 bytes, 5 to 8 with shorter ones."""
    larger = resized("linear", [4, 64, 64, 64], [1, 1, 2, 2])
    assert widest_store(larger, "gfx942", tmp_path) <= 8
    assert widest_store(larger, "gfx1100", tmp_path) == 16
    # Packs that are contiguous stay long.
    last = resized("linear", [4, 64, 64, 64], [1, 2, 2, 1])
    assert widest_store(last, "gfx942", tmp_path) == 16


@pytest.mark.parametrize("chip", ["gfx942", "gfx1201"])
def test_indices_from_floats_have_32_bits(chip, tmp_path):
    """What they are computed from bounds them: without that, conversions and comparisons of 64 bits are a third of the instructions."""
    onnx.save(resized("linear", [1, 8, 64, 64], [1, 1, 2, 2]), tmp_path / "m.onnx")
    code = [text for _, text, _ in instructions(tmp_path / "m.onnx", chip, tmp_path)]
    assert any(i.startswith("v_cvt_i32_f32") for i in code)
    assert not any(re.match(r"v_cmp\w*_[iu]64", i) for i in code)
