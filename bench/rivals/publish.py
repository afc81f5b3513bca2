"""Charts and pages of layers for the repository, from the reports of earlier runs.

Takes what `suite`, `budgets` and `tunesmith study` left under target/bench, and
writes what is small enough to keep to bench/figures, with an index that names
machine and commit. Measures nothing.
"""

import json
import shutil
from pathlib import Path

import budgets
import layers
import summary
from harness import program, report
from harness.program import Failure
from harness.report import say
from tables import accuracy_text, left_out_text

FOLDER = program.ROOT / "bench" / "figures"

# Models whose layers are published: one of each kind.
MODELS = ("resnet18", "resnet50", "mobilenet-v2", "bert-base")

# Of a study, by the beginnings of their names.
STUDY_PLOTS = ("time-overlap", "sweep", "dp", "delta", "failures")

# Of a file, in bytes: larger ones are not worth their place in a repository.
LARGEST = 256 * 1024


def run(args):
    """Publishes everything that there is a report of."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    sections = [
        suite_section(args.name, args.models.split(",")),
        budgets_section(),
        study_section(Path(args.study or program.OUT / "study")),
    ]
    sections = [section for section in sections if section]
    if not sections:
        raise Failure(f"there is no report in {program.OUT}: run the suite first")
    lines = [
        "# Charts and layers\n",
        "Each section describes the commit of its run; later changes are not in it.\n",
        "Written by `bench/rivals/run publish` from reports of earlier runs; the tables are in "
        "[FIGURES.md](../FIGURES.md),\n[whole-models.md](whole-models.md), "
        "[kernels.md](kernels.md) and [side-by-side.md](side-by-side.md).\n",
    ]
    (FOLDER / "README.md").write_text("\n".join(lines + sections))
    say(f"written: {FOLDER / 'README.md'}")
    return 0


def read(name):
    """The report of an earlier run; None if there is none."""
    path = program.OUT / f"{name}.json"
    if not path.is_file():
        say(f"without {name}: there is no {path}")
        return None
    return json.loads(path.read_text())


def suite_section(name, models):
    data = read(name)
    if not data or not data["results"]:
        return None
    results = data["results"]
    counts = list(dict.fromkeys(r["threads"] for r in results))
    summary.draw(name, results, counts)
    place = fresh("layers")
    conditions = report.conditions_text(data["conditions"])
    lines = [
        "## Whole models against other runtimes\n",
        f"{conditions}{accuracy_text(results).capitalize()}.\n",
    ]
    for threads in counts:
        chart = f"whole-models-{threads}t.svg"
        if keep(program.OUT / f"{name}-{threads}t.svg", chart):
            lines.append(f"![{threads} threads]({chart})\n")
    lines.append(left_out_text(results))
    lines.append("Layers, their schedules, and the limits that bind them:\n")
    for r in results:
        if r["model"] in models and r["explained"]:
            page = layers.page_name(r)
            (place / page).write_text(layers.text(r["model"], r["explained"]))
            lines.append(f"- [{summary.title(r, results)}](layers/{page})")
    missing = sorted(set(models) - {r["model"] for r in results})
    if missing:
        say(f"without layers of {', '.join(missing)}: not in {name}.json")
    return "\n".join(lines) + "\n"


def budgets_section():
    data = read("budgets")
    if not data or not data["results"]:
        return None
    budgets.draw(data["results"])
    if not keep(program.OUT / "budgets.svg", "budgets.svg"):
        return None
    conditions = report.conditions_text(data["conditions"])
    accuracies = sorted({r["accuracy"] for r in data["results"]})
    conditions += f"Accuracy {' and '.join(accuracies)}.\n"
    return f"## Latency by tuning time\n\n{conditions}\n![by tuning time](budgets.svg)\n"


def study_section(folder):
    page = folder / "study.md"
    plots = [p for kind in STUDY_PLOTS for p in sorted(folder.glob(f"{kind}*.svg"))]
    if not page.is_file() or not plots:
        say(f"without a study: there is none in {folder}")
        return None
    # After the title: machine, candidates, repetitions, threads.
    conditions = next(line for line in page.read_text().splitlines()[1:] if line)
    lines = ["## Candidates measured side by side\n", conditions + "\n"]
    fresh("study")
    if keep(page, "study/study.md"):
        lines.append("[All tables](study/study.md), with what times are made of.\n")
    for plot in plots:
        if keep(plot, f"study/{plot.name}"):
            lines.append(f"![{plot.stem}](study/{plot.name})\n")
    return "\n".join(lines)


def fresh(name):
    """An empty folder of published files."""
    place = FOLDER / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def keep(path, name):
    """Copies a chart if it was drawn and is small; whether it did."""
    why = None
    if not path.is_file():
        why = "it was not drawn"
    elif path.stat().st_size > LARGEST:
        why = f"its {path.stat().st_size // 1024} KiB are too many"
    if why:
        say(f"without {name}: {why}")
        return False
    shutil.copyfile(path, FOLDER / name)
    return True
