"""Arguments that make no convolution: the message names the argument, the value and the choice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fuse_epilogue.workloads import (
    depthwise_conv1d,
    elementwise,
    matmul,
    relax_depthwise_conv1d,
    row_reduce,
)

GOOD: dict[str, Any] = {"n": 2, "c": 3, "w": 9, "f": 4}
SIZES = [0, -1, 2.0, None, True, np.bool_(True), [3], np.array(3)]
BEYOND = [2**63, 2**70, np.uint64(2**63)]
SYMBOL = "an int >= 1, or a str that names a symbolic size"
NAME = "an int >= 1, or a Python identifier that names a symbolic size"
PADDING = "one of 'same', 'valid', 'causal', or (left, right) with two ints >= 0"
RELAX_DTYPES = "one of 'float32', 'float16', 'bfloat16'"

# The argument, what is given for it, and what the message says is possible.
BOTH: list[tuple[str, Any, str]] = [
    *(("n", value, SYMBOL) for value in SIZES),
    *(("w", value, SYMBOL) for value in SIZES),
    *((size, name, NAME) for size in ("n", "w") for name in ("", "2w", "a b", "for")),
    *((size, v, "an int >= 1") for size in ("c", "f") for v in [*SIZES, "c"]),
    *((step, v, "an int >= 1") for step in ("stride", "dilation") for v in [*SIZES, "2"]),
    *(
        ("padding", value, PADDING)
        for value in (
            "full",
            "SAME",
            1,
            (),
            (1,),
            (1, 2, 3),
            (-1, 0),
            (0, -1),
            (1.0, 0),
            (True, 0),
            ("1", 0),
        )
    ),
    *(("bias", value, "one of False, True") for value in (1, 0, None, "no")),
]
BENT = ("tanh", "ReLU", False, 0)
OWN: list[tuple[str, Any, str]] = [
    *(
        ("dtype", value, RELAX_DTYPES + ", 'int8'")
        for value in ("float64", "uint8", "", None, np.float32)
    ),
    *(("layout", value, "one of 'NCW', 'NWC'") for value in ("NHWC", "ncw", None)),
    *(("shift", value, "an int from 0 to 31") for value in (-1, 32, 1.0, None, True)),
    *(("activation", value, "one of None, 'relu', 'silu', 'gelu'") for value in BENT),
]
OF_RELAX: list[tuple[str, Any, str]] = [
    *(("dtype", value, RELAX_DTYPES) for value in ("int8", "float64", None)),
    *(("activation", value, "one of None, 'relu', 'silu', 'gelu'") for value in BENT),
]


def message(argument: str, value: Any, possible: str) -> str:
    return f"^{re.escape(f'{argument} must be {possible}: {value!r}')}$"


@pytest.mark.parametrize(("argument", "value", "possible"), [*BOTH, *OWN])
def test_in_tir(argument: str, value: Any, possible: str) -> None:
    with pytest.raises(ValueError, match=message(argument, value, possible)):
        depthwise_conv1d(**{**GOOD, argument: value})


@pytest.mark.parametrize(("argument", "value", "possible"), [*BOTH, *OF_RELAX])
def test_in_relax(argument: str, value: Any, possible: str) -> None:
    with pytest.raises(ValueError, match=message(argument, value, possible)):
        relax_depthwise_conv1d(**{**GOOD, argument: value})


@pytest.mark.parametrize("make", [depthwise_conv1d, relax_depthwise_conv1d])
@pytest.mark.parametrize(
    ("least", "more"),
    [
        (4, {"padding": "valid"}),
        (10, {"padding": "valid", "dilation": 3}),
        (7, {"padding": (2, 1), "dilation": 3, "stride": 5}),
    ],
)
def test_no_column(make: Any, least: int, more: dict[str, Any]) -> None:
    """The message says from which W on there is a result; that one is accepted."""
    make(**{**GOOD, **more, "w": least})
    with pytest.raises(
        ValueError, match=rf"^w must be at least {least} for f = 4, .*: {least - 1}$"
    ):
        make(**{**GOOD, **more, "w": least - 1})


def test_a_shift_without_integers() -> None:
    with pytest.raises(ValueError, match=r"^shift is for dtype = \"int8\" only; .*'float16': 8$"):
        depthwise_conv1d(**GOOD, dtype="float16", shift=8)


def test_silu_of_integers() -> None:
    expected = r"^activation must be one of None, 'relu' for dtype = 'int8': 'silu'$"
    with pytest.raises(ValueError, match=expected):
        depthwise_conv1d(**GOOD, dtype="int8", activation="silu")


def test_relax_slices_no_symbolic_width() -> None:
    with pytest.raises(ValueError, match=r"^w must be an int for padding = 'causal', .*: 'w'$"):
        relax_depthwise_conv1d("n", 3, "w", 4, padding="causal")


def test_integers_of_numpy_are_integers() -> None:
    depthwise_conv1d(np.int64(2), np.int32(3), np.int64(9), np.uint8(4), stride=np.int64(2))


# ---- Too large for an index ----------------------------------------------------------------------

HUGE = [
    *((name, value) for name in ("n", "c", "w", "f", "stride", "dilation") for value in BEYOND),
    *(("padding", value) for value in ((2**63, 0), (0, 2**70), (2**62, 2**62))),
]


@pytest.mark.parametrize("make", [depthwise_conv1d, relax_depthwise_conv1d])
@pytest.mark.parametrize(("argument", "value"), HUGE, ids=str)
def test_beyond_64_bits(make: Any, argument: str, value: Any) -> None:
    said = f"{argument} must be below 2**63, because indices have 64 bits: {value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        make(**{**GOOD, argument: value})


@pytest.mark.parametrize("make", [depthwise_conv1d, relax_depthwise_conv1d])
@pytest.mark.parametrize(
    ("argument", "more"),
    [
        ("n", {"n": 2**62}),
        ("n", {"n": 2**62, "w": "w"}),
        ("w with its padding", {"w": 2**63 - 1, "n": 1, "c": 1}),
        ("w", {"w": 2**62, "f": 1}),
        ("w with its padding", {"padding": (2**62, 0)}),
        ("dilation", {"dilation": 2**62}),
    ],
    ids=str,
)
def test_buffers_beyond_64_bits(make: Any, argument: str, more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{argument} must be .*because .*64 bits"):
        make(**{**GOOD, **more})


def test_buffers_beyond_32_bits() -> None:
    """They are possible."""
    depthwise_conv1d(2**40, 2, 3, 4)
    depthwise_conv1d(1, 2**31, 2**31, 2**30, padding="valid")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("c", 2**31),
        ("f", 2**40),
        ("stride", 2**31),
        ("dilation", 2**31),
        ("padding", (2**31, 0)),
    ],
)
def test_relax_has_32_bits(argument: str, value: Any) -> None:
    said = f"{argument} must be below 2**31, because Relax computes with it in 32 bits: {value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        relax_depthwise_conv1d(**{**GOOD, argument: value})
    depthwise_conv1d(**{**GOOD, argument: value})


@pytest.mark.parametrize(
    ("make", "arguments", "said"),
    [
        (matmul, (2**63, 4, 4), "m must be below 2**63, because"),
        (matmul, (4, 2**62, 4), "n must be at most 2305843009213693951, because"),
        (matmul, (4, 2**31, 2**32), "k must be at most 4294967295, because"),
        (row_reduce, (2, 2**63), "n must be below 2**63, because"),
        (row_reduce, (2**40, 2**30), "m must be at most 8589934591, because"),
        (elementwise, (2**62, 2), "m must be at most 4611686018427387903, because"),
    ],
)
def test_matrices_beyond_64_bits(make: Any, arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        make(*arguments)
