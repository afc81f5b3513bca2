"""Tests of the comparison at equal latency; nothing is tuned."""

import sys
import unittest
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

import survey


def report(curve, joules):
    return {
        "curve": [{"ms": ms, "joules": j} for ms, j in curve],
        "energy": {"by": [{"joules": j} for j in joules]},
    }


class EqualLatency(unittest.TestCase):
    def test_joules_are_those_until_the_worse_of_both_ends(self):
        reports = {
            "parallel": report([(10.0, 0.0), (8.0, 40.0), (6.0, 80.0)], [50.0, 100.0]),
            # It ends at 7 ms, which the other has at 80 J.
            "survey": report([(10.0, 0.0), (7.0, 60.0)], [45.0, 60.0]),
        }
        rows = list(survey.at_equal_latency(reports))
        self.assertIn("J of parallel", rows[0])
        self.assertEqual(rows[1:], ["| survey | 7.00 | 45 or 60 | 40 or 80 | -12% or +25% |"])

    def test_without_parallel_the_first_run_is_compared_with(self):
        same = report([(10.0, 0.0), (5.0, 10.0)], [10.0])
        rows = list(survey.at_equal_latency({"promise": same, "cold": same}))
        self.assertEqual(rows[1:], ["| cold | 5.00 | 10 | 10 | +0% |"])


if __name__ == "__main__":
    unittest.main()
