"""Regions that blocks access, in place of those that they declare.

TVM's primitives rely on what a block declares: one that declares all of y and writes an element has
all of y copied for each of its tiles, over what other tiles have computed.

    T.writes(y[0:64, 0:64])                        T.writes(y[vi, vj])
    y[vi, vj] = ...                  becomes       y[vi, vj] = ...
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call
from tvm.s_tir.analysis import get_sblock_access_region, get_sblock_read_write_region

from ..tir.build import replace, with_fields
from ..tir.nest import child_blocks
from ..tir.walk import handle, loads, operator_name, parts_of

#: Calls that hide accesses from loads and stores.
_OPAQUE = ("tirx.address_of", "tirx.tvm_access_ptr")


def with_accessed_regions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose blocks declare what they access, as TVMScript would for them.

    A block stays as it is if it takes an address, or has another name for a buffer.

    - `func`: not scheduled.
    - Returns: `func` itself if they do.
    """
    changed = {}
    for block in child_blocks(func):
        made = _declaring(block)
        if made is not None:
            changed[handle(block)] = made
    if not changed:
        return func
    body = replace(func.body, s_tir.SBlock, lambda block: changed.get(handle(block), block))
    return func.with_body(body)


def _declaring(block: Any) -> Any:
    """Return a block that declares what it accesses, None if it does, or if that is not known."""
    if block.match_buffers or any(operator_name(c) in _OPAQUE for c in parts_of(block, Call)):
        return None
    parts = [part for part in (block.body, block.init) if part is not None]
    stores = [store for part in parts for store in parts_of(part, tirx.BufferStore)]
    buffers = [load.source for load in loads(block.body) + loads(block.init)]
    known = {buffer: buffer for buffer in (*buffers, *(store.buffer for store in stores))}
    if get_sblock_access_region(block, known)[2]:
        return None
    reads, writes = get_sblock_read_write_region(block, known)
    if _same(block.reads, reads) and _same(block.writes, writes):
        return None
    return with_fields(block, reads=reads, writes=writes)


def _same(declared: Any, accessed: Any) -> bool:
    """Whether regions are the same, in any order."""
    left = list(accessed)
    for region in declared:
        at = next((i for i, o in enumerate(left) if tvm_ffi.structural_equal(region, o)), None)
        if at is None:
            return False
        del left[at]
    return not left
