"""All models against their rivals in one run: tuned, compared, checked, explained, summed up.

What takes long is kept under target/bench: a model that was tuned for as long
before is not tuned again. A part that fails is reported, and the rest goes on;
the report is written after every part, so that a run that was stopped has one.
"""

import json
import time

import agreement
import layers
import light
import summary
from comparison import as_only, compare, conditions
from harness import machine, program, report
from harness.program import Failure
from harness.report import say
from tables import TUNED

MODELS = (
    "alexnet", "vgg16", "resnet18", "resnet34", "resnet50", "squeezenet1.1",
    "mobilenet-v1", "mobilenet-v2", "bert-base", "light_densenet121",
    "light_inception_v1",
)  # fmt: skip
EXPLAIN_SECONDS = 3


def run(args, counts):
    """Everything, for all models at all thread counts."""
    started = time.monotonic()
    program.seconds_of(args.tune)
    accuracies = args.accuracy.split(",")
    if not set(accuracies) <= {"strict", "relaxed"}:
        raise Failure(f"--accuracy {args.accuracy}: there are strict and relaxed")
    shapes = agreement.Shapes(args.batch, args.dim)
    parts = [(m, t) for m in args.models.split(",") for t in counts]
    facts, results, failures = conditions(args), [], []
    for i, (model, threads) in enumerate(parts):
        elapsed = summary.duration(time.monotonic() - started)
        say(f"[{i + 1}/{len(parts)}] {model}, {threads} threads; {elapsed} so far")
        try:
            results += part(model, threads, accuracies, shapes, args, facts["commit"])
        except (Failure, RuntimeError, OSError) as error:
            failures.append(report.failure(f"{model}, {threads} threads", error))
        finish(args, facts, results, failures, time.monotonic() - started, quiet=True)
    summary.draw(args.name, results, counts)
    finish(args, facts, results, failures, time.monotonic() - started)
    wrong = [f"{r['model']} ({name})" for r in results for name in r["wrong"]]
    if wrong:
        say(f"FAIL: wrong results (outputs may differ by {args.tolerance}): {', '.join(wrong)}")
    return 1 if wrong or failures else 0


def part(model, threads, accuracies, shapes, args, commit):
    """One model at one thread count: tuned, compared, checked, and explained; a result an accuracy.

    All accuracies take turns with one set of rivals.
    """
    source = find_model(model)
    store = program.kept_store(f"suite-{program.slug(model)}")
    kinds = {f"{TUNED} {a}": [*shapes.args(), "--accuracy", a] for a in accuracies}
    made = {n: tuned(source, threads, store, of, args, commit) for n, of in kinds.items()}
    artifacts = {name: artifact for name, (_, artifact) in made.items()}
    compared = compare(source, threads, artifacts, shapes, args)
    results = []
    for accuracy, (name, model_args) in zip(accuracies, kinds.items()):
        result = as_only(compared, name, artifacts) | {"accuracy": accuracy}
        tuning, artifact = made[name]
        result["check"] = checked(source, artifact, threads, model_args)
        if not result["check"]["ok"]:
            result["wrong"].append("layers against f64 references")
        result["tuning"] = tuning
        result["best_rival"] = summary.best_rival(result["latencies"])
        result["gain"] = summary.gain(result["latencies"], result["best_rival"])
        try:
            result["explained"] = program.explain(
                source, artifact, threads, store, EXPLAIN_SECONDS, model_args,
                machine.cpus_for(threads),
            )  # fmt: skip
            result["layers_page"] = layers.write(args.name, result)
        except Failure as error:
            say(f"  no table of layers: {error}")
            result["explained"], result["explain_error"] = None, str(error)
        results.append(result)
    return results


def find_model(model):
    """The seeded copy of a light model of the package onnx; other models are what they are."""
    return str(light.seeded_copy(model)) if model.startswith("light_") else model


def checked(source, artifact, threads, model_args):
    """What `tunesmith check` says of every layer, in few words."""
    say("  checking every layer against f64 references")
    full = program.check(source, artifact, threads, model_args)
    bad = [layer for layer in full["layers"] if not layer["ok"]]
    for layer in bad:
        say(
            f"  WRONG: {layer['step']}, {layer['tensor']}: relative L2 {layer['rel_err']:.1e}, "
            f"largest error {layer['max_over_rms']:.1e} of the RMS, {layer['non_finite']} not finite"
        )
    facts = {k: v for k, v in full.items() if k != "layers"}
    return facts | {"tensors": len(full["layers"]), "bad": bad}


def tuned(source, threads, store, model_args, args, commit):
    """How a model was tuned, by an earlier run if that spent as long, and the tuned model.

    `model_args` ends with the accuracy.
    """
    artifact = program.artifact_path(source, threads, f"suite.{model_args[-1]}")
    kept = artifact.with_suffix(".json")
    seconds = program.seconds_of(args.tune)
    earlier = json.loads(kept.read_text()) if kept.is_file() and artifact.is_file() else None
    if earlier and not args.retune and earlier["asked_s"] >= seconds:
        say(f"  tuned before ({earlier['asked_s']:.0f} s, commit {earlier['commit']})")
        return earlier | {"reused": True}, artifact
    artifact.unlink(missing_ok=True)
    common = ["--threads", threads, "--store", store, "--out", artifact, *model_args]
    if seconds > 0:
        say(f"  {model_args[-1]}: tuning for {args.tune}")
        done = program.call_json("tune", source, "--time", args.tune, *common)
    else:
        done = program.call_json("compile", source, *common)
    before = earlier["spent_s"] if earlier else 0.0
    tuning = {
        "asked_s": seconds,
        "spent_s": before + done.get("wall_s", 0.0),
        "trials": done.get("trials", 0),
        "commit": commit,
        "report": done,
    }
    kept.write_text(json.dumps(tuning, indent=2) + "\n")
    return tuning | {"reused": False}, artifact


def finish(args, facts, results, failures, seconds, quiet=False):
    """Writes the report of what there is so far."""
    facts["rivals"] = {n: v for r in results for n, v in r["versions"].items()}
    facts["seconds"] = seconds
    text = summary.text(args.name, results)
    text += f"\nTotal time {summary.duration(seconds)}.\n"
    title = "Whole models against other runtimes"
    report.write(args.name, title, facts, results, text, failures, quiet)
