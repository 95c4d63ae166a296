"""Copies into shared memory that no thread waits for, for CUDA: the instruction "cp.async".

TVM makes such copies of loads and stores in a pass that a setting of the compilation switches on; a
schedule has no settings, and of vectors that pass of TVM 0.27 makes what its own code generator
refuses. So a block becomes the instruction here, as others become that of a tensor core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from ...rewrites.step import NotRewritten
from ...tir.affine import as_constant
from ...tir.types import bits_of

#: Bytes that the instruction copies, and the first compute capability that has it: PTX ISA,
#: "cp.async".
BYTES = (4, 8, 16)
SINCE = 80


def has_copies(arch: str) -> bool:
    """Whether an architecture has the instruction.

    - `arch`: as TVM's target has it: "sm_90".

    >>> has_copies("sm_70"), has_copies("sm_90a")
    (False, True)
    """
    number = arch.removeprefix("sm_").rstrip("af")
    return number.isdigit() and int(number) >= SINCE


def in_copies(func: PrimFunc, name: str) -> PrimFunc:
    """Return a function in which a block's innermost loop is one copy that no thread waits for.

    Readers of the copies must wait for them: TVM's software pipeline makes that of a loop with
    ``software_pipeline_async_stages``. By itself, the function computes something else.

    - `name`: loop of a block that copies an element from global to shared memory. Its innermost
      loop has the elements of one copy, side by side in both, from a multiple of as many on.
    - Raises NotRewritten: the block does something else, or no instruction copies that many bytes.
    """
    sch = s_tir.Schedule(func)
    block = sch.get_sblock(name)
    store, loops = sch.get(block).body, sch.get_loops(block)
    load = getattr(store, "value", None)
    if not loops or not isinstance(store, tirx.BufferStore) or not isinstance(load, TensorLoad):
        raise NotRewritten(f"its block '{name}' is not a copy in a loop")
    if (load.source.scope(), store.buffer.scope()) != ("global", "shared"):
        raise NotRewritten(f"'{name}' does not copy from global to shared memory")
    lanes, dtype = as_constant(sch.get(loops[-1]).extent), str(store.buffer.ty.dtype)
    if not isinstance(lanes, int) or lanes * bits_of(dtype) not in [8 * n for n in BYTES]:
        raise NotRewritten(
            f"'{name}' copies {lanes} of {dtype}: an instruction copies 4, 8 or 16 bytes"
        )
    try:
        # TVM does not keep a loop of one step.
        sch.tensorize(loops[-1] if lanes > 1 else block, _instruction(dtype, lanes))
    except s_tir.ScheduleError as error:
        raise NotRewritten(f"'{name}' does not copy {lanes} elements side by side") from error
    return sch.mod["main"]


def _instruction(dtype: str, lanes: int) -> str:
    """Return the name of a copy of some elements; TVM knows it from then on."""
    name = f"cuda.cp_async.{dtype}x{lanes}"
    if s_tir.TensorIntrin.get(name, allow_missing=True) is None:
        size = lanes * bits_of(dtype) // 8
        # Only copies of 16 bytes can go around the first cache.
        ptx = T.ptx[f"cp.async.{'cg' if size == BYTES[-1] else 'ca'}.shared.global"]

        def elements(to: Any, of: Any) -> None:
            with T.serial(0, lanes) as lane, T.sblock("copy"):
                v = T.axis.spatial(lanes, lane)
                T.buffer_store(to, of[v], [v])

        def element(to: Any, of: Any) -> None:
            T.buffer_store(to, of[0], [0])

        def copy(to: Any, of: Any) -> None:
            T.evaluate(ptx(to.access_ptr("w"), of.access_ptr("r"), size))

        meant = _written(dtype, lanes, elements if lanes > 1 else element)
        s_tir.TensorIntrin.register(name, meant, _written(dtype, lanes, copy))
    return name


def _written(dtype: str, lanes: int, body: Callable[[Any, Any], None]) -> PrimFunc:
    """Return a function of some elements in shared memory, and as many in global memory."""
    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("copy")
        handles = [T.arg(name, T.handle()) for name in ("to", "of")]
        to, of = (
            T.match_buffer(handle, (lanes,), dtype, scope=scope, offset_factor=lanes)
            for handle, scope in zip(handles, ("shared", "global"), strict=True)
        )
        with T.sblock("root"):
            T.reads(of[0:lanes])
            T.writes(to[0:lanes])
            body(to, of)
    return builder.get()
