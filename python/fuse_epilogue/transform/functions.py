"""Rewriting the functions of a module one by one, with a report in an attribute of the module."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tvm import ir, relax
from tvm.ir import Call, GlobalVar

from .._interrupts import raise_interrupt
from .._printed import Printed, last_line

Report = TypeVar("Report")

if TYPE_CHECKING:

    class ModulePass:
        """The base of TVM's passes, which its decorator adds."""

        def __call__(self, mod: ir.IRModule) -> ir.IRModule:
            """Run the pass."""
else:
    ModulePass = object


class FunctionOutcome(Printed):
    """Base of what passes report of a function: records that have these fields."""

    name: str
    left_alone: str
    reason: str

    def _text(self, head: str, parts: Sequence[Any], noun: str) -> str:
        """Return the name, and a head with what became of each part, such as each reduction."""
        if self.left_alone:
            return f"{self.name}: left alone [{self.left_alone}]: {self.reason}."
        if not parts:
            return f"{self.name}: no {noun}."
        lines = [f"    {line}" for each in parts for line in str(each).splitlines()]
        return "\n".join([f"{self.name}: {sum(each.fused for each in parts)} of {head}", *lines])


def rewrite_each(
    mod: ir.IRModule,
    rewrite: Callable[[str, Any], tuple[Any, Report]],
    failed: Callable[[str, str], Report],
) -> tuple[dict[GlobalVar, Any], list[Report]]:
    """Return the functions that a rewriting changes, and a report of each but those of Relax.

    - `rewrite`: takes the name of a function and it; returns it rewritten, or itself, and a report.
    - `failed`: returns the report of a function that stays because `rewrite` raised an error, from
      its name and that error in one line: one function must not stop a module.
    """
    changed: dict[GlobalVar, Any] = {}
    reports = []
    for var, func in mod.functions.items():
        if isinstance(func, relax.Function):
            continue
        name = str(var.name_hint)
        try:
            rewritten, report = rewrite(name, func)
        except Exception as error:  # noqa: BLE001 - of any type, TVM's included
            raise_interrupt(error)
            message = last_line(error)
            rewritten, report = func, failed(name, f"{type(error).__name__}: {message}")
        reports.append(report)
        if rewritten is not func:
            changed[var] = rewritten
    return changed, reports


def relax_calls(*functions: Any) -> list[Any]:
    """Return all calls in some functions, in post-order; only those of Relax have some."""
    found: list[Any] = []
    for func in functions:
        if isinstance(func, relax.Function):
            relax.analysis.post_order_visit(func, found.append)
    return [node for node in found if isinstance(node, Call)]


def with_functions(mod: ir.IRModule, changed: Mapping[GlobalVar, Any]) -> ir.IRModule:
    """Return a module with other functions in the places of some.

    Updating a module in place would move them to its end.
    """
    functions = {var: changed.get(var, func) for var, func in mod.functions.items()}
    return ir.IRModule(functions, mod.attrs, mod.global_infos)


def with_report(
    mod: ir.IRModule, changed: Mapping[GlobalVar, Any], name: str, text: str
) -> ir.IRModule:
    """Return a module with changed functions and a report, itself if it has both."""
    if not changed and attribute(mod, name) == text:
        return mod
    return with_functions(mod, changed).with_attr(name, text)


def attribute(mod: ir.IRModule, name: str) -> str | None:
    """Return the text that a pass has left in a module, None if there is none."""
    text = None if mod.attrs is None else mod.attrs.get(name)
    return None if text is None else str(text)


def read_report(
    mod: ir.IRModule, name: str, function_from: Callable[[dict[str, Any]], Report]
) -> tuple[Report, ...] | None:
    """Return the report that a pass has left in a module as JSON, None if there is none.

    - `function_from`: makes what is reported of a function from its data.
    - Raises ValueError: the attribute is not what the pass writes.
    """
    text = attribute(mod, name)
    if text is None:
        return None
    try:
        return tuple(function_from(each) for each in json.loads(text))
    except (TypeError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"the attribute '{name}' is damaged: {error}") from error
