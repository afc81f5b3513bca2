"""Tables and charts of a comparison, and the names of contenders in them."""

from harness import report

TUNED, DEFAULT, BASELINE = "tunesmith", "tunesmith untuned", "onnxruntime"


def latency_text(results):
    """The table of a comparison, with what its columns mean."""
    if not results:
        return ""
    names = contender_names(results)
    ours = [n for n in names if n != BASELINE]
    header = ["model", "threads", *(f"{n} ms (min)" for n in names)]
    header += [*(f"{n} / {BASELINE}" for n in ours), "relative L2", "accuracy"]
    rows = []
    for r in results:
        row = [r["model"], r["threads"]]
        row += [latency_cell(r["latencies"].get(n)) for n in names]
        row += [ratio_cell(r["ratios"].get(n)) for n in ours]
        rows.append([*row, distance_cell(r), r["accuracy"]])
    spread = max(x["spread"] for r in results for x in r["latencies"].values())
    return (
        report.markdown_table(header, rows)
        + "\nMedian of interleaved slices, and minimum. Ratios: of the medians (of the minima, "
        + f"median of the rounds' ratios);\nbelow 1 is faster than {BASELINE}. "
        + f"Relative L2: our largest distance of outputs from {BASELINE}'s.\n"
        + f"Largest spread of a contender's slices: {100 * spread:.0f}%.\n"
        + notes_text(results)
    )


def notes_text(results):
    """What a reader has to know of the rows: disturbances, rivals left out, rivals' distances."""
    return quiet_text(results) + left_out_text(results) + rivals_distance_text(results)


def quiet_text(results):
    """Which rows were measured more than once, and what still disturbed them."""
    text, told = "", set()
    for r in results:
        row = f"{r['model']} {r['threads']}T"
        if row in told or (r["measured"] == 1 and not r["disturbed"]):
            continue
        told.add(row)
        left = f": still {', '.join(r['disturbed'])}" if r["disturbed"] else ": quiet then"
        text += f"- {row} measured {r['measured']} times, the quietest kept{left}\n"
    return f"\n{text}" if text else "No row was disturbed.\n"


def left_out_text(results):
    """Which rivals did not take part, why, and of which models."""
    rows = {}
    for r in results:
        for name, why in r["left_out"].items():
            # A dictionary for its order: several accuracies have the same row.
            rows.setdefault((name, why), {})[f"{r['model']} {r['threads']}T"] = None
    lines = [f"- Without {n}: {why} ({', '.join(of)})\n" for (n, why), of in rows.items()]
    return "\n" + "".join(lines) if lines else ""


def rivals_distance_text(results):
    """How exact the rivals are, which choose their algorithms themselves."""
    worst = {}
    for r in results:
        for name in r["distances"].keys() & r["versions"].keys():
            worst[name] = max(worst.get(name, 0.0), r["distances"][name]["relative_l2"])
    texts = [f"{name} {distance:.1e}" for name, distance in sorted(worst.items())]
    return f"\nLargest distances of rivals: {', '.join(texts)}.\n" if texts else ""


def accuracies(results):
    """All that models were compiled with, in the order in which they first appear."""
    return list(dict.fromkeys(r["accuracy"] for r in results))


def accuracy_text(results):
    """`accuracy relaxed`, or all that models were compiled with."""
    return f"accuracy {' and '.join(sorted(accuracies(results)))}"


def contender_names(results):
    """Every contender of any model, in the order in which they first appear."""
    return list(dict.fromkeys(n for r in results for n in r["latencies"]))


def latency_cell(latency):
    return f"{latency['median_ms']:.3f} ({latency['min_ms']:.3f})" if latency else "-"


def ratio_cell(ratio):
    return f"{ratio['median']:.2f} ({ratio['min']:.2f}, {ratio['paired']:.2f})" if ratio else "-"


def distance_cell(result):
    """The largest distance of ours."""
    ours = [d["relative_l2"] for n, d in result["distances"].items() if n not in result["versions"]]
    far = any(name in result["distances"] for name in result["wrong"])
    return f"{'FAIL ' if far else ''}{max(ours):.1e}"


def draw(name, results):
    """Latencies relative to onnxruntime's, with milliseconds over the bars."""

    def bar(result, contender):
        latencies = result["latencies"]
        if contender not in latencies:
            return None
        ms = latencies[contender]["median_ms"]
        return ms / latencies[BASELINE]["median_ms"], f"{ms:.3g} ms"

    series = {n: [bar(r, n) for r in results] for n in contender_names(results)}
    groups = [f"{r['model']}, {r['threads']}T" for r in results]
    report.bar_chart(name, "Latency", f"relative to {BASELINE} (lower is better)", groups, series)
