"""Operators that read, write or choose elements by data."""

import numpy as np

from .case import Array, Operand, case, fixed, flags, integers, microsoft, normal, uniform

GATHERS = [
    case("Gather/bert-words", normal(30522, 768), integers(30522, 1, 128)),
    case("Gather/f16-bert-words", normal(30522, 768, dtype="float16"), integers(30522, 1, 128)),
    case("Gather/axis-1", normal(256, 1000, 16), integers(1000, 300), axis=1),
    case("Gather/last-axis", normal(1000, 512), integers(512, 128), axis=1),
    case("Gather/i64", integers(9, 1000, 64), integers(1000, 5000)),
    case("GatherElements/axis-0", normal(1000, 512), integers(1000, 1000, 512), axis=0),
    case("GatherElements/axis-1", normal(1000, 512), integers(512, 1000, 512), axis=1),
    case("GatherND/rows", normal(100, 100, 64), integers(100, 5000, 2)),
    case("GatherND/elements", normal(100, 100, 64), integers(64, 5000, 3)),
    case("GatherND/batches", normal(16, 1000, 64), integers(1000, 16, 200, 1), batch_dims=1),
    case("OneHot/1000", integers(1000, 512), fixed(1000), fixed([0, 1], "float32")),
    case("ReverseSequence/time", normal(100, 32, 128), integers(100, 32, start=1), time_axis=0, batch_axis=1),
]


def orders(count: int, width: int, axis: int) -> Operand:
    """Indices along an axis of which no two are equal: where two are, the specification has no result."""

    return Operand(lambda rng: rng.permuted(np.indices((count, width))[axis], axis=axis))


def some_rows(count: int, of: int) -> Operand:
    """Indices of different rows."""
    return Operand(lambda rng: rng.permutation(of)[:count, None].astype(np.int64))


SCATTERS = [
    case("ScatterND/rows", normal(10000, 64), some_rows(5000, 10000), normal(5000, 64)),
    case("ScatterND/add", normal(1000, 64), integers(1000, 5000, 1), normal(5000, 64), reduction="add"),
    case("ScatterElements/axis-0", normal(1000, 512), orders(1000, 512, 0), normal(1000, 512), axis=0),
    case("ScatterElements/axis-1", normal(1000, 512), orders(1000, 512, 1), normal(1000, 512), axis=1),
    case(
        "ScatterElements/max", normal(1000, 64), integers(1000, 5000, 64), normal(5000, 64), axis=0, reduction="max"
    ),
]


def boxes(count: int, low: float, size: float) -> Operand:
    """One image's boxes as two opposite corners: y and x from 0 to `low`, and of `low` to `low` + `size`."""

    def draw(rng: np.random.Generator) -> Array:
        near, far = rng.uniform(0, low, (1, count, 2)), rng.uniform(low, low + size, (1, count, 2))
        return np.concatenate([near, far], axis=-1).astype(np.float32)

    return Operand(draw)


CHOICES = [
    case("NonZero/plane", flags(512, 512)),
    case("Compress/rows", normal(100000, 8), flags(100000), axis=0),
    case("Unique/i64", integers(1000, 20000), sorted=1),
    case(
        "NonMaxSuppression/2000-boxes", boxes(2000, 500, 60), uniform(0, 1, 1, 1, 2000), fixed([100]),
        fixed([0.5], "float32"), fixed([0.1], "float32"),
    ),
    microsoft("Unique/f32", normal(10000), outputs=3),
]  # fmt: skip

CASES = [*GATHERS, *SCATTERS, *CHOICES]
