"""The summary of a suite: who is faster, by how much, and how far the roofline is.

Arithmetic and texts only; nothing is measured here.
"""

from harness import report, slices
from tables import (
    BASELINE, TUNED, accuracies, accuracy_text, contender_names, distance_cell, latency_cell,
    notes_text,
)  # fmt: skip


def best_rival(latencies):
    """The rival of the lowest median."""
    rivals = {n: latency for n, latency in latencies.items() if n != TUNED}
    return min(rivals, key=lambda n: rivals[n]["median_ms"])


def gain(latencies, best):
    """Latency of the best rival over ours: above 1, ours is faster."""
    ours = latencies[TUNED]
    rivals = [latency for n, latency in latencies.items() if n != TUNED]
    return {
        "median": latencies[best]["median_ms"] / ours["median_ms"],
        # The lowest minimum of any rival, whoever has the lowest median.
        "min": min(r["min_ms"] for r in rivals) / ours["min_ms"],
        "paired": 1 / slices.ratios(ours, latencies[best])["paired"],
    }


def allowed(result):
    """The gain at which ours would run at its roofline; None if that is not known."""
    if not result["explained"]:
        return None
    best = result["latencies"][result["best_rival"]]["median_ms"]
    return best / result["explained"]["roofline_ms"]


def text(name, results):
    if not results:
        return "Nothing was measured.\n"
    page = side_by_side_text(results) if len(accuracies(results)) > 1 else ""
    names = contender_names(results)
    header = ["model", "threads", *(f"{n} ms (min)" for n in names), "gain (min, paired)"]
    header += ["roofline ms", "of it", "gain allowed", "efficiency", "of allowed speed-up"]
    header += ["CPUs apart ns", "relative L2", "check (L2 against f64)", "accuracy"]
    rows = [table_row(r, names) for r in results]
    page += report.markdown_table(header, rows) + "\n"
    for accuracy in accuracies(results):
        own = [r for r in results if r["accuracy"] == accuracy]
        page += f"Accuracy {accuracy}:\n\n" + means_text(own) + "\n"
    page += (
        f"Batch 1, f32, {accuracy_text(results)}. "
        + "Medians of interleaved slices, and minima. Gain: the best\nrival's latency over ours, "
        + "above 1 ours is faster; of medians (of minima, median of the rounds'\nratios). Roofline: "
        + "`tunesmith explain`, a lower bound of the chosen algorithms. Gain allowed: the\ngain at "
        + "that bound. Efficiency: one thread's time over all threads' time, of the same kernels.\n"
        + "Of allowed speed-up: the speed-up on all threads over that of the rooflines, which counts "
        + "memory shared\nby threads. CPUs apart: what a cache line takes from one thread to another and "
        + "back, in our slices;\nhundreds say that their CPUs shared no cache. "
        + f"Relative L2: the largest distance of our outputs from {BASELINE}'s.\n"
        + "Check: `tunesmith check`, the largest distance of a layer from the plain references, which "
        + "compute in f64.\n"
    )
    page += f"Largest spread of a contender's slices: {100 * spread(results):.0f}%.\n"
    page += notes_text(results) + "\n"
    page += f"## Tuning\n\n{accuracy_text(results).capitalize()}.\n\n" + tuning_table(results)
    page += "\n## Layers\n\n" + layers_text(results)
    return page + charts_text(name, results)


def side_by_side_text(results):
    """One row a model and thread count: every accuracy of ours beside the rivals."""
    kinds, rivals = accuracies(results), [n for n in contender_names(results) if n != TUNED]
    header = ["model", "threads", *(f"{TUNED} {k} ms (min)" for k in kinds)]
    header += [*(f"{n} ms (min)" for n in rivals), *(f"gain {k} (min)" for k in kinds)]
    rows = {}
    for r in results:
        rows.setdefault((r["model"], r["threads"]), {})[r["accuracy"]] = r
    table = []
    for (model, threads), of in rows.items():
        any_of = next(iter(of.values()))
        cells = [latency_cell(of[k]["latencies"][TUNED]) if k in of else "-" for k in kinds]
        cells += [latency_cell(any_of["latencies"].get(n)) for n in rivals]
        gains = [of[k]["gain"] if k in of else None for k in kinds]
        cells += [f"{g['median']:.2f} ({g['min']:.2f})" if g else "-" for g in gains]
        table.append([model, threads, *cells])
    return report.markdown_table(header, table) + "\n"


def title(r, results):
    """A model and thread count, and the accuracy where there are several."""
    accuracy = f", {r['accuracy']}" if len(accuracies(results)) > 1 else ""
    return f"{r['model']}, {r['threads']} threads{accuracy}"


def table_row(r, names):
    explained, g = r["explained"], r["gain"]
    row = [r["model"], r["threads"], *(latency_cell(r["latencies"].get(n)) for n in names)]
    row.append(f"{g['median']:.2f} ({g['min']:.2f}, {g['paired']:.2f})")
    if explained:
        ours = r["latencies"][TUNED]["median_ms"]
        scaling = explained["scaling"]
        row += [
            f"{explained['roofline_ms']:.3f}",
            f"{100 * explained['roofline_ms'] / ours:.0f}%",
            f"{allowed(r):.2f}",
            f"{100 * scaling['efficiency']:.0f}%" if scaling else "",
            f"{100 * of_allowed_speedup(scaling):.0f}%" if scaling else "",
        ]
    else:
        row += ["-"] * 5
    row.append(apart_cell(r["latencies"][TUNED]["slices"]))
    return [*row, distance_cell(r), check_cell(r.get("check")), r["accuracy"]]


def of_allowed_speedup(scaling):
    """The speed-up on all threads over that of the rooflines."""
    return scaling["speedup"] / scaling["roofline_speedup"]


def apart_cell(slices_of_one):
    """Least and largest time of a cache line between the threads' CPUs and back."""
    ns = [s["exchange_ns"] for s in slices_of_one if s.get("exchange_ns")]
    return f"{min(ns):.0f}-{max(ns):.0f}" if ns else ""


def check_cell(check):
    """The largest error of a layer; `-` for what was not checked."""
    if not check:
        return "-"
    text = f"{check['max_rel_err']:.1e}"
    return text if check["ok"] else f"FAIL {text}"


def means_text(results):
    """Geometric means for each thread count and over all."""
    counts = list(dict.fromkeys(r["threads"] for r in results))
    groups = [(f"{t} threads", [r for r in results if r["threads"] == t]) for t in counts]
    if len(groups) > 1:
        groups.append(("all", results))
    rows = []
    for name, of in groups:
        bounds = [allowed(r) for r in of]
        known = slices.geometric_mean(bounds) if all(bounds) else None
        lowest = min(of, key=lambda r: r["gain"]["median"])
        mean = slices.geometric_mean(r["gain"]["median"] for r in of)
        rows.append(
            [
                name, len(of), f"{mean:.3f}",
                f"{slices.geometric_mean(r['gain']['min'] for r in of):.3f}",
                f"{known:.3f}" if known else "-",
                f"{100 * mean / known:.0f}%" if known else "-",
                f"{lowest['gain']['median']:.2f} {lowest['model']} {lowest['threads']}T",
            ]
        )  # fmt: skip
    header = ["geometric mean", "models", "gain", "of minima", "allowed", "of allowed", "lowest gain"]
    return report.markdown_table(header, rows)


def tuning_table(results):
    rows = []
    for r in results:
        t = r["tuning"]
        done = t["report"]
        rows.append(
            [
                r["model"], r["threads"], f"{t['spent_s']:.0f}", t["trials"],
                f"{done['latency_default_ms']:.3f}" if "latency_default_ms" in done else "-",
                f"{done['latency_after_ms']:.3f}" if "latency_after_ms" in done else "-",
                t["commit"] + (" (earlier run)" if t["reused"] else ""),
            ]
        )  # fmt: skip
    header = ["model", "threads", "tuning s", "trials", "untuned ms", "tuned ms", "commit"]
    return report.markdown_table(header, rows)


def layers_text(results):
    lines = []
    for r in results:
        what = title(r, results)
        if r["explained"]:
            lines.append(f"- [{what}]({r['layers_page']})")
        else:
            lines.append(f"- {what}: {r['explain_error']}")
    return "\n".join(lines) + "\n"


def charts_text(name, results):
    counts = dict.fromkeys(r["threads"] for r in results)
    return "\n" + "".join(f"![{t} threads]({name}-{t}t.svg)\n" for t in counts)


def spread(results):
    return max(x["spread"] for r in results for x in r["latencies"].values())


def duration(seconds):
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def draw(name, results, counts):
    """One chart for each thread count: speed of everyone relative to the best rival.

    Of several accuracies the last is drawn.
    """
    for threads in counts:
        drawn = accuracies(results)[-1:]
        own = [r for r in results if r["threads"] == threads and r["accuracy"] in drawn]
        if not own:
            continue

        def bar(result, contender):
            latency = result["latencies"].get(contender)
            if not latency:
                return None
            best = result["latencies"][result["best_rival"]]["median_ms"]
            return best / latency["median_ms"], f"{latency['median_ms']:.3g} ms"

        series = {n: [bar(r, n) for r in own] for n in contender_names(own)}
        title = f"Batch 1, f32, {threads} {'thread' if threads == 1 else 'threads'}"
        title += f", {accuracy_text(own)}"
        axis = "speed relative to the best rival"
        groups = [r["model"] for r in own]
        report.bar_chart(f"{name}-{threads}t", title, axis, groups, series)
