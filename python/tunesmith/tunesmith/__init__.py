"""Auto-tuning compiler for deep-learning models.

>>> import tunesmith
>>> model = tunesmith.compile("op:dense(m=4,n=32,k=16)", threads=1)
>>> model(x).shape
(4, 32)
>>> tuned = tunesmith.tune("op:dense(m=4,n=32,k=16)", threads=1, trials=3)
>>> tuned.report["trials"]
3
>>> tuned.save(folder + "/tuned.tsm")
>>> len(tunesmith.load(folder + "/tuned.tsm").explain()["layers"])
1
>>> tunesmith.check("op:dense(m=4,n=32,k=16)", threads=1)["ok"]
True
"""

from tunesmith_runtime import (
    ArgumentError,
    BusyError,
    Latencies,
    LoadError,
    RunError,
    TensorInfo,
    TunesmithError,
    __version__,
)

from ._program import CompileError, Model, check, compile, explain, info, load, program, tune

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
