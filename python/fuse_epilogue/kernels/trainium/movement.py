"""The rule for functions that only move elements: permutations, splits, joins, slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm import s_tir, tirx

from ...neuron.machine import Machine
from ...neuron.trace import ITEMSIZE
from ...rewrites.step import NotRewritten, rewrite
from ..choice import Choice
from .movement_blocks import is_transposition, rewritten
from .read_movement import Pattern, find_moves
from .rule import TransposingRule
from .tiles import best

#: Bytes of a piece below which a transfer's time is that of its pieces, not of its bytes.
_SHORT = 64


class Movement(TransposingRule):
    """Schedules functions that only move elements, of any shapes.

    Reshapes, permutations, splits, concatenations and slices in any combination, with several
    results if need be: transfers within HBM, or through the tensor engine what would go element by
    element. On trn1 that engine spoils elements beside infinities and NaN.

    Parameters
    ----------
    finite : bool
        Everything that is transposed is finite; needed on trn1 only.

    Example
    -------
    >>> from tvm import te, topi
    >>> from fuse_epilogue import neuron, schedules
    >>> x = te.placeholder((64, 128), "float32")
    >>> heads = topi.transpose(topi.reshape(x, (64, 4, 32)), (1, 0, 2))
    >>> func = te.create_prim_func([x, heads])
    >>> kernel = neuron.emit(schedules.neuron.Movement().apply(func, "trn2"))
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            patterns = find_moves(func)
            types = {str(param.ty.dtype) for param in func.params}
        except NotRewritten as error:
            return Choice("", str(error))
        if not types <= set(ITEMSIZE):
            return Choice("", f"kernels have no tensors of {', '.join(types - set(ITEMSIZE))}")
        refused = self._refused(core)
        choice = best(core, _candidates(func, patterns, refused is None))
        short = [each for each in patterns if _bytes(each) < _SHORT <= each.elements]
        if choice.schedule is None or choice.form != _TRANSFERS or not short:
            return choice
        why = f"it moves pieces of {min(map(_bytes, short))} bytes one by one, which is slow"
        if refused is not None and any(map(is_transposition, short)):
            why = f"{why}; {refused.why}"
        return replace(choice, why=why)


_TRANSFERS = "transfers within HBM"


def _bytes(pattern: Pattern) -> int:
    return pattern.run * ITEMSIZE[str(pattern.output.ty.dtype)]


def _candidates(
    func: tirx.PrimFunc, patterns: tuple[Pattern, ...], may_transpose: bool
) -> Iterator[tuple[str, s_tir.Schedule]]:
    yield _TRANSFERS, scheduled(func, transposed=False)
    if may_transpose and any(map(is_transposition, patterns)):
        yield "transpositions by the tensor engine", scheduled(func, transposed=True)


def scheduled(func: tirx.PrimFunc, transposed: bool) -> s_tir.Schedule:
    """Schedule a function that moves elements, for :func:`fuse_epilogue.neuron.emit`."""
    sch = s_tir.Schedule(func)
    rewrite(sch, sch.get_sblock("root"), "neuron_movement", transposed=transposed)
    return sch


def moved(func: tirx.PrimFunc, transposed: bool) -> tirx.PrimFunc:
    """Rewrite a function that moves elements: what the step "neuron_movement" does."""
    return rewritten(func, find_moves(func), transposed)
