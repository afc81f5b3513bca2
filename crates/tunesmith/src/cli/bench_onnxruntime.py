"""Times inferences of an ONNX file by ONNX Runtime, as a parent process asks.

The first line of standard input is a JSON object: the file, the number of threads, and the name,
element type, shape and number of bytes of each input. The bytes of the inputs follow. The answer is one line of
JSON: the version, or why there is none. Then each line asks for inferences, `runs N` or `time SECONDS`, and is
answered by one line with the nanoseconds of each. The end of standard input ends the program.
"""

import json
import sys
import time

LEAST_RUNS = 5


def session(ask, data):
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = ask["threads"]
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(ask["file"], options, providers=["CPUExecutionProvider"])
    feeds = {}
    for tensor in ask["inputs"]:
        array = numpy.frombuffer(data.read(tensor["bytes"]), dtype=tensor["type"])
        feeds[tensor["name"]] = array.reshape(tensor["shape"])
    wanted = {i.name for i in made.get_inputs()}
    feeds = {name: value for name, value in feeds.items() if name in wanted}
    made.run(None, feeds)
    return onnxruntime.__version__, lambda: made.run(None, feeds)


def timed(infer, unit, amount):
    # What ran before took the caches.
    infer()
    samples = []
    begin = time.perf_counter_ns()
    while True:
        runs, since = len(samples), time.perf_counter_ns() - begin
        if unit == "runs" and runs >= int(amount):
            return samples
        if unit == "time" and runs >= LEAST_RUNS and since >= float(amount) * 1e9:
            return samples
        start = time.perf_counter_ns()
        infer()
        samples.append(time.perf_counter_ns() - start)


def main():
    data = sys.stdin.buffer
    ask = json.loads(data.readline())
    try:
        version, infer = session(ask, data)
    except Exception as e:
        print(json.dumps({"error": f"{type(e).__name__}: {e}"}), flush=True)
        return
    print(json.dumps({"version": version}), flush=True)
    for line in data:
        unit, amount = line.decode().split()
        print(*timed(infer, unit, amount), flush=True)


main()
