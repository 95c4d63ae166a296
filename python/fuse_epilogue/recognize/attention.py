"""Recognises attention: a product, a softmax along its rows, a product with the weights.

    s[b, i, j] = sum_k q(b, i, k) * k(b, j, k)
    m[b, i]    = max_j f(s[b, i, j])
    l[b, i]    = sum_j p(s[b, i, j], m[b, i])
    o[b, i, d] = sum_j p(s[b, i, j], m[b, i]) / l[b, i] * v(b, j, d)

The quotient may also follow the last sum, and be by any function of `m` and `l`: a softmax whose
denominator has a term that no key has. Such functions may be further results, as log-sum-exp is.

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
from ..tir.walk import (
    handle,
    loads,
    parts_of,
    same,
    substitute,
    substitute_part,
    uses,
    variables,
)
from .inlining import inlined, simplified_indices
from .stages import Axis, Program, Stage, analyzer_of, is_same_size


@dataclass(frozen=True)
class RowResult:
    """A parameter with one element for each row.

    - `output` (tvm.tirx.Buffer), `place`: the parameter, and the indices of an element.
    - `value` (Expr): the element, of the maximum of the row and the sum of its shares.
    """

    output: Any
    place: tuple[Any, ...]
    value: Any


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
    - `highest`, `total` (tvm.ir.Var): the maximum of a row, and the sum of its shares.
    - `share` (Expr): `p` of `weighed` and `highest`.
    - `proof`: the proof that the last three reductions are one loop: how sums are corrected where
      the maximum changes, and that a division by the sum can wait.
    - `lowest` (Expr): the start of the maximum.
    - `output` (tvm.tirx.Buffer): the parameter that is computed.
    - `place`: indices of an element of the output.
    - `divisor` (Expr or None): what an element of the second product is divided by, of `highest`,
      `total` and the row; None if it is not divided.
    - `element` (tvm.ir.Var): the quotient.
    - `result` (Expr): the stored element, of `element`, `highest` and `total`.
    - `of_rows`: further results, with one element for each row.
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
    total: Any
    share: Any
    proof: CascadeCertificate
    lowest: Any
    output: Any
    place: tuple[Any, ...]
    divisor: Any
    element: Any
    result: Any
    of_rows: tuple[RowResult, ...] = ()

    @property
    def is_softmax(self) -> bool:
        """Whether shares are divided by their sum, and nothing else is made of it or stored."""
        others = uses(self.result, self.highest, self.total) or self.of_rows
        return self.divides_by_total and not others

    @property
    def divides_by_total(self) -> bool:
        """Whether an element of the second product is divided by the sum of the shares."""
        return self.divisor is not None and same(self.divisor, self.total)

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
    sums = [each for each in small.stages if each.reduced]
    if not all(len(each.stores) == 1 and len(each.reduced) == 1 for each in sums):
        return None
    wide = sums if narrow_result else small.stages
    if any(str(each.output.dtype) != "float32" for each in wide):
        return None
    first = sums[0]
    batch, query, key = first.axes[:-2], first.axes[-2], first.axes[-1]
    factors = _factors(first)
    constant = isinstance(first.reduced[0].extent, int)
    if factors is None or not constant or not _is_zero(first.init):
        return None
    q, k = _by_axes(factors, key, query)
    if q is None:
        return None
    score = tirx.Var("score", "float32")
    rows = _Rows((*batch, query), key, sums, score)
    weight = rows.maximum()
    share = None if weight is None else rows.addend()
    if share is None:
        return None
    v, column, divisor = rows.weighted(share)
    if v is None or not isinstance(column.extent, int):
        return None
    weighed = tirx.Var("weighed", "float32")
    share = _with_weighed(share, weight, weighed)
    proof = None if uses(share, score) else _proof(program, sums, rows, divisor is not None)
    stored = None if proof is None else _Results(small, rows, column, divisor).read()
    if proof is None or stored is None:
        return None
    return Attention(
        small,
        *(batch, query, key, first.reduced[0], column),
        *(q, k, v, score, weight, weighed, rows.highest, rows.total, share),
        *(proof, sums[1].init),
        **stored,
    )


class _Rows:
    """Reads the stages after the scores, in the axes of the scores.

    - `sums`: the four reductions. The last two are the sum of shares and the second product, in
      either order, once :meth:`addend` has found which is which.
    """

    def __init__(self, row: Sequence[Axis], key: Axis, sums: Sequence[Stage], score: Any) -> None:
        self.row, self.key, self.score = row, key, score
        self.sums = tuple(sums)
        self.scores, self.maxima, self.totals, self.product = sums
        # The indices of a row's result, by the buffer of each stage.
        self.places: dict[int, list[Any]] = {}
        self.highest, self.total = (tirx.Var(name, "float32") for name in ("highest", "total"))

    def maximum(self) -> Any:
        """Return `f` of a score, None if it is not what is reduced to a maximum."""
        value = self._value(self.maxima, 0)
        if not isinstance(value, prim.Max) or _reads(value, self.scores.output):
            return None
        return _other(value, self.maxima.output)

    def addend(self) -> Any:
        """Return what a sum adds up along the rows, None if none of the last two does."""
        for totals, product in ((self.totals, self.product), (self.product, self.totals)):
            value = self._value(totals, 0) if _is_zero(totals.init) else None
            found = _other(value, totals.output) if isinstance(value, prim.Add) else None
            found = None if found is None else self.of_row(found)
            if found is not None and not uses(found, self.total):
                self.totals, self.product = totals, product
                return found
        return None

    def weighted(self, share: Any) -> tuple[Any, Any, Any]:
        """Return the factor of the shares, its column, and what the shares are divided by.

        The last one is None if they are not divided. All are None for another stage.
        """
        stage = self.product
        value = self._value(stage, 1) if _is_zero(stage.init) else None
        product = _other(value, stage.output) if isinstance(value, prim.Add) else None
        if not isinstance(product, prim.Mul):
            return None, None, None
        for part, v in ((product.a, product.b), (product.b, product.a)):
            divisor = None
            if isinstance(part, prim.Div) and not uses(part.b, self.key.var):
                part, divisor = part.a, self.of_row(part.b)
                if divisor is None:
                    continue
            known = self.of_row(part)
            if known is None or uses(v, self.row[-1].var):
                continue
            if tvm_ffi.structural_equal(known, share):
                if any(_reads(v, each.output) for each in self.sums):
                    break
                return v, self._column(stage), divisor
        return None, None, None

    def of_row(self, value: Any) -> Any:
        """Return a value with variables in place of the maximum of the row and of its sum.

        None if it reads anything else of what the reductions compute.
        """

        def load(node: Any) -> Any:
            if self._is_row(node, self.maxima):
                return self.highest
            return self.total if self._is_row(node, self.totals) else node

        found = tvm_ffi.structural_map(value, (TensorLoad, load))
        return None if any(_reads(found, each.output) for each in self.sums) else found

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
            is_own = all(_is_axis(a, b) for a, b in zip(node.indices, own, strict=True))
            return self.score if is_own else node

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

    def _is_row(self, value: Any, stage: Stage) -> bool:
        """Whether an expression is the load of a row's element of a stage."""
        places = self.places.get(handle(stage.output))
        if places is None or handle(value.source) != handle(stage.output):
            return False
        own = zip(value.indices, places, strict=True)
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


def _proof(
    program: Program, sums: Sequence[Stage], rows: _Rows, divides: bool
) -> CascadeCertificate | None:
    """Return the certificate of a maximum, a sum and a product as one cascade.

    None if it is refused, or if terms in the loop are not those of the program, as where a maximum
    starts at an infinity.

    - `divides`: whether the terms of the product are divided, which can wait.
    """
    names = tuple(stage.name for stage in sums[1:])
    if len({stage.name for stage in program.stages}) != len(program.stages):
        return None
    sch = Schedule(tvm.IRModule({"main": _with_keys(program.func, rows.maxima.reduced[0])}))
    proof = analyze_cascade(sch, names[0]).certificate
    if proof is None or tuple(stage.name for stage in proof.stages) != names:
        return None
    by_name = {stage.name: stage for stage in proof.stages}
    head, total, product = (by_name[each.name] for each in (rows.maxima, rows.totals, rows.product))
    rules = ("max", "head", "roll", "mix" if divides else "roll")
    if (head.monoid, head.rule, total.rule, product.rule) != rules:
        return None
    if not tvm_ffi.structural_equal(total.step, total.term):
        return None
    return proof if tvm_ffi.structural_equal(total.quotient, product.quotient) else None


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


class _Results:
    """Reads what is stored: the second product, or what is computed of it, and values of rows."""

    def __init__(self, program: Program, rows: _Rows, column: Axis, divisor: Any) -> None:
        self.program, self.rows, self.column, self.divisor = program, rows, column, divisor
        self.analyzer = analyzer_of([*rows.row, column])
        self.element = tirx.Var("element", "float32")

    def read(self) -> dict[str, Any] | None:
        """Return the fields of an attention that say what is stored, None if there is more."""
        rows = self.rows
        if any(self.program.is_param(each.output) for each in (rows.scores, rows.maxima)):
            return None
        after = [stage for stage in self.program.stages if not stage.reduced]
        elements = [stage for stage in after if stage.reads(rows.product.output)]
        is_stored = self.program.is_param(rows.product.output)
        if len(elements) + is_stored != 1:
            return None
        output, place = rows.product.output, tuple(rows.places[handle(rows.product.output)])
        result: Any = self.element
        if elements:
            found = self.of_stage(elements[0], rows.product)
            if found is None:
                return None
            output, place, result = found
            result, self.divisor = self.undivided(result)
        of_rows = [self.of_row(stage) for stage in after if stage not in elements]
        if self.program.is_param(rows.totals.output) or None in of_rows:
            return None
        return {
            "output": output,
            "place": place,
            "divisor": self.divisor,
            "element": self.element,
            "result": result,
            "of_rows": tuple(of_rows),
        }

    def undivided(self, result: Any) -> tuple[Any, Any]:
        """Return a result of the quotient, and what an element is divided by for it.

        A row without keys has 0 where the terms of the sum are divided, and 0 / 0 where the sum is.
        """
        if self.divisor is None and isinstance(self.rows.key.extent, int):
            for node in parts_of(result, prim.Div):
                others = substitute_part(result, node, self.element)
                once = [each for each in variables(others) if same(each, self.element)]
                if (
                    same(node.a, self.element)
                    and len(once) == 1
                    and not uses(node.b, self.column.var, self.element)
                ):
                    return others, node.b
        return result, self.divisor

    def of_row(self, stage: Stage) -> RowResult | None:
        """Return a result of rows, None for another stage."""
        read = [each for each in (self.rows.totals, self.rows.maxima) if stage.reads(each.output)]
        found = self.of_stage(stage, read[0]) if read else None
        return None if found is None else RowResult(*found)

    def of_stage(self, stage: Stage, source: Stage) -> tuple[Any, tuple[Any, ...], Any] | None:
        """Return the output of an elementwise stage, the place of an element in it, and its value.

        - `source`: what it reads one element of.
        """
        own = [load for load in stage.loads if handle(load.source) == handle(source.output)]
        if not self.program.is_param(stage.output) or not is_same_count(stage.shape, source.shape):
            return None
        if any(not tvm_ffi.structural_equal(each, own[0]) for each in own):
            return None
        back = _inverse(own[0].indices, stage.axes, self.rows.places[handle(source.output)])
        if back is None:
            return None

        def load(node: Any) -> Any:
            is_element = handle(node.source) == handle(self.rows.product.output)
            return self.element if is_element else node

        value = substitute(tvm_ffi.structural_map(stage.value, (TensorLoad, load)), back)
        value = self.rows.of_row(simplified_indices(value, self.analyzer))
        place = tuple(back[axis.var] for axis in stage.axes)
        return None if value is None else (stage.output, place, value)


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
