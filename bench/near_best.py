#!/usr/bin/env python3
"""Candidates that `tune` measures until it is near the best: without reading, with seeds, with the filter.

Each model is tuned with every variant and seed, in turns, from an empty store and an empty object
cache. A kernel costs the least of its medians in all runs. The best kernel of all runs is what the
variants are compared with.
"""

import argparse
import collections
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import program, report
from harness.report import say

VARIANTS = {
    "neither": (False, False),
    "seeds": (True, False),
    "filter": (False, True),
    "both": (True, True),
}


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--trials", type=int, default=60, help="of each run [default: 60]")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each variant [default: 3]")
    parser.add_argument("--read-time", default="3s", help="for seeds [default: 3s]")
    parser.add_argument("--threads", type=int, default=1, help="of the kernels [default: 1]")
    parser.add_argument("--within", type=float, default=0.02, help="what is near [default: 0.02]")
    parser.add_argument("--out", type=Path, help="file for what was measured, as JSON")
    return parser.parse_args()


def tuned(model, variant, seed, args):
    """The measured kernels of one run, in their order: task, uses, code, cost, seconds since the start."""
    seeds, sifts = VARIANTS[variant]
    with tempfile.TemporaryDirectory() as folder:
        # Else the objects of one variant would be ready for the next one.
        os.environ["XDG_CACHE_HOME"] = folder
        store = Path(folder) / "store.sqlite"
        done = program.call_json(
            "tune", model, "--threads", args.threads, "--trials", args.trials, "--seed", seed,
            "--store", store, "--out", Path(folder) / "tuned.tsm",
            "--read-time", args.read_time if seeds else "0s",
            *(["--filter", "score"] if sifts else []),
            "--compare-time", "100ms", "--in-model-time", "0s",
        )  # fmt: skip
        records = program.call_json("records", "--store", store)["records"]
    uses = {t["key"]: t["uses"] for t in done["tasks"]}
    measured = [r for r in records if not r["final"] and r["median_ns"]]
    measured.sort(key=lambda r: (r["created_unix_ms"], r["trial"]))
    start = int(measured[0]["run_id"].split("-")[0])
    return [
        {
            "task": r["task"],
            "uses": uses[r["task"]],
            "code": r["code_hash"],
            "ns": r["median_ns"],
            "s": (r["created_unix_ms"] - start) / 1e3,
        }
        for r in measured
    ]


def curve(run, costs):
    """After each measured kernel of a run: seconds, and what all tasks take with the best so far."""
    best, points = {}, []
    for m in run:
        task = m["task"]
        best[task] = min(best.get(task, math.inf), costs[task, m["code"]] * m["uses"])
        points.append((m["s"], best.copy()))
    total = [(s, sum(b.values()) if len(b) == len(best) else math.inf) for s, b in points]
    return total


def reached(run, costs, limit):
    """Kernels and seconds until a run has got there; infinite if it does not."""
    for n, (s, cost) in enumerate(curve(run, costs), 1):
        if cost <= limit:
            return n, s
    return math.inf, math.inf


def compared(runs, within):
    """Of each variant: median kernels and seconds until it is near the best, runs that get there, and by how much
    its runs end above the best."""
    costs = collections.defaultdict(lambda: math.inf)
    uses = {}
    for m in (m for of_variant in runs.values() for run in of_variant for m in run):
        key = m["task"], m["code"]
        costs[key] = min(costs[key], m["ns"])
        uses[m["task"]] = m["uses"]
    least = sum(n * min(c for (t, _), c in costs.items() if t == task) for task, n in uses.items())
    rows = {}
    for variant, of_variant in runs.items():
        near = [reached(run, costs, (1 + within) * least) for run in of_variant]
        ends = [curve(run, costs)[-1][1] / least - 1 for run in of_variant]
        rows[variant] = {
            "kernels": statistics.median(n for n, _ in near),
            "s": statistics.median(s for _, s in near),
            "reached": sum(n < math.inf for n, _ in near),
            "above": statistics.median(ends),
        }
    return rows


def table(results, args):
    lines = []
    for model, runs in results.items():
        rows = compared(runs, args.within)
        for variant, r in rows.items():
            of = f"{r['reached']} of {len(runs[variant])}"
            lines.append([model, variant, f"{r['kernels']}", f"{r['s']:.1f}", of, f"{r['above']:.1%}"])
    return report.markdown_table(
        ["model", "variant", "kernels", "seconds", "reached", "above the best in the end"], lines
    )


def main():
    args = flags()
    results = {m: {v: [] for v in VARIANTS} for m in args.models}
    for seed in range(1, args.seeds + 1):
        for model in args.models:
            for variant in VARIANTS:
                say(f"{model}, {variant}, seed {seed}")
                results[model][variant].append(tuned(model, variant, seed, args))
                if args.out:
                    args.out.write_text(json.dumps(results) + "\n")
    print(table(results, args), end="")


if __name__ == "__main__":
    try:
        main()
    except program.Failure as error:
        sys.exit(f"error: {error}")
