"""Axes of a pass that become one, and passes whose elements can be computed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var, prim

from ....recognize.defined import may_be_discarded
from ....recognize.stages import Axis, analyzer_of
from ....tir.affine import affine_of
from ....tir.expressions import without_loads
from ....tir.walk import loads, parts_of, substitute, uses
from ..loops import index
from .passes import Pass, Work


def collapsed(one: Pass) -> Pass:
    """Return a pass with axes merged that are contiguous in every buffer."""
    place = len(one.domain) - 2
    while place >= 0:
        one = _merged(one, place) or one
        place -= 1
    return one


def _merged(one: Pass, place: int) -> Pass | None:
    outer, inner = one.domain[place], one.domain[place + 1]
    indices = [load.indices[0] for work in one.works for v in work.values for load in loads(v)]
    # The results of reductions do not change along the domain.
    indices += [at for work in one.works if work.reduction is None for _, at in work.targets]
    for each in indices:
        found = affine_of(each, [outer.var, inner.var])
        if found is None:
            if uses(each, outer.var, inner.var):
                return None
        elif found.factors[0] != found.factors[1] * inner.extent:
            return None
    hidden = [without_loads(v) for work in one.works for v in work.values]
    if any(uses(each, outer.var, inner.var) for each in hidden):
        return None
    var = Var(f"{outer.var.name}_{inner.var.name}", "int64")
    together = Axis(var, outer.extent * inner.extent)
    domain = [*one.domain[:place], together, *one.domain[place + 2 :]]
    analyzer = analyzer_of(domain)
    table: Mapping[Any, Any] = {outer.var: index(0), inner.var: var}

    def at(node: Any) -> Any:
        return analyzer.simplify(substitute(node, table))

    def load(node: Any) -> Any:
        return tirx.BufferLoad(node.source, [at(node.indices[0])])

    works = [
        Work(
            work.reduction,
            tuple(tvm_ffi.structural_map(v, (TensorLoad, load)) for v in work.values),
            tuple((buffer, at(place)) for buffer, place in work.targets),
        )
        for work in one.works
    ]
    return Pass(one.kept, domain, works, one.computed, one.in_place)


def has_divisions(one: Pass) -> bool:
    """Whether an index or a value of a pass divides integers, or takes a remainder of them."""
    nodes = [value for work in one.works for value in work.values]
    nodes += [at for work in one.works for _, at in work.targets]
    return any(parts_of(node, prim.FloorDiv, prim.FloorMod) for node in nodes)


def may_be_vector(one: Pass, axes: Sequence[Axis]) -> bool:
    """Whether lanes may be computed together.

    TVM evaluates both arms of a Select in a vector: what is not defined everywhere stays scalar. It
    has two types for vectors of bools, and cannot store what it has loaded.
    """
    if any(str(buffer.dtype) == "bool" for work in one.works for buffer, _ in work.targets):
        return False
    analyzer = analyzer_of([*axes, *one.kept, *one.domain])
    for work in one.works:
        for value in work.values:
            selects = parts_of(value, prim.Select)
            if selects and not may_be_discarded(value, analyzer):
                return False
    return True
