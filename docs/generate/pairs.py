"""Pairs of programs that differ in a few lines: one is refused with a code, the other is fused.

These are for the codes of cascades and of steps in another order: tutorial 02 has changes of one
program. Each program is executed when the page is made.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm.s_tir import Schedule, ScheduleError

import fuse_epilogue

#: The sum of exp(x - m), with the largest x of a row for m.
SOFTMAX = """\
@T.prim_func(s_tir=True)
def main(x: T.Buffer((4, 8), "float32"), s: T.Buffer((4,), "float32")):
    m = T.sblock_alloc_buffer((4,), "float32")
    for i, k in T.grid(4, 8):
        with T.sblock("m"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                m[vi] = T.min_value("float32")
            m[vi] = T.max(m[vi], x[vi, vk])
    for i, k in T.grid(4, 8):
        with T.sblock("s"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                s[vi] = T.float32(0)
            s[vi] = s[vi] + T.exp(x[vi, vk] - m[vi])
"""
#: Sums of rows with a bias, of which negative ones are replaced by 0.
BIASED = """\
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8, 6), "int32"), C: T.Buffer((8,), "int32"), D: T.Buffer((8,), "int32")):
    temp = T.sblock_alloc_buffer((8,), "int32")
    biased = T.sblock_alloc_buffer((8,), "int32")
    for i, k in T.grid(8, 6):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                temp[vi] = 0
            temp[vi] = temp[vi] + A[vi, vk]
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            biased[vi] = temp[vi] + C[vi]
    for i in range(8):
        with T.sblock("relu"):
            vi = T.axis.spatial(8, i)
            D[vi] = T.max(biased[vi], 0)
"""
_BLOCKS = 'sch.fuse_cascaded_reductions("s", factor=4)\n'
_FUSE = 'sch.fuse_reduction_epilogue("sum")\n'
_TERM = "T.exp(x[vi, vk] - m[vi])"
_BETWEEN = """\
    for i, j in T.grid(4, 8):
        with T.sblock("twice"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = x[vi, vj] * T.float32(2)
"""
_SECOND = SOFTMAX[SOFTMAX.rindex("    for i, k") :]
_LARGEST = 'm[vi] = T.min_value("float32")'


@dataclass(frozen=True)
class Written:
    """A function, and the calls that are made on a schedule of it.

    - `func`: the function in TVMScript.
    - `calls`: statements of Python, for a schedule ``sch``.
    - `names` (Mapping[str, Any]): other objects that the statements use.
    """

    func: str
    calls: str
    names: Mapping[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        """Make the calls."""
        sch = Schedule(tvm.script.from_source(self.func), debug_mask="all")
        exec(self.calls, {"sch": sch, "tvm": tvm, "fuse_epilogue": fuse_epilogue, **self.names})


def _changed(changes: Mapping[str, str]) -> str:
    """Return `SOFTMAX` with parts of its text replaced."""
    text = SOFTMAX
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def _cascade(
    changes: Mapping[str, str], calls: str = _BLOCKS, instead: str = ""
) -> tuple[Written, Written]:
    """Return a changed `SOFTMAX`, and the program that is fused: `SOFTMAX` if `instead` is not."""
    return Written(_changed(changes), calls), Written(instead or SOFTMAX, _BLOCKS)


def _split(changes: Mapping[str, str]) -> tuple[Written, Written]:
    """Return a changed `SOFTMAX` that is fused in one part, but not in two."""
    func, parts = _changed(changes), _BLOCKS.replace(")", ", parts=2)")
    return Written(func, parts), Written(func, _BLOCKS)


def _recorded() -> tuple[Written, Written]:
    """Return a trace of rows on a convolution with strides, and a plan of that convolution."""
    conv, strided = (
        fuse_epilogue.workloads.depthwise_conv1d(2, 4, 64, 3, stride=stride) for stride in (1, 2)
    )
    target = tvm.target.Target(fuse_epilogue.schedules.host())
    rule = fuse_epilogue.schedules.cpu.DepthwiseConv1d()
    names = {"trace": rule.apply(conv, target).trace.as_json(), "target": target}
    text = strided.script()
    replayed = "tvm.s_tir.Trace.apply_json_to_schedule(trace, sch)  # of another function\n"
    planned = 'fuse_epilogue.plan(sch.mod["main"], target).apply(sch.mod["main"])\n'
    return Written(text, replayed, names), Written(text, planned, names)


def pairs() -> dict[str, tuple[Written, Written]]:
    """Return by code what is refused with it, and what is fused instead."""
    aligned = 'sch.storage_align("sum", 0, 0, 8, 1)\n'
    add = 'sch.fuse_reduction_epilogue("sum", "add")\n'
    inner = 'loop = sch.get_loops("{}")[1]\n'
    blocked = "sch.blockize(loop)\n"
    split = 'sch.decompose_reduction("sum", sch.get_loops("sum")[1])\n'
    lanes = 'sch.vectorize(sch.get_loops("sum")[0])\n'
    parts = 'sch.rfactor(sch.get_loops("sum")[1], 0)\n'
    key = "T.if_then_else(vk < 7, x[vi, vk], T.float32(-1e30))"
    largest = {"T.max(m[vi], x[vi, vk])": f"T.max(m[vi], {key})"}
    summed = f"s[vi] = s[vi] + {_TERM}"
    condition = {summed: f"if vk < 7:\n                {summed}"}
    product = {
        "T.max(m[vi], x[vi, vk])": "m[vi] * x[vi, vk]",
        _LARGEST: "m[vi] = T.float32(1)",
        _TERM: "x[vi, vk] * m[vi]",
    }
    masked = {_TERM: f"T.if_then_else(vk < 7, {_TERM}, T.float32(0))"}
    return {
        "storage-align": (Written(BIASED, aligned + add), Written(BIASED, add + aligned)),
        "init-reads": (
            Written(BIASED, _FUSE + inner.format("sum") + blocked),
            Written(BIASED, _FUSE + split + inner.format("sum_update") + blocked),
        ),
        "vector-lanes": (Written(BIASED, _FUSE + lanes), Written(BIASED, lanes + _FUSE)),
        "not-alone": (Written(BIASED, _FUSE + parts), Written(BIASED, parts + _FUSE)),
        "rewriting": _recorded(),
        "no-cascade": _cascade({_TERM: "T.exp(x[vi, vk])"}),
        "cascade-form": _cascade(largest | condition, instead=_changed(largest | masked)),
        "cascade-loops": _cascade({}, 'sch.parallel(sch.get_loops("s")[0])\n' + _BLOCKS),
        "cascade-row": _cascade({"- m[vi])": "- m[3 - vi])"}),
        "cascade-domain": _cascade({_SECOND: _SECOND.replace("(4, 8)", "(4, 7)")}),
        "cascade-empty": _cascade(
            {
                "main(x: T.Buffer((4, 8)": "main(n: T.int32, x: T.Buffer((4, n)",
                "T.grid(4, 8)": "T.grid(4, n)",
            }
        ),
        "cascade-start": _cascade(
            {
                _LARGEST: 'm[vi] = T.float32("-inf")',
                _TERM: f"T.if_then_else(vk != 3, {_TERM}, T.float32(0))",
            }
        ),
        "cascade-term": _cascade({_TERM: "T.abs(x[vi, vk] - T.float32(2) * m[vi])"}),
        "cascade-cast": _cascade({_TERM: f'T.Cast("float32", T.Cast("float16", {_TERM}))'}),
        "cascade-condition": _cascade(
            {_TERM: "T.Select(x[vi, vk] > m[vi] - T.float32(5), x[vi, vk], T.float32(0))"}
        ),
        "cascade-expanding": _cascade(
            {_LARGEST: _LARGEST.replace("min", "max"), "T.max(m": "T.min(m"}
        ),
        "cascade-range": _cascade({"T.exp(x[vi, vk]": "T.exp(x[vi, 7 - vk]"}),
        "cascade-narrow": _cascade({"float32": "float16"}),
        "cascade-exact": _cascade(
            {}, 'sch.fuse_cascaded_reductions("s", factor=4, numerics="exact")\n'
        ),
        "cascade-order": _cascade({_SECOND: _BETWEEN + _SECOND}),
        "cascade-loop": _cascade(
            {}, 'sch.fuse_cascaded_reductions("s", sch.get_loops("s")[0], factor=4)\n'
        ),
        "cascade-parts": _split(product),
    }


def difference(refused: Written, fused: Written) -> str:
    r"""Return the lines of two programs that differ, of calls that differ also those around them.

    Example
    -------
    >>> difference(Written("a\nb\n", "go()\n"), Written("a\nc\n", "go()\n"))
    '-b\n+c'
    >>> print(difference(Written("", "go()\nstop()\n"), Written("", "go()\n")))
     go()
    -stop()
    """
    lines = [
        *dedented(_lines(refused.func, fused.func, 0)),
        *_lines(refused.calls, fused.calls, 3),
    ]
    return "\n".join(lines)


def dedented(lines: Sequence[str]) -> list[str]:
    """Return lines of a difference without the blanks that all of them have after their mark.

    Example
    -------
    >>> dedented(["-    a", "+      b"])
    ['-a', '+  b']
    """
    texts = textwrap.dedent("\n".join(line[1:] for line in lines)).split("\n")
    return [line[0] + text for line, text in zip(lines, texts, strict=False)]


def _lines(before: str, after: str, around: int) -> list[str]:
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), n=around)
    return [line for line in found if not line.startswith(("---", "+++", "@@"))]


def code_of(refused: Written) -> str | None:
    """Return the code that a program is refused with, none if it is not."""
    try:
        refused.run()
    except ScheduleError as error:
        return fuse_epilogue.refusal_code(error)
    return None
