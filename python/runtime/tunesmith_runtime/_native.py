"""The C interface of the runtime, as `tunesmith_runtime.h` declares it."""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_size_t, c_uint32, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any


class TunesmithError(Exception):
    """Something that Tunesmith could not do; the text says why."""


class ArgumentError(TunesmithError, ValueError):
    """An argument that cannot be taken."""


class LoadError(TunesmithError, OSError):
    """A file that is missing, damaged, of another machine or version, or cannot be written."""


class RunError(TunesmithError, RuntimeError):
    """A step of the model failed, or an input does not fit."""


class BusyError(TunesmithError, RuntimeError):
    """Another thread is in a call with this model."""


_ERRORS = {1: ArgumentError, 2: LoadError, 3: RunError, 4: BusyError}


class Tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_size_t),
        ("shape", POINTER(c_size_t)),
        ("bytes", c_size_t),
    ]


class Value(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_size_t),
        ("shape", POINTER(c_size_t)),
        ("data", c_void_p),
    ]


class Settings(Structure):
    _fields_ = [
        ("rounds", c_size_t),
        ("prune_speedup", c_double),
        ("prune_after", c_size_t),
        ("margin", c_double),
        ("version", c_char_p),
    ]


def _library() -> ctypes.CDLL:
    """The library in this package; for developers, one that a variable of the environment names."""
    own = Path(__file__).with_name("libtunesmith_runtime.so")
    return ctypes.CDLL(os.environ.get("TUNESMITH_RUNTIME_LIBRARY", str(own)))


_FUNCTIONS = {
    "version": (c_char_p, []),
    "error": (c_char_p, []),
    "load": (c_int32, [c_char_p, c_uint32, POINTER(c_void_p)]),
    "free": (None, [c_void_p]),
    "name": (c_char_p, [c_void_p]),
    "input_count": (c_size_t, [c_void_p]),
    "output_count": (c_size_t, [c_void_p]),
    "input_tensor": (c_int32, [c_void_p, c_size_t, POINTER(Tensor)]),
    "output_tensor": (c_int32, [c_void_p, c_size_t, POINTER(Tensor)]),
    "variant_count": (c_size_t, [c_void_p]),
    "variant_label": (c_char_p, [c_void_p, c_size_t]),
    "select": (c_int32, [c_void_p, c_size_t]),
    "input": (c_void_p, [c_void_p, c_size_t]),
    "output": (c_void_p, [c_void_p, c_size_t]),
    "invoke": (c_int32, [c_void_p]),
    "infer": (c_int32, [c_void_p, POINTER(Value), c_size_t, POINTER(c_void_p)]),
    "results_count": (c_size_t, [c_void_p]),
    "result": (c_int32, [c_void_p, c_size_t, POINTER(Value)]),
    "results_free": (None, [c_void_p]),
    "selector_defaults": (None, [POINTER(Settings)]),
    "selector_new": (c_int32, [c_char_p, POINTER(c_char_p), c_size_t, POINTER(Settings), POINTER(c_void_p)]),
    "selector_free": (None, [c_void_p]),
    "selector_begin": (c_int32, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t)]),
    "selector_end": (c_int32, [c_void_p, c_void_p, c_int32]),
    "selector_report": (c_int32, [c_void_p, POINTER(c_void_p)]),
    "selector_load": (c_int32, [c_void_p, c_char_p]),
    "selector_save": (c_int32, [c_void_p, c_char_p]),
    "text_free": (None, [c_void_p]),
}


class _Native:
    """Functions of the library without their prefix; those that give a status raise errors."""

    def __init__(self) -> None:
        library = _library()
        for name, (gives, takes) in _FUNCTIONS.items():
            function = getattr(library, f"tunesmith_{name}")
            function.restype, function.argtypes = gives, takes
            if gives is c_int32:
                function.errcheck = self._check
            setattr(self, name, function)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _check(self, status: int, _function: object, _arguments: object) -> int:
        if status:
            raise _ERRORS.get(status, TunesmithError)(self.error().decode())
        return status


native = _Native()


def version() -> str:
    return str(native.version().decode())
