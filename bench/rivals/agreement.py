"""Whether Tunesmith and a rival compute the same: seeded inputs, outputs, their distance."""

import numpy
import onnx

from harness import program
from harness.program import Failure

# Integers without a known range: a mask, a segment, a flag.
DEFAULT_INTEGER_BOUND = 2

# Relative to a value; onnxruntime computes some operators of doubles in floats.
RELATIVE = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-6}


class Shapes:
    """Sizes of symbolic dimensions, as given with --batch and --dim."""

    def __init__(self, batch, dims):
        self.batch = batch
        self.sizes = {}
        for text in dims:
            name, _, size = text.partition("=")
            if not name or not size.isdigit():
                raise Failure(f"--dim {text} is not NAME=SIZE")
            self.sizes[name] = int(size)

    def args(self):
        """The same for the program's command line."""
        batch = [] if self.batch is None else ["--batch", str(self.batch)]
        return batch + [a for name, size in self.sizes.items() for a in ("--dim", f"{name}={size}")]

    def size(self, dim, input_name, axis):
        """The size of one dimension of an input."""
        if dim.HasField("dim_value"):
            return dim.dim_value
        place = f"{input_name}.{axis}"
        for name in (place, dim.dim_param):
            if name in self.sizes:
                return self.sizes[name]
        if axis == 0 and self.batch is not None:
            return self.batch
        raise Failure(
            f"input `{input_name}` has no size for `{dim.dim_param or place}`: "
            f"give --dim {dim.dim_param or place}=SIZE"
        )


def seeded_inputs(path, shapes, seed):
    """Arrays for every input of an ONNX file: floats in [-1, 1), indices within their table."""
    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    rng = numpy.random.default_rng(seed)
    inputs = {}
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [shapes.size(d, value.name, axis) for axis, d in enumerate(tensor.shape.dim)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind in "iu":
            array = rng.integers(0, integer_bound(graph, value.name), shape)
        elif dtype.kind == "b":
            array = rng.integers(0, 2, shape)
        else:
            array = rng.uniform(-1.0, 1.0, shape)
        inputs[value.name] = numpy.asarray(array, dtype=dtype)
    return inputs


def integer_bound(graph, name):
    """The rows of the smallest constant table that `name` gathers from, or 2."""
    tables = {tensor.name: tensor.dims for tensor in graph.initializer}
    bounds = []
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in tables:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
            bounds.append(tables[node.input[0]][axis])
    return min(bounds, default=DEFAULT_INTEGER_BOUND)


def relative_l2(ours, theirs):
    """|ours - theirs| / |theirs|, infinite for other shapes or what is not a number."""
    if ours.shape != theirs.shape:
        return float("inf")
    a, b = (numpy.asarray(x, dtype=numpy.float64) for x in (ours, theirs))
    if not (numpy.isfinite(a).all() and numpy.isfinite(b).all()):
        return float("inf")
    distance, norm = numpy.linalg.norm((a - b).ravel()), numpy.linalg.norm(b.ravel())
    return float(distance / norm) if norm > 0 else float(distance)


def difference(actual, expected, tolerance):
    """How a result differs, in words; None if each element is within the tolerance, or both are infinite or no number alike."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return f"{actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    ours, theirs = (values.astype(numpy.float64) for values in (actual, expected))
    # Infinities less themselves are no numbers.
    with numpy.errstate(invalid="ignore"):
        apart = numpy.abs(ours - theirs)
    wrong = ~(apart <= tolerance) & (actual != expected) & ~(numpy.isnan(ours) & numpy.isnan(theirs))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements; element {list(at)} is {actual[at]}, not {expected[at]}"


def named_as(ours, theirs):
    """`ours` under the names of `theirs`, by order: a runtime may name outputs as it likes."""
    if set(ours) == set(theirs) or len(ours) != len(theirs):
        return ours
    return dict(zip(theirs, ours.values()))


def worst_distance(ours, theirs):
    """The largest relative distance over all outputs; `theirs` says which there are."""
    missing = sorted(set(theirs) - set(ours))
    if missing:
        raise Failure(f"no output {', '.join(missing)}; there are: {', '.join(sorted(ours))}")
    return max(relative_l2(ours[name], theirs[name]) for name in theirs)


def program_outputs(artifact, threads, inputs, folder):
    """Outputs of a compiled model by name, on the given inputs; files go to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    given = input_args(inputs, folder)
    args = ["run", artifact, "--threads", threads, "--out", folder / "outputs"]
    outputs = program.call_json(*args, *given)["outputs"]
    return {output["name"]: numpy.load(output["file"]) for output in outputs}


def input_args(inputs, folder):
    """Arguments that give a command of the program these inputs, by files in `folder`."""
    args = []
    for i, (name, value) in enumerate(inputs.items()):
        path = folder / f"input-{i}.npy"
        numpy.save(path, value)
        args += ["--input", f"{name}={path}"]
    return args
