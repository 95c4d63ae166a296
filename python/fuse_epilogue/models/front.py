"""The one call: :func:`compile`, for functions and for models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import ir, s_tir, tirx
from tvm.target import Target

from .. import schedules
from .._arguments import flag, prim_func
from ..neuron.emit import emit
from ..neuron.machine import MACHINES, Machine
from ..planner import choose
from ..planner.backends import backend_of
from ..planner.machines.gpu import Gpu
from ..planner.measurement.measure import need_cuda
from ..planner.plans import Plan
from ..targets import host
from ..transform import ScheduleModule, schedules_of
from .compiled_function import CompiledFunction, parameters_of
from .compiling import Options, compile_imported, processor
from .database import Database
from .importing import import_model
from .neuron.compiling import package_of
from .neuron.package import NeuronPackage
from .report import FunctionReport, ModelReport
from .scheduled_report import function_report
from .sizes import Sizes

#: Options of :func:`fuse_epilogue.plan`, for a PrimFunc; models on Trainium take some of them.
_PERMISSIONS = ("finite", "round_shares")
_OF_FUNCTIONS = ("profile", "limit", *_PERMISSIONS)


def compile(  # noqa: A001 - as tvm.compile
    model: Any,
    target: Target | Gpu | Machine | str | dict[str, Any] | None = None,
    *,
    threads: int | None = None,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    sizes: Sizes | None = None,
    channels_last: bool = True,
    winograd: bool = False,
    measure: float | None = None,
    on_progress: Callable[[int, int], Any] | None = None,
    database: Database | str | os.PathLike[str] | None = None,
    **of_function: Any,
) -> Any:
    """Compile a function or a model.

    Parameters
    ----------
    model : PrimFunc, Schedule, IRModule, ExportedProgram, torch.nn.Module, ModelProto or path
        A PrimFunc is planned by :func:`fuse_epilogue.plan`. One that the planner does not know, or
        that is scheduled, gets the kernel that it would have in a model, or keeps its loops; on
        Trainium, the rules of :func:`fuse_epilogue.schedules.apply` are tried. A Schedule means its
        function. Everything else is a model: a module
        of Relax with a function "main", or of TIR with one PrimFunc or one named "main"; a program
        of torch.export; a torch module in inference mode, with `example_inputs`; an ONNX model or
        the path of one.
    target : optional
        This machine if None. For a PrimFunc all that :func:`fuse_epilogue.plan` takes; for a model
        a target of kind "llvm", or of kind "cuda" or a GPU by its name: what the planner does not
        know is scheduled by TVM's dlight there. The tests of this package execute the kernels of
        a model for a GPU on a processor, and have called none on a GPU. ``"trn1"``, ``"trn2"`` and
        ``"trn3"``: a package of kernels in NKI, which run on the interpreter here.
    threads : int, optional
        For models: number of threads that parallel loops are made for; the target's "num-cores" if
        None. On how many threads they run is up to the environment variable TVM_NUM_THREADS.
    example_inputs : Sequence, optional
        For torch modules: the arguments to export with, ``(x, ...)``.
    dynamic_shapes : optional
        For torch modules: the sizes that may differ from call to call, as ``torch.export.export``
        takes them. They have the names of their dimensions.
    sizes : Mapping[str, int or Sequence[int]], optional
        For models with sizes that may differ from call to call: those to have kernels for, as
        ``{"batch": (1, 8)}``. The model is right for all others: functions of
        independent rows run in kernels for constant numbers of rows, attention in blocks of any
        number of queries and keys, the rest in TVM's loops.
    channels_last : bool
        For models: whether 2-D convolutions run on layout NHWC where that pays.
    winograd : bool
        For models and processors: whether convolutions of float32 with constant filters of 3 x 3
        and stride 1 may be computed by Winograd's algorithms, where these are predicted to be
        faster. F(2x2, 3x3) rounds less than sums of products do, F(4x4, 3x3) about twice as much.
        An infinity or a NaN in an image spreads over the tiles of results that read it.
    measure : optional
        For a model the seconds, for a PrimFunc the number of points, to time on this machine. Of a
        model, the functions that are predicted to take most of the time come first; TVM's own loops
        are among what is timed.
    on_progress : callable, optional
        For models: called with how many steps are done, and how many there are: one for each
        function, and with `measure` one more.
    database : Database or path, optional
        For models: a folder where what is compiled is kept and found again, by the model with its
        weights, the target, the options above, and versions; and what is chosen for each function,
        for other models that have it. Its machine code is run: use only a folder to which
        nothing writes that you do not trust.
    **of_function
        For a PrimFunc: the options `profile`, `limit`, `finite` and `round_shares` of
        :func:`fuse_epilogue.plan`; the last two also for a model on Trainium.

    Returns
    -------
    CompiledModel, NeuronPackage, CompiledFunction or fuse_epilogue.neuron.kernel.Kernel
        For a model, a :class:`CompiledModel`, or for Trainium a :class:`NeuronPackage`. For a
        PrimFunc, a :class:`CompiledFunction`, called with an array for each parameter; for
        Trainium, the kernel.

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
    core = _core(target)
    unknown = sorted(set(of_function) - set(_OF_FUNCTIONS))
    if unknown:
        raise TypeError(f"compile() got an unexpected keyword argument '{unknown[0]}'")
    flag("channels_last", channels_last)
    flag("winograd", winograd)
    if isinstance(model, tirx.PrimFunc | s_tir.Schedule):
        given = {
            "threads": threads,
            "example_inputs": example_inputs,
            "dynamic_shapes": dynamic_shapes,
            "sizes": sizes,
            "on_progress": on_progress,
            "database": database,
            "winograd": winograd or None,
        }
        return _function(model, target, core, measure, given, of_function)
    if core is not None:
        given = {"threads": threads, "sizes": sizes, "measure": measure, "database": database}
        given["winograd"] = winograd or None
        return _package(
            model, core, example_inputs, dynamic_shapes, on_progress, given, of_function
        )
    if of_function:
        name = next(iter(of_function))
        raise ValueError(f"{name} is for a PrimFunc: leave it out for a model")
    options = Options(
        threads, channels_last, sizes, measure, on_progress, database, winograd=winograd
    )
    here = processor(target, threads)
    loops = here.kind.name == "llvm"
    mod = import_model(model, example_inputs, dynamic_shapes, loops=loops)
    return compile_imported(mod, here, options)


def _function(
    func: tirx.PrimFunc | s_tir.Schedule,
    target: Any,
    core: Machine | None,
    measure: Any,
    of_models: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Any:
    """Compile a function by its plan, or as a model's where the planner does not know it."""
    for name, value in of_models.items():
        if value is not None:
            raise ValueError(f"{name} is for models: leave it out for a PrimFunc")
    here = host() if target is None else target
    try:
        plan = choose.plan(func, here, measure=0 if measure is None else measure, **options)
    except choose.UnknownFunctionError:
        if measure is not None or options:
            raise
        func = prim_func("model", func)
        if core is not None:
            return emit(schedules.apply(func, core))
        return _as_in_a_model(func, processor(here))
    func = prim_func("model", func)
    built = backend_of(plan.machine).compile(plan.apply(func), here)
    if core is not None:
        return built
    used = processor(here)
    threads = int(used.attrs.get("num-cores", 1))
    report = ModelReport((_planned(plan, int(measure or 0)),), str(used), threads)
    return CompiledFunction(built, parameters_of(func), report, str(used), plan)


def _planned(plan: Plan, trials: int) -> FunctionReport:
    """Return the row of a planned function."""
    way = backend_of(plan.machine).way(plan.point.get("fusion", 0))
    return FunctionReport("main", plan.kind, way, 1, plan.found.best.seconds, trials=trials)


def _as_in_a_model(func: tirx.PrimFunc, target: Target) -> CompiledFunction:
    """Compile a function by the kernel that it would have in a model, or in the loops it has."""
    if target.kind.name == "cuda":
        need_cuda()
    mod = ir.IRModule({"main": func.with_attr("global_symbol", "main")})
    schedule = ScheduleModule(target)
    done = schedule(mod)
    rows = [function_report(each, 1, "") for each in schedules_of(done) or ()]
    report = ModelReport(tuple(rows), str(target), schedule.threads)
    built = tvm.compile(done, target=target)
    return CompiledFunction(built, parameters_of(func), report, str(target))


def _core(target: Any) -> Machine | None:
    """Return the machine that a target names, None if it is not Trainium.

    - Raises TypeError: the second argument of a call was meant to be the example inputs.
    """
    if isinstance(target, tuple | list):
        raise TypeError(
            f"target must be a tvm.target.Target, a str or a dict, not {type(target).__name__}; "
            "example inputs are passed by name, example_inputs=(x,)"
        )
    if isinstance(target, Machine):
        return target
    return MACHINES.get(target) if isinstance(target, str) else None


def _package(
    model: Any,
    core: Machine,
    example_inputs: Sequence[Any] | None,
    dynamic_shapes: Any,
    on_progress: Callable[[int, int], Any] | None,
    others: Mapping[str, Any],
    of_function: Mapping[str, Any],
) -> NeuronPackage:
    """Compile a model for Trainium."""
    refused = [name for name, value in others.items() if value is not None]
    refused += [name for name in of_function if name not in _PERMISSIONS]
    if refused:
        raise ValueError(f"{refused[0]} is not for models on Trainium: leave it out")
    for name, value in of_function.items():
        flag(name, value)
    mod = import_model(model, example_inputs, dynamic_shapes, loops=False)
    return package_of(mod, core, **of_function, on_progress=on_progress)
