"""What a program of a user does with both packages; `mypy --strict` finds nothing wrong."""

from __future__ import annotations

import numpy as np
import tunesmith
import tunesmith_runtime


def say(line: str) -> None:
    print(line)


def use(path: str) -> float:
    model: tunesmith_runtime.Model = tunesmith_runtime.load(path, threads=1)
    x = np.zeros(model.inputs[0].shape, model.inputs[0].dtype)
    model.input(0)[:] = model.run({"x": x})["y"]
    tuned: tunesmith.Model = tunesmith.tune(path, progress=say, threads=1, time="60s")
    tuned.save("tuned.tsm")
    print(tuned(x), tuned.report["gain"], tuned.explain()["layers"], tunesmith.check(path)["ok"])
    chosen = tunesmith_runtime.Selector({"a": abs, "b": lambda v: max(v, -v)}, key=type)
    print(chosen(-3), chosen.report()["keys"], model.variants[0])
    return model.bench(time_s=0.1).p50
