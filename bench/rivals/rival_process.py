"""A rival in a process of its own: loads a model once, then runs slices on request.

usage: rival_process.py RIVAL MODEL.onnx THREADS INPUTS.npz

One JSON object a line on standard output: first `version`, then one answer to
each line of standard input:

    outputs FILE    runs once and writes the outputs to FILE (.npz)
    slice SECONDS   runs for about so long; median_ms, min_ms, p90_ms, runs

Ends with its standard input. `Rival` is the other end of these pipes.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec

# As `tunesmith bench` does: one warm-up a slice, and at least so many runs.
MIN_RUNS = 5


def onnxruntime_runner(path, threads, inputs):
    """Version, and a function that runs the model once and returns its outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return onnxruntime.__version__, lambda: dict(zip(names, session.run(None, inputs)))


def openvino_runner(path, threads, inputs):
    """The same for OpenVINO; at f32, because the others run the model as it is."""
    import openvino

    properties = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
        "ENABLE_CPU_PINNING": False,
    }
    core = openvino.Core()
    model = core.read_model(path)
    # Fixed shapes: tunesmith's are fixed as well.
    model.reshape({name: list(value.shape) for name, value in inputs.items()})
    request = core.compile_model(model, "CPU", properties).create_infer_request()
    outputs = [(i, output.get_any_name()) for i, output in enumerate(model.outputs)]
    for name, value in inputs.items():
        request.set_tensor(name, openvino.Tensor(value, shared_memory=False))

    def run():
        request.infer()
        return {name: request.get_output_tensor(i).data for i, name in outputs}

    return openvino.get_version().split("-")[0], run


RIVALS = {"onnxruntime": onnxruntime_runner, "openvino": openvino_runner}


def installed():
    """The rivals that can be imported here."""
    return [name for name in RIVALS if find_spec(name)]


def run_slice(run, seconds):
    """Runs for about `seconds`, after one warm-up."""
    run()
    samples_ms, start = [], time.perf_counter()
    while len(samples_ms) < MIN_RUNS or time.perf_counter() - start < seconds:
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
    version, run = RIVALS[rival](path, int(threads), arrays.load(inputs_file))
    print(json.dumps({"version": version}), file=answers)
    for line in sys.stdin:
        command, argument = line.rstrip("\n").split(" ", 1)
        if command == "outputs":
            arrays.save(argument, run())
            answer = {"outputs": argument}
        else:
            answer = run_slice(run, float(argument))
        print(json.dumps(answer), file=answers)


class Rival:
    """A running rival; a context manager that ends it."""

    def __init__(self, name, path, threads, inputs_file, preexec):
        self.name = name
        self.child = subprocess.Popen(
            [sys.executable, __file__, name, str(path), str(threads), str(inputs_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=preexec,
        )
        self.version = self._answer()["version"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()

    def outputs(self, path):
        """Writes the outputs of one run to a file."""
        return self._ask(f"outputs {path}")

    def slice(self, seconds):
        """Runs for about so long."""
        return self._ask(f"slice {seconds}")

    def _ask(self, line):
        try:
            print(line, file=self.child.stdin, flush=True)
        except BrokenPipeError as error:
            raise RuntimeError(f"{self.name} has ended; its messages are above") from error
        return self._answer()

    def _answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has ended; its messages are above")
        return json.loads(line)


if __name__ == "__main__":
    if len(sys.argv) != 5 or sys.argv[1] not in RIVALS:
        sys.exit(__doc__)
    serve(*sys.argv[1:])
