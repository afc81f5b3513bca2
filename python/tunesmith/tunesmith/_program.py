"""The compiler, which is a program in this package.

It runs as a process of its own: a candidate that crashes, or a model that takes too much memory, ends no Python. Python
threads run meanwhile. Ctrl-C ends a search in an orderly way, and the model that was found so far is written.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import tunesmith_runtime
from tunesmith_runtime import TunesmithError

_HERE = Path(__file__).parent


class CompileError(TunesmithError):
    """What the compiler could not do: its words, and its advice."""


class Model(tunesmith_runtime.Model):
    """A compiled model, and what the compiler knows of it.

    `report` is what `compile` or `tune` said; nothing where a file was loaded.
    """

    def __init__(self, path: str | os.PathLike[str], threads: int | None = None) -> None:
        super().__init__(path, threads)
        self.report: dict[str, Any] = {}

    def explain(self, **options: Any) -> dict[str, Any]:
        """Where the time of this model goes, layer by layer. Its file must still be where it was loaded from."""
        return explain(self.path, **options)


def load(path: str | os.PathLike[str], threads: int | None = None) -> Model:
    """Loads a file .tsm with a pool of so many threads; without a number, of as many as it was compiled for."""
    return Model(path, threads)


def program() -> str:
    """The path of the program `tunesmith`: that of this package, or the one that TUNESMITH_PROGRAM names."""
    return os.environ.get("TUNESMITH_PROGRAM", str(_HERE / "bin" / "tunesmith"))


def main() -> NoReturn:
    """The command `tunesmith` of the shell: this process becomes the program."""
    os.execv(program(), [program(), *sys.argv[1:]])


def _flags(options: dict[str, Any]) -> list[str]:
    """`time="60s"` is `--time 60s`; `defaults=True` is `--defaults`; a list gives the flag again and again."""
    flags = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        values = value if isinstance(value, (list, tuple)) else [value]
        for one in values:
            if one is True:
                flags.append(flag)
            elif one is not None and one is not False:
                flags += [flag, str(one)]
    return flags


def _call(command: list[str], progress: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Runs the program; the object that it prints. `progress` gets the lines that it says meanwhile."""
    with subprocess.Popen(
        [program(), *command, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        # Ctrl-C goes to this process alone, which passes it on once.
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = process.stderr
        said: list[str] = []
        failed: list[BaseException] = []

        def listen() -> None:
            # To the end, whatever the caller's function does: the program waits for a reader.
            for line in lines:
                said.append(line)
                if progress is not None and not failed:
                    try:
                        progress(line.rstrip("\n"))
                    except BaseException as error:
                        failed.append(error)

        listener = threading.Thread(target=listen)
        listener.start()
        interrupted = False
        while True:
            try:
                printed = process.stdout.read()
                process.wait()
                break
            except KeyboardInterrupt:
                process.send_signal(signal.SIGKILL if interrupted else signal.SIGINT)
                interrupted = True
        listener.join()
    if failed:
        raise failed[0]
    if interrupted and not printed.strip():
        raise KeyboardInterrupt
    # A command that was stopped, and one whose result is bad, print their results all the same.
    if not printed.strip():
        words = "".join(said).strip()
        raise CompileError(words.removeprefix("error: ") or f"ended with status {process.returncode}")
    return cast(dict[str, Any], json.loads(printed))


def _made(command: str, model: str | os.PathLike[str], out: Any, options: dict[str, Any], progress: Any) -> Model:
    folder = None if out is not None else tempfile.mkdtemp(prefix="tunesmith-")
    path = out if folder is None else os.path.join(folder, "model.tsm")
    try:
        report = _call([command, os.fspath(model), "--out", os.fspath(path), *_flags(options)], progress)
        compiled = load(path, options.get("threads"))
    except BaseException:
        _remove(folder)
        raise
    # Without `out` the file lives as long as the model.
    weakref.finalize(compiled, _remove, folder)
    compiled.report = report
    return compiled


def _remove(folder: str | None) -> None:
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def compile(model: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, **options: Any) -> Model:
    """Compiles an ONNX file or a built-in model with the best known kernels, or with defaults; measures nothing.

    Options have the names of the flags of `tunesmith compile`, but for `--emit`: `threads=2`, `batch=8`, `dim=["seq=128"]`,
    `defaults=True`. With `out` the compiled model stays in that file; `model.save` writes it later. `model.report` is
    what the command says.
    """
    return _made("compile", model, out, options, None)


def tune(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Model:
    """Searches for the fastest kernels, and compiles the model with them.

    Options are those of `tunesmith tune`: `time="60s"`, `trials=100`, `threads=1`. `progress` is called with every line
    that the search says. `model.report` has the gain, the tasks and the energy.
    """
    if progress is not None:
        options["progress"] = True
    return _made("tune", model, out, options, progress)


def check(model: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Compares every step of the compiled model with plain references; `ok` says whether all agree."""
    return _call(["check", os.fspath(model), *_flags(options)])


def explain(model: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """Where the time of a model or of a compiled model goes, layer by layer."""
    return _call(["explain", os.fspath(model), *_flags(options)])


def info(file: str | os.PathLike[str]) -> dict[str, Any]:
    """What a file is and what is in it: a model, a compiled model, or a store of records.

    The shape of an input or output is a list: `[1, 3]`, or `["batch", 3]` where a size is open. It is None where the
    file does not say.
    """
    return _call(["info", os.fspath(file)])
