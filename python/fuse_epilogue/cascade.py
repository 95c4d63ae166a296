"""Fusing reductions that read each other's results: softmax, norms, attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV

from . import _core
from ._arguments import Numerics
from ._log import logger
from .report import Refusal
from .schedule import BlockRV, _as_block_rv, _exact, _take_back


@dataclass(frozen=True)
class CascadeStage:
    """One reduction of a cascade, and what was proved about it.

    Expressions are TVM's, in the rows and keys of the certificate, the stage's own ``axes``, and
    variables that stand for results: ``value`` and ``previous`` of each stage, its ``accumulated``
    and ``finished`` state.

    Attributes
    ----------
    name : str
        Name of the block before the call.
    monoid : str
        ``"sum"``, ``"max"`` or ``"min"``.
    rule : str
        ``"head"`` (reads no other stage), ``"defer"``, ``"roll"``, ``"mix"`` (rolls one factor and
        defers another), ``"basis"`` or ``"select"``.
    accumulator : tvm.ir.Var
        The buffer that holds the result, before and after the call.
    indices : tuple[tvm.ir.Expr, ...]
        The element of it.
    axes, axes_extents : tuple
        The spatial axes that are not rows, as fresh variables, and their extents.
    bindings : tuple[tuple[tvm.ir.Var, tvm.ir.Expr], ...]
        Each axis of the block before the call, in rows, keys and ``axes``.
    init : tvm.ir.Expr
        The value of T.init before the call.
    term : tvm.ir.Expr
        The term that is combined before the call, with elementwise blocks inlined.
    value, previous : tvm.ir.Var
        This stage's result in the terms of later stages, and the result before a block of keys.
    accumulated, finished : tvm.ir.Var
        Its state before a block of keys, and after all keys.
    state : tvm.ir.Var
        The buffer of the state after the call.
    state_init : tvm.ir.Expr
        Start value of the state.
    step : tvm.ir.Expr
        The term combined in the loop, where results are what they are after the block of keys.
    correction : tvm.ir.Expr
        The accumulated state corrected, before the block's terms are combined with it.
    tail : tvm.ir.Expr or None
        The result as a function of ``finished`` and of final results; None: the state itself.
    rolled, deferred, quotient : tvm.ir.Expr or None
        Factors of the term that are corrected and deferred, and q(previous, value) of the former.
    carriers : tuple[int, ...]
        The stages whose results the corrected factors read.
    guards : tuple[str, ...]
        ``"same-carrier"``: nothing is corrected where the result has not changed;
        ``"first-block"``: nor where no key came before; ``"zero-carrier"``: a row's result of 0
        divides nothing in the loop; ``"finite-sum"``: assumes that the sum without its deferred
        factor does not overflow.
    """

    name: str
    monoid: str
    rule: str
    accumulator: Any
    indices: tuple[Any, ...]
    axes: tuple[Any, ...]
    axes_extents: tuple[Any, ...]
    bindings: tuple[tuple[Any, Any], ...]
    init: Any
    term: Any
    value: Any
    previous: Any
    accumulated: Any
    finished: Any
    state: Any
    state_init: Any
    step: Any
    correction: Any
    tail: Any
    rolled: Any
    deferred: Any
    quotient: Any
    carriers: tuple[int, ...]
    guards: tuple[str, ...]


@dataclass(frozen=True)
class CascadeCertificate:
    """The claims of one call of ``fuse_cascaded_reductions``.

    Attributes
    ----------
    numerics : str
        ``"exact"`` or ``"reassociate"``, as the call asked for.
    block : str
        Name of the fused block after the call.
    rows, rows_extents : tuple
        Its spatial axes, as variables, and their extents; they start at 0.
    keys, keys_extents : tuple
        The reduction axes, and their extents; they start at 0.
    shared : int
        The key that is blocked.
    factor : int
        The number of its values in a block.
    count, total : tvm.ir.Var
        The number of keys before a block of them, and with it.
    stages : tuple[CascadeStage, ...]
        The reductions, in program order.
    removed : tuple[str, ...]
        Names of the buffers that are gone.
    """

    numerics: Numerics
    block: str
    rows: tuple[Any, ...]
    rows_extents: tuple[Any, ...]
    keys: tuple[Any, ...]
    keys_extents: tuple[Any, ...]
    shared: int
    factor: int
    count: Any
    total: Any
    stages: tuple[CascadeStage, ...]
    removed: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the certificate as texts, numbers and lists of them.

        Returns
        -------
        dict[str, Any]
            Of JSON's types, by the names of the attributes.

        Example
        -------
        >>> import tvm
        >>> from tvm import te, topi
        >>> x = te.placeholder((4, 128), name="x")
        >>> sch = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
        >>> report = sch.fuse_cascaded_reductions("T_softmax_expsum")
        >>> report.certificate.as_json()["factor"]
        64
        """
        return cast(dict[str, Any], _as_text(self))


@dataclass(frozen=True)
class CascadeReport:
    """The result of one call of ``fuse_cascaded_reductions``, or its prediction.

    Attributes
    ----------
    fusable : bool
        Whether anything is fused; false only in a report of ``analyze_cascade``.
    numerics : str
        ``"reassociate"`` or ``"exact"``, as the call asked for.
    gone : tuple[str, ...]
        Elementwise blocks between the reductions that no block needs any more.
    second_pass : tuple[str, ...]
        Blocks that read the results, and therefore run after the fused loop.
    stopped : Refusal or None
        Why a reduction that reads the results is not part of the cascade.
    certificate : CascadeCertificate or None
        The claims that were proved; None if nothing is fused.
    """

    fusable: bool
    numerics: Numerics
    gone: tuple[str, ...]
    second_pass: tuple[str, ...]
    stopped: Refusal | None
    certificate: CascadeCertificate | None

    def __str__(self) -> str:
        """One line for each reduction, and one for what was left and why."""
        lines = []
        if self.certificate is not None:
            lines = [_sentence(stage, self.certificate) for stage in self.certificate.stages]
        lines += [f"'{name}' reads the results in a second pass." for name in self.second_pass]
        if self.stopped is not None:
            verdict = "Left as it is" if self.fusable else "Not fusable"
            lines.append(f"{verdict} [{self.stopped.code}]: {self.stopped.message}")
        return "\n".join(lines)


def fuse_cascaded_reductions(
    self: Schedule,
    block: BlockRV | str,
    loop: Any = None,  # noqa: ANN401 - TVM's LoopRV, which type checkers take for anything
    *,
    factor: int | None = None,
    numerics: Numerics = "reassociate",
) -> CascadeReport:
    """Make one loop of reductions that read each other's results by rows.

    A softmax takes a maximum over each row, then a sum of exp(x - maximum) over the same row. In
    one loop over blocks of the row, the sum is corrected by exp(old - new) where the maximum has
    changed; what divides by the sum waits until it is complete::

        for i, k:                                    for i, b in T.grid(M, N / F):
            m[i] = max(m[i], x[i, k])                    # T.init: m[i] = lowest; s[i] = 0
        for i, k:                                        m_next = max(m[i], x[i, b * F : b * F + F])
            e[i, k] = exp(x[i, k] - m[i])        ->      s_next = s[i] * exp(m[i] - m_next)
        for i, k:                                                 + sum(exp(x[i, ...] - m_next))
            s[i] += e[i, k]                              m[i] = m_next; s[i] = s_next

    The loop is one reduction block of TVM with several outputs, and blocks inside of it. It can be
    split, reordered, tiled and decomposed; blocks that compute its inputs can move into its loop
    with ``compute_at``. Blocks that read the results by elements run after it.

    The call proves that the result stays the same, or refuses. A refused call leaves the module,
    the trace and every random variable as they were. It takes the function's parameters not to
    overlap, as TVM's own primitives do.

    Parameters
    ----------
    block : SBlockRV or str
        A reduction of the cascade, or a block between two of them.
    loop : LoopRV, optional
        Reduction loop of one of the reductions: its axis is cut into blocks, and other reduction
        axes lie inside of a block. The outermost one without it.
    factor : int, optional
        Number of keys (values of that axis) in a block, at least 1; results are corrected once for
        each block. 64, or the axis' extent if that is less.
    numerics : {"reassociate", "exact"}
        ``"reassociate"`` allows what corrections and deferred factors change of floats: with B
        blocks the error of a sum of exponentials grows by about B roundings, and a deferred
        division rounds once instead of once for each term. The first reduction of a cascade keeps
        every bit. In a row with a NaN, what is compared with a maximum may differ.
        ``"exact"`` accepts reductions of integers only after the first one.

    Returns
    -------
    CascadeReport
        The reductions, how each was fused, and why another one was not.

    Raises
    ------
    tvm.s_tir.ScheduleError
        The fusion is refused; :func:`fuse_epilogue.refusal_code` tells the reason's code.
    TypeError
        ``block`` is neither a name nor a block random variable, ``loop`` is not a loop
        random variable, ``factor`` is not an int, or ``numerics`` is not a str.
    ValueError
        ``factor`` is less than 1, or ``numerics`` is neither of its two values.

    Example
    -------
    >>> import tvm
    >>> from tvm import te, topi
    >>> import fuse_epilogue
    >>> x = te.placeholder((4, 128), name="x")
    >>> sch = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
    >>> print(sch.fuse_cascaded_reductions("T_softmax_expsum"))
    'T_softmax_maxelem' is computed in blocks of 64 keys.
    'T_softmax_expsum' is corrected in each block by T.exp(...).
    'T_softmax_exp' reads the results in a second pass.
    'T_softmax_norm' reads the results in a second pass.
    """
    exact, keys = _exact(numerics), _factor(factor)
    named: list[Any] = []
    try:
        block_rv = _as_block_rv(self, block, "block", named, "fuse_cascaded_reductions")
        report = report_from_core(
            _core.FuseCascadedReductions(self, block_rv, _loop(loop), exact, keys)
        )
        logger.info("fused %s", report)
        return report
    except BaseException:
        _take_back(self, named)
        raise


def analyze_cascade(
    sch: Schedule,
    block: BlockRV | str,
    loop: Any = None,  # noqa: ANN401 - TVM's LoopRV, which type checkers take for anything
    *,
    factor: int | None = None,
    numerics: Numerics = "reassociate",
) -> CascadeReport:
    """Tell what ``sch.fuse_cascaded_reductions`` would do, without doing it.

    The module, the trace and the random variables stay as they are.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        The schedule to ask about.
    block, loop, factor, numerics
        As of :func:`fuse_cascaded_reductions`.

    Returns
    -------
    CascadeReport
        The report that the call would return; where it would raise, ``fusable`` is false and
        ``stopped`` says why.

    Raises
    ------
    tvm.s_tir.ScheduleError
        There is no block of that name.
    TypeError, ValueError
        As of :func:`fuse_cascaded_reductions`.

    Example
    -------
    >>> import tvm
    >>> from tvm import te, topi
    >>> import fuse_epilogue
    >>> x = te.placeholder((4, 128), name="x")
    >>> sch = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.softmax(x)]))
    >>> fuse_epilogue.analyze_cascade(sch, "T_softmax_expsum").fusable
    True
    """
    exact, keys = _exact(numerics), _factor(factor)
    named: list[Any] = []
    try:
        block_rv = _as_block_rv(sch, block, "block", named, "analyze_cascade")
        return report_from_core(
            _core.AnalyzeCascadedReductions(sch, block_rv, _loop(loop), exact, keys)
        )
    finally:
        _take_back(sch, named)


def report_from_core(raw: Any) -> CascadeReport:  # noqa: ANN401 - a map of the ffi
    """Build the report from what the core returns.

    Parameters
    ----------
    raw : tvm_ffi.Map
        Texts and, under ``"certificate"``, an entry for every attribute of
        :class:`CascadeCertificate`.

    Returns
    -------
    CascadeReport
    """
    stopped = raw["stopped"]
    fusable = "certificate" in raw
    return CascadeReport(
        fusable=fusable,
        numerics=cast(Numerics, str(raw["numerics"])),
        gone=tuple(map(str, raw["gone"])) if fusable else (),
        second_pass=tuple(map(str, raw["behind"])) if fusable else (),
        stopped=None if stopped is None else Refusal(*map(str, stopped)),
        certificate=_certificate(raw["certificate"], raw["removed"]) if fusable else None,
    )


def _certificate(raw: Any, removed: Any) -> CascadeCertificate:  # noqa: ANN401 - maps of the ffi
    return CascadeCertificate(
        numerics=cast(Numerics, str(raw["numerics"])),
        block=str(raw["block"]),
        rows=tuple(raw["rows"]),
        rows_extents=tuple(raw["rows_extents"]),
        keys=tuple(raw["keys"]),
        keys_extents=tuple(raw["keys_extents"]),
        shared=int(raw["shared"]),
        factor=int(raw["factor"]),
        count=raw["count"],
        total=raw["total"],
        stages=tuple(_stage(stage) for stage in raw["stages"]),
        removed=tuple(map(str, removed)),
    )


def _stage(raw: Any) -> CascadeStage:  # noqa: ANN401 - a map of the ffi
    expressions = (
        *("accumulator", "init", "term", "value", "previous", "accumulated", "finished", "state"),
        *("state_init", "step", "correction", "tail", "rolled", "deferred", "quotient"),
    )
    return CascadeStage(
        name=str(raw["name"]),
        monoid=str(raw["monoid"]),
        rule=str(raw["rule"]),
        indices=tuple(raw["indices"]),
        axes=tuple(raw["axes"]),
        axes_extents=tuple(raw["axes_extents"]),
        bindings=tuple((axis, value) for axis, value in raw["bindings"]),
        carriers=tuple(map(int, raw["carriers"])),
        guards=tuple(map(str, raw["guards"])),
        **{name: raw[name] for name in expressions},
    )


def _sentence(stage: CascadeStage, certificate: CascadeCertificate) -> str:
    name = f"'{stage.name}'"
    did = []
    if stage.rule == "head":
        did.append(f"{name} is computed in blocks of {certificate.factor} keys")
    if stage.quotient is not None:
        did.append(f"{name} is corrected in each block by {_short(stage.quotient)}")
    elif stage.rule == "basis":
        did.append(f"{name} becomes {_short(stage.correction)} before each block")
    if stage.tail is not None:
        did.append(f"{name} computes {_short(stage.tail)} at the end")
    return "; ".join(did) + "."


def _short(expr: Any) -> str:  # noqa: ANN401 - TVM's
    return str(expr).strip().rpartition("\n")[2]


def _as_text(value: Any) -> Any:  # noqa: ANN401 - anything in, JSON out
    if hasattr(value, "__dataclass_fields__"):
        return {name: _as_text(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple):
        return [_as_text(one) for one in value]
    if value is None or isinstance(value, str | int):
        return value
    return _short(value)


def _factor(factor: int | None) -> int:
    if factor is None:
        return 0
    if isinstance(factor, bool) or not isinstance(factor, int):
        raise TypeError(f"factor must be an int, not {type(factor).__name__}")
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor}")
    return factor


def _loop(loop: Any) -> Any:  # noqa: ANN401 - what the user passed
    if loop is None or isinstance(loop, LoopRV):
        return loop
    raise TypeError(f"loop must be an SLoopRV of the schedule, not {type(loop).__name__}")


Schedule.fuse_cascaded_reductions = fuse_cascaded_reductions
