#!/usr/bin/env python3
"""Single operators at sizes of real models, untuned, beside onnxruntime: are results equal, and whose are faster?

Needs numpy, onnx and onnxruntime. The cases are those of harness/operator_cases: each becomes a model of one node. A model that
either runtime refuses is listed with its message. Outputs come first, then both run in turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Optional, Sequence

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "rivals")]

from harness import machine, names, program, report, slices
from harness.report import say

TITLE = "Every operator"
OURS, THEIRS = "tunesmith", "onnxruntime"
ROUNDS = 3

# Of the largest magnitude of an output: default algorithms may lose digits, and sums of thousands
# of products have other orders. onnxruntime computes some operators of doubles in floats.
TOLERANCE = {"float16": 4e-3, "float32": 1e-4, "float64": 1e-6}

Result = dict[str, Any]


def flags(arguments: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE",
        help="OPERATOR/WHAT as --list prints them, or a pattern with * [default: all]",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="print the cases, and measure nothing")
    parser.add_argument("--threads", type=int, default=1, help="of both [default: 1]")
    parser.add_argument(
        "--time", default="0.4s", help="of measuring each case, shared by both [default: 0.4s]"
    )
    parser.add_argument(
        "--slower-than", type=float, metavar="RATIO",
        help="print only cases where ours takes more than so many times onnxruntime's time",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--name", default="every_operator", help="of the report [default: every_operator]"
    )
    return parser.parse_args(arguments)


def main() -> int:
    args = flags()
    missing = [m for m in ("numpy", "onnx", "onnxruntime") if find_spec(m) is None]
    if missing:
        raise program.Failure(
            f"this Python lacks {', '.join(missing)}: "
            f"`{sys.executable} -m pip install -r {HERE / 'rivals' / 'requirements.txt'}`"
        )
    from harness.operator_cases import FAMILIES

    rows = [(case.name, family, case) for family, cases in FAMILIES.items() for case in cases]
    rows = names.chosen(rows, args.cases, "harness/operator_cases")
    if args.list:
        print(report.markdown_table(["case", "family"], [row[:2] for row in rows]), end="")
        return 0
    program.program()
    slice_s = program.seconds_of(args.time) / (2 * ROUNDS)
    cpus = machine.cpus_for(args.threads)
    facts: dict[str, Any] = machine.conditions() | {"threads": args.threads}
    results: list[Result] = []
    failures = []
    for name, family, case in rows:
        say(name)
        try:
            with tempfile.TemporaryDirectory() as folder:
                result = measured(case, Path(folder), args.threads, slice_s, cpus)
                results.append({"name": name, "family": family} | result)
        except (program.Failure, RuntimeError) as error:
            failures.append(report.failure(name, error))
    facts["rivals"] = {THEIRS: r["version"] for r in results}
    page = text(results, args.slower_than)
    report.write(args.name, TITLE, facts, results, page, failures, quiet=args.json)
    if args.json:
        print(json.dumps({"conditions": facts, "results": results, "failures": failures}, indent=2))
    return 1 if any(r["wrong"] for r in results) else 0


def measured(
    case: Any, folder: Path, threads: int, slice_s: float, cpus: Optional[set[int]]
) -> Result:
    """What is wrong with the outputs of one case, and the latencies of both in turns."""
    import agreement
    import arrays
    import onnx
    import rival_process

    model, inputs = case.model()
    path, artifact = folder / "model.onnx", folder / "model.tsm"
    onnx.save(model, path)
    arrays.save(folder / "inputs.npz", inputs)
    program.call_json(
        "compile", path, "--defaults", "--threads", threads, "--store", folder / "store.sqlite",
        "--out", artifact,
    )  # fmt: skip
    preexec = program.keeping_to(cpus)
    with rival_process.Rival(
        THEIRS, path, threads, folder / "inputs.npz", preexec, True
    ) as rival:
        rival.outputs(folder / "outputs.npz")
        theirs = arrays.load(folder / "outputs.npz")
        ours = agreement.program_outputs(artifact, threads, inputs, folder)
        given = agreement.input_args(inputs, folder)
        contenders = {
            OURS: lambda seconds: program.bench(artifact, threads, seconds, cpus, given),
            THEIRS: rival.slice,
        }
        taken = slices.interleaved(contenders, ROUNDS, slice_s)
    latencies = {name: slices.summary(own) for name, own in taken.items()}
    return {
        "wrong": wrong(ours, theirs, case.off_by),
        "latencies": latencies,
        "ratios": slices.ratios(latencies[OURS], latencies[THEIRS]),
        "version": rival.version,
    }


def wrong(ours: dict[str, Any], theirs: dict[str, Any], off_by: int) -> list[str]:
    """How outputs differ by more than they may, in words; nothing if none does."""
    import agreement

    found = []
    for name, expected in theirs.items():
        if name not in ours:
            found.append(f"{name}: missing")
            continue
        words = agreement.difference(ours[name], expected, tolerance(expected, off_by))
        if words:
            found.append(f"{name}: {words}")
    return found


def tolerance(expected: Any, off_by: int) -> float:
    """What each element of an output may differ by."""
    import numpy

    if expected.dtype.kind in "iu":
        return off_by
    if expected.dtype.kind != "f":
        return 0
    wide = expected.astype(numpy.float64)
    largest = numpy.abs(wide[numpy.isfinite(wide)]).max(initial=0)
    return float(TOLERANCE[expected.dtype.name] * largest)


def text(results: list[Result], slower_than: Optional[float] = None) -> str:
    """The table, slowest first; the mean of all cases; and outputs that differ."""
    if not results:
        return "Nothing was measured.\n"
    ordered = sorted(results, key=lambda r: -r["ratios"]["median"])
    shown = [r for r in ordered if slower_than is None or r["ratios"]["median"] > slower_than]
    rows = [
        [
            r["name"],
            *(f"{r['latencies'][name]['median_ms']:.4f}" for name in (OURS, THEIRS)),
            f"{r['ratios']['median']:.2f}",
            f"{100 * max(own['spread'] for own in r['latencies'].values()):.0f}%",
            "WRONG" if r["wrong"] else "",
        ]
        for r in shown
    ]
    header = ["case", f"{OURS} ms", f"{THEIRS} ms", "ours / theirs", "spread", "outputs"]
    right = [r["ratios"]["median"] for r in results if not r["wrong"]]
    mean = slices.geometric_mean(right)
    page: str = report.markdown_table(header, rows)
    page += f"\nMedians of {ROUNDS} slices in turns, and the larger spread of both. "
    page += f"{len(shown)} of {len(results)} cases are shown.\n"
    if mean is not None:
        page += (
            f"Geometric mean of ours / theirs over the {len(right)} cases whose outputs agree: "
            f"{mean:.3f}; below 1 ours is faster.\n"
        )
    for r in ordered:
        for words in r["wrong"]:
            page += f"\n**Wrong: {r['name']}.** {words}\n"
    return page


if __name__ == "__main__":
    try:
        sys.exit(main())
    except program.Failure as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
