"""Damaged models: ONNX's node tests with random changes of attributes, shapes, types and connections.

Each must run, or be refused with an error that is not an internal one; nothing may crash or hang. Cases run in
separate processes, so that a crash fails its batch only. To reproduce a failure:
python tests/python/test_hostile_models.py SEED.
"""

import random
import signal
import subprocess
import sys

import numpy as np
import pytest

CASES = 150  # of a batch
BATCHES = 40
SECONDS = 30  # for one case, which takes a hundredth of that on an idle machine

SIZES = [0, 1, 2, 3, 5, 7, -1, -2, 100, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63)]
VALUES = [0, 1, -1, 2, 3, 5, 100]


def change_attribute(node, rng):
    if not node.attribute:
        return
    a = rng.choice(node.attribute)
    if a.type == a.INT:
        a.i = rng.choice(SIZES)
    elif a.type == a.INTS and a.ints and rng.random() < 0.7:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(SIZES)
    elif a.type == a.INTS:
        a.ints.append(rng.choice(SIZES))
    elif a.type == a.FLOAT:
        a.f = rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e30])
    elif a.type == a.STRING:
        a.s = rng.choice([b"", b"x", b"linear", b"SAME_UPPER", b"bij,bjk->bik"])
    else:
        node.attribute.remove(a)


def change_input(graph, rng):
    from onnx import helper, numpy_helper

    value = rng.choice(graph.input)
    tensor = value.type.tensor_type
    dims = tensor.shape.dim
    what = rng.randrange(5)
    if what == 0 and dims:
        dims[rng.randrange(len(dims))].dim_value = rng.choice(SIZES)
    elif what == 1 and dims:
        dims[rng.randrange(len(dims))].dim_param = rng.choice("ab")
    elif what == 2 and dims and rng.random() < 0.5:
        del dims[rng.randrange(len(dims))]
    elif what == 2:
        dims.add().dim_value = rng.choice([0, 1, 2, 3])
    elif what == 3:
        tensor.elem_type = rng.choice([1, 2, 3, 6, 7, 9, 10, 11, 14, 16, 17, 22])
    elif what == 4 and tensor.elem_type in (1, 6, 7, 9):  # a known constant
        shape = [d.dim_value for d in dims]
        if any(d < 0 for d in shape) or np.prod(shape, dtype=float) > 1000:
            return
        array = np.array(rng.choices([*VALUES, 1 << 31, -(1 << 31)], k=int(np.prod(shape))))
        array = array.astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).reshape(shape)
        graph.initializer.append(numpy_helper.from_array(array, value.name))
        graph.input.remove(value)


def change(model, rng):
    graph = model.graph
    for _ in range(rng.randint(1, 3)):
        node = rng.choice(graph.node)
        what = rng.randrange(4)
        if what == 0:
            change_attribute(node, rng)
        elif what == 1 and len(node.input) > 1:
            i, j = rng.randrange(len(node.input)), rng.randrange(len(node.input))
            node.input[i], node.input[j] = node.input[j], node.input[i]
        elif what == 2 and node.input and rng.random() < 0.3:
            node.input.pop()
        elif what == 2 and node.input:
            node.input[rng.randrange(len(node.input))] = rng.choice(["", *(i.name for i in graph.input)])
        elif graph.input:
            change_input(graph, rng)


def feed(model, rng):
    """Inputs for a compiled model, or None where they would be large or can't be known."""
    out = {}
    for name, dtype, shape in model.inputs:
        if shape is None:
            return None
        dims = [d if isinstance(d, int) else rng.choice([0, 1, 2, 3]) for d in shape]
        if np.prod(dims, dtype=float) > 1e5:
            return None
        out[name] = np.array(rng.choices(VALUES, k=int(np.prod(dims)))).astype(dtype).reshape(dims)
    return out


def run_batch(seed):
    import sardonyx
    from onnx import ModelProto
    from onnx.backend.test.loader import load_model_tests

    models = [case.model for case in load_model_tests(kind="node")]
    rng = random.Random(seed)
    bad = (sardonyx.InternalError, sardonyx.CompileError)
    good = True
    for k in range(CASES):
        model = ModelProto()
        model.CopyFrom(rng.choice(models))
        change(model, rng)
        print(f"case {k} of batch {seed}: {model.graph.name}", flush=True)  # the last one is that of a crash
        signal.alarm(SECONDS)
        try:
            compiled = sardonyx.compile(model.SerializeToString(), cache_dir="", threads=1)
            inputs = feed(compiled, rng)
            if inputs is not None:
                compiled(inputs)
        except bad as error:
            print(f"FOUND {type(error).__name__}: {error}", flush=True)
            good = False
        except (sardonyx.Error, MemoryError):
            pass
        signal.alarm(0)
    return good


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(BATCHES))
def test_broken_models_run_or_are_refused(seed):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(seed)], capture_output=True, text=True, timeout=1200
    )
    found = "\n".join(line for line in done.stdout.splitlines() if line.startswith("FOUND"))
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"exit status {done.returncode} after {last}\n{found}\n{done.stderr[-2000:]}"


if __name__ == "__main__":
    sys.exit(0 if run_batch(int(sys.argv[1])) else 1)
