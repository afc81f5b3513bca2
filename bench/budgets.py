"""Latency reached after parts of a tuning run: one run, cut at several times.

The records of one long run are cut at each budget; the model is compiled from
what was known then, and all the results are measured in turns. A run that ended
at that time would also have ranked its finalists, so it would do no worse.
"""

import json

from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say

UNTUNED, END = "untuned", "after the run"


def run(args):
    """Tunes the models, unless an earlier run did, and measures every cut."""
    budgets = {b: program.seconds_of(b) for b in args.budgets.split(",")}
    facts, failures = machine.conditions(), []
    results = earlier(args)
    for model in args.models:
        try:
            results.append(measure(model, budgets, args) | {"commit": facts["commit"]})
        except Failure as error:
            failures.append(report.failure(model, error))
        write(facts, results, args, failures, quiet=True)
    if results:
        draw(results)
    write(facts, results, args, failures)
    return 1 if failures else 0


def earlier(args):
    """What earlier calls measured of other models, on as many threads."""
    kept = program.OUT / "budgets.json"
    results = json.loads(kept.read_text())["results"] if kept.is_file() else []
    again = [program.model_name(m) for m in args.models]
    alike = (args.threads, args.accuracy)
    same = [r for r in results if (r["threads"], r.get("accuracy")) == alike]
    return [r for r in same if r["model"] not in again]


def write(facts, results, args, failures, quiet=False):
    intro = f"{args.threads} threads, accuracy {args.accuracy}; medians (and minima) in ms.\n\n"
    text = intro + table(results)
    report.write("budgets", "Latency by tuning time", facts, results, text, failures, quiet)


def measure(model, budgets, args):
    """Latencies of one model at all budgets."""
    threads = args.threads
    model_args = ["--accuracy", args.accuracy]
    name = f"budgets-{program.slug(model)}.{threads}t.{args.accuracy}"
    store, longest = program.kept_store(name), max(budgets.values())
    tuned = program.artifact_path(model, threads, f"budgets.{args.accuracy}")
    kept = tuned.with_suffix(".json")
    report_of_run = json.loads(kept.read_text()) if kept.is_file() and tuned.is_file() else None
    if args.retune or not report_of_run or report_of_run["asked_s"] < longest:
        for old in [*store.parent.glob(f"{name}.sqlite*"), tuned, kept]:
            old.unlink(missing_ok=True)
        say(f"{model}, {threads} threads: tuning for {longest:.0f} s")
        done = program.call_json(
            "tune", model, "--threads", threads, "--time", f"{longest}s", "--store", store,
            "--out", tuned, *model_args,
        )  # fmt: skip
        report_of_run = {"asked_s": longest, "report": done}
        kept.write_text(json.dumps(report_of_run, indent=2) + "\n")
    artifacts = {UNTUNED: program.compile_default(model, threads, model_args)}
    export = store.with_suffix(".jsonl")
    program.call("records", "export", export, "--store", store)
    lines = export.read_text().splitlines()
    for budget, seconds in budgets.items():
        artifacts[budget] = compile_cut(model, threads, budget, cut(lines, seconds), model_args)
    artifacts[END] = tuned
    cpus = machine.cpus_for(threads)
    contenders = {
        name: lambda seconds, a=a: program.bench(a, threads, seconds, cpus)
        for name, a in artifacts.items()
    }
    taken = slices.interleaved(contenders, args.rounds, args.slice)
    return {
        "model": program.model_name(model),
        "threads": threads,
        "accuracy": args.accuracy,
        "budgets": budgets,
        "trials": {b: count_records(cut(lines, s)) for b, s in budgets.items()},
        "latencies": {n: slices.summary(s) for n, s in taken.items()},
        "tuning": report_of_run,
    }


def cut(lines, seconds):
    """An export as it would have been so long after its first run began; of events only layouts."""
    parsed = [json.loads(line) for line in lines]
    starts = [r["started_unix_ms"] for r in parsed if r["type"] == "run"]
    if not starts:
        raise Failure("the store has no run: tune again with --retune")
    end = min(starts) + 1000 * seconds

    def known(entry):
        if entry["type"] == "record":
            return entry["created_unix_ms"] <= end
        return entry["type"] != "event" or entry.get("kind") == "layouts"

    return [line for line, entry in zip(lines, parsed) if known(entry)]


def count_records(lines):
    return sum(json.loads(line)["type"] == "record" for line in lines)


def compile_cut(model, threads, budget, lines, model_args):
    """The model compiled from a part of a run's records."""
    artifact = program.artifact_path(model, threads, f"budget-{budget}")
    store = program.fresh_store(artifact.stem)
    part = store.with_suffix(".jsonl")
    part.write_text("\n".join(lines) + "\n")
    program.call("records", "import", part, "--store", store)
    program.call_json(
        "compile", model, "--threads", threads, "--store", store, "--out", artifact, *model_args
    )
    return artifact


def table(results):
    budgets = {b: s for r in results for b, s in r["budgets"].items()}
    names = [UNTUNED, *sorted(budgets, key=budgets.get), END]
    rows = []
    for r in results:
        cells = [r["latencies"].get(n) for n in names]
        shown = [f"{c['median_ms']:.3f} ({c['min_ms']:.3f})" if c else "" for c in cells]
        rows.append([r["model"], r["commit"], *shown])
        trials = [r["trials"].get(n, "") for n in names[1:-1]]
        rows.append(["candidates", "", 0, *trials, ""])
    return (
        report.markdown_table(["model", "commit", *names], rows)
        + "\nOne tuning run a model, cut: each is compiled from what was known then, without the\n"
        + "final ranking that a run of that length would end with. Cuts are measured in turns.\n"
    )


def draw(results):
    """Latency relative to the untuned one over tuning time; minima, which noise moves least."""
    series = {}
    for r in results:
        least = {name: latency["min_ms"] for name, latency in r["latencies"].items()}
        points = [(s, least[b] / least[UNTUNED]) for b, s in r["budgets"].items()]
        series[r["model"]] = sorted(points)
    names = ("seconds of tuning", "latency relative to untuned (minima)")
    report.line_chart("budgets", "Latency by tuning time", names, series)
