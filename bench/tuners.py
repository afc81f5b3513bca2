#!/usr/bin/env python3
"""Strategies compared by real searches on this machine: under equal trials and under equal seconds.

A search is one `tune` of an operator or a model with a tuner and a seed, from an empty store and an empty object
cache. Tuners take turns. Finished searches stay in a folder, and the same command goes on from there. A kernel costs
the least of its medians in all searches of its operator, and the best kernel of all is what tuners are compared with.
"""

import argparse
import collections
import hashlib
import json
import math
import os
import statistics
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say

# Of 63 operators that were tuned for a minute (2-CPU virtual machine, AMD EPYC of family 26, AVX-512, one thread,
# commit 40d3286), the twelve whose tuned kernels gained the most over the defaults, 1.22 times and more. Two others
# gained as much, but have fewer candidates than a search has trials: max_pool2d and max_pool3d.
OPERATORS = (
    "op:dense(m=16,n=32000,k=1024)",
    "op:depthwise_conv2d(c=512,h=14,w=14)",
    "op:conv2d_transpose(c=128,h=128,w=128,k=64,r=3,s=3,stride=2,output_pad=1)",
    "op:depthwise_conv2d(c=240,h=14,w=14,r=5,s=5)",
    "op:conv3d(c=256,d=4,h=14,w=14,k=256)",
    "op:conv2d(c=16,h=32,w=32,k=32,r=5,s=5)",
    "op:depthwise_conv2d(c=96,h=112,w=112,stride=2)",
    "op:batch_matmul(b=8,m=1,k=64,n=1024)",
    "op:depthwise_conv2d(c=192,h=28,w=28,r=7,s=7)",
    "op:conv2d(c=3,h=224,w=224,k=32,stride=2)",
    "op:grouped_conv2d(c=256,h=28,w=28,k=256,groups=32)",
    "op:conv2d(c=3,h=384,w=384,k=64,r=7,s=7,stride=2)",
)
# What a tuner may have beside its strategy, as in `evolutionary+read+score`, and the options that it stands for.
ADDITIONS = {
    "read": ("--read-time", "3s"),
    "score": ("--filter", "score"),
    "columns": ("--learn-loops", "on"),
    "network": ("--learner", "network"),
    "noise": ("--learner", "random"),
}
STARTS = ("defaults", "random")
WITHIN = (0.05, 0.02)
# Points of a curve over seconds.
MOMENTS = 60
HEADER = [
    "tuner", "searches", "equal trials", "equal s",
    *(f"{c} to {w:.0%}" for w in WITHIN for c in ("trials", "s", "reached")),
    "trials/s", "search", "build", "measure", "idle",
]  # fmt: skip


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--operators", nargs="+", metavar="MODEL", default=OPERATORS, help="[default: twelve]")
    add(
        "--strategies", default="evolutionary,funnel,annealing,genetic,droplet,random",
        help="tuners: a strategy, or one with additions joined by +, of read (candidates are read for 3 s "
        "before any is measured), score (the filter), columns (--learn-loops on), network and noise (--learner) [default: %(default)s]",
    )  # fmt: skip
    add("--seeds", type=int, default=3, help="searches of each, with the seeds 1, 2, ... [default: 3]")
    add("--trials", type=int, default=64, help="of each search [default: 64]")
    add("--start", default="defaults", help="of defaults,random: from where [default: defaults]")
    add("--threads", type=int, default=1, help="of the kernels [default: 1]")
    add("--share", type=float, default=1.0, help="of the operators and seeds, the first ones [default: 1]")
    add("--folder", type=Path, help="for finished searches [default: target/bench/tuners]")
    add("--name", default="tuners", help="of the report [default: tuners]")
    return parser.parse_args()


def options_of(tuner):
    """The options of `tune` that a tuner stands for."""
    strategy, *additions = tuner.split("+")
    unknown = [a for a in additions if a not in ADDITIONS]
    if unknown:
        raise Failure(f"`{unknown[0]}` is no addition: name some of {', '.join(ADDITIONS)}")
    # Else a run that is limited by trials would read as well.
    chosen = {"--read-time": "0s"} | dict(ADDITIONS[a] for a in additions)
    return ["--strategy", strategy, *(word for pair in chosen.items() for word in pair)]


def tuned(model, start, tuner, seed, args):
    """The candidates of one search in their order, and the CPU seconds of its parts."""
    with tempfile.TemporaryDirectory() as folder:
        # Else the objects of one search would be ready for the next one.
        os.environ["XDG_CACHE_HOME"] = folder
        store = Path(folder) / "store.sqlite"
        done = program.call_json(
            "tune", model, "--threads", args.threads, "--trials", args.trials, "--seed", seed,
            "--store", store, "--out", Path(folder) / "tuned.tsm", "--start", start,
            *options_of(tuner), "--compare-time", "100ms", "--in-model-time", "0s",
        )  # fmt: skip
        records = program.call_json("records", "--store", store)["records"]
    uses = {t["key"]: t["uses"] for t in done["tasks"]}
    return searched([r for r in records if not r["final"]], uses)


def searched(records, uses):
    """What is kept of a search's records."""
    records = sorted(records, key=lambda r: (r["created_unix_ms"], r["trial"]))
    if not records:
        raise Failure("nothing was measured")
    start = int(records[0]["run_id"].split("-")[0])
    trials = [
        {
            "task": r["task"],
            "uses": uses[r["task"]],
            "code": r["code_hash"],
            "ns": r["median_ns"],
            "s": (r["created_unix_ms"] - start) / 1e3,
        }
        for r in records
    ]
    cpu_s = lambda *stages: sum(r["costs"][s].get("cpu_ns") or 0 for r in records for s in stages) / 1e9
    parts = {
        "search": cpu_s("search"),
        "build": cpu_s("build"),
        "measure": cpu_s("load", "check", "measure"),
    }
    return {"trials": trials, "parts": parts}


def costs_of(searches):
    """What each kernel of a model costs, and the least that all its tasks together can cost."""
    costs = collections.defaultdict(lambda: math.inf)
    uses = {}
    for t in (t for s in searches for t in s["trials"] if t["ns"]):
        key = t["task"], t["code"]
        costs[key] = min(costs[key], t["ns"])
        uses[t["task"]] = t["uses"]
    least = sum(n * min(c for (t, _), c in costs.items() if t == task) for task, n in uses.items())
    return costs, least


def curve(search, costs, least):
    """After each trial of a search: seconds, and what all tasks take with the best so far, over the least."""
    tasks = {t["task"] for t in search["trials"]}
    best, points = {}, []
    for t in search["trials"]:
        if t["ns"]:
            cost = costs[t["task"], t["code"]] * t["uses"]
            best[t["task"]] = min(best.get(t["task"], math.inf), cost)
        known = len(best) == len(tasks)
        points.append((t["s"], sum(best.values()) / least if known else math.inf))
    return points


def reached(points, within):
    """Trials and seconds until a curve is so near the best; infinite if it never is."""
    for n, (s, ratio) in enumerate(points, 1):
        if ratio <= 1 + within:
            return n, s
    return math.inf, math.inf


def at_trial(points, n):
    return points[min(n, len(points)) - 1][1]


def at_second(points, s):
    """The ratio after so many seconds; infinite before the first answer."""
    return min((ratio for at, ratio in points if at <= s), default=math.inf)


def between_seeds(ratios):
    """The standard deviation of the logarithms about the mean of their operator; None of single seeds."""
    logs = [[math.log(r) for r in of] for of in ratios.values() if len(of) > 1]
    freedom = sum(len(of) - 1 for of in logs)
    squares = sum((v - statistics.fmean(of)) ** 2 for of in logs for v in of)
    return math.sqrt(squares / freedom) if freedom else None


def summary(ratios):
    """Geometric mean and spread of the ratios of each operator; the mean is infinite if one is."""
    everything = [r for of in ratios.values() for r in of]
    finite = all(map(math.isfinite, everything))
    return {
        "mean": slices.geometric_mean(everything) if finite else math.inf,
        "spread": between_seeds(ratios) if finite else None,
    }


def known_costs(searches):
    """For each model what `costs_of` says of all its searches, whose keys begin with the model."""
    of_model = collections.defaultdict(list)
    for (model, *_), search in searches:
        of_model[model].append(search)
    return {model: costs_of(own) for model, own in of_model.items()}


def compared(searches, known, tuners, trials, cpus):
    """For each tuner its row and its curves.

    `searches` has a search for each (model, seed, tuner); all tuners have the same models and seeds. Seconds are equal
    for the tuners of one model and seed: see `equal_seconds`.
    """
    models = sorted({model for model, _, _ in searches})
    curves = {key: curve(s, *known[key[0]]) for key, s in searches.items()}
    of_group = collections.defaultdict(list)
    for (model, seed, _), points in curves.items():
        of_group[model, seed].append(points)
    ends = {group: equal_seconds(own, trials) for group, own in of_group.items()}
    rows = {}
    for tuner in tuners:
        own = {key[:2]: points for key, points in curves.items() if key[2] == tuner}
        by_model = lambda of: {m: [of(key) for key in own if key[0] == m] for m in models}
        row = {
            "searches": len(own),
            "trials": summary(by_model(lambda key: at_trial(own[key], trials))),
            "s": summary(by_model(lambda key: at_second(own[key], ends[key]))),
            "near": [near(own.values(), within) for within in WITHIN],
            "curves": {
                "trials": spread_curve(
                    range(1, trials + 1), lambda n: [at_trial(points, n) for points in own.values()]
                ),
                "share of the seconds": spread_curve(
                    [(i + 1) / MOMENTS for i in range(MOMENTS)],
                    lambda part: [at_second(points, part * ends[key]) for key, points in own.items()],
                ),
            },
        }
        rows[tuner] = row | rates([s for key, s in searches.items() if key[2] == tuner], cpus)
    return rows


def equal_seconds(curves, trials):
    """The seconds after which the first of these searches had its trials. Where all ran out of candidates before, those of
    the last one."""
    whole = [points[-1][0] for points in curves if len(points) >= trials]
    return min(whole) if whole else max(points[-1][0] for points in curves)


def near(curves, within):
    """How soon searches are near the best: medians, and how many get there."""
    found = [reached(points, within) for points in curves]
    return {
        "trials": statistics.median(n for n, _ in found),
        "s": statistics.median(s for _, s in found),
        "reached": sum(n < math.inf for n, _ in found),
    }


def spread_curve(xs, ratios_at):
    """(x, geometric mean, lower and upper quartile) from the x on where every search has an answer."""
    points = []
    for x in xs:
        ratios = ratios_at(x)
        if all(map(math.isfinite, ratios)):
            quartiles = statistics.quantiles(ratios, method="inclusive") if len(ratios) > 1 else ratios * 3
            points.append((x, slices.geometric_mean(ratios), quartiles[0], quartiles[2]))
    return points


def rates(searches, cpus):
    """Trials a second, and the parts of all CPUs' time; what no trial's record has counts as idle."""
    seconds = sum(s["trials"][-1]["s"] for s in searches)
    parts = {p: sum(s["parts"][p] for s in searches) / (seconds * cpus) for p in searches[0]["parts"]}
    trials = sum(len(s["trials"]) for s in searches)
    return {"trials_per_s": trials / seconds, "parts": parts | {"idle": 1 - sum(parts.values())}}


def cell(of):
    spread = f" ± {of['spread']:.1%}" if of["spread"] is not None else ""
    return f"{of['mean']:.3f}{spread}"


def table(rows):
    lines = []
    for tuner, r in sorted(rows.items(), key=lambda row: row[1]["trials"]["mean"]):
        how_near = [
            text
            for n in r["near"]
            for text in (f"{n['trials']:.0f}", f"{n['s']:.1f}", f"{n['reached']}")
        ]
        parts = [f"{100 * p:.0f}%" for p in r["parts"].values()]
        lines.append(
            [tuner, r["searches"], cell(r["trials"]), cell(r["s"]), *how_near, f"{r['trials_per_s']:.1f}", *parts]
        )
    return report.markdown_table(HEADER, lines)


def text(results, trials):
    """A table for each start, and what its columns are."""
    page = "".join(f"From {start}:\n\n{table(rows)}\n" for start, rows in results.items())
    return page + (
        f"*Equal trials* is the latency after {trials} trials over the best of all searches: the geometric mean, and "
        "the standard deviation between seeds. *Equal s* is the same after as many seconds as the first tuner took "
        "for its trials of this operator and seed. *To 5%* and *to 2%* are medians until a search is so near the best of "
        "all, and the number of searches that get there. *search*, *build*, *measure* and *idle* are parts of all CPUs' time. "
        "*search* has what strategies and filters take, models and features included.\n"
    )


def groups(args):
    """The (model, seed) that are searched by all tuners, in their order."""
    everything = [(m, seed) for seed in range(1, args.seeds + 1) for m in args.operators]
    return everything[: math.ceil(args.share * len(everything))]


def check_folder(folder, settings):
    """Refuses a folder whose searches were made with other settings or by another program."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "settings.json"
    if not kept.is_file():
        kept.write_text(json.dumps(settings) + "\n")
    elif json.loads(kept.read_text()) != settings:
        raise Failure(
            f"the searches in {folder} have other settings or are of another program: name another --folder"
        )


def finished(folder, key, search):
    """The search of this key: the one in the folder, or else what `search` returns, which is put there."""
    file = folder / (".".join(program.slug(str(part)) for part in key) + ".json")
    if file.is_file():
        return json.loads(file.read_text())
    done = search()
    unfinished = file.with_suffix(".new")
    unfinished.write_text(json.dumps(done) + "\n")
    unfinished.rename(file)
    return done


def draw(name, results):
    for start, rows in results.items():
        for axis in next(iter(rows.values()))["curves"]:
            series = {tuner: r["curves"][axis] for tuner, r in rows.items()}
            title = f"Latency over the best of all, from {start}: mean and quartiles"
            chart = f"{name}-{start}-{axis.split()[0]}"
            report.spread_chart(chart, title, (axis, "latency over the best"), series)


def main():
    args = flags()
    tuners, starts = args.strategies.split(","), args.start.split(",")
    for tuner in tuners:
        options_of(tuner)
    if not set(starts) <= set(STARTS):
        raise Failure(f"--start is of {', '.join(STARTS)}")
    facts, failures = machine.conditions(), []
    folder = args.folder or program.OUT / "tuners"
    made_by = hashlib.sha256(program.program().read_bytes()).hexdigest()
    check_folder(folder, {"trials": args.trials, "threads": args.threads, "program": made_by})
    searches = {start: {} for start in starts}
    for i, (model, seed) in enumerate(groups(args)):
        for start in starts:
            own = {}
            try:
                for tuner in slices.turned(tuners, i):
                    say(f"{model}, seed {seed}, from {start}, {tuner}")
                    own[model, seed, tuner] = finished(
                        folder, (model, start, tuner, seed), lambda: tuned(model, start, tuner, seed, args)
                    )
            except Failure as error:
                # Tuners are compared where all of them searched.
                failures.append(report.failure(f"{model}, seed {seed}, from {start}", error))
                continue
            searches[start] |= own
    cpus = os.cpu_count() or 1
    known = known_costs([item for own in searches.values() for item in own.items()])
    results = {
        start: compared(own, known, tuners, args.trials, cpus)
        for start, own in searches.items()
        if own
    }
    title = "Tuners by searches on this machine"
    report.write(args.name, title, facts, results, text(results, args.trials), failures)
    draw(args.name, results)
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as error:
        sys.exit(f"error: {error}")
