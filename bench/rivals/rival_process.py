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
import traceback
from importlib.util import find_spec

# As `tunesmith bench` does: one warm-up a slice, and at least so many runs.
MIN_RUNS = 5

# Fewer where they would take longer than this: a rival may be a hundred times slower.
PATIENCE_S = 10.0


def onnxruntime_runner(path, threads, inputs):
    """Version, and a function that runs the model once and returns its outputs by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # Outputs are written where the last ones were, as by the other runtimes.
    binding, names = session.io_binding(), [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, inputs)))
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, value(array))
    for name, array in outputs.items():
        binding.bind_ortvalue_output(name, value(array))

    def run():
        session.run_with_iobinding(binding)
        return outputs

    run.inputs = inputs  # The binding points into them.
    return onnxruntime.__version__, run


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


def tract_runner(path, threads, inputs):
    """The same for tract, which computes on one thread."""
    import tract

    model = tract.onnx().load(path)
    for i, value in enumerate(inputs.values()):
        kind = f"{value.dtype.kind}{8 * value.dtype.itemsize}"
        model.set_input_fact(i, ",".join([*map(str, value.shape), kind]))
    runnable = model.into_model().into_runnable()
    values = list(inputs.values())
    run = lambda: {str(i): o.to_numpy() for i, o in enumerate(runnable.run(values))}
    return installed_version("tract"), run


def iree_runner(path, threads, inputs):
    """The same for IREE: compiled for this CPU with its defaults; it has no tuning to run."""
    import tempfile

    import iree.compiler.tools.import_onnx.__main__ as importer
    import iree.runtime
    from iree.compiler import tools

    flags = ["--iree-llvmcpu-target-cpu=host"]
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "model.mlir")
        importer.main(importer.parse_arguments([path, "-o", text, "--opset-version", "17"]))
        code = tools.compile_file(
            text, target_backends=["llvm-cpu"], input_type="onnx", extra_args=flags
        )
    iree.runtime.flags.parse_flags(f"--task_topology_max_group_count={threads}")
    driver = "local-sync" if threads == 1 else "local-task"
    context = iree.runtime.SystemContext(config=iree.runtime.Config(driver))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    module = context.modules[next(m for m in context.modules.keys() if m != "hal")]
    names = module.vm_module.function_names
    main = module[next(n for n in names if not n.startswith("__") and "$" not in n)]
    values = list(inputs.values())

    def run():
        outputs = main(*values)
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return {str(i): o.to_host() for i, o in enumerate(outputs)}

    return installed_version("iree-base-runtime"), run


def tvm_runner(path, threads, inputs):
    """The same for TVM, untuned."""
    os.environ["TVM_NUM_THREADS"] = str(threads)
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    shapes = {name: list(value.shape) for name, value in inputs.items()}
    module = from_onnx(onnx.load(path), shape_dict=shapes, keep_params_in_input=False)
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
    built = tvm.compile(module, target=target)
    machine = relax.VirtualMachine(built, tvm.cpu())
    values = [tvm.runtime.tensor(v) for v in inputs.values()]

    def run():
        outputs = machine["main"](*values)
        outputs = [outputs] if hasattr(outputs, "numpy") else list(outputs)
        return {str(i): o.numpy() for i, o in enumerate(outputs)}

    return tvm.__version__, run


def openblas_runner(path, threads, inputs):
    """The same for the OpenBLAS in numpy, which multiplies two matrices and nothing else."""
    import numpy
    import onnx

    nodes = onnx.load(path).graph.node
    if [n.op_type for n in nodes] != ["MatMul"]:
        raise ValueError("the model is more than one matrix product")
    a, b = inputs.values()
    out = numpy.empty((a.shape[0], b.shape[1]), a.dtype)
    blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}", lambda: {"out": numpy.matmul(a, b, out=out)}


def installed_version(package):
    from importlib.metadata import version

    return version(package)


RIVALS = {
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
    "tract": tract_runner,
    "iree": iree_runner,
    "tvm": tvm_runner,
    "openblas": openblas_runner,
}

# What is imported, where that is not the rival's name.
MODULES = {"iree": "iree.compiler", "openblas": "numpy"}


def refusal(name, threads):
    """Why a rival cannot take part; None if it can, as far as is known before it starts."""
    if name not in RIVALS:
        return f"unknown; the rivals are {', '.join(RIVALS)}"
    try:
        found = find_spec(MODULES.get(name, name))
    except ImportError:
        found = None
    if found is None:
        return "not installed"
    if name == "tract" and threads > 1:
        return "computes on one thread only"
    return None


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
        version, run = RIVALS[rival](path, int(threads), arrays.load(inputs_file))
    except Exception as error:
        # Whatever stops a rival is its answer; its messages are for who wants to repair it.
        traceback.print_exc()
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps({"error": what[:300]}), file=answers)
        return
    print(json.dumps({"version": version}), file=answers)
    for line in sys.stdin:
        command, argument = line.rstrip("\n").split(" ", 1)
        if command == "outputs":
            arrays.save(argument, run())
            answer = {"outputs": argument}
        else:
            answer = run_slice(run, float(argument))
        print(json.dumps(answer), file=answers)


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
        self.child = subprocess.Popen(
            [sys.executable, __file__, name, str(path), str(threads), str(inputs_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(threads, huge_pages, os.environ),
            preexec_fn=preexec,
        )
        first = self._answer()
        if "error" in first:
            self.__exit__()
            raise RuntimeError(f"cannot load the model: {first['error']}")
        self.version = first["version"]

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
