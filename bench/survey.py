#!/usr/bin/env python3
"""Joules until a model has given latencies: under several budgets, tuners and filters.

Every run has a store of its own, or a copy of one that exists, and an empty cache of objects. A network `cold.network` in the folder of --out is what the
filter cold uses. A run's curve says the joules of the command when its kernels became faster. Joules to a
latency are those of the first moment at which the sum of the kernels is as low. A latency that a run never reached has none. A second table compares every run
with `parallel` (or the first run): joules until the worse of both final latencies, under each curve of power at the run's mean power.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TUNERS = "evolutionary,annealing,genetic,random"
RUNS = {
    "promise": [],
    "gradient": ["--budget", "gradient"],
    "survey": ["--budget", "survey"],
    "parallel": ["--budget", "round-robin", "--tuners", TUNERS],
    "survey of tuners": ["--budget", "survey", "--tuners", TUNERS],
    "parallel on two sets": ["--budget", "round-robin", "--tuners", TUNERS, "--core-sets", "2"],
    "survey on two sets": ["--budget", "survey", "--tuners", TUNERS, "--core-sets", "2"],
    "cold": ["--filter", "cold", "--audit", "0.05"],
    "chance": ["--filter", "chance"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Options of tune follow behind --.")
    parser.add_argument("model")
    parser.add_argument("--program", default="target/release/tunesmith")
    parser.add_argument("--runs", default=",".join(RUNS), help="of " + ", ".join(RUNS))
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for stores and reports")
    parser.add_argument("--store", type=pathlib.Path, help="what every run knows when it begins")
    parser.add_argument("--gains", default="1.01,1.02,1.05,1.1", help="latencies, as gains over the defaults")
    own, options = split(sys.argv[1:])
    args = parser.parse_args(own)
    args.options = options
    args.out.mkdir(parents=True, exist_ok=True)
    gains = [float(g) for g in args.gains.split(",")]
    print("| run | candidates | s | J | ms | " + " | ".join(f"J to {g}x" for g in gains) + " |")
    print("|---|" + "---|" * (4 + len(gains)))
    reports = {}
    for name in args.runs.split(","):
        reports[name] = tuned(name, args)
        start_ms = next(iter(reports.values()))["curve"][0]["ms"]
        print(row(name, reports[name], gains, start_ms), flush=True)
    print("\n".join(at_equal_latency(reports)))


def split(words):
    """Own options, and behind -- those of tune."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def tuned(name, args):
    """The report of a run, with a new store."""
    slug = name.replace(" ", "-")
    store, kept = args.out / f"{slug}.sqlite", args.out / f"{slug}.json"
    for old in args.out.glob(f"{slug}.sqlite*"):
        old.unlink()
    if args.store:
        shutil.copy(args.store, store)
    command = [args.program, "tune", args.model, "--json", "--store", store, "--out", args.out / f"{slug}.tsm"]
    # Objects that an earlier run built would make this one cheaper.
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [*command, *RUNS[name], *args.options],
            capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": cache},
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{name}: {done.stderr}")
    kept.write_text(done.stdout)
    return json.loads(done.stdout)


def row(name, report, gains, start_ms):
    joules = report["energy"]["by"][-1]["joules"]
    survey = report["survey"] or [{"trials": report["trials"]}]
    trials = sum(s["trials"] for s in survey)
    to = [reached(report["curve"], start_ms / gain) for gain in gains]
    cells = [name, trials, f"{report['wall_s']:.0f}", f"{joules:.0f}", f"{report['latency_after_ms']:.2f}"]
    return "| " + " | ".join(map(str, cells + to)) + " |"


def at_equal_latency(reports):
    """Rows that compare every run with one of them at the worse of both final latencies: joules of both, and what is saved under each curve."""
    base = "parallel" if "parallel" in reports else next(iter(reports))
    yield f"\n| run | ms | J | J of {base} | saved |\n|---|---|---|---|---|"
    for name, report in reports.items():
        if name == base:
            continue
        both = [report, reports[base]]
        ms = max(min(m["ms"] for m in r["curve"]) for r in both)
        used = [[joules_to(r, ms, by) for by in r["energy"]["by"]] for r in both]
        saved = dict.fromkeys(f"{1 - own / other:+.0%}" for own, other in zip(*used))
        cells = [name, f"{ms:.2f}", *(" or ".join(dict.fromkeys(f"{j:.0f}" for j in of)) for of in used), " or ".join(saved)]
        yield "| " + " | ".join(cells) + " |"


def joules_to(report, ms, by):
    """Joules of the first moment that is as low, under one curve of power. The moments of a run have joules under the one that says most."""
    joules = next(m["joules"] for m in report["curve"] if m["ms"] <= ms)
    return joules * by["joules"] / max(b["joules"] for b in report["energy"]["by"])


def reached(curve, ms):
    """Joules of the first moment of a curve that is as low."""
    joules = [m["joules"] for m in curve if m["ms"] <= ms]
    return f"{joules[0]:.0f}" if joules else "-"


if __name__ == "__main__":
    main()
