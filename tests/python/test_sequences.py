"""Sequences of tensors, whose lengths and positions are known when a model is compiled."""

import numpy as np
import onnx
import pytest
import sardonyx
from onnx import parser
from onnx.reference import ReferenceEvaluator

X = np.arange(30, dtype=np.float32).reshape(5, 6)
Y = -X


def model(body, inputs="float[5, 6] x, float[5, 6] y", outputs="float[a, b] z"):
    text = f'<ir_version: 9, opset_import: ["" : 18]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return parser.parse_model(text)


BODIES = {
    "single parts": "s = SplitToSequence <axis = 1> (x) i = Constant <value_int = 2> () z = SequenceAt (s, i)",
    "squeezed parts": """s = SplitToSequence <axis = 1, keepdims = 0> (x) i = Constant <value_int = -1> ()
        v = SequenceAt (s, i) a = Constant <value_ints = [0]> () z = Unsqueeze (v, a)""",
    "parts of one size": """n = Constant <value_int = 4> () s = SplitToSequence <axis = -1> (x, n)
        i = Constant <value_int = 1> () z = SequenceAt (s, i)""",
    "parts of given sizes": """n = Constant <value_ints = [1, 0, 4]> () s = SplitToSequence (x, n)
        i = Constant <value_int = 2> () z = SequenceAt (s, i)""",
    "concatenated": "r = Neg (x) s = SequenceConstruct (x, y, r) z = ConcatFromSequence <axis = 0> (s)",
    "stacked": """s = SequenceConstruct (x, y) t = ConcatFromSequence <axis = -1, new_axis = 1> (s)
        n = Constant <value_ints = [5, 12]> () z = Reshape (t, n)""",
    "inserted and erased": """e = SequenceEmpty () a = SequenceInsert (e, x) i = Constant <value_int = 0> ()
        b = SequenceInsert (a, y, i) r = Exp (y) c = SequenceInsert (b, r) j = Constant <value_int = -2> ()
        d = SequenceErase (c, j) k = Identity (d) z = ConcatFromSequence <axis = 1> (k)""",
    "erased at the end": """s = SequenceConstruct (x, y, x) t = SequenceErase (s)
        z = ConcatFromSequence <axis = 1> (t)""",
    "counted": """s = SequenceConstruct (x, y, x) n = SequenceLength (s) f = Cast <to = 1> (n) z = Mul (x, f)""",
}


@pytest.mark.parametrize("device", ["host", "sim:gfx942"])
@pytest.mark.parametrize("name", BODIES)
def test_sequences(name, device):
    m = model(BODIES[name])
    feed = {"x": X, "y": Y}
    (want,) = ReferenceEvaluator(m).run(None, feed)
    got = sardonyx.compile(m, device=device).run(feed)["z"]
    # Only the exponential is computed rather than moved.
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_branch_reads_a_sequence_from_outside():
    m = model(
        """s = SequenceConstruct (x, y) n = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0> ()
        c = Greater (n, zero) i = Constant <value_int = 0> () j = Constant <value_int = 1> ()
        z = If (c) <then_branch = t () => (float[5, 6] p) { p = SequenceAt (s, i) },
                    else_branch = e () => (float[5, 6] q) { q = SequenceAt (s, j) }>""",
    )
    compiled = sardonyx.compile(m)
    for x in (X, Y):
        feed = {"x": x, "y": x + 1}
        np.testing.assert_array_equal(compiled.run(feed)["z"], ReferenceEvaluator(m).run(None, feed)[0])


@pytest.mark.parametrize(
    ("body", "inputs", "outputs", "message"),
    [
        ("z = SequenceConstruct (x, y)", None, "seq(float[5, 6]) z", "output 'z' of the model is a sequence"),
        ("s = SequenceConstruct (x, y) z = Neg (s)", None, None, "is a sequence, which Neg does not take"),
        (
            "s = SequenceConstruct (x, y) f = ReduceMax <keepdims = 0> (x) i = Cast <to = 7> (f) z = SequenceAt (s, i)",
            None,
            None,
            "position in a sequence",
        ),
        (
            "s = SplitToSequence (x) i = Constant <value_int = 0> () z = SequenceAt (s, i)",
            "float[n, 6] x",
            None,
            "fixed dim",
        ),
        (
            "s = SequenceConstruct (x, y) i = Constant <value_int = 2> () z = SequenceAt (s, i)",
            None,
            None,
            "position 2",
        ),
        ("e = SequenceEmpty () z = ConcatFromSequence <axis = 0> (e)", None, None, "empty"),
        ("z = ConcatFromSequence <axis = 0> (x)", None, None, "no sequence"),
        ("e = SequenceEmpty () z = SequenceErase (e)", None, "seq(float[5, 6]) z", "empty"),
        (
            "n = Constant <value_int = 0> () s = SplitToSequence (x, n) i = Constant <value_int = 0> () z = SequenceAt (s, i)",
            None,
            None,
            "parts of size 0",
        ),
    ],
)
def test_sequences_that_are_refused(body, inputs, outputs, message):
    arguments = {k: v for k, v in (("inputs", inputs), ("outputs", outputs)) if v}
    m = model(body, **arguments)
    with pytest.raises(sardonyx.Error, match=message):
        compiled = sardonyx.compile(m)
        compiled.run({"x": X, "y": Y} if not inputs else {"x": X})


def test_a_position_that_is_an_input():
    """A program is compiled for each of its values."""
    m = model("s = SequenceConstruct (x, y) z = SequenceAt (s, i)", inputs="float[5, 6] x, float[5, 6] y, int64 i")
    compiled = sardonyx.compile(m)
    for i, want in ((0, X), (-1, Y)):
        np.testing.assert_array_equal(compiled.run({"x": X, "y": Y, "i": np.array(i)})["z"], want)


def test_the_number_of_parts_is_bounded():
    s = "s = SplitToSequence (x) i = Constant <value_int = 0> () z = SequenceAt (s, i)"
    with pytest.raises(sardonyx.Error, match="more than 4096 tensors"):
        sardonyx.compile(model(s, inputs="float[1000000, 6] x"))


def test_the_memory_of_sequences_is_bounded():
    inserts = " ".join(f"s{k + 1} = SequenceInsert (s{k}, x)" for k in range(1500))
    m = model(f"s0 = SequenceEmpty () {inserts} z = ConcatFromSequence <axis = 0> (s1500)")
    with pytest.raises(sardonyx.Error, match="tensors in all"):
        sardonyx.compile(m)


def test_a_loop_does_not_carry_sequences():
    m = model(
        """n = Constant <value_int = 2> () c = Constant <value = bool {1}> () e = SequenceEmpty ()
        s = Loop (n, c, e) <body = b (int64 i, bool k, seq(float[5, 6]) a) => (bool o, seq(float[5, 6]) r)
            { o = Identity (k) r = SequenceInsert (a, x) }>
        z = ConcatFromSequence <axis = 0> (s)"""
    )
    with pytest.raises(sardonyx.Error, match="sequence"):
        sardonyx.compile(m)
    onnx.checker.check_model(m)
