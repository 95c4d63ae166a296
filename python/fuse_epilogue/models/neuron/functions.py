"""Kernels for the functions of a model on Trainium: by a plan, by a rule, or in several pieces.

A function that no kernel computes is left to the processor, and the reason is kept.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import tvm_ffi
from tvm import s_tir, te, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer

from ..._printed import last_line
from ...kernels.trainium.gather import find_gather
from ...kernels.trainium.outline import pieces_of
from ...neuron import CheckError, EmitError, emit
from ...neuron.emit.names import RESERVED
from ...neuron.kernel import Kernel
from ...neuron.machine import Machine
from ...planner import plan
from ...recognize.inlining import simplified_indices
from ...schedules import neuron_rules
from ...tir.build import with_fields
from ...tir.nest import all_names, child_names, statements
from ...tir.walk import parts_of
from ...transform.chosen import without_name

#: The kind of a function that is computed by the processor.
HOST = "host"
#: Longest name of a function, and of the file that it is in.
_LONGEST = 60


class Permitted(TypedDict):
    """Options of :func:`fuse_epilogue.plan` by which a caller permits something."""

    finite: bool
    round_shares: bool


@dataclass(frozen=True)
class Piece:
    """A function, or a part of one.

    - `func`: not scheduled; its results are its last parameters.
    - `kind`: "conv", "product", "rows" and so on if it is planned, the name of a rule, or
      :data:`HOST`.
    - `fusion`: "tail" if what follows its reduction is fused, else "none".
    - `kernel`: None if the processor computes it.
    - `why`: reason why there is no kernel, or no better one; empty otherwise.
    """

    name: str
    func: tirx.PrimFunc
    kind: str
    fusion: str = "none"
    kernel: Kernel | None = None
    why: str = ""


def pieces(
    name: str,
    func: tirx.PrimFunc,
    core: Machine,
    *,
    finite: bool = False,
    round_shares: bool = False,
) -> list[Piece]:
    """Return a function as kernels.

    - `func`: not scheduled, with numbers for its sizes.
    - `finite`, `round_shares`: as of :func:`fuse_epilogue.plan`.
    - Returns: in the order in which they run. One if a kernel computes the function; else several
      that share what the earlier ones compute for the later ones, by the names of parameters.
    """
    permitted = Permitted(finite=finite, round_shares=round_shares)
    return [
        _piece(made, _short(name) if number == 0 else f"{_short(name)}_{number}")
        for number, made in enumerate(_parts(func, core, permitted))
    ]


def _simplified(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function whose blocks read what others only moved where that came from."""
    if not _has_root(func):
        return func
    sch = s_tir.Schedule(func)
    for name in child_names(func):
        store = (
            sch.get(sch.get_sblock(name)).body if all_names(func.body).count(name) == 1 else None
        )
        if isinstance(store, tirx.BufferStore) and isinstance(store.value, TensorLoad):
            with contextlib.suppress(s_tir.ScheduleError):
                sch.compute_inline(sch.get_sblock(name))

    def block(node: Any) -> Any:
        if not node.iter_vars:
            return node
        analyzer = Analyzer()
        for axis in node.iter_vars:
            analyzer.bind(axis.var, axis.dom)
        init = None if node.init is None else simplified_indices(node.init, analyzer)
        return with_fields(node, body=simplified_indices(node.body, analyzer), init=init)

    func = sch.mod["main"]
    return func.with_body(tvm_ffi.structural_map(func.body, (s_tir.SBlock, block)))


@dataclass(frozen=True)
class _Made:
    """A piece before it has a name: what makes a kernel of that name, None if there is none."""

    func: tirx.PrimFunc
    kind: str = HOST
    fusion: str = "none"
    kernel: Callable[[str], Kernel] | None = None
    why: str = ""


def _piece(made: _Made, name: str) -> Piece:
    kernel = None
    if made.kernel is not None:
        taken = any(param.name == name for param in made.func.params)
        kernel = made.kernel(f"{name}_kernel" if taken else name)
    return Piece(name, made.func, made.kind, made.fusion, kernel, made.why)


def _parts(func: tirx.PrimFunc, core: Machine, permitted: Permitted) -> list[_Made]:
    whole = _made(func, core, permitted)
    if whole.kernel is None and not (simple := _simplified(func)).same_as(func):
        again = _made(simple, core, permitted)
        whole, func = (again, simple) if again.kernel is not None else (whole, func)
    count = len(statements(func.body.block.body)) if _is_known(func) else 1
    if whole.kernel is not None or count < 2 or not _has_floats(func):
        return [whole]
    for first in range(count - 1, 0, -1):
        begin, rest = pieces_of(func, first)
        found = _made(begin, core, permitted)
        if found.kernel is not None or first == 1:
            parts = [found, *_parts(rest, core, permitted)]
            # One call on the processor is better than several.
            return parts if any(each.kernel is not None for each in parts) else [whole]
    return [whole]


def _has_root(func: tirx.PrimFunc) -> bool:
    return isinstance(func.body, s_tir.SBlockRealize)


def _is_known(func: tirx.PrimFunc) -> bool:
    """Return whether a function consists of blocks that write by stores alone, not by calls."""
    return _has_root(func) and not parts_of(func.body, tirx.Evaluate)


def _has_floats(func: tirx.PrimFunc) -> bool:
    return any("float" in str(getattr(param.ty, "dtype", "")) for param in func.params)


def _made(func: tirx.PrimFunc, core: Machine, permitted: Permitted) -> _Made:
    """Return a function as one kernel, or why there is none."""
    func = without_name(func)
    tries: tuple[Callable[..., _Made], ...] = (_gathered, _planned, _by_rule)
    reason = ""
    for attempt in tries:
        try:
            found = attempt(func, core, permitted)
        except (ValueError, EmitError, CheckError, s_tir.ScheduleError) as error:
            reason = last_line(error)
            continue
        if found.kernel is not None:
            return found
        reason = found.why
    return _Made(func, why=reason)


def _gathered(func: tirx.PrimFunc, core: Machine, _permitted: Permitted) -> _Made:
    found = find_gather(func)
    if found is None:
        return _Made(func)
    found.kernel("rows").check(core)
    return _Made(func, "gather", "none", found.kernel)


def _planned(func: tirx.PrimFunc, core: Machine, permitted: Permitted) -> _Made:
    chosen = plan(func, core, **permitted)
    kernel = _checked(chosen.apply(func), core)
    return _Made(func, chosen.kind, "tail" if chosen.fused else "none", kernel)


def _by_rule(func: tirx.PrimFunc, core: Machine, permitted: Permitted) -> _Made:
    reasons = []
    for rule in neuron_rules(**permitted):
        name = type(rule).__name__
        choice = rule.choose(func, core)
        if choice.schedule is not None:
            return _Made(func, _words(name), "none", _checked(choice.schedule, core), choice.why)
        reasons.append(f"{name}: {choice.why}")
    # What a block is refused for says more than of which kind a function is not.
    own = [reason for reason in reasons if "block '" in reason]
    own = own or [reason for reason in reasons if reason not in _unspecific(core.name)]
    return _Made(func, why="; ".join(own) or "no rule of schedules.neuron is for such a function")


@functools.cache
def _unspecific(core: str) -> frozenset[str]:
    """Return what rules say of functions that are of no kind: these do not tell what is missing."""
    i, x = te.placeholder((2, 3), "int64", name="i"), te.placeholder((2, 3), name="x")
    axes = [te.reduce_axis((0, extent)) for extent in (2, 3)]
    functions = (
        [i, te.compute((2, 3), lambda *at: i[at] * i[at])],
        [x, te.compute((1,), lambda _: te.sum(x[axes[0], axes[1]], axes))],
    )
    return frozenset(
        f"{type(rule).__name__}: {rule.choose(te.create_prim_func(each), core).why}"
        for each in functions
        for rule in neuron_rules()
    )


def _checked(scheduled: Any, core: Machine) -> Callable[[str], Kernel]:
    """Return what emits a schedule, whose kernel keeps the rules of a machine."""
    emit(scheduled).check(core)
    return functools.partial(emit, scheduled)


def _short(name: str) -> str:
    """Return a name of a function that fits into a line, and is not reserved in NKI."""
    short = name if len(name) <= _LONGEST else name[:_LONGEST].rstrip("_")
    return f"{short}_" if short in RESERVED else short


def _words(name: str) -> str:
    """Return a rule's name in words: ``RowStages`` is "row stages"."""
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()
