"""Fusions with their certificates, and functions that are almost theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Range, TensorLoad, Var, prim
from tvm.tirx import PrimFunc

from fuse_epilogue import Certificate
from programs import BY_NAME


@dataclass(frozen=True)
class Certified:
    """A function before and after a fusion, and the fusion's certificate."""

    before: PrimFunc
    after: PrimFunc
    certificate: Certificate

    def claiming(self, **changes: Any) -> Certified:
        """The same functions with other claims."""
        return replace(self, certificate=replace(self.certificate, **changes))

    def epilogue(self, place: int, **changes: Any) -> Certified:
        """The same with other claims about an epilogue."""
        return self._part("epilogues", place, changes)

    def tail(self, place: int, **changes: Any) -> Certified:
        """The same with other claims about a tail."""
        return self._part("tails", place, changes)

    def _part(self, field: str, place: int, changes: dict[str, Any]) -> Certified:
        parts = list(getattr(self.certificate, field))
        parts[place] = replace(parts[place], **changes)
        return self.claiming(**{field: tuple(parts)})

    def storing(self, change: Callable[[PrimFunc], PrimFunc]) -> Certified:
        """The same claims about another function after."""
        return replace(self, after=change(self.after))

    def both(self, change: Callable[[PrimFunc], PrimFunc]) -> Certified:
        """The same claims, both functions changed in the same way."""
        return replace(self, before=change(self.before), after=change(self.after))

    def buffer(self, name: str) -> Var:
        """A buffer of the function before."""
        return buffers(self.before)[name]


@cache
def certified(name: str, **options: Any) -> Certified:
    """The fusion of an accepting case, or of a part of it: to be looked at only."""
    case = BY_NAME[name]
    sch = case.scheduled()
    before = sch.mod["main"]
    report = sch.fuse_reduction_epilogue(case.reduction, **{**case.options, **options})
    assert report.certificate is not None
    return Certified(before, sch.mod["main"], report.certificate)


def buffers(func: PrimFunc) -> dict[str, Var]:
    """All buffers of a function by name."""
    found = {str(p.name): p for p in func.params if isinstance(p.ty, tirx.BufferType)}

    def block(node: Any) -> None:
        found.update({str(var.name): var for var in node.alloc_buffers})

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, block))
    return found


# ---------------------------------------------------------------------------------------------
# Changes of functions
# ---------------------------------------------------------------------------------------------


def mapped(
    node: type | tuple[type, ...],
    change: Callable[[Any], Any],
    where: Callable[[Any], bool] = lambda _: True,
) -> Callable[[PrimFunc], PrimFunc]:
    """A change of every node of a type for which a condition holds; it must change something."""

    def apply(func: PrimFunc) -> PrimFunc:
        touched = []

        def one(found: Any) -> Any:
            if not where(found):
                return found
            touched.append(found)
            return change(found)

        changed = func.with_body(tvm_ffi.structural_map(func.body, (node, one)))
        assert touched, "there is nothing to change"
        return changed

    return apply


def block(name: str, **changes: Any) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the fields of a block; a function is applied to the old field."""
    fields = (
        "iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers",
        "match_buffers", "annotations",
    )  # fmt: skip

    def change(old: Any) -> Any:
        values = {field: getattr(old, field) for field in fields}
        for field, value in changes.items():
            values[field] = value(values[field]) if callable(value) else value
        return s_tir.SBlock(*values.values())

    return mapped(s_tir.SBlock, change, lambda found: found.name_hint == name)


def realized(name: str, change: Callable[[Any], Any]) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the statement that realizes a block."""
    return mapped(s_tir.SBlockRealize, change, lambda found: found.block.name_hint == name)


def stored(name: str, change: Callable[[Any], Any]) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the store in a block's body."""
    return block(name, body=change)


def value(name: str, change: Callable[[Any], Any]) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the value that a block stores."""
    return stored(name, lambda s: tirx.BufferStore(s.buffer, change(s.value), list(s.indices)))


def start(name: str, change: Callable[[Any], Any]) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the value that a block's T.init stores."""
    return block(name, init=lambda s: tirx.BufferStore(s.buffer, change(s.value), list(s.indices)))


def loop(name: str, **changes: Any) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the fields of the loops with a variable of that name."""
    fields = (
        "loop_var", "min", "extent", "kind", "body", "thread_binding", "annotations", "step",
    )  # fmt: skip

    def change(old: Any) -> Any:
        values = {field: getattr(old, field) for field in fields}
        for field, new in changes.items():
            values[field] = new(values[field]) if callable(new) else new
        return tirx.For(*values.values())

    return mapped(tirx.For, change, lambda found: found.loop_var.name == name)


def top_level(change: Callable[[list[Any]], list[Any]]) -> Callable[[PrimFunc], PrimFunc]:
    """A change of the statements of the root block."""

    def apply(func: PrimFunc) -> PrimFunc:
        root = func.body.block
        body = root.body
        parts = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
        parts = change(parts)
        return block("root", body=parts[0] if len(parts) == 1 else tirx.SeqStmt(parts))(func)

    return apply


def filling(name: str, target: Var, read: Var | None = None) -> tirx.For:
    """A loop with a block that stores to all of a buffer of one axis, reading another one."""
    extent = target.ty.shape[0]
    i, v = Var(f"i_{name}", extent.ty), Var(f"v_{name}", extent.ty)
    dtype = str(target.ty.dtype.dtype)
    number = prim.Cast(dtype, v) if dtype != str(v.ty.dtype) else v
    held = tirx.BufferLoad(read, [v]) if read is not None else number
    region = [tirx.BufferRegion(target, [one(v)])]
    reads = [] if read is None else [tirx.BufferRegion(read, [one(v)])]
    axis = tirx.IterVar(Range.from_min_extent(0, extent), v, tirx.IterVar.DataPar)
    body = s_tir.SBlock([axis], reads, region, name, tirx.BufferStore(target, held, [v]))
    zero = prim.IntImm(str(extent.ty.dtype), 0)
    realize = s_tir.SBlockRealize([i], prim.IntImm("bool", 1), body)
    return tirx.For(i, zero, extent, tirx.ForKind.SERIAL, realize)


def one(index: Any) -> Any:
    """The range of a single index."""
    return Range.from_min_extent(index, 1)


def loaded(expr: Any, name: str) -> Any:
    """The first load of a buffer of that name in an expression."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, (TensorLoad, found.append))
    return next(load for load in found if load.source.name == name)
