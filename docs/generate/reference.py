"""The reference: a page for each public package, with all that it exports."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from .rst import code, page, prose, table, title, toctree

#: The public packages, in the order of the reference, and what each is for.
PACKAGES = {
    "fuse_epilogue": "the primitive, reports, planning",
    "fuse_epilogue.models": "whole models",
    "fuse_epilogue.verify": "checking a fusion",
    "fuse_epilogue.workloads": "functions to try things on",
    "fuse_epilogue.schedules": "schedules of whole functions",
    "fuse_epilogue.schedules.cpu": "rules for LLVM",
    "fuse_epilogue.schedules.cuda": "rules for CUDA",
    "fuse_epilogue.schedules.neuron": "rules for Trainium",
    "fuse_epilogue.planner": "plans and profiles",
    "fuse_epilogue.transform": "the pass over modules",
    "fuse_epilogue.tune": "MetaSchedule, dlight, RPC",
    "fuse_epilogue.neuron": "kernels for Trainium",
}

#: What public functions take or return without exporting it, by the package that it is shown with.
ALSO = {
    "fuse_epilogue.schedules": ("Choice",),
    "fuse_epilogue.planner": (
        "problems.cost.Weights",
        "machines.cpu.Cpu",
        "machines.cpu.Level",
        "machines.gpu.Gpu",
        "plan_record.PlanRecord",
        "search.search.Found",
        "problems.space.Space",
        "problems.problem.Problem",
    ),
    "fuse_epilogue.neuron": ("prediction.Prediction", "machine.Machine", "trace.Trace"),
}

#: What packages export that is TVM's own, and why they do.
BORROWED = {
    "fuse_epilogue.Schedule": (
        "``tvm.s_tir.Schedule``, the very class, which has the method "
        ":func:`fuse_reduction_epilogue` since this package was loaded. Under this name type "
        "checkers see the method with the signature that it has here."
    ),
}


#: Entries of a constant that its page shows with what they mean; of more it shows the keys.
_FEW = 8


def exported(name: str) -> dict[str, Any]:
    """Return what a package exports and has made itself, by name: no modules, nothing of TVM.

    Example
    -------
    >>> "matmul" in exported("fuse_epilogue.workloads")
    True
    """
    package = importlib.import_module(name)
    members = {each: getattr(package, each) for each in package.__all__}
    return {
        each: member
        for each, member in members.items()
        if not isinstance(member, ModuleType) and _ours(member)
    }


def shown(name: str) -> dict[str, Any]:
    """Return what the page of a package shows: what it exports and no page before it does."""
    before: list[Any] = []
    for other in PACKAGES:
        if other == name:
            break
        before += exported(other).values()
    return {
        each: member
        for each, member in exported(name).items()
        if not any(member is known for known in before)
    }


def pages() -> Mapping[str, str]:
    """Return the pages of the reference."""
    found = {
        "reference/index": page(
            ".. _reference:\n",
            title("Reference"),
            table(
                ("package", "what for"),
                [(f":mod:`{name}`", what) for name, what in PACKAGES.items()],
            ),
            toctree(f"{_short(name)} <{name}>" for name in PACKAGES),
        )
    }
    for name in PACKAGES:
        found[f"reference/{name}"] = _package(name)
    return found


def _short(name: str) -> str:
    """Return a package's name for the narrow list beside each page."""
    return name.removeprefix("fuse_epilogue.")


def _package(name: str) -> str:
    parts = [title(name), f".. automodule:: {name}\n    :no-members:\n    :no-index:\n"]
    parts.append(f".. module:: {name}\n")
    for each, member in shown(name).items():
        parts += [_place(name, each, member), _member(name, each, member)]
    parts += [
        f".. py:class:: {each.removeprefix(f'{name}.')}\n\n    {what}\n"
        for each, what in BORROWED.items()
        if each.rpartition(".")[0] == name
    ]
    again = [each for each in exported(name) if each not in shown(name)]
    if again:
        here = ", ".join(f"``{each}``" for each in again)
        parts.append(f"Also here: {here}, see :mod:`fuse_epilogue`.\n")
    also = ALSO.get(name, ())
    if also:
        parts.append(title("What these take and return", 1))
        parts += [
            f".. autoclass:: {name}.{each}\n"
            f"    :members:\n    :exclude-members: {_fields(name, each)}\n"
            for each in also
        ]
    return page(*parts)


def _place(package: str, name: str, member: Any) -> str:
    """Return a place that a page of source links to: it names one package for all of a module.

    That is the first of them, "fuse_epilogue", if that shows something else of the module.
    """
    first = next(iter(PACKAGES))
    module = getattr(member, "__module__", None)
    others = {getattr(each, "__module__", None) for each in shown(first).values()}
    if package == first or module not in others - {None}:
        return ""
    return f'.. raw:: html\n\n    <span id="{first}.{name}"></span>\n'


def _member(package: str, name: str, member: Any) -> str:
    if inspect.isclass(member):
        hidden = ", ".join(getattr(member, "__dataclass_fields__", ())) or "__init__"
        return _class(f"{package}.{name}", member, hidden)
    if inspect.isroutine(member):
        return f".. autofunction:: {package}.{name}\n"
    return _data(package, name, member)


def _class(path: str, cls: type, hidden: str) -> str:
    """Return a class with its methods, and how it is called if that is a method of its own."""
    called = "    :special-members: __call__\n" if "__call__" in vars(cls) else ""
    return f".. autoclass:: {path}\n    :members:\n{called}    :exclude-members: {hidden}\n"


def _data(package: str, name: str, value: Any) -> str:
    """Return a constant with the comment above it in its source, and what it holds."""
    lines = [f"    {line}" for line in comment(package, name)]
    if isinstance(value, Mapping) and len(value) <= _FEW:
        lines += ["", *(f"    - {code(key)}: {prose(str(each))}" for key, each in value.items())]
    elif isinstance(value, Mapping):
        lines += ["", f"    Its keys: {', '.join(map(code, value))}."]
    body = "\n".join(lines)
    return f".. py:data:: {name}\n\n{body}\n"  # of the module that the page has named


def comment(package: str, name: str) -> list[str]:
    """Return the lines of the comment "#:" that describes a constant, wherever it is defined.

    Raises
    ------
    ValueError
        There is none.

    Example
    -------
    >>> comment("fuse_epilogue", "REFUSALS")
    ['Every refusal code, with one explanation each: what it means and the way out.']
    """
    folder = Path(importlib.import_module(package).__file__ or "").parent
    pattern = re.compile(rf"^((?:#: .*\n)+){re.escape(name)}\b", re.M)
    for path in sorted(folder.rglob("*.py"), key=lambda each: (len(each.parts), each)):
        match = pattern.search(path.read_text(encoding="utf-8"))
        if match:
            return [line.removeprefix("#: ") for line in match.group(1).splitlines()]
    raise ValueError(f"{package}.{name} has no comment '#:' above it")


def _fields(package: str, path: str) -> str:
    """Return the fields of a data class: its docstring describes them."""
    module, _, name = path.rpartition(".")
    cls = getattr(importlib.import_module(f"{package}.{module}".rstrip(".")), name)
    return ", ".join(getattr(cls, "__dataclass_fields__", ())) or "__init__"


def _ours(member: Any) -> bool:
    module = getattr(member, "__module__", "fuse_epilogue") or ""
    return not callable(member) or module.startswith("fuse_epilogue")
