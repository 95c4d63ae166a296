"""The subject of a certificate, found in the two functions by name and checked for its form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import prim

from ...tir.walk import handle, same, substitute, variables
from ..proof.domain import Domain, block_axes
from .between import shared_loops
from .tree import Block, Loose, Tree, bound_by, in_steps_of_one

# Kinds of axes.
SPATIAL, _REDUCTION = 0, 2


class CertificateError(Exception):
    """A claim of a certificate does not hold, or cannot be proved.

    Attributes
    ----------
    claim : str
        The attribute of the certificate, for example ``"init"`` or ``"tails[0].value"``;
        ``"after"`` where the function after differs in something that no attribute speaks of,
        ``"order"`` where moving an epilogue changes what another block reads.
    """

    def __init__(self, claim: str, reason: str) -> None:
        super().__init__(f"{claim}: {reason}")
        self.claim = claim


def demand(holds: bool, claim: str, reason: str) -> None:
    """Raise an error unless a condition holds."""
    if not holds:
        raise CertificateError(claim, reason)


@dataclass(frozen=True)
class Stored:
    """A store, possibly under a condition.

    - `buffer` (Var): the buffer.
    - `indices` (tuple[Expr, ...]): the element.
    - `value` (Expr): the stored value.
    - `conditions` (tuple[Expr, ...]): all must hold; else the element keeps its value.
    """

    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    conditions: tuple[Any, ...] = ()

    def moved(self, values: dict[int, Any]) -> Stored:
        """Return the store with variables replaced."""
        return Stored(
            self.buffer,
            tuple(substitute(index, values) for index in self.indices),
            substitute(self.value, values),
            tuple(substitute(condition, values) for condition in self.conditions),
        )


def stored(stmt: Any, claim: str) -> Stored:
    """Return the only store of a statement."""
    conditions = []
    while isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        conditions.append(stmt.condition)
        stmt = stmt.then_case
    demand(isinstance(stmt, tirx.BufferStore), claim, "the block is not a single store")
    return Stored(stmt.buffer, tuple(stmt.indices), stmt.value, tuple(conditions))


def size_variables(func: tirx.PrimFunc) -> list[Any]:
    """Return the variables that the extents of parameters are made of."""
    found: dict[int, Any] = {}
    for param in func.params:
        if isinstance(param.ty, tirx.BufferType):
            for extent in param.ty.shape:
                found |= {handle(var): var for var in variables(extent)}
    return list(found.values())


def place_variables(buffers: Iterable[Any]) -> list[Any]:
    """Return the variables that say where elements of buffers are: any numbers, such as 0."""
    types = [var.ty for var in buffers if isinstance(var.ty, tirx.BufferType)]
    parts = [part for type in types for part in (*(type.strides or ()), type.elem_offset)]
    found = {handle(var): var for part in parts if part is not None for var in variables(part)}
    return list(found.values())


class Subject:
    """The blocks of a certificate.

    - `before`, `after`: the functions.
    - `certificate` (Certificate): the certificate; only names and the axes of blocks are used here.
    - `trees` (tuple[Tree, Tree]): the functions.
    - `reduction`, `reduction_after` (Block): the reduction block, before and after.
    - `epilogues`, `tails` (list[Block]): the blocks before, and what is left of them after.
    - `spatial`, `reducing` (list[Axis]): axes of the reduction.
    - `sizes` (list[Var]): symbolic dimensions.
    - `scalars` (set[int]): parameters that are numbers, and strides and offsets of others and of
      views around the reduction, by handle.
    - `domain`, `elements` (Domain): all axes; the spatial ones.
    """

    def __init__(self, before: tirx.PrimFunc, after: tirx.PrimFunc, certificate: Any) -> None:
        self.certificate = certificate
        self.trees = Tree(before), Tree(after)
        self.reduction = self._only(0, certificate.reduction, "reduction")
        self.reduction_after = self._only(1, certificate.reduction, "reduction")
        block = self.reduction.block
        demand(block.init is not None, "reduction", "the block has no T.init")
        kinds = [int(axis.iter_type) for axis in block.iter_vars]
        demand(set(kinds) <= {SPATIAL, _REDUCTION}, "reduction", "an axis is of another kind")
        axes = block_axes(block)
        self.spatial = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == SPATIAL]
        self.reducing = [axis for axis, kind in zip(axes, kinds, strict=True) if kind == _REDUCTION]
        self.sizes = size_variables(before)
        sizes = {handle(var) for var in self.sizes}
        around = [node for node in self.reduction.around if isinstance(node, s_tir.SBlockRealize)]
        views = [view.buffer for node in around for view in node.block.match_buffers]
        numbers = [*before.params, *place_variables([*before.params, *views])]
        self.scalars = {handle(number) for number in numbers} - sizes
        self.domain = Domain(axes, sizes=self.sizes)
        self.elements = Domain(self.spatial, sizes=self.sizes)
        self.epilogues = [
            self._only(0, proof.name, f"epilogues[{place}].name")
            for place, proof in enumerate(certificate.epilogues)
        ]
        self.tails = [
            self._only(1, proof.name, f"tails[{place}].name")
            for place, proof in enumerate(certificate.tails)
        ]
        for place, epilogue in enumerate(self.epilogues):
            self._spatial_only(epilogue, f"epilogues[{place}].name")
        for place, tail in enumerate(self.tails):
            self._spatial_only(tail, f"tails[{place}].name")

    @cached_property
    def outer(self) -> set[int]:
        """Variables that are fixed while the blocks run, by handle: those around their scope."""
        around = self.reduction.around[: -len(self.reduction.inside) or None]
        fixed = [*bound_by(around), *self.sizes]
        return {handle(var) for var in fixed} | self.scalars

    @cached_property
    def in_order(self) -> list[int]:
        """The places of the epilogues in the certificate, in the order in which they run."""
        return sorted(range(len(self.epilogues)), key=lambda place: self.epilogues[place].place)

    @cached_property
    def first_step(self) -> dict[int, Any]:
        """The reduction axes at their start, by handle: for what is the same for all steps."""
        return {handle(var): start for var, start, _ in self.reducing}

    @property
    def fused(self) -> list[Block]:
        """The blocks before that the fusion is about."""
        return [self.reduction, *self.epilogues]

    @cached_property
    def others(self) -> list[Block | Loose]:
        """Blocks of the function before besides the fused ones."""
        return self.trees[0].besides(self.fused)

    @cached_property
    def is_new(self) -> bool:
        """Whether the reduction accumulates in a buffer that was made for it."""
        result = handle(self.certificate.result)
        known = {handle(param) for param in self.trees[0].func.params}
        return result not in known and result not in self.trees[0].allocated()

    @cached_property
    def read_by_others(self) -> set[int]:
        """The buffers that they read, by handle."""
        return {key for piece in self.others for key in piece.touched().reads}

    @cached_property
    def owned(self) -> set[int]:
        """The buffers that the scope of the reduction allocates, by handle."""
        return {handle(var) for var in self.reduction.scope.block.alloc_buffers}

    def _only(self, which: int, name: str, claim: str) -> Block:
        """Return the block of that name, which must be a plain one in loops of its scope."""
        found = self.trees[which].named(name)
        when = ("before", "after")[which]
        demand(len(found) == 1, claim, f"there are {len(found)} blocks '{name}' {when}")
        block = found[0]
        plain = not block.block.match_buffers and not block.block.alloc_buffers
        inner = block.leaf and block.scope is not None
        demand(inner and plain, claim, f"block '{name}' has blocks or buffers inside")
        demand(len(block.loops) == len(block.inside), claim, f"'{name}' is under a condition")
        steps = all(map(in_steps_of_one, block.loops))
        demand(steps, claim, f"block '{name}' is in a loop with a step")
        return block

    def _spatial_only(self, block: Block, claim: str) -> None:
        kinds = {int(axis.iter_type) for axis in block.block.iter_vars}
        demand(kinds <= {SPATIAL}, claim, f"block '{block.name}' has a reduction axis")
        demand(block.block.init is None, claim, f"block '{block.name}' has T.init")
        original = self.reduction if block in self.epilogues else self.reduction_after
        demand(
            same(block.scope.block, original.scope.block),
            claim,
            f"block '{block.name}' is in another scope than the reduction",
        )

    def after_to_before(self, block: Block, axes: list[Any], claim: str) -> dict[int, Any]:
        """Return the axes of a block after as axes of the reduction before, by position."""
        found = block_axes(block.block)
        demand(len(found) == len(axes), claim, f"block '{block.name}' has other axes")
        values = {handle(mine[0]): axis[0] for mine, axis in zip(found, axes, strict=True)}
        for mine, axis in zip(found, axes, strict=True):
            agree = all(prim.expr_deep_equal(a, b) for a, b in zip(mine[1:], axis[1:], strict=True))
            demand(agree, claim, f"axis '{mine[0].name}' of '{block.name}' has another domain")
        return values


def is_unchanged(certificate: Any) -> bool:
    """Whether F and H are the identity."""
    parts = certificate.absorbed, certificate.distributed
    return all(same(part, certificate.hole) for part in parts)


def others(subject: Subject) -> list[Block | Loose]:
    """Return what is in the function before besides the fused blocks."""
    return subject.others


def strangers(subject: Subject) -> list[Block | Loose]:
    """Return those of them that cannot be a tail of the reduction, not being where tails are."""
    depth = min((len(shared_loops(subject.reduction_after, t)) for t in subject.tails), default=0)
    return [piece for piece in others(subject) if not _may_be_tail(subject, piece, depth)]


def _may_be_tail(subject: Subject, piece: Block | Loose, depth: int) -> bool:
    if isinstance(piece, Loose) or piece.scope is None or piece.block.init is not None:
        return False
    kinds = {int(axis.iter_type) for axis in piece.block.iter_vars}
    return (
        kinds <= {SPATIAL}
        and same(piece.scope.block, subject.reduction.scope.block)
        and piece.place > subject.reduction.place
        and len(shared_loops(subject.reduction, piece)) >= depth
    )


def observed(subject: Subject, buffer: int) -> bool:
    """Whether anybody but the fused blocks can see what is in a buffer (by handle)."""
    return buffer not in subject.owned or buffer in subject.read_by_others
