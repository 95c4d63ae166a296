"""Where a convolution reads its input: guards, and what comes before it, for the CPU rule."""

from __future__ import annotations

from typing import Any

import pytest

from schedule_programs import Programs, conv, each

PROGRAMS = Programs()

# ---- Where x is read -----------------------------------------------------------------------------


#: x with a column less on either side, which conditions make up for.
SHORTER = "x: (3, 20), w: (3, 3), y: (3, 20)"


def guarded(
    condition: str, inside: str = "x[vc, vi + vk - 1]", outside: str = "T.float32(0)"
) -> str:
    return conv(f"w[vc, vk] * T.if_then_else({condition}, {inside}, {outside})")


PROGRAMS.write("guarded", "rows", guarded("vi + vk < 21 and 0 < vi + vk"), buffers=SHORTER)
for name, condition in {
    "guarded_too_late": "vi + vk >= 2 and vi + vk < 21",
    "guarded_too_early": "vi + vk >= 1 and vi + vk < 20",
}.items():
    PROGRAMS.write(name, None, guarded(condition), buffers=SHORTER)
# As if x had 20 columns: it has more, and they are not to be read.
PROGRAMS.write(
    "guarded_by_something_else",
    None,
    guarded("vi + vk >= 1 and vi + vk < 21"),
    buffers="x: (3, 30), w: (3, 3), y: (3, 20)",
)
PROGRAMS.write(
    "guarded_and_masked",
    None,
    guarded("vi + vk >= 1 and vi + vk < 21 and m[vc] > T.int8(0)"),
    buffers="x: (3, 20), w: (3, 3), m: (3,) int8, y: (3, 20)",
)
PROGRAMS.write(
    "guarded_by_channel",
    None,
    guarded("vc >= 1 and vi + vk >= 1 and vi + vk < 21", "x[vc - 1, vi + vk - 1]"),
    buffers=SHORTER,
)
PROGRAMS.write("inside_out", None, guarded("vi + vk >= 5", "T.float32(0)", "x[vc, vi + vk]"))
PROGRAMS.write(
    "padded_with_one",
    "loops",
    guarded("vi + vk >= 1 and vi + vk < 21", outside="T.float32(1)"),
    buffers=SHORTER,
)
PROGRAMS.write(
    "padded_with_a_load",
    None,
    guarded("vi + vk >= 1 and vi + vk < 21", outside="w[vc, 0]"),
    buffers=SHORTER,
)


# ---- What comes before it ------------------------------------------------------------------------


PAD = each(
    "pad",
    "p[vc, vi] = T.if_then_else(vi >= 1 and vi < 21, x[vc, vi - 1], T.float32(0))",
    "c, i in T.grid(3, 22)",
)
PROGRAMS.write(
    "padded_and_strided",
    "loops",
    PAD,
    conv("p[vc, vi * 2 + vk] * w[vc, vk]", loops="c, i, k in T.grid(3, 10, 3)"),
    buffers="x: (3, 20), w: (3, 3), y: (3, 10)",
    own="p: (3, 22)",
)
PROGRAMS.write(
    "padding_is_a_result",
    None,
    PAD,
    conv("p[vc, vi + vk] * w[vc, vk]"),
    buffers="x: (3, 20), w: (3, 3), p: (3, 22), y: (3, 20)",
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
