"""The Relax pipeline for whole models: from operators to scheduled functions and bytecode.

``tvm.compile(mod, target, relax_pipeline="fuse_epilogue")`` runs it; `import tvm` makes it known.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import ir, relax
from tvm.target import Target

from .._arguments import flag
from ..targets import as_target, host
from ..transform import ScheduleModule
from .graph.affine_maps import FoldAffineMaps
from .graph.attention_groups import GroupAttention
from .graph.bools import BoolsAsNumbers
from .graph.channels_last import ChannelsLast
from .graph.cleanup import FoldNoOps
from .graph.constant_results import CopyConstantResults
from .graph.degenerate import DegenerateOperators
from .graph.folded import FoldArrays
from .graph.index_checks import CheckIndices
from .graph.joined_softmax import SplitJoinedSoftmax
from .graph.narrow_products import NarrowProducts
from .graph.norms import TWO_PASS_NORMS
from .graph.pads import FoldPads
from .graph.reshapes import SinkReshapes
from .graph.rounding import RoundedQuantities
from .graph.row_groups import GroupRows
from .graph.scatters import ScatterRows
from .graph.transposed_convolutions import TransposedConvolutions
from .graph.transposes import SinkTransposes
from .graph.written_out import WriteOut


def graph_passes(channels_last: bool = True) -> list[Any]:
    """Return the passes that rewrite the operators of a model.

    - `channels_last`: whether 2-D convolutions are computed on images of layout NHWC where that
      pays. Operators before and after them are moved to this layout where possible, the others are
      transposed.
    """
    flag("channels_last", channels_last)
    transform = relax.transform
    return [
        transform.CanonicalizeBindings(),
        WriteOut(),
        transform.FoldBatchnormToConv2D(),
        transform.DecomposeOpsForInference(),
        DegenerateOperators(),
        FoldNoOps(),
        BoolsAsNumbers(),
        RoundedQuantities(),
        # Before constants are folded: a matrix that is broadcast to a batch is one matrix.
        SinkReshapes(),
        TransposedConvolutions(),
        # Weights that are transposed, and batch norms that are folded, are constants again.
        FoldArrays(),
        transform.FoldConstant(),
        FoldAffineMaps(),
        FoldPads(),
        *([ChannelsLast(), SinkTransposes()] if channels_last else []),
        FoldNoOps(),
        SinkReshapes(),
        FoldNoOps(),
        FoldArrays(),
        transform.FoldConstant(),
        # Constants that were widened are folded by now.
        NarrowProducts(),
        transform.EliminateCommonSubexpr(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
    ]


def function_passes() -> list[Any]:
    """Return the passes that make PrimFuncs of operators and fuse them."""
    transform = relax.transform
    return [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(TWO_PASS_NORMS),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
        transform.DeadCodeElimination(),
    ]


def machine_passes() -> list[Any]:
    """Return the passes that turn calls of PrimFuncs into the virtual machine's instructions."""
    transform = relax.transform
    return [
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]


def scheduled(
    mod: ir.IRModule, schedule: ScheduleModule, *, channels_last: bool = True
) -> ir.IRModule:
    """Return a model as scheduled PrimFuncs and the Relax functions that call them.

    - `mod`: module of Relax; it is not changed.
    - `channels_last`: as for :func:`graph_passes`.
    """
    with schedule.target:
        # dlight's rules and the planner's kinds for GPUs know images of layout NCHW.
        channels_last = channels_last and schedule.target.kind.name == "llvm"
        groups = [
            CheckIndices(),
            SplitJoinedSoftmax(),
            GroupAttention(),
            GroupRows(),
            ScatterRows(),
        ]
        grouping = groups if schedule.target.kind.name == "llvm" else []
        passes = [*graph_passes(channels_last), *grouping, *function_passes()]
        lowered = ir.transform.Sequential(passes)(mod)
        # Reshapes become views. The pass must run here: it only reads unscheduled functions.
        lowered = relax.transform.RewriteDataflowReshape()(lowered)
        lowered = relax.transform.DeadCodeElimination()(lowered)
        return schedule(CopyConstantResults()(lowered))


def model_pipeline(
    target: Target | dict[str, Any] | None = None,
    *,
    threads: int | None = None,
    channels_last: bool = True,
    **of_schedule: Any,
) -> Any:
    """Return the pipeline, as ``tvm.relax.get_pipeline("fuse_epilogue", ...)`` does.

    Parameters
    ----------
    target : tvm.target.Target or dict, optional
        The one that is current when the pipeline runs, or else this machine, if None.
    threads, **of_schedule
        As for :class:`fuse_epilogue.transform.ScheduleModule`: `on_progress`, `measure`,
        `winograd`, `plans`.
    channels_last : bool
        As for :func:`graph_passes`.

    Returns
    -------
    tvm.transform.Pass

    Raises
    ------
    TypeError, ValueError
        When it runs: an option is not of its type, or the target is not of kind "llvm".

    Example
    -------
    >>> from tvm import relax
    >>> import fuse_epilogue
    >>> pipeline = relax.get_pipeline("fuse_epilogue", threads=1)
    """

    @tvm.transform.module_pass(opt_level=0, name="fuse_epilogue.model_pipeline")
    def run(mod: ir.IRModule, _context: tvm.transform.PassContext) -> ir.IRModule:
        here = as_target(target) if target is not None else Target.current() or host()
        schedule = ScheduleModule(here, threads=threads, **of_schedule)
        done = scheduled(mod, schedule, channels_last=channels_last)
        with here:
            return ir.transform.Sequential(machine_passes())(done)

    return run
