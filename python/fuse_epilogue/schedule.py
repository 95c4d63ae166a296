"""The schedule primitive as a method of :class:`tvm.s_tir.Schedule`, and asking before doing."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Protocol

from tvm import tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule, ScheduleError
from tvm.s_tir.schedule import SBlockRV, _ffi_api

from . import _core
from ._arguments import Numerics, check_numerics, flag, prim_func
from ._log import logger
from .report import FusionReport, report_from_core
from .tir.walk import parts_of

#: What ``numerics`` may be, and whether it asks for every float bit for bit.
NUMERICS: dict[Numerics, bool] = {"reassociate": False, "exact": True}
# Names of blocks in the message that a block is not there, if none of them is like it.
_NAMES_SHOWN = 8


class BlockRV(Protocol):
    """Type of an SBlockRV for type checkers.

    TVM has no types, its class is ``Any`` to them, and a union with that would take everything: a
    number for a block, for example.
    """

    def same_as(self, other: Any, /) -> bool:  # noqa: ANN401 - as TVM's
        """Whether it is the same random variable."""


def fuse_reduction_epilogue(
    self: Schedule,
    block: BlockRV | str | None = None,
    epilogue_block: BlockRV | str | None = None,
    *,
    numerics: Numerics = "reassociate",
    distribute: bool = False,
    reduction_block: BlockRV | str | None = None,
) -> FusionReport:
    """Fuse a reduction with the elementwise blocks that follow it.

    The part that the algebra allows is absorbed by the reduction; the rest (the tail) runs once on
    each finished element, at the innermost loop around the reduction loops. Intermediate buffers
    disappear, or shrink to the tile of that loop::

        for i, j, k in T.grid(M, N, K):                for i, j in T.grid(M, N):
            temp[i, j] = 0       (T.init)                  for k in range(K):
            temp[i, j] += A[i, k] * B[j, k]                    temp[i, j] = C[i, j]  (T.init)
        for i, j in T.grid(M, N):              ->              temp[i, j] += A[i, k] * B[j, k]
            sum[i, j] = temp[i, j] + C[i, j]               D[i, j] = max(temp[i, j], 0)
        for i, j in T.grid(M, N):
            D[i, j] = max(sum[i, j], 0)

    The call proves that the result stays the same, or refuses. A refused call leaves the module,
    the trace and every random variable as they were. It takes the function's parameters not to
    overlap, as TVM's own primitives do, also without ``tirx.noalias``.

    Parameters
    ----------
    block : SBlockRV or str
        The reduction block, or an elementwise block that reads its result. All consumers are
        fused, in program order and in any number, as far as each of them can be.
    epilogue_block : SBlockRV or str, optional
        The only epilogue to fuse; ``block`` is the reduction then.
    numerics : {"reassociate", "exact"}
        The allowed differences of floats. Integers and booleans are always equal bit for bit.

        ``"reassociate"`` lets a floating reduction absorb: its operations run in another order. Two
        literal factors become one: where each term of a sum has a literal factor already, that of
        the finished sum is multiplied into it, and ``(a0 * 0.1 + a1 * 0.1) * 0.3`` becomes ``a0 * c
        + a1 * c`` with the product of the two, rounded to the type, as ``c``. No term has an
        operation more by it, but each may overflow or vanish where the finished sum would not.
        Functions that cost work in each term are applied there only with ``distribute``.

        For a sum of K terms and a bias that means K additions that round, as before, with the bias
        first instead of last; either way the error is at most about K * 2**-24 of the sum of the
        absolute values in float32. A max or min selects the same number, but where a NaN or zeros
        of both signs meet, it may select another of them (TVM compiles ``max(a, b)`` as
        ``a > b ? a : b``). For a product there is no bound, and for a sum only as long as no
        partial sum of either order overflows: the other one may be finite. Where the data or an
        absorbed operand is infinite, the result may be NaN in one order and not in the other. A
        sum or product narrower than 32 bits absorbs nothing: a large bias would swallow its terms.

        An operand that a condition guards is absorbed only if it is proved to be defined without
        the condition: loads inside their buffers, divisors that are not 0, wide integers that do
        not overflow. Otherwise it stays in the tail, and the report says why.

        ``"exact"`` keeps every float bit for bit: nothing of a float is absorbed, the whole
        epilogue becomes a tail. (Bit for bit as TIR defines it: where a target contracts a product
        and a sum into one rounding, it may do so on one side only.)
    distribute : bool
        With ``"reassociate"``, or where nothing is a float: distribute functions over the terms
        also where that costs work in each of them, a scale over a sum, a clip over a max. With a
        sum of floats this rounds every term, and a term may overflow or vanish where the finished
        sum would not. Where the data, the init or an operand is infinite, or a divisor is 0, a
        distributed operand may give NaN: a max that starts from -inf, plus inf, starts from NaN. A
        literal factor or divisor that the type does not hold as a normal number is not distributed.
    reduction_block : SBlockRV or str, optional
        Another name for ``block``, as TVM's own primitive calls it.

    Returns
    -------
    FusionReport
        The absorbed terms, the tails, and the reason why a consumer was not fused.

    Raises
    ------
    tvm.s_tir.ScheduleError
        The fusion is refused; :func:`fuse_epilogue.refusal_code` tells the reason's code.
    TypeError
        No block is given, or it is neither a name nor a block random variable; ``numerics`` is not
        a str, or ``distribute`` is not a bool.
    ValueError
        ``numerics`` is neither of its two values.

    Example
    -------
    In float32 let three terms be 1e8, 1 and -1e8, and the bias 0.5. As written, the sum is
    ((1e8 + 1) - 1e8) + 0.5 = 0.5, since 1e8 + 1 is 1e8. With the bias absorbed it is
    ((0.5 + 1e8) + 1) - 1e8 = 0. The exact result is 1.5: both are within the bound, 3 * 2**-24 *
    (2e8 + 1.5) = 36, and ``"exact"`` returns the first.

    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(64, 64, 16, activation="relu"))
    >>> print(sch.fuse_reduction_epilogue("matmul"))
    'matmul' absorbed bias[v_n] from 'bias' into T.init; 'summed' is gone. (numerics: reassociate)
    'relu' computes T.max(x, T.float32(0.0)) once for each finished x: it does not distribute ...
    """
    first = _reduction(block, reduction_block)
    exact = _exact(numerics)
    flag("distribute", distribute)
    named: list[SBlockRV] = []  # random variables made here, to be taken back on a refusal
    try:
        first_rv = _as_block_rv(self, first, "block", named)
        second_rv = None
        if epilogue_block is not None:
            second_rv = _as_block_rv(self, epilogue_block, "epilogue_block", named)
        report = report_from_core(
            _core.FuseReductionEpilogue(self, first_rv, second_rv, exact, distribute)
        )
        logger.info("fused %s", report)
        return report
    except BaseException:
        _take_back(self, named)
        raise


def analyze(
    sch: Schedule | tirx.PrimFunc,
    block: BlockRV | str,
    epilogue_block: BlockRV | str | None = None,
    *,
    numerics: Numerics = "reassociate",
    distribute: bool = False,
) -> FusionReport:
    """Tell what ``sch.fuse_reduction_epilogue`` would do, without doing it.

    The module, the trace, the random variables and the random state stay as they are.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule or tvm.tirx.PrimFunc
        The schedule, or the function, to ask about.
    block, epilogue_block, numerics, distribute
        As of :func:`fuse_reduction_epilogue`.

    Returns
    -------
    FusionReport
        The report that the call would return; where it would raise, ``fusable`` is false and
        ``stopped`` says why. Printed, it is the explanation.

    Raises
    ------
    tvm.s_tir.ScheduleError
        There is no block of that name.
    TypeError
        A block is neither a name nor a block random variable; ``numerics`` is not a str, or
        ``distribute`` is not a bool.
    ValueError
        ``numerics`` is neither of its two values.

    Example
    -------
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> print(fuse_epilogue.analyze(workloads.matmul(64, 64, 16, bias=False), "matmul"))
    Not fusable [no-consumer]: ...
    """
    exact = _exact(numerics)
    flag("distribute", distribute)
    sch = as_schedule(sch)
    named: list[SBlockRV] = []
    try:
        first_rv = _as_block_rv(sch, block, "block", named)
        second_rv = None
        if epilogue_block is not None:
            second_rv = _as_block_rv(sch, epilogue_block, "epilogue_block", named)
        return report_from_core(
            _core.AnalyzeReductionEpilogue(sch, first_rv, second_rv, exact, distribute)
        )
    finally:
        _take_back(sch, named)


if TYPE_CHECKING:
    from .cascade import fuse_cascaded_reductions

    class FusingSchedule(Schedule):
        """TVM's Schedule as it is at run time; its source has another signature for the method."""

        fuse_reduction_epilogue = fuse_reduction_epilogue
        fuse_cascaded_reductions = fuse_cascaded_reductions

else:
    FusingSchedule = Schedule


def as_schedule(value: Schedule | tirx.PrimFunc) -> Schedule:
    """Return a schedule to ask about; of a function, a new one."""
    return value if isinstance(value, Schedule) else Schedule(prim_func("sch", value))


def _reduction(block: Any, reduction_block: Any) -> Any:  # noqa: ANN401 - what the user passed
    if (block is None) == (reduction_block is None):
        raise TypeError(
            "fuse_reduction_epilogue takes one reduction: pass either block or reduction_block"
        )
    return block if block is not None else reduction_block


def _exact(numerics: Numerics) -> bool:
    check_numerics(numerics)
    return NUMERICS[numerics]


def _as_block_rv(
    sch: Schedule,
    block: Any,  # noqa: ANN401 - whatever the user passed
    argument: str,
    named: list[SBlockRV],
    primitive: str = "fuse_reduction_epilogue",
) -> SBlockRV:
    if not isinstance(sch, Schedule):
        raise TypeError(
            f"{primitive}: the schedule must be a tvm.s_tir.Schedule, not {type(sch).__name__}: "
            "make one, sch = tvm.s_tir.Schedule(func or module)"
        )
    if isinstance(block, SBlockRV):
        try:
            sch.get_sref(block)
        except (IndexError, ValueError) as error:
            raise type(error)(
                f"{primitive}: {argument} is a random variable of another schedule, or of a block "
                f"that is gone; name the block, or take it by sch.get_sblock"
            ) from error
        return block
    if isinstance(block, str):
        named.append(_get_sblock(sch, block, primitive))
        return named[-1]
    raise TypeError(
        f"{primitive}: {argument} must be a block's name or an SBlockRV, not {type(block).__name__}"
    )


def _get_sblock(sch: Schedule, name: str, primitive: str) -> SBlockRV:
    """Return a block by name; for a missing one, name the blocks that there are."""
    try:
        return sch.get_sblock(name)
    except ScheduleError:
        function = sch.func_working_on
        if function is None:
            raise
        names = [each.name_hint for each in _blocks(sch)]
        if not names:
            raise ScheduleError(
                f"{primitive}: function '{function.name_hint}' has no blocks; write it with "
                "@T.prim_func(s_tir=True) and T.sblock, or make it with tvm.te.create_prim_func"
            ) from None
        if name in names:
            raise
        listed = get_close_matches(name, names, n=3) or names[:_NAMES_SHOWN]
        more = ", ..." if len(listed) < len(names) else ""
        raise ScheduleError(
            f"{primitive}: function '{function.name_hint}' has no block '{name}'; it has "
            + ", ".join(f"'{each}'" for each in listed)
            + more
        ) from None


def _blocks(sch: Schedule) -> list[SBlock]:
    """Return the blocks of the function that a schedule works on, without that around them all."""
    body = sch.mod[sch.func_working_on].body
    if not isinstance(body, SBlockRealize):
        return []
    root = body.block
    return [each for each in parts_of(root, SBlock) if not each.same_as(root)]


def _take_back(sch: Schedule, named: list[SBlockRV]) -> None:
    for block_rv in reversed(named):
        if sch.trace is not None:
            sch.trace.pop()
        sch.remove_rv(block_rv)


def _install() -> None:
    Schedule.fuse_reduction_epilogue = fuse_reduction_epilogue
    # TVM's primitives that move or rename an init, made safe for one that is not a constant.
    _ffi_api.ScheduleDecomposeReduction = _core.DecomposeReduction
    for instruction, guarded in _core.Guarded().items():
        setattr(_ffi_api, f"Schedule{instruction}", guarded)


_install()
