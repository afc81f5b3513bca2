"""Interleaved slices: contenders take turns, so that what disturbs one disturbs all alike.

A contender is a name and a function that runs it for some seconds and returns
`median_ms`, `min_ms`, `p90_ms` and `runs`. Ratios come from one run, never from
two.
"""

import statistics


def interleaved(contenders, rounds, seconds, progress=None):
    """Runs all contenders `rounds` times for `seconds` each.

    Returns the slices of each name in the order of the rounds. The order within
    a round turns from round to round: nobody always follows the same neighbour.
    """
    names = list(contenders)
    slices = {name: [] for name in names}
    for round_index in range(rounds):
        for name in turned(names, round_index):
            slices[name].append(contenders[name](seconds))
        if progress:
            progress(round_index + 1, rounds)
    return slices


def turned(names, round_index):
    """The names in another order each round: rotated, and every other round reversed."""
    start = round_index % len(names)
    order = names[start:] + names[:start]
    return order[::-1] if round_index % 2 else order


def summary(slices):
    """Median, minimum and spread of one contender's slices.

    `spread` is the range from the fastest to the slowest slice median, in parts
    of the median: what the machine's noise did to this contender.
    """
    medians = [s["median_ms"] for s in slices]
    median = statistics.median(medians)
    return {
        "median_ms": median,
        "min_ms": min(s["min_ms"] for s in slices),
        "spread": (max(medians) - min(medians)) / median,
        "runs": sum(s["runs"] for s in slices),
        "slices": slices,
    }


def ratios(ours, theirs):
    """Latency of `ours` over that of `theirs`: below 1, ours is faster.

    `median` of the medians, `min` of the minima, and `paired`: the median over
    the rounds of the ratio within a round, which drift of the machine leaves alone.
    """
    paired = [a["median_ms"] / b["median_ms"] for a, b in zip(ours["slices"], theirs["slices"])]
    return {
        "median": ours["median_ms"] / theirs["median_ms"],
        "min": ours["min_ms"] / theirs["min_ms"],
        "paired": statistics.median(paired),
    }


def geometric_mean(values):
    """Of positive numbers; None of none."""
    values = list(values)
    return statistics.geometric_mean(values) if values else None
