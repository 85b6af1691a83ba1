"""Replaces the operators of an exported program for which rules.py has others. torch.compile's graphs are traced with these rules
as decompositions (decompositions.py); torch.export's graphs are there already."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx

from .decompositions import decompositions, without_decomposing
from .repairs import rename_result
from .rules import RULES


class NotThis(Exception):
    """A call that its rule leaves as it is."""


def apply_rules(program: torch.export.ExportedProgram) -> None:
    """Changes the program's calls in place."""
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in list(module.graph.nodes):
            if node.op == "call_function" and node.target in RULES:
                try:
                    replace(module.graph, node)
                except NotThis:
                    pass
        module.recompile()


def replace(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Raises NotThis if the call stays."""
    inputs = node.all_input_nodes
    values = [n.meta.get("val") for n in inputs]
    if not values or not all(isinstance(v, torch.Tensor) for v in values):
        raise NotThis
    results = [u for u in node.users if u.target is operator.getitem]
    if isinstance(node.meta["val"], (tuple, list)) != (len(results) == len(node.users)):
        raise NotThis

    def call(*given: Any) -> Any:
        of = dict(zip(inputs, given, strict=True))
        got = RULES[node.target](*torch.fx.map_arg(node.args, of.get), **torch.fx.map_arg(node.kwargs, of.get))
        if got is NotImplemented:
            raise NotThis
        return got

    mode = torch._guards.detect_fake_mode(values)
    with mode, enable_python_dispatcher(), torch.no_grad(), without_decomposing():
        made = make_fx(call, decompositions(), _disable_torch_fn_metadata_mode=True)(*values)
    if any(n.op == "get_attr" for n in made.graph.nodes):
        raise NotThis
    copies = dict(zip(made.graph.find_nodes(op="placeholder"), inputs, strict=True))
    with graph.inserting_before(node):
        for n in made.graph.nodes:
            if n.op not in ("placeholder", "output"):
                copies[n] = graph.node_copy(n, copies.__getitem__)
    (output,) = made.graph.find_nodes(op="output")
    new = torch.fx.map_arg(output.args[0], copies.__getitem__)
    for old, by in [(r, new[r.args[1]]) for r in results] or [(node, new)]:
        if by in inputs:
            with graph.inserting_before(node):
                kept = by
                by = graph.call_function(torch.ops.aten.clone.default, (kept,))
                by.meta = dict(kept.meta)
        old.replace_all_uses_with(by)
        rename_result(graph, old, by)
    for old in (*results, node):
        graph.erase_node(old)
