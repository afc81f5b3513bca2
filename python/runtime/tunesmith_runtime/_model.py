"""Compiled models with NumPy arrays in and out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import time
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ._native import ArgumentError, LoadError, Tensor, Value, native

_BF16 = 16
# NumPy has no bfloat16: its bits are those of an unsigned integer.
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float32), 2: np.dtype(np.uint8), 3: np.dtype(np.int8), 6: np.dtype(np.int32),
    7: np.dtype(np.int64), 9: np.dtype(np.bool_), 10: np.dtype(np.float16), 11: np.dtype(np.float64),
    4: np.dtype(np.uint16), 5: np.dtype(np.int16), 12: np.dtype(np.uint32), 13: np.dtype(np.uint64),
    _BF16: np.dtype(np.uint16),
}  # fmt: skip
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}


class TensorInfo(NamedTuple):
    """What an input or an output is."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Latencies(NamedTuple):
    """Milliseconds of inferences."""

    p50: float
    p90: float
    p99: float
    mean: float
    min: float
    runs: int


class Model:
    """A compiled model with memory and threads of its own.

    One thread at a time may call a model; other Python threads run meanwhile. Load a file twice to run it in two
    threads at once.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        if threads is not None and threads < 0:
            raise ArgumentError(f"a model has at least one thread, not {threads}")
        self.path = os.path.abspath(path)
        handle = ctypes.c_void_p()
        native.load(os.fsencode(path), threads or 0, ctypes.byref(handle))
        self._handle = handle
        self._variant_count = native.variant_count(handle)
        self._free = weakref.finalize(self, native.free, handle)
        self._describe()

    def _describe(self) -> None:
        """Reads what the selected variant takes and gives."""
        self.inputs = self._tensors(native.input_count, native.input_tensor)
        self.outputs = self._tensors(native.output_count, native.output_tensor)
        # The numbers of types as the library has them: two of them are one type of NumPy's.
        self._numbers = {info.name: self._type(i) for i, info in enumerate(self.inputs)}

    def _tensors(self, count: Any, describe: Any) -> list[TensorInfo]:
        return [self._tensor(describe, i) for i in range(count(self._handle))]

    def _type(self, i: int) -> int:
        tensor = Tensor()
        native.input_tensor(self._handle, i, ctypes.byref(tensor))
        return int(tensor.type)

    def _tensor(self, describe: Any, i: int) -> TensorInfo:
        tensor = Tensor()
        describe(self._handle, i, ctypes.byref(tensor))
        shape = tuple(tensor.shape[: tensor.rank])
        return TensorInfo(tensor.name.decode(), _DTYPES[tensor.type], shape)

    @property
    def name(self) -> str:
        return str(native.name(self._handle).decode())

    @property
    def variants(self) -> list[str]:
        """What tells the variants of a model of several sizes from each other."""
        labels = (native.variant_label(self._handle, i) for i in range(self._variant_count))
        return [label.decode() for label in labels]

    def select(self, variant: int) -> None:
        """Selects a variant for `input`, `invoke` and `output`; `run` selects by the shapes of its inputs."""
        native.select(self._handle, variant)
        self._describe()

    def __repr__(self) -> str:
        def text(tensors: list[TensorInfo]) -> str:
            return ", ".join(f"{t.name}: {t.dtype.name}{list(t.shape)}" for t in tensors)

        return f"<Model {self.name}: {text(self.inputs)} -> {text(self.outputs)}>"

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """One inference on arrays by name: NumPy's, or any others that support DLPack or buffers.

        Of a model with several variants the one for the shapes of the inputs runs.
        """
        if not hasattr(inputs, "items"):
            raise ArgumentError("inputs are given by name, as in run({\"x\": array})")
        arrays = {name: self._array(name, value) for name, value in inputs.items()}
        values = (Value * max(len(arrays), 1))()
        shapes = []
        for value, (name, array) in zip(values, arrays.items()):
            shapes.append((ctypes.c_size_t * max(array.ndim, 1))(*array.shape))
            value.name, value.type, value.rank = name.encode(), self._number(name, array), array.ndim
            value.shape, value.data = shapes[-1], _address(array)
        results = ctypes.c_void_p()
        native.infer(self._handle, values, len(arrays), ctypes.byref(results))
        try:
            return dict(_result(results, i) for i in range(native.results_count(results)))
        finally:
            native.results_free(results)
            # The inference may have selected another variant.
            if self._variant_count > 1:
                self._describe()

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """As `run`, with the inputs in their order or by name; gives the array of the only output, or a tuple."""
        if len(arrays) > len(self.inputs):
            raise ArgumentError(f"the model takes {len(self.inputs)} inputs, and {len(arrays)} are given")
        given = {info.name: array for info, array in zip(self.inputs, arrays)}
        twice = given.keys() & named.keys()
        if twice:
            raise ArgumentError(f"inputs are given twice: {', '.join(sorted(twice))}")
        results = tuple(self.run({**given, **named}).values())
        return results[0] if len(results) == 1 else results

    def input(self, name: str | int) -> np.ndarray[Any, Any]:
        """The memory of an input of the selected variant: write to it, then `invoke`. No copy is made.

        `select` and `run` may select another variant: ask again then, as arrays of the earlier one are no inputs of it.
        """
        return self._memory(self.inputs, native.input, name)

    def output(self, name: str | int) -> np.ndarray[Any, Any]:
        """The memory of an output of the selected variant, which the next inference overwrites.

        `select` and `run` may select another variant: ask again then, as arrays of the earlier one are not written.
        """
        return self._memory(self.outputs, native.output, name)

    def invoke(self) -> None:
        """One inference on what the inputs hold."""
        native.invoke(self._handle)

    def bench(self, time_s: float = 1.0) -> Latencies:
        """Latencies of inferences on what the inputs hold."""
        native.invoke(self._handle)
        taken: list[float] = []
        end = time.perf_counter() + time_s
        while len(taken) < 5 or time.perf_counter() < end:
            start = time.perf_counter()
            native.invoke(self._handle)
            taken.append((time.perf_counter() - start) * 1e3)
        p50, p90, p99 = (float(np.percentile(taken, p)) for p in (50, 90, 99))
        return Latencies(p50, p90, p99, float(np.mean(taken)), min(taken), len(taken))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Copies the file of the model, which must still be where it was loaded from."""
        # Models that were loaded from a file of this name have it mapped: it must not change under them.
        unfinished = f"{os.fspath(path)}.{os.getpid()}.tmp"
        if not os.path.exists(self.path):
            raise LoadError(f"the file of the model, {os.fspath(self.path)}, is gone")
        try:
            shutil.copyfile(self.path, unfinished)
            os.replace(unfinished, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
            raise LoadError(f"cannot write {os.fspath(path)}: {error}") from error

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model has memory and threads of its own: pass its file, and load it there")

    def _memory(self, tensors: list[TensorInfo], where: Any, name: str | int) -> np.ndarray[Any, Any]:
        names = [t.name for t in tensors]
        if isinstance(name, str) and name not in names:
            raise ArgumentError(f"there is no `{name}`; there are {', '.join(names)}")
        i = names.index(name) if isinstance(name, str) else name
        if not -len(names) <= i < len(names):
            raise ArgumentError(f"there is no {i}; there are {len(names)}: {', '.join(names)}")
        i %= len(names)
        info = tensors[i]
        size = info.dtype.itemsize * int(np.prod(info.shape))
        memory = (ctypes.c_uint8 * size).from_address(where(self._handle, i))
        # The array keeps the model, whose memory it is.
        setattr(memory, "_model", self)
        return np.frombuffer(memoryview(memory), info.dtype).reshape(info.shape)

    def _array(self, name: str, value: Any) -> np.ndarray[Any, Any]:
        dlpack = not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")
        try:
            array = np.from_dlpack(value) if dlpack else np.asarray(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            advice = "; give an array of NumPy's, of bf16 the bits as uint16" if dlpack else ""
            raise ArgumentError(f"NumPy does not read input `{name}`: {error}{advice}") from error
        if isinstance(value, (bool, int, float, list, tuple)):
            # Numbers of Python have no type of their own.
            wanted = next((t.dtype for t in self.inputs if t.name == name), array.dtype)
            if not np.can_cast(array.dtype, wanted, "same_kind"):
                raise ArgumentError(f"input `{name}` is {wanted}, and numbers of type {array.dtype} are given")
            array = array.astype(wanted, copy=False)
        if array.dtype not in _NUMBERS:
            array = _usual(array)
        if array.dtype not in _NUMBERS:
            raise ArgumentError(f"input `{name}` has type {array.dtype}, which no model takes")
        # `ascontiguousarray` gives numbers an axis.
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def _number(self, name: str, array: np.ndarray[Any, Any]) -> int:
        number, own = _NUMBERS[array.dtype], self._numbers.get(name)
        return own if own is not None and _DTYPES[own] == _DTYPES[number] else number


def _usual(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values in the byte order of this machine, and bf16 of other packages as its bits."""
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _address(array: np.ndarray[Any, Any]) -> int:
    return array.ctypes.data


def _result(results: ctypes.c_void_p, i: int) -> tuple[str, np.ndarray[Any, Any]]:
    value = Value()
    native.result(results, i, ctypes.byref(value))
    shape, dtype = tuple(value.shape[: value.rank]), _DTYPES[value.type]
    array = np.empty(shape, dtype)
    if array.nbytes:
        ctypes.memmove(_address(array), value.data, array.nbytes)
    return value.name.decode(), array


def load(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Loads a file .tsm with a pool of so many threads; without a number, of as many as it was compiled for."""
    return Model(path, threads)
