#!/usr/bin/env python3
"""Operators tuned by TVM's MetaSchedule and by `tunesmith tune`, with a part of TVM's time.

TVM searches with `--trials`. `tunesmith tune` then has a tenth of the seconds that this took, or a
thirtieth from 200 trials on. Both results run in turns, in a new process for each slice, on the same
CPUs. The first run makes a Python environment in `target/tvm-venv`.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "rivals")]

from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say

ENVIRONMENT = program.TARGET / "tvm-venv"
REQUIREMENTS = ("requirements-tvm.txt", "requirements-tvm-search.txt")
SEARCH = HERE / "rivals" / "tvm_search.py"

# The first four have templates of their own in many tuners.
OPERATORS = (
    "op:matmul(m=512,k=512,n=512)",
    "op:dense(m=128,k=768,n=3072)",
    "op:conv2d(c=64,h=56,w=56,k=64)",
    "op:batch_matmul(b=12,m=128,k=64,n=128)",
    "op:depthwise_conv2d(c=144,h=56,w=56,stride=2)",
    "op:grouped_conv2d(c=128,h=28,w=28,k=128,groups=4)",
    "op:conv2d_transpose(c=128,h=16,w=16,k=64,stride=2)",
    "op:conv3d(c=32,d=8,h=28,w=28,k=32)",
    "op:layer_norm(rows=1024,cols=768)",
    "op:max_pool2d(c=64,h=112,w=112)",
)
MANY_TRIALS = 200
FEW_TRIALS_PART, MANY_TRIALS_PART = 10, 30
HEADER = [
    "operator", "threads", "ms", "TVM ms", "TVM over ours", "s", "TVM s", "TVM trials", "distance",
]  # fmt: skip


def flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="[default: ten]")
    parser.add_argument("--trials", type=int, default=64, help="of TVM [default: 64]")
    parser.add_argument(
        "--part", type=float, metavar="N",
        help="`tune` has one N-th of TVM's seconds [default: 10, or 30 from 200 trials on]",
    )  # fmt: skip
    parser.add_argument("--threads", default="1", help="counts, as in 1,2 [default: 1]")
    parser.add_argument("--seed", type=int, default=1, help="of TVM and of the inputs [default: 1]")
    parser.add_argument("--rounds", type=int, default=7, help="slices of each [default: 7]")
    parser.add_argument("--slice", type=float, default=1.0, help="seconds [default: 1]")
    parser.add_argument(
        "--tolerance", type=float, default=1e-3,
        help="largest relative L2 distance of the outputs [default: 1e-3]",
    )  # fmt: skip
    parser.add_argument("--name", default="against-tvm", help="of the report [default: against-tvm]")
    return parser.parse_args()


def enter_environment():
    """Goes on in the Python environment that has TVM, which is made if there is none."""
    python, installed = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "installed"
    files = [HERE / "rivals" / name for name in REQUIREMENTS]
    wanted = "".join(file.read_text() for file in files)
    if not installed.is_file() or installed.read_text() != wanted:
        say(f"making {ENVIRONMENT}")
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        from_files = [a for file in files for a in ("--requirement", file)]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *from_files], check=True)
        installed.write_text(wanted)
    if Path(sys.prefix) != ENVIRONMENT:
        os.execv(python, [python, __file__, *sys.argv[1:]])


def tvm(command, pool, cpus, **arguments):
    """What a new process of TVM answers."""
    done = subprocess.run(
        [sys.executable, SEARCH, command, json.dumps({"pool": pool, **arguments})],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        preexec_fn=program.keeping_to(cpus),
    )
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failure(f"TVM cannot {command} it: {said[0][:300]}")
    return program.parsed(done.stdout, [f"TVM's {command}"])


def search(model, threads, cpus, folder, args):
    """TVM's search, which takes minutes. One with the same trials and seed that ended earlier is kept."""
    library, ended = folder / "tuned.so", folder / "search.json"
    asked = {"trials": args.trials, "seed": args.seed}
    if ended.is_file() and library.is_file():
        known = json.loads(ended.read_text())
        if asked == {key: known["asked"][key] for key in asked}:
            return known["searched"]
    searched = tvm(
        "tune", threads, cpus, model=str(model), library=str(library), threads=threads, **asked,
    )  # fmt: skip
    ended.write_text(json.dumps({"asked": asked, "searched": searched}))
    return searched


def compare(operator, threads, args):
    """Both searches and both results of one operator."""
    import agreement
    import arrays

    cpus = machine.cpus_for(threads)
    model = program.onnx_file(operator)
    folder = program.OUT / "tvm" / f"{program.slug(operator)}.{threads}t"
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "tuned.so"
    searched = search(model, threads, cpus, folder, args)
    usual = MANY_TRIALS_PART if args.trials >= MANY_TRIALS else FEW_TRIALS_PART
    wanted_s = searched["seconds"] / (args.part or usual)
    say(f"  TVM: {searched['seconds']:.0f} s, {searched['timed']} of {searched['trials']} ran")
    begun, artifact = program.tune(operator, threads, f"{wanted_s:.1f}s", cpus=cpus)

    inputs_file, outputs_file = folder / "inputs.npz", folder / "outputs.npz"
    inputs = agreement.seeded_inputs(model, agreement.Shapes(None, []), args.seed)
    arrays.save(inputs_file, inputs)

    def theirs(seconds, **more):
        files = {"library": str(library), "inputs": str(inputs_file)}
        return tvm("run", threads, cpus, seconds=seconds, **files, **more)

    theirs(0.0, outputs=str(outputs_file))
    ours = agreement.program_outputs(artifact, threads, inputs, folder / "ours")
    expected = agreement.named_as(arrays.load(outputs_file), ours)
    contenders = {
        "ours": lambda seconds: program.bench(artifact, threads, seconds, cpus),
        "tvm": theirs,
    }
    taken = slices.interleaved(contenders, args.rounds, args.slice)
    figures = {name: slices.summary(own) for name, own in taken.items()}
    return {
        "operator": operator,
        "threads": threads,
        "tvm": searched,
        "tune_s": begun["wall_s"],
        "latencies": figures,
        "ratio": slices.ratios(figures["tvm"], figures["ours"]),
        "distance": agreement.worst_distance(ours, expected),
        "disturbed": slices.disturbance(taken, None),
    }


def text(results, trials):
    """The table, and what its columns are."""
    row = lambda r: [
        r["operator"],
        r["threads"],
        *(f"{r['latencies'][n]['median_ms']:.4f}" for n in ("ours", "tvm")),
        f"{r['ratio']['paired']:.2f}",
        f"{r['tune_s']:.1f}",
        f"{r['tvm']['seconds']:.1f}",
        f"{r['tvm']['timed']} of {r['tvm']['trials']}",
        f"{r['distance']:.0e}",
    ]
    table = report.markdown_table(HEADER, map(row, results))
    mean = slices.geometric_mean(r["ratio"]["paired"] for r in results)
    if mean:
        table += f"\nGeometric mean of TVM over ours: {mean:.2f}; above 1 ours is faster.\n"
    table += (
        f"\nTVM's search has {trials} trials. Times are medians of slices in turns, each in a new "
        "process; *TVM over ours* is the median of the rounds' ratios. *s* is what the whole search "
        "took; *TVM trials* are those that ran, of all. *Distance* is the relative L2 distance of the outputs.\n"
    )
    for r in (r for r in results if r["disturbed"]):
        table += f"\n{r['operator']}, {r['threads']} threads, was disturbed: {'; '.join(r['disturbed'])}.\n"
    return table


def main():
    args = flags()
    enter_environment()
    facts, results, failures = machine.conditions(), [], []
    title = "Operators against TVM's search"
    for operator in args.operators or OPERATORS:
        for threads in map(int, args.threads.split(",")):
            say(f"{operator}, {threads} threads")
            try:
                results.append(compare(operator, threads, args))
            except (Failure, OSError) as error:
                failures.append(report.failure(f"{operator}, {threads} threads", error))
            report.write(args.name, title, facts, results, text(results, args.trials), failures, quiet=True)
    facts["rivals"] = {"TVM": r["tvm"]["version"] for r in results}
    report.write(args.name, title, facts, results, text(results, args.trials), failures)
    wrong = [r["operator"] for r in results if not r["distance"] <= args.tolerance]
    if wrong:
        say(f"FAIL: outputs differ by more than {args.tolerance:g}: {', '.join(wrong)}")
    return 1 if wrong or failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failure, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
