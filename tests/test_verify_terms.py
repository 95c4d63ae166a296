"""Terms: what is proved equal is equal, and what the algebra of fusions needs is proved."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuse_epilogue.verify.evaluation.intervals import IntervalArithmetic
from fuse_epilogue.verify.evaluation.scalars import ScalarType, scalar_type
from fuse_epilogue.verify.proof.field_arithmetic import FieldArithmetic
from fuse_epilogue.verify.proof.prover import Prover
from fuse_epilogue.verify.proof.symbolic import TermArithmetic
from fuse_epilogue.verify.proof.tables import equal_by_table
from fuse_epilogue.verify.proof.term_expressions import TermDialect, TermValue

VARIABLES = ("x", "y", "c")
OPERATIONS = {
    "i": ("add", "sub", "mul", "max", "min", "and", "or", "xor"),
    "u": ("add", "sub", "mul", "max", "min", "and", "or", "xor"),
    "f": ("add", "sub", "mul", "max", "min"),
    "b": ("and", "or", "xor", "not"),
}

# An expression: a variable, a number, or an operation of two (a selection: of four).
Expression = Any


def expressions(kind: str) -> st.SearchStrategy[Expression]:
    leaves = st.sampled_from(VARIABLES)
    if kind != "b":
        leaves = leaves | st.integers(-2, 2)

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        binary = st.tuples(st.sampled_from(OPERATIONS[kind]), inner, inner)
        if kind == "b":
            return binary
        return binary | st.tuples(st.just("select"), inner, inner, inner, inner)

    return st.recursive(leaves, larger, max_leaves=4)


def build(arithmetic: Any, type: ScalarType, expr: Expression, values: dict[str, Any]) -> Any:
    """An expression in an arithmetic."""
    if isinstance(expr, str):
        return values[expr]
    if isinstance(expr, int):
        if type.kind == "f":
            return arithmetic.literal(float(expr), type)
        return arithmetic.integer(expr % (type.high + 1) if type.kind == "u" else expr, type)
    name, *parts = expr
    args = [build(arithmetic, type, part, values) for part in parts]
    if name == "select":
        condition = arithmetic.compare("lt", type, args[0], args[1])
        return arithmetic.choose(type, condition, args[2], args[3])
    if name == "not":
        return arithmetic.logical("not", args[0])
    if type.kind == "b":
        return arithmetic.binary(name, type, *args)
    return arithmetic.binary(name, type, *args)


def points(type: ScalarType) -> Any:
    """Some values of the variables: all of them for bools."""
    if type.kind == "b":
        return itertools.product((False, True), repeat=len(VARIABLES))
    rng = random.Random(0)
    ends = [type.low, type.high, 0, 1] if type.kind != "f" else [-3, 0, 1, 2]
    low, high = (type.low, type.high) if type.kind != "f" else (-20, 20)
    return [
        [rng.choice(ends) if rng.random() < 0.3 else rng.randint(low, high) for _ in VARIABLES]
        for _ in range(60)
    ]


@pytest.mark.parametrize("name", ["int8", "uint8", "int64", "float32", "bool"])
def test_what_is_proved_equal_is_equal(name: str) -> None:
    type = scalar_type(name)
    proved = 0

    @settings(max_examples=250, deadline=None, derandomize=True)
    @given(expressions(type.kind), expressions(type.kind))
    def check(a: Expression, b: Expression) -> None:
        nonlocal proved
        table = TermArithmetic(exact=False)
        unknowns = {v: table.unknown(v, 0, type) for v in VARIABLES}
        terms = [build(table, type, expr, unknowns) for expr in (a, b)]
        if not Prover(table, 0.2).equal(*terms):
            return
        proved += a != b
        numbers = IntervalArithmetic()
        for values in points(type):
            held = {v: (value, value) for v, value in zip(VARIABLES, values, strict=True)}
            results = [build(numbers, type, expr, held) for expr in (a, b)]
            assert results[0] == results[1], (a, b, values)

    check()
    assert proved >= 5


# Two expressions that are equal, and a third that is not. They are what fusing is made of.
LAWS: dict[str, tuple[str, Expression, Expression, Expression]] = {
    "scale over a sum": (
        "float32",
        ("mul", ("add", "x", "y"), "c"),
        ("add", ("mul", "c", "x"), ("mul", "c", "y")),
        ("add", ("mul", "c", "x"), "y"),
    ),
    "quotient of a sum": (
        "float32",
        ("mul", ("div", ("sub", ("add", "x", "y"), 2), "c"), 3),
        ("add", ("mul", ("div", ("sub", "x", 2), "c"), 3), ("div", ("mul", "y", 3), "c")),
        ("add", ("mul", ("div", ("sub", "x", 2), "c"), 3), ("div", ("mul", "y", 3), "x")),
    ),
    "subtracted from": (
        "int32",
        ("sub", "c", ("add", "x", "y")),
        ("add", ("sub", "c", "x"), ("sub", 0, "y")),
        ("add", ("sub", "c", "x"), ("sub", "c", "y")),
    ),
    "shift of a maximum": (
        "float32",
        ("add", ("max", "x", "y"), "c"),
        ("max", ("add", "x", "c"), ("add", "y", "c")),
        ("max", ("add", "x", "c"), "y"),
    ),
    "decreasing over a maximum": (
        "float32",
        ("sub", "c", ("max", "x", "y")),
        ("min", ("sub", "c", "x"), ("sub", "c", "y")),
        ("max", ("sub", "c", "x"), ("sub", "c", "y")),
    ),
    "clip over a maximum": (
        "int8",
        ("min", ("max", ("max", "x", "y"), -1), 2),
        ("max", ("min", ("max", "x", -1), 2), ("min", ("max", "y", -1), 2)),
        ("max", ("min", ("max", "x", -1), 2), "y"),
    ),
    "clip, ends swapped": (
        "float32",
        ("min", ("max", "x", -1), 2),
        ("max", ("min", "x", 2), -1),
        ("max", ("min", "x", -1), 2),
    ),
    "and over or": (
        "uint8",
        ("and", ("or", "x", "y"), "c"),
        ("or", ("and", "x", "c"), ("and", "y", "c")),
        ("or", ("and", "x", "c"), "y"),
    ),
    "and over exclusive or": (
        "int64",
        ("and", ("xor", "x", "y"), "c"),
        ("xor", ("and", "x", "c"), ("and", "y", "c")),
        ("xor", ("and", "x", "c"), "y"),
    ),
    "mask of a constant": (
        "int8",
        ("and", ("or", "x", 2), 2),
        2,
        ("and", ("or", "x", 1), 2),
    ),
    "de Morgan": (
        "bool",
        ("not", ("or", "x", "y"), "x"),
        ("and", ("not", "x", "x"), ("not", "y", "y")),
        ("or", ("not", "x", "x"), ("not", "y", "y")),
    ),
    "selection with something in common": (
        "int32",
        ("add", ("select", "x", "y", "c", 0), "x"),
        ("select", "x", "y", ("add", "c", "x"), "x"),
        ("select", "x", "y", ("add", "c", "x"), 0),
    ),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("with_z3", [True, False])
def test_laws(law: str, with_z3: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not with_z3:
        monkeypatch.setattr("fuse_epilogue.verify.proof.prover.has_z3", lambda: False)
    name, *sides = LAWS[law]
    type = scalar_type(name)
    table = TermArithmetic(exact=False)
    unknowns = {v: table.unknown(v, 0, type) for v in VARIABLES}
    a, b, other = (build(table, type, side, unknowns) for side in sides)
    prover = Prover(table, 2)
    assert prover.equal(a, b)
    assert not prover.equal(a, other)


@pytest.mark.parametrize(
    ("target", "value", "kept"),
    [
        *(("float16", 2048, True), ("float16", -2048, True), ("float16", 2049, False)),
        *(("bfloat16", 256, True), ("bfloat16", 257, False), ("float32", 2**24 + 1, False)),
        *(("int8", 127, True), ("int8", 128, False), ("int8", -128, True), ("uint8", -1, False)),
    ],
)
def test_a_number_is_converted_only_to_a_type_that_has_it(
    target: str, value: int, kept: bool
) -> None:
    field, wide, narrow = FieldArithmetic(100), scalar_type("int32"), scalar_type(target)
    number = field.integer(value, wide)
    assert (field.cast(number, wide, narrow) == number) == kept


@pytest.mark.parametrize("name", ["int8", "uint8", "int32"])
def test_a_complement_is_that_of_all_bits(name: str) -> None:
    type = scalar_type(name)
    dialect = TermDialect(TermArithmetic(exact=False))
    for value in (0, 1, 5, type.high):
        wanted = ~value if type.kind == "i" else type.high - value
        found = dialect.bitwise_not(TermValue(dialect.table.integer(value, type), type))
        assert found.term == dialect.table.integer(wanted, type)


def test_integers_wrap_so_a_shift_does_not_distribute_over_their_maximum() -> None:
    _, a, b, _ = LAWS["shift of a maximum"]
    for name, equal in (("float32", True), ("int8", False), ("uint8", False)):
        type = scalar_type(name)
        table = TermArithmetic(exact=False)
        unknowns = {v: table.unknown(v, 0, type) for v in VARIABLES}
        terms = [build(table, type, side, unknowns) for side in (a, b)]
        assert Prover(table, 5).equal(*terms) is equal


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (("add", "x", "y"), ("add", "y", "x"), True),
        (("mul", "x", "y"), ("mul", "y", "x"), True),
        (("add", ("add", "x", "y"), "c"), ("add", "x", ("add", "y", "c")), False),
        (("max", "x", "y"), ("max", "y", "x"), False),
        (("sub", "x", 0), "x", False),
        # Whatever x is: an infinity, a NaN, a negative zero.
        (("mul", "x", 1), "x", True),
        (("max", "x", "x"), "x", False),
    ],
    ids=str,
)
def test_exact_floats_are_compared_by_structure(a: Any, b: Any, equal: bool) -> None:
    type = scalar_type("float32")
    found = []
    for exact in (True, False):
        table = TermArithmetic(exact)
        unknowns = {v: table.unknown(v, 0, type) for v in VARIABLES}
        terms = [build(table, type, side, unknowns) for side in (a, b)]
        found.append(Prover(table, 1).equal(*terms))
    assert found == [equal, True]


def test_conversions() -> None:
    table = TermArithmetic(exact=False)
    i8, i32, f16, f32 = (scalar_type(n) for n in ("int8", "int32", "float16", "float32"))
    x, y = (table.unknown(v, 0, i8) for v in "xy")
    wide = [table.cast(v, i8, i32) for v in (x, y)]
    total = table.binary("add", i32, *wide)
    # Cutting bits off is a homomorphism, adding them is not.
    assert table.cast(total, i32, i8) is table.binary("add", i8, x, y)
    assert table.cast(table.binary("add", i8, x, y), i8, i32) is not total
    assert not Prover(table, 2).equal(table.cast(table.binary("add", i8, x, y), i8, i32), total)
    # A float that is widened is the same number, one that is narrowed is rounded.
    h = table.unknown("h", 0, f16)
    assert table.cast(h, f16, f32) is h
    assert table.cast(h, f32, f16) is not h
    # Known integers are known floats.
    assert table.cast(table.integer(3, i8), i8, f32) is table.literal(3.0, f32)


@pytest.mark.parametrize("name", ["int32", "float32"])
def test_chains_of_squares_are_powers(name: str) -> None:
    """60 squares: a list of the factors would have 2**60 entries."""
    type = scalar_type(name)
    table = TermArithmetic(exact=False, limit=1000)
    x = table.unknown("x", 0, type)
    found = [x, x]
    for _ in range(60):
        found[0] = table.binary("mul", type, found[0], found[0])
    # The same in another order: x to the powers of two, and those multiplied.
    power = x
    for _ in range(60):
        found[1] = table.binary("mul", type, found[1], power)
        power = table.binary("mul", type, power, power)
    assert found[0] is found[1]
    assert found[0] is not table.binary("mul", type, found[0], x)


def test_coefficients_of_squares_are_not_written_out() -> None:
    """60 squares of 1.5 x: the coefficient would have 2**60 bits."""
    type = scalar_type("float32")
    table = TermArithmetic(exact=False, limit=1000)
    x = table.unknown("x", 0, type)
    for _ in range(60):
        scaled = table.binary("mul", type, x, table.literal(1.5, type))
        x = table.binary("mul", type, scaled, scaled)
    assert x.op in ("product", "poly")


def test_maxima_of_shifted_maxima_are_not_written_out() -> None:
    """30 steps of max(x, x + c_i): as one maximum it would have 2**30 operands."""
    type = scalar_type("float32")
    table = TermArithmetic(exact=False, limit=100_000)
    x = table.unknown("x", 0, type)
    for place in range(30):
        shifted = table.binary("add", type, x, table.unknown("c", place, type))
        x = table.binary("max", type, x, shifted)
    assert len(x.args) < 1000


def test_conditions_that_share_their_operands() -> None:
    """40 steps of clipping between two maxima of the one before: 2**40 paths to it."""
    type = scalar_type("float32")
    table = TermArithmetic(exact=False)
    unknowns = [table.unknown(v, 0, type) for v in VARIABLES]
    found = []
    for swapped in (False, True):
        x, y, c = unknowns
        for _ in range(40):
            parts = [table.binary("max", type, x, y), table.binary("max", type, x, c)]
            lower = table.binary("min", type, *(parts[::-1] if swapped else parts))
            upper = table.binary("min", type, x, c)
            x = table.binary("max", type, lower, upper)
        found.append(table.binary("min", type, x, y) if swapped else x)
    assert not equal_by_table(table, *found)


def test_a_nan_is_a_nan_whatever_it_meets() -> None:
    type = scalar_type("float32")
    table = TermArithmetic(exact=False)
    x, nan = table.unknown("x", 0, type), table.literal(math.nan, type)
    for name in ("add", "sub", "mul", "div"):
        assert table.binary(name, type, x, nan) is nan
        assert table.binary(name, type, nan, x) is nan
    assert table.binary("max", type, x, nan) is not nan


def test_a_limit_on_terms() -> None:
    from fuse_epilogue.verify.evaluation.scalars import WorkLimit

    type = scalar_type("int32")
    table = TermArithmetic(exact=False, limit=5)
    table.unknown("x", 0, type)
    with pytest.raises(WorkLimit):
        for place in range(1, 6):
            table.unknown("x", place, type)


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("place", ["then", "else"])
def test_a_choice_of_a_literal_is_a_logical_operation(place: str, chosen: bool) -> None:
    """``c ? p : True`` is ``not c or p``, and so on: equal to one of four, and to no other."""
    table, type = TermArithmetic(exact=False), scalar_type("bool")
    c, p = (table.unknown(name, 0, type) for name in ("c", "p"))
    number = scalar_type("int32")
    literal = table.compare("lt", number, table.integer(0, number), table.integer(chosen, number))
    choice = table.choose(type, c, *((literal, p) if place == "then" else (p, literal)))
    forms = {
        ("then", True): table.logical("or", c, p),
        ("then", False): table.logical("and", table.logical("not", c), p),
        ("else", True): table.logical("or", table.logical("not", c), p),
        ("else", False): table.logical("and", c, p),
    }
    prover = Prover(table)
    assert [form for form, term in forms.items() if prover.equal(choice, term)] == [(place, chosen)]


@pytest.mark.parametrize("name", ["int8", "uint32", "int64"])
def test_an_integer_as_a_bool_is_whether_it_is_not_zero(name: str) -> None:
    table, type = TermArithmetic(exact=False), scalar_type(name)
    x = table.unknown("x", 0, type)
    truth = table.cast(x, type, scalar_type("bool"))
    prover = Prover(table)
    assert prover.equal(truth, table.compare("ne", type, x, table.integer(0, type)))
    assert not prover.equal(truth, table.compare("ne", type, x, table.integer(1, type)))


@pytest.mark.parametrize("name", ["int32", "float32"])
def test_comparisons_can_be_written_from_either_side(name: str) -> None:
    table, type = TermArithmetic(exact=False), scalar_type(name)
    x, y = (table.unknown(each, 0, type) for each in "xy")
    prover = Prover(table)
    for one, other in (("gt", "lt"), ("ge", "le")):
        term = table.compare(one, type, x, y)
        assert prover.equal(term, table.compare(other, type, y, x))
        assert not prover.equal(term, table.compare(other, type, x, y))


def test_what_wraps_to_zero_vanishes() -> None:
    table, type = TermArithmetic(exact=False), scalar_type("uint8")
    x = table.unknown("x", 0, type)
    half = table.binary("mul", type, x, table.integer(128, type))
    assert table.binary("add", type, half, half) is table.integer(0, type)
    y = table.unknown("y", 0, type)
    assert table.binary("add", type, table.binary("add", type, half, y), half) is y
