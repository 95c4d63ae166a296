"""The pass that makes one loop of each cascade of reductions, in every function of a module."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

import tvm
from tvm import ir, tirx
from tvm.ir import prim
from tvm.s_tir import Schedule

from .._arguments import Numerics, at_least_one, check_numerics, flag, word
from .._log import logger
from ..cascade import CascadeReport, analyze_cascade, check_factor
from ..cascade_certificate import CascadeCertificate
from .cascade_report import MODULE_ATTR, CascadeOutcome, FunctionCascades, function_from
from .functions import ModulePass, rewrite_each, with_report
from .fuse_one import LEFT_ALONE, reductions_of
from .move_inputs import move_inputs
from .report import FAILED, NOT_CHOSEN

#: Blocks of keys of a part at least: merging parts takes about as long as one block.
BLOCKS_OF_PART = 4

#: The words that ``policy`` may be.
CascadePolicy: TypeAlias = Literal["products", "always", "never"]
#: What ``policy`` may be, and what it means.
CASCADE_POLICIES: dict[CascadePolicy, str] = {
    "products": "cascades that end in a product, as attention does: the loop saves matrices. A "
    "softmax or a norm alone keeps its passes, which are faster while a row stays in the cache",
    "always": "whatever the primitive does not refuse",
    "never": "nothing: for the report of what could be fused",
}


@tvm.transform.module_pass(opt_level=0, name="FuseCascadedReductions")
class FuseCascadedReductions(ModulePass):
    """Make one loop of each cascade of reductions, in every function of a module.

    A pass like TVM's own; in a Relax pipeline it comes after ``FuseTIR``, and before
    :class:`FuseReductionEpilogue` or any scheduling. Each chain of reductions that read each
    other's results by rows is fused by ``sch.fuse_cascaded_reductions``, which proves that the
    result stays the same, or refuses: then the chain stays as it is. Attention becomes one loop
    over blocks of keys, and its scores are computed in that loop, so that no matrix of them is
    stored. :func:`cascades_of` returns what became of each.

    A function that has been scheduled, or that has no blocks, is left alone. A function in which
    nothing is fused is returned unchanged. A second run does nothing. No function makes the pass
    raise.

    Parameters
    ----------
    policy : {"products", "always", "never"}
        ``"products"`` fuses cascades that end in a product, as attention does. A softmax or a norm
        alone keeps its passes over the row: they are faster while the row stays in the cache.
        ``"always"`` fuses whatever is sound. ``"never"`` changes nothing: its report says what
        could be fused.
    numerics : {"reassociate", "exact"}
        As of :func:`fuse_epilogue.fuse_cascaded_reductions`; ``"exact"`` fuses integers only.
    factor : int, optional
        Number of keys in a block, as there.
    move_inputs : bool
        Whether blocks whose results only the loop reads are computed in it, where that repeats no
        work.
    threads : int
        Number of threads. A cascade of fewer rows, such as attention of one query, is reduced in
        parts of its keys, which run in parallel; their states are merged after it. A function in
        which that was done is scheduled, for other passes.

    Raises
    ------
    TypeError
        `policy` or `numerics` is not a str, `factor` or `threads` is not an int, or `move_inputs`
        is not a bool.
    ValueError
        `policy` or `numerics` has an unknown value, or `factor` or `threads` is less than 1.

    Example
    -------
    >>> import tvm
    >>> from tvm import te, topi
    >>> from fuse_epilogue.transform import FuseCascadedReductions, cascades_of
    >>> x = te.placeholder((4, 128), name="x")
    >>> mod = tvm.IRModule({"main": te.create_prim_func([x, topi.nn.softmax(x)])})
    >>> print(*cascades_of(FuseCascadedReductions("always")(mod)))
    main: 1 of 1 cascade fused
        T_softmax_maxelem -> T_softmax_expsum: fused
            'T_softmax_maxelem' is computed in blocks of 64 keys. (numerics: reassociate)
            'T_softmax_expsum' is corrected in each block by T.exp(...).
            'T_softmax_exp' reads the results in a second pass.
            'T_softmax_norm' reads the results in a second pass.
    """

    def __init__(
        self,
        policy: CascadePolicy = "products",
        *,
        numerics: Numerics = "reassociate",
        factor: int | None = None,
        move_inputs: bool = True,
        threads: int = 1,
    ) -> None:
        """Check the options."""
        word("policy", policy, CASCADE_POLICIES)
        check_numerics(numerics)
        check_factor(factor)
        flag("move_inputs", move_inputs)
        at_least_one("threads", threads)
        self.policy = policy
        self.numerics: Numerics = numerics
        self.factor = factor
        self.move_inputs = move_inputs
        self.threads = threads

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module with its cascades fused, and the report.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        changed, reports = rewrite_each(
            mod, self._function, lambda name, why: FunctionCascades(name, (), FAILED, why)
        )
        logger.info("pass: %s", "\n".join(map(str, reports)))
        text = json.dumps([asdict(each) for each in reports])
        return with_report(mod, changed, MODULE_ATTR, text)

    def _function(self, name: str, func: Any) -> tuple[Any, FunctionCascades]:
        """Return a function with its cascades fused, and what became of each."""
        if not isinstance(func, tirx.PrimFunc):
            return func, FunctionCascades(name, (), "external", LEFT_ALONE["external"])
        before = None if func.attrs is None else func.attrs.get(MODULE_ATTR)
        if before is not None:
            return func, function_from({**json.loads(str(before)), "name": name})
        reductions, left_alone = reductions_of(func)
        if left_alone:
            return func, FunctionCascades(name, (), left_alone, LEFT_ALONE[left_alone])
        if len(reductions) < 2:
            return func, FunctionCascades(name)
        sch = Schedule(tvm.IRModule({"main": func}))
        report = FunctionCascades(name, tuple(self._cascades(sch, reductions)))
        if not any(each.fused for each in report.cascades):
            return func, report
        return sch.mod["main"].with_attr(MODULE_ATTR, json.dumps(asdict(report))), report

    def _cascades(self, sch: Schedule, reductions: list[Any]) -> Iterator[CascadeOutcome]:
        """Fuse the cascades of a function as the policy says; yield what became of each."""
        names = {str(each.name_hint) for each in reductions}
        root = sch.get_sblock(sch.mod["main"].body.block.name_hint)
        todo = [
            (str(sch.get(block).name_hint), block)
            for block in sch.get_child_blocks(root)
            if str(sch.get(block).name_hint) in names
        ]
        found: list[tuple[CascadeReport, tuple[str, ...]]] = []
        for name, block in todo:
            if any(name in stages for _, stages in found):
                continue
            report = self._analyzed(sch, block)
            if report.certificate is None:
                _add_refused(found, report, name)
                continue
            stages = tuple(stage.name for stage in report.certificate.stages)
            if self._chosen(report):
                call: Any = sch.fuse_cascaded_reductions
                parts = report.certificate.parts
                call(block, factor=self.factor, parts=parts, numerics=self.numerics)
            found.append((report, stages))
        # Inputs move last: TVM's analysis, and ours, are of plain loops.
        fused = {stage for report, stages in found if report.fusable for stage in stages}
        for report, stages in found:
            if report.fusable and self._chosen(report):
                moved = self._moved(sch, report)
                _share_parts(sch, report)
                yield _outcome(report, stages, True, moved)
            elif report.fusable or not _is_input(report, fused):
                yield _outcome(report, stages, False)

    def _analyzed(self, sch: Schedule, block: Any) -> CascadeReport:
        """Return the report of a cascade, in parts of its keys if threads would be idle without."""
        asked: Any = {"factor": self.factor, "numerics": self.numerics}
        whole = analyze_cascade(sch, block, **asked)
        parts = 1 if whole.certificate is None else _parts_for(whole.certificate, self.threads)
        if parts == 1:
            return whole
        several = analyze_cascade(sch, block, parts=parts, **asked)
        return whole if several.certificate is None else several

    def _moved(self, sch: Schedule, report: CascadeReport) -> tuple[str, ...]:
        assert report.certificate is not None
        return move_inputs(sch, report.certificate.block) if self.move_inputs else ()

    def _chosen(self, report: CascadeReport) -> bool:
        """Whether the policy is to fuse a cascade."""
        assert report.certificate is not None
        if self.policy == "products":
            return any(stage.axes for stage in report.certificate.stages)
        return self.policy == "always"


def _parts_for(certificate: CascadeCertificate, threads: int) -> int:
    """Return the number of parts of a cascade's keys: 1 if its rows are enough for all threads.

    Parts of as many blocks come first, if more of them: inputs move only into those.
    """
    sizes = [*certificate.rows_extents, certificate.keys_extents[certificate.shared]]
    if not all(isinstance(size, prim.IntImm) for size in sizes):
        return 1
    *rows, keys = map(int, sizes)
    wanted = -(-threads // max(1, math.prod(rows)))
    blocks = -(-keys // certificate.factor)
    most = blocks // BLOCKS_OF_PART
    if wanted == 1 or most < 2:
        return 1
    even = (parts for parts in range(wanted, most + 1) if blocks % parts == 0)
    return next(even, min(wanted, most))


def _share_parts(sch: Schedule, report: CascadeReport) -> None:
    """Let the parts of a cascade run in parallel."""
    assert report.certificate is not None
    if report.certificate.parts > 1:
        loops = sch.get_loops(sch.get_sblock(report.certificate.block))
        count = len(report.certificate.rows) + 1
        sch.parallel(sch.fuse(*loops[:count]))


def _add_refused(
    found: list[tuple[CascadeReport, tuple[str, ...]]], report: CascadeReport, name: str
) -> None:
    """Add a refusal, unless the block is in no chain at all; one refusal is in the list once."""
    if report.stopped is None or report.stopped.code == "no-cascade":
        return
    for place, (other, names) in enumerate(found):
        if other.stopped == report.stopped and not other.fusable:
            found[place] = other, (*names, name)
            return
    found.append((report, (name,)))


def _is_input(report: CascadeReport, stages: set[str]) -> bool:
    """Whether a reduction is refused for what reads it, and that is in another cascade."""
    return report.stopped is not None and report.stopped.block in stages


def _outcome(
    report: CascadeReport, reductions: tuple[str, ...], fused: bool, moved: tuple[str, ...] = ()
) -> CascadeOutcome:
    stopped = "" if report.stopped is None else report.stopped.code
    stages = () if report.certificate is None else report.certificate.stages
    code = NOT_CHOSEN if report.fusable and not fused else stopped
    rules = tuple(stage.rule for stage in stages)
    return CascadeOutcome(reductions, rules, fused, moved, report.second_pass, code, str(report))
