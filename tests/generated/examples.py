"""For each rule of the truth a program that it forbids to fuse, and a twin that has to be fused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .spec import Epilogue, Expr, Hazard, Program, Reduction, Step

ADD: Expr = ("add", ("x",), ("elem", "int32", 9))


def program(
    epilogue: Epilogue | None = None,
    *more: Epilogue,
    reduction: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Program:
    """Return ``D0 = result + C`` over a sum, with the given changes."""
    return Program(
        reduction=Reduction(**(reduction or {})),
        epilogues=(epilogue or Epilogue(expr=ADD), *more),
        **fields,
    )


def _hazard(kind: str, at: int = 1) -> Program:
    return program(hazards=(Hazard(kind, at),))


def _half(expr: Expr, **fields: Any) -> Program:
    epilogue = Epilogue(expr=expr, dtype="float16")
    return program(epilogue, reduction={"accumulator": "float16", "source": "float16"}, **fields)


PLAIN = program()
_RELU: Expr = ("max", ("x",), ("lit", "int32", 0))
_DIVIDED: Expr = ("max", ("x",), ("truncdiv", ("lit", "int32", 7), ("scalar", "int32", 1)))
_HALF_ADD: Expr = ("add", ("x",), ("elem", "float16", 1))
_TWO_ROWS = program(replace(PLAIN.epilogues[0], write="transposed"))

# Rule: the program to which it applies, and the one that differs in what matters.
EXAMPLES: Mapping[str, tuple[Program, Program]] = {
    "no init": (program(reduction={"fault": "no init"}), PLAIN),
    "tuple reduction": (program(reduction={"fault": "tuple"}), PLAIN),
    "no monoid": (program(reduction={"fault": "clamped"}), PLAIN),
    "strange init": (program(reduction={"fault": "init by step"}), PLAIN),
    "init not first": (
        program(reduction={"fault": "reversed", "parameter": True}),
        program(reduction={"parameter": True}),
    ),
    "reduction cut off": (program(reduction={"fault": "last step cut"}), PLAIN),
    "reduction repeated": (program(reduction={"fault": "repeated"}), PLAIN),
    "parallel reduction": (program(reduction={"fault": "parallel step"}), PLAIN),
    "other writer": (_hazard("write result"), _hazard("unrelated")),
    "address of the result": (_hazard("address of result"), _hazard("unrelated")),
    "factored loops": (
        program(steps=(Step("split", -1, (2, 0)), Step("rfactor", -1, (0, 0)))),
        program(steps=(Step("split", -1, (2, 0)),)),
    ),
    "reduction moved into loops": (
        program(steps=(Step("compute_at", 0, (0, 0)),)),
        program(steps=(Step("split", 0, (0, 0)),)),
    ),
    "epilogue repeated": (program(Epilogue(expr=ADD, fault="repeated")), PLAIN),
    "after a repeated reader": (
        program(Epilogue(expr=ADD, parameter=False, fault="repeated"), Epilogue(expr=ADD)),
        program(Epilogue(expr=ADD), Epilogue(expr=ADD)),
    ),
    "epilogue cut off": (
        program(Epilogue(expr=ADD, predicate="cut")),
        program(Epilogue(expr=ADD, predicate="always")),
    ),
    "not one store": (program(Epilogue(expr=ADD, fault="two stores")), PLAIN),
    "under a condition": (program(Epilogue(expr=ADD, fault="branch around")), PLAIN),
    "block in a block": (program(Epilogue(expr=ADD, fault="nested")), PLAIN),
    "matched region": (program(Epilogue(expr=ADD, fault="matched")), PLAIN),
    "side effects": (program(Epilogue(expr=("impure", ADD), fault="impure")), PLAIN),
    "operand after a call with effects": (
        program(Epilogue(expr=("impure", ("x",)), fault="impure"), Epilogue(expr=_DIVIDED)),
        program(Epilogue(expr=ADD), Epilogue(expr=_DIVIDED)),
    ),
    "scattered store": (program(Epilogue(fault="scatter")), program(Epilogue())),
    "after axes of another integer type": (
        program(Epilogue(expr=ADD, fault="int64 axes"), Epilogue(expr=ADD)),
        program(Epilogue(expr=ADD), Epilogue(expr=ADD, fault="int64 axes")),
    ),
    "reads outside": (program(Epilogue(expr=ADD, read="padded")), PLAIN),
    "leaves elements out": (program(Epilogue(expr=ADD, read="slice")), PLAIN),
    "reads an element twice": (
        program(Epilogue(expr=ADD, read="broadcast")),
        program(Epilogue(expr=ADD, read="unit axis")),
    ),
    "reads two elements": (
        program(Epilogue(expr=("add", ("x",), ("next",)), read="neighbours")),
        program(Epilogue(expr=("add", ("x",), ("x",)))),
    ),
    "indices from memory": (program(Epilogue(expr=ADD, read="gather")), PLAIN),
    "read map beyond the contract": (
        program(Epilogue(expr=ADD, read="reversed")),
        program(Epilogue(expr=ADD, read="transposed")),
    ),
    "several elements in one place": (program(Epilogue(expr=ADD, write="halved")), _TWO_ROWS),
    "write map beyond the contract": (program(Epilogue(expr=ADD, write="reversed")), _TWO_ROWS),
    "bias written between": (_hazard("write bias"), _hazard("write bias", at=0)),
    "copy of a copy": (
        program(steps=(Step("cache_read", 0, (1, 0)), Step("cache_read", 0, (1, 2)))),
        program(steps=(Step("cache_read", 0, (1, 0)),)),
    ),
    "address of the bias": (_hazard("address of bias"), _hazard("unrelated")),
    "output read between": (_hazard("read output"), _hazard("read output", at=0)),
    "second writer": (_hazard("write output"), _hazard("unrelated")),
    "address of the output": (_hazard("address of output"), _hazard("unrelated")),
    "output shared with another element": (
        program(Epilogue(expr=ADD, alias="shifted bias")),
        program(Epilogue(expr=ADD, alias="bias")),
    ),
    "output shared with the source": (
        program(Epilogue(expr=_RELU, alias="source")),
        program(Epilogue(expr=_RELU)),
    ),
    "already in place": (
        program(Epilogue(expr=_RELU), reduction={"order": (2, 0, 1)}),
        program(Epilogue(expr=_RELU), reduction={"order": (0, 2, 1)}),
    ),
    "placed under loops": (
        program(Epilogue(expr=_RELU), steps=(Step("reverse_compute_at", 0, (0, 0)),)),
        program(Epilogue(expr=_RELU), steps=(Step("annotate", -1, (0, 0)),)),
    ),
    "mixed loops": (
        program(Epilogue(expr=_RELU), steps=(Step("fuse", -1, (1, 0)),)),
        program(Epilogue(expr=_RELU), steps=(Step("fuse", 0, (0, 0)),)),
    ),
    "input from an epilogue that stays": (
        program(
            Epilogue(expr=ADD, fault="two stores"),
            Epilogue(expr=("add", ("x",), ("y",)), stage=1, other=0),
        ),
        program(Epilogue(expr=ADD), Epilogue(expr=("add", ("x",), ("y",)), stage=1, other=0)),
    ),
    "call of a stranger": (
        replace(_hazard("unrelated", at=0), call="stranger"),
        _hazard("unrelated", at=0),
    ),
    "wrong pair": (
        program(Epilogue(), Epilogue(stage=1), call="wrong pair", named=1),
        program(Epilogue(), Epilogue(stage=1), call="pair", named=0),
    ),
    "no consumer": (Program(reduction=Reduction(parameter=True)), PLAIN),
}


def counterexamples() -> Iterator[Program]:
    """Yield programs with which TVM's own primitive is known to go wrong."""
    yield program(Epilogue(expr=("max", ADD, ("lit", "int32", 0))))
    yield program(Epilogue(expr=("sub", ("elem", "int32", 1), ("x",))))
    yield program(Epilogue(expr=ADD, read="transposed"))
    yield program(reduction={"init": "literal"})
    yield program(reduction={"monoid": "max"})
    yield program(Epilogue(expr=ADD), Epilogue(expr=ADD), call="pair")


_BEHIND: Mapping[str, Any] = {"order": (2, 0, 1)}


def once_wrong() -> Iterator[Program]:
    """Yield programs that the primitive accepted and changed, or refused for nothing, once."""
    inner = Epilogue(expr=("max", ("x",), ("elem", "int32", 9)), parameter=False)
    outer = Epilogue(expr=_RELU, stage=1)
    # The inner one stands in its place: merged, its bias is read behind the block that writes it...
    yield program(inner, outer, reduction=_BEHIND, hazards=(Hazard("write bias", at=2, target=0),))
    # ... or, absorbed into the init, in front of it.
    inner, outer = (
        replace(inner, expr=ADD),
        replace(outer, expr=("add", ("x",), ("lit", "int32", 1))),
    )
    hazards = (Hazard("write bias", at=1, target=0),)
    for fields in ({}, {"call": "wrong pair", "named": 1}, {"call": "consumer", "named": 1}):
        yield program(inner, outer, reduction=_BEHIND, hazards=hazards, **fields)
    # A reader of what a call with effects has stored.
    impure = replace(inner, expr=("impure", ("x",)), fault="impure")
    yield program(impure, outer, reduction=_BEHIND)
    # Loops of unknown extents, split twice.
    for block, loop in ((-1, 2), (0, 0)):
        steps = (Step("split", block, (loop, 0)), Step("split", block, (loop, 1)))
        yield program(Epilogue(expr=ADD), steps=steps, symbolic=True)
    # A loop is split and the reduction factored: TVM drops the condition.
    yield program(steps=(Step("split", -1, (0, 1)), Step("rfactor", 0, (0, 0))))
    # An epilogue that would be absorbed, but for the type, and stands in its place: others follow.
    relu: Expr = ("max", ("x",), ("lit", "float16", 0))
    yield program(
        Epilogue(expr=_HALF_ADD, dtype="float16"),
        Epilogue(expr=relu, dtype="float16", stage=1, parameter=False),
        Epilogue(expr=relu, dtype="float16", stage=2),
        Epilogue(expr=("max", ("x",), ("next",)), dtype="float16", stage=3, read="neighbours"),
        reduction={"accumulator": "float16", "source": "float16", **_BEHIND},
    )
    # In its place, and not absorbed, since x decides whether its operand is evaluated.
    quotient: Expr = ("floordiv", ("lit", "int32", 100), ("scalar", "int32", 1))
    yield program(
        Epilogue(expr=("or", ("x",), ("gt", quotient, ("lit", "int32", 3))), dtype="bool"),
        reduction={"monoid": "logical or", "source": "bool", "accumulator": "bool"},
        steps=(Step("reverse_compute_at", 0, (3, 4)),),
    )


def cancelling() -> Program:
    """Return a sum from which something of its size is subtracted."""
    return program(
        Epilogue(expr=("sub", ("x",), ("elem", "float32", 1)), dtype="float32"),
        reduction={
            "source": "float32",
            "accumulator": "float32",
            "spatial": (3, 5),
            "reduce": (3,),
            "init": "scalar",
        },
        symbolic=True,
    )


# Data on which all of its sums are exact as written, and one is not in the other order.
CANCELLING_SEED = 63800


def overflowing() -> Program:
    """Return a product that 32 bits do not hold, unless its factors are small."""
    return program(
        Epilogue(expr=("max", ("mul", ("x",), ("lit", "int32", -3)), ("lit", "int32", 0))),
        reduction={"monoid": "product", "term": "product", "reduce": (8,)},
    )


def repeating() -> Program:
    """Return a program in which TVM lets a repeated epilogue write over what it reads."""
    first, last = Epilogue(parameter=False), Epilogue(stage=2)
    value: Expr = ("add", ("x",), ("scalar", "int32", 2))
    again = Epilogue(expr=value, stage=1, parameter=False, fault="repeated")
    return program(first, again, last, reduction={"spatial": (4,), "order": (0, 1)})


def negating() -> Program:
    """Return a rounding reduction whose condition TVM negates: for NaN it holds then."""
    inside: Expr = ("ge", ("elem", "float32", 1), ("lit", "float32", 0.0))
    whole: Expr = ("cast", "float64", ("cast", "int64", ("elem", "float32", 1)))
    value: Expr = ("ite", ("not", inside), ("lit", "float64", 0), ("logaddexp", ("x",), whole))
    return program(
        Epilogue(expr=value, dtype="float64"),
        reduction={
            "monoid": "logaddexp",
            "source": "float64",
            "accumulator": "float64",
            "spatial": (2, 2),
            "reduce": (3, 3),
            "order": (0, 1, 2, 3),
        },
    )


# Data with a NaN in the negated comparison.
NEGATING_SEED = 74595
