#!/usr/bin/env python3
"""Compares Tunesmith with onnxruntime (and OpenVINO, if installed) on CPUs.

`latency` compares models and thread counts; `tune-figures` judges one tuning
run by limits. The outputs are compared first. Then all contenders take turns in
short slices of one run, kept to the same CPUs. Needs what requirements.txt
names: bench/rivals/run installs it and calls this.
"""

import argparse
import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agreement
import arrays
import rival_process
from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say

TUNED, DEFAULT, BASELINE = "tunesmith", "tunesmith untuned", "onnxruntime"
SEED = 1


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


def compare(model, threads, artifacts, shapes, args):
    """Distances from onnxruntime, latencies and ratios of one model at one thread count.

    `artifacts` maps the name of a contender to its compiled model.
    """
    path, cpus = program.onnx_file(model), machine.cpus_for(threads)
    folder = program.OUT / "data" / f"{program.slug(program.model_name(model))}.{threads}t"
    folder.mkdir(parents=True, exist_ok=True)
    inputs = agreement.seeded_inputs(path, shapes, SEED)
    arrays.save(folder / "inputs.npz", inputs)
    with contextlib.ExitStack() as stack:
        rivals = start_rivals(path, threads, cpus, folder / "inputs.npz", stack)
        distances = compare_outputs(model, threads, artifacts, rivals, inputs, shapes, folder)
        contenders = {
            name: lambda seconds, a=artifact: program.bench(a, threads, seconds, cpus)
            for name, artifact in artifacts.items()
        }
        contenders |= {name: rival.slice for name, rival in rivals.items()}
        say(f"{program.model_name(model)}, {threads} threads: {args.rounds} rounds")
        taken = slices.interleaved(contenders, args.rounds, args.slice)
        versions = {name: rival.version for name, rival in rivals.items()}
    latencies = {name: slices.summary(s) for name, s in taken.items()}
    wrong = [n for n, d in distances.items() if not d["relative_l2"] <= args.tolerance]
    return {
        "model": program.model_name(model),
        "threads": threads,
        "distances": distances,
        "wrong": wrong,
        "latencies": latencies,
        "ratios": {
            name: slices.ratios(latency, latencies[BASELINE])
            for name, latency in latencies.items()
            if name != BASELINE
        },
        "versions": versions,
    }


def start_rivals(path, threads, cpus, inputs_file, stack):
    """The rivals that take the model, by name. Only the baseline has to."""
    rivals = {}
    for name in rival_process.installed():
        try:
            rival = rival_process.Rival(
                name, path, threads, inputs_file, program.keeping_to(cpus)
            )
        except RuntimeError as error:
            if name == BASELINE:
                raise
            say(f"  without {name}: {error}")
            continue
        rivals[name] = stack.enter_context(rival)
    return rivals


def compare_outputs(model, threads, artifacts, rivals, inputs, shapes, folder):
    """How far the outputs of every contender are from onnxruntime's.

    A build of the program without `run` is compared with its plain references
    instead, and the answer says so.
    """
    outputs = {}
    for name, rival in rivals.items():
        rival.outputs(folder / f"{name}.npz")
        outputs[name] = arrays.load(folder / f"{name}.npz")
    expected = outputs.pop(BASELINE)
    distances = {}
    runs = agreement.program_runs_models()
    for name, artifact in artifacts.items():
        if runs:
            place = folder / program.slug(name)
            ours = agreement.program_outputs(artifact, threads, inputs, place)
            distance, against = agreement.worst_distance(ours, expected), BASELINE
        else:
            checked = program.check(model, artifact, threads, shapes.args())
            distance = checked["max_rel_err"] if checked["ok"] else float("inf")
            against = "references"
        distances[name] = {"relative_l2": distance, "against": against}
    for name, theirs in outputs.items():
        distance = agreement.worst_distance(theirs, expected)
        distances[name] = {"relative_l2": distance, "against": BASELINE}
    for name, d in distances.items():
        say(f"  {name}: relative L2 distance {d['relative_l2']:.1e} from {d['against']}")
    return distances


def latency_command(args):
    counts = thread_counts(args.threads)
    if args.artifact and (len(args.models) > 1 or args.tune):
        raise Failure("--artifact is for one MODEL, and not together with --tune")
    if args.artifact and not Path(args.artifact).is_file():
        raise Failure(f"there is no file {args.artifact}")
    program.seconds_of(args.tune or "0")
    shapes = agreement.Shapes(args.batch, args.dim)
    facts, results, failures = machine.conditions(), [], []
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


def latency_text(results):
    """The table of a comparison, with what its columns mean."""
    if not results:
        return ""
    names = contender_names(results)
    ours = [n for n in names if n != BASELINE]
    header = ["model", "threads", *(f"{n} ms (min)" for n in names)]
    header += [*(f"{n} / {BASELINE}" for n in ours), "relative L2"]
    rows = []
    for r in results:
        row = [r["model"], r["threads"]]
        row += [latency_cell(r["latencies"].get(n)) for n in names]
        row += [ratio_cell(r["ratios"].get(n)) for n in ours]
        rows.append([*row, distance_cell(r)])
    spread = max(x["spread"] for r in results for x in r["latencies"].values())
    return (
        report.markdown_table(header, rows)
        + "\nMedian of interleaved slices, and minimum. Ratios: of the medians (of the minima, "
        + f"median of the rounds' ratios);\nbelow 1 is faster than {BASELINE}. "
        + f"Relative L2: the largest distance of outputs from {BASELINE}'s.\n"
        + f"Largest spread of a contender's slices: {100 * spread:.0f}%.\n"
    )


def contender_names(results):
    """Every contender of any model, in the order in which they first appear."""
    return list(dict.fromkeys(n for r in results for n in r["latencies"]))


def latency_cell(latency):
    return f"{latency['median_ms']:.3f} ({latency['min_ms']:.3f})" if latency else "-"


def ratio_cell(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}, {ratio['paired']:.2f})" if ratio else "-"


def distance_cell(result):
    """The largest distance, of all contenders."""
    name, worst = max(result["distances"].items(), key=lambda d: d[1]["relative_l2"])
    text = f"{worst['relative_l2']:.1e}"
    if worst["against"] != BASELINE:
        text += f" ({worst['against']})"
    return f"FAIL {text}, {name}" if result["wrong"] else text


def draw(name, results):
    """Latencies relative to onnxruntime's, with milliseconds over the bars."""

    def bar(result, contender):
        latencies = result["latencies"]
        if contender not in latencies:
            return None
        ms = latencies[contender]["median_ms"]
        return ms / latencies[BASELINE]["median_ms"], f"{ms:.3g} ms"

    series = {n: [bar(r, n) for r in results] for n in contender_names(results)}
    groups = [f"{r['model']}, {r['threads']}T" for r in results]
    report.bar_chart(name, "Latency", f"relative to {BASELINE} (lower is better)", groups, series)


def tune_figures_command(args):
    program.seconds_of(args.time)
    shapes = agreement.Shapes(args.batch, args.dim)
    facts = machine.conditions()
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
    """The three figures of a tuning run with their limits."""
    gain = tuning["latency_before_ms"] / tuning["latency_after_ms"]
    figures = [
        ("untuned plain / tuned (in the tuning run)", gain, ">=", 3.0),
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
