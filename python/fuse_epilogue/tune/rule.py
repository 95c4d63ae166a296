"""A schedule rule of MetaSchedule that forks the search space: a reduction fused, or as it is.

Operands that a sum can absorb (a bias) become its start. Others (a ReLU) stay a separate block,
which MetaSchedule computes in the tiles of the reduction by itself::

    temp = A @ B      (T.init: 0)                 sum = A @ B       (T.init: C[j])
    sum  = temp + C[j]                  ->        D   = max(sum, 0)
    D    = max(sum, 0)

Which of both is better is the search's to find: each is a design space, and the trace of the second
has the fusion as a step, which mutations and replays repeat, proof included.
"""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import SBlockRV
from tvm.s_tir.schedule.analysis import is_output_block
from tvm.sym import Analyzer
from tvm.target import Target

from .._arguments import Numerics, check_numerics
from ..schedule import analyze
from ..targets import as_target
from ..tir.walk import loads
from .checks import tvm_space
from .postproc import with_decompose_fused


def absorb(sch: s_tir.Schedule, block: SBlockRV, numerics: Numerics = "reassociate") -> list[str]:
    """Fuse the epilogues of a reduction that leave no tail, one after the other.

    Parameters
    ----------
    sch : tvm.s_tir.Schedule
        Where anything is fused, its trace says what it needs: a process without this package
        fails to replay it with a sentence that names the package.
    block : SBlockRV
        Any block.
    numerics : {"reassociate", "exact"}
        As of ``sch.fuse_reduction_epilogue``.

    Returns
    -------
    list[str]
        The names of the blocks that are gone; empty if `block` is not a reduction, or nothing is
        absorbed. Some steps are not taken, since the rules of MetaSchedule could not go on: those
        after which the reduction would start from its own output, which they give another name;
        those of a reduction with other blocks in its loops, which they reorder; those that absorb a
        buffer without dimensions, which they copy by loops; those after which a block reads an
        output of the function from the reduction, which they would move; and those that write an
        output in part or in another order than by its dimensions: TVM's ``cache_write`` copies what
        lies between two elements, too.

    Raises
    ------
    ValueError
        `numerics` is neither of its two values.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import tune, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(16, 16, 16))
    >>> tune.absorb(sch, sch.get_sblock("matmul"))
    ['bias']
    """
    gone: list[str] = []
    while (epilogue := _next_epilogue(sch, block, numerics)) is not None:
        trial = sch.copy()
        report = trial.fuse_reduction_epilogue(block, epilogue, numerics=numerics)
        left = report.kept or any(step.tail or step.merged_into for step in report.steps)
        if left or _starts_from_output(trial.get(block)) or not _fits_rules(trial, block):
            break
        sch.fuse_reduction_epilogue(block, epilogue, numerics=numerics)
        gone.append(epilogue)
    return gone


def _next_epilogue(sch: s_tir.Schedule, block: SBlockRV, numerics: Numerics) -> str | None:
    """Return the name of the block that a fusion would begin with."""
    if sch.get(block).init is None:
        return None
    steps = analyze(sch, block, numerics=numerics).steps
    return steps[0].epilogue if steps else None


def _starts_from_output(block: s_tir.SBlock) -> bool:
    outputs = [region.source for region in block.writes]
    return any(
        load.source.same_as(output) for load in loads(block.init.value) for output in outputs
    )


def _fits_rules(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    in_a_chain = all(
        not isinstance(sch.get(loop).body, tirx.SeqStmt) for loop in sch.get_loops(block)
    )
    has_dimensions = all(len(read.region) > 0 for read in sch.get(block).reads)
    read_as_output = is_output_block(sch, block) and len(sch.get_consumers(block)) > 0
    plain = _writes_by_axes(sch.get(block))
    return in_a_chain and has_dimensions and not read_as_output and plain


def _writes_by_axes(block: s_tir.SBlock) -> bool:
    """Whether a block writes all of its output, with an axis of its own for every dimension."""
    output = block.writes[0]
    axes = {a.var: a for a in block.iter_vars if a.iter_type == tirx.IterVar.DataPar}
    analyzer = Analyzer()
    for written, extent in zip(output.region, output.source.ty.shape, strict=True):
        axis = axes.pop(written.min, None)
        length = tirx.const(1, "int64") if axis is None else axis.dom.extent
        if not analyzer.can_prove_equal(length, extent):
            return False
    return True


@derived_object
class FuseReductionEpilogue(ms.schedule_rule.PyScheduleRule):
    """Give, for every reduction with an epilogue it can absorb, the schedule as it is and fused.

    The rule has to come before those that inline and tile; :func:`space` puts it there.

    Parameters
    ----------
    numerics : {"reassociate", "exact"}
        As of ``sch.fuse_reduction_epilogue``: with ``"exact"`` the search leaves floats alone.

    Raises
    ------
    ValueError
        `numerics` is neither of its two values.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import tune, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(16, 16, 16))
    >>> len(tune.FuseReductionEpilogue().apply(sch, sch.get_sblock("matmul")))
    2
    """

    def __init__(self, numerics: Numerics = "reassociate") -> None:
        check_numerics(numerics)
        self.numerics = numerics

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """Take nothing from the context: whether a fusion is right depends on no target."""

    def apply(self, sch: s_tir.Schedule, block: SBlockRV) -> list[s_tir.Schedule]:
        """Return the design spaces for a block: the schedule, and a fused copy if there is one."""
        fused = sch.copy()
        return [sch, fused] if absorb(fused, block, self.numerics) else [sch]

    def clone(self) -> Any:  # noqa: ANN401 - the class is TVM's by now
        """Return another rule that does the same."""
        return FuseReductionEpilogue(self.numerics)


def space(
    target: Target | str | dict[str, Any], *, fuse: bool = True, numerics: Numerics = "reassociate"
) -> ms.space_generator.PostOrderApply:
    """Return TVM's default search space for a target, with fused and unfused reductions in it.

    Parameters
    ----------
    target : tvm.target.Target, str or dict
        With what MetaSchedule reads of it: "num-cores", or of a GPU "max_threads_per_block",
        "max_shared_memory_per_block" and "thread_warp_size". As a str, one of TVM's tags.
    fuse : bool
        Whether our rule is in it. The postprocessor is in either case: a space may be for
        functions that were fused before.
    numerics : {"reassociate", "exact"}
        As of ``sch.fuse_reduction_epilogue``.

    Returns
    -------
    tvm.s_tir.meta_schedule.space_generator.PostOrderApply
        For ``tune_tir(..., space=...)``, ``tune_relax(..., space=...)`` and
        :func:`fuse_epilogue.tune.tune`.

    Raises
    ------
    ValueError
        TVM has no default rules for this kind of target, the target does not say what they read,
        or `numerics` is neither of its two values.

    Example
    -------
    >>> from fuse_epilogue import tune
    >>> generator = tune.space({"kind": "llvm", "num-cores": 2})
    >>> sum(type(p).__name__ == "_PyPostproc" for p in generator.postprocs)
    1
    """
    check_numerics(numerics)
    default = tvm_space(as_target(target))
    rules = list(default.sch_rules)
    if fuse:
        rules.insert(0, FuseReductionEpilogue(numerics))
    return ms.space_generator.PostOrderApply(
        sch_rules=rules,
        postprocs=with_decompose_fused(default.postprocs),
        mutator_probs=dict(default.mutator_probs.items()),
    )
