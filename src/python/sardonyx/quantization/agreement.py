"""evaluate(): the error of a model against a reference, on data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiling import compile
from ..errors import InvalidArgumentError, UnsupportedError
from ..model import Model, TensorInfo
from .evaluation import Evaluation, OnSample, describe, is_language_model
from .measures import Measure, ValueAgreement
from .samples import Data, Samples, fitting, float_types


def evaluate(
    model: Any,
    data: Data,
    *,
    reference: Any = None,
    layers: bool = False,
    classifiers: Sequence[str] | None = None,
    samples: int = 0,
    context: int = 512,
    options: dict[str, Any] | None = None,
    reference_options: dict[str, Any] | None = None,
    progress: OnSample | None = None,
) -> Evaluation:
    """Runs a model and a reference on the same samples and measures how much their results differ.

    model, reference: paths, bytes or ModelProtos, as compile() takes them, compiled Models, or folders of language models
        (genai_config.json), for which perplexity is measured. No reference: the same model, with reference_options.
    data: samples: a path (a folder of .npz, .npy or ONNX test data, an .npz file, a Python script with samples()), a list of
        dicts of input names and arrays, or a function that returns an iterator. Of language models: .txt files, or texts.
    layers: compares intermediate values too. For this, both models are compiled a second time, with every value as an output.
    classifiers: outputs whose argmax along the last dim is a decision; None: float outputs of two dims.
    samples: the most that are used; 0: all.
    context: tokens of a language model's text that are read together.
    options, reference_options: of compile(): {"device": "cuda", "precision": "fp16"}.

    Memory does not grow with the number of samples. Raises errors.Error: InvalidArgumentError for data that do not fit, and
    what compile() and runs raise.
    """
    own, other = dict(options or {}), dict(reference_options or {})
    source = model if reference is None else reference
    if is_language_model(model) or is_language_model(source):
        from .text_agreement import evaluate_text

        if not (is_language_model(model) and is_language_model(source)):
            raise InvalidArgumentError("a language model's folder can only be compared with another one's")
        if layers or classifiers:
            raise InvalidArgumentError("layers and classifiers are not for folders of language models")
        return evaluate_text(model, source, data, context, samples, own, other, progress)
    names = describe(model, own), describe(source, other)
    pair = _compiled(model, own), _compiled(source, other)
    outputs, count = _compare(pair, data, samples, classifiers, progress)
    inner: list[ValueAgreement] = []
    if layers:
        if isinstance(model, Model) or isinstance(source, Model):
            raise InvalidArgumentError("layers need the models themselves, to compile them again: pass paths or bytes")
        pair = (compile(model, all_outputs=True, **own), compile(source, all_outputs=True, **other))
        listed = {v.name for v in outputs}
        everything, _ = _compare(pair, data, samples, (), progress)
        inner = [v for v in everything if v.name not in listed]
    return Evaluation(names[0], names[1], count, tuple(outputs), tuple(inner))


def _compiled(model: Any, options: dict[str, Any]) -> Model:
    if not isinstance(model, Model):
        return compile(model, **options)
    if options:
        raise InvalidArgumentError("options are for models that are not compiled yet")
    return model


def decides(info: TensorInfo) -> bool:
    """Whether an output looks like a classifier's: a row of numbers for each sample."""
    return (
        info.shape is not None and len(info.shape) == 2 and info.shape[1] not in (0, 1) and info.dtype in float_types()
    )


def _compare(
    pair: tuple[Model, Model], data: Data, limit: int, classifiers: Sequence[str] | None, progress: OnSample | None
) -> tuple[list[ValueAgreement], int]:
    model, reference = pair
    known = {o.name for o in reference.outputs}
    shared = [o for o in model.outputs if o.name in known]
    if not shared:
        raise InvalidArgumentError(
            "the models have no output in common: they are matched by name. The model has "
            f"{', '.join(o.name for o in model.outputs[:8])}; the reference has {', '.join(sorted(known)[:8])}"
        )
    for name in classifiers or ():
        if name not in {o.name for o in shared}:
            raise InvalidArgumentError(f"the models have no output '{name}' in common")
    chosen = {o.name for o in shared if decides(o)} if classifiers is None else set(classifiers)
    measures = {o.name: Measure(decides=o.name in chosen) for o in shared}
    theirs = {i.name: i for i in reference.inputs}
    # Inputs that the models do not share are read as the reference wants them.
    inputs = [theirs.get(i.name, i) for i in model.inputs]
    inputs += [i for i in reference.inputs if i.name not in {j.name for j in inputs}]
    own = {i.name: i for i in model.inputs}
    count = 0
    for sample in Samples(data, inputs, limit):
        a = model({n: fitting(v, own[n]) for n, v in sample.items() if n in own})
        r = reference({n: v for n, v in sample.items() if n in theirs})
        for name, measure in measures.items():
            measure.add(a[name], r[name])
        count += 1
        if progress:
            progress(count)
    try:
        nodes = {output: str(node) for node in model.nodes for output in node.outputs}
    except UnsupportedError:  # a compiled program
        nodes = {}
    return [m.result(name, nodes.get(name, "")) for name, m in measures.items()], count
