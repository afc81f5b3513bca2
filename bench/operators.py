#!/usr/bin/env python3
"""Single operators, untuned and tuned, against their limits and the rival runtimes.

operators.toml names the operators and their sizes. Each row becomes an ONNX model of one operator,
which all contenders read. Run as a program, this is `rivals/run operators`, which makes the Python
environment that it needs.
"""

import json
import math
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "rivals")]

from harness import names, program, report, slices
from harness.program import Failure
from harness.report import say

TABLE = HERE / "operators.toml"
TITLE = "Single operators"


def add_arguments(parser):
    """The options beside those that every comparison has."""
    parser.add_argument(
        "rows", nargs="*", metavar="ROW",
        help="OPERATOR/SIZE as operators.toml names them, or a pattern with * [default: all]",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the rows, and measure nothing")
    parser.add_argument("--threads", default="1,2", help="counts [default: 1,2]")
    parser.add_argument(
        "--time", metavar="TIME",
        help="tune each row for so long, as in 60s [default: untuned only]",
    )  # fmt: skip
    parser.add_argument(
        "--accuracy", default="strict", choices=["strict", "relaxed"],
        help="relaxed allows Winograd, whose rate may exceed the peak [default: strict]",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--name", default="operators", help="of the report [default: operators]")


def run(args, counts):
    """All rows that are asked for, at all thread counts."""
    rows = names.chosen(table(), args.rows, TABLE.name)
    if args.list:
        print(report.markdown_table(["row", "operator"], rows), end="")
        return 0
    program.seconds_of(args.time or "0")
    from comparison import conditions

    facts, results, failures = conditions(args), [], []
    ceilings = {threads: ceiling(threads) for threads in counts}
    for name, spec in rows:
        for threads in counts:
            what = f"{name}, {threads} threads"
            say(what)
            try:
                results.append(measure(name, spec, threads, ceilings[threads], args))
            except (Failure, RuntimeError, OSError) as error:
                failures.append(report.failure(what, error))
            report.write(args.name, TITLE, facts, results, text(results), failures, quiet=True)
    facts["rivals"] = {n: v for r in results for n, v in r["versions"].items()}
    report.write(args.name, TITLE, facts, results, text(results), failures, quiet=args.json)
    if args.json:
        print(json.dumps({"conditions": facts, "results": results, "failures": failures}, indent=2))
    wrong = [r["name"] for r in results if r["wrong"]]
    if wrong:
        say(f"FAIL: outputs differ by more than {args.tolerance}: {', '.join(wrong)}")
    return 1 if wrong or failures else 0


def table():
    """All rows of operators.toml: (OPERATOR/SIZE, specification)."""
    # Of Python 3.11, which the rivals need as well.
    import tomllib

    operators = tomllib.loads(TABLE.read_text())
    return [(f"{o}/{size}", spec) for o, rows in operators.items() for size, spec in rows.items()]


def ceiling(threads):
    """The multiply-add peak and the bandwidths of so many threads together."""
    found = program.call_json("doctor", "--threads", threads)["ceilings"]
    return next(c for c in found if c["threads"] == threads)


def measure(name, spec, threads, machine_limits, args):
    """Compiles and perhaps tunes one row, compares it with the rivals, and rates everyone."""
    import agreement
    import onnx
    from comparison import compare
    from tables import DEFAULT, TUNED

    path = exported(name, spec)
    model_args = ["--accuracy", args.accuracy]
    artifacts = {DEFAULT: program.compile_default(path, threads, model_args)}
    tuning = None
    if args.time:
        say(f"  tuning for {args.time}")
        tuning, artifacts[TUNED] = program.tune(path, threads, args.time, shape_args=model_args)
    result = compare(path, threads, artifacts, agreement.Shapes(None, []), args)
    work = work_of(onnx.shape_inference.infer_shapes(onnx.load(path)))
    limit = limit_of(work, machine_limits)
    latencies = result["latencies"]
    ours = {"untuned": DEFAULT} | ({"tuned": TUNED} if args.time else {})
    rivals = {n: latency for n, latency in latencies.items() if n not in artifacts}
    best = min(rivals, key=lambda n: rivals[n]["median_ms"])
    return result | {
        "name": name,
        "spec": spec,
        "tuning": tuning,
        "work": work,
        "limit": limit,
        "of_limit": {n: limit["ms"] / s["median_ms"] for n, s in latencies.items()},
        "best_rival": best,
        "gain": {
            state: 1 / slices.ratios(latencies[n], rivals[best])["median"]
            for state, n in ours.items()
        },
    }


def exported(name, spec):
    """The row as an ONNX file whose name says which row it is."""
    path = program.OUT / "operators" / f"{program.slug(name)}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    # No export replaces a model.
    path.unlink(missing_ok=True)
    program.call("models", "export", spec, path)
    return str(path)


def work_of(model):
    """What a model cannot do without: operations of its products and convolutions (two a
    multiplication and addition), and the bytes of inputs, constants and outputs, each once."""
    graph, shapes, sizes = model.graph, {}, {}
    for value in [*graph.input, *graph.output, *graph.value_info]:
        shapes[value.name] = [d.dim_value for d in value.type.tensor_type.shape.dim]
        sizes[value.name] = element_bytes(value.type.tensor_type.elem_type)
    for constant in graph.initializer:
        shapes[constant.name] = list(constant.dims)
        sizes[constant.name] = element_bytes(constant.data_type)
    ends = {v.name for v in [*graph.input, *graph.initializer, *graph.output]}
    return {
        "gflop": sum(operations(node, shapes) for node in graph.node) / 1e9,
        "bytes": sum(math.prod(shapes[v]) * sizes[v] for v in ends),
    }


def element_bytes(number):
    import onnx

    return onnx.helper.tensor_dtype_to_np_dtype(number).itemsize


def operations(node, shapes):
    """Of one node; 0 for what is not a product."""
    of = lambda names, i: shapes[names[i]]
    if node.op_type == "Conv":
        return 2 * math.prod(of(node.output, 0)) * math.prod(of(node.input, 1)[1:])
    if node.op_type == "ConvTranspose":
        return 2 * math.prod(of(node.input, 0)) * math.prod(of(node.input, 1)[1:])
    if node.op_type == "MatMul":
        return 2 * math.prod(of(node.output, 0)) * of(node.input, 0)[-1]
    if node.op_type == "Einsum":
        terms = node.attribute[0].s.decode().split("->")[0].split(",")
        extents = {}
        for i, letters in enumerate(terms):
            extents |= dict(zip(letters, of(node.input, i)))
        return 2 * math.prod(extents.values())
    return 0


def limit_of(work, machine_limits):
    """The least time that the machine allows, and what binds: the peak, or the bandwidth of the
    smallest memory that holds all bytes, since a model that runs again finds them there."""
    level = next(
        m for m in machine_limits["levels"] if m["bytes"] is None or m["bytes"] >= work["bytes"]
    )
    ways = {
        "FMA": work["gflop"] / machine_limits["peak_gflops"] * 1e3,
        level["name"]: work["bytes"] / level["gb_per_s"] / 1e6,
    }
    bound = max(ways, key=ways.get)
    return {"bound": bound, "ms": ways[bound]}


def text(results):
    """The table, and the means of the gains."""
    if not results:
        return "Nothing was measured.\n"
    names = list(dict.fromkeys(n for r in results for n in r["latencies"]))
    states = list(dict.fromkeys(s for r in results for s in r["gain"]))
    header = ["operator", "threads", "GFLOP", "limit ms", *names, *(f"gain {s}" for s in states)]
    rows = [
        [
            r["name"], r["threads"], f"{r['work']['gflop']:.3f}",
            f"{r['limit']['ms']:.4f} {r['limit']['bound']}",
            *(cell(r, n) for n in names),
            *(f"{r['gain'][s]:.2f}" if s in r["gain"] else "-" for s in states),
        ]
        for r in results
    ]  # fmt: skip
    from tables import accuracy_text, notes_text

    means = ", ".join(
        f"{s} {slices.geometric_mean(r['gain'][s] for r in results if s in r['gain']):.2f}"
        for s in states
    )
    return (
        report.markdown_table(header, rows)
        + "\nMedian milliseconds, and part of the limit: of the multiply-add peak (FMA), or of the "
        + "bandwidth\nof the smallest memory that holds inputs, constants and outputs. Gain: the "
        + "best rival's time over\nours, above 1 ours is faster. Geometric means of the gains: "
        + f"{means}. {accuracy_text(results)}.\n"
        + notes_text(results)
    )


def cell(result, name):
    latency = result["latencies"].get(name)
    if latency is None:
        return "-"
    return f"{latency['median_ms']:.4f} ({100 * result['of_limit'][name]:.0f}%)"


if __name__ == "__main__":
    runner = HERE / "rivals" / "run"
    os.execv(runner, [str(runner), "operators", *sys.argv[1:]])
