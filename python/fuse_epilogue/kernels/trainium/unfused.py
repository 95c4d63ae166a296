"""A function as two, with the result of its reduction in HBM between them.

That is what there is without fusing: the reduction stores its sums, and what follows loads them
again. Each part is scheduled as if it were alone; both together are one kernel.

    y = relu(matmul(a, b))      becomes      sums = matmul(a, b)
                                             y    = relu(sums)
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from ...rewrites.prepare import Prepare, Prepared, prepare
from ...tir.nest import child_names, nests, statements
from ...tir.walk import handle
from .outline import part_of
from .tiles import is_fixed


@dataclass(frozen=True)
class Unfused:
    """A function as two.

    - `sch`: what its schedules begin with: the reduction, and one block that follows. It stays as
      it is.
    - `reduction`: the reduction alone; the last parameter is what it stores into.
    - `rest`: the epilogue; its last parameter but one is the result of the reduction.
    """

    sch: s_tir.Schedule
    reduction: tirx.PrimFunc
    rest: tirx.PrimFunc


def is_followed(prepared: Prepared) -> bool:
    """Whether anything follows the only reduction of a function that is prepared."""
    return prepared is not None and len(child_names(prepared[0].mod["main"])) > 1


def unfused_parts(func: tirx.PrimFunc, prepared: Prepare = prepare) -> Unfused | None:
    """Return a function as two, None where nothing follows its reduction in one block.

    - `func`: not scheduled.
    - `prepared`: prepares it; as :func:`fuse_epilogue.rewrites.prepare.prepare`.
    """
    found = prepared(func) if is_fixed(func) else None
    if found is None:
        return None
    sch, reduction = found
    try:
        for name in child_names(sch.mod["main"])[1:-1]:
            sch.compute_inline(sch.get_sblock(name))
    except s_tir.ScheduleError:
        return None
    made = sch.mod["main"]
    root = made.body.block
    if len(statements(root.body)) != 2 or None in nests(root) or len(root.alloc_buffers) != 1:
        return None
    if handle(sch.get(reduction).writes[0].source) != handle(root.alloc_buffers[0]):
        return None
    first, rest = (part_of(made, name) for name in child_names(made))
    assert first is not None and rest is not None, "each block has a name of its own"
    return Unfused(sch, first, rest)
