"""Compiles a model that is imported for a processor or a GPU."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import ir
from tvm.target import Target

from .._log import logger
from ..neuron.machine import MACHINES, Machine
from ..planner.machines.gpu import Gpu
from ..targets import as_target, host
from ..transform import ScheduleModule
from ..transform.schedule_module import KINDS_OF_TARGETS
from ..transform.shared_lanes import keeping_lanes, share_lanes
from .compiled import CompiledModel
from .database import Database
from .derived_sizes import with_sizes_computed
from .pipeline import machine_passes, scheduled
from .scheduled_report import report_of_scheduled
from .signature import signature_of
from .sizes import Sizes, combinations, with_copies


def processor(target: Any, threads: int | None = None) -> Target:
    """Return a target that models are compiled for.

    - Raises TypeError: `target` is not a target.
    - Raises ValueError: `target` is neither a processor nor a GPU of CUDA.
    """
    if target is None or (isinstance(target, str) and target in ("host", "cpu")):
        return host(threads)
    if isinstance(target, Machine) or (isinstance(target, str) and target in MACHINES):
        raise ValueError(
            f"a processor or a GPU is needed here, not {target}: fuse_epilogue.compile makes "
            "packages for it"
        )
    made = target.target if isinstance(target, Gpu) else as_target(target)
    if made.kind.name not in KINDS_OF_TARGETS:
        raise ValueError(
            f"models are compiled for targets of kind {' and '.join(map(repr, KINDS_OF_TARGETS))}, "
            f"not '{made.kind.name}'"
        )
    return made if made.kind.name == "llvm" else Target(made, host=Target("llvm"))


@dataclass(frozen=True)
class Options:
    """Options of compiling a model; see :func:`compile`."""

    threads: int | None = None
    channels_last: bool = True
    sizes: Sizes | None = None
    measure: float | None = None
    on_progress: Callable[[int, int], Any] | None = None
    database: Database | str | os.PathLike[str] | None = None
    winograd: bool = False


_DEFAULTS = Options()


def compile_imported(
    mod: ir.IRModule, target: Target, options: Options = _DEFAULTS
) -> CompiledModel:
    """Compile a Relax module that is a model, as :func:`.importing.import_model` returns it."""
    wanted = combinations(mod, options.sizes)
    kept = options.database
    if kept is not None and not isinstance(kept, Database):
        kept = Database(kept)
    schedule = ScheduleModule(
        target,
        threads=options.threads,
        on_progress=options.on_progress,
        measure=options.measure,
        winograd=options.winograd,
        plans=kept,
    )
    key: dict[str, Any] = {
        "threads": options.threads,
        "channels_last": options.channels_last,
        "winograd": options.winograd,
        "sizes": wanted,
        "timed": options.measure is not None,
    }
    found = None if kept is None else kept.get_model(mod, target, **key)
    if found is not None:
        return found
    made = _compiled(mod, schedule, wanted, options.channels_last)
    if kept is not None:
        try:
            kept.put_model(mod, target, made, **key)
        except (OSError, RuntimeError) as error:
            warnings.warn(f"the database does not keep the model: {error}", stacklevel=2)
    return made


def _compiled(
    mod: ir.IRModule,
    schedule: ScheduleModule,
    wanted: Sequence[Mapping[str, int]],
    channels_last: bool,
) -> CompiledModel:
    signature = signature_of(mod)
    done = scheduled(with_copies(mod, wanted), schedule, channels_last=channels_last)
    report = report_of_scheduled(done, schedule.target, schedule.threads, wanted)
    done = with_sizes_computed(done)
    passes = machine_passes()
    with contextlib.ExitStack() as stack:
        if schedule.target.kind.name == "llvm":
            passes = [share_lanes, *passes]
            stack.enter_context(keeping_lanes())
        pipeline = ir.transform.Sequential(passes)
        built = tvm.compile(done, target=schedule.target, relax_pipeline=pipeline)
    logger.info("compiled %s\n%s", signature, report)
    return CompiledModel(built, signature, report, str(schedule.target), sizes=wanted)
