"""Measures points: compiles a schedule, and times it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import tvm
from tvm import s_tir, tirx
from tvm.target import Target

from ...kernels.cpu.for_llvm import for_llvm
from ..problems.problem import Problem
from ..problems.space import Point

Key = TypeVar("Key")

#: What data are made of.
_VALUES = np.array([-3, -2, -1, 1, 2, 3], "float32")
#: Seconds that a sample takes about, and samples of which the shortest counts.
SAMPLE_S, SAMPLES = 2e-3, 7
#: Bytes of a page of memory, and of a line of it.
_PAGE, _LINE = 4096, 64
#: Bytes that copies of a function's arrays take, at most.
_COPIES = 1 << 29


@dataclass(frozen=True)
class Measured:
    """A point and how long it took.

    - `seconds`: the shortest sample: whatever else the machine does makes one longer, never
      shorter.
    """

    point: Point
    seconds: float


def build(problem: Problem, point: Point, target: Target) -> Any:
    """Return the compiled function for a point; exp and sigmoid are computed in vectors.

    - Returns: called with a tensor for each parameter.
    """
    return compiled(problem.apply(point), target)


def compiled(sch: s_tir.Schedule, target: Target) -> Any:
    """Return what is scheduled as "main", compiled for a processor."""
    func = for_llvm(sch.mod["main"])
    return tvm.compile(func.with_attr("tirx.is_scheduled", True), target=target)


def compiled_for_gpu(sch: s_tir.Schedule, target: Target) -> Any:
    """Return what is scheduled as "main", compiled for a GPU.

    - Raises RuntimeError: this TVM has no CUDA: it would make something that cannot be called.
    """
    need_cuda()
    return tvm.compile(sch.mod["main"].with_attr("tirx.is_scheduled", True), target=target)


def need_cuda() -> None:
    """Return if this TVM has CUDA.

    - Raises RuntimeError: this TVM has no CUDA: it would make something that cannot be called.
    """
    if not tvm.runtime.enabled("cuda"):
        raise RuntimeError(
            "this TVM is built without CUDA: planning and plan.apply(func) need none, but to "
            "compile take a TVM with CUDA, and nvcc or cuda-bindings"
        )


def arguments(func: tirx.PrimFunc) -> list[Any]:
    """Return a tensor for each parameter of a function: small integers, as values of its type.

    Sums of them are exact in float32, in any order. None is 0: a function may divide by them. A
    parameter that is a number is 2.
    """
    rng = np.random.default_rng(0)
    made: list[Any] = []
    for param in func.params:
        if not hasattr(param.ty, "shape"):
            made.append(2.0 if "float" in str(param.ty.dtype) else 2)
            continue
        shape = [int(extent) for extent in param.ty.shape]
        values = rng.choice(_VALUES, shape)
        dtype = str(param.ty.dtype)
        made.append(tvm.runtime.tensor(values.astype(_numpy(dtype))))
    return made


def places(tensors: Sequence[Any], count: int) -> list[list[Any]]:
    """Return tensors and copies of them elsewhere in memory, each at a random line of a page.

    Which lines of a page two arrays have in common decides which of their loads and stores are in
    each other's way, and which pages they have, what drives what out of a cache. So what is
    compared at one place is true of that place only.

    - `tensors`: numbers stay as they are.
    - `count`: places, the one they are at included. There are fewer where the copies would take
      more than 512 MiB: the caches do not hold such arrays anyway.
    """
    size = sum(t.numpy().nbytes for t in tensors if isinstance(t, tvm.runtime.Tensor))
    copies = min(count - 1, _COPIES // max(size, 1))
    return [list(tensors), *(_copied(tensors, seed) for seed in range(copies))]


def _copied(tensors: Sequence[Any], seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    copies: list[Any] = []
    for tensor in tensors:
        if not isinstance(tensor, tvm.runtime.Tensor):
            copies.append(tensor)
            continue
        values = tensor.numpy()
        memory = np.empty(2 * _PAGE + values.nbytes, np.uint8)
        at = -memory.ctypes.data % _PAGE + _LINE * int(rng.integers(_PAGE // _LINE))
        # Of bytes: numpy's bfloat16 does not cross over. Each keeps alive what it is a view of.
        line = tvm.runtime.from_dlpack(memory[at : at + values.nbytes])
        copy = line._create_view(tensor.shape, str(tensor.dtype))
        copies.append(copy.copyfrom(values))
    return copies


def _numpy(dtype: str) -> Any:
    if dtype == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return dtype


def seconds(built: Any, arrays: list[Any], least: float = 0.0) -> float:
    """Return how long a call takes, at best, when the data was used just before.

    - `built`: tvm.runtime.Executable.
    - `least`: seconds to measure for at least.
    """
    timer = built.jit().time_evaluator
    once = _time(timer, arrays, 1, 2)
    number = max(1, round(SAMPLE_S / max(once, 1e-7)))
    samples = max(SAMPLES, int(least / (number * max(once, 1e-7))))
    return _time(timer, arrays, number, samples)


def _time(timer: Any, arrays: list[Any], number: int, repeat: int) -> float:
    return float(min(timer("main", tvm.cpu(), number=number, repeat=repeat)(*arrays).results))


def shares(turns: Mapping[Key, Sequence[float]]) -> dict[Key, float]:
    """Return what each of several things takes of the usual time of a turn, its median.

    A clock that changes from turn to turn changes all of a turn, and cancels; of the shortest times
    one would be that of a lucky moment.

    - `turns`: the seconds of each thing in each turn, as many for all.

    >>> shares({"a": [1.0, 3.0, 1.0], "b": [2.0, 6.0, 4.0], "c": [2.0, 6.0, 2.0]})
    {'a': 0.5, 'b': 1.0, 'c': 1.0}
    """
    values = np.array(list(turns.values()))
    usual = np.median(values / np.median(values, axis=0), axis=1)
    return dict(zip(turns, usual.tolist(), strict=True))


def measure(problem: Problem, point: Point, target: Target, least: float = 0.0) -> Measured:
    """Return how long a point takes; see :func:`seconds`."""
    built = build(problem, point, target)
    return Measured(point, seconds(built, arguments(problem.func), least))
