"""If, Loop and Scan against ONNX Runtime: shapes that change, branches chosen at run time, scans along any axis and direction."""

import numpy as np
import onnx
import onnx.parser
import pytest
import sardonyx

onnxruntime = pytest.importorskip("onnxruntime")


def run_both(text, feed, opset=17):
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    expected = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, feed
    )
    got = list(sardonyx.compile(model).run(feed).values())
    for a, b in zip(got, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return got


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("flag", [True, False])
def test_if_on_data_with_branches_of_different_sizes(flag):
    # the sum's sign is known at run time only; the branches give [n] and [2 n]
    x = np.abs(rand(5)) * (1 if flag else -1)
    run_both(
        """
      g (float[n] x) => (float[k] y, float[m] z) {
        zero = Constant <value = float {0.0}> ()
        sum = ReduceSum <keepdims = 0> (x)
        positive = Greater (sum, zero)
        y = If (positive) <
          then_branch = t () => (float[a] u) { u = Exp (x) },
          else_branch = e () => (float[b] v) { v = Concat <axis = 0> (x, x) }>
        z = Neg (y)
      }""",
        {"x": x},
    )


@pytest.mark.parametrize("n", [1, 3])
def test_if_on_a_shape_is_resolved_per_size(n):
    run_both(
        """
      g (float[n, 4] x) => (float[a, b] y) {
        shape = Shape <start = 0, end = 1> (x)
        one = Constant <value = int64[1] {1}> ()
        is_one = Equal (shape, one)
        y = If (is_one) <
          then_branch = t () => (float[a, b] u) { u = Mul (x, x) },
          else_branch = e () => (float[c, d] v) { v = Transpose (x) }>
      }""",
        {"x": rand(n, 4)},
    )


def test_if_gives_captured_values_and_shape_arithmetic():
    for flag in (True, False):
        run_both(
            """
          g (float[n, m] x, bool c) => (float[a, b] y, int64[k] s) {
            y, s = If (c) <
              then_branch = t () => (float[a, b] u, int64[k] p) { u = Identity (x)  p = Shape (x) },
              else_branch = e () => (float[c, d] v, int64[k] q) { v = Relu (x)  z = Neg (x)  t = Transpose (z)  q = Shape (t) }>
          }""",
            {"x": rand(2, 3), "c": np.array(flag)},
        )


def test_nested_if():
    for a in (True, False):
        for b in (True, False):
            run_both(
                """
              g (float[n] x, bool a, bool b) => (float[k] y) {
                y = If (a) <
                  then_branch = t () => (float[k] u) {
                    w = Exp (x)
                    u = If (b) <
                      then_branch = tt () => (float[k] u1) { u1 = Concat <axis = 0> (w, x) },
                      else_branch = te () => (float[k] u2) { u2 = Neg (w) }>
                  },
                  else_branch = e () => (float[k] v) { v = Sqrt (x) }>
              }""",
                {"x": np.abs(rand(4)), "a": np.array(a), "b": np.array(b)},
            )


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loop_whose_carried_tensor_grows(trips):
    run_both(
        """
      g (int64 m, float[n, 2] x) => (float[k, 2] y, float[t, 2] s) {
        cond = Constant <value = bool {1}> ()
        y, s = Loop (m, cond, x) <body = b (int64 i, bool c, float[a, 2] v) => (bool c2, float[b, 2] v2, float[2] last) {
          c2 = Identity (c)
          f = Cast <to = 1> (i)
          w = Add (v, f)
          v2 = Concat <axis = 0> (v, w)
          zero = Constant <value = int64 {0}> ()
          last = Gather <axis = 0> (w, zero)
        }>
      }""",
        {"m": np.array(trips, np.int64), "x": rand(2, 2)},
    )


def test_loop_that_ends_by_its_condition():
    run_both(
        """
      g (float x, float limit) => (float y, float[t] all) {
        cond = Constant <value = bool {1}> ()
        y, all = Loop ("", cond, x) <body = b (int64 i, bool c, float v) => (bool c2, float v2, float o) {
          two = Constant <value = float {2.0}> ()
          v2 = Mul (v, two)
          o = Identity (v2)
          c2 = Less (v2, limit)
        }>
      }""",
        {"x": np.array(1.5, np.float32), "limit": np.array(40, np.float32)},
    )


def test_loop_that_does_not_start():
    run_both(
        """
      g (float x, bool start) => (float y) {
        m = Constant <value = int64 {5}> ()
        y = Loop (m, start, x) <body = b (int64 i, bool c, float v) => (bool c2, float v2) { c2 = Identity (c)  v2 = Exp (v) }>
      }""",
        {"x": np.array(0.5, np.float32), "start": np.array(False)},
    )


def test_loop_uses_its_iteration_number_and_captured_values():
    run_both(
        """
      g (float[n, 3] x) => (float[t, 3] y, float[3] sum) {
        shape = Shape <start = 0, end = 1> (x)
        axis = Constant <value = int64[1] {0}> ()
        m = Squeeze (shape, axis)
        cond = Constant <value = bool {1}> ()
        zero = Constant <value = float[3] {0.0, 0.0, 0.0}> ()
        sum, y = Loop (m, cond, zero) <body = b (int64 i, bool c, float[3] acc) => (bool c2, float[3] acc2, float[3] o) {
          c2 = Identity (c)
          row = Gather <axis = 0> (x, i)
          acc2 = Add (acc, row)
          o = Mul (acc2, row)
        }>
      }""",
        {"x": rand(5, 3)},
    )


def test_nested_loops():
    run_both(
        """
      g (float[n] x, int64 m, int64 k) => (float[n] y) {
        cond = Constant <value = bool {1}> ()
        y = Loop (m, cond, x) <body = b (int64 i, bool c, float[n] v) => (bool c2, float[n] v2) {
          c2 = Identity (c)
          v2 = Loop (k, c, v) <body = d (int64 j, bool e, float[n] u) => (bool e2, float[n] u2) {
            e2 = Identity (e)
            p = Add (i, j)
            f = Cast <to = 1> (p)
            u2 = Add (u, f)
          }>
        }>
      }""",
        {"x": rand(3), "m": np.array(3, np.int64), "k": np.array(2, np.int64)},
    )


@pytest.mark.parametrize(
    "attributes, x_shape",
    [
        ("num_scan_inputs = 1", (4, 3)),
        ("num_scan_inputs = 1, scan_input_directions = [1]", (4, 3)),
        ("num_scan_inputs = 1, scan_output_directions = [1]", (4, 3)),
        (
            "num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], scan_input_directions = [1], scan_output_directions = [1]",
            (3, 4),
        ),
        ("num_scan_inputs = 1, scan_input_axes = [-1], scan_output_axes = [-1]", (3, 5)),
    ],
)
def test_scan(attributes, x_shape):
    run_both(
        """
      g (float[3] init, float[a, b] x) => (float[3] last, float[c, d] y) {
        last, y = Scan <ATTRIBUTES, body = b (float[3] s, float[3] e) => (float[3] s2, float[3] o) {
          s2 = Add (s, e)
          o = Mul (s2, e)
        }> (init, x)
      }""".replace("ATTRIBUTES", attributes),
        {"init": rand(3), "x": rand(*x_shape, seed=1)},
    )


@pytest.mark.parametrize("directions", ["", "directions = [1], "])
@pytest.mark.parametrize("lengths", [None, [4, 2]])
def test_scan_of_opset_8(directions, lengths):
    text = (
        """
      g (INPUT float[2, 3] init, float[2, 4, 3] x) => (float[2, 3] last, float[2, 4, 3] y) {
        last, y = Scan <DIRECTIONS num_scan_inputs = 1, body = b (float[3] s, float[3] e) => (float[3] s2, float[3] o) {
          s2 = Add (s, e)
          o = Mul (s2, e)
        }> (LENGTHS, init, x)
      }""".replace("DIRECTIONS", directions)
        .replace("LENGTHS", "n" if lengths else '""')
        .replace("INPUT", "int64[2] n," if lengths else "")
    )
    feed = {"init": rand(2, 3), "x": rand(2, 4, 3, seed=1)}
    if lengths:
        feed["n"] = np.array(lengths, np.int64)
    run_both(text, feed, opset=8)


@pytest.mark.parametrize("flag", [True, False])
def test_branches_of_different_ranks_are_compiled_for_the_condition(flag):
    run_both(
        """
      g (float[n] x, bool c) => (float y) {
        y = If (c) <then_branch = t () => (float u) { u = ReduceSum <keepdims = 0> (x) }, else_branch = e () => (float[n] v) { v = Exp (x) }>
      }""",
        {"x": rand(3), "c": np.array(flag)},
    )


SQUEEZES_ONES = """
  g (float[n, m] x) => (float[a] y) {
    shape = Shape (x)
    where = Constant <value = int64 {1}> ()
    one = Constant <value = int64 {1}> ()
    size = Gather (shape, where)
    is_one = Equal (size, one)
    axes = Constant <value = int64[1] {1}> ()
    s = If (is_one) <
      then_branch = t () => (float[b] u) { u = Squeeze (x, axes) },
      else_branch = e () => (float[b, c] v) { v = Identity (x) }>
    END
  }"""


def test_a_rank_that_a_size_decides():
    text = SQUEEZES_ONES.replace("END", "y = Exp (s)").replace("=> (float[a] y)", "=> (float y)")
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    compiled = sardonyx.compile(model)
    for n, m in ((2, 3), (4, 5), (3, 1), (2, 3), (3, 1)):
        x = rand(n, m)
        np.testing.assert_allclose(compiled(x=x)["y"], np.exp(x[:, 0] if m == 1 else x), rtol=1e-6)
    assert compiled.programs == 2  # one for all sizes but m = 1, and one for (3, 1)


def test_a_rank_that_must_be_the_squeezed_one():
    # [n, m] without the squeeze does not fit the tensor of rank 1 that it is joined with
    text = SQUEEZES_ONES.replace("END", "w = Constant <value = float[2] {1.0, 2.0}> ()\n y = Concat <axis = 0> (s, w)")
    for n in (1, 3):
        run_both(text, {"x": rand(n, 1)})


def test_a_carried_value_that_changes_its_rank_is_refused():
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
      g (float[n] x, bool c) => (float y) {
        m = Constant <value = int64 {3}> ()
        y = Loop (m, c, x) <body = b (int64 i, bool d, float[n] v) => (bool d2, float[n, 1] v2) {
          d2 = Identity (d)
          axis = Constant <value = int64[1] {0}> ()
          v2 = Unsqueeze (v, axis)
        }>
      }""")
    with pytest.raises(sardonyx.Error, match="changes its rank from 1 to 2"):
        sardonyx.compile(model)


# ---- what needs the CPU on a GPU

CHIP = "sim:gfx1100"


def on_card(text, feed, opset=17):
    """Runs a model on a simulated GPU and on the host; returns what inspect says of steps that need the CPU."""
    import json
    import tempfile
    from pathlib import Path

    from cli_support import sardonyx as command

    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(model)
    card, host = sardonyx.compile(model, device=CHIP), sardonyx.compile(model)
    for one in [feed] if isinstance(feed, dict) else feed:
        for (name, a), b in zip(card.run(one).items(), host.run(one).values(), strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype, name
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        onnx.save(model, path)
        steps = json.loads(command("inspect", path, "--device", CHIP, "--json", "-", "-q"))["program"]["steps"]
        text = command("inspect", path, "--device", CHIP, "-q")
    reasons = [s["cpu"] for s in steps if "cpu" in s]
    assert all(r in text for r in reasons)
    return reasons, [s["kind"] for s in steps]


IF = """
  g (float[n] x, {inputs}) => (float[n] y) {{
    {condition}
    y = If (c) <
      then_branch = t () => (float[n] u) {{ e = Exp (x)  u = Add (e, x) }},
      else_branch = e () => (float[n] v) {{ {other} }}>
  }}"""


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_of_elementwise_work_are_chosen_on_the_card(sign):
    condition = """
        zero = Constant <value = float {0.0}> ()
        sum = ReduceSum <keepdims = 0> (x)
        c = Greater (sum, zero)"""
    # One side is NaN where the other is taken, and divides by zero.
    other = "w = Sqrt (x)  z = Sub (x, x)  v = Div (w, z)" if sign > 0 else "v = Neg (x)"
    feed = {"x": sign * np.abs(rand(700)), "k": np.array(0, np.int64)}
    reasons, kinds = on_card(IF.format(inputs="int64 k", condition=condition, other=other), feed)
    assert reasons == [] and "if" not in kinds


def test_branches_that_read_by_data_are_not_computed_for_nothing():
    # An index that is valid only where its branch is taken.
    condition = """
        size = Constant <value = int64 {5}> ()
        two = Constant <value = int64 {2}> ()
        one = Mul (k, two)
        c = Greater (one, size)"""
    other = "i = Unsqueeze (k, axes)  g1 = Gather <axis = 0> (x, i)  v = Add (x, g1)"
    text = IF.format(inputs="int64 k", condition=condition, other=other).replace(
        "y = If", "axes = Constant <value = int64[1] {0}> ()\n    y = If"
    )
    x = rand(4)
    feeds = [{"x": x, "k": np.array(k, np.int64)} for k in (2, 10**12)]
    reasons, kinds = on_card(text, feeds)
    assert "if" in kinds
    assert len(reasons) == 1 and "which branch of an If is taken" in reasons[0] and "read back" in reasons[0]


def test_conditions_on_inputs_are_not_computed_on_the_card():
    condition = """
        rate = Constant <value = int64 {16000}> ()
        c = Equal (k, rate)"""
    other = "v = CumSum (x, axis)"  # a routine: not computed for nothing
    text = IF.format(inputs="int64 k", condition=condition, other=other).replace(
        "y = If", "axis = Constant <value = int64 {0}> ()\n    y = If"
    )
    reasons, kinds = on_card(text, [{"x": rand(50), "k": np.array(k, np.int64)} for k in (16000, 8000)])
    assert "if" in kinds and kinds.index("if") == kinds.index("bind") + 1  # no kernel computes the condition
    assert len(reasons) == 1 and reasons[0].startswith("the input 'k' decides which branch of an If is taken")


@pytest.mark.parametrize("trips", ["shape", "constant", "input"])
def test_loops_of_known_length_read_nothing_back(trips):
    m = {
        "shape": "shape = Shape <start = 0, end = 1> (x)  axis = Constant <value = int64[1] {0}> ()  m = Squeeze (shape, axis)",
        "constant": "m = Constant <value = int64 {3}> ()",
        "input": "m = Identity (k)",
    }[trips]
    text = f"""
      g (float[n, 3] x, int64 k) => (float[t, 3] y, float[3] sum) {{
        {m}
        cond = Constant <value = bool {{1}}> ()
        start = Constant <value = float[3] {{0.0, 0.0, 0.0}}> ()
        sum, y = Loop (m, cond, start) <body = b (int64 i, bool c, float[3] v) => (bool c2, float[3] v2, float[3] o) {{
          c2 = Identity (c)
          row = Gather <axis = 0> (x, i)
          v2 = Add (v, row)
          o = Identity (v2)
        }}>
      }}"""
    reasons, kinds = on_card(text, {"x": rand(4, 3), "k": np.array(2, np.int64)})
    assert "while" in kinds
    if trips == "input":
        assert len(reasons) == 1 and reasons[0].startswith("the input 'k' decides how often a Loop runs")
    else:
        assert reasons == []


def test_a_scan_reads_nothing_back():
    text = """
      g (float[2] s, float[n, 2] x) => (float[2] last, float[n, 2] all) {
        last, all = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] e) => (float[2] w, float[2] o) {
          w = Add (v, e)
          o = Exp (w)
        }> (s, x)
      }"""
    assert on_card(text, {"s": rand(2), "x": rand(5, 2)})[0] == []


def test_a_loop_that_ends_by_data_says_so():
    text = """
      g (float x, float limit) => (float y) {
        cond = Constant <value = bool {1}> ()
        y = Loop ("", cond, x) <body = b (int64 i, bool c, float v) => (bool c2, float v2) {
          two = Constant <value = float {2.0}> ()
          v2 = Mul (v, two)
          c2 = Less (v2, limit)
        }>
      }"""
    reasons, _ = on_card(text, {"x": np.array(1.5, np.float32), "limit": np.array(40, np.float32)})
    assert len(reasons) == 1 and "whether a Loop goes on" in reasons[0] and "read back" in reasons[0]


def test_sizes_by_data_and_routines_of_the_cpu_say_so():
    text = "g (float[n] x) => (int64[1, k] y) { y = NonZero (x) }"
    reasons, _ = on_card(text, {"x": np.array([0, 1, 0, 2], np.float32)})
    assert len(reasons) == 1 and "sizes or positions" in reasons[0]
