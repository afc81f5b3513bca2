"""Tests of the benchmarks' own arithmetic and texts; nothing is measured.

    ./test bench-tests

which has numpy and onnx. Without ./test: PYTHON -m unittest discover --start-directory bench/tests
"""

import json
import math
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "rivals")]

import against_tvm
import agreement
import arrays
import budgets
import figures
import numpy
import onnx
import predictors
import rival_process
import static_choice
import times
import without_running
from harness import machine, predictor_study, program, report, slices


def taken(*medians):
    return [{"median_ms": m, "min_ms": m - 1, "p90_ms": m + 1, "runs": 5} for m in medians]


class AgainstTvm(unittest.TestCase):
    def test_the_table_has_ratios_and_says_what_was_disturbed(self):
        figures = {"ours": slices.summary(taken(2.0, 2.0)), "tvm": slices.summary(taken(3.0, 5.0))}
        row = {
            "operator": "op:softmax(rows=4,cols=8)",
            "threads": 1,
            "tvm": {"seconds": 60.0, "trials": 64, "timed": 60, "version": "0"},
            "tune_s": 6.1,
            "latencies": figures,
            "ratio": slices.ratios(figures["tvm"], figures["ours"]),
            "distance": 1e-7,
            "disturbed": ["slices of tvm spread by 50%"],
        }
        text = against_tvm.text([row], 64)
        cells = [cell.strip() for cell in text.splitlines()[2].split("|")]
        self.assertEqual(
            cells[2:-1], ["1", "2.0000", "4.0000", "2.00", "6.1", "60.0", "60 of 64", "1e-07"]
        )
        self.assertIn("TVM over ours: 2.00", text)
        self.assertIn("was disturbed: slices of tvm spread by 50%", text)
        self.assertNotIn("Geometric mean", against_tvm.text([], 64))


class StaticChoice(unittest.TestCase):
    def test_latencies_are_over_the_tuned_model_s_and_seconds_have_a_price(self):
        latency = lambda median, least: {"median_ms": median, "min_ms": least}
        result = {
            "model": "m",
            "seconds": {static_choice.STATIC: 10.0, static_choice.TUNED: 60.0},
            "latencies": {
                static_choice.STATIC: latency(3, 2),
                static_choice.TUNED: latency(2, 1),
                static_choice.RIVAL: latency(4, 3),
            },
        }
        table = static_choice.table([result], {"per_hour": 360, "currency": "USD"})
        rows = [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
        self.assertEqual(rows[0], ["m", "static", "3.000", "2.000", "1.500", "2.000", "10.0", "1.00000"])
        self.assertEqual(rows[2][6:], ["-", "-"])
        self.assertEqual(rows[-1][1:6], ["onnxruntime", "", "", "2.000", "3.000"])

    def test_the_price_is_the_flag_s_the_file_s_or_an_instance_s(self):
        args = unittest.mock.Mock(price=2.0, machine_file=None)
        self.assertEqual(static_choice.price_of(args)["per_hour"], 2.0)
        args.price = None
        self.assertEqual(static_choice.price_of(args)["of"], static_choice.INSTANCE)
        args.machine_file = unittest.mock.Mock()
        args.machine_file.read_text.return_value = '{"price": {"per_hour": 5, "currency": "EUR"}}'
        self.assertEqual(static_choice.price_of(args)["currency"], "EUR")
        args.machine_file.read_text.return_value = "{}"
        with self.assertRaises(program.Failure):
            static_choice.price_of(args)


class WithoutRunning(unittest.TestCase):
    def test_means_are_of_ratios_to_timed_tuning(self):
        least = lambda *ms: dict(zip(without_running.WAYS, ms, strict=True))
        table = without_running.table({"a": least(4, 2, 1, 1), "b": least(1, 2, 4, 1)})
        last = table.strip().splitlines()[-1]
        self.assertEqual(last.split()[4::2][:4], ["2.000", "2.000", "2.000", "1.000"])


class Predictors(unittest.TestCase):
    def test_a_row_has_means_over_shapes_of_the_learner_and_of_the_static_score(self):
        figure = lambda method, v: {"method": method, "median": dict.fromkeys(predictors.METRICS, v)}
        figures = [figure(predictors.METHOD, v) for v in (1, 3)] 
        figures += [figure("static score", 5), figure("timed again", 1)]
        about = {"kind": "conv2d", "cpu": "c", "validation": {"a": {}, "b": {}}, "samples": 9}
        cells = predictors.row("conv2d", about, 100, figures)
        self.assertEqual(cells[:6], ["conv2d", "conv2d", "c", 2, 9, 100])
        self.assertEqual(cells[6:], [f"{v} / {v} / {v} / {v}" for v in ("2.0", "5.0", "1.0")])

    def test_a_shape_that_is_complete_is_not_collected_again(self):
        args = unittest.mock.Mock(points=4, target="t", cpu="c", limit="1s")
        calls = []

        def collect(*words):
            calls.append(words)
            Path(words[-1]).write_text("{}\n")

        with tempfile.TemporaryDirectory() as folder:
            out = unittest.mock.patch.object(program, "OUT", Path(folder))
            call = unittest.mock.patch.object(program, "call", collect)
            with out, call, unittest.mock.patch.object(predictors, "say"):
                paths = [predictors.collected("op:matmul(m=8)", args) for _ in range(2)]
        self.assertEqual(len(calls), 1)
        self.assertEqual(paths[0], paths[1])
        self.assertEqual(paths[0].name, "op-matmul-m-8.jsonl")


class PredictorStudy(unittest.TestCase):
    def figure(self, method, group, means, included, v):
        median = dict.fromkeys(predictors.METRICS, v)
        return {"method": method, "group": group, "means": means, "included": included, "median": median}

    def test_the_paper_s_tables_are_read_by_group_and_method(self):
        found = predictor_study.paper("x86", 3, "trees")
        self.assertEqual(found, {"e_top1": 0.0, "r_top1": 1.0, "q_low": 2.8, "q_high": 2.4})
        found = predictor_study.paper("RISC-V", 4, "linear")
        self.assertEqual(found, {"e_top1": 11.0, "r_top1": 3.0, "q_low": 4.0, "q_high": 4.2})
        self.assertIsNone(predictor_study.paper("x86", 0, "static score"))

    def test_metrics_are_means_over_the_groups_of_a_case(self):
        figures = [
            self.figure("trees", "a", "group", True, 1),
            self.figure("trees", "b", "group", True, 3),
            self.figure("trees", "b", "group", False, 8),
            self.figure("trees", "b", "static_window", True, 9),
        ]
        of = lambda **case: predictor_study.metrics_of({"figures": figures}, "trees", **case)["r_top1"]
        self.assertEqual(of(), 2)
        self.assertEqual(of(group="b"), 3)
        self.assertEqual(of(group="b", included=False), 8)
        self.assertEqual(of(means="static_window"), 9)
        self.assertIsNone(predictor_study.metrics_of({"figures": figures}, "linear"))

    def test_joined_files_have_the_same_schedules_and_times(self):
        sample = {"group": "g", "sketch": "s", "statistics": 1, "simulation_ns": 5}
        own = [sample | {"trace": t} for t in "abc"]
        counted = [sample | {"trace": t, "statistics": 2, "time_ns": 7} for t in "cxa"]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("own.jsonl", "counted.jsonl")]
            for path, samples in zip(paths, (own, counted)):
                path.write_text("".join(json.dumps(s) + "\n" for s in samples))
            joined = predictor_study.joined(*paths, Path(folder) / "both")
            a, b = map(predictor_study.samples_of, joined)
        self.assertEqual([s["trace"] for s in a], ["a", "c"])
        self.assertEqual([(s["trace"], s["time_ns"]) for s in b], [("a", 7), ("c", 7)])
        self.assertEqual([s["statistics"] for s in a + b], [1, 1, 2, 2])


class Times(unittest.TestCase):
    def test_a_run_may_take_a_fifth_or_five_seconds_more_or_five_after_the_default(self):
        self.assertEqual(times.limit(10, 1), 15)
        self.assertEqual(times.limit(120, 1), 144)
        self.assertEqual(times.limit(10, 30), 35)

    def test_a_row_counts_the_tasks_that_were_measured(self):
        tuning = {
            "default_s": 1.26, "trials": 7, "latency_default_ms": 3.0, "latency_after_ms": 2.0,
            "tasks": [{"trials": 7}, {"trials": 0}],
        }  # fmt: skip
        result = {"model": "m", "time": "10s", "seconds": 9.96, "tuning": tuning}
        self.assertEqual(times.row(result), ["m", "10s", "10.0", "1.3", "1 of 2", 7, "1.50"])


class Slices(unittest.TestCase):
    def test_every_contender_runs_in_every_round_and_the_order_turns(self):
        calls = []

        def contender(name):
            def run(seconds):
                calls.append((name, seconds))
                return name

            return run

        result = slices.interleaved({n: contender(n) for n in "abc"}, 4, 0.5)
        self.assertEqual(result, {n: [n] * 4 for n in "abc"})
        self.assertEqual({s for _, s in calls}, {0.5})
        rounds = ["".join(n for n, _ in calls[i : i + 3]) for i in range(0, 12, 3)]
        self.assertEqual(rounds, ["abc", "acb", "cab", "cba"])

    def test_summary(self):
        s = slices.summary(taken(10, 30, 20))
        self.assertEqual((s["median_ms"], s["min_ms"], s["runs"]), (20, 9, 15))
        self.assertAlmostEqual(s["spread"], 1.0)

    def test_paired_ratio_survives_drift(self):
        ours, theirs = slices.summary(taken(1, 20, 400)), slices.summary(taken(2, 40, 800))
        ratio = slices.ratios(ours, theirs)
        self.assertAlmostEqual(ratio["paired"], 0.5)
        self.assertAlmostEqual(ratio["median"], 0.5)
        self.assertAlmostEqual(ratio["min"], 0.0)
        shifted = slices.summary(taken(800, 2, 40))
        self.assertAlmostEqual(slices.ratios(ours, shifted)["median"], 0.5)
        self.assertAlmostEqual(slices.ratios(ours, shifted)["paired"], 10)

    def test_what_disturbs_a_row(self):
        calm = {"a": taken(100, 101, 102), "b": taken(10, 11, 10)}
        self.assertEqual(slices.disturbance(calm, 0.0), [])
        self.assertEqual(slices.disturbance(calm, None), [])
        found = slices.disturbance(calm | {"c": taken(10, 12, 10)}, 0.25)
        stolen = "25% of the CPUs' time was taken away"
        self.assertEqual(found, [stolen, "slices of c spread by 20%"])
        slow = [s | {"min_ms": 5} for s in taken(10, 10)]
        above = "d mostly took 100% more than at its best"
        self.assertEqual(slices.disturbance(calm | {"d": slow}, 0.0), [above])
        for s, ns in zip(calm["a"], (70, 80, 310)):
            s["exchange_ns"] = ns
        self.assertEqual(slices.disturbance(calm, 0.0), ["CPUs moved apart (70 to 310 ns)"])

    def test_a_disturbed_row_is_measured_again_and_the_quietest_is_kept(self):
        def rows(*ends):
            tries = iter([({"a": taken(10, end)}, None) for end in ends])
            kept, reasons, times = slices.quietest(lambda: next(tries), 2)
            return kept["a"][1]["median_ms"], len(reasons), times

        self.assertEqual(rows(10), (10, 0, 1))
        self.assertEqual(rows(20, 10), (10, 0, 2))
        self.assertEqual(rows(13, 12, 14, 10), (12, 1, 3))

    def test_a_slice_has_a_minimum_of_runs_after_one_warm_up(self):
        runs = []
        result = rival_process.run_slice(lambda: runs.append(None), 0.0)
        self.assertEqual(result["runs"], rival_process.MIN_RUNS)
        self.assertEqual(len(runs), rival_process.MIN_RUNS + 1)

    def test_a_slow_rival_runs_fewer_times(self):
        clock = [0.0]

        def run():
            clock[0] += 25.0

        with unittest.mock.patch.object(rival_process, "time") as time:
            time.perf_counter = lambda: clock[0]
            time.perf_counter_ns = lambda: clock[0] * 1e9
            result = rival_process.run_slice(run, 1.0)
        self.assertEqual((result["runs"], result["median_ms"]), (1, 25e3))
        self.assertLessEqual(result["min_ms"], result["median_ms"])
        self.assertLessEqual(result["median_ms"], result["p90_ms"])


class Machine(unittest.TestCase):
    def test_different_cores_come_first(self):
        cores = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
        chosen = [machine.choose_cpus(n, [0, 1, 2, 3], cores.get) for n in (1, 2, 3, 4)]
        self.assertEqual(chosen, [{3}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}])


    def test_time_that_the_host_took_away(self):
        text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 50 60\ncpu1 1 0 0 9 0 0 0 2 0 0\n"
        self.assertEqual(machine.stolen_ticks(text + "intr 1 2\n", {1}), (2, 12))
        self.assertEqual(machine.stolen_ticks(text, {0, 1}), (10, 48))
        self.assertEqual(machine.stolen_ticks(text, None), (9, 72))


class Program(unittest.TestCase):
    def test_durations(self):
        texts = ["90", "90s", "1.5m", "1h"]
        self.assertEqual([program.seconds_of(t) for t in texts], [90, 90, 90, 3600])
        for text in ("", "m", "3x", "-1s"):
            with self.assertRaises(program.Failure, msg=text):
                program.seconds_of(text)

    def test_names(self):
        self.assertEqual(program.slug("op:matmul(m=1,n=2)"), "op_matmul_m_1_n_2")
        self.assertEqual(program.model_name("some/folder/net.onnx"), "net")
        self.assertEqual(program.model_name("squeezenet1.1"), "squeezenet1.1")


class Figures(unittest.TestCase):
    def test_rates_of_a_product(self):
        r = figures.product_rates(1000, {"median_ms": 40.0, "min_ms": 25.0}, 100.0)
        self.assertAlmostEqual(r["gflops"], 50)
        self.assertAlmostEqual(r["percent_of_peak"], 50)
        self.assertAlmostEqual(r["best_percent_of_peak"], 80)

    def test_trials_of_layouts_do_not_count_as_the_convolution_s(self):
        conv = {"task": "conv2d(c=64)", "trials": 30, "spent_s": 4.0}
        conv |= {"after_ms": 2.0, "gflops_per_s": 90.0}
        layout = {"task": "layout_transform(c=64)", "trials": 10, "spent_s": 1.0}
        tuning = {
            "trials": 40, "trials_per_s": 8.0, "cpu_s": 20.0, "failures": {},
            "tasks": [layout, conv],
        }  # fmt: skip
        rates = figures.trial_rates(tuning)
        # 30 in four fifths of five seconds.
        self.assertAlmostEqual(rates["conv_trials_per_s"], 7.5)
        self.assertAlmostEqual(rates["cpu_s_per_trial"], 0.5)
        conv["after_ms"], tuning["failures"] = None, {"illegal": 9}
        with self.assertRaisesRegex(program.Failure, "9 illegal"):
            figures.trial_rates(tuning)

    def test_convolutions_are_large_enough(self):
        for name, arguments in figures.CONVOLUTIONS:
            self.assertGreaterEqual(figures.conv_gflop(arguments), 0.2, name)
        one = {"c": 3, "h": 5, "w": 5, "k": 2, "r": 3, "s": 3, "stride": 2, "pad": 1}
        self.assertAlmostEqual(figures.conv_gflop(one) * 1e9, 2 * 9 * 2 * 3 * 9)


class Budgets(unittest.TestCase):
    def test_a_cut_keeps_what_was_known_by_then(self):
        lines = [
            {"type": "header"},
            {"type": "run", "started_unix_ms": 1000},
            {"type": "record", "created_unix_ms": 1500},
            {"type": "record", "created_unix_ms": 3001},
            {"type": "event"},
        ]
        texts = [json.dumps(line) for line in lines]
        self.assertEqual(budgets.cut(texts, 2), texts[:3])
        self.assertEqual(budgets.count_records(budgets.cut(texts, 0.1)), 0)
        with self.assertRaises(program.Failure):
            budgets.cut(texts[:1], 2)

    def test_models_may_have_budgets_of_their_own(self):
        def result(model, **cuts):
            latencies = {name: {"median_ms": 2.0, "min_ms": 1.0} for name in cuts}
            end = {"untuned": latencies["a"], "after the run": latencies["a"]}
            trials = dict.fromkeys(cuts, 7)
            facts = {"model": model, "commit": "c", "budgets": cuts, "trials": trials}
            return facts | {"latencies": latencies | end}

        text = budgets.table([result("short", a=1.0, c=3.0), result("long", a=1.0, b=2.0, c=3.0)])
        rows = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
        self.assertEqual(rows[0][2:], ["untuned", "a", "b", "c", "after the run"])
        self.assertEqual(rows[2][4:6], ["", "2.000 (1.000)"])
        self.assertEqual(rows[5], ["candidates", "", "0", "7", "7", "7", ""])


class Report(unittest.TestCase):
    def test_markdown_table(self):
        table = report.markdown_table(["model", "ms"], [["a", 1], ["bcdefg", 234]])
        lines = ["| model  |  ms |", "| ------ | --: |", "| a      |   1 |", "| bcdefg | 234 |"]
        self.assertEqual(table, "\n".join(lines) + "\n")

    def test_a_noisy_machine_is_named(self):
        doctor = {
            "cpu": "A", "cpus": 2, "target": "t", "fma_peak_gflops": 1.0, "read_gb_per_s": 1.0,
            "compiler": "c",
        }  # fmt: skip
        facts = {"machine": doctor, "commit": "c", "date": "d", "busy_cpus": 1.2}
        self.assertIn("not quiet", report.conditions_text(facts))
        self.assertNotIn("not quiet", report.conditions_text(facts | {"busy_cpus": 0.01}))
        self.assertNotIn("huge", report.conditions_text(facts))
        pages = report.conditions_text(facts | {"huge_pages": "without huge pages"})
        self.assertIn("Rivals without huge pages.", pages)
        self.assertIn("not known", report.conditions_text(facts | {"busy_cpus": None}))


class Agreement(unittest.TestCase):
    def test_relative_l2(self):
        array, distance = numpy.array, agreement.relative_l2
        self.assertAlmostEqual(distance(array([3.0, 4.0]), array([3.0, 3.0])), 1 / 18**0.5)
        self.assertEqual(distance(array([0.5]), array([0.0])), 0.5)
        infinite = float("inf")
        self.assertEqual(distance(array([1.0]), array([1.0, 1.0])), infinite)
        self.assertEqual(distance(array([float("nan")]), array([1.0])), infinite)

    def test_a_missing_output_is_a_failure(self):
        one = numpy.ones(2)
        self.assertEqual(agreement.worst_distance({"y": one, "z": one}, {"y": one}), 0)
        with self.assertRaises(program.Failure):
            agreement.worst_distance({"z": one}, {"y": one})

    def test_outputs_of_other_names_are_matched_by_order(self):
        named = agreement.named_as
        self.assertEqual(named({"0": 1, "1": 2}, {"y": 3, "z": 4}), {"y": 1, "z": 2})
        self.assertEqual(named({"z": 1, "y": 2}, {"y": 3, "z": 4}), {"z": 1, "y": 2})
        self.assertEqual(named({"0": 1}, {"y": 3, "z": 4}), {"0": 1})

    def test_arrays_keep_any_name(self):
        path = program.OUT / "tests" / "arrays.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = {"file": numpy.ones(2), "a/b:0": numpy.zeros((1, 3), int)}
        arrays.save(path, written)
        read = arrays.load(path)
        self.assertEqual(list(read), list(written))
        self.assertTrue((read["file"] == 1).all())
        self.assertEqual(read["a/b:0"].shape, (1, 3))

    def test_indices_stay_within_their_table(self):
        h = onnx.helper
        kind = onnx.TensorProto
        table = h.make_tensor("table", kind.FLOAT, [7, 2], [0.0] * 14)
        ids = h.make_tensor_value_info("ids", kind.INT64, ["n", 400])
        mask = h.make_tensor_value_info("mask", kind.INT64, [1])
        y = h.make_tensor_value_info("y", kind.FLOAT, None)
        gather = h.make_node("Gather", ["table", "ids"], ["y"])
        graph = h.make_graph([gather], "g", [ids, mask], [y], [table])
        self.assertEqual(agreement.integer_bound(graph, "ids"), 7)
        self.assertEqual(agreement.integer_bound(graph, "mask"), 2)
        path = program.OUT / "tests" / "gather.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        onnx.save(h.make_model(graph), path)
        shapes = agreement.Shapes(None, ["n=3"])
        inputs = agreement.seeded_inputs(path, shapes, 1)
        self.assertEqual(inputs["ids"].shape, (3, 400))
        self.assertEqual((inputs["ids"].min(), inputs["ids"].max()), (0, 6))
        again = agreement.seeded_inputs(path, shapes, 1)
        self.assertTrue((inputs["ids"] == again["ids"]).all())
        with self.assertRaises(program.Failure):
            agreement.seeded_inputs(path, agreement.Shapes(None, []), 1)


if __name__ == "__main__":
    unittest.main()
