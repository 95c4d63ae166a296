"""Every reduction over every type, with an epilogue of its own operator: that is absorbed.

A maximum absorbs a maximum, a product absorbs a factor, and so on. Each is there twice: from its
identity, and from a value that is loaded, with the operands the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm.script import tirx as T

from .builders import literal, rows_then
from .case import Case, wide


@dataclass(frozen=True)
class Monoid:
    """A way to combine the elements of a row, in TIR and in numpy, and what it starts from."""

    name: str
    combine: Callable[..., Any]
    ufunc: np.ufunc
    identity: Callable[[str], Any]


def _lowest(dtype: str) -> Any:
    return T.min_value(dtype)


def _highest(dtype: str) -> Any:
    return T.max_value(dtype)


def _ones(dtype: str) -> Any:
    return literal(-1, dtype) if dtype.startswith("int") else T.max_value(dtype)


SUM = Monoid("sum", lambda a, b: a + b, np.add, lambda d: literal(0, d))
PRODUCT = Monoid("product", lambda a, b: a * b, np.multiply, lambda d: literal(1, d))
MAXIMUM = Monoid("max", T.max, np.maximum, _lowest)
MINIMUM = Monoid("min", T.min, np.minimum, _highest)
BITWISE_AND = Monoid("bitwise_and", lambda a, b: a & b, np.bitwise_and, _ones)
BITWISE_OR = Monoid("bitwise_or", lambda a, b: a | b, np.bitwise_or, lambda d: literal(0, d))
BITWISE_XOR = Monoid("bitwise_xor", lambda a, b: a ^ b, np.bitwise_xor, lambda d: literal(0, d))
LOGICAL_AND = Monoid("logical_and", T.And, np.logical_and, lambda d: literal(True, d))
LOGICAL_OR = Monoid("logical_or", T.Or, np.logical_or, lambda d: literal(False, d))

NARROW = ("int8", "int16", "uint8", "uint16")
# Wide integers must not overflow: the compiler relies on that. They are made of narrow ones.
SOURCE = {"int32": "int8", "int64": "int16", "uint32": "uint8", "uint64": "uint16"}
INTEGERS = (*NARROW, *SOURCE)
WIDE_FLOATS, SHORT_FLOATS = ("float32", "float64"), ("float16", "bfloat16")

# What the outcome of a reassociated reduction is not defined on: a maximum over NaN depends on
# the order, and so does whether a product of very small numbers and an infinity is NaN.
UNDEFINED_ON = {"max": "no NaN", "min": "no NaN", "product": "no denormals"}

# So short that a product of int8 fits into int32.
DEPTH = 3


def reduced(monoid: Monoid, A: np.ndarray, acc: str) -> np.ndarray:
    """The rows of A combined, in numpy."""
    rows = wide(A, acc)
    return monoid.ufunc.reduce(rows, axis=1, dtype=rows.dtype)


def _cases(monoid: Monoid, acc: str, **more: Any) -> list[Case]:
    """The reduction from its identity with the epilogue's operand last, and the other way round."""
    src = SOURCE.get(acc, acc)
    combine, ufunc = monoid.combine, monoid.ufunc
    special = UNDEFINED_ON.get(monoid.name, "all")
    right = Case(
        name=f"{acc}_{monoid.name}",
        func=rows_then(
            lambda x, c, e: combine(x, c),
            update=combine,
            start=lambda e: monoid.identity(acc),
            acc=acc,
            src=src,
            depth=DEPTH,
        ),
        reference=lambda A, C, E: ufunc(reduced(monoid, A, acc), wide(C, acc)),
        special=special,
        **more,
    )
    left = Case(
        name=f"{acc}_{monoid.name}_from_a_value",
        func=rows_then(
            lambda x, c, e: combine(c, x),
            update=lambda x, t: combine(t, x),
            start=lambda e: e,
            acc=acc,
            src=src,
            depth=DEPTH,
        ),
        reference=lambda A, C, E: ufunc(ufunc(wide(E, acc), reduced(monoid, A, acc)), wide(C, acc)),
        special=special,
        **more,
    )
    return [right, left]


def _absorbing() -> list[Case]:
    """What is absorbed: everything but short floating sums and products."""
    kinds = [
        *[(monoid, INTEGERS) for monoid in (BITWISE_AND, BITWISE_OR, BITWISE_XOR)],
        *[(monoid, ("bool",)) for monoid in (LOGICAL_AND, LOGICAL_OR)],
        *[(monoid, (*INTEGERS, *WIDE_FLOATS)) for monoid in (SUM, PRODUCT)],
        *[(monoid, (*INTEGERS, *WIDE_FLOATS, *SHORT_FLOATS)) for monoid in (MAXIMUM, MINIMUM)],
    ]
    return [
        case
        for monoid, types in kinds
        for acc in types
        for case in _cases(monoid, acc, absorbed=("C[vi]",))
    ]


def _short_sums_and_products() -> list[Case]:
    """Floating accumulators of 16 bits: they absorb nothing, and all of the epilogue is a tail."""
    accepting: list[Case] = []
    for monoid in (SUM, PRODUCT):
        for acc in SHORT_FLOATS:
            accepting += _cases(monoid, acc, absorbed=("",), tails={"add": "x"})
            accepting += [
                Case(
                    name=f"{acc}_{monoid.name}_exactly",
                    func=rows_then(
                        lambda x, c, e, monoid=monoid: monoid.combine(c, x),
                        update=monoid.combine,
                        start=lambda e, monoid=monoid, acc=acc: monoid.identity(acc),
                        acc=acc,
                        depth=DEPTH,
                    ),
                    reference=lambda A, C, E, monoid=monoid, acc=acc: monoid.ufunc(
                        reduced(monoid, A, acc), C
                    ),
                    numerics="exact",
                    absorbed=("",),
                    tails={"add": "x"},
                ),
                # Nothing is to be absorbed, so it does not matter that the accumulator is short.
                Case(
                    name=f"{acc}_{monoid.name}_relu",
                    func=rows_then(
                        lambda x, c, e, acc=acc: T.max(x, literal(0, acc)),
                        update=monoid.combine,
                        start=lambda e, monoid=monoid, acc=acc: monoid.identity(acc),
                        acc=acc,
                        depth=DEPTH,
                    ),
                    reference=lambda A, C, E, monoid=monoid, acc=acc: np.maximum(
                        reduced(monoid, A, acc), 0
                    ),
                    absorbed=("",),
                    tails={"add": "T.max(x, "},
                    special="no denormals",
                ),
            ]
    return accepting


# ---- Sums of exponentials, as logarithms ---------------------------------------------------------

# Ways to write log(exp(a) + exp(b)); all but the last are those in which nothing overflows.
LOG_ADD_EXP: dict[str, Callable[[Any, Any], Any]] = {
    "log1p": lambda a, b: T.max(a, b) + T.log1p(T.exp(-T.abs(a - b))),
    "log": lambda a, b: T.max(a, b) + T.log(1 + T.exp(-T.abs(b - a))),
    "negated": lambda a, b: T.log1p(T.exp(0 - T.abs(a - b))) + T.max(b, a),
    "min_less_max": lambda a, b: T.max(a, b) + T.log(T.exp(T.min(a, b) - T.max(a, b)) + 1),
    "naive": lambda a, b: T.log(T.exp(a) + T.exp(b)),
}
# Only looks like one: the maximum is of other numbers.
_NO_LOG_ADD_EXP: dict[str, Callable[[Any, Any], Any]] = {
    "of_others": lambda a, b: T.max(a, b) + T.log1p(T.exp(-T.abs(a - b - b))),
    "of_two": lambda a, b: T.max(a, b) + T.log(2 + T.exp(-T.abs(a - b))),
    "grows": lambda a, b: T.max(a, b) + T.log1p(T.exp(T.abs(a - b))),
    "smaller": lambda a, b: T.min(a, b) + T.log1p(T.exp(-T.abs(a - b))),
}


def _log_add_exp(
    name: str,
    function: Callable[..., Any],
    formula: Callable[..., Any],
    *,
    combine: Callable[[Any, Any], Any] = LOG_ADD_EXP["log1p"],
    start: Callable[[Any], Any] | None = None,
    acc: str = "float32",
    **more: Any,
) -> Case:
    """The logarithm of the sum of the exponentials of each row, and a function of it."""

    def reference(A: np.ndarray, C: np.ndarray, E: np.ndarray) -> np.ndarray:
        total = np.logaddexp.reduce(A, axis=1)
        return formula(total if start is None else np.logaddexp(total, E), C, E)

    return Case(
        name=f"log_add_exp_{name}",
        func=rows_then(
            function,
            update=combine,
            start=start or (lambda e: literal(-np.inf, acc)),
            acc=acc,
            depth=DEPTH,
        ),
        reference=reference,
        # Each step is five operations; what is combined is at most that much larger than the rest.
        magnitude=lambda A, C, E: 8 * (np.abs(A).sum(axis=1) + np.abs(C) + np.abs(E) + 4),
        special="finite",
        approximate=True,
        inexact=True,
        **more,
    )


def _log_sums() -> list[Case]:
    absorbed = [
        _log_add_exp(
            f"{name}_{acc}",
            lambda x, c, e, combine=combine: combine(x, c),
            lambda x, c, e: np.logaddexp(x, c),
            combine=combine,
            acc=acc,
            absorbed=("C[vi]",),
            init="C[vi]",
        )
        for name, combine in LOG_ADD_EXP.items()
        for acc in WIDE_FLOATS
    ]
    stable = LOG_ADD_EXP["log1p"]
    return [
        *absorbed,
        _log_add_exp(
            "plus_a_literal",
            lambda x, c, e: x + literal(1.5, "float32"),
            lambda x, c, e: x + 1.5,
            distribute=True,
            distributed={"add": "x + T.float32(1.5)"},
            absorbed=("",),
        ),
        # An infinity in C would make NaN of terms that are infinities of the other sign.
        _log_add_exp(
            "plus_a_load",
            lambda x, c, e: x + c,
            lambda x, c, e: x + c,
            distribute=True,
            absorbed=("",),
            tails={"add": "x + C[vi]"},
        ),
        _log_add_exp(
            "less_a_literal_and_more",
            lambda x, c, e: stable(c, x - literal(0.5, "float32")),
            lambda x, c, e: np.logaddexp(x - 0.5, c),
            distribute=True,
            distributed={"add": "x - T.float32(0.5)"},
            absorbed=("C[vi]",),
        ),
        # With E, C would be combined before any term is: -inf with -inf is NaN.
        _log_add_exp(
            "from_a_value",
            lambda x, c, e: stable(x, c),
            lambda x, c, e: np.logaddexp(x, c),
            start=lambda e: e,
            absorbed=("",),
            tails={"add": "T.log1p("},
        ),
        _log_add_exp(
            "twice",
            lambda x, c, e: stable(stable(x, c), e),
            lambda x, c, e: np.logaddexp(np.logaddexp(x, c), e),
            absorbed=("C[vi]",),
            tails={"add": "T.log1p("},
        ),
        _log_add_exp(
            "exactly",
            lambda x, c, e: stable(x, c),
            lambda x, c, e: np.logaddexp(x, c),
            numerics="exact",
            absorbed=("",),
            tails={"add": "T.log1p("},
        ),
        _log_add_exp(
            "short",
            lambda x, c, e: LOG_ADD_EXP["log"](x, c),
            lambda x, c, e: np.logaddexp(x, c),
            combine=LOG_ADD_EXP["log"],
            acc="float16",
            absorbed=("",),
            tails={"add": "T.log("},
        ),
    ]


ACCEPT = [*_absorbing(), *_short_sums_and_products(), *_log_sums()]
REFUSE = [
    Case(
        name=f"no_log_add_exp_{name}",
        func=rows_then(
            lambda x, c, e: x + c, update=combine, acc="float32", start=0.0, depth=DEPTH
        ),
        code="reduction-form",
    )
    for name, combine in _NO_LOG_ADD_EXP.items()
]
