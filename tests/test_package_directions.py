"""Which package imports which: only ever one that is listed further down, so never in a circle."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fuse_epilogue

ROOT = Path(fuse_epilogue.__file__).parent
#: From the top down. Packages of one line do not import each other.
LAYERS = (
    # Programs: what `python -m` runs, in whatever folder it is.
    "__main__",
    "__init__",
    "cli",
    "models",
    "schedules",
    "transform tune",
    "planner",
    "kernels",
    "rewrites",
    "recognize",
    "targets",
    "neuron verify schedule",
    "workloads",
    "report",
    "_extend",
    "certificate cascade_certificate _core _rpc",
    "_arguments _files _html _interrupts _lib _log _printed _progress _version tir",
)
#: The primitives are one unit: the class of the schedule has them all.
SAME = {"cascade": "schedule"}
LEVEL = {name: level for level, line in enumerate(LAYERS) for name in line.split()}
#: These import nothing of the package but what is named: other checks rest on that.
ALONE = {
    "neuron": set(),
    "verify": {"_arguments", "_printed", "cascade_certificate", "certificate", "tir"},
}

FOR_TYPES = "if TYPE_CHECKING:"
#: The groups within a package, from the bottom up. All else in it is on top of them, and what is
#: imported for type checkers alone does not count.
GROUPS = {
    "planner": (
        *("json_schema", "machines", "problems", "measurement", "search", "backends"),
        *("plan_record", "explanation", "validate_plan"),
        *("plan_json", "plan_problem", "plans", "choose"),
    ),
    "models": (
        *("graph", "derived_sizes", "onnx", "import_refusal", "torch", "tir_main", "importing"),
        "pipeline",
        *("signature", "arrays", "report", "manifest", "neuron"),
    ),
    "verify": ("evaluation", "proof", "certificate", "cascades"),
}


def unit(module: tuple[str, ...]) -> str:
    """The package or module right below fuse_epilogue that a module belongs to."""
    if module[-1] == "__main__":
        return "__main__"
    name = SAME.get(module[0], module[0])
    return name if name in LEVEL else "__init__"


def imported(file: Path, types: bool = True) -> Iterator[tuple[str, ...]]:
    """What a file imports of the package, anywhere in it: parts of the path from its root."""
    package = file.relative_to(ROOT).parts[:-1]
    tree = ast.parse(file.read_text())
    if not types:
        tree.body = [node for node in tree.body if not ast.unparse(node).startswith(FOR_TYPES)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
            yield from (name[1:] or ("__init__",) for name in names if name[0] == ROOT.name)
        elif isinstance(node, ast.ImportFrom):
            name = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                base = package[: len(package) + 1 - node.level] + name
            elif name[0] == ROOT.name:
                base = name[1:]
            else:
                continue
            yield from ((*base, alias.name) for alias in node.names)


@functools.cache
def arrows() -> set[tuple[str, str]]:
    """Who imports whom."""
    files = {file: file.relative_to(ROOT).with_suffix("").parts for file in ROOT.rglob("*.py")}
    pairs = {(unit(own), unit(other)) for file, own in files.items() for other in imported(file)}
    return {(one, other) for one, other in pairs if one != other}


def test_imports_go_downwards() -> None:
    upwards = {f"{one} -> {other}" for one, other in arrows() if LEVEL[one] >= LEVEL[other]}
    assert upwards == set()


def test_every_package_has_a_level() -> None:
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    assert names - {"lib"} == {*LEVEL, *SAME}


@pytest.mark.parametrize("name", ALONE)
def test_what_stands_alone(name: str) -> None:
    assert {other for one, other in arrows() if one == name} == ALONE[name]


@pytest.mark.parametrize("package", GROUPS)
def test_groups_import_downwards(package: str) -> None:
    """A group of a package imports what is listed before it, and nothing on top of all groups."""
    level = {name: place for place, name in enumerate(GROUPS[package])}
    upwards = set()
    for file in (ROOT / package).rglob("*.py"):
        own = file.relative_to(ROOT).with_suffix("").parts[1]
        for other in imported(file, types=False):
            if own in level and other[0] == package and other[1] != own:
                if level.get(other[1], len(level)) >= level[own]:
                    upwards.add(f"{own} -> {other[1]}")
    assert upwards == set()


@pytest.mark.parametrize(
    "package",
    [
        *("kernels", "kernels/cpu", "kernels/trainium", "recognize", "rewrites", "tir"),
        *("models", "models/graph", "models/neuron", "models/onnx", "models/torch"),
        "transform",
    ],
)
def test_the_head_of_a_package_names_its_modules(package: str) -> None:
    head = (ROOT / package / "__init__.py").read_text().split("\nfrom ")[0]
    named = set(re.findall(r"\b\w+(?:\.py|/)", head))
    patterns = re.findall(r"\b(\w+_)\*\.py", head)
    there = {f"{each.stem}.py" for each in (ROOT / package).glob("*.py")} - {"__init__.py"}
    there |= {f"{each.parent.name}/" for each in (ROOT / package).glob("*/__init__.py")}
    assert named <= there
    assert {each for each in there - named if not each.startswith(tuple(patterns))} == set()
