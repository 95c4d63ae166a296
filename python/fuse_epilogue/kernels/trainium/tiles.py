"""Shared code of the rules for rows and matrices: sizes of the machine, matching, marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad

from ...neuron.emit import EmitError, emit
from ...neuron.errors import CheckError
from ...neuron.language.grammar import TILE_SIZE
from ...neuron.machine import Machine
from ...rewrites.fused_conv import fuse_followers
from ...rewrites.prepare import Prepared
from ...tir.affine import as_constant
from ...tir.build import replace
from ...tir.expressions import added_term
from ...tir.nest import child_names
from ...tir.walk import handle, loads, uses
from ...workloads.writer import Writer
from ..choice import Choice

#: Partitions of SBUF, and what one bank of PSUM holds for each: a matmul's moving operand at most.
#: Source: AWS Neuron documentation, architecture guides and `nki.isa.nc_matmul`.
PARTITIONS = TILE_SIZE["pmax"]
BANK_BYTES = 2048
BANK = TILE_SIZE["psum_fmax"]
#: Instructions up to which the candidates are timed by the model: seconds for all of them.
TIMED = 20_000
#: Types the engines compute with.
FLOATS = ("float32", "float16", "bfloat16")


def is_fixed(func: tirx.PrimFunc, *, also: Sequence[str] = ()) -> bool:
    """Whether all parameters are buffers of fixed sizes, of floats or of other types `also`."""
    return all(
        hasattr(param.ty, "shape")
        and str(param.ty.dtype) in (*FLOATS, *also)
        and all(isinstance(as_constant(extent), int) for extent in param.ty.shape)
        for param in func.params
    )


def declared(writer: Writer, func: tirx.PrimFunc) -> dict[Any, Any]:
    """Declare the parameters of a function again; return the new ones by the old."""
    return {
        param: writer.parameter(
            param.name, [int(extent) for extent in param.ty.shape], str(param.ty.dtype)
        )
        for param in func.params
    }


def fuse_all(sch: s_tir.Schedule, reduction: Any) -> s_tir.Schedule | None:
    """Fuse what follows a reduction into it and one tail; what it adds to its result stays.

    Where the epilogue would turn ``total + t`` into something else - ``c - x`` makes it ``total -
    t`` from c on -, no float of it is absorbed: then it is computed after the reduction.

    - `sch`: prepared, see :mod:`fuse_epilogue.rewrites.prepare`; it is left in any state.
    - `reduction` (SBlockRV): its body is ``out[e] = out[e] (+) t``, which may have been read
      before.
    - Returns: the schedule, fused. None if even so the reduction would be another one.
    - Raises tvm.s_tir.ScheduleError: the epilogue cannot be fused.
    """
    before, plainly = sch.get(reduction).body, sch.copy()
    fuse_followers(sch, reduction)
    if not _same_step(before, sch.get(reduction).body):
        sch = plainly
        sch.fuse_reduction_epilogue(reduction, numerics="exact")
        if not _same_step(before, sch.get(reduction).body):
            return None
    for name in child_names(sch.mod["main"])[1:-1]:
        sch.compute_inline(sch.get_sblock(name))
    return sch


Matched = TypeVar("Matched")


def matched_reduction(
    prepared: Prepared,
    is_kind: Callable[[Any], bool],
    match: Callable[[s_tir.Schedule, Any], Matched | None],
) -> Matched | None:
    """Return what a function is whose reduction is of a kind; None if it is something else.

    - `prepared`: the function as :func:`fuse_epilogue.rewrites.prepare.prepare` returns it.
    - `is_kind`: whether the block of the reduction is of the kind.
    - `match`: takes the fused schedule, see :func:`fuse_all`, and the reduction.
    - Raises tvm.s_tir.ScheduleError: the epilogue of the reduction cannot be fused.
    """
    if prepared is None or not is_kind(prepared[0].get(prepared[1])):
        return None
    joined = fuse_all(*prepared)
    return None if joined is None else match(joined, prepared[1])


def _same_step(before: Any, after: Any) -> bool:
    """Whether two stores join the same term to their element in the same way."""
    if type(before.value) is not type(after.value):
        return False
    terms = added_term(before), added_term(after)
    return None not in terms and tvm_ffi.structural_equal(*terms)


def axis_loads(exprs: Sequence[Any], axes: Mapping[str, Any]) -> dict[str, list[Any]] | None:
    """Return the loads in expressions, by the axes they depend on.

    - `exprs`: in the axes.
    - `axes`: by letter.
    - Returns: the letters in the order of `axes`, as one str. None if an index is neither one of
      the axes nor a constant, or an axis is in two of them.
    """
    found: dict[str, list[Any]] = {}
    for load in (load for expr in exprs for load in loads(expr)):
        letters = ""
        for letter, axis in axes.items():
            places = [index for index in load.indices if uses(index, axis.var)]
            if len(places) > 1 or (places and not places[0].same_as(axis.var)):
                return None
            letters += letter if places else ""
        if not isinstance(load.source, tirx.Var):
            return None
        constant = [i for i in load.indices if not any(i.same_as(a.var) for a in axes.values())]
        if not all(isinstance(as_constant(index), int) for index in constant):
            return None
        found.setdefault(letters, []).append(load)
    return found


def unused(load: Any, kind: str, taken: Sequence[str]) -> str:
    """Return a name for the block that brings what is loaded, and for its buffer.

    - `load` (tvm.ir.TensorLoad): the load.
    - `kind`: suffix of the name.
    - `taken`: the names of the blocks before it, whose number distinguishes loads of one buffer.
    """
    count = len(taken)
    while (name := f"{load.source.name}{count or ''}_{kind}") in taken:
        count += 1
    return name


def replaced_loads(expr: Any, by: Mapping[int, Any]) -> Any:
    """Return an expression with some loads replaced, by their handles."""
    return replace(expr, TensorLoad, lambda load: by.get(handle(load), load))


def mark(sch: s_tir.Schedule, partition: Any, *free: Any) -> None:
    """Mark the loops that an instruction covers."""
    sch.annotate(partition, "nki_dim", "P")
    for loop in free:
        sch.annotate(loop, "nki_dim", "F")


def split(sch: s_tir.Schedule, loop: Any, size: int) -> list[Any]:
    """Split a loop into pieces of a size, or one piece if it is not longer."""
    extent = int(sch.get(loop).extent)
    return list(sch.split(loop, [None, min(size, extent)]))


def best(target: Machine, candidates: Iterable[tuple[str, s_tir.Schedule]]) -> Choice:
    """Return the schedule for which the latency model predicts the shortest time.

    Among kernels of more than `TIMED` instructions, the first that keeps the rules is taken.

    - `target`: for which it is predicted, and whose rules have to be kept.
    - `candidates`: description and schedule of each one.
    - Returns: without a function if no kernel can be made of any of them.
    """
    found: Choice | None = None
    shortest = 0.0
    why = "there is no schedule for its sizes"
    for form, sch in candidates:
        try:
            kernel = emit(sch)
            kernel.check(target)
        except (EmitError, CheckError) as error:
            why = str(error)
            continue
        if len(kernel.trace().steps) > TIMED:
            return found or Choice(form, schedule=sch)
        latency = kernel.predict(target).latency_ms
        if found is None or latency < shortest:
            found, shortest = Choice(form, schedule=sch), latency
    return found or Choice("", why)
