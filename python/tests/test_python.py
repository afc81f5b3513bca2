"""Both packages, on an operator that compiles in a moment. TUNESMITH_PROGRAM and TUNESMITH_RUNTIME_LIBRARY may name
programs and libraries that are not in the packages."""

import contextlib
import doctest
import io
import os
import pickle
import re
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np
import tunesmith
import tunesmith_runtime

OP = "op:dense(m=4,n=32,k=16)"


def fastest(key):
    """The alternative of least time in the report of a key, the first of equal ones."""
    timed = [a for a in key["alternatives"] if a["median_ns"] is not None]
    return min(timed, key=lambda a: a["median_ns"])["name"]


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        os.environ["XDG_DATA_HOME"] = os.environ["XDG_CACHE_HOME"] = cls.folder.name
        cls.path = str(Path(cls.folder.name) / "model.tsm")
        cls.model = tunesmith.compile(OP, cls.path, threads=1, defaults=True)
        cls.x = np.random.default_rng(1).uniform(-1, 1, (4, 16)).astype(np.float32)

    def test_the_examples_of_the_docstrings_work(self):
        for module in (tunesmith, tunesmith_runtime):
            names = {"path": self.path, "folder": self.folder.name, "x": self.x}
            failed, tried = doctest.testmod(module, extraglobs=names)
            self.assertGreater(tried, 0)
            self.assertEqual(failed, 0)

    def test_the_programs_of_the_pages_work(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder.name)
        model = "op:conv2d(c=3,h=224,w=224,k=2,r=3,s=3,stride=8,layout=nchw)"
        subprocess.run([tunesmith.program(), "models", "export", model, "model.onnx"], check=True, capture_output=True)
        inputs, outputs = (tunesmith.info("model.onnx")[side][0]["name"] for side in ("inputs", "outputs"))
        image = np.zeros((1, 3, 224, 224), np.float32)
        a, b = (np.ones((8, 8), np.float32) for _ in range(2))
        names = {"image": image, "np": np, "by_torch": np.matmul, "own": np.matmul, "a": a, "b": b}
        pages = Path(__file__).parents[2] / "docs/howto"
        programs = 0
        for page in ("python.md", "choose-in-your-program.md"):
            for block in re.findall(r"```python\n(.*?)```", (pages / page).read_text(), re.DOTALL):
                # The page's model has other names, and a user has time for a search.
                block = block.replace('"60s"', '"1s"').replace('"image"', f'"{inputs}"').replace('"scores"', f'"{outputs}"')
                with contextlib.redirect_stdout(io.StringIO()):
                    exec(compile(block, page, "exec"), names)
                programs += 1
        self.assertEqual(programs, 4)

    def test_every_way_to_run_gives_the_same(self):
        y = self.model(self.x)
        self.assertEqual((y.dtype, y.shape), (np.float32, (4, 32)))
        self.assertTrue(np.array_equal(y, self.model.run({"x": self.x})["y"]))
        self.assertTrue(np.array_equal(y, self.model(x=self.x.tolist())))
        self.assertTrue(np.array_equal(y, self.model(np.asfortranarray(self.x))))
        self.assertTrue(np.array_equal(y, self.model(self.x.astype(">f4"))))
        self.model.input("x")[:] = self.x
        self.model.invoke()
        self.assertTrue(np.array_equal(y, self.model.output(0)))
        self.assertTrue(np.array_equal(y, np.from_dlpack(y)))

        class ByDlpack:
            __dlpack__ = self.x.__dlpack__
            __dlpack_device__ = self.x.__dlpack_device__

        self.assertTrue(np.array_equal(y, self.model(ByDlpack())))

    def test_a_model_is_saved_while_another_has_the_file_in_memory(self):
        path = str(Path(self.folder.name) / "saved.tsm")
        compiled = tunesmith.compile(OP, threads=1, defaults=True)
        compiled.save(path)
        loaded = tunesmith.load(path)
        compiled.save(path)
        self.assertTrue(np.array_equal(compiled(self.x), loaded(self.x)))
        self.assertEqual(len(loaded.explain()["layers"]), 1)
        self.assertEqual((bool(compiled.report), loaded.report), (True, {}))
        temporary = Path(compiled.path)
        del compiled
        self.assertFalse(temporary.parent.exists())
        with self.assertRaisesRegex(tunesmith.LoadError, "cannot write"):
            loaded.save(self.folder.name)
        with self.assertRaisesRegex(TypeError, "pass its file"):
            pickle.dumps(loaded)

    def test_memory_outlives_the_name_of_its_model(self):
        y = tunesmith.load(self.path, threads=1).output("y")
        self.assertEqual(y.shape, (4, 32))
        y.fill(1.0)
        self.assertEqual(y.sum(), 128.0)

    def test_errors_have_types_and_words(self):
        for error, words, call in [
            (tunesmith.LoadError, "cannot read", lambda: tunesmith.load("none.tsm")),
            (tunesmith.LoadError, "not a compiled model", lambda: tunesmith.load(__file__)),
            (tunesmith.RunError, "shape", lambda: self.model(self.x[:2])),
            (tunesmith.RunError, "no input `z`", lambda: self.model(z=self.x)),
            (tunesmith.RunError, "type", lambda: self.model(self.x.astype(np.float64))),
            (tunesmith.ArgumentError, "takes 1 inputs", lambda: self.model(self.x, self.x)),
            (tunesmith.ArgumentError, "given twice", lambda: self.model(self.x, x=self.x)),
            (tunesmith.ArgumentError, "does not read input `x`: ", lambda: self.model([[1, 2], [3]])),
            (tunesmith.ArgumentError, "by name", lambda: self.model.run(self.x)),
            (tunesmith.ArgumentError, "no 1; there are 1: x", lambda: self.model.input(1)),
            (tunesmith.ArgumentError, "complex64", lambda: self.model(self.x.astype(np.complex64))),
            (tunesmith.CompileError, "there is no built-in model", lambda: tunesmith.compile("nonsense")),
            (tunesmith.CompileError, "--treads", lambda: tunesmith.compile(OP, treads=1)),
        ]:
            with self.assertRaisesRegex(error, words):
                call()

    def test_tuning_tells_how_far_it_is(self):
        lines = []
        tuned = tunesmith.tune(OP, progress=lines.append, threads=1, time="3s")
        self.assertGreater(tuned.report["trials"], 0)
        self.assertTrue(lines)
        self.assertTrue(np.allclose(tuned(self.x), self.model(self.x), rtol=1e-5, atol=1e-5))

    def test_other_threads_run_meanwhile(self):
        models = [tunesmith.load(self.path, threads=1) for _ in range(2)]
        results = [None, None]

        def work(i):
            for _ in range(200):
                results[i] = models[i](self.x)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(np.array_equal(*results))

    def test_sizes_that_the_model_has_choose_their_variant(self):
        onnx = str(Path(self.folder.name) / "open.onnx")
        try:
            from onnx import TensorProto, helper, save
        except ImportError:
            self.skipTest("onnx is not installed")
        tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3]) for n in "xy"]
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "open", tensors[:1], tensors[1:])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), onnx)
        model = tunesmith.compile(onnx, threads=1, defaults=True, batch="1,4")
        self.assertEqual(len(model.variants), 2)
        for rows in (4, 1):
            x = np.full((rows, 3), -1.0, np.float32)
            self.assertTrue(np.array_equal(model(x), np.zeros_like(x)))
            self.assertEqual(model.inputs[0].shape, (rows, 3))
        with self.assertRaisesRegex(tunesmith.RunError, "batch is 2"):
            model(np.zeros((2, 3), np.float32))

    def test_a_selector_keeps_the_fastest_callable(self):
        path = str(Path(self.folder.name) / "decisions")

        def slow(x):
            time.sleep(0.002)
            return x.sum()

        def fast(x, scale=1):
            return x.sum() * scale

        def make(**more):
            return tunesmith_runtime.Selector({"slow": slow, "fast": fast}, name="sums", rounds=3, decisions=path, **more)

        x, total = np.ones((4, 4), np.float32), make()
        while not any(k["decided"] for k in total.report()["keys"]):
            self.assertEqual(total(x), 16)
        key = total.report()["keys"][0]
        # A machine that is busy elsewhere may hold up what is fast.
        decided = fastest(key)
        self.assertEqual((key["decided"], key["known"], key["key"]), (decided, False, "(('float32', (4, 4)),)"))
        self.assertEqual([a["name"] for a in key["alternatives"]], ["slow", "fast"])
        self.assertGreaterEqual(key["alternatives"][0]["median_ns"], 2e6)
        self.assertEqual(len(total.report()["keys"]), 1)
        total.save(path)
        again = make()
        again(x)
        self.assertTrue(again.report()["keys"][0]["known"])
        with self.assertWarnsRegex(UserWarning, "`version` is nothing|`version` is , and here it is 2"):
            other = make(version="2")
        other(x)
        self.assertFalse(other.report()["keys"][0]["known"])
        # Two selectors share a file.
        tunesmith_runtime.Selector({"only": fast}, name="other").save(path)
        again.save(path)
        self.assertIn(f"\t{decided}\t", Path(path).read_text())

    def test_a_callable_that_fails_is_not_tried_again(self):
        def broken(x):
            raise ValueError(f"not for {x}")

        choose = tunesmith_runtime.Selector({"broken": broken, "works": abs}, key=lambda x: x > 0)
        with self.assertRaisesRegex(ValueError, "not for 3"):
            choose(3)
        self.assertEqual([choose(n) for n in (3, 4, 5)], [3, 4, 5])
        with self.assertRaisesRegex(ValueError, "not for -1"):
            choose(-1)
        with self.assertRaises(TypeError):
            choose(3, 4)
        states = {k["key"]: [a["status"] for a in k["alternatives"]] for k in choose.report()["keys"]}
        self.assertEqual(states["True"][0], "failed")
        with self.assertRaisesRegex(tunesmith_runtime.ArgumentError, "no alternatives"):
            tunesmith_runtime.Selector({})

    def test_selectors_nest_and_serve_many_threads(self):
        inner = tunesmith_runtime.Selector({"a": lambda: time.sleep(0.003), "b": lambda: None}, name="inner", rounds=2)
        outer = tunesmith_runtime.Selector({"c": lambda: time.sleep(0.001), "d": inner}, name="outer", rounds=2)

        def work():
            for _ in range(40):
                outer()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # Calls beside each other may decide nothing.
        for selector in (outer, inner):
            while not any(k["decided"] for k in selector.report()["keys"]):
                selector()
        key, nested = outer.report()["keys"][0], inner.report()["keys"][0]
        self.assertEqual((key["decided"], key["children"]), (fastest(key), ["inner ()"]))
        self.assertEqual(nested["decided"], fastest(nested))

    def test_a_call_costs_little(self):
        # A benchmark that prints: no time is asserted.
        self.model.input("x")[:] = self.x
        only = tunesmith_runtime.Selector({"nothing": lambda: None})
        for name, call in [
            ("model(x)", lambda: self.model(self.x)),
            ("invoke()", self.model.invoke),
            ("a selector of one callable", only),
        ]:
            taken = []
            for _ in range(2000):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
            print(f"{name}: {1e6 * np.median(taken):.1f} us")


if __name__ == "__main__":
    unittest.main()
