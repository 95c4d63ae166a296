"""Several sums in one function, such as gradients: one kernel after the other.

A function whose sums are read by further sums is cut where one is stored in memory anyway. Each
part is a function of its own, is scheduled as such, and put back:

    conv, bias, slope         ds, kept in memory
    dpadded, dx               dx, from ds
    dweight                   dweight, from ds and x
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...recognize.streams import Piece, Streams, is_sum
from ...tir.build import in_root, sequence, with_fields
from ...tir.expressions import is_guard
from ...tir.walk import handle, loads, same, substitute
from ..scheduled import Packing, Scheduled, Way

#: Schedules a part, some parameters of which are constants at every call; None if it does not know
#: it.
Part = Callable[[tirx.PrimFunc, frozenset[int]], Scheduled | None]


def several(
    streams: Streams,
    part: Part,
    checks: Sequence[Any],
    *,
    single: bool = False,
    constants: frozenset[int] = frozenset(),
) -> Scheduled | None:
    """Schedule a function with several sums.

    - `streams`: no parameter is updated in place.
    - `part`: schedules a function with one sum, or none.
    - `checks`: the checks of the function, as they are executed before all else.
    - `single`: whether it has constant sizes and a single sum, whose results are kept where
      statements with more elements read them.
    - `constants`: indices of the parameters that are constants at every call. Those that one part
      alone reads are constants of this part, which may pack them.
    - Returns: None if it is one part, or `part` knows none of the parts. A part that it does not
      know keeps the loops that it has.
    """
    kept = _kept(streams, single)
    if len(kept) < 2 or not any(is_sum(each) for each in streams.pieces):
        return None
    body = [*checks]
    results = {handle(param) for param in streams.func.params}
    allocated = [buffer for buffer in kept if handle(buffer) not in results]
    made: list[Scheduled] = []
    parts = [_function(streams, buffer, kept) for buffer in kept]
    readers = Counter(handle(param) for func in parts for param in func.params)
    places = {
        handle(streams.func.params[at]): at
        for at in constants
        if readers[handle(streams.func.params[at])] == 1
    }
    params, packing = list(streams.func.params), dict[int, Packing]()
    for func in parts:
        own = {n: places[handle(p)] for n, p in enumerate(func.params) if handle(p) in places}
        scheduled = part(func, frozenset(own))
        if scheduled is not None:
            made.append(scheduled)
            func = scheduled.func
            for n, how in scheduled.packing.items():
                packing[own[n]], params[own[n]] = how, func.params[n]
                results.add(handle(func.params[n]))
            between = [each for each in func.params if handle(each) not in results]
            func = func.with_body(_openly(func.body, between))
        func = _with_own_buffers(func, allocated)
        if isinstance(func.body, s_tir.SBlockRealize):
            body.append(func.body.block.body)
            allocated += func.body.block.alloc_buffers
        else:
            body.append(func.body)
    if not made:
        return None
    func = with_fields(streams.func, params=params, body=in_root(sequence(body), allocated))
    return _scheduled(func, made, packing)


def _scheduled(func: Any, made: Sequence[Scheduled], packing: dict[int, Packing]) -> Scheduled:
    """Return a function of several parts with what these say of themselves."""
    kind = f"several: {', '.join(each.kind for each in made)}"
    predicted = sum(each.predicted_s for each in made)
    texts = [f"{each.kind}: {each.ways[0].text}" for each in made if each.ways]
    ways = (Way("; ".join(texts), predicted),) if texts else ()
    return Scheduled(func, kind, "tail", predicted, packing, ways=ways)


def _openly(statement: Any, buffers: Sequence[Any]) -> Any:
    """Return a statement whose outer loops name some buffers.

    Kernels read them through views, which TVM's StorageRewrite does not follow when it asks whether
    a loop may put one buffer into the memory of another. It leaves alone what the loop names.
    """
    if isinstance(statement, tirx.SeqStmt):
        return sequence([_openly(each, buffers) for each in statement.seq])
    if not isinstance(statement, tirx.For) or statement.kind == tirx.ForKind.VECTORIZED:
        return statement
    named = [
        tirx.DeclBuffer(
            tirx.decl_buffer(each.shape, str(each.dtype), each.name, data=each.data, layout=None),
            data=each.data,
        )
        for each in buffers
    ]
    return with_fields(statement, body=sequence([*named, statement.body]))


def _kept(streams: Streams, single: bool) -> list[Any]:
    """Return the buffers that are computed by parts of their own, in order.

    The results, and what is computed, other than by copying, and read by a sum or by several
    statements. Of a single sum, also what is computed from it and read by a statement with more
    elements, which would compute it again for each of them, or at several places, as gates are.
    """
    found = []
    for piece in streams.pieces:
        [written] = [
            buffer
            for buffer in (*streams.func.params, *streams.func.body.block.alloc_buffers)
            if handle(buffer) in piece.writes
        ]
        readers = [each for each in streams.pieces if each is not piece and _reads(each, written)]
        of_sum = any(is_sum(each) for each in streams.needed(written))
        work = (of_sum or not _is_copy(piece)) and (
            len(readers) > 1
            or any(is_sum(each) for each in readers)
            or (single and of_sum and any(_is_longer(each, written) for each in readers))
            or (single and of_sum and any(_reads_at_several(each, written) for each in readers))
        )
        if work or any(same(written, result) for result in streams.results):
            found.append(written)
    return found


def _is_longer(piece: Piece, buffer: Any) -> bool:
    """Whether a statement computes more elements than a buffer has."""
    elements = math.prod(int(axis.dom.extent) for axis in piece.block.iter_vars)
    return elements > math.prod(map(int, buffer.shape))


def _reads_at_several(piece: Piece, buffer: Any) -> bool:
    """Whether a statement reads more than one element of a buffer for an element of its own."""
    found = [load for load in loads(piece.block.body) if same(load.source, buffer)]
    return any(
        not tvm_ffi.structural_equal(tuple(load.indices), tuple(found[0].indices)) for load in found
    )


def _is_copy(piece: Piece) -> bool:
    """Whether a statement copies elements, perhaps among constants or those of another buffer."""
    store = piece.block.body
    return isinstance(store, tirx.BufferStore) and _is_moved(store.value)


def _is_moved(value: Any) -> bool:
    if is_guard(value):
        return _is_moved(value.args[1]) and _is_moved(value.args[2])
    return isinstance(value, TensorLoad | prim.FloatImm | prim.IntImm)


def _with_own_buffers(func: tirx.PrimFunc, taken: Sequence[Any]) -> tirx.PrimFunc:
    """Return a function that allocates no buffer of another part."""
    if not isinstance(func.body, s_tir.SBlockRealize):
        return func
    others = {handle(buffer) for buffer in taken}
    params = {handle(param) for param in func.params}
    again = [each for each in func.body.block.alloc_buffers if handle(each) in others - params]
    fresh = {handle(buffer): tirx.Var(buffer.name, buffer.ty) for buffer in again}
    return func.with_body(substitute(func.body, fresh)) if again else func


def _reads(piece: Piece, buffer: Any) -> bool:
    return handle(buffer) in piece.reads


def _function(streams: Streams, buffer: Any, kept: Sequence[Any]) -> tirx.PrimFunc:
    """Return the part that computes a buffer, from those that are computed before."""
    earlier = {handle(each) for each in kept} - {handle(buffer)}
    wanted, pieces = {handle(buffer)}, []
    for each in reversed(streams.pieces):
        if each.writes & wanted:
            pieces.append(each)
            wanted |= each.reads - each.writes - earlier
    made = streams.function(pieces[::-1])
    used = frozenset().union(*(each.reads | each.writes for each in pieces))
    params = [*streams.func.params, *kept]
    params = [
        each for i, each in enumerate(params) if handle(each) in used and i == _first(params, each)
    ]
    params.sort(key=lambda each: same(each, buffer))
    inner = [
        each for each in made.body.block.alloc_buffers if handle(each) not in map(handle, kept)
    ]
    root = in_root(made.body.block.body, inner)
    return tirx.PrimFunc(params, root, made.ret_type, made.attrs)


def _first(params: Sequence[Any], buffer: Any) -> int:
    return next(i for i, each in enumerate(params) if same(each, buffer))
