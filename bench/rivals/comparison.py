"""One model at one thread count against its rivals: outputs first, then latencies in turns."""

import contextlib

import agreement
import arrays
import rival_process
import runtimes
from harness import machine, program, slices
from harness.program import Failure
from harness.report import say
from tables import BASELINE, TUNED

SEED = 1

# Of a rival's outputs, as a relative L2 distance: beyond it, it does not compute the model.
RIVAL_TOLERANCE = 1e-2


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
        rivals = start_rivals(args, path, threads, cpus, folder / "inputs.npz", stack, left_out)
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
    wrong = [n for n in artifacts if not distances[n]["relative_l2"] <= args.tolerance]
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
    return result | kept | {"wrong": [TUNED] if own in result["wrong"] else []}


def start_rivals(args, path, threads, cpus, inputs_file, stack, left_out):
    """The rivals that take the model, by name. Only the baseline has to."""
    rivals = {}
    for name in dict.fromkeys([BASELINE, *args.rivals.split(",")]):
        reason = runtimes.refusal(name, threads)
        if reason is None:
            try:
                rival = rival_process.Rival(
                    name, path, threads, inputs_file, program.keeping_to(cpus), args.huge_pages
                )
                rivals[name] = stack.enter_context(rival)
            except RuntimeError as error:
                reason = str(error)
        if reason is not None:
            leave_out(name, reason, left_out)
    return rivals


def leave_out(name, reason, left_out):
    """Keeps the reason for the report. Nothing can be compared without the baseline."""
    if name == BASELINE:
        raise Failure(f"{BASELINE}, which outputs are compared with, is missing: {reason}")
    left_out[name] = reason
    say(f"  without {name}: {reason}")


def compare_outputs(threads, artifacts, rivals, inputs, folder, left_out):
    """How far the outputs of every contender are from onnxruntime's.

    A rival without outputs, or with others, is taken out of `rivals`.
    """
    expected = rival_outputs(rivals[BASELINE], folder)
    distances = {}
    for name, artifact in artifacts.items():
        ours = agreement.program_outputs(artifact, threads, inputs, folder / program.slug(name))
        distances[name] = distance(name, ours, expected)
    for name in [n for n in rivals if n != BASELINE]:
        try:
            found = distance(name, rival_outputs(rivals[name], folder), expected)
            if not found["relative_l2"] <= RIVAL_TOLERANCE:
                raise Failure(
                    f"its relative L2 distance of {found['relative_l2']:.1e} from {BASELINE} is "
                    f"beyond {RIVAL_TOLERANCE:g}"
                )
            distances[name] = found
        except (Failure, RuntimeError) as error:
            leave_out(name, str(error), left_out)
            del rivals[name]
    return distances


def rival_outputs(rival, folder):
    """Of one run; by way of a file in `folder`."""
    path = folder / f"{rival.name}.npz"
    rival.outputs(path)
    return arrays.load(path)


def distance(name, outputs, expected):
    """The largest of all outputs, which may have other names in the same order."""
    worst = agreement.worst_distance(agreement.named_as(outputs, expected), expected)
    say(f"  {name}: relative L2 distance {worst:.1e} from {BASELINE}")
    return {"relative_l2": worst}
