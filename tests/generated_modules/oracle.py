"""ONNX Runtime as an oracle, in a process of its own: it need not be installed beside TVM.

``python -m generated_modules.oracle`` answers requests on its standard input: it imports neither
TVM nor this project's package.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .spec import Module

#: Names the Python that has ``onnxruntime``, if it is not the one that runs.
PYTHON_VARIABLE = "ORT_PYTHON"


class Unavailable(Exception):
    """ONNX Runtime cannot be used; the message says why."""


class Oracle:
    """ONNX Runtime in another process."""

    def __init__(self, python: str | None = None) -> None:
        """Start the process.

        - `python`: the interpreter that has ``onnxruntime``; otherwise that of the environment's
          ``ORT_PYTHON``, or the one that runs.
        - Raises Unavailable: if it cannot be imported there.
        """
        python = python or os.environ.get(PYTHON_VARIABLE) or sys.executable
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
        environment.pop("LD_PRELOAD", None)
        missing = (
            f"{python} cannot import onnx and onnxruntime: install them, or name with "
            f"{PYTHON_VARIABLE} a Python that has them"
        )
        try:
            self._process = subprocess.Popen(
                [python, "-m", "generated_modules.oracle"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        except OSError as error:
            raise Unavailable(missing) from error
        try:
            self.version = str(self._receive())
        except EOFError as error:
            self.close()
            raise Unavailable(missing) from error

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def run(self, module: Module, arrays: Sequence[np.ndarray]) -> list[np.ndarray] | str:
        """Return the outputs of a module, or why ONNX Runtime cannot compute it."""
        assert self._process.stdin is not None
        pickle.dump((module.to_json(), list(arrays)), self._process.stdin)
        self._process.stdin.flush()
        found: list[np.ndarray] | str = self._receive()
        return found

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until there are no more."""
    import onnxruntime

    from .onnx_graph import graph_of

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4

    def answer(value: Any) -> None:
        pickle.dump(value, answers)
        answers.flush()

    answer(onnxruntime.__version__)
    while True:
        try:
            data, arrays = pickle.load(requests)
        except EOFError:
            return
        try:
            text = graph_of(Module.from_json(data)).SerializeToString()
            session = onnxruntime.InferenceSession(
                text, options, providers=["CPUExecutionProvider"]
            )
            feeds = {
                each.name: arrays[int(each.name.removeprefix("p"))] for each in session.get_inputs()
            }
            answer(session.run(None, feeds))
        except NotImplementedError as error:
            answer(f"no operator: {error}")
        except Exception as error:
            answer(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
