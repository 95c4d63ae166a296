"""What follows a convolution: what the CPU rule fuses, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from schedule_programs import Programs, conv, each

PROGRAMS = Programs()

SUM = conv(out="s[vc, vi]")
RELU = each("relu", "y[vc, vi] = T.max(s[vc, vi], T.float32(0))")
BIAS = each("bias", "t[vc, vi] = s[vc, vi] + b[vc]")
WITH_BIAS = "x: (3, 22), w: (3, 3), b: (3,), y: (3, 20)"

PROGRAMS.write(
    "residual",
    "rows",
    SUM,
    BIAS,
    each("residual", "u[vc, vi] = t[vc, vi] + r[vc, vi]"),
    each("relu", "y[vc, vi] = T.max(u[vc, vi], T.float32(0))"),
    buffers="x: (3, 22), w: (3, 3), b: (3,), r: (3, 20), y: (3, 20)",
    own="s: (3, 20), t: (3, 20), u: (3, 20)",
)
PROGRAMS.write(
    "gated",
    "rows",
    SUM,
    each("gate", "y[vc, vi] = s[vc, vi] * r[vc, vi] + s[vc, vi]"),
    buffers="x: (3, 22), w: (3, 3), r: (3, 20), y: (3, 20)",
    own="s: (3, 20)",
)
PROGRAMS.write(
    "intermediate_is_a_result",
    "loops",
    SUM,
    RELU,
    buffers="x: (3, 22), w: (3, 3), s: (3, 20), y: (3, 20)",
)
PROGRAMS.write(
    "two_results",
    "loops",
    SUM,
    RELU,
    each("negative", "z[vc, vi] = T.min(s[vc, vi], T.float32(0))"),
    buffers="x: (3, 22), w: (3, 3), y: (3, 20), z: (3, 20)",
    own="s: (3, 20)",
)
PROGRAMS.write(
    "result_larger_than_the_tail",
    "rows",
    SUM,
    each("relu", "y[vc + 1, vi] = T.max(s[vc, vi], T.float32(0))"),
    buffers="x: (3, 22), w: (3, 3), y: (4, 25)",
    own="s: (3, 20)",
)
PROGRAMS.write(
    "tail_is_larger",
    "loops",
    SUM,
    BIAS,
    each(
        "padded",
        "y[vc, vi] = T.if_then_else(vi < 20, t[vc, vi], T.float32(1))",
        "c, i in T.grid(3, 25)",
    ),
    buffers="x: (3, 22), w: (3, 3), b: (3,), y: (3, 25)",
    own="s: (3, 20), t: (3, 20)",
)
PROGRAMS.write(
    "tail_is_smaller",
    "loops",
    SUM,
    BIAS,
    each(
        "relu",
        "y[vc, vi] = T.max(t[vc, vi], T.float32(1))",
        "c, i in T.grid(3, 10)",
        "vc = T.axis.spatial(3, c)\nvi = T.axis.spatial(20, i + 5)",
    ),
    buffers=WITH_BIAS,
    own="s: (3, 20), t: (3, 20)",
)
PROGRAMS.write(
    "tail_reads_two_elements",
    "loops",
    SUM,
    BIAS,
    each("mirrored", "y[vc, vi] = t[vc, vi] + t[vc, 19 - vi]"),
    buffers=WITH_BIAS,
    own="s: (3, 20), t: (3, 20)",
)
PROGRAMS.write(
    "tail_reads_its_own_result",
    None,
    SUM,
    each("running", "y[vc, vi] = T.max(s[vc, vi], T.float32(0)) + y[vc, vi + 1]"),
    buffers="x: (3, 22), w: (3, 3), y: (3, 21)",
    own="s: (3, 20)",
)
# 19 columns: in vectors of 4 the last one would overlap, and add to some elements twice.
PROGRAMS.write(
    "in_place",
    "loops",
    conv(out="s[vc, vi]", loops="c, i, k in T.grid(3, 19, 3)"),
    each(
        "added",
        "y[vc, vi] = y[vc, vi] + T.max(s[vc, vi], T.float32(0))",
        "c, i in T.grid(3, 19)",
    ),
    buffers="x: (3, 22), w: (3, 3), y: (3, 19)",
    own="s: (3, 19)",
)
PROGRAMS.write(
    "tail_skips_elements",
    None,
    SUM,
    each("relu", "T.where(i % 3 == 0)\ny[vc, vi] = T.max(s[vc, vi], T.float32(0))"),
    own="s: (3, 20)",
)
PROGRAMS.write(
    "transposed",
    "loops",
    SUM,
    each("relu", "y[vi, vc] = T.max(s[vc, vi], T.float32(0))"),
    buffers="x: (3, 22), w: (3, 3), y: (20, 3)",
    own="s: (3, 20)",
)
PROGRAMS.write(
    "two_convolutions",
    None,
    conv(out="s[vc, vi]", name="first"),
    conv("s[vc, vi + vk] * w[vc, vk]", loops="c, i, k in T.grid(3, 18, 3)", name="second"),
    buffers="x: (3, 22), w: (3, 3), y: (3, 18)",
    own="s: (3, 20)",
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
