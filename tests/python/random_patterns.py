"""Groups of nodes that exporters write, for random graphs (random_graphs.py), and how often each step is taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import helper, numpy_helper
from random_nodes import LARGEST, Graph


def scores(g: Graph) -> None:
    """Attention without its name: tokens by tokens, softmax, and back."""
    x = g.of_rank(3, 4)
    if not x:
        return
    *batch, t, c = g.shapes[x]
    if np.prod(batch) * t * t > LARGEST:
        return
    perm = [*range(len(batch)), len(batch) + 1, len(batch)]
    turned = g.node("Transpose", [x], (*batch, c, t), perm=perm)
    s = g.node("MatMul", [x, turned], (*batch, t, t))
    s = g.node("Mul", [s, g.weight(shift=c**-0.5, fan=10**6)], (*batch, t, t))
    p = g.node("Softmax", [s], (*batch, t, t), axis=-1)
    g.node("MatMul", [p, x], (*batch, t, c))


def attention(g: Graph) -> None:
    """Heads of tokens, with what exporters put around: scales on either side, masks of several kinds, keys of other tokens."""
    x = g.of_rank(3)
    if not x:
        return
    n, t, _ = g.shapes[x]
    others = [name for name, s in g.shapes.items() if len(s) == 3 and s[0] == n]
    y = g.pick(others) if g.r.random() < 0.3 else x
    s = g.shapes[y][1]
    heads, size = g.pick([1, 2, 3, 4]), g.pick([4, 8, 16, 24, 32, 64])
    if n * heads * t * s > LARGEST or g.shapes[x][2] > 200 or g.shapes[y][2] > 200:
        return

    def project(v: str, perm: list[int]) -> str:
        rows, c = g.shapes[v][1], g.shapes[v][2]
        z = g.node("MatMul", [v, g.weight(c, heads * size, fan=c)], (n, rows, heads * size))
        if g.r.random() < 0.5:
            z = g.node("Add", [z, g.weight(heads * size)], g.shapes[z])
        z = g.node("Reshape", [z, g.integers(0, -1 if g.symbolic else rows, heads, size)], (n, rows, heads, size))
        return g.node("Transpose", [z], tuple(g.shapes[z][k] for k in perm), perm=perm)

    q, k, v = project(x, [0, 2, 1, 3]), project(y, [0, 2, 3, 1]), project(y, [0, 2, 1, 3])
    early = g.r.random() < 0.5
    if early:
        q = g.node("Mul", [q, g.weight(1, shift=size**-0.5, fan=10**6)], g.shapes[q])
    p = g.node("MatMul", [q, k], (n, heads, t, s))
    if not early:
        p = g.node("Div", [p, g.weight(shift=size**0.5, fan=10**6)], g.shapes[p])
    mask = g.pick(["", "", "causal", "bias", "where"])
    if mask == "causal" and not g.symbolic:
        name = g.name()
        g.constants.append(numpy_helper.from_array((np.triu(np.ones((t, s)), 1) * -10000).astype(g.type), name))
        p = g.node("Add", [p, name], g.shapes[p])
    elif mask == "bias" and not g.symbolic:
        p = g.node("Add", [p, g.weight(g.pick([1, heads]), t, s)], g.shapes[p])
    elif mask == "where" and not g.symbolic:
        name = g.name()
        g.constants.append(numpy_helper.from_array(np.tril(g.r.random((t, s)) < 0.7) | np.eye(t, s, dtype=bool), name))
        p = g.node("Where", [name, p, g.weight(1, shift=-10000.0)], g.shapes[p])
    p = g.node("Softmax", [p], g.shapes[p], axis=-1)
    z = g.node("MatMul", [p, v], (n, heads, t, size))
    z = g.node("Transpose", [z], (n, t, heads, size), perm=[0, 2, 1, 3])
    z = g.node("Reshape", [z, g.integers(0, -1 if g.symbolic else t, heads * size)], (n, t, heads * size))
    if g.r.random() < 0.6 and g.shapes[x][2] > 1:
        c = g.shapes[x][2]
        z = g.node("MatMul", [z, g.weight(heads * size, c, fan=heads * size)], (n, t, c))
        g.node("Add", [x, z], g.shapes[z])


def group_norm(g: Graph) -> None:
    """As exporters write it: a reshape, an instance norm without scale, a reshape, and a scale of its own."""
    x = g.of_rank(4, 3)
    if not x:
        return
    s = g.shapes[x]
    groups = g.pick([g for g in (1, 2, 4, 8) if s[1] % g == 0])
    if int(np.prod(s[1:])) // groups < 8:
        return
    one, none = np.ones(groups, g.type), np.zeros(groups, g.type)
    names = [g.name(), g.name()]
    g.constants += [numpy_helper.from_array(v, k) for k, v in zip(names, (one, none))]
    y = g.node("Reshape", [x, g.integers(0, groups, -1)], (s[0], groups, int(np.prod(s[1:])) // groups))
    y = g.node("InstanceNormalization", [y, *names], g.shapes[y], epsilon=1e-2)
    if g.symbolic:
        form = g.name()
        g.nodes.append(helper.make_node("Shape", [x], [form]))
    else:
        form = g.integers(*s)
    y = g.node("Reshape", [y, form], s)
    wide = (s[1],) + (1,) * (len(s) - 2)
    y = g.node("Mul", [y, g.weight(*wide)], s)
    g.node("Add", [y, g.weight(*wide)], s)


def gate(g: Graph) -> None:
    """Squeeze and excitation."""
    x = g.of_rank(4)
    if not x:
        return
    n, c, *_ = g.shapes[x]
    y = g.node("GlobalAveragePool", [x], (n, c, 1, 1))
    for outputs, op in ((4, "Relu"), (c, g.pick(["Sigmoid", "HardSigmoid"]))):
        inputs = g.shapes[y][1]
        y = g.node("Conv", [y, g.weight(outputs, inputs, 1, 1, fan=inputs), g.weight(outputs)], (n, outputs, 1, 1))
        y = g.node(op, [y], (n, outputs, 1, 1))
    g.node("Mul", [x, y], g.shapes[x])


STEPS: list[tuple[Callable[[Graph], None], int]] = [
    (Graph.convolution, 6), (Graph.transposed_convolution, 1), (Graph.pool, 2), (Graph.global_pool, 1), (Graph.resize, 1),
    (Graph.batch_norm, 1), (Graph.instance_norm, 1), (Graph.pixel_shuffle, 1), (Graph.unary, 4), (Graph.binary, 5), (Graph.concat, 2),
    (Graph.split, 1), (Graph.slice, 1), (Graph.pad, 1), (Graph.transpose, 4), (Graph.reshape, 3), (Graph.reduce, 2), (Graph.softmax, 1),
    (Graph.layer_norm, 2), (Graph.linear, 4), (scores, 1), (Graph.gather, 1), (Graph.where, 1),
    (Graph.repeat, 1), (Graph.running_sum, 1), (Graph.largest, 1), (Graph.triangle, 1), (Graph.einsum, 1), (Graph.squeeze, 2),
    (group_norm, 2), (gate, 1), (attention, 4),
]  # fmt: skip
