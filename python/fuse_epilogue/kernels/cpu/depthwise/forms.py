"""The forms in which a depthwise convolution is written for LLVM.

The rule in :mod:`.rule` and the planner choose a form, and both have it written here: there is one
way from a form to its code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from ....recognize.depthwise import find_depthwise_conv
from ....rewrites.fused_conv import fuse_followers
from ....rewrites.step import rewrite
from .loops import in_loops, one_by_one

#: In vectors along the rows of memory, see :mod:`.contiguous_conv`, or by dot products of 8-bit
#: integers, see :mod:`.words`; as tiles of loops and element by element, see :mod:`.loops`.
ROWS, WORDS = "rows, in vectors", "rows, in words of four bytes"
TILES, ELEMENTS = "tiles of loops", "element by element"


@dataclass(frozen=True)
class Form:
    """A way to write a convolution.

    - `name`: :data:`ROWS`, :data:`WORDS`, :data:`TILES` or :data:`ELEMENTS`.
    - `lanes`: elements of a vector, a power of two; not of :data:`ELEMENTS`; sums of :data:`WORDS`.
    - `vectors`: columns of a tile; of :data:`TILES` only.
    - `stream`: whether the result is stored around the caches; of rows only, and only where
      :func:`.contiguous_conv.streams` says that it can be.
    - `parallel`: whether rows run in parallel.
    """

    name: str
    lanes: int = 1
    vectors: int = 1
    stream: bool = False
    parallel: bool = True


def written(
    sch: s_tir.Schedule,
    conv: Any,
    form: Form,
    follow: Callable[[s_tir.Schedule, Any], None] = fuse_followers,
) -> s_tir.Schedule:
    """Return a convolution in a form.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; nothing is scheduled. It is used
      up.
    - `conv` (SBlockRV): the reduction.
    - `form`: one that is possible; of rows, :func:`.row_limits.why_not_rows` tells, of words
      :func:`.words.why_not_words` as well.
    - `follow`: treatment of the epilogue.
    - Returns: `sch`. Its trace has all steps: TVM's primitives, ours, and two rewritings, see
      :mod:`fuse_epilogue.rewrites.step`. "rows" writes the code of :data:`ROWS`, "rows_of_words" of
      :data:`WORDS`; "borders" splits the loops of :data:`TILES`.
    - Raises tvm.s_tir.ScheduleError: the epilogue is not fusable, one of TVM's primitives refuses
      the loops, or the form is not possible.
    """
    if form.name in (ROWS, WORDS):
        follow(sch, conv)
        step = "rows" if form.name == ROWS else "rows_of_words"
        rewrite(sch, conv, step, lanes=form.lanes, stream=form.stream, parallel=form.parallel)
        return sch
    found = find_depthwise_conv(sch.get(conv))
    assert found is not None, "it was when this form was found to be possible"
    if form.name == TILES:
        return in_loops(sch, conv, found, form.lanes, form.vectors, form.parallel, follow)
    return one_by_one(sch, conv, found, form.parallel, follow)
