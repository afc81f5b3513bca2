"""The study of predictors on the paper's five convolutions, beside the paper's own figures.

Knows what `tunesmith study simulate` prints and what a line of samples has. Gives the text of a page; collects nothing.
"""

import json
import statistics
import time

from . import program, report
from .report import say

METRICS = ["e_top1", "r_top1", "q_low", "q_high"]
# Samples of a static window: as many as `tune` takes.
WINDOW = 64
# The group that is left out of learning, counted from 0 as in the paper.
LEFT_OUT = 3
# Simulators side by side that are as fast as a board with pauses of 1 s, of the groups of table II.
PAPER_K = "7 to 97"
# Measured times in predicted order.
PLOT = program.OUT / "predictors.svg"
PAPER_METHODS = ["linear", "network", "gaussian-process", "trees"]
# Instruction-accurate simulators, tables III to V: a row for each group. Of each of PAPER_METHODS it has E_top1, Q_low,
# Q_high and R_top1.
PAPER = {
    "x86": """
        10.7 3.0 3.0 8.5  1.4 2.7 2.2 3.0  12.5 3.0 2.7 3.0  7.0 2.7 2.4 2.0
        11.2 3.6 3.5 3.0  3.2 2.8 2.8 2.0  8.9 2.6 2.8 3.5  1.5 2.7 2.4 2.5
        15.0 3.2 3.2 3.0  7.6 2.7 2.3 2.0  0.0 2.6 2.3 1.0  2.2 2.4 2.2 2.0
        8.8 3.2 3.0 2.0  0.7 2.4 2.4 1.5  0.7 2.7 2.7 1.5  0.0 2.8 2.4 1.0
        0.0 3.4 3.3 1.0  2.8 3.1 2.2 3.0  5.4 2.5 2.6 2.0  2.0 2.8 2.4 2.0""",
    "ARM": """
        9.9 3.4 2.9 3.5  0.2 2.8 2.3 1.5  0.0 2.6 2.0 1.0  2.7 3.0 2.2 1.5
        6.4 3.6 3.2 3.0  4.6 3.2 2.6 2.0  4.6 3.4 2.4 2.0  4.3 3.2 2.6 2.5
        7.7 3.6 2.3 5.0  0.7 3.3 2.4 1.5  4.3 3.2 2.3 2.5  0.3 3.4 2.2 1.5
        7.7 2.8 2.6 2.5  1.1 2.8 2.3 1.5  0.0 2.8 2.0 1.0  4.0 3.2 2.2 2.0
        2.2 3.5 2.5 4.0  0.2 3.1 2.6 1.5  0.0 2.6 2.2 1.0  1.0 3.0 2.3 2.0""",
    "RISC-V": """
        10.9 4.0 3.9 4.0  2.2 4.0 4.0 2.0  0.0 3.8 4.2 1.0  0.0 3.4 4.1 1.0
        0.0 4.0 4.3 1.0  0.6 3.7 4.5 1.5  2.5 3.4 4.4 2.0  4.6 3.5 4.5 2.5
        0.0 3.4 3.7 1.0  0.0 3.2 3.8 1.0  0.0 2.8 3.4 1.0  0.0 3.0 3.8 1.0
        0.0 3.6 3.8 1.0  0.0 3.2 3.9 1.0  2.0 2.8 3.7 1.5  4.4 3.0 3.6 2.0
        11.0 4.0 4.2 3.0  3.6 3.6 4.2 1.5  10.7 3.2 4.0 2.0  8.2 3.8 4.0 3.0""",
}
ORDER = "Cells are E_top1 / R_top1 / Q_low / Q_high in percent."


def paper(cpu, group, method):
    """The paper's metrics of a group; None of a method that it does not have."""
    if method not in PAPER_METHODS:
        return None
    values = [float(v) for v in PAPER[cpu].strip().splitlines()[group].split()]
    e, low, high, r = values[4 * PAPER_METHODS.index(method) :][:4]
    return {"e_top1": e, "r_top1": r, "q_low": low, "q_high": high}


def studied(name, files, *flags):
    """The JSON of a study. An earlier one that is newer than its samples and the program is taken."""
    path = files[0].parent / f"study-{name}.json"
    newest = max(p.stat().st_mtime for p in [*files, program.program()])
    if path.exists() and path.stat().st_mtime > newest:
        say(f"{name}: studied before")
        return json.loads(path.read_text())
    begun = time.monotonic()
    result = program.call_json("study", "simulate", *files, "--window", WINDOW, *flags)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result) + "\n")
    part.rename(path)
    say(f"{name}: studied in {time.monotonic() - begun:.0f} s")
    return result


def studies(files, groups):
    """All studies of the same samples, by their names."""
    left_out = ["--leave-out", groups[LEFT_OUT]]
    static = ["--features", "reading"]
    return {
        "counts": studied("counts", files, "--plot", PLOT),
        "static": studied("static", files, *static),
        "counts left out": studied("counts-left-out", files, *left_out),
        "static left out": studied("static-left-out", files, *static, *left_out),
    }


# Orders for which nothing is learned: by the static score, and by the times of the last of several rounds.
UNLEARNED = ("static score", "timed again")


def metrics_of(study, method, group=None, included=True, means="group"):
    """The metrics of one case, or their means over groups; None where there are none."""
    cases = [
        f["median"]
        for f in study["figures"]
        if f["method"] == method
        and group in (None, f["group"])
        and f["means"] == means
        and (f["included"] == included or method in UNLEARNED)
    ]
    return mean_of(cases)


def mean_of(cases):
    if not cases:
        return None
    return {name: statistics.fmean(c[name] for c in cases) for name in METRICS}


def cell(metrics):
    if metrics is None:
        return "-"
    return " / ".join(f"{metrics[name]:.1f}" for name in METRICS)


def methods(study):
    """Their names in the order of the study, the static score alone first."""
    return list(dict.fromkeys(f["method"] for f in study["figures"]))


def samples_of(file):
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def groups_table(files, study, seconds, cpus):
    """Schedules of each group: their times, how fast they were simulated, and K."""
    rows = []
    for number, file in enumerate(files):
        group = samples_of(file)[0]["group"]
        by_group = [s for s in study["simulators"] if s["group"] == group]
        times = sorted(s["time_ns"] / 1e6 for s in samples_of(file) if s.get("time_ns"))
        for s in by_group:
            rows.append([
                number, f"`{group}`", s["samples"],
                *(f"{t:.2f}" for t in (times[0], statistics.median(times), times[-1])),
                f"{s['simulation_s']:.3f}", f"{cpus / s['simulation_s']:.1f}",
                f"{len(times) / seconds[file]:.1f}" if file in seconds else "-", s["simulators"],
            ])  # fmt: skip
    header = [
        "", "group", "schedules", "best ms", "median ms", "worst ms", "simulation s",
        f"simulated a second, {cpus} CPUs", "simulated and timed a second", f"K (paper: {PAPER_K})",
    ]  # fmt: skip
    return report.markdown_table(header, rows)


def group_tables(all_studies, groups):
    """A table for each group beside the paper's, and one of means over groups."""
    text = ""
    for number, group in enumerate(groups):
        rows = [
            [m, *own_cells(all_studies, m, group), *(cell(paper(c, number, m)) for c in PAPER)]
            for m in methods(all_studies["counts"])
        ]
        text += f"\n### Group {number}: `{group}`\n\n{beside_paper(rows)}"
    rows = []
    for m in methods(all_studies["counts"]):
        means = [mean_of([p for g in range(len(groups)) if (p := paper(c, g, m))]) for c in PAPER]
        rows.append([m, *own_cells(all_studies, m), *map(cell, means)])
    return f"{text}\n### Means over groups\n\n{beside_paper(rows)}"


def own_cells(all_studies, method, group=None):
    return [cell(metrics_of(all_studies[name], method, group)) for name in ("counts", "static")]


def beside_paper(rows):
    header = ["predictor", "counts", "counts and reading", *(f"paper, {cpu}" for cpu in PAPER)]
    return report.markdown_table(header, rows)


def left_out_table(all_studies):
    """The group that is left out of learning, on the same tests."""
    rows = []
    for m in methods(all_studies["counts left out"]):
        cases = [
            metrics_of(all_studies[f"{name} left out"], m, included=included)
            for name in ("counts", "static")
            for included in (True, False)
        ]
        rows.append([m, *map(cell, cases)])
    features = ("counts", "counts and reading")
    header = ["predictor", *(f"{f}, {how}" for f in features for how in ("learned", "left out"))]
    return report.markdown_table(header, rows)


def windows_table(all_studies):
    """Means of all of a group against those of windows; groups known, and the one that was left out."""
    rows = []
    for m in methods(all_studies["counts"]):
        if m in UNLEARNED:
            continue
        for name, included in (("counts", True), ("counts left out", False)):
            means = ("group", "static_window", "dynamic_window")
            study = all_studies[name]
            cells = [cell(metrics_of(study, m, included=included, means=w)) for w in means]
            rows.append([m, "all" if included else f"{LEFT_OUT}, left out", *cells])
    header = ["predictor", "groups", "means of the group", f"first {WINDOW} samples", "all samples so far"]
    return report.markdown_table(header, rows)


def joined(own, counted, folder):
    """Two files of the samples that both files have: counts of each, and the times of the second."""
    key = lambda s: (s["group"], s["sketch"], s["trace"])
    of_counted = {key(s): s for s in samples_of(counted) if s.get("time_ns")}
    pairs = [(s, of_counted[key(s)]) for s in samples_of(own) if key(s) in of_counted]
    folder.mkdir(exist_ok=True)
    files = [folder / f"own-{own.name}", folder / f"qemu-{own.name}"]
    lines = [
        [s | {"time_ns": q["time_ns"]} for s, q in pairs],
        [s | {name: q[name] for name in ("statistics", "time_ns", "simulation_ns")} for s, q in pairs],
    ]
    for file, samples in zip(files, lines):
        text = "".join(json.dumps(s) + "\n" for s in samples)
        # An unchanged file keeps its time, so that its study counts.
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    return files


def misses(level):
    return level["read"]["misses"] + level["write"]["misses"]


COUNTS = {
    "instructions": lambda s: s["instructions"],
    "loads": lambda s: s["loads"],
    "stores": lambda s: s["stores"],
    "branches": lambda s: s["branches"],
    "misses of the first level": lambda s: misses(s["l1d"]),
    "misses of the last level": lambda s: misses(s["shared"][-1]),
}


def qemu_text(pairs):
    """Our counts against QEMU's on the same schedules, and predictors on each; `pairs` has the files of a group."""
    own, counted = [list(files) for files in zip(*pairs)]
    studies_of = [studied("own", own), studied("qemu", counted)]
    both = [
        (a["statistics"], b["statistics"])
        for files in pairs
        for a, b in zip(*map(samples_of, files), strict=True)
    ]
    rows = []
    for name, of in COUNTS.items():
        off = sorted(abs(of(a) / of(b) - 1) * 100 for a, b in both if of(b))
        at = lambda share: f"{off[int(share * (len(off) - 1))]:.3f}%"
        rows.append([name, len(off), at(0.5), at(0.9), at(1.0)])
    header = ["count", "schedules", "off in the median", "for nine of ten", "at most"]
    text = report.markdown_table(header, rows)
    rows = [[m, *(cell(metrics_of(s, m)) for s in studies_of)] for m in methods(studies_of[0])]
    text += f"\nMeans over groups of predictors that learn from each. {ORDER}\n\n"
    text += report.markdown_table(["predictor", "our counts", "QEMU's counts"], rows)
    rows = []
    for a, b in zip(*(s["simulators"] for s in studies_of), strict=True):
        seconds = [f"{s['simulation_s']:.3f}" for s in (a, b)]
        rows.append([f"`{a['group']}`", a["samples"], *seconds, a["simulators"], b["simulators"]])
    header = ["group", "schedules", "ours s", "QEMU s", "K, ours", "K, QEMU"]
    return f"{text}\n{report.markdown_table(header, rows)}"


def cooldown_text(here, without, paused):
    """How far pauses move the medians of the same schedules."""
    key = lambda s: (s["sketch"], s["trace"])
    times = [
        {key(s): s["time_ns"] for s in samples_of(file) if s.get("time_ns")}
        for file in (here, without, paused)
    ]
    common = [k for k in times[0] if all(k in t for t in times)]
    rows = []
    for name, a in (("as all others", 0), ("executables without pauses", 1)):
        off = sorted((times[a][k] / times[2][k] - 1) * 100 for k in common)
        at = lambda share: f"{off[int(share * (len(off) - 1))]:+.1f}%"
        rows.append([name, len(off), at(0.1), at(0.5), at(0.9)])
    header = ["timed", "schedules", "a tenth below", "median", "a tenth above"]
    return f"""
## Pauses

Medians of group 1 against those of executables with pauses of 1 s.

{report.markdown_table(header, rows)}"""


def page(files, seconds, cpus, pairs):
    """The whole page. `pairs` are those of [`joined`], None without QEMU."""
    groups = [samples_of(file)[0]["group"] for file in files]
    all_studies = studies(files, groups)
    text = f"""## Schedules

Half of the schedules are random, and half are an evolutionary search's on the static score. K is by the paper's formula, with pauses
of 1 s and 15 runs. Simulation includes the build's reading of the code.

{groups_table(files, all_studies["counts"], seconds, cpus)}
## Predictors

{ORDER} Medians over 10 random splits; a fifth of each group is the test. The paper's tests have 100 schedules.
{PLOT.name} beside this page has the measured times in predicted order.
{group_tables(all_studies, groups)}
## Group {LEFT_OUT} left out of learning

{ORDER} All predictors are judged on the same tests.

{left_out_table(all_studies)}
## Means of windows

{ORDER} The paper saw no loss.

{windows_table(all_studies)}
## QEMU's counts

"""
    return text + (qemu_text(pairs) if pairs else "None: --qemu-points was 0, or the plugin was not there.\n")
