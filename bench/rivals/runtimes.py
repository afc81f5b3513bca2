"""The rival runtimes: a table, and for each a function that makes it ready.

`NAME_runner(path, threads, inputs)` loads an ONNX file and returns the runtime's
version and a function that runs the model once and returns its outputs by name.
One that cannot raises, or exits after its library has printed why.

As a program it prints the names of the rivals that a comparison has by default.
"""

import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Callable, NamedTuple

import tvm_target


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


def mnn_runner(path, threads, inputs):
    """The same for MNN, in f32; it reads what its own converter makes of the ONNX file."""
    # The converter alone: `mnnconvert` and `MNN.tools` install packages and send statistics.
    import _tools
    import MNN

    with tempfile.TemporaryDirectory() as folder:
        converted = os.path.join(folder, "model.mnn")
        _tools.mnnconvert(
            ["mnnconvert", "-f", "ONNX", "--modelFile", path, "--MNNModel", converted]
        )
        if not os.path.isfile(converted):
            sys.exit(1)
        network = MNN.Interpreter(converted)
    session = network.createSession({"backend": "CPU", "numThread": threads, "precision": "high"})
    targets = network.getSessionInputAll(session)
    for name, value in inputs.items():
        network.resizeTensor(targets[name], value.shape)
    network.resizeSession(session)
    kinds = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int}
    values, layout = int32_for_integers(inputs), MNN.Tensor_DimensionType_Caffe
    filled = [
        (targets[name], MNN.Tensor(value.shape, kinds[str(value.dtype)], value, layout))
        for name, value in values.items()
    ]
    outputs = network.getSessionOutputAll(session)

    def run():
        # A session computes in the memory of its inputs too, so they are gone after a run.
        for target, value in filled:
            target.copyFrom(value)
        if network.runSession(session) != 0:
            sys.exit(1)
        return {name: output.getNumpyData() for name, output in outputs.items()}

    run.values = values  # The tensors may point into them.
    return MNN.version(), run


def ncnn_runner(path, threads, inputs):
    """The same for ncnn, in f32; pnnx converts the ONNX file."""
    import ncnn

    # Its program: the Python module would import torch.
    program = os.path.join(find_spec("pnnx").submodule_search_locations[0], "pnnx")
    shapes = ",".join(
        f"[{','.join(map(str, v.shape))}]{v.dtype.kind}{8 * v.dtype.itemsize}"
        for v in inputs.values()
    )
    network = ncnn.Net()
    for what in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_packed", "bf16_storage"):
        setattr(network.opt, f"use_{what}", False)
    network.opt.num_threads = threads
    # As its own benchmark does: without them every run allocates all memory again.
    pools = ncnn.UnlockedPoolAllocator(), ncnn.PoolAllocator()
    network.opt.blob_allocator, network.opt.workspace_allocator = pools
    with tempfile.TemporaryDirectory() as folder:
        # pnnx writes beside the model.
        model = os.path.join(folder, "model.onnx")
        os.symlink(os.path.abspath(path), model)
        made = [os.path.join(folder, f"model{end}") for end in (".ncnn.param", ".ncnn.bin")]
        command = [program, model, f"inputshape={shapes}", "fp16=0"]
        if subprocess.run(command, cwd=folder).returncode or not all(map(os.path.isfile, made)):
            sys.exit(1)
        if network.load_param(made[0]) or network.load_model(made[1]):
            sys.exit(1)
        with open(os.path.join(folder, "model_ncnn.py")) as file:
            axes_in, axes_out = batch_axes(file.read())
    values = [
        (name, ncnn.Mat(value, batch_index=axes_in[name]).clone())
        for name, value in zip(network.input_names(), int32_for_integers(inputs).values())
    ]

    def run():
        extractor = network.create_extractor()
        for name, value in values:
            extractor.input(name, value)
        outputs = {}
        for name, axis in axes_out.items():
            failed, output = extractor.extract(name)
            if failed:
                sys.exit(1)
            outputs[name] = output.numpy(batch_index=axis)
        return outputs

    run.pools = pools  # The network has pointers to them.
    return ncnn.__version__, run


def batch_axes(script):
    """Which axis of each input and output pnnx took for the batch, which ncnn's arrays lack.

    `script` is the example that pnnx writes beside the converted model.
    """
    read = re.findall(r'ex\.input\("(\w+)".*batch_index=(\d+)\)', script)
    written = re.findall(r"append\(.*\b(\w+)\.numpy\(batch_index=(\d+)\)", script)
    return tuple({name: int(axis) for name, axis in found} for found in (read, written))


def int32_for_integers(inputs):
    """The inputs for a runtime that has no other integers."""
    import numpy

    return {n: v if v.dtype.kind == "f" else v.astype(numpy.int32) for n, v in inputs.items()}


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
    target = tvm_target.host(threads)
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


class Runtime(NamedTuple):
    runner: Callable
    # What has to be installed.
    modules: tuple[str, ...]


RUNTIMES = {
    "onnxruntime": Runtime(onnxruntime_runner, ("onnxruntime",)),
    "openvino": Runtime(openvino_runner, ("openvino",)),
    "mnn": Runtime(mnn_runner, ("MNN", "_tools")),
    "ncnn": Runtime(ncnn_runner, ("ncnn", "pnnx")),
    "tract": Runtime(tract_runner, ("tract",)),
    "iree": Runtime(iree_runner, ("iree.compiler",)),
    "tvm": Runtime(tvm_runner, ("tvm",)),
    "openblas": Runtime(openblas_runner, ("numpy",)),
}

# Those that a comparison has unless --rivals names others.
DEFAULT = ("onnxruntime", "openvino", "mnn", "ncnn")


def refusal(name, threads):
    """Why a rival cannot take part; None if it can, as far as is known before it starts."""
    if name not in RUNTIMES:
        return f"unknown; the rivals are {', '.join(RUNTIMES)}"
    if not all(map(installed, RUNTIMES[name].modules)):
        return "not installed"
    if name == "tract" and threads > 1:
        return "computes on one thread only"
    return None


def installed(module):
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


if __name__ == "__main__":
    print(*DEFAULT)
