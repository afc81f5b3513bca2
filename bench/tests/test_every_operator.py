"""Tests of the cases of every operator, of how their outputs are judged, and of the table; nothing is measured."""

import contextlib
import re
import sys
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "rivals")]

import agreement
import every_operator
import numpy as np
import onnx
from harness.operator_cases import CASES
from harness.operator_cases.case import MICROSOFT, case, fixed, microsoft, normal
from harness.program import Failure

# ONNX defines them by other operators, and infers no type of their results.
UNTYPED = {"GroupNormalization", "MeanVarianceNormalization"}


class Cases(unittest.TestCase):
    def test_names_are_unique_and_have_an_operator_and_a_size(self):
        names = [c.name for c in CASES]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, rf"^({re.escape(MICROSOFT)}\.)?[A-Za-z0-9]+/[a-z0-9.-]+$")

    def test_models_are_valid_and_have_inputs(self):
        checked = 0
        for c in CASES:
            with self.subTest(c.name):
                model, inputs = c.model()
                self.assertEqual([i.name for i in model.graph.input], list(inputs))
                self.assertGreater(len(inputs), 0)
                self.assertEqual([n.op_type for n in model.graph.node], [c.operator])
                if c.domain:
                    self.assertEqual(c.domain, MICROSOFT)
                elif c.operator in UNTYPED:
                    context = onnx.checker.C.CheckerContext()
                    context.ir_version, context.opset_imports = model.ir_version, {"": c.opset}
                    onnx.checker.check_node(model.graph.node[0], context)
                else:
                    onnx.checker.check_model(model, full_check=True)
                    checked += 1
        self.assertGreater(checked, 300)

    def test_the_checker_refuses_a_wrong_attribute_and_a_wrong_shape(self):
        for wrong in [
            case("MaxPool/wrong", normal(1, 2, 8, 8), kernel_shape=[2, 2], axis=1),
            case("MatMul/wrong", normal(2, 3), normal(4, 5)),
        ]:
            with self.assertRaises((onnx.checker.ValidationError, onnx.shape_inference.InferenceError)):
                onnx.checker.check_model(wrong.model()[0], full_check=True)

    def test_every_case_is_importable(self):
        text = (ROOT / "crates/onnx/src/operators.rs").read_text()
        found = re.findall(r'(standard|microsoft)\(\s*"(\w+)"', text)
        listed = {("" if kind == "standard" else MICROSOFT, name) for kind, name in found}
        self.assertEqual({(c.domain, c.operator) for c in CASES} - listed, set())

    def test_values_come_from_the_name_alone(self):
        one, again, other = (case(name, normal(50)) for name in ["Relu/a", "Relu/a", "Relu/b"])
        value = lambda c: c.model()[1]["x0"]
        np.testing.assert_array_equal(value(one), value(again))
        self.assertFalse(np.array_equal(value(one), value(other)))

    def test_constants_and_operands_left_out(self):
        model, inputs = microsoft("Some/what", normal(2, 3), None, fixed([4, 5]), alpha=0.5, outputs=2).model()
        node = model.graph.node[0]
        self.assertEqual((list(node.input), list(node.output)), (["x0", "", "x2"], ["y0", "y1"]))
        self.assertEqual((node.domain, node.op_type), (MICROSOFT, "Some"))
        self.assertEqual(node.attribute[0].f, 0.5)
        self.assertEqual(inputs["x0"].shape, (2, 3))
        self.assertEqual(onnx.numpy_helper.to_array(model.graph.initializer[0]).tolist(), [4, 5])


class Judgement(unittest.TestCase):
    def wrong(self, ours, theirs, off_by=0):
        return every_operator.wrong({"y0": np.array(ours)}, {"y0": np.array(theirs)}, off_by)

    def test_floats_may_differ_by_a_part_of_the_largest(self):
        theirs = np.array([100.0, 1.0, 0.0], np.float32)
        self.assertEqual(self.wrong(theirs + np.float32(5e-3), theirs), [])
        words = self.wrong(theirs + np.array([0, 0, 2e-2], np.float32), theirs)
        self.assertRegex(words[0], r"^y0: 1 of 3 elements; element \[2\] is 0.01999")

    def test_integers_may_differ_by_what_the_case_says(self):
        theirs = np.array([1, 255], np.uint8)
        ours = np.array([1, 254], np.uint8)
        self.assertEqual(self.wrong(ours, theirs, off_by=1), [])
        self.assertEqual(len(self.wrong(ours, theirs)), 1)
        self.assertEqual(len(self.wrong([True], [False], off_by=1)), 1)

    def test_shapes_types_and_names_count(self):
        self.assertIn("float64[2], not float64[3]", self.wrong([0.0] * 2, [0.0] * 3)[0])
        self.assertIn("int64[1], not float64[1]", self.wrong([0], [0.0])[0])
        self.assertEqual(every_operator.wrong({}, {"y0": np.zeros(1)}, 0), ["y0: missing"])

    def test_what_is_no_number_or_infinite_has_to_be_so_in_both(self):
        inf, nan = np.inf, np.nan
        self.assertEqual(self.wrong([inf, -inf, nan, 1.0], [inf, -inf, nan, 1.0]), [])
        for ours, theirs in [(inf, -inf), (inf, 1.0), (1.0, inf), (nan, 1.0), (1.0, nan), (nan, inf)]:
            self.assertEqual(len(self.wrong([ours, 1.0], [theirs, 1.0])), 1, (ours, theirs))

    def test_difference_names_the_first_element(self):
        words = agreement.difference(np.array([[1, 2], [3, 4]]), np.array([[1, 2], [4, 5]]), 0)
        self.assertEqual(words, "2 of 4 elements; element [1, 0] is 3, not 4")


class Command(unittest.TestCase):
    def run_with(self, answers):
        """The exit status, the names of results and those of failures, where cases have these answers or failures."""
        queue = iter(answers)

        def measured(*_):
            answer = next(queue)
            if isinstance(answer, Exception):
                raise answer
            latency = {"median_ms": 1.0, "spread": 0.0}
            both = {"tunesmith": latency, "onnxruntime": latency}
            return {"wrong": answer, "latencies": both, "ratios": {"median": 1.0}, "version": "1"}

        with contextlib.ExitStack() as stack:
            patch = lambda *args, **more: stack.enter_context(unittest.mock.patch.object(*args, **more))
            patch(sys, "argv", ["every_operator.py", "Exp/map", "Relu/map"])
            patch(every_operator, "find_spec", return_value=True)
            patch(every_operator, "measured", measured)
            patch(every_operator.machine, "conditions", return_value={})
            patch(every_operator.program, "program")
            patch(every_operator.report, "say")
            patch(every_operator, "say")
            write = patch(every_operator.report, "write")
            status = every_operator.main()
        _, _, _, results, _, failures = write.call_args.args
        return status, [r["name"] for r in results], [f["what"] for f in failures]

    def test_a_wrong_output_fails_and_a_refusal_does_not(self):
        both = ["Exp/map", "Relu/map"]
        self.assertEqual(self.run_with([[], []]), (0, both, []))
        self.assertEqual(self.run_with([["y0: differs"], []]), (1, both, []))
        refused = self.run_with([Failure("unsupported"), []])
        self.assertEqual(refused, (0, ["Relu/map"], ["Exp/map"]))
        refused = self.run_with([RuntimeError("onnxruntime says no"), ["y0: differs"]])
        self.assertEqual(refused, (1, ["Relu/map"], ["Exp/map"]))


class Text(unittest.TestCase):
    def result(self, name, ours, theirs, wrong=()):
        latency = lambda ms: {"median_ms": ms, "spread": 0.1}
        latencies = {"tunesmith": latency(ours), "onnxruntime": latency(theirs)}
        return {
            "name": name, "wrong": list(wrong), "latencies": latencies,
            "ratios": {"median": ours / theirs},
        }  # fmt: skip

    def test_slowest_come_first_and_wrong_ones_do_not_count(self):
        results = [
            self.result("Relu/a", 1.0, 4.0),
            self.result("Exp/a", 4.0, 1.0),
            self.result("Tanh/a", 16.0, 1.0, ["y0: 1 of 2 elements"]),
        ]
        page = every_operator.text(results)
        names = re.findall(r"^\| (\w+/a)", page, re.M)
        self.assertEqual(names, ["Tanh/a", "Exp/a", "Relu/a"])
        self.assertIn("over the 2 cases whose outputs agree: 1.000", page)
        self.assertIn("**Wrong: Tanh/a.** y0: 1 of 2 elements", page)
        self.assertEqual(page.count("WRONG"), 1)

    def test_slower_than_shows_fewer_and_means_of_all(self):
        results = [self.result("Relu/a", 1.0, 4.0), self.result("Exp/a", 4.0, 1.0)]
        page = every_operator.text(results, 1.5)
        self.assertEqual(re.findall(r"^\| (\w+/a)", page, re.M), ["Exp/a"])
        self.assertIn("1 of 2 cases are shown", page)
        self.assertIn("agree: 1.000", page)
        self.assertEqual(every_operator.text([]), "Nothing was measured.\n")


if __name__ == "__main__":
    unittest.main()
