#!/usr/bin/env python3
"""Whether the filter `cold` saves joules on operators that its network does not know.

`collect` tunes operators of drawn sizes at random, `records train-cold` trains the network on them, and `compare` tunes other operators,
layers of models, with and without the filter. Both begin with random candidates. `shares` tunes whole models with several strategies, with and without
the filter, and prints what cold and failed candidates took: above the trend of their own search is cold. Joules are those of the command until a candidate was within so many
times the best of all runs of the operator, at the mean power of the run. A run that had none counts as a whole.
"""

import argparse
import json
import math
import os
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile

# Fixed before the first run. No drawn operator is one of them.
HELD_OUT = [
    "op:conv2d(c=64,h=56,w=56,k=64)",
    "op:conv2d(c=128,h=28,w=28,k=128)",
    "op:conv2d(c=256,h=14,w=14,k=512,r=1,s=1,pad=0)",
    "op:conv2d(c=96,h=20,w=20,k=112)",
    "op:depthwise_conv2d(c=256,h=28,w=28)",
    "op:depthwise_conv2d(c=200,h=22,w=22,r=5,s=5)",
    "op:matmul(m=300,k=700,n=900)",
    "op:conv2d_transpose(c=96,h=20,w=20,k=48,stride=2)",
]
GOALS = (1.5, 1.2, 1.1, 1.05)
RULES = {
    "none": [],
    "cold": ["--filter", "cold", "--cold-rule", "best=8"],
    "chance": ["--filter", "chance", "--chance", "0.875"],
}
# Nothing is read off code: what is asked for is random.
RANDOM = ["--start", "random", "--read-time", "0s", "--threads", "1", "--json"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/tunesmith")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for stores and reports")
    commands = parser.add_subparsers(dest="command", required=True)
    collect = commands.add_parser("collect", help="tune drawn operators at random, and train the network")
    collect.add_argument("--operators", type=int, default=80)
    collect.add_argument("--trials", type=int, default=48)
    compare = commands.add_parser("compare", help="tune other operators with and without the filter")
    compare.add_argument("--strategy", default="random")
    compare.add_argument("--operators", type=int, default=len(HELD_OUT), help="the first so many")
    compare.add_argument("--rules", default="none,cold", help="of " + ", ".join(RULES))
    compare.add_argument("--seeds", type=int, default=3)
    compare.add_argument("--trials", type=int, default=96)
    shares = commands.add_parser("shares", help="what cold and failed candidates of models take, by strategy and rule")
    shares.add_argument("--models", default="alexnet,vgg16,mobilenet-v1,resnet18")
    shares.add_argument("--strategies", default="random,grid,genetic,annealing,reinforcement,funnel")
    shares.add_argument("--rules", default="none,cold", help="of " + ", ".join(RULES))
    shares.add_argument("--trials", type=int, default=200, help="of a model")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    {"collect": collected, "compare": compared, "shares": shared}[args.command](args)


def collected(args):
    store = args.out / "known.sqlite"
    for n, operator in enumerate(drawn(args.operators)):
        print(n, operator, flush=True)
        tune(args, operator, store, ["--strategy", "random", "--trials", str(args.trials), "--seed", str(n)])
    subprocess.run([args.program, "records", "train-cold", "--store", store], check=True)


def drawn(count):
    """Operators of the held-out kinds, in sizes between those of common layers."""
    rng, found = random.Random(1), []
    channels, pixels = (16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384), (7, 10, 14, 19, 20, 28, 33, 40, 56)
    while len(found) < count:
        kind = rng.choice(("conv2d", "conv2d", "conv2d", "pointwise", "depthwise", "matmul", "transposed"))
        c, k, h, r = rng.choice(channels), rng.choice(channels), rng.choice(pixels), rng.choice((3, 3, 5))
        operator, multiplications = {
            "conv2d": (f"op:conv2d(c={c},h={h},w={h},k={k},r={r},s={r},pad={r // 2})", c * k * h * h * r * r),
            "pointwise": (f"op:conv2d(c={4 * c},h={h},w={h},k={k},r=1,s=1,pad=0)", 4 * c * k * h * h),
            "depthwise": (f"op:depthwise_conv2d(c={2 * c},h={2 * h},w={2 * h},r={r},s={r})", 8 * c * h * h * r * r),
            "matmul": (f"op:matmul(m={8 * h},k={4 * c},n={4 * k})", 128 * h * c * k),
            "transposed": (f"op:conv2d_transpose(c={c},h={h},w={h},k={k},stride=2)", c * k * h * h * 16),
        }[kind]
        if 1e6 < multiplications < 3e8 and operator not in HELD_OUT + found:
            found.append(operator)
    return found


def compared(args):
    rules = args.rules.split(",")
    saved = {rule: [] for rule in rules[1:]}
    for operator in HELD_OUT[: args.operators]:
        runs = {rule: [run(args, operator, rule, seed) for seed in range(1, args.seeds + 1)] for rule in rules}
        least = min(ns for of in runs.values() for r in of for _, ns in r["answers"])
        joules = {rule: [reached(r, least) for r in of] for rule, of in runs.items()}
        for rule in rules:
            means = [statistics.geometric_mean(j[g] for j in joules[rule]) for g in range(len(GOALS))]
            final = statistics.mean(min(ns for _, ns in r["answers"]) for r in runs[rule]) / least
            good = statistics.mean(sum(ns <= 1.2 * least for _, ns in r["answers"]) / len(r["answers"]) for r in runs[rule])
            cells = " | ".join(f"{m:.1f}" for m in means)
            print(f"| {operator[3:]} | {rule} | {cells} | {final:.3f} | {good:.0%} |", flush=True)
            if rule in saved:
                pairs = list(zip(joules[rules[0]], joules[rule]))
                logs = [[math.log(b[g] / a[g]) for a, b in pairs] for g in range(len(GOALS))]
                saved[rule].append([statistics.mean(of_goal) for of_goal in logs])
    for rule, of in saved.items():
        columns = [[row[g] for row in of] for g in range(len(GOALS))] + [[statistics.mean(row) for row in of]]
        print(f"| saved by {rule} | | " + " | ".join(map(share, columns)) + " |")


def shared(args):
    print("| model | strategy | rule | tried | cold | failed | time cold | time failed | J cold | J failed | to 5% | ms | J a ms |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for model in args.models.split(","):
        for strategy in args.strategies.split(","):
            for rule in args.rules.split(","):
                print(of_model(args, model, strategy, rule), flush=True)


def of_model(args, model, strategy, rule):
    """A row of what one run's candidates took; the sum of the kernels at its end, and joules for each ms less than at its begin."""
    options = ["--strategy", strategy, "--trials", str(args.trials), *RULES[rule], *network(args, rule)]
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "run.sqlite"
        report = tune(args, model, store, options)
        command = [args.program, "study", "trim", "records", "--store", store, "--json"]
        operators = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["operators"]
    # Hot, cold and failed ones, of all operators.
    sums = [[sum(o["parts"][p][key] for o in operators) for p in range(3)] for key in ("candidates", "wall_s")]
    sums.append([sum(o["parts"][p]["joules"][-1] for o in operators) for p in range(3)])
    cells = [f"{of[p] / max(sum(of), 1e-9):.0%}" for of in sums for p in (1, 2)]
    near = [n for o in operators for n, _ in o["near"]]
    first, last = (report["curve"][at]["ms"] for at in (0, -1))
    joules = report["energy"]["by"][-1]["joules"]
    per_ms = f"{joules / (first - last):.1f}" if first > last else "-"
    cells = [model, strategy, rule, sum(sums[0]), *cells, statistics.median(near), f"{last:.2f}", per_ms]
    return "| " + " | ".join(map(str, cells)) + " |"


def network(args, rule):
    """Without one of its own, the program's network."""
    own = args.out / "cold.network"
    return ["--cold-network", own] if rule == "cold" and own.exists() else []


def share(logs):
    """What is saved, with a standard error over operators."""
    saved = 1 - math.exp(statistics.mean(logs))
    error = statistics.stdev(logs) / math.sqrt(len(logs)) * (1 - saved)
    return f"{saved:.0%} ±{error:.0%}"


def run(args, operator, rule, seed):
    """The seconds and nanoseconds of the answers of a run with a new store, and its joules a second under each curve."""
    options = ["--strategy", args.strategy, "--trials", str(args.trials), "--seed", str(seed), *RULES[rule], *network(args, rule)]
    with tempfile.TemporaryDirectory() as folder:
        store = pathlib.Path(folder) / "run.sqlite"
        report = tune(args, operator, store, options)
        at = sqlite3.connect(store)
        # The operator itself has the most operations; copies of its operands have few.
        [task] = at.execute("select id from tasks order by flops desc limit 1").fetchone()
        [started] = at.execute("select started_unix_ms from runs").fetchone()
        rows = at.execute(
            "select created_unix_ms, median_ns from records where task_id = ? and not final and strategy is not null and median_ns > 0 order by id",
            (task,),
        )
        answers = [((ms - started) / 1e3, ns) for ms, ns in rows]
    joules = [by["joules"] for by in report["energy"]["by"]]
    return {"answers": answers, "watts": [j / report["energy"]["wall_s"] for j in joules], "wall_s": report["wall_s"]}


def reached(run, least):
    """Joules until each goal, under the flat curve of power."""
    found = []
    for goal in GOALS:
        within = [s for s, ns in run["answers"] if ns <= goal * least]
        found.append((within[0] if within else run["wall_s"]) * run["watts"][-1])
    return found


def tune(args, operator, store, options):
    # Objects that an earlier run built would make this one cheaper.
    with tempfile.TemporaryDirectory() as cache:
        command = [args.program, "tune", operator, *RANDOM, "--store", store, *options]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": cache})
    if done.returncode != 0:
        sys.exit(f"{operator}: {done.stderr}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
