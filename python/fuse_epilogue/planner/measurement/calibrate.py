"""Measures a machine: its clock, bandwidths and times, and the weights of the cost.

    python -m fuse_epilogue calibrate --out FILE
    python -m fuse_epilogue calibrate --out FILE --tracker HOST:PORT --key KEY

A small design of kernels, of every kind and many points each, is compiled and timed; the weights
are those, none of them negative, with which the cost comes closest to the measured times, by their
ratio: a kernel of a microsecond counts for as much as one of a millisecond.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx
from tvm.target import Target

from ... import workloads
from ..._progress import Progress
from ...rewrites.epilogue import NONE, TAIL
from ..machines.cpu import Cpu, Level
from ..machines.system import KIB
from ..problems.cost import Weights
from ..problems.cpu import find_conv, find_product, find_rows
from ..problems.problem import Problem
from ..problems.request import Request
from ..problems.space import Point, Points
from .measure import measure
from .measurement_log import Measure, NotMeasured
from .profile import Profile

#: Points of each kernel of the design, and which part of all, the cheapest, half are drawn from.
POINTS, _GOOD = 40, 20
#: Rounds of the fit; each weighs a kernel by what the round before predicted for it.
_ROUNDS = 30
#: Seconds to measure for at least what all costs are computed with.
_LEAST_S = 0.4
#: How often a kernel is tried that cannot be left out.
_TRIES = 3
#: Bytes of a kernel that reads from memory, at most, and of one that reads from a shared cache.
_LARGE, _SHARED = 64 << 20, 8 << 20


@dataclass(frozen=True)
class Sample:
    """One kernel of the design, measured.

    - `terms`: terms of its cost; the last one negative: see :meth:`.cost.Terms.matrix`.
    """

    name: str
    terms: np.ndarray
    seconds: float


def here(problem: Problem, point: Point, target: Target, least: float = 0.0) -> float:
    """Return how long a point takes on this machine, in seconds; see :func:`.measure.seconds`."""
    return measure(problem, point, target, least).seconds


def calibrate(
    machine: Cpu, target: Target, points: int = POINTS, measure: Measure = here
) -> Profile:
    """Measure a machine and return its profile; progress and what is left go to stderr.

    - `machine`: the plain description of the machine at hand.
    - `target`: the same, for TVM.
    - `points`: points of each kernel of the design.
    - `measure`: what measures a point: on this machine, or :meth:`.remote.Remote.measure`.
    - Raises ModuleNotFoundError: scipy is missing: it is in the extra "plan".
    - Raises NotMeasured: a kernel that describes the machine could not be measured, three times.
    """
    solver()
    machine = described(machine, target, measure)
    design = list(_design(machine, points))
    samples, failed, progress = [], 0, Progress()
    for done, (name, problem, point) in enumerate(design):
        progress.show("calibrating", done, len(design), name)
        terms = problem.cost(Points.of([point])).matrix()[0]
        try:
            samples.append(Sample(name, terms, measure(problem, point, target, 0.0)))
        except NotMeasured as error:
            failed += 1
            _say(f"\nleft out: {error}")
    progress.show("calibrating", len(design), len(design), f"{failed} left out" * bool(failed))
    return fitted(machine, samples)


def fitted(machine: Cpu, samples: Sequence[Sample]) -> Profile:
    """Return the profile with the weights that fit measurements best.

    - `machine`: with which the terms were computed.
    - `samples`: at least one for each weight.
    - Raises ValueError: there are too few samples.
    """
    nnls = solver()
    terms = np.array([sample.terms for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    if len(samples) < 4:
        raise ValueError(f"four weights need at least four samples, not {len(samples)}")
    # What counts of the traffic is what computing does not hide, so it may not weigh more than
    # computing does: else computing more would cost less. Nor do cores save more than that. With
    # beta = alpha + more and delta = beta - lost, all that is fitted is 0 or more.
    columns = terms.copy()
    columns[:, 1] += terms[:, 3]
    columns[:, 0] += columns[:, 1]
    columns[:, 3] *= -1
    predicted = seconds
    for _ in range(_ROUNDS):
        # The squares of (predicted - measured) / sqrt(predicted * measured): near enough those of
        # the logarithm of the ratio, and linear in the weights from round to round.
        scale = 1 / np.sqrt(np.maximum(predicted, seconds / 20) * seconds)
        solution, _ = nnls(columns * scale[:, None], seconds * scale)
        predicted = columns @ solution
    alpha, more, gamma, lost = (float(weight) for weight in solution)
    weights = Weights(alpha, alpha + more, gamma, max(0.0, alpha + more - lost))
    predicted = terms @ np.array([weights.alpha, weights.beta, weights.gamma, weights.delta])
    ratios = np.log(seconds / np.maximum(predicted, 1e-12))
    names = [sample.name for sample in samples]
    return Profile(machine, weights, tuple(zip(names, map(float, ratios), strict=True)))


def described(machine: Cpu, target: Target, measure: Measure = here) -> Cpu:
    """Return a machine with its clock, bandwidths and times as measured."""
    measure = _patient(measure)
    base = {"fusion": NONE, "rows": 1, "vectors": 1, "lanes": 1, "unroll": 4, "threads": 1}
    widest = machine.lanes(32)

    def reduction(m: int, n: int, **changed: int) -> float:
        problem = find_rows(Request(workloads.row_reduce(m, n), machine))
        assert problem is not None
        return measure(problem, {**base, **changed}, target, _LEAST_S)

    def product(m: int, n: int, k: int, **changed: int) -> float:
        """Return the seconds of a product on one core, in vectors of all lanes."""
        problem = find_product(Request(workloads.matmul(m, n, k), machine))
        assert problem is not None
        same = {"fusion": TAIL, "lanes": widest, "unroll": 1, "order": 0, "pack": 0, "threads": 1}
        return measure(problem, {**same, **changed}, target, _LEAST_S)

    call = reduction(1, 4)
    # One number after the other: each addition waits for the one before.
    chain = reduction(8, 1024) - call
    clock = machine.core.add_latency * 8 * 1024 / chain
    launch = machine.launch_s
    if machine.cores > 1:
        both = (reduction(8, 1024, threads=t) for t in (machine.cores, 1))
        parallel, serial = both
        launch = max(1e-7, parallel - serial / min(8, machine.cores))
    machine = replace(machine, clock_hz=clock, call_s=call, launch_s=launch)
    levels = list(machine.levels)
    for place, behind in enumerate(levels[1:], 1):
        size = _between(levels[place - 1], behind)
        rows = max(machine.cores, size // (16 * KIB))
        read = {
            threads: reduction(rows, 4 * KIB, vectors=4, lanes=widest, threads=threads) - call
            for threads in {1, machine.cores}
        }
        stream = rows * 16 * KIB / max(read[1], 1e-9)
        levels[place] = replace(
            behind,
            bytes_per_s=stream,
            alone_per_s=min(stream, _in_turns(size, machine, product))
            if place == 1
            else min(stream, _crowded(size, stream, machine, product)),
            at_once=min(max(1.0, read[1] / read[machine.cores]), float(machine.cores)),
        )
    return replace(machine, levels=tuple(levels))


def _in_turns(size: int, machine: Cpu, product: Callable[..., float]) -> float:
    """Return bytes a second into the first cache, where eight instructions take turns on lines.

    Each is a row of 8 vectors, of which a product computes one row of a.
    """
    width = 8 * machine.lanes(32)
    k, rows = size // (4 * width), 64
    whole = {"block_rows": rows, "block_columns": width}
    return rows * size / product(rows, width, k, rows=1, vectors=8, **whole)


def _crowded(size: int, stream: float, machine: Cpu, product: Callable[..., float]) -> float:
    """Return bytes a second of lines that are stored, a row of 4 KiB after the other.

    A product of few steps stores a column of lines; what it writes back is taken off.
    """
    columns = KIB
    rows = size // (4 * columns)
    tile = {"rows": 16, "vectors": 1, "block_rows": 256, "block_columns": machine.line // 4}
    took = product(rows, columns, 8, **tile)
    return size / max(took - size / stream, took / 10)


def _patient(measure: Measure) -> Measure:
    """Return what measures a point that cannot be left out: it tries again."""

    def again(problem: Problem, point: Point, target: Target, least: float) -> float:
        for _ in range(_TRIES - 1):
            try:
                return measure(problem, point, target, least)
            except NotMeasured as error:
                _say(f"again: {error}")
        return measure(problem, point, target, least)

    return again


def _between(cache: Level, behind: Level) -> int:
    """Return bytes that do not fit into a cache by far, but into the next level."""
    if not behind.bytes:
        return max(4 * cache.bytes, _LARGE) if cache.bytes < _LARGE else 2 * cache.bytes
    most = behind.bytes // 2
    return min(most, max(_SHARED, 2 * cache.bytes)) if behind.shared else most


def _design(machine: Cpu, points: int) -> Iterator[tuple[str, Problem, Point]]:
    """Return name, problem and point of each kernel that is measured."""
    rng = np.random.default_rng(1)
    for name, func, find in _functions():
        problem = find(Request(func, machine))
        assert problem is not None, name
        feasible, _ = problem.space.feasible()
        order = np.argsort(Weights().cost(problem.cost(feasible)), kind="stable")
        # Half of them are such as a plan may be.
        for among in (order, order[: max(points, len(order) // _GOOD)]):
            for index in rng.choice(among, min(points, len(among)) // 2, replace=False):
                point = feasible.at(int(index))
                yield f"{name}: {problem.space.describe(point)}", problem, point


def _functions() -> Iterator[tuple[str, tirx.PrimFunc, Callable[[Request], Problem | None]]]:
    for m, n, k, kind in (
        (64, 96, 24, "relu"),
        (192, 192, 192, "relu"),
        (384, 768, 16, "silu"),
        (48, 768, 384, None),
    ):
        func = workloads.matmul(m, n, k, activation=kind)
        yield f"product {m} x {n} x {k} {kind or ''}".strip(), func, find_product
    for m, n in ((48, 192), (384, 768), (96, 6144)):
        func = workloads.row_reduce(m, n, bias=True, activation="relu")
        yield f"rows {m} x {n}", func, find_rows
    for rows, columns, taps in ((64, 384, 3), (384, 1536, 5)):
        func = workloads.depthwise_conv1d(4, rows // 4, columns, taps, activation="relu")
        yield f"conv {rows} x {columns}, {taps} taps", func, find_conv


def solver() -> Any:
    """Return what fits the weights: asked for before anything is measured.

    - Raises ModuleNotFoundError: scipy is missing.
    """
    try:
        from scipy.optimize import nnls  # type: ignore[import-untyped,unused-ignore]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("calibration needs scipy: pip install scipy") from error
    return nnls


def _say(text: str) -> None:
    """Print on standard error; where that is closed or full, it is the measurements that count."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr, flush=True)
