"""Intervals hold what the machine computes, and are no wider than rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import oracles
from fuse_epilogue.verify import EvaluationError, compile_function
from fuse_epilogue.verify.evaluation.abstract import AbstractProgram
from fuse_epilogue.verify.evaluation.intervals import IntervalArithmetic
from fuse_epilogue.verify.evaluation.rounding import ANYTHING, NAN, is_nan, is_unknown
from fuse_epilogue.verify.evaluation.scalars import POISON, WorkLimit, scalar_type
from programs import ACCEPT, Case

X = IntervalArithmetic()
F32, F16, F64 = (scalar_type(name) for name in ("float32", "float16", "float64"))
I8, U8, I32, BOOL = (scalar_type(name) for name in ("int8", "uint8", "int32", "bool"))
INFINITY = (math.inf, math.inf)


def bounds(case: Case, arrays: dict[str, Any], sizes: Any) -> dict[str, list[Any]]:
    program = AbstractProgram(case.scheduled().mod["main"])
    content: dict[str, Any] = {}
    for param in program.parameters:
        array = np.asarray(arrays[param.name])
        numbers = array.astype("float64") if param.type.kind == "f" else array
        values = [(number, number) for number in numbers.ravel().tolist()]
        content[param.name] = values if param.shape is not None else values[0]
    program.run(IntervalArithmetic(), content, sizes)
    return content


@pytest.mark.parametrize("kind", ["exact", "normal", "nasty"])
@pytest.mark.parametrize("case", ACCEPT[1::17], ids=lambda case: case.name)
def test_results_lie_in_them(case: Case, kind: str) -> None:
    sizes = case.sizes[0]
    arrays = oracles.make_inputs(case, kind, sizes)
    held = bounds(case, arrays, sizes)
    content = {k: np.copy(v) for k, v in arrays.items()}
    results = compile_function(case.scheduled().mod["main"]).run(content, sizes)
    for name, result in results.items():
        for value, (low, high) in zip(result.ravel().tolist(), held[name], strict=True):
            if is_nan((low, high)):
                assert value != value
            elif not is_unknown((low, high)):
                assert low <= value <= high


# Operation, type, operands, and what is known of the result.
OPERATIONS: list[tuple[str, Any, Any, Any, Any]] = [
    # Exact where the machine is.
    ("add", F32, (1.0, 1.0), (2.0, 2.0), (3.0, 3.0)),
    ("mul", F32, (3.0, 3.0), (0.5, 0.5), (1.5, 1.5)),
    ("div", F32, (1.0, 1.0), (4.0, 4.0), (0.25, 0.25)),
    ("sub", F16, (2048.0, 2048.0), (0.5, 0.5), (2046.0, 2049.0)),
    # Of infinities.
    ("add", F32, INFINITY, (1.0, 2.0), INFINITY),
    ("sub", F32, INFINITY, INFINITY, NAN),
    ("add", F32, (1.0, math.inf), (-math.inf, 0.0), ANYTHING),
    ("mul", F32, (0.0, 0.0), INFINITY, NAN),
    ("mul", F32, (-1.0, 1.0), INFINITY, ANYTHING),
    ("div", F32, (1.0, 1.0), (0.0, 0.0), ANYTHING),
    ("div", F32, (0.0, 0.0), (0.0, 0.0), NAN),
    # A NaN goes through sums; what a maximum makes of it depends on the order.
    ("add", F32, NAN, (1.0, 1.0), NAN),
    ("add", F32, NAN, ANYTHING, NAN),
    ("max", F32, NAN, (1.0, 1.0), ANYTHING),
    ("min", F32, (1.0, 1.0), ANYTHING, ANYTHING),
    ("max", F32, (1.0, 3.0), (2.0, 2.5), (2.0, 3.0)),
    # Integers wrap around.
    ("add", I8, (100, 100), (100, 100), (-56, -56)),
    ("add", I8, (0, 100), (0, 100), (-128, 127)),
    ("mul", I8, (-3, 2), (4, 5), (-15, 10)),
    ("sub", U8, (1, 1), (2, 2), (255, 255)),
    ("and", I8, (12, 12), (10, 10), (8, 8)),
    ("and", I8, (12, 13), (10, 10), (-128, 127)),
    ("shr", I32, (-8, 9), (1, 1), (-4, 4)),
    ("floordiv", I32, (-7, 7), (2, 2), (-4, 3)),
    ("max", I32, (1, 5), (3, 4), (3, 5)),
]


@pytest.mark.parametrize(("name", "type", "a", "b", "result"), OPERATIONS, ids=str)
def test_operation(name: str, type: Any, a: Any, b: Any, result: Any) -> None:
    found = X.binary(name, type, a, b)
    if result in (NAN, ANYTHING):
        assert (is_nan(found), is_unknown(found)) == (is_nan(result), is_unknown(result))
    elif result[0] == result[1] or type.kind != "f":
        assert found == result
    else:
        assert result[0] <= found[0] <= found[1] <= result[1]


def test_one_rounding_is_one_unit() -> None:
    third = X.binary("div", F32, (1.0, 1.0), (3.0, 3.0))
    assert 0 < third[1] - third[0] < 2.1 * 2.0**-24 / 3
    assert third[0] < float(np.float32(1) / np.float32(3)) < third[1]


@pytest.mark.parametrize(
    ("a", "b", "less", "equal"),
    [
        ((1.0, 2.0), (3.0, 4.0), (True, True), (False, False)),
        ((1.0, 3.0), (2.0, 4.0), (False, True), (False, True)),
        ((2.0, 2.0), (2.0, 2.0), (False, False), (True, True)),
        (NAN, (1.0, 1.0), (False, False), (False, False)),
        (ANYTHING, (1.0, 1.0), (False, True), (False, True)),
    ],
)
def test_comparison(a: Any, b: Any, less: Any, equal: Any) -> None:
    assert X.compare("lt", F32, a, b) == less
    assert X.compare("gt", F32, b, a) == less
    assert X.compare("eq", F32, a, b) == equal


def test_selection() -> None:
    either, yes = (False, True), (True, True)
    assert X.choose(F32, yes, (1.0, 1.0), (5.0, 5.0)) == (1.0, 1.0)
    assert X.choose(F32, either, (1.0, 1.0), (5.0, 6.0)) == (1.0, 6.0)
    assert is_unknown(X.choose(F32, either, (1.0, 1.0), NAN))
    assert X.choose(F32, yes, (1.0, 1.0), POISON) == (1.0, 1.0)
    assert X.choose(F32, either, (1.0, 1.0), POISON) is POISON
    with pytest.raises(EvaluationError, match="never written"):
        X.choose(F32, POISON, (1.0, 1.0), (1.0, 1.0))


def test_conversion() -> None:
    assert X.cast((1.5, 2.5), F32, I32) == (1, 2)
    assert X.cast((1.5, 1e30), F32, I8) == (-128, 127)
    assert X.cast((3, 3), I32, F32) == (3.0, 3.0)
    assert X.cast((300, 300), I32, I8) == (44, 44)
    assert X.cast((0.0, 0.0), F32, BOOL) == (False, False)
    assert X.cast(NAN, F32, BOOL) == (True, True)
    low, high = X.cast((0.1, 0.1), F64, F16)
    assert low < 0.1 < high and high - low < 2.1 * 0.1 * 2.0**-11


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf", "sqrt", "log", "floor", "sin"])
def test_function(name: str) -> None:
    low, high = X.call(name, F32, (F32,), (1.0, 1.25))
    inner = {
        "exp": (2.7183, 3.4903), "tanh": (0.7616, 0.8482), "sigmoid": (0.7311, 0.7772),
        "erf": (0.8428, 0.9229), "sqrt": (1.0, 1.1180), "log": (0.0, 0.2231),
        "floor": (1.0, 1.0), "sin": (0.8415, 0.9489),
    }[name]  # fmt: skip
    assert low <= inner[0] + 1e-4 and high >= inner[1] - 1e-4
    assert high - low < 1.0 if name == "exp" else high - low < 0.3


def test_functions_outside_their_domain() -> None:
    assert is_nan(X.call("sqrt", F32, (F32,), (-2.0, -1.0)))
    assert is_unknown(X.call("sqrt", F32, (F32,), (-1.0, 1.0)))
    assert is_unknown(X.call("unheard_of", F32, (F32,), (1.0, 1.0)))


def test_a_limit_on_work() -> None:
    small = IntervalArithmetic(limit=2)
    for _ in range(2):
        small.binary("add", F32, (1.0, 1.0), (1.0, 1.0))
    with pytest.raises(WorkLimit):
        small.binary("add", F32, (1.0, 1.0), (1.0, 1.0))


def test_an_element_at_an_uncertain_index() -> None:
    buffer = [(float(i), float(i)) for i in range(4)]
    axes = [((1, 2), True, I32, 4, 1)]
    assert X.gather(buffer, F32, "A", axes) == (1.0, 2.0)
    # Out of bounds is whatever: it had better not be chosen.
    assert is_unknown(X.gather(buffer, F32, "A", [((3, 4), True, I32, 4, 1)]))


def test_what_is_not_defined_may_be_anything() -> None:
    anything = (I32.low, I32.high)
    for name in ("div", "truncmod", "floordiv", "floormod"):
        assert X.binary(name, I32, (9, 9), (0, 0)) == anything
        assert X.binary(name, I32, (9, 9), (-1, 1)) == anything
    assert X.binary("shl", I32, (1, 1), (32, 32)) == anything
    assert X.binary("shr", I32, (1, 1), (-1, 3)) == anything
    assert X.binary("div", I32, (9, 9), (2, 2)) == (4, 4)


@pytest.mark.parametrize("target", ["int32", "uint32"])
def test_bits_of_numbers(target: str) -> None:
    """Of one number they are one, of an interval of one sign they are those between its ends."""
    to = scalar_type(target)

    def seen(low: float, high: float) -> Any:
        return X.call("reinterpret", to, (F32,), (low, high))

    def of(value: float) -> int:
        return int(np.float32(value).view(target))

    for value in (1.0, -1.0, 1e-45, -3e38, math.inf, -math.inf):
        assert seen(value, value) == (of(value), of(value))
    for low, high in ((1.0, 2.0), (-2.0, -1.0), (1e-60, 1e60), (-1e60, -1e-60)):
        found = seen(low, high)
        with np.errstate(over="ignore"):
            assert found == tuple(sorted((of(low), of(high))))
    for unknown in ((0.0, 0.0), (-1.0, 1.0), (0.0, 1.0), NAN, ANYTHING):
        assert X.call("reinterpret", to, (F32,), unknown) == (to.low, to.high)
    assert X.call("reinterpret", F32, (to,), (of(1.5), of(1.5))) == (1.5, 1.5)
    assert is_unknown(X.call("reinterpret", F32, (to,), (1, 2)))
    assert X.call("reinterpret", U8, (I8,), (-1, -1)) == (255, 255)
    assert X.call("reinterpret", U8, (I8,), (-1, 1)) == (0, 255)


@pytest.mark.parametrize("other", [(1.0, 1e8), (-1e8, 3.0)])
def test_zero_times_a_finite_number_is_zero(other: tuple[float, float]) -> None:
    """However small the numbers of the type are: nothing is rounded."""
    zero = (0.0, 0.0)
    assert X.binary("mul", F64, zero, other) == zero
    assert X.binary("mul", F64, other, zero) == zero
    assert is_nan(X.binary("mul", F64, zero, INFINITY))
