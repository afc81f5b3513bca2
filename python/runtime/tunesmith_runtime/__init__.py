"""Runs models that Tunesmith compiled, and chooses among callables of the program while it runs.

>>> import math, tunesmith_runtime
>>> model = tunesmith_runtime.load(path, threads=1)
>>> [(t.name, t.dtype.name, t.shape) for t in model.inputs]
[('x', 'float32', (4, 16))]
>>> y = model(x)
>>> y.shape
(4, 32)
>>> sorted(model.run({"x": x}))
['y']
>>> total = tunesmith_runtime.Selector({"exact": math.fsum, "plain": sum})
>>> all(total(range(1000)) == 499500 for _ in range(50))
True
>>> [k["key"] for k in total.report()["keys"]]
["(('range', 1000),)"]
"""

from ._model import Latencies, Model, TensorInfo, load
from ._native import ArgumentError, BusyError, LoadError, RunError, TunesmithError, version
from ._selector import Selector, sizes

__version__ = version()
__all__ = [
    "ArgumentError",
    "BusyError",
    "Latencies",
    "LoadError",
    "Model",
    "RunError",
    "Selector",
    "TensorInfo",
    "TunesmithError",
    "load",
    "sizes",
]
