#!/usr/bin/env python3
"""Prints figures of Tunesmith: matrix products, trials a second, all models, single kernels.

Needs no package, but for `kernels`, which `rivals/run` takes care of. Figures go to standard output as Markdown, and with everything
behind them to target/bench.
"""

import argparse
import math
import os
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import budgets
import times
from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say

# Convolutions of ResNets, 0.2 GFLOP and more each: name, arguments.
CONVOLUTIONS = [
    ("56x56, 64 to 64, 3x3", {"c": 64, "h": 56, "w": 56, "k": 64, "r": 3, "s": 3, "pad": 1}),
    ("28x28, 128 to 128, 3x3", {"c": 128, "h": 28, "w": 28, "k": 128, "r": 3, "s": 3, "pad": 1}),
    ("14x14, 256 to 256, 3x3", {"c": 256, "h": 14, "w": 14, "k": 256, "r": 3, "s": 3, "pad": 1}),
    (
        "224x224, 3 to 64, 7x7 by 2",
        {"c": 3, "h": 224, "w": 224, "k": 64, "r": 7, "s": 7, "stride": 2, "pad": 3},
    ),
]


def main():
    args = arguments()
    try:
        return args.run(args)
    except (Failure, OSError) as error:
        say(f"error: {error}")
        return 2


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    sliced = argparse.ArgumentParser(add_help=False)
    sliced.add_argument("--rounds", type=int, default=9, help="slices of each [default: 9]")
    sliced.add_argument(
        "--slice", type=float, default=1.0, metavar="SECONDS", help="time of a slice [default: 1]"
    )

    gemm = commands.add_parser(
        "gemm", parents=[sliced], help="matrix products, in parts of the FMA peak"
    )
    gemm.add_argument("--sizes", default="512,1024,2048", help="[default: 512,1024,2048]")
    gemm.add_argument("--time", default="1m", help="of the search of each size [default: 1m]")
    gemm.set_defaults(run=gemm_command)

    trials = commands.add_parser("trials", help="trials a second on convolutions")
    trials.add_argument("--cpus", type=int, default=2, help="all there are to use [default: 2]")
    trials.add_argument("--threads", default="1,2", help="of the kernels [default: 1,2]")
    trials.add_argument("--time", default="1m", help="of each search [default: 1m]")
    trials.set_defaults(run=trials_command)

    models = commands.add_parser(
        "models", parents=[sliced], help="every built-in model, tuned and untuned, checked"
    )
    models.add_argument(
        "models", nargs="*", metavar="MODEL",
        help="built-in models or ONNX files [default: all built-in]",
    )  # fmt: skip
    models.add_argument("--threads", type=int, default=1, help="[default: 1]")
    models.add_argument("--time", default="1m", help="of the search of each model [default: 1m]")
    models.set_defaults(run=models_command)

    cuts = commands.add_parser(
        "budgets", parents=[sliced], help="latency reached after parts of one tuning run"
    )
    cuts.add_argument("models", nargs="+", metavar="MODEL")
    cuts.add_argument("--threads", type=int, default=1, help="[default: 1]")
    cuts.add_argument(
        "--budgets", default="30s,1m,2m,5m,10m", help="[default: 30s,1m,2m,5m,10m]"
    )
    cuts.add_argument("--accuracy", default="relaxed", choices=["strict", "relaxed"])
    cuts.add_argument("--retune", action="store_true", help="even if an earlier run was as long")
    cuts.set_defaults(run=budgets.run)

    kept = commands.add_parser("times", help="how long `tune --time` takes, compiled model and all")
    kept.add_argument(
        "models", nargs="*", metavar="MODEL",
        help="built-in models, operators or ONNX files [default: four operators, six models]",
    )  # fmt: skip
    kept.add_argument("--threads", type=int, default=2, help="[default: 2]")
    kept.add_argument("--times", default="10s,30s,2m", help="[default: 10s,30s,2m]")
    kept.set_defaults(run=times.run)

    commands.add_parser(
        "kernels", add_help=False, help="single kernels against rivals: as `rivals/run kernels`"
    )
    charts = program.TARGET / "bench-venv" / "bin" / "python"
    if sys.argv[1:2] == ["budgets"] and not find_spec("matplotlib") and charts.is_file():
        # The environment that `rivals/run` made can draw.
        os.execv(charts, [str(charts), *sys.argv])
    if sys.argv[1:2] == ["kernels"]:
        runner = Path(__file__).resolve().parent / "rivals" / "run"
        os.execv(runner, [str(runner), *sys.argv[1:]])
    return parser.parse_args()


def counts(text, option):
    parts = text.split(",")
    if not all(p.isdigit() and int(p) > 0 for p in parts):
        raise Failure(f"{option} {text} is not a list of numbers such as 1,2")
    return [int(p) for p in parts]


def gemm_command(args):
    """Tunes square products for one thread and measures them and the peak in turns."""
    sizes = counts(args.sizes, "--sizes")
    program.seconds_of(args.time)
    facts, results, failures = machine.conditions(), [], []
    for n in sizes:
        try:
            results.append(measure_product(n, args))
        except Failure as error:
            failures.append(report.failure(f"n = {n}", error))
    checks = [r["check"] for r in results]
    stated = accuracies(checks)
    text = f"Products of n x n matrices, one thread, tuned for {args.time} each{stated}.\n\n"
    report.write("gemm", "Matrix products", facts, results, text + gemm_table(results), failures)
    return exit_status(checks, failures)


def measure_product(n, args):
    """Tunes and checks one product, and measures it."""
    model, cpus = f"op:matmul(m={n},n={n},k={n})", machine.cpus_for(1)
    say(f"{model}: tuning for {args.time}")
    tuning, artifact = program.tune(model, 1, args.time)
    checked = program.check(model, artifact, 1)
    taken, peaks = [], []
    for _ in range(args.rounds):
        peaks.append(program.call_json("doctor", cpus=cpus)["fma_peak_gflops"])
        taken.append(program.bench(artifact, 1, args.slice, cpus))
    # What disturbs a measurement of the peak only lowers it.
    rates = product_rates(n, slices.summary(taken), max(peaks))
    return rates | {"tuning": tuning, "check": checked}


def gemm_table(results):
    rows = [
        [
            r["size"],
            f"{r['latency']['median_ms']:.3f} ({r['latency']['min_ms']:.3f})",
            f"{r['gflops']:.1f} ({r['best_gflops']:.1f})",
            f"{r['peak_gflops']:.1f}",
            f"{r['percent_of_peak']:.0f}% ({r['best_percent_of_peak']:.0f}%)",
            r["tuning"]["trials"],
            check_text(r["check"]),
        ]
        for r in results
    ]
    header = ["n", "ms (min)", "GFLOP/s (best)", "peak", "of peak (best)", "trials", "check"]
    return (
        report.markdown_table(header, rows)
        + "\nMedian of slices (and the fastest run). Peak: the highest that `tunesmith doctor` "
        + "measured between the slices.\n"
    )


def product_rates(n, latency, peak_gflops):
    """Rates of an n x n x n product from its latency."""
    gflop = 2 * n**3 / 1e9
    gflops, best = (1e3 * gflop / latency[k] for k in ("median_ms", "min_ms"))
    return {
        "size": n,
        "latency": latency,
        "gflops": gflops,
        "best_gflops": best,
        "peak_gflops": peak_gflops,
        "percent_of_peak": 100 * gflops / peak_gflops,
        "best_percent_of_peak": 100 * best / peak_gflops,
    }


def conv_gflop(arguments):
    """Billions of operations of a convolution over square images with square windows."""
    a = {"stride": 1, "pad": 0} | arguments
    height, width = (
        (a[image] + 2 * a["pad"] - a[window]) // a["stride"] + 1
        for image, window in (("h", "r"), ("w", "s"))
    )
    return 2 * height * width * a["k"] * a["c"] * a["r"] * a["s"] / 1e9


def trials_command(args):
    """Tunes convolutions with all processes on a few CPUs, and reports how fast trials go."""
    threads = counts(args.threads, "--threads")
    program.seconds_of(args.time)
    if max(threads) > args.cpus:
        raise Failure(f"--threads {args.threads} is more than --cpus {args.cpus}")
    facts, cpus = machine.conditions(), machine.cpus_for(args.cpus)
    results, failures = [], []
    for name, arguments in CONVOLUTIONS:
        model = f"op:conv2d({','.join(f'{k}={v}' for k, v in arguments.items())})"
        for count in threads:
            what = f"{name}, {count} threads"
            say(f"{what}: tuning for {args.time}")
            try:
                tuning, _ = program.tune(model, count, args.time, cpus=cpus)
                rates = trial_rates(tuning)
            except Failure as error:
                failures.append(report.failure(what, error))
                continue
            gflop = conv_gflop(arguments)
            results.append(
                {"name": name, "threads": count, "gflop": gflop, "rates": rates, "tuning": tuning}
            )
    stated = accuracies([r["tuning"] for r in results])
    text = f"Every process on {args.cpus} CPUs, {args.time} each, from no records{stated}.\n\n"
    text += trials_table(results)
    report.write("trials", "Trials a second", facts, results, text, failures)
    return exit_status([], failures)


def trial_rates(tuning):
    """How fast a tuning run of one convolution went.

    Its model may have other, smaller tasks (changes of layout), whose trials
    are quick: `conv_trials_per_s` counts only those of the convolution, over
    its part of the time.
    """
    conv = next((t for t in tuning["tasks"] if t["task"].startswith("conv2d")), None)
    if conv is None or not conv["trials"] or conv["after_ms"] is None:
        failed = ", ".join(f"{n} {kind}" for kind, n in tuning["failures"].items())
        raise Failure(f"no candidate of the convolution has a time ({failed or 'none ran'})")
    share = conv["spent_s"] / sum(t["spent_s"] for t in tuning["tasks"])
    return {
        "trials_per_s": tuning["trials_per_s"],
        "conv_trials_per_s": tuning["trials_per_s"] * conv["trials"] / tuning["trials"] / share,
        "conv_trials": conv["trials"],
        "conv_gflops": conv["gflops_per_s"],
        "cpu_s_per_trial": tuning["cpu_s"] / tuning["trials"],
    }


def trials_table(results):
    rows = [
        [
            r["name"],
            f"{r['gflop']:.2f}",
            r["threads"],
            f"{r['tuning']['trials']} ({r['rates']['conv_trials']})",
            f"{r['rates']['trials_per_s']:.1f} ({r['rates']['conv_trials_per_s']:.1f})",
            f"{r['rates']['cpu_s_per_trial']:.2f}",
            sum(r["tuning"]["failures"].values()),
            f"{r['rates']['conv_gflops']:.0f}",
        ]
        for r in results
    ]
    header = ["convolution", "GFLOP", "threads", "trials", "trials/s", "CPU-s/trial", "failures"]
    table = report.markdown_table([*header, "GFLOP/s found"], rows)
    table += "\nIn parentheses: those of the convolution alone, over its part of the time.\n"
    rates = [r["rates"]["conv_trials_per_s"] for r in results]
    if rates:
        table += f"Of these, median {statistics.median(rates):.1f}/s, lowest {min(rates):.1f}/s.\n"
    return table


def models_command(args):
    """Tunes models, checks and measures each tuned and untuned in turns."""
    program.seconds_of(args.time)
    facts, results, failures = machine.conditions(), [], []
    for model in args.models or program.built_in_models():
        try:
            results.append(measure_model(model, args))
        except Failure as error:
            failures.append(report.failure(model, error))
    checks = [c for r in results for c in r["checks"].values()]
    text = f"{args.threads} threads, tuned for {args.time} each{accuracies(checks)}.\n\n"
    text += models_table(results)
    report.write("models", "Built-in models", facts, results, text, failures)
    return exit_status(checks, failures)


def measure_model(model, args):
    """Tunes a model, and checks and measures it tuned and untuned."""
    threads, cpus = args.threads, machine.cpus_for(args.threads)
    say(f"{model}: tuning for {args.time}")
    tuning, tuned = program.tune(model, threads, args.time)
    artifacts = {"untuned": program.compile_default(model, threads), "tuned": tuned}
    checks = {name: program.check(model, a, threads) for name, a in artifacts.items()}
    contenders = {
        name: lambda seconds, a=a: program.bench(a, threads, seconds, cpus)
        for name, a in artifacts.items()
    }
    taken = slices.interleaved(contenders, args.rounds, args.slice)
    latencies = {name: slices.summary(s) for name, s in taken.items()}
    name = program.model_name(model)
    return {"model": name, "tuning": tuning, "checks": checks, "latencies": latencies}


def plain_text(ms):
    """The latency of the plain model, which a run with little time leaves out."""
    return "-" if ms is None else f"{ms:.2f}"


def models_table(results):
    rows = []
    for r in results:
        tuned, untuned = r["latencies"]["tuned"], r["latencies"]["untuned"]
        rows.append(
            [
                r["model"],
                plain_text(r["tuning"]["latency_plain_ms"]),
                f"{untuned['median_ms']:.3f} ({untuned['min_ms']:.3f})",
                f"{tuned['median_ms']:.3f} ({tuned['min_ms']:.3f})",
                f"{1 / slices.ratios(tuned, untuned)['median']:.2f}x",
                r["tuning"]["trials"],
                check_text(r["checks"]["untuned"]),
                check_text(r["checks"]["tuned"]),
            ]
        )
    header = ["model", "plain ms", "untuned ms (min)", "tuned ms (min)", "gain", "trials"]
    return (
        report.markdown_table([*header, "check untuned", "check tuned"], rows)
        + "\nPlain: as the tuning run measured it. Untuned and tuned: median of interleaved slices "
        + "(and the fastest run).\nChecks: the largest relative L2 error of any layer.\n"
    )


def accuracies(said):
    """`, accuracy relaxed`, from what tuning runs or checks say; nothing without any."""
    names = sorted({s["accuracy"] for s in said})
    return f", accuracy {' and '.join(names)}" if names else ""


def check_text(check):
    error = check.get("max_rel_err")
    text = "?" if error is None or math.isnan(error) else f"{error:.1e}"
    return text if check["ok"] else f"FAIL {text}"


def exit_status(checks, failures):
    """1 if a part failed, or a compiled model computes something else than the references."""
    right = all(check["ok"] for check in checks)
    if not right:
        say("FAIL: a compiled model differs from the plain references")
    return 0 if right and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
