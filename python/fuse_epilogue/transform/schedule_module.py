"""The pass that schedules every function of a module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx
from tvm.ir import Call, GenericConst, GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from .._arguments import prim_func
from .._interrupts import is_interrupt
from ..kernels.cpu import kinds
from ..kernels.scheduled import Packing, Scheduled
from ..recognize.stages import read_program
from ..schedules import host
from ..schedules.branches import with_branches
from ..schedules.cpu import with_vector_functions
from ..tir_tree import handle

#: Attribute of a module that holds the report, as JSON.
MODULE_ATTR = "fuse_epilogue.schedules"
#: The kind of a function that nothing schedules: TVM's default.
DEFAULT = "default"
#: The kind of a function that only changes a shape: Relax makes a view of it.
VIEW = "view"


@dataclass(frozen=True)
class FunctionSchedule:
    """The outcome for one function.

    Attributes
    ----------
    name : str
        Name of the function in the module.
    kind : str
        Kind of kernel, such as "contraction"; :data:`DEFAULT` if the function is as it was.
    fusion : str
        What became of the epilogue: "none", "tail" or "absorbed".
    predicted_s : float
        Seconds by the cost model; 0 if nothing predicts it.
    packed : tuple[int, ...]
        Indices of the parameters that are packed when the module is compiled.
    why : str
        Reason why the function is as it was; empty otherwise.
    """

    name: str
    kind: str = DEFAULT
    fusion: str = "none"
    predicted_s: float = 0.0
    packed: tuple[int, ...] = field(default_factory=tuple)
    why: str = ""


def schedules_of(mod: ir.IRModule) -> tuple[FunctionSchedule, ...] | None:
    """Return what :class:`ScheduleModule` did to a module, None if it has not run.

    Parameters
    ----------
    mod : tvm.ir.IRModule

    Returns
    -------
    tuple[FunctionSchedule, ...] or None
        One for each PrimFunc, in the order of the module.

    Raises
    ------
    ValueError
        The module's attribute is not what the pass writes.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue.transform import schedules_of
    >>> schedules_of(tvm.IRModule()) is None
    True
    """
    text = None if mod.attrs is None else mod.attrs.get(MODULE_ATTR)
    if text is None:
        return None
    try:
        read = [{**each, "packed": tuple(each["packed"])} for each in json.loads(str(text))]
        return tuple(FunctionSchedule(**each) for each in read)
    except (TypeError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"the attribute '{MODULE_ATTR}' is damaged: {error}") from error


@tvm.transform.module_pass(opt_level=0, name="ScheduleModule")
class ScheduleModule:
    """Schedule every function of a module for a processor.

    It comes after ``FuseTIR`` and, if that is used at all, :class:`FuseReductionEpilogue`. Each
    PrimFunc of constant sizes is replaced by a kernel that computes the same; its constant
    arguments are packed for it once, here. A function that no kind of kernel knows keeps the loops
    that it has, and :func:`schedules_of` says why.

    Parameters
    ----------
    target : tvm.target.Target or dict, optional
        Of kind "llvm"; this machine if None.
    threads : int, optional
        Number of threads that parallel loops are made for; the target's "num-cores" if None.
    on_progress : callable, optional
        Called with how many functions are done, and how many there are.

    Raises
    ------
    ValueError
        The target is not of kind "llvm", or `threads` is below 1.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import workloads
    >>> from fuse_epilogue.transform import ScheduleModule, schedules_of
    >>> mod = tvm.IRModule({"main": workloads.matmul(64, 64, 64, activation="relu")})
    >>> [each.name for each in schedules_of(ScheduleModule()(mod))]
    ['main']
    """

    def __init__(
        self,
        target: Target | dict[str, Any] | None = None,
        *,
        threads: int | None = None,
        on_progress: Callable[[int, int], Any] | None = None,
    ) -> None:
        """Check the options."""
        self.target = host() if target is None else Target(target)
        if self.target.kind.name != "llvm":
            raise ValueError(
                f"ScheduleModule schedules for processors, kind 'llvm', not for "
                f"'{self.target.kind.name}'"
            )
        cores = int(self.target.attrs.get("num-cores", 1))
        self.threads = cores if threads is None else threads
        if isinstance(self.threads, bool) or not isinstance(self.threads, int) or self.threads < 1:
            raise ValueError(f"threads must be an integer from 1, not {threads!r}")
        self.on_progress = on_progress

    if TYPE_CHECKING:

        def __call__(self, mod: ir.IRModule) -> ir.IRModule:
            """Run the pass; the method is that of TVM's passes, which its decorator adds."""

    def transform_module(
        self, mod: ir.IRModule, _context: tvm.transform.PassContext
    ) -> ir.IRModule:
        """Return the module with its functions scheduled.

        Parameters
        ----------
        mod : tvm.ir.IRModule
            Stays as it is.
        """
        constants = _constant_parameters(mod)
        functions: dict[GlobalVar, Any] = {}
        packings: dict[int, Mapping[int, Packing]] = {}
        reports = []
        known: list[tuple[Any, frozenset[int], Scheduled | str]] = []
        todo = [var for var, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)]
        for done, var in enumerate(todo):
            func = mod[var]
            fixed = constants.get(handle(var), frozenset())
            found = _of_equal(known, func, fixed)
            if found is None:
                found = self._schedule(func, fixed)
                known.append((func, fixed, found))
            report = FunctionSchedule(
                str(var.name_hint), why=found if isinstance(found, str) else ""
            )
            if isinstance(found, Scheduled):
                packings[handle(var)] = found.packing
                functions[var] = _named_as(func, found.func)
                report = FunctionSchedule(
                    report.name,
                    found.kind,
                    found.fusion,
                    found.predicted_s,
                    tuple(sorted(found.packing)),
                )
            else:
                functions[var] = with_vector_functions(func)
            reports.append(report)
            if self.on_progress is not None:
                self.on_progress(done + 1, len(todo))
        renewed = ir.IRModule(
            {var: functions.get(var, func) for var, func in mod.functions.items()},
            mod.attrs,
            mod.global_infos,
        )
        if any(packings.values()):
            renewed = _with_packed_constants(renewed, packings)
        return renewed.with_attr(MODULE_ATTR, json.dumps([asdict(each) for each in reports]))

    def _schedule(self, func: Any, constants: frozenset[int]) -> Scheduled | str:
        """Return a function scheduled, or why it is not."""
        prim_func("func", func)
        if relax.analysis.has_reshape_pattern(func):
            return Scheduled(func, VIEW)
        try:
            program = read_program(with_branches(func))
            found = _planned(func, self.target) if _is_depthwise(func, self.target) else None
            if found is None and program is not None:
                found = kinds.schedule(program, self.target, self.threads, constants)
            found = found or _planned(func, self.target)
        except Exception as error:  # noqa: BLE001 - one function must not stop a module
            if is_interrupt(error):
                raise KeyboardInterrupt from error
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[-1]}"
        if found is not None:
            return found
        if program is None:
            return "sizes are not constant, or a block does not compute every element once"
        return "no kind of kernel knows it"


def _is_depthwise(func: Any, target: Target) -> bool:
    """Return whether a function is a depthwise convolution along rows of memory.

    Its sums have few terms, each in one channel: the planner's kernels load a row in vectors, where
    a contraction of tiles would have a vector across channels.
    """
    from ..planner.machine import cpu
    from ..planner.problems.conv import find_conv

    return find_conv(func, cpu(target)) is not None


def _planned(func: Any, target: Target) -> Scheduled | None:
    """Return a function scheduled by the planner's kinds, None if it is of none of them."""
    from ..planner import plan

    try:
        chosen = plan(func, target)
    except ValueError:
        return None
    scheduled = chosen.apply(func).mod["main"]
    return Scheduled(scheduled, chosen.kind, "tail" if chosen.fused else "none", chosen.cost)


def _of_equal(
    known: list[tuple[Any, frozenset[int], Scheduled | str]], func: Any, constants: frozenset[int]
) -> Scheduled | str | None:
    """Return what became of an equal function."""
    for other, fixed, found in known:
        if fixed == constants and tvm_ffi.structural_equal(_nameless(other), _nameless(func)):
            return found
    return None


def _nameless(func: Any) -> Any:
    return func.without_attr("global_symbol") if "global_symbol" in (func.attrs or {}) else func


def _named_as(func: Any, scheduled: Any) -> Any:
    """Return a scheduled function with the name of the function it replaces."""
    name = (func.attrs or {}).get("global_symbol")
    scheduled = with_vector_functions(scheduled)
    if not isinstance(scheduled.body, s_tir.SBlockRealize):
        # Relax's passes after this one look for a root block in every function.
        root = s_tir.SBlock([], [], [], "root", scheduled.body)
        scheduled = scheduled.with_body(s_tir.SBlockRealize([], True, root))
    return _nameless(scheduled) if name is None else scheduled.with_attr("global_symbol", name)


def _calls(mod: ir.IRModule) -> list[Any]:
    """Return all calls in the Relax functions of a module."""
    found: list[Any] = []
    for func in mod.functions.values():
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(
                func, lambda node: found.append(node) if isinstance(node, Call) else None
            )
    return found


def _is_call_tir(node: Any) -> bool:
    return getattr(node.op, "name", "") == "relax.call_tir"


def _constant_parameters(mod: ir.IRModule) -> dict[int, frozenset[int]]:
    """Return by function which of its parameters are constants at every call.

    A function that is used otherwise than by ``call_tir`` has none.
    """
    found: dict[int, frozenset[int]] = {}
    for call in _calls(mod):
        if not _is_call_tir(call):
            for argument in (call.op, *call.args):
                if isinstance(argument, GlobalVar):
                    found[handle(argument)] = frozenset()
            continue
        arguments = call.args[1].fields
        fixed = frozenset(
            place for place, each in enumerate(arguments) if isinstance(each, GenericConst)
        )
        var = handle(call.args[0])
        found[var] = fixed & found.get(var, fixed)
    return found


def _with_packed_constants(
    mod: ir.IRModule, packings: Mapping[int, Mapping[int, Packing]]
) -> ir.IRModule:
    # The type of a function's variable has the shapes of its arguments.
    renewed = {
        handle(var): _typed_as(var, mod[var]) for var in mod.functions if packings.get(handle(var))
    }
    packer = _ConstantPacker(mod, packings, renewed)
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            packer.builder_.update_func(var, packer.visit_expr(func))
    functions = {
        renewed.get(handle(var), var): func for var, func in packer.builder_.get().functions.items()
    }
    return ir.IRModule(functions, mod.attrs, mod.global_infos)


def _typed_as(var: GlobalVar, func: Any) -> GlobalVar:
    """Return another variable of the same name, with the type of a function."""
    made = GlobalVar(var.name_hint)
    relax.expr._update_type(made, func.ty)
    return made


@mutator
class _ConstantPacker(PyExprMutator):
    """Replaces the constant arguments of calls by packed ones, each constant once per packing."""

    def __init__(
        self,
        mod: ir.IRModule,
        packings: Mapping[int, Mapping[int, Packing]],
        renewed: Mapping[int, GlobalVar],
    ) -> None:
        super().__init__(mod)
        self.packings = packings
        self.renewed = renewed
        self.packed: dict[tuple[int, int, int], Any] = {}

    def visit_call_(self, call: Any) -> Any:
        """Return a call with packed constants."""
        if not _is_call_tir(call):
            return super().visit_call_(call)
        packing = self.packings.get(handle(call.args[0]))
        if not packing:
            return super().visit_call_(call)
        arguments = [
            self._pack(handle(call.args[0]), place, each, packing[place])
            if place in packing
            else self.visit_expr(each)
            for place, each in enumerate(call.args[1].fields)
        ]
        var = self.renewed[handle(call.args[0])]
        return relax.call_tir(var, relax.Tuple(arguments), call.ty_args[0])

    def _pack(self, func: int, place: int, constant: Any, packing: Packing) -> Any:
        key = (func, place, handle(constant))
        if key not in self.packed:
            array = packing.pack(constant.value.numpy())
            if tuple(array.shape) != tuple(packing.shape):
                raise ValueError(f"packed to {array.shape}, not to {packing.shape}")
            self.packed[key] = relax.const(np.ascontiguousarray(array), packing.dtype)
        return self.packed[key]
