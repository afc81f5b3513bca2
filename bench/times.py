"""How long `tune --time` takes: the whole command, compiled model and all, by the wall clock.

Each run starts from no records, and reads no object that an earlier one compiled.
"""

import os
import tempfile
import time

from harness import machine, program, report
from harness.program import Failure
from harness.report import say

# Slow and quick ones, with many tasks and with one; --models takes ONNX files as well.
MODELS = (
    "op:conv3d(c=64,d=16,h=56,w=56,k=64)", "op:conv1d(c=512,w=3000,k=512)",
    "op:batch_matmul(b=12,m=1500,n=1500,k=64)", "op:conv3d_transpose(c=32,d=16,h=28,w=28,k=32)",
    "vgg16", "resnet50", "squeezenet1.1", "mobilenet-v2", "bert-base", "resnet18",
)  # fmt: skip


def run(args):
    """Tunes every model for every time, and says how much longer that took."""
    budgets = [(b, program.seconds_of(b)) for b in args.times.split(",")]
    facts, results, failures = machine.conditions(), [], []
    for model in args.models or MODELS:
        for text, seconds in budgets:
            say(f"{model}: tuning for {text}")
            try:
                results.append(measure(model, args.threads, text, seconds))
            except Failure as error:
                failures.append(report.failure(f"{model}, {text}", error))
    intro = f"{args.threads} threads; seconds of the whole command.\n\n"
    report.write("times", "Time of tuning", facts, results, intro + table(results), failures)
    late = [r for r in results if r["seconds"] > r["limit"]]
    for r in late:
        say(f"LATE: {r['model']} took {r['seconds']:.1f} s for --time {r['time']}")
    return 1 if late or failures else 0


def measure(model, threads, text, seconds):
    """One run: what it took, and what it may take."""
    with tempfile.TemporaryDirectory() as cache:
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = cache
        start = time.monotonic()
        try:
            tuning, _ = program.tune(model, threads, text)
        finally:
            took = time.monotonic() - start
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before
    return {
        "model": program.model_name(model),
        "time": text,
        "seconds": took,
        "limit": limit(seconds, tuning["default_s"]),
        "tuning": tuning,
    }


def limit(seconds, default_s):
    """The larger of 20% and 5 s beyond the budget, or 5 s after the default model is built."""
    return max(1.2 * seconds, seconds + 5, default_s + 5)


def table(results):
    """A row a model and time."""
    header = ["model", "--time", "seconds", "default s", "tasks measured", "candidates", "gain"]
    return report.markdown_table(header, [row(r) for r in results])


def row(r):
    tuning = r["tuning"]
    measured = sum(1 for t in tuning["tasks"] if t["trials"])
    gain = tuning["latency_default_ms"] / tuning["latency_after_ms"]
    return [
        r["model"],
        r["time"],
        f"{r['seconds']:.1f}",
        f"{tuning['default_s']:.1f}",
        f"{measured} of {len(tuning['tasks'])}",
        tuning["trials"],
        f"{gain:.2f}",
    ]
