"""The parties of `models.py`, each run by a process of its own that answers on standard output.

    python benchmarks/model_parties.py PARTY THREADS

Every line of standard input is a request as JSON, every line of standard output an answer: "load"
makes a model ready and saves its result, "time" measures one sample of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

EAGER, COMPILED, ONNX, OURS = "torch eager", "torch.compile", "ONNX Runtime", "ours"
PARTIES = (EAGER, COMPILED, ONNX, OURS)
#: Ours where the caller allows Winograd's algorithms.
WINOGRAD = "ours, Winograd"

#: Seconds that a sample takes about, or one run.
SAMPLE_S = 0.02

Run = Callable[[], Any]


def environment(threads: int) -> dict[str, str]:
    """Return the environment for a party: every library reads its threads from there.

    Threads of OpenMP that wait must not spin: the other parties' turns come next.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS")
    own = {name: str(threads) for name in names}
    return {**os.environ, **own, "KMP_BLOCKTIME": "0", "PYTHONWARNINGS": "ignore"}


def of_torch(module: Any, x: Any, threads: int) -> tuple[Run, dict[str, Any]]:
    """The module as it is."""
    return lambda: module(x).numpy(), {}


def of_torch_compile(module: Any, x: Any, threads: int) -> tuple[Run, dict[str, Any]]:
    """The module compiled by torch's default compiler."""
    import torch

    compiled = torch.compile(module)
    return lambda: compiled(x).numpy(), {}


def of_onnx_runtime(module: Any, x: Any, threads: int) -> tuple[Run, dict[str, Any]]:
    """The module exported to ONNX, with all of ONNX Runtime's optimizations."""
    import contextlib
    import io

    import onnxruntime
    import torch

    with contextlib.redirect_stdout(sys.stderr):
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(
        file.getvalue(), options, providers=["CPUExecutionProvider"]
    )
    inputs = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, inputs)[0], {}


def of_us(module: Any, x: Any, threads: int, winograd: bool = False) -> tuple[Run, dict[str, Any]]:
    """The module compiled by this package; called as a user calls it, with torch's tensors."""
    import fuse_epilogue
    from fuse_epilogue.schedules import host

    begin = time.perf_counter()
    compiled = fuse_epilogue.compile(module, host(threads), example_inputs=(x,), winograd=winograd)
    seconds = time.perf_counter() - begin
    report = json.loads(compiled.profile(x).to_json())
    return lambda: compiled(x).numpy(), {"compile_s": round(seconds, 2), "report": report}


MAKERS: dict[str, Callable[..., tuple[Run, dict[str, Any]]]] = {
    EAGER: of_torch,
    COMPILED: of_torch_compile,
    ONNX: of_onnx_runtime,
    OURS: of_us,
    WINOGRAD: partial(of_us, winograd=True),
}


def count_of(run: Run) -> int:
    """Return how many runs make a sample."""
    run()
    begin = time.perf_counter()
    run()
    return max(1, round(SAMPLE_S / (time.perf_counter() - begin)))


def sample(run: Run, count: int) -> dict[str, float]:
    """Return the seconds of one run, by the clock and of all threads on their processors."""
    run()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        run()
    passed, used = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall_s": passed / count, "cpu_s": used / count}


def model_of(name: str) -> Any:
    """Return the model of a name; transformers is imported for its own only."""
    from models_torch import MODELS

    if name in MODELS:
        return MODELS[name]
    from models_transformers import ARCHITECTURES

    return ARCHITECTURES[name]


def load(party: str, threads: int, request: dict[str, Any]) -> tuple[Run, dict[str, Any]]:
    """Make a model ready, run it, and save its result."""
    module, x = model_of(request["model"]).build(small=request["small"])
    run, facts = MAKERS[party](module, x, threads)
    np.save(request["result"], run())
    return run, facts


def serve(load: Callable[[str, int, dict[str, Any]], tuple[Run, dict[str, Any]]]) -> None:
    """Answer requests until standard input ends; `load` makes what is asked for ready."""
    party, threads = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be between the answers
    import torch

    torch.set_num_threads(threads)
    run: Run | None = None
    count = 1
    with torch.inference_mode():
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, Any]
            try:
                if request["do"] == "load":
                    run, answer = load(party, threads, request)
                    count = count_of(run)
                else:
                    assert run is not None, "nothing is loaded"
                    answer = sample(run, count)
            except Exception as error:  # noqa: BLE001 - it is the answer
                answer = {"error": f"{type(error).__name__}: {str(error).strip()[:300]}"}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(load)
