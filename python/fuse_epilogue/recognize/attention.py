"""Recognises attention: a product, a softmax along its rows, a product with the weights.

    s[b, i, j] = sum_k q(b, i, k) * k(b, j, k)
    m[b, i]    = max_j f(s[b, i, j])
    l[b, i]    = sum_j p(s[b, i, j], m[b, i])
    o[b, i, d] = sum_j p(s[b, i, j], m[b, i]) / l[b, i] * v(b, j, d)

`f` is any elementwise function of a score and its place: a scale, a mask, a bias. `p` is whatever
:func:`fuse_epilogue.analyze_cascade` proves to be correctable: ``exp(f(s) - m)``, or that under a
mask of its own. The certificate says how, and kernels take it from there. `q`, `k` and `v` are any
expressions of their axes, so that transposed and shared heads are attention as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.error import InternalError
from tvm.ir import TensorLoad, prim
from tvm.s_tir import Schedule
from tvm.tirx import IndexMap

from ..cascade import analyze_cascade
from ..cascade_certificate import CascadeCertificate
from ..tir.build import sequence, with_fields
from ..tir.nest import statements
from ..tir.shapes import is_same_count
from ..tir.walk import handle, loads, substitute, uses
from .stages import (
    Axis,
    Program,
    Stage,
    analyzer_of,
    inlined,
    is_same_size,
    simplified_indices,
)


@dataclass(frozen=True)
class Attention:
    """A function that computes attention; expressions are of the axes below.

    - `program`: the function, with its elementwise stages inlined.
    - `batch`: heads and whatever else each product is computed for.
    - `query`, `key`, `depth`, `column`: rows of scores, columns of scores, the axis summed by the
      first product, and the columns of the result. The depth and the columns are of constant
      number.
    - `q`, `k`, `v` (Expr): elements of the operands.
    - `score` (tvm.ir.Var): a score before `f`.
    - `weight` (Expr): `f` of `score`.
    - `weighed` (tvm.ir.Var): `f` of a score.
    - `highest` (tvm.ir.Var): the maximum of a row.
    - `share` (Expr): `p` of `weighed` and `highest`.
    - `proof`: the proof that the last three reductions are one loop: how sums are corrected where
      the maximum changes, and that a division by the sum can wait.
    - `lowest` (Expr): the start of the maximum.
    - `output` (tvm.tirx.Buffer): the parameter that is computed.
    - `place`: indices of an element of the output.
    - `element` (tvm.ir.Var): an element of the second product.
    - `result` (Expr): stores of its result.
    """

    program: Program
    batch: tuple[Axis, ...]
    query: Axis
    key: Axis
    depth: Axis
    column: Axis
    q: Any
    k: Any
    v: Any
    score: Any
    weight: Any
    weighed: Any
    highest: Any
    share: Any
    proof: CascadeCertificate
    lowest: Any
    output: Any
    place: tuple[Any, ...]
    element: Any
    result: Any

    def factor(self, before: Any, after: Any) -> Any:
        """Return the factor that corrects sums where a row's maximum has changed.

        - `before`, `after` (Expr): the maximum so far, and the one with another block of keys.
        """
        head, total = self.proof.stages[:2]
        quotient = substitute(total.quotient, {head.previous: before, head.value: after})
        if "same-carrier" not in total.guards:
            return quotient
        return tirx.Select(before.equal(after), tirx.const(1.0, "float32"), quotient)


def attention_of(program: Program, narrow_result: bool = False) -> Attention | None:
    """Return the attention that a function computes in float32, None if it computes anything else.

    - `narrow_result`: whether the result may be stored in another type.
    """
    # Inlining takes long where each value is read several times, and leaves all sums.
    if sum(bool(each.reduced) for each in program.stages) != 4:
        return None
    small = inlined(program)
    if len(small.stages) not in (4, 5) or len(program.outputs) != 1:
        return None
    first, highest, total, second = small.stages[:4]
    if not all(len(each.stores) == 1 and len(each.reduced) == 1 for each in small.stages[:4]):
        return None
    wide = small.stages[:4] if narrow_result else small.stages
    if any(str(each.output.dtype) != "float32" for each in wide):
        return None
    batch, query, key = first.axes[:-2], first.axes[-2], first.axes[-1]
    factors = _factors(first)
    constant = isinstance(first.reduced[0].extent, int)
    if factors is None or not constant or not _is_zero(first.init):
        return None
    q, k = _by_axes(factors, key, query)
    if q is None:
        return None
    score = tirx.Var("score", "float32")
    rows = _Rows((*batch, query), key, first, score)
    weight = rows.maximum(highest)
    share = None if weight is None else rows.addend(total, highest)
    if share is None:
        return None
    v, column = rows.weighted(second, highest, total, share)
    if v is None or not isinstance(column.extent, int):
        return None
    weighed = tirx.Var("weighed", "float32")
    share = _with_weighed(share, weight, weighed)
    proof = None if uses(share, score) else _proof(program, highest, total, second)
    if proof is None:
        return None
    stored = _stored(small, second, rows.places[handle(second.output)])
    if stored is None:
        return None
    output, place, element, result = stored
    return Attention(
        small,
        batch,
        query,
        key,
        first.reduced[0],
        column,
        q,
        k,
        v,
        score,
        weight,
        weighed,
        rows.highest,
        share,
        proof,
        highest.init,
        output,
        place,
        element,
        result,
    )


class _Rows:
    """Reads the stages after the scores, in the axes of the scores."""

    def __init__(self, row: Sequence[Axis], key: Axis, scores: Stage, score: Any) -> None:
        self.row, self.key, self.scores, self.score = row, key, scores, score
        # The indices of a row's result, by the buffer of each stage.
        self.places: dict[int, list[Any]] = {}
        self.highest = tirx.Var("highest", "float32")

    def maximum(self, stage: Stage) -> Any:
        """Return `f` of a score, None if a stage is not the maximum of one along the rows."""
        value = self._value(stage, 0)
        if not isinstance(value, prim.Max) or _reads(value, self.scores.output):
            return None
        return _other(value, stage.output)

    def addend(self, stage: Stage, highest: Stage) -> Any:
        """Return what a stage adds up along the rows, None if it adds up nothing."""
        value = self._value(stage, 0)
        if not isinstance(value, prim.Add) or not _is_zero(stage.init):
            return None
        found = _other(value, stage.output)
        found = None if found is None else self._of_highest(found, highest)
        if found is None or any(_reads(found, each.output) for each in (self.scores, highest)):
            return None
        return found

    def weighted(self, stage: Stage, highest: Stage, total: Stage, share: Any) -> tuple[Any, Any]:
        """Return the factor of the shares and its column, (None, None) for another stage."""
        nothing = (None, None)
        value = self._value(stage, 1) if _is_zero(stage.init) else None
        product = _other(value, stage.output) if isinstance(value, prim.Add) else None
        if not isinstance(product, prim.Mul):
            return nothing
        for part, v in ((product.a, product.b), (product.b, product.a)):
            if not isinstance(part, prim.Div) or not self._is_row(part.b, total):
                continue
            same = tvm_ffi.structural_equal(self._of_highest(part.a, highest), share)
            if same and not uses(v, self.row[-1].var):
                if any(_reads(v, each.output) for each in (self.scores, highest, total, stage)):
                    return nothing
                return v, self._column(stage)
        return nothing

    def _column(self, stage: Stage) -> Axis:
        """Return the axis that the last sum has beside those of the rows."""
        places = zip(stage.axes, self.places[handle(stage.output)], strict=True)
        return next(axis for axis, place in places if handle(axis.var) == handle(place))

    def _value(self, stage: Stage, more: int) -> Any:
        """Return the value of a stage over rows in their axes, None for another shape.

        A stage may have the axes of the rows in another order, split, and others of one value: how
        it reads the scores says what they are. `more` is the number of its axes beside them.
        """
        read = [e for e in loads(stage.value) if handle(e.source) == handle(self.scores.output)]
        table = self._axes(stage, read[0].indices, more) if read else None
        if table is None:
            return None
        analyzer = analyzer_of([*self.row, self.key])
        places = [analyzer.simplify(table[axis.var]) for axis in stage.axes]
        self.places[handle(stage.output)] = places
        value = simplified_indices(substitute(stage.value, table), analyzer)
        own = [*self.row, self.key]

        def load(node: Any) -> Any:
            if handle(node.source) != handle(self.scores.output):
                return node
            same = all(_is_axis(a, b) for a, b in zip(node.indices, own, strict=True))
            return self.score if same else node

        return tvm_ffi.structural_map(value, (TensorLoad, load))

    def _axes(self, stage: Stage, indices: Sequence[Any], more: int) -> dict[Any, Any] | None:
        """Return what the axes of a stage are, in those of the scores, where it reads them."""
        axes = (*stage.axes, *stage.reduced)
        known = [axis for axis in axes if any(uses(each, axis.var) for each in indices)]
        others = [axis for axis in axes if not any(uses(each, axis.var) for each in indices)]
        rest = [axis for axis in others if not _is_unit(axis)]
        # A single column is the last axis.
        rest += [axis for axis in others[::-1] if _is_unit(axis)][: max(0, more - len(rest))]
        table = {a.var: prim.IntImm(str(a.var.ty.dtype), 0) for a in others}
        table.update((axis.var, axis.var) for axis in rest)
        own = [*self.row, self.key]
        counts = [[axis.extent for axis in axes] for axes in (known, own)]
        if len(rest) != more or not is_same_count(*counts):
            return None
        found = _inverse(indices, known, [axis.var for axis in own])
        if found is None:
            return None
        table.update(found)
        if any(uses(table[axis.var], self.key.var) for axis in stage.axes):
            return None
        return table if _is_axis(table[stage.reduced[0].var], self.key) else None

    def _of_highest(self, value: Any, stage: Stage) -> Any:
        """Return an expression with a variable in place of the maximum of the row."""

        def load(node: Any) -> Any:
            return self.highest if self._is_row(node, stage) else node

        return tvm_ffi.structural_map(value, (TensorLoad, load))

    def _is_row(self, value: Any, stage: Stage) -> bool:
        """Whether an expression is the load of a row's element of a stage."""
        if not isinstance(value, TensorLoad) or handle(value.source) != handle(stage.output):
            return False
        own = zip(value.indices, self.places[handle(stage.output)], strict=True)
        return all(_is_same_index(index, place) for index, place in own)


def _with_weighed(share: Any, weight: Any, weighed: Any) -> Any:
    """Return `p` as a function of the value of `f`, so that this is computed once."""

    def value(node: Any) -> Any:
        return weighed if tvm_ffi.structural_equal(node, weight) else node

    return tvm_ffi.structural_map(share, (type(weight), value))


def is_proved_in_parts(found: Attention, parts: int) -> bool:
    """Return whether the cascade is also proved where its keys are reduced in parts.

    - `parts`: number of parts, each with a maximum, a sum and a result of its own. They are merged
      by the factors that correct them for the maximum of all.
    """
    names = [stage.name for stage in found.proof.stages]
    func = _with_keys(found.program.func, found.key)
    sch = Schedule(tvm.IRModule({"main": func}))
    proof = analyze_cascade(sch, names[0], parts=parts).certificate
    if proof is None or [stage.name for stage in proof.stages] != names:
        return False
    quotients = [stage.quotient for stage in (*proof.stages[1:], *found.proof.stages[1:])]
    return all(tvm_ffi.structural_equal(each, quotients[0], True) for each in quotients)


def _proof(program: Program, *stages: Stage) -> CascadeCertificate | None:
    """Return the certificate of a maximum, a sum and a product as one cascade.

    None if it is refused, or if terms in the loop are not those of the program, as where a maximum
    starts at an infinity.
    """
    names = tuple(stage.name for stage in stages)
    if len({stage.name for stage in program.stages}) != len(program.stages):
        return None
    sch = Schedule(tvm.IRModule({"main": _with_keys(program.func, stages[0].reduced[0])}))
    proof = analyze_cascade(sch, names[0]).certificate
    if proof is None or tuple(stage.name for stage in proof.stages) != names:
        return None
    highest, total, second = proof.stages
    if (highest.monoid, highest.rule, total.rule, second.rule) != ("max", "head", "roll", "mix"):
        return None
    if not tvm_ffi.structural_equal(total.step, total.term):
        return None
    same = tvm_ffi.structural_equal(total.quotient, second.quotient)
    return proof if same else None


def _with_keys(func: tirx.PrimFunc, key: Axis) -> tirx.PrimFunc:
    """Return a function that may assume that there is a key.

    Where there is none, sums are zero in the program, and a kernel is to say so.
    """
    if isinstance(key.extent, int):
        return func
    some = key.extent >= prim.IntImm(str(key.extent.ty.dtype), 1)
    assumed = tirx.Evaluate(tirx.assume(some))
    block = func.body.block
    block = with_fields(block, body=sequence([assumed, *statements(block.body)]))
    return func.with_body(with_fields(func.body, block=block))


def _stored(
    program: Program, second: Stage, places: Sequence[Any]
) -> tuple[Any, tuple[Any, ...], Any, Any] | None:
    """Return the output, the place of an element in it, the element, and what is stored of it.

    `places` are the indices of an element of the second product.
    """
    element = tirx.Var("element", "float32")
    if len(program.stages) == 4:
        if not program.is_param(second.output):
            return None
        return second.output, tuple(places), element, element
    last = program.stages[4]
    own = [load for load in last.loads if handle(load.source) == handle(second.output)]
    if last.reduced or not own or not program.is_param(last.output):
        return None
    others = {handle(stage.output) for stage in program.stages[:3]}
    if any(handle(load.source) in others for load in last.loads):
        return None
    back = _inverse(own[0].indices, last.axes, places)
    if back is None or not is_same_count(last.shape, second.shape):
        return None

    def load(node: Any) -> Any:
        return element if handle(node.source) == handle(second.output) else node

    if any(not tvm_ffi.structural_equal(each, own[0]) for each in own):
        return None
    value = substitute(tvm_ffi.structural_map(last.value, (TensorLoad, load)), back)
    place = tuple(back[axis.var] for axis in last.axes)
    return last.output, place, element, value


def _inverse(indices: Sequence[Any], axes: Sequence[Axis], values: Sequence[Any]) -> Any:
    """Return what each axis is where indices have some values, None if they do not tell."""
    table = _renamed(indices, axes, values)
    if table is not None:
        return table
    variables = [axis.var for axis in axes]
    try:
        found = IndexMap(variables, list(indices), None).inverse(
            [
                prim.IntImm(str(axis.var.ty.dtype), axis.extent)
                if isinstance(axis.extent, int)
                else axis.extent
                for axis in axes
            ]
        )
    except InternalError:
        return None  # no bijection
    return dict(zip(variables, found.map_indices(list(values)), strict=True))


def _renamed(
    indices: Sequence[Any], axes: Sequence[Axis], values: Sequence[Any]
) -> dict[Any, Any] | None:
    """Return what each axis is where each index is an axis or 0, None for other indices."""
    by_var = {handle(axis.var): axis for axis in axes}
    table = {}
    for index, value in zip(indices, values, strict=True):
        axis = by_var.pop(handle(index), None)
        if axis is not None:
            table[axis.var] = value
        elif not _is_zero(index):
            return None
    if not all(map(_is_unit, by_var.values())):
        return None
    zeros = {a.var: prim.IntImm(str(a.var.ty.dtype), 0) for a in by_var.values()}
    return {**table, **zeros}


def _factors(stage: Stage) -> tuple[Any, Any] | None:
    """Return the factors of a sum of products."""
    value = stage.value
    product = _other(value, stage.output) if isinstance(value, prim.Add) else None
    if not isinstance(product, prim.Mul) or _reads(product, stage.output):
        return None
    return product.a, product.b


def _by_axes(factors: tuple[Any, Any], key: Axis, query: Axis) -> tuple[Any, Any]:
    """Return first the factor without the key, then the one without the query."""
    for q, k in (factors, factors[::-1]):
        if not uses(q, key.var) and not uses(k, query.var):
            return q, k
    return None, None


def _is_axis(index: Any, axis: Axis) -> bool:
    """Whether an index is an axis; one of a single value is written as 0."""
    return handle(index) == handle(axis.var) or (_is_unit(axis) and _is_zero(index))


def _is_same_index(index: Any, place: Any) -> bool:
    """Whether an index is an expression; a variable of one value is written as 0."""
    return bool(tvm_ffi.structural_equal(index, place)) or _is_zero(index) and _is_zero(place)


def _is_unit(axis: Axis) -> bool:
    return is_same_size(axis.extent, 1)


def _other(value: Any, buffer: Any) -> Any:
    """Return the operand beside the load of a buffer."""
    for own, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(own, TensorLoad) and handle(own.source) == handle(buffer):
            return None if _reads(other, buffer) else other
    return None


def _reads(value: Any, buffer: Any) -> bool:
    return any(handle(load.source) == handle(buffer) for load in loads(value))


def _is_zero(value: Any) -> bool:
    return isinstance(value, prim.IntImm | prim.FloatImm) and float(value.value) == 0
