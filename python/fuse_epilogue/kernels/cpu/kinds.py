"""The kinds of kernels for processors that are written from what `recognize` has read, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tvm.target import Target

from ...recognize.stages import Program
from ..scheduled import Scheduled
from . import attention, contraction, elementwise, row_program

#: Takes a program, a target of kind "llvm", a number of threads that parallel loops are made for,
#: the indices of the parameters that are constants at every call, and whether Winograd's algorithms
#: are allowed. Yields nothing for a function that is not of its kind; else the way that it predicts
#: to be the fastest, and further ones.
Kind = Callable[[Program, Target, int, frozenset[int], bool], Iterator[Scheduled]]


def _on_threads(ways: Callable[[Program, Target, int], Iterator[Scheduled]]) -> Kind:
    """Return a kind for which neither constants nor Winograd's algorithms make a difference."""
    return lambda program, target, threads, _constants, _winograd: ways(program, target, threads)


def _single(schedule: Callable[[Program, Target, int], Scheduled | None]) -> Kind:
    """Return a kind of which there is one way."""
    return _on_threads(lambda *asked: filter(None, [schedule(*asked)]))


KINDS: tuple[Kind, ...] = (
    _single(attention.schedule),
    contraction.alternatives,
    _on_threads(row_program.alternatives),
    _single(elementwise.schedule),
)
