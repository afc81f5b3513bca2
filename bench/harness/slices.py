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


# What a quiet row stays below: the range of one contender's medians, in parts of the median; how
# far its median is above its minimum; the part of the CPUs' time that the host of a virtual
# machine took; and how much a cache line's way between CPUs changes.
SPREAD, ABOVE, STOLEN, APART = 0.15, 0.25, 0.02, 2.0


def disturbance(taken, stolen):
    """What disturbed a row, in words; nothing if it was quiet.

    `taken` has the slices of each contender, `stolen` the part of the CPUs' time that was taken
    away meanwhile, or None.
    """
    reasons = []
    if stolen is not None and stolen > STOLEN:
        reasons.append(f"{100 * stolen:.0f}% of the CPUs' time was taken away")
    ns = [s["exchange_ns"] for of in taken.values() for s in of if s.get("exchange_ns")]
    if ns and max(ns) > APART * min(ns):
        reasons.append(f"CPUs moved apart ({min(ns):.0f} to {max(ns):.0f} ns)")
    name, spread = most(taken, lambda s: s["spread"])
    if spread > SPREAD:
        reasons.append(f"slices of {name} spread by {100 * spread:.0f}%")
    name, above = most(taken, above_minimum)
    if above > ABOVE:
        reasons.append(f"{name} mostly took {100 * above:.0f}% more than at its best")
    return reasons


def above_minimum(s):
    """How far a contender's median is above its minimum, in parts of that."""
    return s["median_ms"] / s["min_ms"] - 1


def most(taken, of):
    """The contender whose summary has the most of something, and how much."""
    figures = {name: of(summary(own)) for name, own in taken.items()}
    return max(figures.items(), key=lambda f: f[1])


def quietest(measure, again):
    """Measures a row, and up to `again` times more while it is disturbed.

    `measure` returns the slices of each contender and the part of time stolen. Returns the slices
    least disturbed, what disturbed them, and how often was measured.
    """
    tries = []
    while True:
        taken, stolen = measure()
        reasons = disturbance(taken, stolen)
        noise = most(taken, lambda s: s["spread"] + above_minimum(s))[1]
        tries.append((len(reasons), noise, taken, reasons))
        if not reasons or len(tries) > again:
            break
    _, _, taken, reasons = min(tries, key=lambda t: t[:2])
    return taken, reasons, len(tries)


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
