"""Runs models that Tunesmith compiled.

>>> import tunesmith_runtime
>>> model = tunesmith_runtime.load(path, threads=1)
>>> [(t.name, t.dtype.name, t.shape) for t in model.inputs]
[('x', 'float32', (4, 16))]
>>> y = model(x)
>>> y.shape
(4, 32)
>>> sorted(model.run({"x": x}))
['y']
"""

from ._model import Latencies, Model, TensorInfo, load
from ._native import ArgumentError, BusyError, LoadError, RunError, TunesmithError, version

__version__ = version()
__all__ = [
    "ArgumentError",
    "BusyError",
    "Latencies",
    "LoadError",
    "Model",
    "RunError",
    "TensorInfo",
    "TunesmithError",
    "load",
]
