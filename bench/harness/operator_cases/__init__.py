"""The cases of `bench/every_operator.py`: single operators at sizes that models have, a file a family."""

from . import elementwise, indexing, movement, products, quantised, reductions, sampling, windows

FAMILIES = {
    "elementwise": elementwise.CASES,
    "reductions": reductions.CASES,
    "windows": windows.CASES,
    "products": products.CASES,
    "movement": movement.CASES,
    "indexing": indexing.CASES,
    "sampling": sampling.CASES,
    "quantised": quantised.CASES,
}

CASES = [case for cases in FAMILIES.values() for case in cases]
