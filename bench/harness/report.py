"""Reports: a JSON file with everything, a Markdown table, a bar chart, under `target/bench`."""

import json
import sys

from . import machine, program


def markdown_table(header, rows):
    """A Markdown table; the first column is text, the others are set to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]

    def line(cells):
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = [("-" * w) if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)]
    return "\n".join([line(header), line(rule), *map(line, rows)]) + "\n"


def conditions_text(facts):
    """The conditions in two or three lines, with a warning if the machine was not quiet."""
    m = facts["machine"]
    lines = [
        f"{m['cpu']}, {m['cpus']} CPUs, {m['target']}, "
        f"{m['fma_peak_gflops']:.0f} GFLOP/s a core, {m['read_gb_per_s']:.1f} GB/s.",
        f"Commit {facts['commit']}, {m['compiler']}, {facts['date']}.",
    ]
    versions = facts.get("rivals")
    if versions:
        lines.append(", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    if "huge_pages" in facts:
        lines.append(f"Rivals {facts['huge_pages']}.")
    busy = facts["busy_cpus"]
    if busy is None:
        lines.append("Whether the machine did other work at the same time is not known.")
    elif busy > machine.QUIET_BUSY_CPUS:
        lines.append(f"**The machine was not quiet: other work kept {busy} CPUs busy.**")
    return "\n".join(lines) + "\n"


def failure(what, error):
    """Says that one part of a run failed, and how; for the report. The run goes on."""
    say(f"error: {what}: {error}")
    return {"what": what, "error": str(error)}


def write(name, title, facts, results, text, failures=(), quiet=False):
    """Writes NAME.json and NAME.md, prints the latter, and says where they are.

    `quiet` only writes: for what is not finished yet.
    """
    (program.OUT / name).parent.mkdir(parents=True, exist_ok=True)
    page = f"# {title}\n\n{conditions_text(facts)}\n{text}"
    for failed in failures:
        page += f"\n**Failed: {failed['what']}.** {failed['error']}\n"
    data = {"title": title, "conditions": facts, "results": results, "failures": list(failures)}
    (program.OUT / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n")
    (program.OUT / f"{name}.md").write_text(page)
    if quiet:
        return
    print(page)
    say(f"written: {program.OUT / name}.json, .md")


def bar_chart(name, title, axis, groups, series):
    """Draws NAME.svg and NAME.png: for each group of bars one bar of each series.

    `series` maps a name to one (height, label) for each group, or None where
    there is no bar. Without matplotlib says so and draws nothing.
    """
    pyplot = drawing()
    if pyplot is None:
        return
    width = 0.8 / len(series)
    figure, axes = pyplot.subplots(figsize=(max(5.0, 1.6 * len(groups) + 2.0), 4.0))
    for i, (label, bars) in enumerate(series.items()):
        at = [g + (i - (len(series) - 1) / 2) * width for g, bar in enumerate(bars) if bar]
        drawn = axes.bar(at, [bar[0] for bar in bars if bar], width, label=label)
        texts = [bar[1] for bar in bars if bar]
        axes.bar_label(drawn, texts, padding=2, fontsize=7, rotation=90)
    axes.set_xticks(range(len(groups)), groups, rotation=20, ha="right", fontsize=8)
    axes.set_ylabel(axis)
    axes.set_title(title)
    axes.axhline(1.0, color="grey", linewidth=0.8, zorder=0)
    axes.margins(y=0.25)
    # Beside the bars: inside, it would hide a label.
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    save_chart(pyplot, figure, name)


def line_chart(name, title, axes_names, series):
    """Draws NAME.svg and NAME.png: a stepped line of (x, y) points for each series."""
    pyplot = drawing()
    if pyplot is None:
        return
    figure, axes = pyplot.subplots(figsize=(8.0, 4.5))
    for i, (label, points) in enumerate(series.items()):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        # There are ten colours.
        style = ("-", "--", ":")[i // 10 % 3]
        axes.step(xs, ys, where="post", label=label, marker=".", linestyle=style)
    axes.set_xscale("log")
    ticks = sorted({x for points in series.values() for x, _ in points})
    axes.set_xticks(ticks, [f"{x:g}" for x in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(axes_names[0])
    axes.set_ylabel(axes_names[1])
    axes.set_title(title)
    axes.grid(True, which="both", linewidth=0.3)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    save_chart(pyplot, figure, name)


def drawing():
    """matplotlib's pyplot, or None (said once a chart) where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        say("no chart: matplotlib is not installed")
        return None
    matplotlib.use("agg")
    # Text as text and names that do not change: small files, and small differences of them.
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "tunesmith"}
    from matplotlib import pyplot

    return pyplot


def save_chart(pyplot, figure, name):
    figure.tight_layout()
    figure.savefig(program.OUT / f"{name}.svg", metadata={"Date": None})
    figure.savefig(program.OUT / f"{name}.png", dpi=130)
    pyplot.close(figure)
    say(f"written: {program.OUT / name}.svg, .png")


def say(text):
    """A line for who waits: standard error, so that standard output is the report."""
    print(text, file=sys.stderr, flush=True)
