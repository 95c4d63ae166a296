"""Which elements a convolution computes, in which shapes and layouts, for the CPU rule."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.script import tirx as T

from schedule_programs import Programs, conv

PROGRAMS = Programs()

# ---- Which elements are computed -----------------------------------------------------------------


STRIDED = "x[vc, vi * 2 + vk] * w[vc, vk]"
PROGRAMS.write("columns_outermost", "rows", conv(loops="i, k, c in T.grid(20, 3, 3)"))
PROGRAMS.write(
    "strided_columns_outermost",
    "loops",
    conv(STRIDED, loops="i, k, c in T.grid(10, 3, 3)"),
    buffers="x: (3, 22), w: (3, 3), y: (3, 10)",
)
PROGRAMS.write(
    "no_loop_for_one_channel",
    "loops",
    conv(
        STRIDED,
        loops="i, k in T.grid(10, 3)",
        axes="""
            vc = T.axis.spatial(1, 0)
            vi, vk = T.axis.remap("SR", [i, k])
        """,
    ),
    buffers="x: (1, 22), w: (1, 3), y: (1, 10)",
)
PROGRAMS.write(
    "every_second",
    None,
    conv(
        axes="""
            T.where(i % 2 == 0)
            vc, vi, vk = T.axis.remap("SSR", [c, i, k])
        """
    ),
)
PROGRAMS.write(
    "in_the_middle",
    None,
    conv(
        loops="c, i, k in T.grid(3, 10, 3)",
        axes="""
            vc, vk = T.axis.remap("SR", [c, k])
            vi = T.axis.spatial(20, i + 3)
        """,
    ),
)
PROGRAMS.write(
    "half_of_the_taps",
    None,
    conv(
        loops="c, i, k in T.grid(3, 20, 2)",
        axes="""
            vc, vi = T.axis.remap("SS", [c, i])
            vk = T.axis.reduce(4, k)
        """,
    ),
    buffers="x: (3, 23), w: (3, 4), y: (3, 20)",
)
PROGRAMS.write(
    "one_loop_for_two_axes",
    None,
    conv(
        loops="both, k in T.grid(60, 3)",
        axes="""
            vc = T.axis.spatial(3, both // 20)
            vi = T.axis.spatial(20, both % 20)
            vk = T.axis.reduce(3, k)
        """,
    ),
)
# The second of two channels overwrites the first: in parallel, whichever comes last.
PROGRAMS.write(
    "two_channels_into_one",
    None,
    conv(out="y[vc // 2, vi]", loops="c, i, k in T.grid(4, 20, 3)"),
    buffers="x: (4, 22), w: (4, 3), y: (2, 20)",
)


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def some_channels(
    x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), m: T.Buffer((3,), "int8"), y: T.Buffer((3, 20))
):
    for c in range(3):
        if m[c] > T.int8(0):
            for i, k in T.grid(20, 3):
                with T.sblock("conv"):
                    vc, vi, vk = T.axis.remap("SSR", [c, i, k])
                    with T.init():
                        y[vc, vi] = T.float32(0)
                    y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


@PROGRAMS.add(None)
@T.prim_func(s_tir=True)
def already_parallel(x: T.Buffer((3, 22)), w: T.Buffer((3, 3)), y: T.Buffer((3, 20))):
    for c in T.parallel(3):
        for i, k in T.grid(20, 3):
            with T.sblock("conv"):
                vc, vi, vk = T.axis.remap("SSR", [c, i, k])
                with T.init():
                    y[vc, vi] = T.float32(0)
                y[vc, vi] = y[vc, vi] + x[vc, vi + vk] * w[vc, vk]


# ---- Shapes and layouts --------------------------------------------------------------------------


ONE_ROW = {"out": "y[vi]", "axes": 'vi, vk = T.axis.remap("SR", [i, k])'}
PROGRAMS.write(
    "one_row",
    "rows",
    conv("x[vi + vk] * w[vk]", loops="i, k in T.grid(20, 3)", **ONE_ROW),
    buffers="x: (22,), w: (3,), y: (20,)",
)
PROGRAMS.write(
    "one_row_strided",
    "loops",
    conv("x[vi * 2 + vk] * w[vk]", loops="i, k in T.grid(10, 3)", **ONE_ROW),
    buffers="x: (22,), w: (3,), y: (10,)",
)
PROGRAMS.write(
    "four_axes",
    "rows",
    conv(
        "x[va, vb, vc, vi + vk] * w[vb, vc, vk]",
        out="y[va, vb, vc, vi]",
        loops="a, b, c, i, k in T.grid(2, 3, 2, 8, 4)",
        axes='va, vb, vc, vi, vk = T.axis.remap("SSSSR", [a, b, c, i, k])',
    ),
    buffers="x: (2, 3, 2, 11), w: (3, 2, 4), y: (2, 3, 2, 8)",
)
PROGRAMS.write(
    "images_behind_channels",
    "rows",
    conv(
        "x[vc, vn, vi + vk] * w[vk, vc]",
        out="y[vn, vc, vi]",
        loops="n, c, i, k in T.grid(2, 3, 8, 4)",
        axes='vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])',
    ),
    buffers="x: (3, 2, 11), w: (4, 3), y: (2, 3, 8)",
)
PROGRAMS.write(
    "two_filters_each",
    "rows",
    conv("x[vc // 2, vi + vk] * w[vc, vk]", loops="c, i, k in T.grid(6, 20, 3)"),
    buffers="x: (3, 22), w: (6, 3), y: (6, 20)",
)
PROGRAMS.write(
    "columns_first",
    "loops",
    conv(
        "x[vi + vk, vc] * w[vc, vk]",
        out="y[vi, vc]",
        loops="i, c, k in T.grid(20, 5, 3)",
        axes='vi, vc, vk = T.axis.remap("SSR", [i, c, k])',
    ),
    buffers="x: (22, 5), w: (5, 3), y: (20, 5)",
)
PROGRAMS.write(
    "part_of_a_larger_result",
    "rows",
    conv(out="y[1, vc * 2 + 1, vi]"),
    buffers="x: (3, 22), w: (3, 3), y: (2, 7, 25)",
)


@PROGRAMS.add("rows")
@T.prim_func(s_tir=True)
def axes_of_two_types(
    x: T.Buffer((T.int64(2), 3, T.int64(22))), w: T.Buffer((3, 3)), y: T.Buffer((2, 3, 20))
):
    for n in range(T.int64(2)):
        for c, i, k in T.grid(3, T.int64(20), T.int64(3)):
            with T.sblock("conv"):
                vn, vc, vi, vk = T.axis.remap("SSSR", [n, c, i, k])
                with T.init():
                    y[vn, vc, vi] = T.float32(0)
                y[vn, vc, vi] = y[vn, vc, vi] + x[vn, vc, vi + vk] * w[vc, vk]


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
