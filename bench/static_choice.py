#!/usr/bin/env python3
"""What reading chooses, against measurement: latency, seconds and dollars of each way to choose kernels.

Each model is compiled by default, by static choice, by tuning that stops after the seconds that static
choice took, and by tuning for a minute. Every way starts from an empty store and an empty object cache.
Then the compiled models and onnxruntime, if this Python has it, run in turns.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "rivals")]

import rival_process
from harness import machine, program, report, slices
from harness.report import say

DEFAULT, STATIC, STOPPED, TUNED = "default", "static", "tuned as long as static", "tuned"
RIVAL = "onnxruntime"

# The list price of an hour of an AWS c7a.large (2 CPUs, AMD EPYC) on demand, in USD.
INSTANCE, PRICE = "an AWS c7a.large on demand", 0.10264


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--choose-time", default="10s", help="of reading [default: 10s]")
    parser.add_argument("--time", default="60s", help="of the tuned model [default: 60s]")
    parser.add_argument("--threads", type=int, default=1, help="of the kernels [default: 1]")
    parser.add_argument("--rounds", type=int, default=6, help="of slices in turns [default: 6]")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds of each [default: 1]")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="of an input")
    parser.add_argument(
        "--price", type=float,
        help=f"of an hour of this machine, in USD [default: {PRICE}, {INSTANCE}]",
    )  # fmt: skip
    parser.add_argument(
        "--machine-file", type=Path, help="file with a price, as `tune --machine-file` reads it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def price_of(args):
    """The price of an hour, its currency, and whose price it is."""
    if args.price is not None:
        return {"per_hour": args.price, "currency": "USD", "of": "--price"}
    if args.machine_file is not None:
        price = json.loads(args.machine_file.read_text()).get("price")
        if price is None:
            raise program.Failure(f"{args.machine_file} has no price")
        return price | {"of": str(args.machine_file)}
    return {"per_hour": PRICE, "currency": "USD", "of": INSTANCE}


def chosen(model, folder, shape_args, args):
    """The compiled model of each way, and how long the whole command took, in seconds."""
    artifacts, seconds = {}, {}

    def way(name, *command):
        say(f"{program.model_name(model)}: {name}")
        own = Path(folder) / program.slug(name)
        own.mkdir()
        # Else the objects of one way would be ready for the next one.
        os.environ["XDG_CACHE_HOME"] = str(own)
        out, start = own / "model.tsm", time.monotonic()
        program.call_json(
            command[0], model, *command[1:], "--threads", args.threads, *shape_args,
            "--store", own / "store.sqlite", "--out", out,
        )  # fmt: skip
        artifacts[name], seconds[name] = out, time.monotonic() - start

    way(DEFAULT, "compile")
    way(STATIC, "compile", "--choose", "static", "--choose-time", args.choose_time)
    way(STOPPED, "tune", "--time", f"{seconds[STATIC]:.2f}s")
    way(TUNED, "tune", "--time", args.time)
    return artifacts, seconds


def rival(model, folder, cpus, args, stack):
    """A running onnxruntime; None if this Python cannot run it."""
    if not all(map(find_spec, (RIVAL, "onnx", "numpy"))):
        say(f"without {RIVAL}: this Python has not all of onnxruntime, onnx and numpy")
        return None
    import agreement
    import arrays

    path = program.onnx_file(model)
    inputs = Path(folder) / "inputs.npz"
    arrays.save(inputs, agreement.seeded_inputs(path, agreement.Shapes(None, args.dim), 1))
    started = rival_process.Rival(
        RIVAL, path, args.threads, inputs, program.keeping_to(cpus), True
    )
    return stack.enter_context(started)


def compared(model, args):
    """Seconds and latencies of all ways of one model."""
    shape_args = [a for d in args.dim for a in ("--dim", d)]
    cpus = machine.cpus_for(args.threads)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        artifacts, seconds = chosen(model, folder, shape_args, args)
        contenders = {
            name: lambda s, a=artifact: program.bench(a, args.threads, s, cpus)
            for name, artifact in artifacts.items()
        }
        other = rival(model, folder, cpus, args, stack)
        if other is not None:
            contenders[RIVAL] = other.slice
        taken = slices.interleaved(contenders, args.rounds, args.slice)
    return {
        "model": program.model_name(model),
        "seconds": seconds,
        "latencies": {name: slices.summary(of) for name, of in taken.items()},
        "disturbed": slices.disturbance(taken, None),
    }


def table(results, price):
    """A row for each way of each model, and the geometric means of what they take over the tuned model."""
    rows, over = [], {}
    for r in results:
        tuned = r["latencies"][TUNED]
        for name, of in r["latencies"].items():
            ratio = of["median_ms"] / tuned["median_ms"], of["min_ms"] / tuned["min_ms"]
            over.setdefault(name, []).append(ratio)
            s = r["seconds"].get(name)
            paid = ["-", "-"] if s is None else [f"{s:.1f}", f"{s * price['per_hour'] / 3600:.5f}"]
            latency = [f"{of['median_ms']:.3f}", f"{of['min_ms']:.3f}"]
            rows.append([r["model"], name, *latency, *(f"{x:.3f}" for x in ratio), *paid])
    for name, ratios in over.items():
        means = [f"{statistics.geometric_mean(of):.3f}" for of in zip(*ratios)]
        rows.append(["geometric mean", name, "", "", *means, "", ""])
    header = [
        "model", "way", "median ms", "least ms", "median over tuned", "least over tuned", "seconds",
        price["currency"],
    ]  # fmt: skip
    return report.markdown_table(header, rows)


def text(results, price):
    lines = [f"- {r['model']}: {'; '.join(r['disturbed'])}" for r in results if r["disturbed"]]
    paid = f"An hour costs {price['per_hour']} {price['currency']} ({price['of']}).\n"
    noise = "".join(["\nDisturbances:\n\n", *(line + "\n" for line in lines)]) if lines else ""
    return f"{table(results, price)}\n{paid}{noise}"


def main():
    args = flags()
    price = price_of(args)
    facts = machine.conditions() | {"price": price}
    results, failures = [], []
    for model in args.models:
        try:
            results.append(compared(model, args))
        except (program.Failure, RuntimeError) as error:
            failures.append(report.failure(program.model_name(model), error))
    report.write(
        "static_choice", "Choosing by reading", facts, results,
        text(results, price), failures, quiet=args.json,
    )  # fmt: skip
    if args.json:
        print(json.dumps({"conditions": facts, "results": results, "failures": failures}))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    try:
        main()
    except program.Failure as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
