"""One engine in one process. Reads commands from standard input, a JSON list each; answers with a JSON value on a line.

usage: worker.py ENGINE MODEL THREADS INPUTS.npz
commands: ["load"] seconds to load or compile; ["first"] seconds of the first run; ["run", seconds, least, clock] latencies
          by a function of the module time; ["memory"] peak resident bytes, over those at the start; ["exit"]
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def peak() -> int:
    """Peak resident bytes of this process (getrusage also counts the parent's before exec)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


class Sardonyx:
    def __init__(self, model: str, threads: int):
        import sardonyx

        self.load = lambda: setattr(self, "model", sardonyx.compile(model, threads=threads))

    def prepare(self, feed: dict) -> None:
        self.run = lambda: self.model.run(feed)


class OnnxRuntime:
    def __init__(self, model: str, threads: int):
        # Telemetry is off, so that its thread does not disturb the measurement.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.load = lambda: setattr(
            self, "session", onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        )

    def prepare(self, feed: dict) -> None:
        self.run = lambda: self.session.run(None, feed)


class OpenVino:
    """Compiled for the sizes of the inputs, in float32: by default it computes in bfloat16 where the CPU can."""

    def __init__(self, model: str, threads: int):
        import openvino

        self.core = openvino.Core()
        self.path = model
        self.options = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
        }

    def load(self) -> None:
        self.model = self.core.read_model(self.path)

    def prepare(self, feed: dict) -> None:
        names = {name for port in self.model.inputs for name in port.get_names()}
        feed = {name: array for name, array in feed.items() if name in names}
        self.model.reshape({name: list(array.shape) for name, array in feed.items()})
        request = self.core.compile_model(self.model, "CPU", self.options).create_infer_request()
        self.run = lambda: request.infer(feed, share_inputs=True, share_outputs=True)


ENGINES = {"sardonyx": Sardonyx, "onnxruntime": OnnxRuntime, "openvino": OpenVino}


def main() -> None:
    engine, model, threads, inputs = sys.argv[1:]
    feed = dict(np.load(inputs))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not be read as an answer
    before = peak()
    runner = ENGINES[engine](model, int(threads))
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        start = time.perf_counter()
        if command == "load":
            runner.load()
            runner.prepare(feed)
            answer = time.perf_counter() - start
        elif command == "first":
            runner.run()
            answer = time.perf_counter() - start
        elif command == "run":
            seconds, least, name = arguments
            clock = getattr(time, name)
            answer = []
            while len(answer) < least or time.perf_counter() - start < seconds:
                begin = clock()
                runner.run()
                answer.append(clock() - begin)
        elif command == "memory":
            answer = peak() - before
        else:
            return
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
