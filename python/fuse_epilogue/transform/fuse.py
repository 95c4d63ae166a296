"""The pass: every reduction with its epilogue, in every function of a module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
from tvm import ir, tirx

from .._arguments import Numerics, check_numerics, flag, word
from .._log import logger
from ..planner.backends import described
from .functions import ModulePass, rewrite_each, with_report
from .fuse_one import DEFAULT_NUMERICS, LEFT_ALONE, Fused, fuse_one, reductions_of
from .policy import POLICIES, Decision, Policy, PolicyName
from .previous_runs import bytes_removed, fused_before, with_earlier, with_earlier_bytes
from .report import (
    FAILED,
    FUNCTION_ATTR,
    MODULE_ATTR,
    FunctionReport,
    ReductionReport,
    Report,
    reductions_to_json,
)


@tvm.transform.module_pass(opt_level=0, name="FuseReductionEpilogue")
class FuseReductionEpilogue(ModulePass):
    """Fuse every reduction with its epilogue, in every function of a module.

    A pass like TVM's own: it is called with a module, or used in ``tvm.ir.transform.Sequential``,
    and in a Relax pipeline comes after ``FuseTIR`` (earlier, operators are functions of their own,
    with little to fuse). Functions of TIR are worked on one reduction after the other; those of
    Relax are not touched. What is fused, and what is refused with which code, is in the report that
    the module carries then: :func:`report_of`.

    A function that has been scheduled, or that has no blocks, is left alone, with the reason in the
    report. A function in which nothing is fused is returned unchanged. If that holds for every
    function, and the report is the same, so is the module. A second run does nothing. No function
    makes the pass raise.

    Parameters
    ----------
    policy : {"planner", "always", "never"}
        ``"planner"`` fuses what pays: by the costs of :func:`fuse_epilogue.plan`, where there is a
        `target` and the planner knows the function, and elsewhere if intermediates are saved, and
        enough of them where a row calls functions such as exp.
        ``"always"`` fuses whatever is sound. ``"never"`` changes nothing: its report says
        what could be fused.
    numerics : {"exact", "reassociate"}
        As of :func:`fuse_epilogue.fuse_reduction_epilogue`, but for the default. With ``"exact"``
        every float stays bit for bit, a sum starts from its constant, and what follows runs on a
        row: LLVM vectorizes that in unscheduled loops, while it may not vectorize a sum that starts
        from a residual. ``"reassociate"`` absorbs, for schedules that keep their sums in registers.
        Sums in 16 bits get a tail with either.
    distribute : bool
        As of :func:`fuse_epilogue.fuse_reduction_epilogue`.
    rows : bool
        Whether what is left of an epilogue works on the row of the innermost spatial loop, which a
        compiler vectorizes (a GELU takes several times as long one by one). With false it works on
        each element as soon as it is finished, as the primitive places it, and the intermediate
        becomes a single element: for functions whose loops are scheduled later.
    target : tvm.target.Target or str or dict, optional
        Target that the planner plans for. A plan takes some tenths of a second for each function
        that the planner knows; without a target nothing is planned.

    Raises
    ------
    TypeError
        `policy` or `numerics` is not a str, or `distribute` or `rows` is not a bool.
    ValueError
        `policy` or `numerics` has an unknown value, or the planner does not know `target`.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> from fuse_epilogue.transform import FuseReductionEpilogue, report_of
    >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 16)})
    >>> print(report_of(FuseReductionEpilogue()(mod)))
    1 reduction in 1 function, 1 fused (numerics: exact), 16,128 bytes of intermediates saved
    main: 1 of 1 fused, 16,128 bytes of intermediates saved
        'bias' computes x + bias[v_n] once for each finished x: numerics="exact" keeps floats ...
        Fused: 16,128 bytes of intermediates are saved.
    Hint: the loops of main are not scheduled, and take most of the time: fusing alone gains ...

    In a pipeline of Relax:

    >>> from tvm import relax
    >>> pipeline = tvm.ir.transform.Sequential(
    ...     [
    ...         relax.transform.LegalizeOps(),
    ...         relax.transform.AnnotateTIROpPattern(),
    ...         relax.transform.FuseOps(),
    ...         relax.transform.FuseTIR(),
    ...         FuseReductionEpilogue(),
    ...     ]
    ... )
    """

    def __init__(
        self,
        policy: PolicyName = "planner",
        *,
        numerics: Numerics = DEFAULT_NUMERICS,
        distribute: bool = False,
        rows: bool = True,
        target: Any = None,  # noqa: ANN401 - whatever fuse_epilogue.plan takes
    ) -> None:
        """Check the options."""
        word("policy", policy, POLICIES)
        check_numerics(numerics)
        flag("distribute", distribute)
        flag("rows", rows)
        self.policy = policy
        self.numerics = numerics
        self.distribute = distribute
        self.rows = rows
        if target is not None:
            _check_target(target)
        self.target = target

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module with its reductions fused, and the report.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        policy = Policy(self.policy, self.target, self.rows)
        changed, reports = rewrite_each(
            mod,
            lambda name, func: self._function(name, func, policy),
            lambda name, why: FunctionReport(name, (), FAILED, why),
        )
        report = Report(self.policy, self.numerics, self.distribute, tuple(reports))
        logger.info("pass: %s", report)
        return with_report(mod, changed, MODULE_ATTR, report.to_json())

    def _function(self, name: str, func: Any, policy: Policy) -> tuple[Any, FunctionReport]:
        """Return a function fused, and what became of its reductions."""
        if not isinstance(func, tirx.PrimFunc):
            return func, _left_alone(name, "external")
        reductions, left_alone = reductions_of(func)
        if left_alone:
            return func, _left_alone(name, left_alone)
        if not reductions:
            return func, FunctionReport(name)
        before = fused_before(func)
        names = [str(each.name_hint) for each in reductions]
        known = names == [each.reduction for each in before]
        now, reports = func, []
        for index, reduction in enumerate(reductions):
            if now is not func:
                reduction = reductions_of(now)[0][index]  # fusing moves none past another
            now, report = self._reduction(
                now,
                reduction,
                before[index] if known else None,
                lambda one: policy.decide(func, len(reductions), one, bool(before)),
            )
            reports.append(report)
        if now is func:
            return func, FunctionReport(name, tuple(before if known else reports))
        if known:
            reports = [with_earlier(each, one) for each, one in zip(reports, before, strict=True)]
        now = now.with_attr(FUNCTION_ATTR, reductions_to_json(tuple(reports)))
        return now, FunctionReport(name, tuple(reports))

    def _reduction(
        self,
        func: tirx.PrimFunc,
        reduction: Any,
        before: ReductionReport | None,
        decide: Callable[[Fused], Decision],
    ) -> tuple[tirx.PrimFunc, ReductionReport]:
        """Return a function with one reduction fused if that is decided, and what became of it.

        - `before`: what earlier runs made of this reduction.
        """
        one = fuse_one(
            func, reduction, numerics=self.numerics, distribute=self.distribute, rows=self.rows
        )
        fuse, why = False, ""
        removed: int | None = 0
        if one.fusion.fusable:
            removed = bytes_removed(func, one)
            one = with_earlier_bytes(one, removed, before)
            decision = decide(one)
            fuse, why = decision.fuse, decision.why
        block, saved = str(reduction.name_hint), one.balance.bytes_saved
        report = ReductionReport(block, fuse, one.fusion, saved, why, removed)
        return one.func if fuse else func, report


def _left_alone(name: str, why: str) -> FunctionReport:
    return FunctionReport(name, (), why, LEFT_ALONE[why])


def _check_target(target: Any) -> None:  # noqa: ANN401 - whatever fuse_epilogue.plan takes
    try:
        described(target, None)
    except Exception as error:  # TVM's errors are of several types
        raise ValueError(f"target {target!r} cannot be planned for: {error}") from error
