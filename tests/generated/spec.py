"""A generated program as a value: plain data, without TVM, that JSON can hold."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

# An expression is a tuple: its operator, then literals, types and further expressions.
Expr = tuple[Any, ...]

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*SIGNED, *UNSIGNED, *FLOATS, "bool")

# What a step of the reduction combines: a load, a product of two, a sliding window, a difference
# (two terms), a term that a condition replaces by a literal, or one less (in the type of what is
# read).
TERMS = ("load", "product", "window", "two loads", "masked", "less one")
# How the update is written. The last is for sums only.
UPDATES = ("accumulator first", "term first", "subtracted")
# What T.init stores.
INITS = ("identity", "literal", "buffer", "scalar")

REDUCTION_FAULTS = (
    "no init",  # a block before it stores the identity
    "tuple",  # two accumulators
    "clamped",  # acc = max(acc (+) t, 0)
    "init of itself",  # T.init reads the accumulator
    "init by step",  # T.init reads a reduction axis
    "reversed",  # the reduction axis runs backwards: T.init fires last
    "last step cut",  # a predicate leaves out the last step
    "repeated",  # a loop around it that no axis uses
    "parallel step",  # the reduction loop is parallel
)
EPILOGUE_FAULTS = (
    "repeated",  # a loop around it that no axis uses
    "two stores",
    "init",  # it is a reduction itself
    "branch inside",  # the store is under a condition
    "branch around",  # the loops are under a condition
    "nested",  # the store is in a block inside the block
    "impure",  # a call that may have side effects
    "scatter",  # the value decides where it is stored
    "matched",  # it reads through a matched region
    "int64 axes",  # the reduction has int32 ones
)
# Whether a predicate of an epilogue lets everything pass.
PREDICATES = ("", "always", "cut")
# The buffer that an epilogue writes: its own, one of its inputs, the reduction's source.
ALIASES = ("", "bias", "shifted bias", "source")

HAZARDS = (
    "write bias",  # of the epilogue `target`
    "read output",  # of the epilogue `target`
    "write output",  # of the epilogue `target`
    "write result",  # one element of the reduction's result
    "total",  # a reduction over the reduction's result
    "nested reader",  # reads the result in a block inside a block
    "address of result",
    "address of bias",
    "address of output",
    "unrelated",  # touches nothing that matters
)

STEPS = (
    "split",
    "reorder",
    "fuse",
    "parallel",
    "vectorize",
    "unroll",
    "reverse_compute_at",
    "compute_at",
    "cache_read",
    "cache_write",
    "set_scope",
    "rfactor",
    "decompose_reduction",
    "annotate",
)

CALLS = (
    "reduction",  # one argument: the reduction
    "consumer",  # one argument: an epilogue that reads its result
    "pair",  # the reduction and one epilogue
    "stranger",  # one argument: a block that has nothing to do with a reduction
    "wrong pair",  # the reduction and an epilogue that does not read its result
)


@dataclass(frozen=True)
class Reduction:
    """``acc[layout(s)] = acc[layout(s)] (+) term(s, r)`` with ``acc = init`` at the first step.

    Attributes
    ----------
    monoid : str
        A name of ``monoids.ROWS``.
    source, accumulator : str
        Types of what is read and of the result.
    spatial, reduce : tuple[int, ...]
        Extents of the axes.
    term, update, init : str
        Of `TERMS`, `UPDATES` and `INITS`.
    literal : int
        The init where that is a literal.
    layout : str
        How an element's place follows from the spatial axes: a key of ``layouts.WRITES``.
    order : tuple[int, ...]
        The axes in the order of the loops, from the outermost; spatial ones come first in number.
    parameter : bool
        Whether the result is a parameter of the function.
    fault : str
        Empty, or one of `REDUCTION_FAULTS`.
    """

    monoid: str = "sum"
    source: str = "int32"
    accumulator: str = "int32"
    spatial: tuple[int, ...] = (4, 3)
    reduce: tuple[int, ...] = (5,)
    term: str = "load"
    update: str = "accumulator first"
    init: str = "identity"
    literal: int = 3
    layout: str = "identity"
    order: tuple[int, ...] = (0, 1, 2)
    parameter: bool = False
    fault: str = ""


@dataclass(frozen=True)
class Epilogue:
    """``out[write(a)] = expr(x = stage[read(a)], ...)``, stages being 0 (the result), 1, 2 ...

    Attributes
    ----------
    expr : Expr
        The value; see ``expressions``.
    dtype : str
        Type of the value and of the output.
    stage : int
        What ``("x",)`` reads: 0 is the reduction's result, n the output of the n-th epilogue.
    other : int
        What ``("y",)`` reads, at the same element; -1 where nothing does.
    read, write : str
        Keys of ``layouts.READS`` and ``layouts.WRITES``.
    base : int
        Where the axes' domains begin.
    backwards : bool
        Whether the loops stand in the opposite order.
    parameter : bool
        Whether the output is a parameter of the function.
    alias, predicate, fault : str
        One of `ALIASES`, `PREDICATES` and, or empty, `EPILOGUE_FAULTS`.
    """

    expr: Expr = ("x",)
    dtype: str = "int32"
    stage: int = 0
    other: int = -1
    read: str = "identity"
    write: str = "identity"
    base: int = 0
    backwards: bool = False
    parameter: bool = True
    alias: str = ""
    predicate: str = ""
    fault: str = ""


@dataclass(frozen=True)
class Hazard:
    """Another block, of one of `HAZARDS`.

    Attributes
    ----------
    kind : str
        One of `HAZARDS`.
    at : int
        Where it stands: before the reduction (0), or before the n-th epilogue, counted from 1; one
        more is behind the last.
    target : int
        The epilogue, counted from 0, whose buffer it touches.
    """

    kind: str
    at: int
    target: int = 0


@dataclass(frozen=True)
class Step:
    """A schedule step before the fusion.

    Attributes
    ----------
    kind : str
        One of `STEPS`.
    block : int
        -1 for the reduction, else an epilogue.
    numbers : tuple[int, ...]
        Loops, factors and orders; what each means is in ``build``.
    """

    kind: str
    block: int = -1
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Program:
    """A reduction, the epilogues after it, what else is there, and the call.

    Attributes
    ----------
    reduction : Reduction
    epilogues : tuple[Epilogue, ...]
        In the order of the program.
    hazards : tuple[Hazard, ...]
    steps : tuple[Step, ...]
        Those that TVM refuses are left out.
    call : str
        One of `CALLS`.
    named : int
        The epilogue that the call names, where it names one.
    numerics : str
        "exact" or "reassociate".
    distribute : bool
    symbolic : bool
        Whether the first spatial and the first reduction extent are unknown.
    index : str
        The type of axes and loops.
    """

    reduction: Reduction = Reduction()
    epilogues: tuple[Epilogue, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    steps: tuple[Step, ...] = ()
    call: str = "reduction"
    named: int = 0
    numerics: str = "reassociate"
    distribute: bool = False
    symbolic: bool = False
    index: str = "int32"

    def to_json(self) -> dict[str, Any]:
        """Return the program as JSON's types; fields that have their default are left out."""
        return _plain(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Program:
        """Return the program that `to_json` gave."""
        fields = {name: _tuples(value) for name, value in data.items()}
        fields["reduction"] = Reduction(**_fields(data.get("reduction", {})))
        fields["epilogues"] = tuple(Epilogue(**_fields(e)) for e in data.get("epilogues", ()))
        fields["hazards"] = tuple(Hazard(**_fields(h)) for h in data.get("hazards", ()))
        fields["steps"] = tuple(Step(**_fields(s)) for s in data.get("steps", ()))
        return Program(**fields)


def _plain(value: Any) -> Any:
    if not dataclasses.is_dataclass(value):
        return [_plain(item) for item in value] if isinstance(value, tuple) else value
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != field.default
    }


def _fields(data: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuples(value) for name, value in data.items()}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def is_float(dtype: str) -> bool:
    """Whether a type is floating."""
    return dtype in FLOATS


def bits(dtype: str) -> int:
    """Return the width of a type; of bool, 1."""
    return 1 if dtype == "bool" else int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))
