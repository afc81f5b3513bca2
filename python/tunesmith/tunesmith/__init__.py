"""Auto-tuning compiler for deep-learning models.

>>> import tunesmith
>>> model = tunesmith.compile("op:dense(m=4,n=32,k=16)", threads=1)
>>> model(x).shape
(4, 32)
>>> tuned = tunesmith.tune("op:dense(m=4,n=32,k=16)", threads=1, trials=3)
>>> tuned.report["trials"]
3
>>> tunesmith.check("op:dense(m=4,n=32,k=16)", threads=1)["ok"]
True
"""

from tunesmith_runtime import (
    ArgumentError,
    BusyError,
    Latencies,
    LoadError,
    Model,
    RunError,
    TensorInfo,
    TunesmithError,
    __version__,
    load,
)

from ._program import CompileError, check, compile, explain, info, program, tune

__all__ = [
    "ArgumentError",
    "BusyError",
    "CompileError",
    "Latencies",
    "LoadError",
    "Model",
    "RunError",
    "TensorInfo",
    "TunesmithError",
    "check",
    "compile",
    "explain",
    "info",
    "load",
    "program",
    "tune",
]
