#!/usr/bin/env python3
"""Tuning that runs no candidate, by reading and by simulating, against tuning by measurement.

Each model is tuned in each way for the same time from an empty store; in the first two only the best
candidates are timed in the end. Then the compiled models run in turns.
"""

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import program, report
from harness.report import say

WAYS = {
    "default": None,
    "static": ["--evaluate", "static"],
    "simulate": ["--evaluate", "simulate"],
    "timed": [],
}


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--time", default="15s", help="of tuning [default: 15s]")
    parser.add_argument("--rounds", type=int, default=5, help="of slices in turns [default: 5]")
    parser.add_argument("--slice", default="300ms", help="of running [default: 300ms]")
    parser.add_argument("--threads", type=int, default=1, help="of the kernels [default: 1]")
    parser.add_argument("--target", default="host", help="of the kernels [default: host]")
    parser.add_argument("--predictor", help="file of `simulate train`, for simulating")
    return parser.parse_args()


def made(model, way, folder, args):
    """The compiled model of one way."""
    out = Path(folder) / f"{way}.tsm"
    common = ["--threads", args.threads, "--target", args.target, "--out", out]
    if WAYS[way] is None:
        program.call_json("compile", model, "--defaults", *common)
        return out
    predictor = ["--predictor", args.predictor] if args.predictor and way == "simulate" else []
    store = Path(folder) / f"{way}.sqlite"
    program.call_json(
        "tune", model, "--time", args.time, "--store", store, *WAYS[way], *predictor, *common
    )
    return out


def latencies(model, args):
    """The least latency of each way, in ms, over slices in turns."""
    with tempfile.TemporaryDirectory() as folder:
        artifacts = {way: made(model, way, folder, args) for way in WAYS}
        least = dict.fromkeys(WAYS, math.inf)
        for _ in range(args.rounds):
            for way, artifact in artifacts.items():
                run = program.call_json(
                    "bench", artifact, "--threads", args.threads, "--time", args.slice
                )
                least[way] = min(least[way], run["min_ms"])
    return least


def table(results):
    """A row a model, and geometric means of the latencies over that of timed tuning."""
    rows = [[model, *(f"{ms:.4f}" for ms in least.values())] for model, least in results.items()]
    over = {w: [least[w] / least["timed"] for least in results.values()] for w in WAYS}
    rows.append(["over timed", *(f"{statistics.geometric_mean(r):.3f}" for r in over.values())])
    return report.markdown_table(["least latency, ms", *WAYS], rows)


def main():
    args = flags()
    results = {}
    for model in args.models:
        say(model)
        results[model] = latencies(model, args)
        print(table(results), end="", flush=True)


if __name__ == "__main__":
    main()
