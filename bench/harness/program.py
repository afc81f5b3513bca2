"""The `tunesmith` program: where it is, and the commands the benchmarks call.

Promises that every call either returns what the program printed or raises
`Failure` with the program's own message. Knows the command line only, nothing
of what is inside.
"""

import json
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
OUT = TARGET / "bench"

# Of a failed command's messages: enough for the error, not for a backtrace.
MAX_LINES = 12


class Failure(Exception):
    """What went wrong and what to do, for the user."""


def program():
    """The program to measure: $TUNESMITH, or the release build of this checkout."""
    path = Path(os.environ.get("TUNESMITH") or TARGET / "release" / "tunesmith")
    if not os.access(path, os.X_OK):
        raise Failure(
            f"there is no program {path}: build it with `cargo build --release`, "
            "or name another in $TUNESMITH"
        )
    return path


def call(*args, cpus=None):
    """Runs a command, on `cpus` only if given, and returns its standard output."""
    done = attempt(*args, cpus=cpus)
    if done.returncode != 0:
        raise refusal(args, done)
    return done.stdout


def call_json(*args, cpus=None):
    """`call` of a command that prints one JSON object."""
    return parsed(call(*args, "--json", cpus=cpus), args)


def attempt(*args, cpus=None):
    """Runs a command; what it printed and its exit status."""
    return subprocess.run(
        [program(), *map(str, args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=keeping_to(cpus),
    )


def refusal(args, done):
    """The failure of a command, in the program's words."""
    what = f"status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
    said = " ".join(line.strip(" \t│×") for line in done.stderr.splitlines()[-MAX_LINES:])
    return Failure(f"`tunesmith {args[0]}` ended with {what}: {said.strip() or 'no message'}")


def parsed(output, args):
    try:
        return json.loads(output)
    except ValueError as error:
        raise Failure(f"`tunesmith {args[0]}` did not print JSON: {error}") from error


def keeping_to(cpus):
    """What a child runs before it starts, so that it stays on `cpus`."""
    if not cpus:
        return None
    return lambda: os.sched_setaffinity(0, cpus)


def slug(text):
    """A file name made of a model's name: `op:matmul(m=1)` gives `op_matmul_m_1`."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text).strip("_")


def model_name(model):
    """How reports call a model: the stem of an ONNX file, or the name itself."""
    return Path(model).stem if model.endswith(".onnx") else model


def built_in_models():
    """Names of the built-in models, without the single operators."""
    listed = call_json("models")["models"]
    return [m["name"] for m in listed if not m["name"].startswith("op:")]


def onnx_file(model):
    """The model as an ONNX file: the file itself, or the export of a built-in one."""
    if model.endswith(".onnx"):
        if not Path(model).is_file():
            raise Failure(f"there is no file {model}")
        return Path(model)
    path = OUT / "models" / f"{slug(model)}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    # No export replaces a model.
    path.unlink(missing_ok=True)
    call("models", "export", model, path)
    return path


def artifact_path(model, threads, kind):
    """Where the benchmarks keep a compiled model; `kind` is tuned or default."""
    folder = OUT / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{slug(model_name(model))}.{threads}t.{kind}.tsm"


def kept_store(name):
    """The path of a store of records that stays from run to run."""
    folder = OUT / "stores"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.sqlite"


def fresh_store(name):
    """The path of a store of records that does not exist yet."""
    folder = OUT / "stores"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{name}.sqlite*"):
        old.unlink()
    return folder / f"{name}.sqlite"


def tune(model, threads, time, store=None, shape_args=(), cpus=None):
    """Tunes a model, and keeps the program's JSON beside the tuned model.

    Starts from no records unless a store is given. Returns the JSON and the
    path of the tuned model.
    """
    artifact = artifact_path(model, threads, "tuned")
    # A failed run must not leave the tuned model of an earlier one to be measured.
    artifact.unlink(missing_ok=True)
    store = store or fresh_store(artifact.stem)
    result = call_json(
        "tune", model, "--threads", threads, "--time", time, "--store", store,
        "--out", artifact, *shape_args, cpus=cpus,
    )  # fmt: skip
    artifact.with_suffix(".json").write_text(json.dumps(result, indent=2) + "\n")
    return result, artifact


def compile_default(model, threads, shape_args=()):
    """Compiles a model with the machine's defaults, without records."""
    artifact = artifact_path(model, threads, "default")
    artifact.unlink(missing_ok=True)
    call_json(
        "compile", model, "--defaults", "--threads", threads,
        "--store", fresh_store(artifact.stem), "--out", artifact, *shape_args,
    )  # fmt: skip
    return artifact


def explain(model, artifact, threads, store, seconds, model_args=(), cpus=None):
    """Every layer of a compiled model against its limits; the program's JSON."""
    scaling = ["--scaling"] if threads > 1 else []
    return call_json(
        "explain", model, "--artifact", artifact, "--threads", threads, "--store", store,
        "--time", f"{seconds}s", *scaling, *model_args, cpus=cpus,
    )  # fmt: skip


def check(model, artifact, threads, shape_args=()):
    """Compares a compiled model with the plain references; the program's JSON.

    A difference beyond the tolerance is an answer (`ok` is false), no failure.
    """
    args = (
        "check", model, "--artifact", artifact, "--threads", threads,
        "--store", fresh_store("check"), *shape_args, "--json",
    )  # fmt: skip
    done = attempt(*args)
    if done.returncode != 0 and not done.stdout.strip():
        raise refusal(args, done)
    return parsed(done.stdout, args)


def bench(artifact, threads, seconds, cpus=None, inputs=()):
    """One slice of a compiled model in a process of its own; the program's JSON.

    `inputs` are arguments that give inputs; all others are random.
    """
    return call_json(
        "bench", artifact, "--threads", threads, "--time", f"{seconds}s", *inputs, cpus=cpus
    )


def seconds_of(duration):
    """`90`, `90s`, `3m`, `1h` in seconds, as the program reads durations."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", duration)
    if not match:
        raise Failure(f"`{duration}` is not a duration such as 90s, 3m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
