"""Pages of layers: what `tunesmith explain` says of a model, as Markdown."""

from harness import program, report


def write(name, result):
    """Writes the page of one model at one thread count; its path beside the summary."""
    page = f"{name}-layers/{page_name(result)}"
    path = program.OUT / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(result["model"], result["explained"]))
    return page


def page_name(result):
    """The file of a model's page, at one thread count and accuracy."""
    strict = ".strict" if result["accuracy"] == "strict" else ""
    return f"{program.slug(result['model'])}.{result['threads']}t{strict}.md"


def text(model, explained):
    """The table of layers, costliest limits first in words."""
    scaling = explained["scaling"]
    header = ["#", "name", "operator", "algorithm", "ms", "time", "GFLOP/s", "of peak"]
    header += ["GB/s", "of bandwidth", "MB", "FLOP/B", "limit", "of roofline"]
    header += ["efficiency"] if scaling else []
    header += ["schedule"]
    rows = [row(layer, bool(scaling)) for layer in explained["layers"]]
    ceiling = explained["ceiling"]
    levels = ", ".join(f"{level['name']} {level['gb_per_s']:.0f}" for level in ceiling["levels"])
    latency = explained["latency"]
    lines = [
        f"# {model}, {explained['threads']} threads, layer by layer\n",
        f"{latency['median_ms']:.3f} ms (min {latency['min_ms']:.3f}), accuracy "
        f"{explained['accuracy']}; roofline {explained['roofline_ms']:.3f} ms, "
        f"{percent(explained['of_roofline'])} of the time. {explained['gflop']:.2f} GFLOP, "
        f"{explained['gflops_per_s']:.0f} GFLOP/s of a peak of {ceiling['peak_gflops']:.0f}; "
        f"one inference touches {explained['footprint_mbytes']:.1f} MB.",
        f"Reads in GB/s: {levels}. A parallel loop costs {ceiling['fork_join']['awake_us']:.2f} us.",
    ]
    if explained["moved_ns"]:
        before, after = explained["moved_ns"]
        lines.append(
            f"CPUs moved meanwhile: a cache line took {before:.0f} ns there and back, then "
            f"{after:.0f}; rooflines are of the better limits."
        )
    if scaling:
        lines.append(
            f"One thread takes {scaling['one_thread']['median_ms']:.3f} ms: "
            f"{scaling['speedup']:.2f}x ({percent(scaling['efficiency'])} efficiency; the rooflines "
            f"allow {scaling['roofline_speedup']:.2f}x)."
        )
    table = report.markdown_table(header, rows)
    note = "\n\\*: operations of the direct convolution; fewer are executed, and the roofline counts those.\n"
    marked = any(layer["counted_as_direct"] for layer in explained["layers"])
    return "\n".join(lines) + "\n\n" + table + (note if marked else "")


def row(layer, scaling):
    mark = "\\*" if layer["counted_as_direct"] else ""
    limit = layer["level"] if layer["limit"] == "memory" else layer["limit"]
    cells = [
        layer["index"], layer["name"], layer["operator"], layer["algorithm"],
        f"{layer['time']['median_ms']:.3f}", percent(layer["share"]),
        f"{layer['gflops_per_s']:.1f}{mark}", percent(layer["of_peak"]),
        f"{layer['gb_per_s']:.1f}", percent(layer["of_bandwidth"]), f"{layer['mbytes']:.2f}",
        f"{layer['intensity']:.1f}", limit, percent(layer["of_roofline"]),
    ]  # fmt: skip
    if scaling:
        efficiency = layer["efficiency"]
        cells.append(percent(efficiency) if efficiency is not None else "-")
    return [*cells, layer["schedule"] or "-"]


def percent(part):
    return f"{100 * part:.0f}%"
