#!/usr/bin/env python3
"""What twice the time gains, for what the second half of a search gained.

Reads reports that `tune --json` wrote. The search of each is looked at as if it had ended after a part of
its time: the second half of that part is set against what the same time again gained.
"""

import argparse
import json
import statistics
from pathlib import Path

PARTS = (0.3, 0.4, 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, metavar="REPORT.json")
    args = parser.parse_args()
    pairs = [pair for path in args.reports for pair in of_report(json.loads(path.read_text()))]
    pairs.sort()
    print("| second half | searches | twice the time, median | range | ratio of sums |")
    print("|---|---|---|---|---|")
    for low, high in ((0, 0.005), (0.005, 0.01), (0.01, 0.02), (0.02, 0.04), (0.04, 1)):
        row(pairs, low, high)
    row(pairs, 0, 1)


def of_report(report):
    """Gain of the second half, and of the same time again, for each part of the search."""
    curve = [(moment["s"], moment["ms"]) for moment in report["curve"]]
    if len(curve) < 3:
        return
    first, last = curve[0][0], curve[-1][0]

    def at(part):
        until = first + part * (last - first)
        return [ms for s, ms in curve if s <= until][-1]

    for part in PARTS:
        yield at(part / 2) / at(part) - 1, at(part) / at(2 * part) - 1


def row(pairs, low, high):
    chosen = [pair for pair in pairs if low <= pair[0] < high]
    if not chosen:
        return
    again = [pair[1] for pair in chosen]
    half = sum(pair[0] for pair in chosen)
    ratio = f"{sum(again) / half:.2f}" if half else "-"
    spread = f"{min(again):.1%} to {max(again):.1%}"
    print(f"| {low:.1%} to {high:.1%} | {len(chosen)} | {statistics.median(again):.1%} | {spread} | {ratio} |")


if __name__ == "__main__":
    main()
