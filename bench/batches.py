#!/usr/bin/env python3
"""Model files of a fixed batch, compiled for other batches: is each row what onnxruntime gives for the row alone?

Needs numpy, onnx and onnxruntime. The table has one line for each file: passed with the largest relative L2 error of a row,
wrong, or the words of the refusal.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

LIMIT = 1e-3


class Refused(Exception):
    """The compiler says no; the words are its own."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default=os.environ.get("TUNESMITH", "target/release/tunesmith"))
    parser.add_argument("--batch", default="2,8", help="sizes, as compile takes them")
    parser.add_argument("--ids", type=int, default=900, help="integers of inputs are below this")
    args = parser.parse_args()
    print("| model | rows of the file | result |\n|---|---|---|")
    failed = 0
    for model in args.models:
        rows, (passed, result) = file_rows(model), judged(model, args)
        failed += not passed
        print(f"| {model.stem} | {rows} | {result} |", flush=True)
    print(f"\n{len(args.models) - failed} of {len(args.models)} passed")
    sys.exit(failed > 0)


def file_rows(path):
    graph = onnx.load(path, load_external_data=False).graph
    given = {t.name for t in graph.initializer}
    first = next(i for i in graph.input if i.name not in given)
    return first.type.tensor_type.shape.dim[0].dim_value


def judged(path, args):
    sizes = [int(n) for n in args.batch.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        artifact = pathlib.Path(folder) / "model.tsm"
        try:
            command([args.program, "compile", path, "--batch", args.batch, "--out", artifact])
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            errors = [error(session, artifact, n, args, pathlib.Path(folder)) for n in sizes]
        except Refused as why:
            return False, str(why)
    worst = max(errors)
    return worst <= LIMIT, f"{'passed' if worst <= LIMIT else 'WRONG'}, {worst:.1e}"


def command(words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(" ".join(done.stderr.split()))


def error(session, artifact, count, args, folder):
    """The largest relative error of a row, of all outputs."""
    fixed = session.get_inputs()[0].shape[0]
    inputs = {i.name: random_input(i, fixed, count, args.ids) for i in session.get_inputs()}
    files = []
    for at, (name, value) in enumerate(inputs.items()):
        np.save(folder / f"{at}.npy", value)
        files += ["--input", f"{name}={folder / str(at)}.npy"]
    out = folder / f"out{count}"
    command([args.program, "run", artifact, "--batch", count, *files, "--out", f"{out}/"])
    names = [o.name for o in session.get_outputs()]
    own = [np.load(out / f"{name}.npy") for name in names]
    worst = 0.0
    for row in range(count):
        # A file of several rows computes several copies of one.
        alone = {
            name: np.repeat(value[row : row + 1], fixed, 0) if len(value) == count else value
            for name, value in inputs.items()
        }
        for name, expected, all_rows in zip(names, session.run(None, alone), own):
            axis = axis_of_rows(name, all_rows, expected, count, fixed)
            actual = nth_row(all_rows, axis, row, count)
            worst = max(worst, difference(actual, nth_row(expected, axis, 0, fixed)))
    return worst


def random_input(described, fixed, count, ids):
    rng = np.random.default_rng(count)
    first, *rest = described.shape or [0]
    shape = [count if first == fixed else first, *rest]
    if not all(isinstance(n, int) for n in shape):
        raise Refused(f"{described.name}: the shape {shape} has axes without a size")
    if "float" in described.type:
        kind = {"tensor(float)": np.float32, "tensor(float16)": np.float16}[described.type]
        return rng.standard_normal(shape).astype(kind)
    if "mask" in described.name:
        ends = rng.integers(1, shape[-1] + 1, shape[:-1])
        return (np.arange(shape[-1]) < ends[..., None]).astype(np.int64)
    return rng.integers(0, ids, shape).astype(np.int64)


def axis_of_rows(name, value, expected, count, fixed):
    """The axis of an output that has more rows than the file's has."""
    sizes = enumerate(zip(value.shape, expected.shape))
    axis = next((a for a, (all_rows, alone) in sizes if all_rows * fixed == alone * count), None)
    if axis is None:
        raise Refused(f"{name}: the shape {value.shape} has no axis of rows, which are {expected.shape} in the file")
    return axis


def nth_row(value, axis, row, count):
    each = value.shape[axis] // count
    return np.take(value, range(row * each, (row + 1) * each), axis)


def difference(actual, expected):
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    norm = np.linalg.norm(expected)
    return float(np.linalg.norm(actual - expected) / (norm if norm > 0 else 1.0))


if __name__ == "__main__":
    main()
