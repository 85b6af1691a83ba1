"""The test cases of ONNX 1.12, as Debian's libonnx-testdata has them: models of operator sets up to 17 that the onnx package's
own suite (test_onnx_backend.py) has since rewritten for newer ones.

NOT_RUN is the one table of cases that do not run, each with its reason.
"""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from onnx import numpy_helper

DATA = Path("/usr/share/libonnx-testdata/data")
SUITES = ("node", "simple", "pytorch-operator", "pytorch-converted")
CASES = [f"{suite}/{path.parent.name}" for suite in SUITES for path in sorted((DATA / suite).glob("*/model.onnx"))]

NOT_RUN = [
    (r"/test_(string|strnorm)|_STRING", "strings are out of scope"),
    (r"/test_cast_FLOAT_to_BFLOAT16", "its data was cut off; casts round to nearest (as ONNX says since 1.13)"),
    (r"/test_castlike.*BFLOAT16", "its data are vectors of 12 elements, its model wants [3, 4]"),
    (r"/test_(sequence|split_to_sequence|identity_sequence|loop13_seq|if_seq)", "sequences are out of scope"),
    (r"/test_(optional|identity_opt|if_opt|loop16_seq_none)", "optionals are out of scope"),
    (r"/test_(adagrad|adam|momentum|nesterov_momentum|gradient_of)", "training is out of scope"),
    (r"/test_bernoulli|/test_training_dropout(_default)?(_mask)?$", "they expect numpy's random numbers; test_random_operators.py has ours"),
]  # fmt: skip


def reason(case):
    return next((why for pattern, why in NOT_RUN if re.search(pattern, case)), None)


def read(path, value):
    """A tensor of a .pb file, which may be of a type that numpy does not have."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    array = numpy_helper.to_array(tensor)
    if value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 and array.dtype == np.uint16:
        return array.view(ml_dtypes.bfloat16)  # these files call it uint16
    return array


@pytest.mark.skipif(not CASES, reason=f"{DATA} is not there: ./dev setup installs Debian's libonnx-testdata")
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.skip(reason=reason(c))) if reason(c) else c for c in CASES]
)
def test_case(case):
    folder = DATA / case
    model = onnx.load(folder / "model.onnx")
    compiled = sardonyx.compile(folder / "model.onnx")
    weights = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    for data in sorted(folder.glob("test_data_set_*")):
        feed = {}
        for k, i in enumerate(inputs):
            path = data / f"input_{k}.pb"
            if path.exists():
                feed[i.name] = read(path, i)
        got = compiled.run(feed)
        for k, o in enumerate(model.graph.output):
            want, y = read(data / f"output_{k}.pb", o), got[o.name]
            assert y.shape == want.shape and y.dtype == want.dtype
            if want.dtype.kind in "biu":
                np.testing.assert_array_equal(y, want)
            else:  # the suite's own tolerances
                np.testing.assert_allclose(y.astype(np.float64), want.astype(np.float64), rtol=1e-3, atol=1e-7)


def test_every_reason_still_applies():
    for pattern, _ in NOT_RUN:
        assert any(re.search(pattern, case) for case in CASES) or not CASES, pattern
