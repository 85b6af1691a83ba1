"""GEMMs of the host whose operands or results other loops transpose."""

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


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("jnoi,bni->bjno", [(5, 20, 7, 8), (None, 20, 8)]),  # capsules: what is innermost belongs to the left operand
        ("oi,bi->bo", [(33, 17), (None, 17)]),
        ("oi,bi->ob", [(33, 17), (None, 17)]),
        ("nkctv,kvw->nctw", [(None, 3, 20, 12, 25), (3, 25, 25)]),
        ("ij,bjk,kl->bil", [(9, 10), (None, 10, 11), (11, 12)]),
        ("ij,bjk,kl->bli", [(9, 10), (None, 10, 11), (11, 12)]),
        ("bi,ci->", [(None, 12), (30, 12)]),
        ("abc,dc->adb", [(None, 6, 7), (8, 7)]),
    ],
)
def test_einsum_in_any_order(equation, shapes):
    """Operands are exchanged for the order of the result. One with a symbolic dim is an input, others are constants."""
    names = [chr(ord("p") + k) for k in range(len(shapes))]
    inputs = ", ".join(
        f"float[{', '.join('n' if d is None else str(d) for d in s)}] {name}"
        for name, s in zip(names, shapes, strict=True)
        if None in s
    )
    out = ", ".join(f"d{k}" for k in range(len(equation.split("->")[1])))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 18]>
      g ({inputs}) => (float[{out}] y) {{ y = Einsum <equation = "{equation}"> ({", ".join(names)}) }}""")
    given = {name: rand(*s, seed=k) for k, (name, s) in enumerate(zip(names, shapes, strict=True)) if None not in s}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in given.items())
    compiled = sardonyx.compile(model)
    for n in (1, 2, 19):
        feed = {
            name: rand(*[n if d is None else d for d in s], seed=7)
            for name, s in zip(names, shapes, strict=True)
            if None in s
        }
        all_of = [(given | feed)[name].astype(np.float64) for name in names]
        want = np.einsum(equation, *all_of)
        # Relative to the largest value: a few roundings of float32 for each of up to 110 products.
        assert np.abs(compiled(**feed)["y"] - want).max() <= 1e-5 * np.abs(want).max()
