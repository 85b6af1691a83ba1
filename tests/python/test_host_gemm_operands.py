"""GEMMs of the host whose operands other loops transpose."""

import numpy as np
import onnx.parser
import pytest
import sardonyx


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


EXPERTS = """
  g (float[n, {inputs}] x) => (float[n, {experts}, {inputs}] y) {{
    a = Einsum <equation = "bc,ecr->ber"> (x, v)
    b = Tanh (a)
    c = Einsum <equation = "ber,eqr->beq"> (b, w)
    d = Tanh (c)
    y = Einsum <equation = "beq,ecq->bec"> (d, u)
  }}"""


@pytest.mark.parametrize("experts, inputs, rank", [(4, 203, 64), (3, 40, 24), (1, 33, 16)])
def test_experts_of_low_rank(experts, inputs, rank):
    """The first GEMM writes its rows with all experts side by side; the second reads them expert by expert, so a copy lies in between."""
    v, w, u = rand(experts, inputs, rank), rand(experts, rank, rank, seed=1), rand(experts, inputs, rank, seed=2)
    v, w = v / np.float32(inputs**0.5), w / np.float32(rank**0.5)
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]>\n{EXPERTS.format(experts=experts, inputs=inputs)}'
    )
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(a, name) for name, a in {"v": v, "w": w, "u": u}.items()
    )
    compiled = sardonyx.compile(model)
    for n in (1, 2, 50):
        x = rand(n, inputs, seed=3).astype(np.float64)
        b = np.tanh(np.einsum("bc,ecr->ber", x, v))
        want = np.einsum("beq,ecq->bec", np.tanh(np.einsum("ber,eqr->beq", b, w)), u)
        # Three sums of up to 203 products; a wrong element differs by about 8.
        np.testing.assert_allclose(compiled(x=x.astype(np.float32))["y"], want, atol=1e-4)
