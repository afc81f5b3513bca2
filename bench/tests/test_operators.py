"""Tests of the operator benchmark's table, limits and texts; nothing is measured."""

import re
import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "rivals")]

import onnx
import operators
from harness import names
from harness.program import Failure

# What an extent is not: windows, what they step and reach over, groups and orders of axes.
NO_EXTENTS = {
    "n", "q", "r", "s", "stride", "pad", "dilation", "output_pad", "groups", "perm", "spec",
}  # fmt: skip

CEILING = {
    "peak_gflops": 100.0,
    "levels": [
        {"name": "L1", "bytes": 1000, "gb_per_s": 10.0},
        {"name": "memory", "bytes": None, "gb_per_s": 1.0},
    ],
}


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def model(op, shapes, output, **attributes):
    """An ONNX model of one node with the inputs x0, x1, ... and the output y."""
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    inputs = [h.make_tensor_value_info(f"x{i}", kind, s) for i, s in enumerate(shapes)]
    outputs = [h.make_tensor_value_info("y", kind, output)]
    node = h.make_node(op, [i.name for i in inputs], ["y"], **attributes)
    return h.make_model(h.make_graph([node], "one", inputs, outputs))


class Table(unittest.TestCase):
    def test_every_operator_has_three_sizes_and_a_prime_one(self):
        sizes = {}
        for name, spec in operators.table():
            operator, size = name.split("/")
            sizes.setdefault(operator, {})[size] = spec
        for operator, rows in sizes.items():
            self.assertGreaterEqual(len(rows), 4, operator)
            arguments = dict(re.findall(r"(\w+)=([^,()]+)", rows["prime"]))
            given = {k: v for k, v in arguments.items() if k not in NO_EXTENTS}
            extents = {k: int(v) for k, v in given.items() if v.isdigit()}
            self.assertTrue(any(is_prime(n) for n in extents.values()), operator)
            groups = int(arguments.get("groups", 1))
            for key, n in extents.items():
                # Channels of groups are prime groups of so many.
                whole = n // groups if key in ("c", "k") else n
                self.assertTrue(is_prime(whole) or whole in (1, 2, 3, 4), f"{operator} {key}={n}")

    def test_rows_are_found_by_operator_and_by_pattern(self):
        rows = [("conv1d-3/a", "1"), ("conv1d-3/prime", "2"), ("softmax/prime", "3")]
        specs = lambda *patterns: [s for _, s in names.chosen(rows, list(patterns), "operators.toml")]
        self.assertEqual(specs(), ["1", "2", "3"])
        self.assertEqual(specs("conv*"), ["1", "2"])
        self.assertEqual(specs("*/prime"), ["2", "3"])
        self.assertEqual(specs("softmax/prime", "conv1d-3/a"), ["1", "3"])
        with self.assertRaisesRegex(Failure, "no row of operators.toml is called conv2d"):
            specs("softmax", "conv2d")


class Work(unittest.TestCase):
    def test_a_product_counts_two_operations_a_term(self):
        for given, expected in [
            (model("MatMul", [[2, 3, 4], [2, 4, 5]], [2, 3, 5]), 2 * 2 * 3 * 4 * 5),
            (model("Conv", [[1, 4, 9, 9], [6, 2, 3, 3]], [1, 6, 7, 7], group=2), 2 * 6 * 49 * 18),
            (model("ConvTranspose", [[1, 4, 5, 5], [4, 3, 2, 2]], [1, 3, 6, 6]), 2 * 100 * 12),
            (
                model("Einsum", [[2, 3, 4, 5], [4, 3, 6]], [2, 6, 5], equation="abcd,cbe->aed"),
                2 * 2 * 3 * 4 * 5 * 6,
            ),
            (model("Softmax", [[7, 9]], [7, 9]), 0),
        ]:
            self.assertEqual(round(operators.work_of(given)["gflop"] * 1e9), expected)

    def test_bytes_are_those_of_inputs_constants_and_outputs(self):
        given = model("MatMul", [[2, 3], [3, 4]], [2, 4])
        weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [5], [0.0] * 5)
        given.graph.initializer.append(weight)
        self.assertEqual(operators.work_of(given)["bytes"], 4 * (6 + 12 + 8 + 5))


class Limit(unittest.TestCase):
    def test_the_slower_of_peak_and_bandwidth_binds(self):
        limit = operators.limit_of({"gflop": 1.0, "bytes": 900}, CEILING)
        self.assertEqual((limit["bound"], limit["ms"]), ("FMA", 10.0))
        limit = operators.limit_of({"gflop": 0.0, "bytes": 1000}, CEILING)
        self.assertEqual(limit["bound"], "L1")
        self.assertAlmostEqual(limit["ms"], 1e-4)
        limit = operators.limit_of({"gflop": 0.0, "bytes": 2e6}, CEILING)
        self.assertEqual(limit["bound"], "memory")
        self.assertAlmostEqual(limit["ms"], 2.0)


class Text(unittest.TestCase):
    def test_the_table_has_parts_of_the_limit_and_gains(self):
        latency = lambda ms: {"median_ms": ms, "min_ms": ms, "spread": 0.0}
        result = {
            "name": "matmul/prime", "model": "matmul_prime", "threads": 1,
            "work": {"gflop": 0.5, "bytes": 8}, "limit": {"bound": "FMA", "ms": 5.0},
            "latencies": {"tunesmith untuned": latency(10.0), "onnxruntime": latency(20.0)},
            "of_limit": {"tunesmith untuned": 0.5, "onnxruntime": 0.25},
            "gain": {"untuned": 2.0}, "accuracy": "strict", "measured": 1, "disturbed": [],
            "left_out": {}, "distances": {}, "versions": {},
        }  # fmt: skip
        page = operators.text([result])
        row = next(line for line in page.splitlines() if line.startswith("| matmul"))
        cells = [c.strip() for c in row.strip("|").split("|")]
        self.assertEqual(
            cells,
            ["matmul/prime", "1", "0.500", "5.0000 FMA", "10.0000 (50%)", "20.0000 (25%)", "2.00"],
        )
        self.assertIn("untuned 2.00", page)
        self.assertEqual(operators.text([]), "Nothing was measured.\n")


if __name__ == "__main__":
    unittest.main()
