"""The kinds of kernels for processors, in the order in which a function is offered to them."""

from __future__ import annotations

from collections.abc import Callable

from tvm.target import Target

from ...recognize.stages import Program
from ..scheduled import Scheduled
from . import attention, contraction, elementwise, row_program

Kind = Callable[[Program, Target, int, frozenset[int]], Scheduled | None]

#: Each returns None for a function that is not of its kind.
KINDS: tuple[Kind, ...] = (
    attention.schedule,
    contraction.schedule,
    row_program.schedule,
    elementwise.schedule,
)


def schedule(
    program: Program, target: Target, threads: int = 1, constants: frozenset[int] = frozenset()
) -> Scheduled | None:
    """Schedule a function by the first kind that knows it.

    Parameters
    ----------
    program : Program
    target : tvm.target.Target
        Of kind "llvm".
    threads : int
        Number of threads that parallel loops are made for.
    constants : frozenset[int]
        Indices of the parameters that are constants at every call, which a kernel may have packed.

    Returns
    -------
    Scheduled or None
        None if no kind knows the function.
    """
    for kind in KINDS:
        scheduled = kind(program, target, threads, constants)
        if scheduled is not None:
            return scheduled
    return None
