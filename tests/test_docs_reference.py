"""The docstrings of everything public: complete, and with examples that run as they stand."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))

from generate.reference import ALSO, BORROWED, PACKAGES, exported, pages  # noqa: E402
from tuning import without_intrinsics  # noqa: E402, F401

# Examples of Python: what they call in the library has tests of its own.
pytestmark = pytest.mark.slow

#: Functions that refuse nothing of the types that they say they take.
RAISE_NOTHING = {
    "fuse_epilogue.refusal_code",
    "fuse_epilogue.schedules.cpu.for_llvm",
    "fuse_epilogue.tune.decompose_fused",
    "fuse_epilogue.tune.measured",
    "fuse_epilogue.tune.with_decompose_fused",
}

#: Classes that users get from a function, and never make; and a protocol.
GIVEN = {
    "fuse_epilogue.models.CompiledFunction",
    "fuse_epilogue.models.CompiledModel",
    "fuse_epilogue.schedules.Rule",
    "fuse_epilogue.verify.Program",
}

PUBLIC = {
    f"{package}.{name}": member
    for package in PACKAGES
    for name, member in exported(package).items()
}
FUNCTIONS = {name: each for name, each in PUBLIC.items() if inspect.isroutine(each)}
CLASSES = {name: each for name, each in PUBLIC.items() if inspect.isclass(each)}
SECTION = re.compile(r"^(\w+)\n-{3,}$", re.M)


def sections(member: Any) -> dict[str, str]:
    """The text of each section of a docstring by its title; "" is what stands before them."""
    parts = SECTION.split(inspect.getdoc(member) or "")
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def described(text: str) -> set[str]:
    """The names that a section of parameters or attributes describes."""
    heads = re.findall(r"^([*\w][^:\n]*?)(?: :.*)?$", text, re.M)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, each in vars(cls).items():
        if not name.startswith("_") or name == "__call__":
            plain = each.__func__ if isinstance(each, staticmethod | classmethod) else each
            if inspect.isfunction(plain) or isinstance(plain, property):
                yield name, plain


def test_every_public_name_is_in_the_reference() -> None:
    """A package that is documented exports what it documents, and nothing is missing."""
    import fuse_epilogue

    folder = Path(fuse_epilogue.__file__).parent
    packages = {
        ".".join(("fuse_epilogue", *path.parent.relative_to(folder).parts))
        for path in folder.rglob("__init__.py")
        if "__all__" in path.read_text()
    }
    internal = {
        "fuse_epilogue.cli",  # the commands have a page of their own
        "fuse_epilogue.kernels.cpu.contraction",
        "fuse_epilogue.kernels.cpu.contraction.winograd",
        "fuse_epilogue.kernels.cpu.row_program",
        "fuse_epilogue.neuron.emit",
        "fuse_epilogue.neuron.isa",
        "fuse_epilogue.neuron.language",
        "fuse_epilogue.planner.problems.cpu",
        "fuse_epilogue.planner.problems.cuda",
        "fuse_epilogue.planner.problems.trainium",
    }
    assert packages - internal == set(PACKAGES)
    assert set(ALSO) <= set(PACKAGES)
    for package in PACKAGES:
        module = importlib.import_module(package)
        left = {each for each in module.__all__ if not inspect.ismodule(getattr(module, each))}
        left -= {each for each in left if f"{package}.{each}" in BORROWED}
        assert left == set(exported(package)), package


def test_the_pages_show_what_is_exported() -> None:
    found = pages()
    shown = "\n".join(found.values())
    for name in (*PUBLIC, *BORROWED):
        short = name.rpartition(".")[2]
        entry = rf"^\.\. \S+ (\S+\.)?{short}$|^Also here: .*``{short}``"
        assert re.search(entry, shown, re.M), name
    # A kernel is called: autodoc leaves methods with such names out unless it is told.
    kernel = found["reference/fuse_epilogue.neuron"].partition("fuse_epilogue.neuron.Kernel\n")[2]
    assert ":special-members: __call__" in kernel.partition("\n.. ")[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    function, found = FUNCTIONS[name], sections(FUNCTIONS[name])
    missing = parameters(function) - described(found.get("Parameters", ""))
    assert not missing, f"not described: {missing}"
    returns = inspect.signature(function).return_annotation
    assert (returns in (None, "None")) or found.get("Returns", "").strip(), "no section Returns"
    if name not in RAISE_NOTHING:
        assert found.get("Raises", "").strip(), "no section Raises"
    assert ">>>" in found.get("Example", ""), "no example"


@pytest.mark.parametrize("name", CLASSES)
def test_class(name: str) -> None:
    cls, found = CLASSES[name], sections(CLASSES[name])
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    public = {field for field in fields if not field.startswith("_")}
    missing = public - described(found.get("Attributes", ""))
    assert not missing, f"attributes not described: {missing}"
    made = not fields and not issubclass(cls, Exception) and name not in GIVEN
    if made and "__init__" in vars(cls):
        missing = parameters(cls.__init__) - described(
            found.get("Parameters", "") + found.get("Attributes", "")
        )
        assert not missing, f"parameters not described: {missing}"
    if not fields and not issubclass(cls, Exception):
        assert ">>>" in found.get("Example", ""), "no example"
    for method, function in methods(cls):
        parts = sections(function)
        assert parts[""].strip(), f"{method} has no docstring"
        if not isinstance(function, property):
            missing = parameters(function) - described(parts.get("Parameters", ""))
            whole = parts[""] + "".join(parts.values())
            missing = {each for each in missing if f"`{each}`" not in whole}
            assert not missing, f"{method}: not described: {missing}"
            returns = inspect.signature(function).return_annotation
            some = returns in (None, "None") or parts.get("Returns", "").strip()
            assert some, f"{method}: no section Returns"
            assert ">>>" in parts.get("Example", ""), f"{method}: no example"


def test_examples_are_not_skipped() -> None:
    """A directive that skips an example would let it rot."""
    for name, member in PUBLIC.items():
        members = [member]
        if inspect.isclass(member):
            members += [function for _, function in methods(member)]
        for each in members:
            assert "doctest: +SKIP" not in (inspect.getdoc(each) or ""), f"{name}: {each}"


def examples() -> Iterator[Any]:
    finder = doctest.DocTestFinder(recurse=False)
    for name, member in PUBLIC.items():
        members = [(name, member)]
        if inspect.isclass(member):
            members += [(f"{name}.{method}", function) for method, function in methods(member)]
        for path, each in members:
            for test in finder.find(each, path, globs={}, module=False):
                if test.examples:
                    short = path.removeprefix("fuse_epilogue.")
                    # TVM starts processes for them.
                    marks = [pytest.mark.full] if short.startswith("tune.") else []
                    yield pytest.param(test, id=short, marks=marks)


@pytest.mark.parametrize("example", tuple(examples()))
def test_example_runs(
    example: doctest.DocTest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """As a user would type it: from nothing, in an empty folder."""
    if example.name.startswith("fuse_epilogue.tune."):
        # Not half a minute of importing all of TVM's tensor intrinsics, which no example uses.
        request.getfixturevalue(without_intrinsics.__name__)
    monkeypatch.chdir(tmp_path)
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    # Nothing leaks from one example into another.
    runner.run(doctest.DocTest(example.examples, {}, *_place(example)), out=output.append)
    assert not runner.failures, "".join(output)
    assert os.getcwd() == str(tmp_path)


def _place(example: doctest.DocTest) -> tuple[Any, ...]:
    return example.name, example.filename, example.lineno, example.docstring
