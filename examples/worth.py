"""Compile the layer of the demo in several ways, and time them: what schedules and fusion gain.

- TVM's default pipeline: every function keeps the loops it was lowered to.
- Our schedules without fusion: every operator is a function of its own.
- Our schedules with fusion: ``fuse_epilogue.compile``.
- torch in eager mode, where it is installed.

All run on one thread, with the same weights as constants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax
from tvm.target import Target

import checking
import fuse_epilogue
import layer
from fuse_epilogue.models import pipeline
from fuse_epilogue.schedules import host
from fuse_epilogue.transform import ScheduleModule

SAMPLE_S = 0.01  # a sample repeats a version until it takes about this long
FUSING = ("FuseOps", "FuseTIR")


@dataclass(frozen=True)
class Version:
    """The layer, compiled in one way.

    Attributes
    ----------
    name : str
    run : Callable
        Maps the input to the result, both in the arrays of its library.
    x : Any
        The input.
    functions : int or None
        Number of functions that a run calls; None if it is not known.
    """

    name: str
    run: Callable[[Any], Any]
    x: Any
    functions: int | None = None


def with_weights(shape: layer.Shape, weights: Sequence[np.ndarray]) -> tvm.IRModule:
    """Return the layer with its weights as constants."""
    mod = layer.exported(shape)
    names = [str(param.name) for param in mod["main"].params[1:]]
    bound = {name: tvm.runtime.tensor(a) for name, a in zip(names, weights, strict=True)}
    return relax.transform.BindParams("main", bound)(mod)


def versions(shape: layer.Shape, inputs: Sequence[np.ndarray]) -> list[Version]:
    """Compile the layer in all ways that are possible here."""
    x, *weights = inputs
    mod, target = with_weights(shape, weights), host(1)
    compiled = fuse_epilogue.compile(mod, target, threads=1)
    tensor = tvm.runtime.tensor(x)
    found = [
        by_default(mod, target, tensor),
        without_fusion(mod, target, tensor),
        Version("our schedules, fused", compiled, tensor, len(compiled.report.functions)),
    ]
    in_torch = by_torch(x, weights)
    return [*found, in_torch] if in_torch else found


def by_default(mod: tvm.IRModule, target: Target, x: Any) -> Version:
    """Compile by TVM's default pipeline."""
    lowered = relax.get_pipeline("zero")(mod)
    called = len(list(layer.calls(lowered["main"])))
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    return Version("TVM's default pipeline", machine["main"], x, called)


def without_fusion(mod: tvm.IRModule, target: Target, x: Any) -> Version:
    """Compile by our pipeline without the passes that put operators into one function."""
    passes = [each for each in pipeline.function_passes() if each.info.name not in FUSING]
    with target:
        lowered = ir.transform.Sequential([*pipeline.graph_passes(), *passes])(mod)
        lowered = relax.transform.RewriteDataflowReshape()(lowered)
        lowered = relax.transform.DeadCodeElimination()(lowered)
        scheduled = ScheduleModule(target, threads=1)(lowered)
    called = len(list(layer.calls(scheduled["main"])))
    last = ir.transform.Sequential(pipeline.machine_passes())
    built = tvm.compile(scheduled, target=target, relax_pipeline=last)
    machine = relax.VirtualMachine(built, tvm.cpu())
    return Version("our schedules, unfused", machine["main"], x, called)


def by_torch(x: np.ndarray, weights: Sequence[np.ndarray]) -> Version | None:
    """Return the layer as torch computes it; None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    functional = torch.nn.functional
    conv, conv_bias, norm, up, up_bias, down, down_bias = map(torch.from_numpy, weights)

    def run(x: Any) -> Any:
        with torch.inference_mode():
            half, groups = layer.TAPS // 2, conv.shape[0]
            y = functional.conv1d(x, conv, conv_bias.reshape(-1), padding=half, groups=groups)
            mixed = functional.silu(y).permute(0, 2, 1)
            scaled = functional.rms_norm(mixed, norm.shape, norm, layer.EPSILON)
            hidden = functional.relu(functional.linear(scaled, up, up_bias))
            mixed = functional.linear(hidden, down, down_bias) + mixed
            pooled = functional.max_pool1d(mixed.permute(0, 2, 1), layer.WINDOW)
            return torch.softmax(functional.relu(pooled), dim=-1)

    return Version(f"torch {torch.__version__.partition('+')[0]}, eager", run, torch.from_numpy(x))


def errors(compiled: Sequence[Version], inputs: Sequence[np.ndarray]) -> list[float]:
    """Return the error of each version against numpy, as a part of the largest value."""
    expected = layer.whole_layer(*(array.astype("float64") for array in inputs))
    return [checking.distance(each.name, each.run(each.x).numpy(), expected) for each in compiled]


def times(compiled: Sequence[Version], rounds: int) -> list[float]:
    """Return the best time of each version, in seconds of the calling thread.

    The versions are timed in turns, so that whatever else the machine does falls on all of them.
    """
    counts = [max(1, round(SAMPLE_S / seconds(each, 1))) for each in compiled]
    best = [float("inf")] * len(compiled)
    for _ in range(rounds):
        for place, (each, count) in enumerate(zip(compiled, counts, strict=True)):
            best[place] = min(best[place], seconds(each, count))
    return best


def seconds(version: Version, count: int) -> float:
    """Return the mean time of some runs, after one that is not timed."""
    version.run(version.x)
    begin = time.thread_time()
    for _ in range(count):
        version.run(version.x)
    return (time.thread_time() - begin) / count
