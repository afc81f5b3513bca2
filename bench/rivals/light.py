"""Light models of the package onnx with weights: seeded copies that can be compared.

The package's files fill every weight with one value, so that whatever computes
them gives one value for all classes, and equal constants take less memory where
a runtime stores them once. The copies have the same operators and shapes, and
random weights at a scale that keeps activations from growing or vanishing. All
contenders get the same file.
"""

import math
import zlib
from importlib.util import find_spec
from pathlib import Path

import numpy
import onnx

from harness import program
from harness.program import Failure

# What passes a weight on to the operator that uses it.
PASSING = ("Unsqueeze", "Reshape", "Identity")

# Without initializers among the inputs, so that they are constants.
IR_VERSION = 8


def seeded_copy(name):
    """The path of the seeded copy of `light_NAME`; the same bytes whenever it is made."""
    short = name.removeprefix("light_")
    model = onnx.load(source(name))
    seed(model.graph, zlib.crc32(short.encode()))
    model.ir_version = max(model.ir_version, IR_VERSION)
    onnx.checker.check_model(model)
    path = program.OUT / "models" / f"{short}-seeded.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def source(name):
    """The file in the package onnx."""
    package = find_spec("onnx")
    if package is None:
        raise Failure(f"{name} comes with the Python package onnx, which is not installed")
    folder = Path(package.submodule_search_locations[0]) / "backend" / "test" / "data" / "light"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        raise Failure(f"the installed onnx has no {path.name}")
    return path


def seed(graph, number):
    """Replaces every float constant of a graph by a random one that suits its use."""
    rng = numpy.random.default_rng(number)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    constants, filled = {}, []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in stored:
            shape = tuple(int(d) for d in stored[node.input[0]])
            constants[node.output[0]] = shape
            filled.append(node)
    shapes = {node.input[0] for node in filled}
    for name, value in stored.items():
        if value.dtype == numpy.float32 and value.size > 1:
            constants[name] = value.shape
    users = uses(graph)
    weights = {
        name: numpy.asarray(draw(rng, shape, *user(name, users)), dtype=numpy.float32)
        for name, shape in constants.items()
    }
    for node in filled:
        graph.node.remove(node)
    kept = [t for t in graph.initializer if t.name not in weights and t.name not in shapes]
    inputs = [i for i in graph.input if i.name not in stored]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(w, n) for n, w in weights.items())
    graph.input.extend(inputs)


def uses(graph):
    """The node that uses a value, and as which input, by the value's name."""
    return {name: (node, i) for node in graph.node for i, name in enumerate(node.input)}


def user(name, users):
    """Operator and position at which a constant is used, past what passes it on."""
    node, position = users.get(name, (None, 0))
    while node is not None and node.op_type in PASSING and position == 0:
        node, position = users.get(node.output[0], (None, 0))
    if node is None:
        raise Failure(f"the light model does not use its constant {name}")
    transposed = any(a.name == "transB" and a.i for a in node.attribute)
    return node.op_type, position, transposed


def draw(rng, shape, operator, position, transposed):
    """Random values for one use: He's for weights, near 1 for factors, near 0 for what is added."""
    if operator in ("Conv", "Gemm", "MatMul") and position == 1:
        # What one output sums over.
        across = shape[1:] if operator == "Conv" else shape[-1:] if transposed else shape[-2:-1]
        fan_in = math.prod(across)
        return rng.standard_normal(shape, dtype=numpy.float32) * math.sqrt(2.0 / fan_in)
    if operator == "Mul" or (operator == "BatchNormalization" and position in (1, 4)):
        return rng.uniform(0.8, 1.2, shape)
    if operator in ("Conv", "Gemm", "Add", "BatchNormalization"):
        return rng.standard_normal(shape) * 0.1
    raise Failure(f"no weights are known that suit input {position} of {operator}")
