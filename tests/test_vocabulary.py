"""Every field of a TVM node that Python reads is in the vocabulary, which loading checks.

A field that TVM renames is one row of it: Python goes on reading the old name.
"""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
from collections.abc import Iterator

import pytest
import tvm
from tvm import tirx
from tvm.ir import prim

import fuse_epilogue
from fuse_epilogue import workloads
from fuse_epilogue.tir.nest import all_nests
from fuse_epilogue.tir.renamed import alias_fields

PACKAGE = pathlib.Path(fuse_epilogue.__file__).parent
VOCABULARY = pathlib.Path(__file__).parents[1] / "cpp/ir/vocabulary.def"
MODULES = (tvm.ir, tvm.tirx, tvm.s_tir, tvm.sym, prim)


def entries() -> set[str]:
    """Names of the fields of the vocabulary."""
    text = VOCABULARY.read_text()
    kept = re.findall(r"^FIELD\(\w+, .*, (\w+)\)$", text, re.MULTILINE)
    return {*kept, *re.findall(r"^RENAMED\(\w+, .*, (\w+), \w+\)$", text, re.MULTILINE)}


def fields_of_tvm() -> dict[str, set[str]]:
    """The types with a field, by its name."""
    found: dict[str, set[str]] = {}
    for module in MODULES:
        for _, each in inspect.getmembers(module, inspect.isclass):
            info = getattr(each, "__tvm_ffi_type_info__", None)
            while info is not None:
                for field in info.fields:
                    found.setdefault(field.name, set()).add(info.type_key)
                info = info.parent_type_info
    return {name: types for name, types in found.items() if not name.startswith("__")}


def made(tree: ast.AST) -> Iterator[str]:
    """Names of the attributes that a module's own classes have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            target = node.target
            yield target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def read(tree: ast.AST) -> Iterator[str]:
    """Names of the attributes that a module reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr


def unknown(trees: dict[str, ast.AST]) -> dict[str, list[str]]:
    """Fields of TVM's nodes that modules read and the vocabulary lacks, with the modules.

    What a class of the package is known to have may be its own, and is left out.
    """
    own = {name for tree in trees.values() for name in made(tree)}
    wanted = fields_of_tvm().keys() - entries() - own
    found: dict[str, list[str]] = {}
    for module, tree in trees.items():
        for name in wanted & set(read(tree)):
            found.setdefault(name, []).append(module)
    return found


def package() -> dict[str, ast.AST]:
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }


#: What is read of something else than a node, and named as a field of one is.
ELSEWHERE = {"config": ["transform/shared_lanes.py"]}  # of a PassContext


def test_python_reads_no_field_that_loading_does_not_check():
    assert unknown(package()) == ELSEWHERE


@pytest.mark.parametrize(
    ("source", "fields"),
    [
        ("def f(node): return node.value_cache_of_nothing", []),
        ("def f(node): return node.loop_var", []),
        ("def f(node): return node.attr_key", ["attr_key"]),
        ("class A:\n    attr_key: int\ndef f(a): return a.attr_key", []),
    ],
)
def test_what_is_found(source, fields):
    assert list(unknown({"a.py": ast.parse(source)})) == fields


@pytest.fixture
def release(monkeypatch):
    """TVM as in a release that calls the extent of a loop its length."""
    extent = tirx.For.extent
    monkeypatch.delattr(tirx.For, "extent")
    monkeypatch.setattr(tirx.For, "length", extent, raising=False)
    yield
    if "extent" in vars(tirx.For):
        del tirx.For.extent


def extents() -> list[int]:
    (nest,) = all_nests(workloads.matmul(8, 4, 2, bias=False).body.block)
    return [int(loop.extent) for loop in nest.loops]


def test_a_renamed_field_is_read_by_its_old_name(release):
    with pytest.raises(AttributeError, match="extent"):
        extents()
    alias_fields([("tirx.For", "extent", "length")])
    assert extents() == [8, 4, 2]


def test_what_is_not_renamed_is_not_touched():
    before = dict(vars(tirx.For))
    alias_fields([])
    assert dict(vars(tirx.For)) == before
    with pytest.raises(KeyError, match="tirx.NoSuchNode"):
        alias_fields([("tirx.NoSuchNode", "extent", "length")])
