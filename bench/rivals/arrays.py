"""Named arrays in one file. Tensors may have any name, which `numpy.savez` alone forbids."""

import numpy


def save(path, arrays):
    """Writes arrays by name to an .npz file."""
    numpy.savez(path, numpy.array(list(arrays), dtype=str), *arrays.values())


def load(path):
    """The arrays that `save` wrote, by name and in order."""
    with numpy.load(path) as file:
        return {str(n): file[f"arr_{i + 1}"] for i, n in enumerate(file["arr_0"])}
