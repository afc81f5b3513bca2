"""Choosing among callables of the program while it runs."""

from __future__ import annotations

import ctypes
import json
import os
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ._native import LoadError, Settings, native

_DONE, _FAILED, _DISCARDED = range(3)


def _size(value: Any) -> Any:
    if hasattr(value, "shape"):
        return (str(getattr(value, "dtype", "")), tuple(value.shape))
    name = type(value).__name__
    return (name, len(value)) if hasattr(value, "__len__") else name


def sizes(*arguments: Any, **named: Any) -> Any:
    """The usual key: type and shape of arrays, type and length of what has a length, and the type of others."""
    return (*map(_size, arguments), *((name, _size(value)) for name, value in sorted(named.items())))


class Selector:
    """Several callables that do the same; a call runs one of them and gives what it gives.

    For each key, which is whatever can change the winner, the callables run in turns, and calls that the program makes
    anyway are timed. After some rounds the fastest is kept. A callable that raises an error is not tried again for this
    key while another one is left; the error is passed on. The first callable is the default.

    Threads may call one selector at once. Selectors may call selectors. A callable has done its work when it returns:
    one that leaves work to a device has to wait for it.

    `decisions` names a file of an earlier run: keys that it knows start decided. A file of another machine or `version`
    is not used, and a warning says so.
    """

    def __init__(
        self,
        alternatives: Mapping[str, Callable[..., Any]],
        *,
        key: Callable[..., Any] = sizes,
        name: str = "selector",
        decisions: str | os.PathLike[str] | None = None,
        version: str = "",
        rounds: int | None = None,
        prune_speedup: float | None = None,
        prune_after: int | None = None,
        margin: float | None = None,
    ) -> None:
        settings = Settings()
        native.selector_defaults(ctypes.byref(settings))
        given = {"rounds": rounds, "prune_speedup": prune_speedup, "prune_after": prune_after, "margin": margin}
        for field, value in given.items():
            if value is not None:
                setattr(settings, field, value)
        settings.version = _text(version)
        names = (ctypes.c_char_p * max(len(alternatives), 1))(*map(_text, alternatives))
        handle = ctypes.c_void_p()
        native.selector_new(_text(name), names, len(alternatives), ctypes.byref(settings), ctypes.byref(handle))
        self._handle = handle
        self._free = weakref.finalize(self, native.selector_free, handle)
        self._callables, self._key = list(alternatives.values()), key
        if decisions is not None and os.path.exists(decisions):
            try:
                native.selector_load(handle, os.fsencode(decisions))
            except LoadError as refused:
                warnings.warn(str(refused), stacklevel=2)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        key = self._key(*arguments, **named)
        call, at = ctypes.c_void_p(), ctypes.c_size_t()
        native.selector_begin(self._handle, _text(key), ctypes.byref(call), ctypes.byref(at))
        outcome = _DISCARDED
        try:
            result = self._callables[at.value](*arguments, **named)
            outcome = _DONE
            return result
        except Exception:
            outcome = _FAILED
            raise
        finally:
            native.selector_end(self._handle, call, outcome)

    def report(self) -> dict[str, Any]:
        """What was found so far: for each key what was decided, and the samples and the median of each callable."""
        text = ctypes.c_void_p()
        native.selector_report(self._handle, ctypes.byref(text))
        try:
            found: dict[str, Any] = json.loads(ctypes.string_at(text))
            return found
        finally:
            native.text_free(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes what was decided. Decisions of selectors with other names stay in the file, if they hold here."""
        native.selector_save(self._handle, os.fsencode(path))


def _text(of: Any) -> bytes:
    text = of if isinstance(of, str) else repr(of)
    return text.replace("\0", "\\0").encode(errors="backslashreplace")
