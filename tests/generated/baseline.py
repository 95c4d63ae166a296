"""TVM's own primitive on the same programs, for comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tvm
from tvm import s_tir

from .spec import Program

# What TVM's own method calls. This package replaces the method, but leaves this function alone.
_fuse = tvm.get_global_func("s_tir.schedule.ScheduleFuseReductionEpilogue")


def tvms(sch: s_tir.Schedule, blocks: tuple[str, ...], program: Program) -> Any:
    """Call TVM's primitive, which takes a reduction and one epilogue and makes no report."""
    named = [sch.get_sblock(name) for name in blocks]
    try:
        _fuse(sch, *named)
    except BaseException:
        # Looking a block up is recorded; that is not the primitive's fault.
        for block in reversed(named):
            sch.trace.pop()
            sch.remove_rv(block)
        raise


def for_tvm(program: Program) -> Program | None:
    """Return the program with a call that TVM's primitive has: the pair; None if there is none.

    Parameters
    ----------
    program : Program
        Of any call.
    """
    readers = [n for n, e in enumerate(program.epilogues) if e.stage == 0 and e.other <= 0]
    if program.call == "stranger" or not program.epilogues:
        return None
    if program.call in ("pair", "wrong pair", "consumer"):
        named = program.named
    elif readers:
        named = readers[0]
    else:
        return None
    call = "wrong pair" if program.call == "wrong pair" else "pair"
    return replace(program, call=call, named=named, numerics="reassociate", distribute=False)
