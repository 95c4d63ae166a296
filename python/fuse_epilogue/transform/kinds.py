"""Every kind of kernel for a target, in the order in which a function is offered to them.

A kind yields candidates: none for a function that is not of its kind, else the one that it predicts
to be the fastest, and after it others that are worth a measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any

from tvm import relax, s_tir, tirx
from tvm.s_tir import dlight
from tvm.target import Target

from ..kernels.cpu import (
    attention,
    contraction,
    elementwise,
    recurrence,
    row_program,
    scan,
    stream,
    symbolic_rows,
)
from ..kernels.cuda import stream as gpu_stream
from ..kernels.scheduled import Scheduled, Way
from ..planner import plan
from ..planner.backends import CPU, GPU, Backend
from ..planner.explanation.compare import point
from ..planner.machines.cpu import cpu
from ..planner.machines.gpu import gpu
from ..planner.problems.cpu import find_conv
from ..planner.problems.problem import Problem
from ..planner.problems.request import Request
from ..planner.search.search import Candidate
from ..recognize.independent_axes import has_symbolic_sizes
from ..recognize.recurrence import read_layer
from ..recognize.scan import read_scan
from ..recognize.stages import Program, read_program
from ..rewrites.branches import with_branches
from ..tir.walk import parts_of

#: The kind of a function that nothing schedules: TVM's default.
DEFAULT = "default"
#: The kind of a function that only changes a shape: Relax makes a view of it.
VIEW = "view"
#: Points of a plan that are worth a measurement.
_POINTS = 4


@dataclass(frozen=True)
class Work:
    """A function to schedule.

    - `func`: not scheduled.
    - `target`: target of kind "llvm" or "cuda".
    - `threads`: number of threads that parallel loops are made for.
    - `constants`: indices of the parameters that are constants at every call.
    - `winograd`: whether convolutions may be computed by Winograd's algorithms, which round
      otherwise.
    """

    func: tirx.PrimFunc
    target: Target
    threads: int
    constants: frozenset[int]
    winograd: bool = False

    @cached_property
    def program(self) -> Program | None:
        """The function as stages, None if it cannot be read so."""
        return read_program(with_branches(self.func))


Kind = Callable[[Work], Iterator[Scheduled]]


def candidates(work: Work) -> Iterator[Scheduled]:
    """Yield ways to schedule a function: by the first kind that knows it first."""
    for kind in kinds_for(work.target):
        yield from kind(work)


def kinds_for(target: Target) -> tuple[Kind, ...]:
    """Return the kinds of kernels for a target."""
    return ON_GPU if target.kind.name == "cuda" else ON_CPU


def _view(work: Work) -> Iterator[Scheduled]:
    if relax.analysis.has_reshape_pattern(work.func):
        yield Scheduled(work.func, VIEW)


def _kernel(ways: Callable[[Program, Target, int], Iterable[Scheduled | None]]) -> Kind:
    """Return a kind of kernel that is written from what is read of a function."""

    def found(work: Work) -> Iterator[Scheduled]:
        if work.program is not None:
            yield from filter(None, ways(work.program, work.target, work.threads))

    return found


def _single(schedule: Callable[[Program, Target, int], Scheduled | None]) -> Kind:
    """Return such a kind of which there is one way."""
    return _kernel(lambda *asked: [schedule(*asked)])


def _contraction(work: Work) -> Iterator[Scheduled]:
    if work.program is not None:
        yield from contraction.alternatives(
            work.program, work.target, work.threads, work.constants, work.winograd
        )


def _planned(name: str, backend: Backend = CPU) -> Kind:
    """Return a kind of problem of the planner as a kind of kernel."""
    kind = next(each for each in backend.kinds if each.name == name)

    def found(work: Work) -> Iterator[Scheduled]:
        target = _threaded(work) if backend is CPU else work.target
        try:
            machine = cpu(target) if backend is CPU else gpu(target)
            problem = kind.find(Request(work.func, machine))
            chosen = None if problem is None else plan(work.func, target)
        except ValueError:
            return  # an axis of size 0, no point is feasible, or the planner does not know the GPU
        if problem is None or chosen is None or chosen.kind != name:
            return
        ranked = chosen.found.ranked[:_POINTS]
        described = [_described(each, problem) for each in ranked]
        for place, each in enumerate(ranked):
            func = problem.apply(each.point).mod["main"]
            fusion = "tail" if each.point.get("fusion", 0) else "none"
            others = described[:place] + described[place + 1 :]
            yield Scheduled(func, name, fusion, each.cost, ways=(described[place], *others))

    return found


def _conv(work: Work) -> Iterator[Scheduled]:
    """Yield convolutions along one axis by the planner's kernels.

    Where several results are sums over one window, a contraction loads it once for all of them: it
    comes first if it is predicted to be faster.
    """
    found = list(_planned("conv")(work))
    if found and _shares_windows(work):
        found += islice(_contraction(work), 1)
        found.sort(key=lambda each: each.predicted_s)
    yield from found


def _shares_windows(work: Work) -> bool:
    problem = find_conv(Request(work.func, cpu(_threaded(work))))
    return problem is not None and problem.shared > 1


def _threaded(work: Work) -> Target:
    return Target({**_options(work.target), "num-cores": work.threads})


def _described(candidate: Candidate, problem: Problem) -> Way:
    """Return the description of a point of a plan."""
    # What cores save is in the cost already.
    parts = {name: s for name, s in candidate.parts.items() if s > 0.0}
    return Way(point(candidate, problem), candidate.cost, parts)


def _rule(rule: Any) -> Kind:
    """Return a rule of dlight as a kind of kernel; nothing predicts its time."""

    def found(work: Work) -> Iterator[Scheduled]:
        if parts_of(work.func.body, tirx.AssertStmt):
            return  # TVM does not write CUDA for assertions
        try:
            with work.target:
                made = rule.apply(work.func, work.target, False)
        except AssertionError:
            return  # some rules assert what they have not looked at
        for sch in [made] if isinstance(made, s_tir.Schedule) else list(made or ()):
            yield Scheduled(sch.mod["main"], f"dlight {type(rule).__name__}")

    return found


def _stream(work: Work) -> Iterator[Scheduled]:
    """Yield a function with states or packed sequences."""

    def core(func: tirx.PrimFunc) -> Scheduled | None:
        return next(_planned("conv")(replace(work, func=func)), None)

    found = stream.schedule(work.func, work.threads, core)
    if found is not None:
        yield found


def _scan(work: Work) -> Iterator[Scheduled]:
    """Yield running sums and products, which TVM does not write as stages."""
    found = read_scan(work.func) if work.program is None else None
    if found is not None:
        yield scan.schedule(found, work.target, work.threads)


def _sums(work: Work) -> Iterator[Scheduled]:
    """Yield a function with several sums that no kernel computes in one."""
    if has_symbolic_sizes(work.func):
        return

    def part(func: tirx.PrimFunc, constants: frozenset[int]) -> Scheduled | None:
        return next(candidates(replace(work, func=func, constants=constants)), None)

    found = stream.schedule_sums(work.func, part, single=True, constants=work.constants)
    if found is not None:
        yield found


def _recurrence(work: Work) -> Iterator[Scheduled]:
    """Yield a layer of a recurrent network, whose steps are functions of other kinds."""
    layer = read_layer(work.func)
    if layer is None:
        return
    # The steps have one input instead of those of all steps; weights are at the same places.
    fixed = work.constants & frozenset(layer.weight_places())
    step = replace(work, func=layer.step(), constants=fixed)
    # First by kernels one after the other, which have the weights packed.
    found = next(chain(_sums(step), candidates(step)), None)
    if found is not None:
        yield recurrence.schedule(layer, found)


def _symbolic_attention(work: Work) -> Iterator[Scheduled]:
    """Yield attention of symbolic lengths: its kernel has blocks of any number."""
    if not has_symbolic_sizes(work.func):
        return
    program = read_program(with_branches(work.func), symbolic=True)
    found = None if program is None else attention.schedule(program, work.target, work.threads)
    if found is not None:
        yield found


def _symbolic_rows(work: Work) -> Iterator[Scheduled]:
    """Yield a function of symbolic sizes by kernels for constant numbers of its rows."""

    def part(func: tirx.PrimFunc, threads: int, constants: frozenset[int]) -> Scheduled | None:
        alone = replace(work, func=func, threads=threads, constants=constants)
        # The rows of a view are copied.
        return next((each for each in candidates(alone) if each.kind != VIEW), None)

    found = symbolic_rows.schedule(work.func, work.target, work.threads, work.constants, part)
    if found is not None:
        yield found


def _gpu_stream(work: Work) -> Iterator[Scheduled]:
    """Yield a function with states or packed sequences, for CUDA."""
    found = gpu_stream.schedule(work.func)
    if found is not None:
        yield found


def streams_on_gpu(work: Work) -> Iterator[Scheduled]:
    """Yield a function on streams, or with several sums, for CUDA."""
    yield from _gpu_stream(work)
    yield from _gpu_sums(work)


def _gpu_elements(work: Work) -> Iterator[Scheduled]:
    """Yield a function of which each element is written out, for CUDA."""
    found = gpu_stream.schedule_elements(work.func)
    if found is not None:
        yield found


def _gpu_sums(work: Work) -> Iterator[Scheduled]:
    """Yield a function with several sums that no kernel for CUDA computes in one."""

    def part(func: tirx.PrimFunc, _constants: frozenset[int]) -> Scheduled | None:
        alone = replace(work, func=func, constants=frozenset())
        return next((each for kind in GPU_PARTS for each in kind(alone)), None)

    found = gpu_stream.schedule_sums(work.func, part)
    if found is not None:
        yield found


def _options(target: Target) -> dict[str, Any]:
    return {**dict(target.attrs), "kind": target.kind.name, "keys": list(target.keys)}


#: For processors. A depthwise convolution comes first: its sums have few terms, each in a channel.
#: The planner's kernels load a row in vectors; a contraction's vectors are across channels.
ON_CPU: tuple[Kind, ...] = (
    _view,
    _recurrence,
    _symbolic_attention,
    _symbolic_rows,
    _scan,
    _stream,
    _conv,
    _single(attention.schedule),
    _contraction,
    _kernel(row_program.alternatives),
    _single(elementwise.schedule),
    _planned("product"),
    _planned("rows"),
    _sums,
)
_GPU_PLANNED: tuple[Kind, ...] = tuple(_planned(kind.name, GPU) for kind in GPU.kinds)
_GPU_RULES: tuple[Kind, ...] = (
    _rule(dlight.gpu.Matmul()),
    _rule(dlight.gpu.GEMV()),
    _rule(dlight.gpu.Reduction()),
    _rule(dlight.gpu.GeneralReduction()),
)
#: The rule that takes any loops.
_GPU_FALLBACK: Kind = _rule(dlight.gpu.Fallback())
#: For CUDA GPUs: the planner's kinds, and dlight's rules for the rest. Sums that no rule takes
#: together are taken one by one.
ON_GPU: tuple[Kind, ...] = (
    _view,
    *_GPU_PLANNED,
    _gpu_stream,
    *_GPU_RULES,
    _gpu_sums,
    _GPU_FALLBACK,
)
#: For one of several sums of a function.
GPU_PARTS: tuple[Kind, ...] = (*_GPU_PLANNED, _gpu_elements, *_GPU_RULES, _GPU_FALLBACK)
