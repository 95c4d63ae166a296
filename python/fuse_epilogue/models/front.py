"""The one call: :func:`compile`, for functions and for models."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import ir, tirx
from tvm.target import Target

from .._arguments import flag
from .._log import logger
from ..neuron.machine import Machine
from ..planner import choose
from ..planner.gpu import Gpu
from ..schedules import host
from .compiled import CompiledModel, report_of
from .database import Database
from .importing import import_model
from .pipeline import machine_passes, scheduled
from .signature import signature_of

#: Options of the planner's compile, which a PrimFunc is compiled by.
_OF_FUNCTIONS = ("profile", "limit", "finite", "measure")


def compile(  # noqa: A001 - as tvm.compile
    model: Any,
    target: Target | Gpu | Machine | str | dict[str, Any] | None = None,
    *,
    threads: int | None = None,
    example_inputs: Sequence[Any] | None = None,
    channels_last: bool = True,
    on_progress: Callable[[int, int], Any] | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    **of_function: Any,
) -> Any:
    """Compile a function or a model.

    Parameters
    ----------
    model : PrimFunc, IRModule, ExportedProgram, torch.nn.Module, ModelProto or path
        A PrimFunc is planned by :func:`fuse_epilogue.plan`. Everything else is a model: a module
        of Relax with a function "main", or of TIR with one PrimFunc or one named "main"; a program
        of torch.export; a torch module in inference mode, with `example_inputs`; an ONNX model or
        the path of one.
    target : optional
        This machine if None. For a PrimFunc all that :func:`fuse_epilogue.plan` takes; for a model
        a target of kind "llvm".
    threads : int, optional
        For models: number of threads that parallel loops are made for; the target's "num-cores" if
        None. On how many threads they run is up to the environment variable TVM_NUM_THREADS.
    example_inputs : Sequence, optional
        For torch modules: the arguments to export with, ``(x, ...)``.
    channels_last : bool
        For models: whether 2-D convolutions run on layout NHWC.
    on_progress : callable, optional
        For models: called with how many functions are scheduled, and how many there are.
    database : Database or path, optional
        For models: a folder where what is compiled is kept and found again, by the model with its
        weights, the target, the options above, and versions. Its machine code runs: use only a
        folder to which no one writes whom you would not trust with your programs.
    **of_function
        For a PrimFunc: the options `profile`, `limit`, `finite` and `measure` of
        :func:`fuse_epilogue.plan`.

    Returns
    -------
    CompiledModel, tvm.runtime.Executable or fuse_epilogue.neuron.kernel.Kernel
        For a model, a :class:`CompiledModel`. For a PrimFunc, an executable whose "main" is the
        function, called with a tensor for each parameter; for Trainium, the kernel.

    Raises
    ------
    TypeError, ValueError
        As :func:`fuse_epilogue.plan` for a PrimFunc, as :func:`.importing.import_model` for a
        model; or an option is for the other of the two.
    RuntimeError
        For a PrimFunc and a GPU: this TVM has no CUDA.
    DatabaseError
        The database's entry for the model is damaged.

    Example
    -------
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> kernel = fuse_epilogue.compile(workloads.matmul(128, 128, 128), "trn1")
    >>> kernel.parameters
    ('a', 'b', 'bias')
    """
    unknown = sorted(set(of_function) - set(_OF_FUNCTIONS))
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument '{unknown[0]}'")
    flag("channels_last", channels_last)
    if isinstance(model, tirx.PrimFunc):
        for name, value in (
            ("threads", threads),
            ("example_inputs", example_inputs),
            ("on_progress", on_progress),
            ("database", database),
        ):
            if value is not None:
                raise ValueError(f"{name} is for models: leave it out for a PrimFunc")
        return choose.compile(model, host() if target is None else target, **of_function)
    if of_function:
        name = next(iter(of_function))
        raise ValueError(f"{name} is for a PrimFunc: leave it out for a model")
    return compile_imported(
        import_model(model, example_inputs),
        processor(target, threads),
        threads=threads,
        channels_last=channels_last,
        on_progress=on_progress,
        database=database,
    )


def processor(target: Any, threads: int | None = None) -> Target:
    """Return a target that models are compiled for.

    Raises
    ------
    TypeError
        `target` is not a target.
    ValueError
        `target` is not a processor.
    """
    if target is None:
        return host(threads)
    if isinstance(target, Machine | Gpu) or target in ("trn1", "trn2"):
        raise ValueError(
            f"models are compiled for processors, not for {target}: compile single PrimFuncs for it"
        )
    if not isinstance(target, Target | str | dict):
        raise TypeError(f"target must be a tvm.target.Target, not {type(target).__name__}")
    made = Target(target)
    if made.kind.name != "llvm":
        raise ValueError(f"models are compiled for targets of kind 'llvm', not '{made.kind.name}'")
    return made


def compile_imported(
    mod: ir.IRModule,
    target: Target,
    *,
    threads: int | None = None,
    channels_last: bool = True,
    on_progress: Callable[[int, int], Any] | None = None,
    database: Database | str | os.PathLike[str] | None = None,
) -> CompiledModel:
    """Compile a Relax module that is a model, as :func:`.importing.import_model` returns it."""
    if database is None:
        return _compiled(mod, target, threads, channels_last, on_progress)
    kept = database if isinstance(database, Database) else Database(database)
    options = {"threads": threads, "channels_last": channels_last}
    found = kept.get_model(mod, target, **options)
    if found is not None:
        return found
    made = _compiled(mod, target, threads, channels_last, on_progress)
    try:
        kept.put_model(mod, target, made, **options)
    except (OSError, RuntimeError) as error:
        warnings.warn(f"the database does not keep the model: {error}", stacklevel=2)
    return made


def _compiled(
    mod: ir.IRModule,
    target: Target,
    threads: int | None,
    channels_last: bool,
    on_progress: Callable[[int, int], Any] | None,
) -> CompiledModel:
    signature = signature_of(mod)
    done = scheduled(
        mod, target, threads=threads, channels_last=channels_last, on_progress=on_progress
    )
    count = threads or int(target.attrs.get("num-cores", 1))
    report = report_of(done, target, count)
    built = tvm.compile(
        done, target=target, relax_pipeline=ir.transform.Sequential(machine_passes())
    )
    logger.info("compiled %s\n%s", signature, report)
    return CompiledModel(built, signature, report, str(target))
