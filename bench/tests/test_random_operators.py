"""Operators of random graphs: each one is importable, and a drawn node fits what the graph has."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from harness.random_operators import ELSEWHERE, MAKERS, MICROSOFT, broadcasts


class RandomOperators(unittest.TestCase):
    def test_all_are_importable(self):
        text = (ROOT / "crates/onnx/src/operators.rs").read_text()
        found = re.findall(r'(standard|microsoft)\(\s*"(\w+)"', text)
        listed = {("" if kind == "standard" else MICROSOFT, name) for kind, name in found}
        self.assertEqual(set(MAKERS) - listed, set())
        elsewhere = {(MICROSOFT, name) for name in ELSEWHERE}
        self.assertEqual(elsewhere - listed | elsewhere & set(MAKERS), set())
        self.assertGreater(len(MAKERS), 0.8 * len(listed - elsewhere))

    def test_shapes_broadcast(self):
        self.assertTrue(broadcasts((3, 1), (2, 3, 4)))
        self.assertFalse(broadcasts((3, 2), (3, 4)))


if __name__ == "__main__":
    unittest.main()
