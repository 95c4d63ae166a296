"""The rule for attention on Trainium: both products and the softmax between them in one kernel.

    for each head:
        transpose the keys                     depth on partitions, 128 features at a time
        load the values                        keys on partitions
        for tiles of 128 queries:
            scores = queries @ keys            in PSUM, 512 keys at a time
            weights = f(scores)                all keys of a query in SBUF
            highest, shares, total             a softmax along partitions, not yet divided
            transpose the shares               keys on partitions
            result = shares @ values / total   one division for each element of the result

Where a condition such as a causal mask leaves out all keys of a tile, they are not computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.ir import TensorLoad, prim

from ...neuron.machine import Machine
from ...recognize.attention import Attention as Pattern
from ...recognize.attention import attention_of
from ...recognize.stages import Axis, read_program
from ...rewrites.step import NotRewritten, rewrite
from ...tir.walk import loads, same, uses
from ..choice import Choice
from .rule import TransposingRule
from .tiles import BANK, FLOATS, PARTITIONS, best, is_fixed


class Attention(TransposingRule):
    """Schedules attention: a product, a softmax along its rows, a product with the values.

    Any number of heads, with a scale, a mask or a bias, causal or not; in float32, with operands
    of 32 or 16 bits. All keys of a query are in SBUF at once. The division by the sum comes last,
    as in ``fuse_cascaded_reductions``. On trn1 the tensor engine transposes by multiplying
    with the identity: 0 times an infinity or NaN spoils other queries there.

    Parameters
    ----------
    finite : bool
        All data is finite; needed on trn1 only.
    round_shares : bool
        Round the shares to the type of the values before the tensor engine multiplies both, as
        others' kernels do: with values of 16 bits, in a quarter of the time. The sum that is
        divided by is that of the shares before. Each result is wrong by up to the error of that
        type, relative to the largest value of its column. Without effect on values in float32.

    Example
    -------
    >>> from fuse_epilogue import schedules
    >>> from fuse_epilogue.workloads import matmul
    >>> schedules.neuron.Attention().choose(matmul(8, 8, 8), "trn2").why
    'it is not a product, a softmax along its rows and a product with that, all in float32'
    """

    def __init__(self, finite: bool = False, round_shares: bool = False) -> None:
        super().__init__(finite)
        self.round_shares = round_shares

    def _choose(self, func: tirx.PrimFunc, core: Machine) -> Choice:
        try:
            found = find_attention(func)
        except NotRewritten as why:
            return Choice("", str(why))
        refused = self._refused(core)
        if refused is not None:
            return refused
        tiling = usual_tiling(self.round_shares and found.v.dtype != "float32")
        return best(core, [("tiles of 128 queries, all keys at once", scheduled(found, tiling))])


@dataclass(frozen=True)
class Part:
    """An operand of one of the products.

    - `load` (tvm.ir.TensorLoad): an element.
    - `transposed`: whether the axis that is summed over is the last one in memory.
    """

    load: Any
    transposed: bool

    @property
    def dtype(self) -> str:
        """Type of its elements."""
        return str(self.load.source.ty.dtype)


@dataclass(frozen=True)
class ReadAttention:
    """Attention that can be scheduled."""

    func: tirx.PrimFunc
    pattern: Pattern
    q: Part
    k: Part
    v: Part

    @property
    def others(self) -> list[Any]:
        """The loads besides those of operands, such as a mask: each once."""
        once: dict[str, Any] = {}
        for expr in (self.pattern.weight, self.pattern.share):
            for load in loads(expr):
                once.setdefault(str(load), load)
        return list(once.values())


def find_attention(func: tirx.PrimFunc) -> ReadAttention:
    """Return the attention that a function computes.

    - `func`: not scheduled.
    - Raises NotRewritten: it computes something else, or its operands are not as the engines take
      them.
    """
    program = read_program(func) if is_fixed(func) else None
    pattern = None if program is None else attention_of(program, narrow_result=True)
    if pattern is None:
        raise NotRewritten(
            "it is not a product, a softmax along its rows and a product with that, all in float32"
        )
    if not pattern.is_softmax:
        raise NotRewritten("its shares are not divided by their sum alone, or a sum is a result")
    if pattern.column.extent > BANK:
        raise NotRewritten(
            f"its values have {pattern.column.extent} columns, and a bank of PSUM holds {BANK}: "
            "split "
            "them, or schedule the products one by one"
        )
    if any(uses(pattern.result, axis.var) for axis in (pattern.query, pattern.column)) or loads(
        pattern.result
    ):
        raise NotRewritten("what follows the second product reads more than its result")
    q = _part("queries", pattern.q, pattern.query, pattern.depth)
    k = _part("keys", pattern.k, pattern.key, pattern.depth)
    v = _part("values", pattern.v, pattern.column, pattern.key)
    if v.transposed:
        raise NotRewritten("its values have keys as the last axis: transpose them before")
    if (q.dtype == "float32") != (k.dtype == "float32"):
        raise NotRewritten(f"it multiplies {q.dtype} with {k.dtype}")
    found = ReadAttention(func, pattern, q, k, v)
    for load in found.others:
        _check_other(pattern, load)
    return found


def _part(name: str, value: Any, own: Axis, summed: Axis) -> Part:
    """Return an operand, over its own axis and the one that is summed over."""
    load = value.value if isinstance(value, prim.Cast) else value
    if not isinstance(load, TensorLoad) or str(load.source.ty.dtype) not in FLOATS:
        raise NotRewritten(
            f"its {name} are not elements of a tensor of floats: compute them in a function before "
            "this one"
        )
    _check_indices(load, name, (own, summed))
    for axis, place in ((summed, True), (own, False)):
        if same(load.indices[-1], axis.var):
            return Part(load, place)
    if own.extent == 1 or summed.extent == 1:
        return Part(load, summed.extent > 1)
    raise NotRewritten(
        f"its {name} would be loaded element by element: neither of their axes is the last one"
    )


def _check_indices(load: Any, name: str, axes: tuple[Axis, ...]) -> None:
    """Refuse a load in which an axis is not an index of its own."""
    for axis in axes:
        using = [index for index in load.indices if uses(index, axis.var)]
        if len(using) > 1 or any(not same(index, axis.var) for index in using):
            raise NotRewritten(f"its {name} are not read axis by axis")


def _check_other(pattern: Pattern, load: Any) -> None:
    name = str(load.source.name)
    _check_indices(load, f"'{name}'", (pattern.query, pattern.key))
    if str(load.source.ty.dtype) not in FLOATS:
        raise NotRewritten(f"'{name}' holds {load.source.ty.dtype}")
    if uses(load, pattern.key.var) and not same(load.indices[-1], pattern.key.var):
        raise NotRewritten(
            f"'{name}' would be loaded element by element: keys are not its last axis"
        )


@dataclass(frozen=True)
class Tiling:
    """The tiles of attention.

    - `pipelined`: tiles of queries that are written together: the scores of one come before the
      result of the one before.
    - `together`: transpositions of 128 x 128 that are copied from PSUM together.
    - `by_vector`: whether the vector engine copies the transposed shares, not the scalar engine.
    - `round_shares`: whether shares are rounded to the type of the values.
    """

    pipelined: int = 8
    together: int = BANK // PARTITIONS
    by_vector: bool = False
    round_shares: bool = False


def usual_tiling(round_shares: bool) -> Tiling:
    """Return the tiling of the rule: of rounded shares, twice as many tiles fit."""
    usual = Tiling()
    return Tiling(2 * usual.pipelined, round_shares=True) if round_shares else usual


def scheduled(found: ReadAttention, tiling: Tiling = Tiling()) -> s_tir.Schedule:  # noqa: B008 - frozen
    """Schedule attention, for :func:`fuse_epilogue.neuron.emit`."""
    sch = s_tir.Schedule(found.func)
    root = sch.get_sblock("root")
    if tiling == Tiling():
        rewrite(sch, root, "neuron_attention")
    else:
        name = "neuron_attention_rounded" if tiling.round_shares else "neuron_attention_tiles"
        rewrite(sch, root, name, **{k: v for k, v in vars(tiling).items() if k != "round_shares"})
    return sch
