"""One model at one thread count against its rivals: outputs first, then latencies in turns."""

import contextlib

import agreement
import arrays
import rival_process
from harness import machine, program, slices
from harness.program import Failure
from harness.report import say
from tables import BASELINE, TUNED

SEED = 1


def compare(model, threads, artifacts, shapes, args):
    """Distances from onnxruntime, latencies and ratios of one model at one thread count.

    `artifacts` maps the name of a contender to its compiled model; `args` names the
    rivals. Those that cannot take part are in `left_out`, with the reason.
    """
    left_out = {}
    path, cpus = program.onnx_file(model), machine.cpus_for(threads)
    folder = program.OUT / "data" / f"{program.slug(program.model_name(model))}.{threads}t"
    folder.mkdir(parents=True, exist_ok=True)
    inputs = agreement.seeded_inputs(path, shapes, SEED)
    arrays.save(folder / "inputs.npz", inputs)
    with contextlib.ExitStack() as stack:
        rivals = start_rivals(
            args, path, threads, cpus, folder / "inputs.npz", stack, left_out
        )
        distances = compare_outputs(threads, artifacts, rivals, inputs, folder, left_out)
        contenders = {
            name: lambda seconds, a=artifact: program.bench(a, threads, seconds, cpus)
            for name, artifact in artifacts.items()
        }
        contenders |= {name: rival.slice for name, rival in rivals.items()}
        say(f"{program.model_name(model)}, {threads} threads: {args.rounds} rounds")
        taken, disturbed, measured = slices.quietest(
            lambda: rounds(contenders, cpus, args), args.again
        )
        versions = {name: rival.version for name, rival in rivals.items()}
    latencies = {name: slices.summary(s) for name, s in taken.items()}
    wrong = [n for n, d in distances.items() if not d["relative_l2"] <= args.tolerance]
    return {
        "model": program.model_name(model),
        "threads": threads,
        "distances": distances,
        "wrong": wrong,
        "latencies": latencies,
        "ratios": {
            name: slices.ratios(latency, latencies[BASELINE])
            for name, latency in latencies.items()
            if name != BASELINE
        },
        "versions": versions,
        "left_out": left_out,
        "accuracy": taken[next(iter(artifacts))][0].get("accuracy") or "unknown",
        "disturbed": disturbed,
        "measured": measured,
    }


def conditions(args):
    """Of the machine, and whether rivals have huge pages, as Tunesmith's constants do."""
    pages = f"with huge pages ({rival_process.HUGE_PAGES}; the system: {machine.huge_pages()})"
    return machine.conditions() | {"huge_pages": pages if args.huge_pages else "without huge pages"}


def rounds(contenders, cpus, args):
    """The slices of all contenders, and the part of the CPUs' time that was taken away meanwhile."""
    before = machine.stolen(cpus)
    taken = slices.interleaved(contenders, args.rounds, args.slice)
    after = machine.stolen(cpus)
    if before is None or after[1] == before[1]:
        return taken, None
    return taken, (after[0] - before[0]) / (after[1] - before[1])


def as_only(result, own, artifacts):
    """The result of one of several compiled models, as if it alone had been compared with rivals."""
    others = set(artifacts) - {own}
    name = lambda n: TUNED if n == own else n
    kept = {
        part: {name(n): v for n, v in result[part].items() if n not in others}
        for part in ("distances", "latencies", "ratios")
    }
    wrong = [name(n) for n in result["wrong"] if n not in others]
    return result | kept | {"wrong": wrong}


def start_rivals(args, path, threads, cpus, inputs_file, stack, left_out):
    """The rivals that take the model, by name. Only the baseline has to."""
    rivals = {}
    for name in dict.fromkeys([BASELINE, *args.rivals.split(",")]):
        reason = rival_process.refusal(name, threads)
        if reason is None:
            try:
                rival = rival_process.Rival(
                    name, path, threads, inputs_file, program.keeping_to(cpus), args.huge_pages
                )
            except RuntimeError as error:
                reason = str(error)
        if reason is None:
            rivals[name] = stack.enter_context(rival)
        elif name == BASELINE:
            raise Failure(f"{BASELINE}, which outputs are compared with, is missing: {reason}")
        else:
            left_out[name] = reason
            say(f"  without {name}: {reason}")
    return rivals


def compare_outputs(threads, artifacts, rivals, inputs, folder, left_out):
    """How far the outputs of every contender are from onnxruntime's."""
    outputs = {}
    for name, rival in list(rivals.items()):
        try:
            rival.outputs(folder / f"{name}.npz")
            outputs[name] = arrays.load(folder / f"{name}.npz")
        except RuntimeError as error:
            if name == BASELINE:
                raise
            left_out[name] = str(error)
            say(f"  without {name}: {error}")
            del rivals[name]
    expected = outputs.pop(BASELINE)
    distances = {}
    ours = {
        name: agreement.program_outputs(artifact, threads, inputs, folder / program.slug(name))
        for name, artifact in artifacts.items()
    }
    for name, theirs in (ours | outputs).items():
        named = agreement.named_as(theirs, expected)
        distances[name] = {"relative_l2": agreement.worst_distance(named, expected)}
        distance = distances[name]["relative_l2"]
        say(f"  {name}: relative L2 distance {distance:.1e} from {BASELINE}")
    return distances
