"""TVM's search for one operator, in TVM's Python environment: `tune` makes a library, `run` times it.

Both print one JSON object. The builder's time-out is long: its processes import a module for half a
minute, and with the time-out that TVM has by default no candidate would be built.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import arrays
import tvm_target

BUILD_TIMEOUT_S, RUN_TIMEOUT_S = 300, 60
LEAST_RUNS = 5


def tune(model, library, threads, trials, seed):
    """Tunes an ONNX model and writes a library of what was found."""
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.s_tir import meta_schedule

    begin = time.monotonic()
    target = tvm_target.host(threads)
    module = from_onnx(onnx.load(model), keep_params_in_input=False)
    # As compile_relax prepares it, so that it finds what was tuned.
    passes = [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]
    with target:
        prepared = tvm.transform.Sequential(passes)(module)
    database = meta_schedule.relax_integration.tune_relax(
        prepared,
        params={},
        target=target,
        work_dir=str(Path(library).with_suffix(".search")),
        max_trials_global=trials,
        num_trials_per_iter=min(trials, 64),
        builder=meta_schedule.builder.LocalBuilder(timeout_sec=BUILD_TIMEOUT_S),
        runner=meta_schedule.runner.LocalRunner(timeout_sec=RUN_TIMEOUT_S),
        seed=seed,
    )
    records = database.get_all_tuning_records()
    timed = [r for r in records if r.run_secs and float(r.run_secs[0]) < 1e9]
    executable = meta_schedule.relax_integration.compile_relax(database, module, target, {})
    executable.export_library(library)
    return {
        "seconds": time.monotonic() - begin,
        "trials": len(records),
        "timed": len(timed),
        "version": tvm.__version__,
    }


def load(library, inputs):
    """What runs the library on the arrays of a file, the outputs returned."""
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(library), tvm.cpu())
    values = [tvm.runtime.tensor(value) for value in arrays.load(inputs).values()]
    return lambda: machine["main"](*values)


def run(library, inputs, seconds, outputs=None):
    """Times a library; `outputs` is a file for what it computes."""
    once = load(library, inputs)
    result = once()
    if outputs:
        results = [result] if hasattr(result, "numpy") else list(result)
        arrays.save(outputs, {str(i): r.numpy() for i, r in enumerate(results)})
    taken, end = [], time.monotonic() + seconds
    while len(taken) < LEAST_RUNS or time.monotonic() < end:
        begin = time.perf_counter()
        once()
        taken.append(1e3 * (time.perf_counter() - begin))
    return {
        "median_ms": statistics.median(taken),
        "min_ms": min(taken),
        "p90_ms": sorted(taken)[int(0.9 * len(taken))],
        "runs": len(taken),
    }


def main():
    command, arguments = sys.argv[1], json.loads(sys.argv[2])
    os.environ["TVM_NUM_THREADS"] = str(arguments.pop("pool"))
    # Answers alone go to standard output; TVM and its processes say much.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps({"tune": tune, "run": run}[command](**arguments)), file=answers)


if __name__ == "__main__":
    main()
