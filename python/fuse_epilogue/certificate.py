"""The proof of a fusion, as a record that can be checked without trusting the prover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from ._arguments import Numerics
from ._printed import Printed, as_line, element, quoted


@dataclass(frozen=True, repr=False)
class EpilogueProof(Printed):
    """One epilogue that was fused.

    Attributes
    ----------
    name : str
        The block's name, before the call.
    axes : tuple[tvm.ir.Var, ...]
        Its axes v, before the call.
    h : tuple[tvm.ir.Expr, ...]
        Each axis as a function of the reduction's spatial axes: v = h(s), one to one.
    loops : tuple[tvm.ir.Var, ...]
        The loops around the block, before this epilogue was fused.
    inverse : tuple[tvm.ir.Expr, ...]
        Each of these loops as a function of the axes: different iterations run different instances.
    """

    name: str
    axes: tuple[Any, ...]
    h: tuple[Any, ...]
    loops: tuple[Any, ...]
    inverse: tuple[Any, ...]

    def __str__(self) -> str:
        """Return each axis as a function of the reduction's."""
        pairs = zip(self.axes, self.h, strict=True)
        axes = ", ".join(f"{axis.name} = {as_line(value)}" for axis, value in pairs)
        return f"'{self.name}' at {axes}"


@dataclass(frozen=True, repr=False)
class TailProof(Printed):
    """One tail that the call left after the reduction loops.

    Attributes
    ----------
    name : str
        The block's name, after the call; that of the epilogue it comes from.
    output : tvm.ir.Var
        The buffer it stores to.
    indices : tuple[tvm.ir.Expr, ...]
        The element, in the reduction's spatial axes s.
    value : tvm.ir.Expr
        The stored value, in s; the finished element is a load of the certificate's ``result``.
    """

    name: str
    output: Any
    indices: tuple[Any, ...]
    value: Any

    def __str__(self) -> str:
        """Return what is stored."""
        return f"'{self.name}': {element(self.output, self.indices)} = {as_line(self.value)}"


@dataclass(frozen=True, repr=False)
class Certificate(Printed):
    """The claims of one call of ``fuse_reduction_epilogue``.

    All expressions are TVM's, in the variables of the function before the call: s are the spatial
    and r the reduction axes of the reduction block. :func:`fuse_epilogue.verify.check` proves the
    claims again from the functions before and after.

    Attributes
    ----------
    numerics : str
        ``"exact"`` or ``"reassociate"``, as the call asked for.
    reassociates : bool
        Whether floating operations of the reduction really run in another order.
    reduction : str
        The name of the reduction block.
    monoid, monoid_after : str
        Name of the combiner before and after, such as ``"sum"``, ``"max"`` or ``"logical and"``.
    accumulator : tvm.ir.Var
        The buffer the reduction accumulates in before.
    indices : tuple[tvm.ir.Expr, ...]
        The element I(s) of it.
    result : tvm.ir.Var
        The buffer it accumulates in after.
    result_indices : tuple[tvm.ir.Expr, ...]
        The element of it, in s.
    hole : tvm.ir.Var
        x, of the accumulator's type.
    absorbed, distributed : tvm.ir.Expr
        F(x) and H(x): the reduction starts from F(init) and combines H(t) for every term t.
    init : tvm.ir.Expr
        The value that T.init stores after the call.
    loops : tuple[tvm.ir.Var, ...]
        The loops around the reduction before the call.
    inverse : tuple[tvm.ir.Expr, ...]
        Each of these loops as a function of s and r.
    epilogues : tuple[EpilogueProof, ...]
        In the order in which they were fused.
    tails : tuple[TailProof, ...]
        The tails that are left of them, in program order.
    removed : tuple[tvm.ir.Var, ...]
        The buffers that are gone.
    kept : tuple[tvm.ir.Var, ...]
        The intermediates that stay alive in full, because another block, or the caller, reads them.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import verify, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(8, 8, 4))
    >>> before = sch.mod["main"]
    >>> report = sch.fuse_reduction_epilogue("matmul")
    >>> verdict = verify.check(before, sch.mod["main"], report.certificate)
    >>> report.certificate.monoid
    'sum'
    """

    numerics: Numerics
    reassociates: bool
    reduction: str
    monoid: str
    monoid_after: str
    accumulator: Any
    indices: tuple[Any, ...]
    result: Any
    result_indices: tuple[Any, ...]
    hole: Any
    absorbed: Any
    distributed: Any
    init: Any
    loops: tuple[Any, ...]
    inverse: tuple[Any, ...]
    epilogues: tuple[EpilogueProof, ...]
    tails: tuple[TailProof, ...]
    removed: tuple[Any, ...]
    kept: tuple[Any, ...]

    def __str__(self) -> str:
        """Return the claims: the reduction, its start and terms, the tails and the buffers."""
        names = quoted(each.name for each in self.epilogues)
        result = element(self.result, self.result_indices)
        lines = [
            f"fusion of {names} into '{self.reduction}' (numerics: {self.numerics})",
            f"    {self.monoid_after} into {result}, from {as_line(self.init)}",
        ]
        if not self.distributed.same_as(self.hole):
            lines.append(f"    every term {self.hole.name} becomes {as_line(self.distributed)}")
        lines += [f"    after the loops, {tail}" for tail in self.tails]
        if self.removed:
            lines.append(f"    gone: {quoted(buffer.name for buffer in self.removed)}")
        if self.kept:
            lines.append(f"    kept in full: {quoted(buffer.name for buffer in self.kept)}")
        if self.reassociates:
            lines.append("    floats are combined in another order")
        return "\n".join(lines)


def certificate_from_core(raw: Any) -> Certificate:  # noqa: ANN401 - a map of the ffi
    """Build the certificate from what the core returns.

    - `raw` (tvm_ffi.Map): an entry for every attribute of :class:`Certificate`.
    """
    return Certificate(
        numerics=cast(Numerics, str(raw["numerics"])),
        reassociates=bool(raw["reassociates"]),
        reduction=str(raw["reduction"]),
        monoid=str(raw["monoid"]),
        monoid_after=str(raw["monoid_after"]),
        accumulator=raw["accumulator"],
        indices=tuple(raw["indices"]),
        result=raw["result"],
        result_indices=tuple(raw["result_indices"]),
        hole=raw["hole"],
        absorbed=raw["absorbed"],
        distributed=raw["distributed"],
        init=raw["init"],
        loops=tuple(raw["loops"]),
        inverse=tuple(raw["inverse"]),
        epilogues=tuple(
            EpilogueProof(
                name=str(one["name"]),
                axes=tuple(one["axes"]),
                h=tuple(one["h"]),
                loops=tuple(one["loops"]),
                inverse=tuple(one["inverse"]),
            )
            for one in raw["epilogues"]
        ),
        tails=tuple(
            TailProof(
                name=str(one["name"]),
                output=one["output"],
                indices=tuple(one["indices"]),
                value=one["value"],
            )
            for one in raw["tails"]
        ),
        removed=tuple(raw["removed"]),
        kept=tuple(raw["kept"]),
    )
