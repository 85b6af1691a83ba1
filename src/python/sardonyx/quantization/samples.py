"""Examples of a model's inputs: from a folder, a script, an .npz file or a program, read one at a time."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Union

import numpy as np

from ..arrays import numpy_dtype
from ..errors import FileError, InvalidArgumentError, UnsupportedError
from ..model import TensorInfo

Array = np.ndarray[Any, Any]
Sample = dict[str, Array]
#: A path, or samples (mappings of input names to arrays; an array for a model of one input), or what returns them.
Data = Union[str, "os.PathLike[str]", Iterable[Any], Callable[[], Iterable[Any]]]

_FORMS = (
    "a folder of .npz files (arrays by the inputs' names), .npy files (for one input) or test_data_set_* with input_0.pb; "
    "one .npz file; or a Python script that defines samples(), which yields them"
)


class Samples:
    """Examples that can be read several times, of which one is in memory at a time.

    data: a path in one of the forms above, a sequence, or a function that returns an iterator. An iterator can be read once.
    inputs: those of the model, by which arrays are named and checked.
    limit: the most that are read; 0: all.
    """

    def __init__(self, data: Data, inputs: Sequence[TensorInfo], limit: int = 0):
        if limit < 0:
            raise InvalidArgumentError(f"the number of samples is {limit}; it must be at least 1, or 0 for all")
        self._data, self._inputs, self._limit = data, list(inputs), limit
        self._spent = False

    @property
    def repeatable(self) -> bool:
        return isinstance(self._data, (str, os.PathLike, Sequence)) or callable(self._data)

    def __iter__(self) -> Iterator[Sample]:
        if not self.repeatable:
            if self._spent:
                raise InvalidArgumentError("these samples can be read only once; pass a list, or a function")
            self._spent = True
        found = False
        raw = self._raw()
        for item in islice(raw, self._limit) if self._limit else raw:
            found = True
            yield self._sample(item)
        if not found:
            raise InvalidArgumentError(f"{self._what()}: there are no samples; give {_FORMS}")

    def _what(self) -> str:
        return f"'{os.fspath(self._data)}'" if isinstance(self._data, (str, os.PathLike)) else "the data"

    def _raw(self) -> Iterable[Any]:
        if isinstance(self._data, (str, os.PathLike)):
            return read_path(os.fspath(self._data), self._inputs)
        if isinstance(self._data, Mapping):
            raise InvalidArgumentError("the data are one sample; give a list of samples")
        return self._data() if callable(self._data) else self._data

    def _sample(self, item: Any) -> Sample:
        if not isinstance(item, Mapping):
            if len(self._inputs) != 1:
                raise InvalidArgumentError(
                    f"a sample is a {type(item).__name__}; for a model of {len(self._inputs)} inputs it must be a dict of "
                    "their names and arrays"
                )
            item = {self._inputs[0].name: item}
        out: Sample = {}
        for info in self._inputs:
            if info.name not in item:
                raise InvalidArgumentError(
                    f"{self._what()}: a sample has no '{info.name}', which the model needs; it has "
                    + (", ".join(f"'{n}'" for n in item) or "nothing")
                )
            out[info.name] = fitting(self._array(item[info.name], info.name), info)
        return out

    def _array(self, value: Any, name: str) -> Array:
        try:
            return np.asarray(value)
        except ValueError as error:  # lists of different lengths
            raise InvalidArgumentError(f"{self._what()}: '{name}' is no array: {error}") from None


def fitting(array: Array, info: TensorInfo) -> Array:
    """The array in the input's dtype. Floats become the model's floats, so that models of other precision take the same
    samples; integers keep their values. Raises InvalidArgumentError where that can't be done."""
    if array.dtype == info.dtype:
        return array
    if array.dtype.kind == "V" and array.dtype.names is None and array.dtype.itemsize == info.dtype.itemsize:
        return array.view(info.dtype)  # numpy has no such dtype, and its files hold the bytes
    floats = [a.kind == "f" or "float" in a.name for a in (array.dtype, info.dtype)]
    if all(floats):
        return array.astype(info.dtype)
    if array.dtype.kind in "iub" and info.dtype.kind in "iub":
        cast = array.astype(info.dtype)
        if np.array_equal(cast, array):
            return cast
    raise InvalidArgumentError(f"input '{info.name}' is {info.dtype.name}, and a sample's is {array.dtype.name}")


def read_path(path: str, inputs: Sequence[TensorInfo]) -> Iterator[Any]:
    """The samples of a folder, script or .npz file."""
    if os.path.isdir(path):
        yield from _folder(path, inputs)
    elif not os.path.exists(path):
        raise FileError(f"'{path}' could not be read: there is no such file or folder; give {_FORMS}")
    elif path.endswith(".npz"):
        yield from _npz(path, inputs)
    elif path.endswith(".npy"):
        yield from _npy(path, inputs)
    elif path.endswith(".py"):
        yield from script_samples(path)
    else:
        raise InvalidArgumentError(f"'{path}' is not a source of samples: give {_FORMS}")


def script_samples(path: str) -> Iterable[Any]:
    """What samples() of a script returns. The script runs as any program does: it must be trusted."""
    try:
        names = runpy.run_path(path, run_name="sardonyx_samples")
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"'{path}' can't be run: {type(error).__name__}: {error}") from error
    function = names.get("samples")
    if not callable(function):
        raise InvalidArgumentError(
            f"'{path}' does not define a function samples() that yields dicts of the inputs' names and arrays"
        )
    try:
        yield from function()
    except (Exception, SystemExit) as error:
        raise InvalidArgumentError(f"'{path}': samples() failed: {type(error).__name__}: {error}") from error


def _folder(path: str, inputs: Sequence[TensorInfo]) -> Iterator[Any]:
    names = sorted(os.listdir(path))
    if "input_0.pb" in names:
        yield _test_data(path, inputs)
        return
    other = []
    for name in names:
        file = os.path.join(path, name)
        if name.endswith(".npz"):
            yield from _npz(file, inputs)
        elif name.endswith(".npy"):
            yield from _npy(file, inputs)
        elif os.path.isfile(os.path.join(file, "input_0.pb")):
            yield _test_data(file, inputs)
        elif not name.startswith("."):
            other.append(name)
    if len(other) == len(names) and other:
        raise InvalidArgumentError(
            f"'{path}' holds no samples ('{other[0]}' is none). Images, sound and text need the model's own preprocessing: "
            f"give a script. Otherwise give {_FORMS}"
        )


def _load(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False, mmap_mode="r" if path.endswith(".npy") else None)
    except OSError as error:
        raise FileError(f"'{path}' could not be read: {error.strerror or error}") from None
    except Exception as error:  # what a damaged file makes numpy and zipfile raise
        raise InvalidArgumentError(f"'{path}' can't be read: {error}") from None


def _parts(arrays: Mapping[str, Array], inputs: Sequence[TensorInfo], path: str) -> Iterator[Sample]:
    """Arrays of the inputs' ranks are one sample; with one dim more, the first counts the samples."""
    counts = set()
    for info in inputs:
        array = arrays.get(info.name)
        if array is not None and info.shape is not None:
            more = array.ndim - len(info.shape)
            if more not in (0, 1):
                raise InvalidArgumentError(
                    f"'{path}': '{info.name}' has {array.ndim} dims; a sample has {len(info.shape)}, several samples one more"
                )
            counts.add(array.shape[0] if more else None)
    if counts <= {None}:
        yield dict(arrays)
        return
    if len(counts) > 1:
        raise InvalidArgumentError(f"'{path}': the arrays hold different numbers of samples")
    for k in range(counts.pop() or 0):
        yield {name: array[k] for name, array in arrays.items()}


def _npz(path: str, inputs: Sequence[TensorInfo]) -> Iterator[Sample]:
    file = _load(path)
    with file:
        arrays = {}
        for info in inputs:
            if info.name in file.files:
                try:
                    arrays[info.name] = file[info.name]
                except Exception as error:
                    raise InvalidArgumentError(f"'{path}': '{info.name}' can't be read: {error}") from None
        if not arrays:
            raise InvalidArgumentError(
                f"'{path}' has no array with the name of an input ({', '.join(i.name for i in inputs)}); it has "
                + (", ".join(file.files[:8]) or "none")
            )
    yield from _parts(arrays, inputs, path)


def _npy(path: str, inputs: Sequence[TensorInfo]) -> Iterator[Sample]:
    if len(inputs) != 1:
        raise InvalidArgumentError(f"'{path}' holds one array, and the model has {len(inputs)} inputs: give .npz files")
    yield from _parts({inputs[0].name: _load(path)}, inputs, path)


def _test_data(folder: str, inputs: Sequence[TensorInfo]) -> Sample:
    """input_0.pb, input_1.pb ... of ONNX's test data."""
    try:
        from onnx import TensorProto, numpy_helper
    except ImportError:
        raise UnsupportedError(
            f"'{folder}' holds ONNX tensors, which need the Python package 'onnx': pip install 'sardonyx[quantize]'"
        ) from None
    out: Sample = {}
    for k, info in enumerate(inputs):
        file = os.path.join(folder, f"input_{k}.pb")
        try:
            with open(file, "rb") as f:
                tensor = TensorProto.FromString(f.read())
            array = numpy_helper.to_array(tensor)
        except OSError as error:
            raise FileError(f"'{file}' could not be read: {error.strerror}") from None
        except Exception as error:  # protobuf's, and those of inconsistent sizes
            raise InvalidArgumentError(f"'{file}' is not an ONNX tensor: {error}") from None
        known = {i.name for i in inputs}
        out[tensor.name if tensor.name in known else info.name] = array
    return out


def float_types() -> set[np.dtype[Any]]:
    """The dtypes whose errors are measured."""
    return {numpy_dtype(n) for n in ("float16", "float32", "float64", "bfloat16")}
