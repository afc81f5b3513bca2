#!/usr/bin/env python3
"""Makes the predictors that are inside the program anew, and the table of their metrics.

For each type of kernel, candidates of several shapes are simulated and timed on this machine, which has to run the
target. A predictor learns from all of them, and the study of predictors judges its learner by tests. The predictors and
the table are written to crates/simulate/predictors; the next build has them inside.

The convolutions are the paper's. All predictors are studied on them, and a page beside the paper's figures is printed and
written to target/bench/predictors.md. With the plugin of `cargo build --release -p simulate --example qemu_counts`,
some of the candidates are counted by QEMU as well. A run that was stopped goes on: a shape that is complete is not
collected again, and a finished study is not repeated.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from harness import machine, predictor_study, program, report
from harness.predictor_study import METRICS
from harness.report import say

# Of each type of kernel, the shapes that its predictor learns from. Those of conv2d are the paper's
# (Instruction-accurate simulators, table II), those of depthwise_conv2d are MobileNet's.
SHAPES = {
    "conv2d": [
        "c=3,h=224,w=224,k=64,r=7,s=7,stride=2,pad=3,bias=yes,activation=relu",
        "c=64,h=56,w=56,k=64,r=3,s=3,stride=1,pad=1,bias=yes,activation=relu",
        "c=64,h=56,w=56,k=128,r=3,s=3,stride=2,pad=1,bias=yes,activation=relu",
        "c=128,h=28,w=28,k=256,r=3,s=3,stride=2,pad=1,bias=yes,activation=relu",
        "c=256,h=14,w=14,k=512,r=3,s=3,stride=2,pad=1,bias=yes,activation=relu",
    ],
    "depthwise_conv2d": [
        "c=32,h=112,w=112",
        "c=64,h=112,w=112,stride=2",
        "c=128,h=56,w=56",
        "c=256,h=28,w=28",
        "c=512,h=14,w=14",
    ],
    "matmul": [
        "m=128,n=768,k=768",
        "m=256,n=256,k=256",
        "m=333,n=777,k=555",
        "m=512,n=64,k=512",
        "m=1024,n=128,k=256",
    ],
}
METHOD = "log-trees"
FOLDER = program.ROOT / "crates" / "simulate" / "predictors"
# As its test in crates/simulate/src/shipped.rs has it.
MOST_BYTES = 300_000
# What stands for the client of ssh where this machine is the board: the last argument is the line of shell, or the
# folder there.
BOARD = {
    "ssh": 'for line; do :; done; exec sh -c "$line"',
    "scp": 'for to; do :; done; for file; do case $file in /*) cp -p "$file" "${to#*:}";; esac; done',
}
PLUGIN = program.TARGET / "release" / "examples" / "libqemu_counts.so"


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=300, help="candidates of a convolution [default: 300]")
    parser.add_argument(
        "--other-points", type=int, help="candidates of any other shape [default: as many]"
    )
    parser.add_argument("--target", default="x86-avx2", help="of the kernels [default: x86-avx2]")
    parser.add_argument("--cpu", default="ryzen-5800x", help="simulated [default: ryzen-5800x]")
    parser.add_argument("--limit", default="1s", help="of timing a candidate [default: 1s]")
    parser.add_argument(
        "--qemu-points", type=int, default=60,
        help="candidates of a convolution that QEMU counts as well; 0 for none [default: 60]",
    )  # fmt: skip
    parser.add_argument(
        "--cooldown-points", type=int, default=50,
        help="candidates that are timed with pauses of 1 s as well; 0 for none [default: 50]",
    )  # fmt: skip
    parser.add_argument(
        "--only-study", action="store_true", help="write the page of the study, and no predictor"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the predictors")
    return parser.parse_args()


def collected(op, args, points=None, name="", extra=()):
    """The file of samples of one shape. It gets its name when it is complete."""
    points = points or args.points
    folder = folder_of(args, points, name)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W+", "-", op).strip("-") + ".jsonl")
    if path.exists():
        say(f"{op}: collected before")
        return path
    begun = time.monotonic()
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    program.call(
        *["simulate", "collect", op, "--points", points, "--target", args.target],
        *["--cpu", args.cpu, *extra, "--out", part],
    )
    seconds = time.monotonic() - begun
    path.with_suffix(".seconds").write_text(f"{seconds:.1f}\n")
    say(f"{op}: {seconds / points:.2f} s for each of {points} candidates")
    return part.rename(path)


def folder_of(args, points, name=""):
    return program.OUT / "predictors" / f"{args.target}-{args.cpu}-{points}{name}"


def timed(op, args, points=None, name="", extra=()):
    """Samples that are timed as well."""
    return collected(op, args, points, name, ["--limit", args.limit, *extra])


def seconds_of(path):
    """What collecting a file took; None where that is not known."""
    kept = path.with_suffix(".seconds")
    return float(kept.read_text()) if kept.exists() else None


def counted_by_qemu(ops, args):
    """For each group the files of the same candidates, counted by us and by QEMU; None without the plugin."""
    if args.qemu_points == 0:
        return None
    if not PLUGIN.exists():
        say(f"no counts of QEMU: `cargo build --release -p simulate --example qemu_counts` makes {PLUGIN}")
        return None
    count = f"{program.program()} simulate count {{exe}} --plugin {PLUGIN}"
    count += f" --target {args.target} --cpu {args.cpu}"
    both = folder_of(args, args.qemu_points, "-both")
    pairs = []
    for op in ops:
        own = collected(op, args, args.qemu_points, "-own", ["--no-time"])
        counted = timed(op, args, args.qemu_points, "-qemu", ["--simulator", count])
        pairs.append(predictor_study.joined(own, counted, both))
    return pairs


@contextlib.contextmanager
def this_machine_as_board():
    """Puts an `ssh` and an `scp` first on the path that run and copy here."""
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in BOARD.items():
            (Path(folder) / name).write_text(f"#!/bin/sh\n{text}\n")
            (Path(folder) / name).chmod(0o700)
        os.environ["PATH"] = f"{folder}:{path}"
        try:
            yield
        finally:
            os.environ["PATH"] = path


def cooled(op, args):
    """The same candidates timed here as all others are, and as executables without and with the paper's pauses."""
    if args.cooldown_points == 0:
        return None
    points = args.cooldown_points
    files = [timed(op, args, points, "-here")]
    with this_machine_as_board():
        for pause in ("0s", "1s"):
            board = ["--board", "here", "--cooldown", pause]
            files.append(collected(op, args, points, f"-{pause}", board))
    return files


def study(args, facts):
    """Studies all predictors on the paper's convolutions; writes and prints the page."""
    ops = [f"op:conv2d({shape})" for shape in SHAPES["conv2d"]]
    files = [timed(op, args) for op in ops]
    seconds = {f: s for f in files if (s := seconds_of(f))}
    pairs = counted_by_qemu(ops, args)
    text = predictor_study.page(files, seconds, facts["machine"]["cpus"], pairs)
    if timings := cooled(ops[1], args):
        text += predictor_study.cooldown_text(*timings)
    title = "Predictors of simulated candidates"
    report.write("predictors", title, facts, {"points": args.points}, text)


def made(kind, args):
    """Trains the predictor of one type of kernel; its row of the table."""
    points = args.points if kind == "conv2d" else args.other_points or args.points
    files = [timed(f"op:{kind}({shape})", args, points) for shape in SHAPES[kind]]
    path = args.out / f"{kind}.json"
    about = program.call_json("simulate", "train", *files, "--method", METHOD, "--out", path)
    if path.stat().st_size >= MOST_BYTES:
        raise program.Failure(f"{path} has {path.stat().st_size} bytes, and {MOST_BYTES} are too many")
    study = program.call_json(
        "study", "simulate", *files, "--predictors", METHOD, "--features", "reading"
    )
    return row(kind, about, path.stat().st_size, study["figures"])


def row(kind, about, size, figures):
    """The means over shapes, of the learner and of the static score alone."""
    cells = [kind, about["kind"], about["cpu"], len(about["validation"]), about["samples"], size]
    for method in [METHOD, *predictor_study.UNLEARNED]:
        of_method = [f["median"] for f in figures if f["method"] == method]
        means = [sum(m[name] for m in of_method) / len(of_method) for name in METRICS]
        cells.append(" / ".join(f"{mean:.1f}" for mean in means))
    return cells


def page(rows, facts, args):
    """The table as a page."""
    table = report.markdown_table(
        ["name", "kernel", "processor", "shapes", "samples", "bytes", METHOD, *predictor_study.UNLEARNED],
        rows,
    )
    points = f"--points {args.points}"
    if args.other_points:
        points += f" --other-points {args.other_points}"
    return f"""# Predictors inside the program

`bench/predictors.py {points} --target {args.target} --cpu {args.cpu}` wrote this folder.
`tune --evaluate simulate --target {args.target} --predictor NAME` takes a predictor by its name, and `tunesmith simulate predictors`
lists them. Caches are those of the processor, and times are those of this machine:

{report.conditions_text(facts)}
{table}
The last three columns are E_top1 / R_top1 / Q_low / Q_high in percent: medians over 10 random splits, means over shapes. Each test has a fifth of
a shape's samples, which the learner did not see. *Timed again* is the order by times of the same candidates that were taken later: what it misses is
noise of the times. A predictor in this folder then learned from all samples.
"""


def main():
    args = flags()
    facts = machine.conditions()
    study(args, facts)
    if args.only_study:
        return
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [made(kind, args) for kind in SHAPES]
    text = page(rows, facts, args)
    (args.out / "README.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    try:
        main()
    except program.Failure as failure:
        sys.exit(f"error: {failure}")
