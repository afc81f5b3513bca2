#!/usr/bin/env python3
"""Compares Tunesmith with onnxruntime, OpenVINO, MNN and ncnn on CPUs.

`suite` tunes, compares and explains all models; `kernels` compares single
kernels; `operators` single operators of many kinds; `latency` models at thread
counts; `tune-figures` judges one tuning run; `publish` keeps charts of earlier
runs. The outputs are compared first. Then all contenders take turns in short
slices of one run, kept to the same CPUs. Needs what requirements.txt names:
bench/rivals/run installs it and calls this.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agreement
import kernels
import operators
import publish
import rival_process
import runtimes
import suite
from comparison import compare, conditions
from harness import program, report
from harness.program import Failure
from harness.report import say
from tables import BASELINE, DEFAULT, TUNED, draw, latency_text


def main():
    args = arguments()
    try:
        return args.run(args)
    except (Failure, RuntimeError, OSError) as error:
        say(f"error: {error}")
        return 2


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--rounds", type=int, default=15, help="slices of each [default: 15]")
    shared.add_argument(
        "--slice", type=float, default=1.0, metavar="SECONDS", help="time of a slice [default: 1]"
    )
    shared.add_argument(
        "--tolerance", type=float, default=1e-3,
        help="largest relative L2 distance of outputs [default: 0.001]",
    )  # fmt: skip
    shared.add_argument("--batch", type=int, help="size of symbolic batch dimensions")
    shared.add_argument(
        "--dim", action="append", default=[], metavar="NAME=SIZE", help="size of a dimension"
    )
    shared.add_argument(
        "--rivals", default=",".join(runtimes.DEFAULT),
        help=f"of {', '.join(runtimes.RUNTIMES)} [default: {','.join(runtimes.DEFAULT)}]",
    )  # fmt: skip
    shared.add_argument(
        "--again", type=int, default=2, metavar="TIMES",
        help="measure a disturbed row so often again at most, and keep the quietest [default: 2]",
    )  # fmt: skip
    shared.add_argument(
        "--no-huge-pages", dest="huge_pages", action="store_false",
        help=f"start rivals without GLIBC_TUNABLES={rival_process.HUGE_PAGES}",
    )  # fmt: skip

    whole = commands.add_parser(
        "suite", parents=[shared], help="tune, compare and explain all models: the summary",
        epilog="The table in README.md: suite --tune 30s --rounds 5 --accuracy strict,relaxed "
        "--threads 1",
    )  # fmt: skip
    whole.add_argument(
        "--models", default=",".join(suite.MODELS), help=f"[default: {','.join(suite.MODELS)}]"
    )
    whole.add_argument("--threads", default="1,2", help="counts [default: 1,2]")
    whole.add_argument(
        "--tune", default="2m", metavar="TIME",
        help="of each model and thread count; 0 uses what is known, or defaults [default: 2m]",
    )  # fmt: skip
    whole.add_argument("--retune", action="store_true", help="tune on, even what was tuned before")
    whole.add_argument(
        "--accuracy", default="relaxed",
        help="strict, relaxed or both as strict,relaxed, in turns [default: relaxed]",
    )  # fmt: skip
    whole.add_argument("--name", default="suite", help="of the report [default: suite]")
    whole.set_defaults(run=lambda args: suite.run(args, thread_counts(args.threads)))

    single = commands.add_parser(
        "kernels", parents=[shared], help="single kernels, and Winograd against direct"
    )
    single.add_argument("--parts", default="gemm,conv,winograd", help="[default: all three]")
    single.add_argument("--threads", default="1", help="counts [default: 1]")
    single.add_argument("--time", default="1m", help="of the search of each [default: 1m]")
    single.add_argument("--name", default="kernels", help="of the report [default: kernels]")
    single.set_defaults(run=lambda args: kernels.run(args, thread_counts(args.threads)))

    many = commands.add_parser(
        "operators", parents=[shared], help="single operators of many kinds, and their limits"
    )
    operators.add_arguments(many)
    many.set_defaults(run=lambda args: operators.run(args, thread_counts(args.threads)))

    keep = commands.add_parser(
        "publish", help="write charts and pages of layers of earlier runs to bench/figures"
    )
    keep.add_argument("--name", default="suite", help="of the suite's report [default: suite]")
    keep.add_argument(
        "--models", default=",".join(publish.MODELS),
        help=f"whose layers [default: {','.join(publish.MODELS)}]",
    )  # fmt: skip
    keep.add_argument(
        "--study", metavar="FOLDER", help="of a study's report [default: target/bench/study]"
    )
    keep.set_defaults(run=publish.run)

    shared = argparse.ArgumentParser(parents=[shared], add_help=False)
    shared.add_argument("--store", help="store of tuning records [default: a new one each run]")
    latency = commands.add_parser(
        "latency", parents=[shared], help="latencies of models at thread counts"
    )
    latency.add_argument("models", nargs="+", metavar="MODEL", help="a built-in model or ONNX file")
    latency.add_argument("--threads", default="1", help="counts, as in 1,2 [default: 1]")
    latency.add_argument("--tune", metavar="TIME", help="tune for so long first, as in 3m")
    latency.add_argument("--artifact", help="measure this tuned model (one MODEL only)")
    latency.add_argument("--untuned", action="store_true", help="the untuned model as well")
    latency.add_argument("--name", default="rivals", help="of the report [default: rivals]")
    latency.set_defaults(run=latency_command)

    figures = commands.add_parser(
        "tune-figures", parents=[shared], help="one tuning run, judged by limits"
    )
    figures.add_argument("--model", default="resnet18", help="[default: resnet18]")
    figures.add_argument("--threads", type=int, default=1, help="[default: 1]")
    figures.add_argument("--time", default="3m", help="of the search [default: 3m]")
    figures.set_defaults(run=tune_figures_command)
    return parser.parse_args()


def latency_command(args):
    counts = thread_counts(args.threads)
    if args.artifact and (len(args.models) > 1 or args.tune):
        raise Failure("--artifact is for one MODEL, and not together with --tune")
    if args.artifact and not Path(args.artifact).is_file():
        raise Failure(f"there is no file {args.artifact}")
    program.seconds_of(args.tune or "0")
    shapes = agreement.Shapes(args.batch, args.dim)
    facts, results, failures = conditions(args), [], []
    for model in args.models:
        for threads in counts:
            try:
                results.append(measure(model, threads, shapes, args))
            except (Failure, RuntimeError) as error:
                failures.append(report.failure(f"{model}, {threads} threads", error))
    if results:
        facts["rivals"] = {n: v for r in results for n, v in r["versions"].items()}
        draw(args.name, results)
    title, text = "Latency against other runtimes", latency_text(results)
    report.write(args.name, title, facts, results, text, failures)
    wrong = [f"{r['model']} ({name})" for r in results for name in r["wrong"]]
    if wrong:
        say(f"FAIL: outputs differ by more than {args.tolerance}: {', '.join(wrong)}")
    return 1 if wrong or failures else 0


def measure(model, threads, shapes, args):
    """Tunes a model if asked to, and compares it."""
    artifacts, tuning = {TUNED: tuned_artifact(model, threads, args)}, None
    if args.tune:
        say(f"{model}, {threads} threads: tuning for {args.tune}")
        tuning, artifacts[TUNED] = program.tune(
            model, threads, args.tune, args.store, shapes.args()
        )
    if args.untuned:
        artifacts[DEFAULT] = program.compile_default(model, threads, shapes.args())
    return compare(model, threads, artifacts, shapes, args) | {"tuning": tuning}


def thread_counts(text):
    counts = text.split(",")
    if not all(c.isdigit() and int(c) > 0 for c in counts):
        raise Failure(f"--threads {text} is not a list of counts such as 1,2")
    return [int(c) for c in counts]


def tuned_artifact(model, threads, args):
    """The tuned model to measure when this run does not tune."""
    if args.artifact or args.tune:
        return args.artifact
    path = program.artifact_path(model, threads, "tuned")
    if not path.is_file():
        raise Failure(f"there is no tuned {model} at {path}: give --tune TIME or --artifact FILE")
    return path


def tune_figures_command(args):
    program.seconds_of(args.time)
    shapes = agreement.Shapes(args.batch, args.dim)
    facts = conditions(args)
    say(f"{args.model}, {args.threads} threads: tuning for {args.time}")
    tuning, tuned = program.tune(args.model, args.threads, args.time, args.store, shapes.args())
    artifacts = {
        TUNED: tuned,
        DEFAULT: program.compile_default(args.model, args.threads, shapes.args()),
    }
    result = compare(args.model, args.threads, artifacts, shapes, args)
    facts["rivals"] = result["versions"]
    judged = judge(tuning, result["ratios"])
    rows = [
        [f["figure"], f"{f['value']:.2f}", f["limit_text"], "PASS" if f["pass"] else "FAIL"]
        for f in judged
    ]
    text = (
        f"{result['model']}, {args.threads} threads, tuned for {args.time}: "
        f"{tuning['trials']} trials, {tuning['wall_s']:.0f} s, {tuning['cpu_s']:.0f} CPU-s.\n\n"
        + report.markdown_table(["figure", "value", "limit", "judgement"], rows)
        + "\n"
        + latency_text([result])
    )
    results = [result | {"tuning": tuning, "figures": judged}]
    report.write("tune-figures", "What a tuning run gains", facts, results, text)
    if result["wrong"]:
        say(f"FAIL: outputs differ by more than {args.tolerance}: {', '.join(result['wrong'])}")
    return 0 if all(f["pass"] for f in judged) and not result["wrong"] else 1


def judge(tuning, ratios):
    """The figures of a tuning run with their limits; a short run leaves the plain model out."""
    plain = tuning["latency_plain_ms"]
    gain = [] if plain is None else [plain / tuning["latency_after_ms"]]
    figures = [("untuned plain / tuned (in the tuning run)", g, ">=", 3.0) for g in gain] + [
        (f"untuned default / {BASELINE}", ratios[DEFAULT]["median"], "<=", 2.5),
        (f"tuned / {BASELINE}", ratios[TUNED]["median"], "<=", 1.3),
    ]
    return [
        {
            "figure": name,
            "value": value,
            "limit_text": f"{sign} {limit}",
            "pass": value >= limit if sign == ">=" else value <= limit,
        }
        for name, value, sign, limit in figures
    ]


if __name__ == "__main__":
    sys.exit(main())
