#!/usr/bin/env python3
"""Random graphs of importable operators: does a compiled graph give what onnxruntime gives, with its optimiser off and on?

Needs numpy, onnx, onnxruntime, and the library of the C interface (`cargo build --release -p deploy`). onnxruntime judges every
node while a graph is drawn: a node that it refuses, or whose result is not finite, is drawn again. A result may differ by a
tolerance, and by some times what a tiny change of the inputs changes in onnxruntime's own result; an output whose integers change
by that is skipped. A disagreement is made smaller, by making results inputs, and is written to a folder with its inputs and a
text that has a line for the reason. Graphs run in processes of their own: onnxruntime ends some of them.
"""

import argparse
import collections
import concurrent.futures
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "rivals"))

from agreement import RELATIVE, difference
from harness.random_operators import ALL, ELEM_TYPES, MAKERS, MICROSOFT, Unfit

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPSETS = [17, 18, 20, 21, 23, 24]
# Graphs of so many seeds in a row have one operator set and are compiled together.
TOGETHER = 6
LARGEST = 1e4
CHANGE = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-9}


class Graph:
    """Nodes and the values that they have on seeded inputs; names of all begin with `prefix`."""

    def __init__(self, rng, opset, prefix):
        self.rng, self.opset, self.prefix = rng, opset, prefix
        self.inputs, self.constants, self.values, self.nodes = {}, {}, {}, []
        self.operator = ""

    def one_of(self, items):
        return items[int(self.rng.integers(0, len(items)))]

    def up_to(self, most):
        return int(self.rng.integers(1, most + 1))

    def number(self, low, high):
        return float(np.float32(self.rng.uniform(low, high)))

    def small_shape(self, rank=4):
        return tuple(self.up_to(6) for _ in range(int(self.rng.integers(0, rank)) + 1))

    def shape(self, name):
        return self.values[name].shape

    def rank(self, name):
        return self.values[name].ndim

    def size(self, name):
        return self.values[name].size

    def dtype(self, name):
        return self.values[name].dtype.name

    def choose(self, fits):
        names = [name for name in self.values if name not in self.constants and fits(name)]
        results = [name for name in names if name not in self.inputs]
        if results and self.rng.random() < 0.7:
            names = results
        return self.one_of(names) if names else None

    def pick(self, dtypes):
        """A value that there is, or a new one."""
        own = None
        if self.rng.random() < 0.85:
            own = self.choose(lambda v: self.dtype(v) in dtypes)
        return own or self.fresh(self.one_of([d for d in dtypes if d in ALL]), self.small_shape())

    def fresh(self, dtype, shape, constant=None, scale=1.0, nonzero=False, least=None):
        kind = np.dtype(dtype)
        if kind == bool:
            value = self.rng.random(shape) < 0.5
        elif kind.kind == "f":
            value = scale * self.rng.standard_normal(shape)
        else:
            value = self.rng.integers(0 if kind.kind == "u" else -5, 6, shape)
        if least is not None:
            value = least + np.abs(value)
        value = np.asarray(value).astype(kind)
        if nonzero:
            value = np.where(value == 0, kind.type(1), value)
        return self.constant(value) if constant else self.value(value)

    def indices(self, count, shape):
        if count == 0:
            raise Unfit
        return self.value(self.rng.integers(0, count, shape).astype(np.int64), constant=True)

    def value(self, value, constant=None):
        constant = self.rng.random() < 0.3 if constant is None else constant
        return self.constant(value) if constant else self.add(self.inputs, value)

    def constant(self, value):
        return self.add(self.constants, np.asarray(value))

    def add(self, where, value):
        name = f"{self.prefix}{len(self.values)}"
        where[name] = self.values[name] = np.ascontiguousarray(value).reshape(np.shape(value))
        return name

    def grow(self, counts):
        """Draws one node, which onnxruntime takes."""
        (domain, operator), (make, since) = self.one_of(list(MAKERS.items()))
        if self.opset < since:
            return
        self.operator = operator
        before = dict(self.inputs), dict(self.constants), dict(self.values)
        counts["drawn"] += 1
        try:
            made = make(self)
            names = [f"{self.prefix}n{len(self.nodes)}_{i}" for i in range(made.outputs)]
            while made.inputs and made.inputs[-1] is None:
                made.inputs.pop()
            inputs = [name or "" for name in made.inputs]
            node = helper.make_node(operator, inputs, names, domain=domain, **made.attributes)
            results = self.compute(node)
        except Unfit:
            results = None
        except Exception:  # onnxruntime's errors have no common class of their own.
            counts["refused by onnxruntime"] += 1
            results = None
        if results is None or not all(usable(r) for r in results):
            self.inputs, self.constants, self.values = before
            return
        self.nodes.append(node)
        self.values.update(zip(names, results))
        counts[f"operator {domain}:{operator}"] += 1

    def compute(self, node):
        names = {name for name in node.input if name}
        given = {name: self.values[name] for name in names if name not in self.constants}
        constants = {name: self.constants[name] for name in names if name in self.constants}
        model = model_of(Part([node], given, constants, list(node.output)), self.opset)
        return session(model, False).run(None, given)


class Part:
    """What a model has: nodes, values of inputs and of constants, and names of outputs."""

    def __init__(self, nodes, inputs, constants, outputs):
        self.nodes, self.inputs, self.constants, self.outputs = nodes, inputs, constants, outputs


def usable(value):
    if not isinstance(value, np.ndarray) or value.dtype.name not in ELEM_TYPES or not 0 < value.size <= 20_000:
        return False
    if value.dtype.kind != "f":
        return value.dtype.kind == "b" or bool(np.all(np.abs(value.astype(np.float64)) < 2**30))
    return bool(np.all(np.isfinite(value)) and np.all(np.abs(value) < LARGEST))


def model_of(part, opset):
    inputs = [helper.make_tensor_value_info(n, ELEM_TYPES[v.dtype.name], v.shape) for n, v in part.inputs.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in part.outputs]
    constants = [numpy_helper.from_array(v, n) for n, v in part.constants.items()]
    graph = helper.make_graph(part.nodes, "random", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(model, optimised):
    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def drawn(seed, opset, counts):
    """A graph of 4 to 16 nodes, all of whose last results are outputs."""
    rng = np.random.default_rng(seed)
    graph = Graph(rng, opset, f"g{seed}_")
    nodes = int(rng.integers(4, 17))
    while len(graph.nodes) < nodes:
        graph.grow(counts)
    made = [name for node in graph.nodes for name in node.output]
    read = {name for node in graph.nodes for name in node.input}
    outputs = [n for n in made if n not in read and graph.dtype(n) in ALL]
    return graph, needed(Part(graph.nodes, graph.inputs, graph.constants, outputs))


def needed(part):
    """The part that the outputs depend on."""
    wanted, nodes = set(part.outputs), []
    for node in reversed(part.nodes):
        if wanted & set(node.output):
            nodes.insert(0, node)
            wanted |= set(node.input)

    def keep(values):
        return {name: v for name, v in values.items() if name in wanted}

    return Part(nodes, keep(part.inputs), keep(part.constants), part.outputs)


class Unjudged(Exception):
    """onnxruntime does not say what the graph's result is."""


def judged(part, opset):
    """For each output the expected values and what each may differ by."""
    model = model_of(part, opset)
    try:
        plain = session(model, False)
        expected = plain.run(None, part.inputs)
        others = [session(model, True).run(None, part.inputs)]
        rng = np.random.default_rng(0)
        for _ in range(2):
            moved = {name: nudged(rng, value) for name, value in part.inputs.items()}
            others.append(plain.run(None, moved))
    except Exception as why:  # As above.
        raise Unjudged(str(why)) from None
    return {n: (e, allowed(e, [o[i] for o in others])) for i, (n, e) in enumerate(zip(part.outputs, expected))}


def nudged(rng, value):
    change = CHANGE.get(value.dtype.name)
    if change is None:
        return value
    return np.asarray(value * (1 + change * rng.uniform(-1, 1, value.shape)), value.dtype)


def allowed(expected, others):
    """None for an output that is no well-defined function of floats of a few digits."""
    if any(o.shape != expected.shape for o in others):
        return None
    wide = expected.astype(np.float64)
    apart = [np.abs(o.astype(np.float64) - wide) for o in others]
    if expected.dtype.kind != "f":
        return None if any(a.any() for a in apart) else np.zeros(wide.shape)
    scale = np.maximum(np.abs(wide), np.abs(wide).max(initial=0) * 0.1) + 1e-2
    return RELATIVE[expected.dtype.name] * scale + 10 * np.max(apart, axis=0)


class Refused(Exception):
    """The compiler says no; the words are its own."""


class Compiler:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, part, opset):
        """Results by name."""
        from tunesmith_runtime import Model, TunesmithError

        path = self.folder / "graph.onnx"
        onnx.save(model_of(part, opset), path)
        words = [self.program, "compile", "--defaults", "--threads", "1", "--accuracy", "strict", path]
        words += ["--out", path.with_suffix(".tsm")]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(" ".join(done.stderr.split())[:600])
        running = self.folder / "running"
        running.touch()
        try:
            return Model(path.with_suffix(".tsm"), threads=1).run(part.inputs)
        except TunesmithError as why:
            raise Refused(f"at run time: {why}") from None
        finally:
            running.unlink()


def disagreement(part, opset, compiler):
    """How the first output that differs does, or None; and how many outputs were compared."""
    known = judged(part, opset)
    results = compiler.run(part, opset)
    clear = [name for name in part.outputs if known[name][1] is not None]
    for name in clear:
        words = difference(results[name], *known[name])
        if words:
            return name, words, len(clear)
    return None, None, len(clear)


def smaller(part, opset, compiler, values):
    """The smallest part found that still disagrees: results become inputs."""
    for node in list(part.nodes):
        inputs = dict(part.inputs)
        inputs.update({n: values[n] for n in node.output if values[n].dtype.name in ALL})
        rest = [n for n in part.nodes if n is not node]
        if not rest or any(n in part.outputs for n in node.output):
            continue
        cut = needed(Part(rest, inputs, part.constants, part.outputs))
        try:
            name, _, _ = disagreement(cut, opset, compiler)
        except (Refused, Unjudged):
            continue
        if name:
            part = cut
    return part


def tied(part, opset, values):
    """Whether errors as small as rounding, added to results of nodes, change integers, or make floats jump."""
    expected = session(model_of(part, opset), False).run(None, part.inputs)

    def jumps(result, known):
        large = 1e-2 * np.abs(known.astype(np.float64)).max(initial=0)
        return allowed(known, [result]) is None or np.abs(result.astype(np.float64) - known).max(initial=0) > large

    for seed in range(8):
        try:
            results = session(model_of(noisy(part, values, seed), opset), False).run(None, part.inputs)
        except Exception:  # As above.
            return False
        if any(jumps(result, known) for result, known in zip(results, expected)):
            return True
    return False


def noisy(part, values, seed):
    """The part with constants as small as rounding added to results that are floats and no outputs."""
    rng, nodes, constants = np.random.default_rng(seed), [], dict(part.constants)
    for node in part.nodes:
        moved = onnx.NodeProto()
        moved.CopyFrom(node)
        nodes.append(moved)
        for i, name in enumerate(node.output):
            change = CHANGE.get(values[name].dtype.name)
            if change is None or name in part.outputs:
                continue
            size = change * np.abs(values[name]).max(initial=0)
            noise = np.asarray(rng.uniform(-size, size, values[name].shape), values[name].dtype)
            constants[f"{name}_noise"], moved.output[i] = noise, f"{name}_own"
            nodes.append(helper.make_node("Add", [f"{name}_own", f"{name}_noise"], [name]))
    return Part(nodes, part.inputs, constants, part.outputs)


def report(folder, seed, part, opset, words, reason=""):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model_of(part, opset), folder / f"{seed}.onnx")
    np.savez(folder / f"{seed}.npz", **part.inputs)
    nodes = ", ".join(n.op_type for n in part.nodes)
    (folder / f"{seed}.txt").write_text(f"{nodes} (operator set {opset})\n{words}\nreason: {reason}\n")
    print(f"{seed}: {nodes}: {words}", flush=True)


def tried(graphs, opset, compiler, args, counts):
    """Runs graphs as one model, and one by one if that says no."""
    whole = Part([], {}, {}, [])
    for _, _, part in graphs:
        whole.nodes += part.nodes
        whole.inputs |= part.inputs
        whole.constants |= part.constants
        whole.outputs += part.outputs
    try:
        name, words, compared = disagreement(whole, opset, compiler)
    except (Refused, Unjudged) as why:
        if len(graphs) > 1:
            for graph in graphs:
                tried([graph], opset, compiler, args, counts)
            return
        seed, _, part = graphs[0]
        kind = "refused by the compiler" if isinstance(why, Refused) else "not judged"
        counts[kind] += 1
        report(args.out / kind.replace(" ", "-"), seed, part, opset, str(why))
        return
    if name and len(graphs) > 1:
        for graph in graphs:
            tried([graph], opset, compiler, args, counts)
        return
    counts["graphs"] += len(graphs)
    counts["outputs compared"] += compared
    if name:
        seed, graph, part = graphs[0]
        part = smaller(needed(Part(part.nodes, part.inputs, part.constants, [name])), opset, compiler, graph.values)
        if tied(part, opset, graph.values):
            counts["ties"] += 1
            return
        counts["disagreements"] += 1
        report(args.out, seed, part, opset, words)


def batch(seeds, args, folder):
    """What became of the graphs of these seeds, counted."""
    counts, opset = collections.Counter(), OPSETS[seeds[0] // TOGETHER % len(OPSETS)]
    graphs = [(seed, *drawn(seed, opset, counts)) for seed in seeds]
    tried([g for g in graphs if g[2].outputs], opset, Compiler(args.program, folder), args, counts)
    return counts


def apart(seeds, args):
    """As `batch`, in a process of its own; of several graphs that end it, each in one."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with concurrent.futures.ProcessPoolExecutor(1) as process:
                return process.submit(batch, seeds, args, folder).result()
        except concurrent.futures.process.BrokenProcessPool:
            if len(seeds) > 1:
                return sum((apart([seed], args) for seed in seeds), collections.Counter())
            who = "the compiled model" if (pathlib.Path(folder) / "running").exists() else "onnxruntime"
            print(f"{seeds[0]}: {who} ended the process", flush=True)
            return collections.Counter({f"ended by {who}": 1})


def not_drawn():
    """The importable operators that no graph has."""
    text = (ROOT / "crates/onnx/src/operators.rs").read_text()
    found = re.findall(r'(standard|microsoft)\(\s*"(\w+)"', text)
    listed = {("" if kind == "standard" else MICROSOFT, name) for kind, name in found}
    return sorted(f"{domain}:{name}" if domain else name for domain, name in listed - set(MAKERS))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=os.environ.get("TUNESMITH", ROOT / "target/release/tunesmith"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/bench/random-graphs")
    args = parser.parse_args()
    sys.path.append(str(ROOT / "python/runtime"))
    os.environ.setdefault("TUNESMITH_RUNTIME_LIBRARY", str(ROOT / "target/release/libtunesmith_runtime.so"))
    counts, began = collections.Counter(), time.monotonic()
    seeds = range(args.seed, args.seed + args.count)
    for _, block in itertools.groupby(seeds, lambda seed: seed // TOGETHER):
        if time.monotonic() - began > args.seconds:
            break
        counts += apart(list(block), args)
    operators = [k for k in counts if k.startswith("operator ")]
    for name, count in counts.items():
        if name not in operators:
            print(f"{name}: {count}")
    print(f"operators: {len(operators)} of {len(MAKERS)} that are drawn; never drawn: {', '.join(not_drawn())}")
    sys.exit(counts["disagreements"] + counts["ended by the compiled model"] > 0)


if __name__ == "__main__":
    main()
