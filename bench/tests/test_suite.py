"""Tests of the suite's arithmetic and pages; nothing is measured, nothing but Python needed."""

import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "rivals")]

import layers
import rival_process
import summary
from harness import slices


def latency(*medians):
    taken = [{"median_ms": m, "min_ms": m / 2, "p90_ms": m, "runs": 5} for m in medians]
    return slices.summary(taken)


def explained(threads=1):
    times = {"median_ms": 4.0, "min_ms": 3.0}
    layer = {
        "index": 0, "name": "conv1", "operator": "conv2d 3>64", "algorithm": "winograd4.fused",
        "time": times, "share": 1.0, "gflops_per_s": 400.0, "of_peak": 4.0, "gb_per_s": 1.0,
        "of_bandwidth": 0.1, "mbytes": 4.0, "intensity": 20.0, "limit": "memory", "level": "L3",
        "of_roofline": 0.5, "efficiency": 0.9 if threads > 1 else None, "counted_as_direct": True,
    }  # fmt: skip
    scaling = {
        "one_thread": times, "speedup": 1.8, "efficiency": 0.9, "roofline_speedup": 2.0,
    }  # fmt: skip
    levels = [{"name": "L2", "gb_per_s": 100.0}]
    return {
        "threads": threads, "accuracy": "relaxed", "latency": times, "roofline_ms": 2.0,
        "of_roofline": 0.5, "gflop": 1.6, "gflops_per_s": 400.0, "footprint_mbytes": 5.0,
        "ceiling": {"peak_gflops": 100.0, "levels": levels, "fork_join": {"awake_us": 1.0}},
        "scaling": scaling if threads > 1 else None, "layers": [layer],
    }  # fmt: skip


def result(model, threads, ours, rivals, page=True):
    latencies = {"tunesmith": latency(*ours)} | {n: latency(*ms) for n, ms in rivals.items()}
    best = summary.best_rival(latencies)
    return {
        "model": model, "threads": threads, "latencies": latencies, "best_rival": best,
        "gain": summary.gain(latencies, best), "accuracy": "relaxed", "wrong": [],
        "distances": {"tunesmith": {"relative_l2": 1e-6, "against": "onnxruntime"}},
        "left_out": {"tract": "not installed"}, "versions": {"onnxruntime": "1"},
        "explained": explained(threads) if page else None, "explain_error": "no",
        "layers_page": f"layers/{model}.md",
        "tuning": {
            "spent_s": 12.0, "trials": 7, "commit": "c", "reused": threads == 2,
            "report": {"latency_default_ms": 9.0, "latency_after_ms": 4.0},
        },
    }  # fmt: skip


class Gain(unittest.TestCase):
    def test_the_best_rival_has_the_lowest_median(self):
        r = result("m", 1, [4, 4, 4], {"onnxruntime": [9, 8, 7], "openvino": [6, 6, 6]})
        self.assertEqual(r["best_rival"], "openvino")
        self.assertAlmostEqual(r["gain"]["median"], 1.5)
        self.assertAlmostEqual(r["gain"]["paired"], 1.5)

    def test_minima_are_compared_with_the_lowest_of_all_rivals(self):
        r = result("m", 1, [4, 4, 4], {"onnxruntime": [20, 20, 2], "openvino": [6, 6, 6]})
        self.assertEqual(r["best_rival"], "openvino")
        self.assertAlmostEqual(r["gain"]["min"], 0.5)

    def test_geometric_means(self):
        self.assertAlmostEqual(slices.geometric_mean([2.0, 0.5, 8.0]), 2.0)
        self.assertIsNone(slices.geometric_mean([]))

    def test_what_the_roofline_allows(self):
        r = result("m", 1, [4], {"onnxruntime": [6]})
        self.assertAlmostEqual(summary.allowed(r), 3.0)
        self.assertIsNone(summary.allowed(result("m", 1, [4], {"onnxruntime": [6]}, page=False)))


class Page(unittest.TestCase):
    def test_means_for_each_thread_count_and_over_all(self):
        results = [
            result("a", 1, [2], {"onnxruntime": [4]}),
            result("b", 1, [4], {"onnxruntime": [2]}),
            result("a", 2, [1], {"onnxruntime": [8]}),
        ]
        rows = [
            [cell.strip() for cell in line.split("|")[1:-1]]
            for line in summary.means_text(results).splitlines()[2:]
        ]
        self.assertEqual([r[:3] for r in rows], [
            ["1 threads", "2", "1.000"], ["2 threads", "1", "8.000"], ["all", "3", "2.000"],
        ])  # fmt: skip
        self.assertEqual(rows[0][-1], "0.50 b 1T")
        # Rooflines of 2 ms: rivals of 4, 2 and 8 ms allow gains of 2, 1 and 4.
        self.assertEqual(rows[2][4], "2.000")

    def test_everything_is_on_the_page(self):
        results = [
            result("a", 1, [2], {"onnxruntime": [4]}),
            result("a", 2, [2], {"onnxruntime": [4], "openvino": [5]}),
            result("b", 2, [2], {"onnxruntime": [4]}, page=False),
        ]
        text = summary.text("suite", results)
        for part in (
            "openvino ms (min)", "2.00 (2.00, 2.00)", "90%", "tract: not installed", "earlier run",
            "[a, 1 threads](layers/a.md)", "b, 2 threads: no", "suite-1t.svg", "suite-2t.svg",
            "accuracy relaxed",
        ):  # fmt: skip
            self.assertIn(part, text)
        self.assertEqual(summary.text("suite", []), "Nothing was measured.\n")

    def test_a_wrong_output_is_named(self):
        r = result("a", 1, [2], {"onnxruntime": [4]})
        r["wrong"] = ["tunesmith"]
        self.assertIn("FAIL 1.0e-06", summary.text("suite", [r]))

    def test_layers_mark_what_is_counted_as_direct(self):
        page = layers.text("a", explained(2))
        self.assertIn("400.0\\*", page)
        self.assertIn("efficiency", page)
        self.assertIn(" L3 |", page)
        self.assertNotIn("efficiency |", layers.text("a", explained(1)))

    def test_durations(self):
        self.assertEqual(summary.duration(3723.9), "1:02:03")


class Rivals(unittest.TestCase):
    def test_why_a_rival_is_left_out(self):
        self.assertIn("unknown", rival_process.refusal("nobody", 1))
        reasons = ("not installed", "computes on one thread only")
        self.assertIn(rival_process.refusal("tract", 2), reasons)


if __name__ == "__main__":
    unittest.main()
