"""Single kernels: matrix products and convolutions against rivals, Winograd against direct.

A rival reorders the input and output of a lone convolution; a chain of equal
ones has that cost at its ends only. So convolutions are measured as chains, by
everyone, and a figure is the chain's time over its length.
"""

import math

import agreement
import numpy
import onnx
from comparison import compare, conditions
from harness import machine, program, report, slices
from harness.program import Failure
from harness.report import say
from tables import TUNED, notes_text

CHAIN = 8
SIZES = (512, 1024, 2048)

# Name, channels, height and width, groups; 3x3, stride 1, padded, as many channels out.
CONVOLUTIONS = (
    ("conv 56x56x64", 64, 56, 1),
    ("conv 14x14x256", 256, 14, 1),
    ("depthwise 112x112x32", 32, 112, 32),
)

# Convolutions 2 to 10 of VGG-16: channels in, out, height and width, how often.
VGG = (
    (64, 64, 224, 1), (64, 128, 112, 1), (128, 128, 112, 1), (128, 256, 56, 1),
    (256, 256, 56, 2), (256, 512, 28, 1), (512, 512, 28, 2),
)  # fmt: skip
WINOGRAD_ROUNDS = 5


def run(args, counts):
    """All kernels that are asked for, at all thread counts."""
    facts, results, failures = conditions(args), [], []
    parts = args.parts.split(",")
    unknown = set(parts) - {"gemm", "conv", "winograd"}
    if unknown:
        raise Failure(f"--parts {args.parts}: there are gemm, conv and winograd")
    for threads in counts:
        for name, work in jobs(parts, threads, args):
            say(f"{name}, {threads} threads")
            try:
                results.append(work() | {"name": name, "threads": threads})
            except (Failure, RuntimeError, OSError) as error:
                failures.append(report.failure(f"{name}, {threads} threads", error))
            report.write(args.name, TITLE, facts, results, text(results), failures, quiet=True)
    facts["rivals"] = {n: v for r in results for n, v in r.get("versions", {}).items()}
    report.write(args.name, TITLE, facts, results, text(results), failures)
    wrong = [r["name"] for r in results if r.get("wrong")]
    if wrong:
        say(f"FAIL: outputs differ by more than {args.tolerance}: {', '.join(wrong)}")
    return 1 if wrong or failures else 0


TITLE = "Single kernels"


def jobs(parts, threads, args):
    """Name and function of every kernel."""
    if "gemm" in parts:
        for n in SIZES:
            model = f"op:matmul(m={n},n={n},k={n})"
            gflop = 2 * n**3 / 1e9
            yield f"GEMM {n}", lambda m=model, g=gflop: against(m, 1, g, "openblas", threads, args)
    if "conv" in parts:
        for name, channels, size, groups in CONVOLUTIONS:
            gflop = 2 * 9 * size**2 * channels * (channels // groups) / 1e9
            yield name, lambda c=channels, s=size, g=groups, f=gflop: against(
                chain(c, s, g), CHAIN, f, "", threads, args
            )
    if "winograd" in parts:
        for c, k, size, uses in VGG:
            yield f"VGG-16 conv {size}x{size} {c}>{k}", lambda c=c, k=k, s=size, u=uses: (
                winograd(c, k, s, u, threads, args)
            )


def chain(channels, size, groups):
    """An ONNX file of equal 3x3 convolutions one after the other; its path."""
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    rng = numpy.random.default_rng(1)
    inner = channels // groups
    shape = [channels, inner, 3, 3]
    nodes, weights = [], []
    for i in range(CHAIN):
        # So that values neither grow nor vanish along the chain.
        w = rng.standard_normal(shape).astype(numpy.float32) / math.sqrt(9 * inner)
        weights.append(onnx.numpy_helper.from_array(w, f"w{i}"))
        nodes.append(
            h.make_node(
                "Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], kernel_shape=[3, 3], pads=[1] * 4,
                group=groups, name=f"conv{i}",
            )
        )  # fmt: skip
    image = [1, channels, size, size]
    ends = [h.make_tensor_value_info(f"x{i}", kind, image) for i in (0, CHAIN)]
    graph = h.make_graph(nodes, "chain", ends[:1], ends[1:], weights)
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
    path = program.OUT / "models" / f"chain-{channels}-{size}-{groups}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return str(path)


def against(model, length, gflop, more_rivals, threads, args):
    """Tunes a model of `length` kernels with exact algorithms, and compares it."""
    shapes = agreement.Shapes(None, [])
    model_args = ["--accuracy", "strict"]
    say(f"  tuning for {args.time}")
    _, artifact = program.tune(model, threads, args.time, shape_args=model_args)
    asked = Options(args, more_rivals)
    result = compare(model, threads, {TUNED: artifact}, shapes, asked)
    result["peak_gflops"] = peak_gflops(threads)
    result["kernels"] = {
        name: rates(latency, length, gflop, result["peak_gflops"])
        for name, latency in result["latencies"].items()
    }
    return result


class Options:
    """The options of a comparison, with one rival more."""

    def __init__(self, args, more_rivals):
        self.rounds, self.slice, self.tolerance = args.rounds, args.slice, args.tolerance
        self.again, self.huge_pages = args.again, args.huge_pages
        self.rivals = ",".join(filter(None, [args.rivals, more_rivals]))


def peak_gflops(threads):
    """The multiply-add peak of so many threads together."""
    found = program.call_json("doctor", "--threads", threads)["ceilings"]
    return next(c["peak_gflops"] for c in found if c["threads"] == threads)


def rates(latency, length, gflop, peak):
    """Of one kernel of a chain."""
    ms = {k: latency[k] / length for k in ("median_ms", "min_ms")}
    gflops = gflop / ms["median_ms"] * 1e3
    return ms | {
        "gflops": gflops,
        "of_peak": gflops / peak,
        "best_of_peak": gflop / ms["min_ms"] * 1e3 / peak,
    }


def winograd(c, k, size, uses, threads, args):
    """One convolution with the best direct and the best Winograd kernel, in turns."""
    model = f"op:conv2d(c={c},h={size},w={size},k={k},r=3,s=3,pad=1)"
    kinds = {"direct": "strict", "winograd": "relaxed"}
    artifacts, stores = {}, {}
    for kind, accuracy in kinds.items():
        say(f"  {kind}: tuning for {args.time}")
        artifacts[kind] = program.artifact_path(model, threads, kind)
        stores[kind] = program.fresh_store(artifacts[kind].stem)
        program.call_json(
            "tune", model, "--threads", threads, "--time", args.time, "--accuracy", accuracy,
            "--algorithms", kind, "--store", stores[kind], "--out", artifacts[kind],
        )  # fmt: skip
    cpus, taken, peak = machine.cpus_for(threads), {k: [] for k in kinds}, 0.0
    algorithms = {}
    for i in range(WINOGRAD_ROUNDS):
        for kind in slices.turned(list(kinds), i):
            explained = program.call_json(
                "explain", model, "--artifact", artifacts[kind], "--threads", threads,
                "--store", stores[kind], "--time", f"{args.slice}s", cpus=cpus,
            )  # fmt: skip
            peak = max(peak, explained["ceiling"]["peak_gflops"])
            layer = costliest(explained)
            algorithms[kind] = layer["algorithm"]
            time = layer["time"]
            taken[kind].append(time | {"p90_ms": time["median_ms"], "runs": explained["rounds"]})
    gflop = 2 * 9 * c * k * size**2 / 1e9
    latencies = {kind: slices.summary(s) for kind, s in taken.items()}
    for kind, name in algorithms.items():
        if not name.startswith(kind):
            raise Failure(f"the best {kind} kernel is {name}: there is no such candidate")
    return {
        "uses": uses,
        "peak_gflops": peak,
        "algorithms": algorithms,
        "latencies": latencies,
        "kernels": {kind: rates(s, 1, gflop, peak) for kind, s in latencies.items()},
        "speedup": slices.ratios(latencies["direct"], latencies["winograd"]),
    }


def costliest(explained):
    """The convolution; the other layers of the model change layouts."""
    return max(explained["layers"], key=lambda layer: layer["gflop"])


def text(results):
    """Both tables."""
    plain = [r for r in results if "speedup" not in r]
    filtered = [r for r in results if "speedup" in r]
    page = rivals_table(plain) if plain else ""
    if filtered:
        page += "\n## Winograd against direct\n\n" + winograd_table(filtered)
    return page or "Nothing was measured.\n"


def rivals_table(results):
    names = list(dict.fromkeys(n for r in results for n in r["kernels"]))
    header = ["kernel", "threads", "peak", *names, "gain (min)"]
    rows = []
    for r in results:
        ours = r["kernels"][TUNED]
        rivals = [k for n, k in r["kernels"].items() if n != TUNED]
        gains = [min(k[m] for k in rivals) / ours[m] for m in ("median_ms", "min_ms")]
        cells = [cell(r["kernels"].get(n)) for n in names]
        peak = f"{r['peak_gflops']:.0f}"
        rows.append([r["name"], r["threads"], peak, *cells, f"{gains[0]:.2f} ({gains[1]:.2f})"])
    return (
        report.markdown_table(header, rows)
        + "\nMilliseconds of one kernel (median), GFLOP/s, part of the multiply-add peak (at the "
        + "minimum).\nGain: the best rival's time over ours, above 1 ours is faster; of medians "
        + "(of minima). Ours\nare exact algorithms; MNN and ncnn also use Winograd. "
        + f"Convolutions are chains of {CHAIN}, over their "
        + "length: changes of layout at the ends\nare inside the time, of everyone. Both operands "
        + "of products vary: packing is inside the time.\n"
        + notes_text(results)
    )


def cell(kernel):
    if not kernel:
        return "-"
    return (
        f"{kernel['median_ms']:.3f} ms, {kernel['gflops']:.0f}, {100 * kernel['of_peak']:.0f}% "
        f"({100 * kernel['best_of_peak']:.0f}%)"
    )


def winograd_table(results):
    header = ["layer", "times", "threads", "direct", "Winograd", "algorithm", "speed-up (min)"]
    rows = []
    for r in results:
        speedup = r["speedup"]
        rows.append(
            [
                r["name"], r["uses"], r["threads"], cell(r["kernels"]["direct"]),
                cell(r["kernels"]["winograd"]), r["algorithms"]["winograd"],
                f"{speedup['median']:.2f} ({speedup['min']:.2f})",
            ]
        )  # fmt: skip
    page = report.markdown_table(header, rows) + "\n"
    for threads in dict.fromkeys(r["threads"] for r in results):
        own = [r for r in results if r["threads"] == threads]
        total = {
            kind: sum(r["uses"] * r["kernels"][kind]["median_ms"] for r in own)
            for kind in ("direct", "winograd")
        }
        page += (
            f"All of them, {threads} threads: direct {total['direct']:.2f} ms, Winograd "
            f"{total['winograd']:.2f} ms, {total['direct'] / total['winograd']:.2f}x.\n"
        )
    return page + (
        "\nTimes inside a model of one convolution in blocked layouts, padding included. GFLOP/s of "
        + "both count\nthe operations of the direct convolution.\n"
    )
