"""A rival in a process of its own: loads a model once, then runs slices on request.

usage: rival_process.py RIVAL MODEL.onnx THREADS INPUTS.npz

One JSON object a line on standard output: first `version`, then one answer to
each line of standard input:

    outputs FILE    runs once and writes the outputs to FILE (.npz)
    slice SECONDS   runs for about so long; median_ms, min_ms, p90_ms, runs

or `error` in place of any of them. Ends with its standard input. `Rival` is the
other end of these pipes.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

from runtimes import RUNTIMES

# As `tunesmith bench` does: one warm-up a slice, and at least so many runs.
MIN_RUNS = 5

# Fewer where they would take longer than this: a rival may be a hundred times slower.
PATIENCE_S = 10.0


def run_slice(run, seconds):
    """Runs for about `seconds`, after one warm-up; often enough, but no slow model for long."""
    run()
    samples_ms, start = [], time.perf_counter()
    while True:
        elapsed = time.perf_counter() - start
        enough = len(samples_ms) >= MIN_RUNS or (samples_ms and elapsed > PATIENCE_S)
        if enough and elapsed >= seconds:
            break
        before = time.perf_counter_ns()
        run()
        samples_ms.append((time.perf_counter_ns() - before) / 1e6)
    return {
        "median_ms": statistics.median(samples_ms),
        "min_ms": min(samples_ms),
        "p90_ms": sorted(samples_ms)[int(0.9 * (len(samples_ms) - 1))],
        "runs": len(samples_ms),
    }


def serve(rival, path, threads, inputs_file):
    """The child's side of the pipes."""
    import arrays

    # Libraries print to standard output; answers keep a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        version, run = RUNTIMES[rival].runner(path, int(threads), arrays.load(inputs_file))
        print(json.dumps({"version": version}), file=answers)
        for line in sys.stdin:
            command, argument = line.rstrip("\n").split(" ", 1)
            if command == "outputs":
                arrays.save(argument, run())
                answer = {"outputs": argument}
            else:
                answer = run_slice(run, float(argument))
            print(json.dumps(answer), file=answers)
    except Exception as error:
        # Whatever stops a rival is its answer; its messages are for who wants to repair it.
        traceback.print_exc()
        answer = {"error": last_words(f"{type(error).__name__}: {error}")}
        print(json.dumps(answer), file=answers)


# What MNN's converter says last, after the line that says why.
NO_REASONS = ("Converted Failed!",)


def last_words(messages):
    """The last line that says something."""
    lines = [line.strip() for line in messages.splitlines()]
    said = [line for line in lines if line and line not in NO_REASONS]
    return said[-1][:300] if said else "no message"


# What glibc puts large allocations into huge pages by, as Tunesmith does with constants.
HUGE_PAGES = "glibc.malloc.hugetlb=1"


def environment(threads, huge_pages, inherited):
    """What a rival's process finds in its environment."""
    # Read when numpy is first imported, which is before the rival is made.
    own = {"OPENBLAS_NUM_THREADS": str(threads)}
    if huge_pages:
        others = inherited.get("GLIBC_TUNABLES")
        own["GLIBC_TUNABLES"] = ":".join(filter(None, [others, HUGE_PAGES]))
    return {**inherited, **own}


class Rival:
    """A running rival; a context manager that ends it."""

    def __init__(self, name, path, threads, inputs_file, preexec, huge_pages):
        self.name = name
        self.messages = tempfile.TemporaryFile("w+", errors="replace")
        self.child = subprocess.Popen(
            [sys.executable, __file__, name, str(path), str(threads), str(inputs_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            text=True,
            env=environment(threads, huge_pages, os.environ),
            preexec_fn=preexec,
        )
        self.version = self._answer()["version"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()
        self.messages.close()

    def outputs(self, path):
        """Writes the outputs of one run to a file."""
        return self._ask(f"outputs {path}")

    def slice(self, seconds):
        """Runs for about so long."""
        return self._ask(f"slice {seconds}")

    def _ask(self, line):
        # A child that has ended gives no answer, which is told below.
        with contextlib.suppress(BrokenPipeError):
            print(line, file=self.child.stdin, flush=True)
        return self._answer()

    def _answer(self):
        line = self.child.stdout.readline()
        answer = json.loads(line) if line else {"error": None}
        if "error" in answer:
            raise self._failure(answer["error"])
        return answer

    def _failure(self, reason):
        """Why the child gave no answer; its messages go to standard error."""
        status = self.child.wait()
        self.messages.seek(0)
        messages = self.messages.read()
        self.__exit__()
        print(messages, file=sys.stderr, flush=True)
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return RuntimeError(reason or f"ended with {how}: {last_words(messages)}")


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in RUNTIMES:
        sys.exit(__doc__)
    serve(*sys.argv[1:])
