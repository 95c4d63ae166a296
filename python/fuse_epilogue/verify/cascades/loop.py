"""The fused loop over blocks of keys, read as what it makes of its states."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...tir.walk import handle, same, substitute, uses, variables
from ..certificate.subject import CertificateError, demand
from ..certificate.tree import in_steps_of_one
from ..evaluation.scalars import UnsupportedError, scalar_type
from ..proof.field import Ratio
from .folding import Folding
from .terms import CascadeTerms, Program, variable

_COMBINERS: dict[str, Any] = {
    "sum": prim.Add,
    "product": prim.Mul,
    "max": prim.Max,
    "min": prim.Min,
    "bit-wise and": prim.BitwiseAnd,
    "bit-wise or": prim.BitwiseOr,
    "bit-wise xor": prim.BitwiseXor,
}


@dataclass(frozen=True)
class Nest:
    """A store in loops.

    - `loops` (tuple[tuple[Var, Expr], ...]): variables that start at 0, with their extents,
      outermost first.
    - `conditions` (tuple[Expr, ...]): all must hold.
    - `store` (BufferStore): the store.
    - `start` (BufferStore or None): the store in T.init of its block.
    """

    loops: tuple[tuple[Any, Any], ...]
    conditions: tuple[Any, ...]
    store: Any
    start: Any = None


def nests(stmt: Any, around: Nest) -> Iterator[Nest]:
    """Yield the stores of a statement in order.

    - Raises CertificateError: if there is something else in it.
    """
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from nests(part, around)
    elif isinstance(stmt, tirx.For):
        serial = stmt.kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)
        zero = isinstance(stmt.min, prim.IntImm) and int(stmt.min) == 0
        plain = serial and zero and in_steps_of_one(stmt) and is_wide(stmt.loop_var)
        demand(plain, "block", "a loop in it is of another kind, has a step, or starts elsewhere")
        loop = (stmt.loop_var, stmt.extent)
        yield from nests(stmt.body, replace(around, loops=(*around.loops, loop)))
    elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
        inside = replace(around, conditions=(*around.conditions, stmt.condition))
        yield from nests(stmt.then_case, inside)
    elif isinstance(stmt, s_tir.SBlockRealize):
        yield from _block(stmt, around)
    elif isinstance(stmt, tirx.BufferStore):
        yield replace(around, store=stmt)
    else:
        raise CertificateError("block", f"there is a {type(stmt).__name__} in it")


def _block(realize: Any, around: Nest) -> Iterator[Nest]:
    block = realize.block
    demand(not block.match_buffers, "block", f"'{block.name_hint}' matches a buffer")
    axes = {
        handle(axis.var): value
        for axis, value in zip(block.iter_vars, realize.iter_values, strict=True)
    }
    conditions = around.conditions
    if not (isinstance(realize.predicate, prim.IntImm) and int(realize.predicate) == 1):
        conditions = (*conditions, realize.predicate)
    inside = replace(around, conditions=conditions)
    start = substitute(block.init, axes) if block.init is not None else None
    for nest in nests(substitute(block.body, axes), inside):
        demand(
            start is None or isinstance(start, tirx.BufferStore), "block", "its T.init has loops"
        )
        yield replace(nest, start=start)


def is_wide(var: Any) -> bool:
    """Whether what is made of a loop variable is a whole number: TVM takes it not to wrap."""
    return str(var.ty.dtype) in ("int32", "int64")


def update_of(store: Any, monoid: str, claim: str) -> Any:
    """Return the term t of a store ``x = x (+) t``."""
    combiner, value = _COMBINERS.get(monoid), store.value
    if combiner is not None and isinstance(value, combiner):
        for own, term in ((value.a, value.b), (value.b, value.a)):
            if isinstance(own, TensorLoad) and _is_at(own, store) and not uses(term, store.buffer):
                return term
    raise CertificateError(claim, f"the store does not combine by '{monoid}'")


def _is_at(load: Any, store: Any) -> bool:
    return same(load.source, store.buffer) and all(
        prim.expr_deep_equal(a, b) for a, b in zip(load.indices, store.indices, strict=True)
    )


@dataclass
class Loop:
    """The fused block on its way through its statements.

    - `program`: the function before.
    - `values`: numbers that the axes of the block stand for, by handle.
    - `shared`, `factor`: which key runs in blocks, and how many of them are one.
    - `parts`: how many parts of the keys there are.
    - `block_number`: which block it is, of those of all parts.
    - `key_names`, `key_extents` (list): atoms of the keys of the program, and how many there are.
    - `known`: buffers of the function before, by handle.
    - `folding`: TVM's simplifier, for expressions of the function after.
    - `plain` (dict): what has been stored in scratch memory: indices, names of loops in them, and
      the value, once more with its exponentials separate.
    - `states`, `nexts` (dict): by handle of the buffer the element at hand, and its atom; of a
      state the stage's own axes, too.
    """

    program: Program
    values: Mapping[int, Ratio]
    shared: int
    factor: int
    parts: int
    block_number: Ratio
    key_names: list[Any]
    key_extents: list[Any]
    known: set[int]
    folding: Folding
    plain: dict[int, tuple[list[Ratio], list[Any], Ratio, Ratio]] = field(default_factory=dict)
    states: dict[int, tuple[list[Ratio], Any, list[Any]]] = field(default_factory=dict)
    nexts: dict[int, tuple[list[Ratio], Any]] = field(default_factory=dict)

    def at(self, nest: Nest, axes: list[Any], claim: str) -> dict[int, Ratio]:
        """Return what the loops of a nest stand for: the axes of its store, then keys in order."""
        number = self.program.arithmetic.field
        stored = {handle(var) for index in nest.store.indices for var in variables(index)}
        found = dict(self.values)
        inner = [(var, extent) for var, extent in nest.loops if handle(var) not in stored]
        outer = [(var, extent) for var, extent in nest.loops if handle(var) in stored]
        demand(len(outer) == len(axes), claim, "its loops are not those of its axes")
        for (var, extent), (name, other) in zip(outer, axes, strict=True):
            demand(self._same_extent(extent, other), claim, f"loop '{var.name}' has another extent")
            found[handle(var)] = number.atom(name)
        demand(len(inner) == len(self.key_names), claim, "its loops are not those of the keys")
        for place, (var, extent) in enumerate(inner):
            # The key of the program's terms is the one at hand.
            if place == self.shared:
                known = isinstance(extent, prim.IntImm) and int(extent) == self.factor
                demand(known, claim, f"loop '{var.name}' is not of {self.factor} keys")
                base = number.mul(self.block_number, number.literal(self.factor))
                found[handle(var)] = number.sub(number.atom(self.key_names[place]), base)
                continue
            equal = self._same_extent(extent, self.key_extents[place])
            demand(equal, claim, f"loop '{var.name}' has another extent")
            found[handle(var)] = number.atom(self.key_names[place])
        return found

    def _same_extent(self, a: Any, b: Any) -> bool:
        terms = self.program.terms({})
        return self.program.arithmetic.field.equal(terms.number(a), terms.number(b))

    def check_conditions(self, nest: Nest, at: Mapping[int, Ratio], claim: str) -> None:
        """Prove that the keys at hand are those of the program, and no more."""
        extent = self.key_extents[self.shared]
        number = self.program.arithmetic
        if not nest.conditions:
            demand(self._are_all_full(), claim, "keys beyond the last one are not left out")
            return
        found = number.field.one
        for condition in nest.conditions:
            found = number.field.mul(found, self.terms(at).number(condition))
        key = number.field.atom(self.key_names[self.shared])
        limit = self.program.terms({}).number(extent)
        type = scalar_type("int64")
        right = number.compare("lt", type, key, limit)
        demand(number.field.equal(found, right), claim, "its condition is not that there is a key")

    def leaves_out(self, nest: Nest, var: Any) -> bool:
        """Whether keys beyond the last one are left out, if `var` counts those of a block."""
        atoms = {var: self.program.arithmetic.field.atom(variable(var)) for var, _ in nest.loops}
        at = dict(self.values) | {handle(var): atom for var, atom in atoms.items()}
        key = self._is_key(atoms[var])
        return self._are_all_full() or any(
            self.program.arithmetic.field.equal(self.terms(at).number(condition), key)
            for condition in nest.conditions
        )

    def _are_all_full(self) -> bool:
        """Whether there is a key for each iteration, in the last block of a part, too."""
        extent = self.key_extents[self.shared]
        return isinstance(extent, prim.IntImm) and int(extent) % (self.factor * self.parts) == 0

    def terms(self, at: Mapping[int, Ratio]) -> CascadeTerms:
        """Return what makes numbers of the expressions in a nest."""
        return CascadeTerms(self.program.arithmetic, self._load, at, self.folding)

    def define(self, nest: Nest, claim: str) -> None:
        """Note the values that a plain store leaves, from what is there when it runs."""
        number = self.program.arithmetic.field
        names = [variable(var) for var, _ in nest.loops]
        at = dict(self.values) | {handle(var): number.atom(variable(var)) for var, _ in nest.loops}
        terms = self.terms(at)
        indices = [terms.number(index) for index in nest.store.indices]
        self._check_covered(nest, names, indices, claim)
        key = handle(nest.store.buffer)
        value = nest.store.value
        self.plain[key] = indices, names, terms.number(value), terms.apart(value)

    def _check_covered(
        self, nest: Nest, names: list[Any], indices: list[Ratio], claim: str
    ) -> None:
        """Prove that a nest stores each element of scratch memory, once, where there is a key."""
        number, shape = self.program.arithmetic.field, list(nest.store.buffer.ty.shape)
        extents = {name: extent for name, (_, extent) in zip(names, nest.loops, strict=True)}
        reason = f"'{nest.store.buffer.name}' is not stored as a whole"
        left = dict(extents)
        for index, size in zip(indices, shape, strict=True):
            atom = number.single(index)
            if atom is not None and atom.op in left:
                demand(self._same_extent(left.pop(atom.op), size), claim, reason)
            else:
                one = isinstance(size, prim.IntImm) and int(size) == 1
                demand(one and number.equal(index, number.zero), claim, reason)
        demand(not left, claim, f"'{nest.store.buffer.name}' is stored several times")
        at = dict(self.values) | {handle(var): number.atom(variable(var)) for var, _ in nest.loops}
        for condition in nest.conditions:
            found = self.terms(at).number(condition)
            there = [self._is_key(number.atom(name)) for name in names]
            demand(any(number.equal(found, each) for each in there), claim, reason)

    def _is_key(self, inside: Ratio) -> Ratio:
        """Return the condition that a key of the block at hand is one of the program."""
        number = self.program.arithmetic
        base = number.field.mul(self.block_number, number.field.literal(self.factor))
        limit = self.program.terms({}).number(self.key_extents[self.shared])
        key = number.field.add(base, inside)
        return number.compare("lt", scalar_type("int64"), key, limit)  # type: ignore[no-any-return]

    def _load(self, expr: Any, indices: list[Ratio]) -> Ratio:
        key, number = handle(expr.source), self.program.arithmetic.field
        if key in self.states:
            return self._state(expr, indices)
        if key in self.nexts:
            place, name = self.nexts[key]
            if all(number.equal(a, b) for a, b in zip(place, indices, strict=True)):
                return number.atom(name)
            raise UnsupportedError(f"{expr} is not the state at hand")
        if key in self.plain:
            return self._defined(expr, indices)
        if key in self.program.results or key not in self.known:
            raise UnsupportedError(f"'{expr.source.name}' is not finished there")
        return self.program.load(expr, indices)

    def _state(self, expr: Any, indices: list[Ratio]) -> Ratio:
        """Return the state of this row, at any point of the stage's own axes."""
        place, name, axes = self.states[handle(expr.source)]
        number = self.program.arithmetic.field
        points = self._values(axes, place, indices, f"{expr} is not the state at hand")
        if len(points) != len(axes):
            raise UnsupportedError(f"{expr} is not one element of the state")
        return number.atom(name, [points[axis] for axis in axes])

    def _defined(self, expr: Any, indices: list[Ratio]) -> Ratio:
        """Return what has been stored at an element."""
        places, names, value, apart = self.plain[handle(expr.source)]
        values = self._values(names, places, indices, f"{expr} has not been stored")
        found = apart if self.program.arithmetic.apart else value
        return self.program.arithmetic.field.substitute(found, values)

    def _values(
        self, names: Collection[Any], places: Iterable[Ratio], indices: Iterable[Ratio], why: str
    ) -> dict[Any, Ratio]:
        """Return the values of axes at which places are these indices; `why` says that none are."""
        number = self.program.arithmetic.field
        values: dict[Any, Ratio] = {}
        for place, given in zip(places, indices, strict=True):
            atom = number.single(place)
            if atom is not None and atom.op in names:
                values[atom.op] = given
            elif not number.equal(place, given):
                raise UnsupportedError(why)
        return values
