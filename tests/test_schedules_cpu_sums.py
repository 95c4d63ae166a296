"""What the CPU rule takes for the sum of a convolution, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from schedule_programs import Programs, conv

PROGRAMS = Programs()

PROGRAMS.write("alone", "rows", conv())
PROGRAMS.write(
    "not_from_zero",
    "rows",
    conv(init="w[vc, 1] + T.float32(2)", update="w[vc, vk] * x[vc, vi + vk] + y[vc, vi]"),
)
PROGRAMS.write("any_term", "rows", conv("T.max(x[vc, vi + vk] - w[vc, vk], w[vc, 0])"))
PROGRAMS.write("maximum", None, conv(update="T.max({out}, {term})"))
PROGRAMS.write("subtracted", None, conv(update="{out} - {term}"))
PROGRAMS.write(
    "dense",
    None,
    conv(
        "x[vd, vi + vk] * w[vc, vd, vk]",
        loops="c, i, d, k in T.grid(3, 20, 3, 3)",
        axes='vc, vi, vd, vk = T.axis.remap("SSRR", [c, i, d, k])',
    ),
    buffers="x: (3, 22), w: (3, 3, 3), y: (3, 20)",
)
PROGRAMS.write("squared", None, conv("x[vc, vi + vk] * x[vc, vi + vk] * w[vc, vk]"))
PROGRAMS.write("two_windows", None, conv("(x[vc, vi + vk] + x[vc, vi]) * w[vc, vk]"))
PROGRAMS.write(
    "weighted_by_column", None, conv('x[vc, vi + vk] * w[vc, vk] * T.Cast("float32", vi)')
)
PROGRAMS.write("flipped", None, conv("x[vc, vi - vk + 2] * w[vc, vk]"))
PROGRAMS.write("reversed_columns", None, conv("x[vc, 19 - vi + vk] * w[vc, vk]"))
PROGRAMS.write(
    "wrapped",
    None,
    conv("x[vc, (vi + vk) % 22] * w[vc, vk]", loops="c, i, k in T.grid(3, 22, 3)"),
    buffers="x: (3, 22), w: (3, 3), y: (3, 22)",
)
PROGRAMS.write(
    "gathered",
    None,
    conv('w[vc, vk] * x[vc, T.Cast("int32", at[vi + vk]) % 8]'),
    buffers="x: (3, 22), w: (3, 3), at: (22,) int8, y: (3, 20)",
)
PROGRAMS.write(
    "window_on_both_axes",
    None,
    conv(
        "x[vi + vk, vi] * w[vk]",
        out="y[vi]",
        loops="i, k in T.grid(20, 3)",
        axes='vi, vk = T.axis.remap("SR", [i, k])',
    ),
    buffers="x: (22, 22), w: (3,), y: (20,)",
)


# ---- The tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_form(name: str) -> None:
    PROGRAMS.check_form(name)


@pytest.fixture(scope="module")
def built() -> Any:
    return PROGRAMS.compile()


@pytest.mark.parametrize("name", PROGRAMS.known())
def test_computes_the_same(built: Any, name: str) -> None:
    PROGRAMS.check_result(built, name)
