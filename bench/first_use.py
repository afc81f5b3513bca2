"""From `pip install` to the first inference: `python3 bench/first_use.py MODEL.onnx`, after `scripts/wheels`.

Each runtime gets a new environment with NumPy. Installing from wheels that are here already is timed, and then a program that loads the model
and runs it once. The lines of that program are counted. Runtimes take turns, and medians are printed.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAMS = {
    "tunesmith": """
import numpy as np
import tunesmith
model = tunesmith.compile(MODEL)
print(model(np.ones(model.inputs[0].shape, np.float32)).shape)
""",
    "onnxruntime": """
import numpy as np
import onnxruntime
session = onnxruntime.InferenceSession(MODEL)
x = session.get_inputs()[0]
print(session.run(None, {x.name: np.ones(x.shape, np.float32)})[0].shape)
""",
    "openvino": """
import numpy as np
import openvino
model = openvino.compile_model(MODEL)
print(model(np.ones(model.inputs[0].shape, np.float32))[0].shape)
""",
}


def timed(*command: str | Path) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def pip(python: Path | str, command: str, *arguments: str | Path) -> float:
    return timed(python, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments)


def first_use(name: str, folder: Path, wheels: Path, model: str) -> tuple[float, float]:
    """Seconds to install `name`, and from the start of its program to its end."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python, offline = folder / "bin/python", ["--no-index", "--find-links", wheels]
    pip(python, "install", *offline, "numpy")
    installed = pip(python, "install", *offline, name)
    program = PROGRAMS[name].replace("MODEL", repr(model))
    return installed, timed(python, "-c", program)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="an ONNX file with one input of f32")
    parser.add_argument("--rounds", type=int, default=3)
    a = parser.parse_args()
    work = ROOT / "target/first-use"
    wheels = work / "wheels"
    pip(sys.executable, "download", "--dest", wheels, "numpy", "onnxruntime", "openvino")
    for wheel in (ROOT / "target/wheels").glob("*.whl"):
        shutil.copy(wheel, wheels)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
    for _ in range(a.rounds):
        for name, times in taken.items():
            times.append(first_use(name, work / "environment", wheels, a.model))
    print("| runtime | lines | pip install, s | first inference, s |\n|---|---|---|---|")
    for name, times in taken.items():
        installed, ran = (statistics.median(column) for column in zip(*times))
        print(f"| {name} | {len(PROGRAMS[name].split(chr(10))) - 2} | {installed:.1f} | {ran:.2f} |")


if __name__ == "__main__":
    main()
