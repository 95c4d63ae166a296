"""A depthwise convolution along one dimension, on a processor.

    y[.., i] = epilogue(sum_f x[.., i + f - left] * weight[.., f])

The forms that it may have, and how they are written, are those of
:mod:`fuse_epilogue.kernels.cpu.depthwise.forms`, which the rule for LLVM has too. "rows": every
element of x is loaded once, and the windows of the taps are put together in registers. "tiles":
TVM's loops, with a load for every tap. "elements": one sum after the other. "words": rows of 8-bit
integers, four taps in one instruction. Rows and words are written with all that follows; the others
can leave it in loops of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from tvm import s_tir

from ....kernels.cpu.depthwise import forms
from ....kernels.cpu.depthwise.forms import Form
from ....rewrites.epilogue import NONE, fuse, in_vectors, unfused
from ....tir.nest import child_names
from ...machines.cpu import Cpu
from ..cost import Terms
from ..patterns import Conv
from ..problem import fusion_variable
from ..space import Constraint, Point, Points, Space, Variable
from .depthwise_cost import cost

TILES, ROWS, ELEMENTS, WORDS = 0, 1, 2, 3
NAMES = {
    TILES: forms.TILES,
    ROWS: forms.ROWS,
    ELEMENTS: forms.ELEMENTS,
    WORDS: forms.WORDS,
}
_LABELS = {TILES: "tiles", ROWS: "rows", ELEMENTS: "elements", WORDS: "words"}
PLAIN, STREAMED = 0, 1
_VECTORS = (1, 2, 4, 8)

#: A way to fuse, a form and lanes.
Way = tuple[int, int, int]


@dataclass(frozen=True)
class ConvProblem(Conv[Cpu]):
    """A depthwise convolution and a processor; see :class:`.problem.Problem`.

    - `ways`: the ways to fuse, forms and lanes that go together.
    - `streamed`: those of which the result can be stored around the caches.
    - `why_not_rows`: why there are no rows; "" if there are.
    - `neighbours`: channels, where they are neighbours in memory; 0 where columns are.
    - `stride`: columns of x from a column of the result to the next one.
    - `shared`: rows of the result that are sums over the same windows of x; 1 if it is depthwise.
    """

    ways: frozenset[Way]
    streamed: frozenset[Way]
    why_not_rows: str
    neighbours: int
    stride: int
    shared: int
    kind: str = "conv"

    @cached_property
    def space(self) -> Space:
        """The variables, and what forbids some of their values."""
        known = sorted({form for _, form, _ in self.ways})
        lanes = tuple(sorted({lanes for _, _, lanes in self.ways}))
        threads = tuple(dict.fromkeys((1, self.machine.cores)))
        stores = (PLAIN, STREAMED) if self.streamed else (PLAIN,)
        size = self.sizes["rows"] * self.sizes["columns"] * self.out_bytes
        last = self.machine.caches[-1]
        variables = (
            fusion_variable(self.epilogue),
            Variable(
                "form",
                tuple(known),
                "",
                "how x is loaded: tiles, for every tap again; rows, once for all taps; elements, "
                "for one sum after the other; words, in rows for four taps at once",
                tuple(_LABELS[form] for form in known),
            ),
            Variable("vectors", _VECTORS, "vectors", "vectors of a tile"),
            Variable("lanes", lanes, "elements", "elements of a vector"),
            Variable(
                "stores",
                stores,
                "",
                "of the result: into the caches, or around them",
                ("plain", "streamed")[: len(stores)],
            ),
            Variable("threads", threads, "cores", "cores that compute rows"),
        )
        constraints = (
            Constraint(
                "form",
                0,
                "",
                lambda p: ~_among(p, self.ways),
                "rows are written with all that follows; of elements LLVM chooses the lanes",
            ),
            Constraint(
                "one way",
                1,
                "vectors",
                lambda p: np.where(p["form"] == TILES, 1, p["vectors"]),
                "of rows LLVM chooses how many vectors it unrolls",
            ),
            Constraint(
                "whole vectors",
                0,
                "",
                lambda p: (p["stores"] == STREAMED) & ~_among(p, self.streamed),
                "only rows are streamed, in whole aligned vectors",
            ),
            Constraint(
                "kept",
                0,
                "bytes",
                lambda p: (p["stores"] == STREAMED) * max(0, last.bytes - size),
                f"a result that fits into {last.name} stays there for its readers",
            ),
        )
        return Space(variables, constraints)

    @property
    def missing(self) -> tuple[str, ...]:
        """Choices that the space lacks, each with the reason."""
        rows = (f"not in rows: {self.why_not_rows}",) if self.why_not_rows else ()
        tiles = ("not in tiles: one of TVM's primitives refuses the loops",)
        return rows + (() if any(form == TILES for _, form, _ in self.ways) else tiles)

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points."""
        return cost(self, points)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled, with all its steps as the trace."""
        self.space.check(point)
        form = Form(
            NAMES[point["form"]],
            point["lanes"],
            point["vectors"],
            point["stores"] == STREAMED,
            point["threads"] > 1,
        )
        return forms.written(*self.request.scheduled(), form, follow(point))


def _among(p: Points, ways: frozenset[Way]) -> Any:
    """Return for each point whether its way to fuse, form and lanes are among some."""
    codes = [_code(*way) for way in ways]
    return np.isin(_code(p["fusion"], p["form"], p["lanes"]), codes)


def _code(fusion: Any, form: Any, lanes: Any) -> Any:
    return (lanes * len(NAMES) + form) * 3 + fusion


def follow(point: Point) -> Any:
    """Return what a point makes of what follows the convolution."""
    mode, lanes = point["fusion"], point["lanes"]

    def after(sch: s_tir.Schedule, conv: Any) -> None:
        if mode != NONE:
            fuse(sch, conv, mode)
            return
        blocks = child_names(sch.mod["main"])
        last = unfused(sch, blocks[blocks.index(sch.get(conv).name_hint) + 1 :])
        if last is not None:
            in_vectors(sch, last, lanes, point["threads"] > 1)

    return after
