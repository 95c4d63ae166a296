"""The pages of Trainium, from the code's data: instructions with costs, rules, machines."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from fuse_epilogue.neuron.checker import KERNEL_RULES
from fuse_epilogue.neuron.costs import FLOAT32_PASSES, TABLE, Row, always
from fuse_epilogue.neuron.isa import (
    INSTRUCTIONS,
    REQUIRED,
    Instruction,
    Parameter,
)
from fuse_epilogue.neuron.isa.arithmetic import BINARY, FUNCTIONS, REDUCERS
from fuse_epilogue.neuron.machine import MACHINES, Machine
from fuse_epilogue.neuron.rules import INSTRUCTION_RULES, Rule

from .rst import block, code, page, prose, table, text, title, toctree

_INDEX = """
The checker, the interpreter and the latency model of NKI rest on these pages. How to emit a kernel
and look at it: :doc:`the guide <../../howto/trainium>` and
:doc:`tutorial 06 <../../tutorials/06_trainium>`. How far predictions are from published latencies:
:doc:`../benchmarks/neuron_published` and :doc:`../benchmarks/neuron_ladder`.
"""
_INSTRUCTIONS = """
The instructions of ``nki.isa`` that kernels may use, with their parameters, the engines that
execute them (NKI's own choice first), and what the latency model takes them to cost. Nothing was
measured on Trainium: each figure is from the documentation named beside it, or marked as assumed.

An instruction occupies its engine for ``max(least, row * elements + access)`` cycles of the
engine's clock, where *elements* are those of one partition, and *least* and *access* belong to
the machine. Of the rows that fit, the first one counts.
"""
_KINDS = """
The signatures show kinds of parameters: *dst*, *result* and *results* (several) are written; *tile*
and *tiles* are read; *vector* is a number or a tile of one column, a value for each partition;
*op*, *function* and *reducer* are names in ``nl``, listed below; *any* changes nothing here.
"""
_RULES = """
What :meth:`fuse_epilogue.neuron.Kernel.check` demands of a kernel. A violation has the name of the
rule, the line and the reason. Where the documentation leaves a choice, the stricter reading is
taken.
"""
_MACHINES = """
One NeuronCore of each machine, with its share of the memory: what kernels are checked and timed
for. The figures are from the documentation; nothing of this was measured by the project.
"""


def pages() -> Mapping[str, str]:
    """Return the pages of instructions, rules and machines."""
    return {
        "trainium/index": page(
            title("Trainium"), _INDEX, toctree(("rules", "instructions", "machines"))
        ),
        "trainium/instructions": _instructions(),
        "trainium/rules": _rules(),
        "trainium/machines": _machines(),
    }


def attributes(cls: type) -> dict[str, str]:
    """Return what a class's docstring says of each attribute.

    Example
    -------
    >>> attributes(Machine)["clock_ghz"]
    'Clock of each engine.'
    """
    section = (inspect.getdoc(cls) or "").partition("Attributes\n----------\n")[2]
    found: dict[str, str] = {}
    for match in re.finditer(r"^(\S[^:\n]*) : [^\n]*\n((?:[ ]+[^\n]*\n?|\n)*)", section, re.M):
        said = " ".join(match.group(2).split())
        found |= {name.strip(): said for name in match.group(1).split(",")}
    return found


def _instructions() -> str:
    parts = [".. _nki-instructions:\n", title("Instructions and their costs"), _INSTRUCTIONS]
    parts.append(
        table(
            ("cycles", *MACHINES),
            [
                (name, *(getattr(each, field) for each in MACHINES.values()))
                for name, field in (
                    ("least", "min_cycles"),
                    ("access", "access_cycles"),
                )
            ],
        )
    )
    parts.append(_KINDS)
    for each in INSTRUCTIONS.values():
        parts += [title(each.name, 1), _engines(each), block("python", _signature(each))]
        costs = [row for row in TABLE if each.name in row.ops]
        if each.cost is not None:
            own = each.cost
            costs = [Row((each.name,), own.machines, always, own.per_element, own.source)]
        if costs:
            head = ("cycles an element", "when", "on", "source")
            parts.append(table(head, [_cost(row, len(costs) == 1) for row in costs]))
        elif "dma" in each.engines:
            parts.append("Costs the time of its transfer: see :ref:`trainium-machines`.\n")
    parts.append(f"A ``float32`` operand passes the tensor engine {FLOAT32_PASSES} times.\n")
    parts.append(title("Names of operations", 1))
    names = (("op", BINARY), ("function", FUNCTIONS), ("reducer", REDUCERS))
    parts.append(
        table(("kind", "names in nl"), [(kind, ", ".join(map(code, of))) for kind, of in names])
    )
    return page(*parts)


def _engines(each: Instruction) -> str:
    named = ", ".join(each.engines)
    since = "" if each.since == "trn1" else f" There from {each.since} on."
    return f"Engine{'s' if len(each.engines) > 1 else ''}: {named}.{since}\n"


def _signature(each: Instruction) -> str:
    lines = "".join(f"    {_parameter(parameter)},\n" for parameter in each.parameters)
    return f"{each.name}(\n{lines})"


def _parameter(each: Parameter) -> str:
    default = "" if each.default is REQUIRED else f" = {each.default!r}"
    return f"{each.name}: {each.kind}{default}"


def _cost(row: Row, alone: bool) -> tuple[str, str, str, str]:
    said = (inspect.getdoc(row.when) or row.when.__name__).splitlines()[0].rstrip(".")
    when = said.removeprefix("Accept if ")
    if row.when is always:
        when = "always" if alone else "otherwise"
    return f"{row.per_element:g}", prose(when), ", ".join(row.machines), text(row.source)


def _rules() -> str:
    parts = [".. _trainium-rules:\n", title("Constraints of a kernel"), _RULES]
    for heading, rules in (
        ("Of one instruction", INSTRUCTION_RULES),
        ("Rules of the whole kernel", KERNEL_RULES),
    ):
        parts += [title(heading, 1), *(_rule(rule) for rule in rules)]
    return page(*parts)


def _rule(rule: Rule) -> str:
    ops = ", ".join(code(name) for name in sorted(rule.ops))
    about = f" |br| Of {ops}." if ops else ""
    return f"{code(rule.name)}\n    {prose(rule.what)}.{about} |br| *{text(rule.source)}*\n"


def _machines() -> str:
    said = attributes(Machine)
    return page(
        ".. _trainium-machines:\n",
        title("Machines"),
        _MACHINES,
        *(_field(name, said[name]) for name in (field.name for field in fields(Machine))),
    )


def _field(name: str, said: str) -> str:
    values = "; ".join(f"{each.name}: {_value(getattr(each, name))}" for each in MACHINES.values())
    shared = {_value(getattr(each, name)) for each in MACHINES.values()}
    shown = shared.pop() if len(shared) == 1 else values
    return f"{code(name)}\n    {prose(said)} |br| **{shown}**\n"


def _value(value: Any) -> str:
    return ", ".join(_items(value)) or "none"


def _items(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"{name} {each:g}" for name, each in value.items())
    elif isinstance(value, tuple):
        yield from (" and ".join(each[:-1]) + f" in {each[-1]}" for each in value)
    elif isinstance(value, int | float):
        yield f"{value:,}"
    else:
        yield text(value)
