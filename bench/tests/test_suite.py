"""Tests of the suite's arithmetic and pages; nothing is measured."""

import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "rivals")]

import comparison
import layers
import light
import numpy
import onnx
import publish
import rival_process
import runtimes
import summary
import tables
from harness import program, report, slices


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
        "schedule": "x=7*2 unroll_ci=4",
    }  # fmt: skip
    scaling = {
        "one_thread": times, "speedup": 1.8, "efficiency": 0.9, "roofline_speedup": 2.0,
    }  # fmt: skip
    levels = [{"name": "L2", "gb_per_s": 100.0}]
    return {
        "threads": threads, "accuracy": "relaxed", "latency": times, "roofline_ms": 2.0,
        "of_roofline": 0.5, "gflop": 1.6, "gflops_per_s": 400.0, "footprint_mbytes": 5.0,
        "ceiling": {"peak_gflops": 100.0, "levels": levels, "fork_join": {"awake_us": 1.0}},
        "moved_ns": None, "scaling": scaling if threads > 1 else None, "layers": [layer],
    }  # fmt: skip


def result(model, threads, ours, rivals, page=True, accuracy="relaxed"):
    latencies = {"tunesmith": latency(*ours)} | {n: latency(*ms) for n, ms in rivals.items()}
    best = summary.best_rival(latencies)
    return {
        "model": model, "threads": threads, "latencies": latencies, "best_rival": best,
        "gain": summary.gain(latencies, best), "accuracy": accuracy, "wrong": [],
        "measured": 1, "disturbed": [],
        "distances": {"tunesmith": {"relative_l2": 1e-6}},
        "check": {"ok": True, "max_rel_err": 3e-6, "accuracy": "relaxed", "tensors": 9, "bad": []},
        "left_out": {"tract": "not installed"}, "versions": dict.fromkeys(rivals, "1"),
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

    def test_the_best_of_four(self):
        rivals = {"onnxruntime": [9], "openvino": [8], "mnn": [6], "ncnn": [7]}
        self.assertEqual(tuple(rivals), runtimes.DEFAULT)
        r = result("m", 1, [4], rivals)
        self.assertEqual((r["best_rival"], r["gain"]["median"]), ("mnn", 1.5))
        page = summary.text("suite", [r])
        for name in rivals:
            self.assertIn(f" {name} ms (min) |", page)
        self.assertIn(" 1.50 (1.50, 1.50) |", page)

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
            "openvino ms (min)", "2.00 (2.00, 2.00)", "90%", "check (L2 against f64)", "3.0e-06", "- Without tract: not installed (a 1T, a 2T, b 2T)", "earlier run",
            "[a, 1 threads](layers/a.md)", "b, 2 threads: no", "suite-1t.svg", "suite-2t.svg",
            "accuracy relaxed",
        ):  # fmt: skip
            self.assertIn(part, text)
        self.assertEqual(summary.text("suite", []), "Nothing was measured.\n")

    def test_a_wrong_output_is_named(self):
        r = result("a", 1, [2], {"onnxruntime": [4]})
        r["wrong"] = ["tunesmith"]
        self.assertIn("FAIL 1.0e-06", summary.text("suite", [r]))

    def test_a_wrong_layer_is_told_from_a_wrong_output(self):
        r = result("a", 1, [2], {"onnxruntime": [4]})
        r["check"] |= {"ok": False}
        r["wrong"] = ["layers against f64 references"]
        text = summary.text("suite", [r])
        self.assertIn("FAIL 3.0e-06", text)
        self.assertNotIn("FAIL 1.0e-06", text)

    def test_every_row_says_its_accuracy(self):
        kinds = (("relaxed", 2), ("strict", 3))
        rows = [result("a", 1, [ms], {"onnxruntime": [4]}, accuracy=a) for a, ms in kinds]
        text = summary.text("suite", rows)
        lines = [[c.strip() for c in line.split("|")[1:-1]] for line in text.splitlines()]
        head = ["tunesmith relaxed ms (min)", "tunesmith strict ms (min)", "onnxruntime ms (min)"]
        self.assertEqual(lines[0], ["model", "threads", *head, "gain relaxed (min)", "gain strict (min)"])
        cells = ["2.000 (1.000)", "3.000 (1.500)", "4.000 (2.000)", "2.00 (2.00)", "1.33 (1.33)"]
        self.assertEqual(lines[2], ["a", "1", *cells])
        means = [line[1:3] for line in lines if line[:1] == ["1 threads"]]
        self.assertEqual(means, [["1", "2.000"], ["1", "1.333"]])
        self.assertIn("[a, 1 threads, strict]", text)
        self.assertEqual([layers.page_name(r) for r in rows], ["a.1t.md", "a.1t.strict.md"])
        self.assertIn(" relaxed |", text)
        self.assertIn(" strict |", text)
        self.assertIn("accuracy relaxed and strict", text)
        self.assertIn("Accuracy relaxed and strict", text)

    def test_disturbed_rows_say_how_often_they_were_measured(self):
        rows = [result(m, 1, [2], {"onnxruntime": [4]}) for m in "abc"]
        self.assertIn("No row was disturbed.", summary.text("suite", rows))
        rows[1] |= {"measured": 2}
        rows[2] |= {"measured": 3, "disturbed": ["slices of openvino spread by 31%"]}
        text = summary.text("suite", rows)
        self.assertNotIn("a 1T measured", text)
        self.assertIn("b 1T measured 2 times, the quietest kept: quiet then", text)
        self.assertIn("c 1T measured 3 times, the quietest kept: still slices of openvino", text)

    def test_layers_mark_what_is_counted_as_direct(self):
        page = layers.text("a", explained(2))
        self.assertIn("400.0\\*", page)
        self.assertIn("efficiency", page)
        self.assertIn(" L3 |", page)
        self.assertIn("| x=7*2 unroll_ci=4 |", page)
        self.assertNotIn("efficiency |", layers.text("a", explained(1)))

    def test_layers_say_that_cpus_moved(self):
        self.assertNotIn("moved", layers.text("a", explained(2)))
        page = layers.text("a", explained(2) | {"moved_ns": [83.4, 350.1]})
        self.assertIn("83 ns there and back, then 350", page)

    def test_the_part_of_the_allowed_speed_up(self):
        scaling = {"speedup": 1.5, "roofline_speedup": 1.6, "efficiency": 0.75}
        self.assertAlmostEqual(summary.of_allowed_speedup(scaling), 0.9375)
        r = result("a", 2, [2], {"onnxruntime": [4]})
        r["explained"]["scaling"] = scaling
        self.assertIn("94%", summary.text("suite", [r]))

    def test_durations(self):
        self.assertEqual(summary.duration(3723.9), "1:02:03")


class Publish(unittest.TestCase):
    """Reports of earlier runs in a folder of the test's own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out, self.kept = Path(folder.name) / "out", Path(folder.name) / "kept"
        self.out.mkdir()
        for owner, name, value in (
            (program, "OUT", self.out), (publish, "FOLDER", self.kept),
            (report, "drawing", lambda: None),
        ):  # fmt: skip
            patch = unittest.mock.patch.object(owner, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        silent = unittest.mock.patch.object(publish, "say", lambda text: None)
        silent.start()
        self.addCleanup(silent.stop)
        self.args = SimpleNamespace(name="suite", models="a,c", study=None)

    def suite(self):
        machine = {
            "cpu": "X", "cpus": 2, "target": "t", "fma_peak_gflops": 1.0, "read_gb_per_s": 1.0,
            "compiler": "c",
        }  # fmt: skip
        conditions = {"machine": machine, "commit": "abc", "date": "d", "busy_cpus": 0.0}
        results = [result(m, t, [2], {"onnxruntime": [4]}) for m in "ab" for t in (1, 2)]
        data = {"conditions": conditions, "results": results}
        (self.out / "suite.json").write_text(json.dumps(data))
        (self.out / "suite-1t.svg").write_text("small")
        (self.out / "suite-2t.svg").write_text("x" * (publish.LARGEST + 1))

    def test_charts_and_the_layers_of_the_models_asked_for(self):
        self.suite()
        self.assertEqual(publish.run(self.args), 0)
        index = (self.kept / "README.md").read_text()
        pages = sorted(p.name for p in (self.kept / "layers").iterdir())
        self.assertEqual(pages, ["a.1t.md", "a.2t.md"])
        for part in ("Commit abc", "Accuracy relaxed", "whole-models-1t.svg", "layers/a.2t.md"):
            self.assertIn(part, index)
        self.assertIn("winograd4.fused", (self.kept / "layers" / "a.1t.md").read_text())
        # Too large to keep.
        self.assertNotIn("whole-models-2t.svg", index)
        self.assertFalse((self.kept / "whole-models-2t.svg").exists())

    def test_a_study_with_its_conditions(self):
        folder = self.out / "study"
        folder.mkdir()
        (folder / "study.md").write_text("# Title\n\nA machine; accuracy relaxed.\n")
        (folder / "dp.svg").write_text("chart")
        self.assertEqual(publish.run(self.args), 0)
        index = (self.kept / "README.md").read_text()
        self.assertIn("A machine; accuracy relaxed.", index)
        self.assertIn("study/dp.svg", index)

    def test_nothing_to_publish_is_a_failure(self):
        with self.assertRaisesRegex(program.Failure, "run the suite first"):
            publish.run(self.args)


class LightModels(unittest.TestCase):
    def graph(self, last="Gemm"):
        """A convolution and a dense layer whose weights are filled, as in the light models."""
        h, f32 = onnx.helper, onnx.TensorProto.FLOAT
        shapes = {"w": [8, 2, 3, 3], "d": [1, 1, 5, 800]}
        value = h.make_tensor("", f32, [1], [0.02])
        nodes = [
            h.make_node("ConstantOfShape", [f"{n}__SHAPE"], [n], value=value) for n in shapes
        ]
        nodes += [
            h.make_node("Conv", ["x", "w", "b"], ["y"]),
            h.make_node("Reshape", ["d", "to"], ["matrix"]),
            h.make_node(last, ["y", "matrix"], ["z"], transB=1),
        ]
        initializers = [
            h.make_tensor(f"{n}__SHAPE", onnx.TensorProto.INT64, [4], shape)
            for n, shape in shapes.items()
        ]
        initializers += [
            h.make_tensor("b", f32, [8], [0.02] * 8),
            h.make_tensor("to", onnx.TensorProto.INT64, [2], [5, 800]),
        ]
        inputs = [
            h.make_tensor_value_info(n, f32, shape) for n, shape in (("x", [1, 2, 9, 9]), ("b", [8]))
        ]
        return h.make_graph(nodes, "g", inputs, [], initializers)

    def seeded(self, number):
        graph = self.graph()
        light.seed(graph, number)
        arrays = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        return graph, arrays

    def test_weights_are_random_at_the_scale_of_their_use(self):
        graph, arrays = self.seeded(1)
        self.assertEqual([n.op_type for n in graph.node], ["Conv", "Reshape", "Gemm"])
        self.assertEqual([i.name for i in graph.input], ["x"])
        self.assertEqual(set(arrays), {"w", "d", "b", "to"})
        self.assertEqual(list(arrays["to"]), [5, 800])
        for name, shape, fan_in in (("w", (8, 2, 3, 3), 18), ("d", (1, 1, 5, 800), 800)):
            weights = arrays[name]
            self.assertEqual((weights.shape, weights.dtype), (shape, numpy.float32))
            self.assertEqual(len(numpy.unique(weights)), weights.size)
            self.assertAlmostEqual(float(weights.std()) / (2 / fan_in) ** 0.5, 1.0, delta=0.2)

    def test_the_same_number_gives_the_same_weights(self):
        first, again, other = (self.seeded(n)[1]["w"] for n in (1, 1, 2))
        self.assertTrue((first == again).all())
        self.assertFalse((first == other).any())

    def test_variances_are_positive(self):
        rng = numpy.random.default_rng(1)
        variance = light.draw(rng, (1000,), "BatchNormalization", 4, False)
        self.assertGreater(variance.min(), 0.5)

    def test_an_unknown_use_is_refused(self):
        with self.assertRaisesRegex(Exception, "Elu"):
            light.seed(self.graph("Elu"), 1)


class Several(unittest.TestCase):
    def test_each_accuracy_has_a_result_of_its_own(self):
        latencies = {"tunesmith strict": latency(3), "tunesmith relaxed": latency(2)}
        latencies |= {"onnxruntime": latency(4)}
        both = {
            "latencies": latencies, "ratios": {n: 1 for n in latencies if n != "onnxruntime"},
            "distances": dict.fromkeys(["tunesmith strict", "tunesmith relaxed", "openvino"], 0),
            "wrong": ["tunesmith strict"], "model": "m",
        }  # fmt: skip
        artifacts = ["tunesmith strict", "tunesmith relaxed"]
        strict, relaxed = (comparison.as_only(both, a, artifacts) for a in artifacts)
        self.assertEqual(strict["wrong"], ["tunesmith"])
        self.assertEqual(relaxed["wrong"], [])
        self.assertEqual(list(relaxed["latencies"]), ["tunesmith", "onnxruntime"])
        self.assertEqual(relaxed["latencies"]["tunesmith"]["median_ms"], 2)
        self.assertEqual(strict["latencies"]["tunesmith"]["median_ms"], 3)
        self.assertEqual(list(strict["ratios"]), ["tunesmith"])
        self.assertEqual(list(strict["distances"]), ["tunesmith", "openvino"])


class Rivals(unittest.TestCase):
    def test_a_rival_has_huge_pages_beside_what_it_inherits(self):
        given = rival_process.environment(2, True, {"A": "b", "GLIBC_TUNABLES": "x=1"})
        tunables = "x=1:glibc.malloc.hugetlb=1"
        expected = {"A": "b", "GLIBC_TUNABLES": tunables, "OPENBLAS_NUM_THREADS": "2"}
        self.assertEqual(given, expected)
        without = rival_process.environment(1, False, {})
        self.assertEqual(without, {"OPENBLAS_NUM_THREADS": "1"})

    def test_the_process_gets_it(self):
        with tempfile.TemporaryDirectory() as folder:
            # No model: what stops the rival is its answer, after its environment was read.
            code = "import json, os; print(json.dumps({'version': os.environ['GLIBC_TUNABLES']}))"
            script = Path(folder) / "rival.py"
            script.write_text(code)
            with unittest.mock.patch.object(rival_process, "__file__", str(script)):
                with rival_process.Rival("r", "m", 1, "i", None, True) as rival:
                    self.assertEqual(rival.version.split(":")[-1], "glibc.malloc.hugetlb=1")

    def test_why_a_rival_is_left_out(self):
        self.assertIn("unknown", runtimes.refusal("nobody", 1))
        reasons = ("not installed", "computes on one thread only")
        self.assertIn(runtimes.refusal("tract", 2), reasons)

    def started(self, code):
        """A rival whose process runs some code instead."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = Path(folder.name) / "rival.py"
        script.write_text(code)
        with (
            unittest.mock.patch.object(rival_process, "__file__", str(script)),
            unittest.mock.patch.object(rival_process.sys, "stderr"),
        ):
            return rival_process.Rival("r", "m", 1, "i", None, False)

    def test_the_reason_is_the_last_line_of_its_messages(self):
        text = "loading\nno such layer\nConverted Failed!"
        says = f"import sys, os; print({text!r}, file=sys.stderr); "
        with self.assertRaisesRegex(RuntimeError, "^ended with status 1: no such layer$"):
            self.started(says + "sys.exit(1)")
        with self.assertRaisesRegex(RuntimeError, "^ended with signal 6: no such layer$"):
            self.started(says + "sys.stderr.flush(); os.abort()")
        with self.assertRaisesRegex(RuntimeError, "^ended with status 0: no message$"):
            self.started("")
        with self.assertRaisesRegex(RuntimeError, "^ValueError: b$"):
            self.started("print('{\"error\": \"ValueError: b\"}')")
        self.assertEqual(rival_process.last_words("ValueError: a\n  b \n\n"), "b")

    def test_a_rival_that_ends_later_is_told_too(self):
        rival = self.started("print('{\"version\": \"1\"}')")
        with (
            unittest.mock.patch.object(rival_process.sys, "stderr"),
            self.assertRaisesRegex(RuntimeError, "status 0"),
        ):
            rival.slice(1.0)

    def test_axes_are_those_of_pnnx_s_example(self):
        script = (
            'ex.input("in0", ncnn.Mat(in0.numpy(), batch_index=0).clone())\n'
            'ex.input("in1", ncnn.Mat(in1.numpy(), batch_index=233).clone())\n'
            "out.append(torch.from_numpy(out0.numpy(batch_index=1)))\n"
        )
        self.assertEqual(runtimes.batch_axes(script), ({"in0": 0, "in1": 233}, {"out0": 1}))


class LeftOut(unittest.TestCase):
    """Rivals of which each has its outputs, or does not run."""

    def compared(self, **outputs):
        """Distances, who was left, and who was left out why; ours is `tunesmith`, 1.001 for 1."""

        def rival(name, value):
            def write(path):
                if isinstance(value, str):
                    raise RuntimeError(value)
                comparison.arrays.save(path, {"y": numpy.full(4, value)})

            return SimpleNamespace(name=name, outputs=write)

        rivals = {n: rival(n, v) for n, v in ({"onnxruntime": 1.0} | outputs).items()}
        ours, left_out = {"y": numpy.full(4, 1.001)}, {}
        with (
            tempfile.TemporaryDirectory() as folder,
            unittest.mock.patch.object(comparison.agreement, "program_outputs", lambda *_: ours),
            unittest.mock.patch.object(comparison, "say", lambda text: None),
        ):
            distances = comparison.compare_outputs(
                1, {"tunesmith": "file"}, rivals, {}, Path(folder), left_out
            )
        return distances, rivals, left_out

    def test_a_rival_with_other_outputs_is_left_out_and_named_with_the_distance(self):
        distances, rivals, left_out = self.compared(mnn=1.02, ncnn=1.005, openvino=float("nan"))
        self.assertEqual(list(rivals), ["onnxruntime", "ncnn"])
        self.assertEqual(list(distances), ["tunesmith", "ncnn"])
        self.assertIn("2.0e-02 from onnxruntime is beyond 0.01", left_out["mnn"])
        self.assertIn("distance of inf", left_out["openvino"])

    def test_a_rival_that_does_not_run_is_named_with_its_message(self):
        _, rivals, left_out = self.compared(ncnn="no such layer")
        self.assertEqual((list(rivals), left_out), (["onnxruntime"], {"ncnn": "no such layer"}))

    def test_nothing_is_compared_without_the_baseline(self):
        with self.assertRaisesRegex(program.Failure, "onnxruntime"):
            comparison.leave_out("onnxruntime", "not installed", {})

    def test_notes_name_them_once_for_all_accuracies(self):
        kinds = ("strict", "relaxed")
        rows = [result("a", 1, [2], {"onnxruntime": [4]}, accuracy=a) for a in kinds]
        for r in rows:
            r["left_out"] = {"ncnn": "no such layer"}
            r["versions"] |= {"mnn": "3"}
            r["distances"]["mnn"] = {"relative_l2": 2e-5}
        notes = tables.notes_text(rows)
        self.assertEqual(notes.count("- Without ncnn: no such layer (a 1T)\n"), 1)
        self.assertIn("Largest distances of rivals: mnn 2.0e-05.", notes)
        # The column of distances is ours alone.
        self.assertEqual(tables.distance_cell(rows[0]), "1.0e-06")


if __name__ == "__main__":
    unittest.main()
