"""The rule for pieces of streams on Trainium: states before and after, packed sequences, int8.

    for the images:
        for tiles of columns:
            same = for each tap, whether its column is of the result's sequence
            for tiles of channels:
                load the columns, with those of the state before them
                total = sum of the taps, of columns that are of the sequence
                y = f(total)
        final state = the last columns

Sequence numbers are compared as integers by GpSimd, once for all channels. A column of another
sequence is replaced by zeros, not multiplied with them: it may be infinite, or NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad, prim

from ...neuron.machine import Machine
from ...recognize.depthwise import DepthwiseConv, find_depthwise_conv
from ...recognize.stages import Axis, Program, Stage, read_program
from ...recognize.stream_elements import Element, read_element
from ...recognize.streams import Piece, Streams, is_mask, is_sum, read_streams
from ...rewrites.step import NotRewritten, rewrite
from ...tir.affine import affine_of
from ...tir.expressions import is_guard, is_zero, uncast
from ...tir.walk import handle, loads, substitute, uses
from ..choice import Choice
from .quantised import is_quantised, quantised
from .rule import NeuronRule
from .tiles import best, is_fixed


class StreamConv(NeuronRule):
    """Schedules a causal convolution of pieces of streams, or one of int8.

    States before and after a piece, and packed sequences, are those of
    :func:`fuse_epilogue.workloads.depthwise_conv1d`; a final state for each of several sequences of
    an image is not computed, as its address would depend on data. The function's checks of
    sequence numbers are left out: a kernel raises no error for data.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules
    >>> from fuse_epilogue.workloads import depthwise_conv1d
    >>> func = depthwise_conv1d(1, 64, 40, 4, padding="causal", initial_state=True, sequences=True)
    >>> kernel = neuron.emit(schedules.neuron.StreamConv().apply(func, "trn2"))
    >>> [name for name in kernel.inputs]
    ['x', 'weight', 'bias', 'initial_state', 'sequences']
    """

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            find_stream(func)
        except NotRewritten as why:
            return Choice("", str(why))
        return best(core, _candidates(func))


def _candidates(func: tirx.PrimFunc) -> Iterator[tuple[str, s_tir.Schedule]]:
    """Yield the schedules with the first tap on the scalar engine, and on the vector engine."""
    for by_vector, form in ((False, "scalar"), (True, "vector")):
        sch = s_tir.Schedule(func)
        rewrite(sch, sch.get_sblock("root"), "neuron_stream", by_vector=by_vector)
        yield f"tiles of channels and columns, the first tap on the {form} engine", sch


@dataclass(frozen=True)
class Mask:
    """Sequence numbers that must be equal for a column to count.

    - `numbers`: tvm.tirx.Buffer, [images, columns].
    - `own`, `other` (Expr): the columns whose numbers are compared, the first one instead of those
      below 0.
    """

    numbers: Any
    own: Any
    other: Any


@dataclass(frozen=True)
class State:
    """A result of last columns.

    - `stage`: computes it.
    - `image`, `channel`, `column`: its axes.
    - `value` (Expr): an element, without the mask.
    - `mask`: None if all columns count.
    """

    stage: Stage
    image: Axis
    channel: Axis
    column: Axis
    value: Any
    mask: Mask | None


@dataclass(frozen=True)
class Found:
    """A convolution that can be scheduled.

    - `func`, `program`: the function.
    - `conv`: the convolution, without the mask; its data are those of `source`.
    - `image`, `channel`: tvm.tirx.IterVar.
    - `weight` (tvm.ir.TensorLoad): an element of the weights.
    - `source`: computes the columns with those before them; None if there are none.
    - `mask`: of a column and a tap of the convolution.
    - `offsets`: for each tap, from a result to the column whose number is compared; 0 without one.
    - `result`: an element of y.
    - `states`: the other results.
    """

    func: tirx.PrimFunc
    program: Program
    conv: DepthwiseConv
    image: Any
    channel: Any
    weight: Any
    source: Stage | None
    mask: Mask | None
    offsets: tuple[int, ...]
    result: Element
    states: tuple[State, ...]

    @property
    def channels(self) -> int:
        """Number of channels."""
        return int(self.channel.dom.extent)


def find_stream(func: tirx.PrimFunc) -> Found:
    """Return the convolution of a piece of streams that a function is.

    - `func`: not scheduled.
    - Raises NotRewritten: it is something else, or an address depends on data.
    """
    streams = read_streams(func) if is_fixed(func, also=("int32", "int8")) else None
    if streams is None or streams.updated():
        raise NotRewritten("it is not a convolution of pieces of streams")
    sums = [piece for piece in streams.pieces if piece.block.init is not None]
    if len(sums) > 1:
        raise NotRewritten(
            "addresses of the final states of several sequences of an image depend on data: pass "
            "sequences=True, for the state of the last one, or use a processor or GPU"
        )
    program = read_program(streams.function(streams.pieces))
    if program is None or len(sums) != 1 or not is_sum(sums[0]):
        raise NotRewritten("it is not a single convolution with its epilogue")
    return _Finder(streams, program, sums[0]).find()


class _Finder:
    def __init__(self, streams: Streams, program: Program, piece: Piece) -> None:
        self.streams, self.program, self.piece = streams, program, piece

    def find(self) -> Found:
        """Return the convolution."""
        masks: list[Any] = []
        block = self._unmasked(masks)
        conv = find_depthwise_conv(block)
        if conv is None or len(masks) > 1 or conv.outside is not None or len(conv.outer) != 2:
            raise NotRewritten("its reduction is not a convolution of images and channels")
        weight = self._weight(conv)
        own = [uses(weight, axis.var) for axis in conv.outer]
        if sum(own) != 1:
            raise NotRewritten("its weights are not per channel")
        image, channel = sorted(conv.outer, key=lambda axis: uses(weight, axis.var))
        mask = self._mask(masks[0], image.var) if masks else None
        owner = next(r for r in self.streams.results if self.piece in self.streams.needed(r))
        result = read_element(self.streams, owner)
        follows = result is not None and len(result.sums) == 1 and len(result.axes) == 3
        if result is None or not (follows and self._in_same_axes(owner)):
            raise NotRewritten("its epilogue does not compute one element from each sum")
        result = self._with_start(result, conv)
        if is_quantised(result.buffer):
            quantised(result.value, result.sums[0][0], conv.taps, tirx.Var("total", "float32"))
        source = self.program.stage_of(conv.data.source)
        if source is not None and source.reduced:
            raise NotRewritten("its columns are computed by an earlier block")
        others = [r for r in self.streams.results if handle(r) != handle(owner)]
        states = tuple(self._state(r, conv, image) for r in others)
        return Found(
            self.streams.func,
            self.program,
            conv,
            image,
            channel,
            weight,
            source,
            mask,
            tuple(_offset(mask, conv, tap) if mask else 0 for tap in range(conv.taps)),
            result,
            states,
        )

    def _in_same_axes(self, owner: Any) -> bool:
        """Whether what follows the sum reads intermediates at the very index it computes."""
        pieces = self.streams.needed(owner)
        names = {str(each.block.name_hint) for each in pieces[pieces.index(self.piece) + 1 :]}
        for stage in self.program.stages:
            axes = [handle(axis.var) for axis in stage.axes]
            for load in stage.loads if stage.name in names else ():
                inner = self.program.stage_of(load.source) is not None
                if inner and [handle(index) for index in load.indices] != axes:
                    return False
        return True

    def _with_start(self, result: Element, conv: DepthwiseConv) -> Element:
        """Return an element of y that adds what its sum begins with, and sums from zero."""
        stage = self.program.stage_of(conv.out.source)
        assert stage is not None  # the program computes the sum
        if not is_zero(stage.init):
            if any(self.program.stage_of(load.source) for load in loads(stage.init)):
                raise NotRewritten("the start value of its sum is computed by an earlier block")
            own = zip(stage.axes, result.axes, strict=True)
            start = substitute(stage.init, {axis.var: by.var for axis, by in own})
            [(total, _)] = result.sums
            result = replace(result, value=substitute(result.value, {total: total + start}))
        places: dict[int, Any] = {}
        for load in loads(result.value):
            known = places.setdefault(handle(load.source), load)
            if not tvm_ffi.structural_equal(known, load):
                raise NotRewritten(f"an element reads '{load.source.name}' at two places")
        return result

    def _unmasked(self, masks: list[Any]) -> Any:
        """Return the block of the sum without its mask, which is noted."""
        block = self.piece.block

        def choice(node: Any) -> Any:
            if not (is_guard(node) and is_mask(node.args[0]) and is_zero(node.args[2])):
                return node
            masks.append(node.args[0])
            return node.args[1]

        body = tvm_ffi.structural_map(block.body, (Call, choice))
        return s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init
        )

    def _weight(self, conv: DepthwiseConv) -> Any:
        term = conv.term
        sides = (term.a, term.b) if isinstance(term, prim.Mul) else ()
        others = [side for side in sides if not side.same_as(conv.window)]
        weight = uncast(others[0]) if len(others) == 1 else None
        if not isinstance(weight, TensorLoad) or uses(weight, conv.column.var):
            raise NotRewritten("its terms are not columns times weights")
        return weight

    def _mask(self, condition: Any, image: Any) -> Mask:
        """Return the columns that a condition compares."""
        columns = []
        for load in (condition.a, condition.b):
            if len(load.indices) != 2 or handle(load.indices[0]) != handle(image):
                raise NotRewritten("sequence numbers are not read by images and columns")
            columns.append(load.indices[1])
        other, own = columns
        return Mask(condition.a.source, own, other)

    def _state(self, result: Any, conv: DepthwiseConv, image: Any) -> State:
        """Return what computes a result of last columns."""
        stage = self.program.stage_of(result)
        assert stage is not None  # the program computes all its results
        value = None if stage.reduced else stage.value
        condition = None
        if isinstance(value, Call) and is_guard(value) and is_mask(value.args[0]):
            condition, value = value.args[0], value.args[1] if is_zero(value.args[2]) else None
        column = []
        if isinstance(value, TensorLoad) and handle(value.source) == handle(conv.data.source):
            column = [axis for axis in stage.axes if uses(value.indices[conv.axis], axis.var)]
        if value is None or len(column) != 1:
            raise NotRewritten(f"'{result.name}' is not a state of the last columns")
        others = [axis for axis in stage.axes if axis is not column[0]]
        places = [at for at in range(len(value.indices)) if at != conv.axis]
        same = [handle(value.indices[at]) for at in places] == [handle(a.var) for a in others]
        if not same or handle(conv.data.indices[places[0]]) != handle(image.var):
            raise NotRewritten(f"'{result.name}' is not a state of each channel of an image")
        mask = None if condition is None else self._mask(condition, others[0].var)
        return State(stage, others[0], others[1], column[0], value, mask)


def _offset(mask: Mask, conv: DepthwiseConv, tap: int) -> int:
    """Return how far from a result the column is whose number a tap asks for."""
    column = from_first(mask.other)
    affine = affine_of(column, [conv.column.var, conv.tap.var])
    own = handle(mask.own) == handle(conv.column.var)
    if not own or affine is None or affine.constant is None or affine.factors[0] != 1:
        raise NotRewritten("sequence numbers are not read at columns of the convolution")
    return affine.factors[1] * tap + affine.constant


def from_first(column: Any) -> Any:
    """Return c for a column ``max(c, 0)``."""
    return column.a if isinstance(column, prim.Max) and is_zero(column.b) else column
