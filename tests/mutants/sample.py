"""Draws mutants of Python from all that cosmic-ray makes of it."""

from __future__ import annotations

import ast
import difflib
import itertools
import random
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from . import PACKAGES, SOURCES

#: Operators that need arguments, or replace a value by a random one.
_LEFT_OUT = ("VariableReplacer", "VariableInserter")


@dataclass(frozen=True)
class Mutation:
    """A change of one place in a file.

    - `file`: path below the folder of sources.
    - `operator`: name that cosmic-ray has for the kind of change.
    - `occurrence`: place among those in the file where the operator applies.
    - `line`, `last`: first and last line of the place.
    """

    file: str
    operator: str
    occurrence: int
    line: int
    last: int

    @property
    def name(self) -> str:
        """The name of the mutant among others of the same code."""
        return f"{self.file}:{self.line} {self.operator} {self.occurrence}"

    def source(self) -> str:
        """Return the file's text with the change made."""
        before = (SOURCES / self.file).read_text(encoding="utf-8")
        changed = mutate_code(before, _operators()[self.operator](), self.occurrence)
        assert changed is not None
        return str(changed)

    def difference(self) -> list[str]:
        """The changed lines: those that go with a minus, those that come with a plus."""
        before = (SOURCES / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.source().splitlines(), n=0, lineterm="")
        return [
            f"{line[0]} {line[1:].strip()}" for line in lines if re.match(r"[-+](?![-+]{2} )", line)
        ]

    def as_json(self) -> dict[str, object]:
        """The mutant as it is written down."""
        return asdict(self)


def _operators() -> dict[str, type]:
    names = [name for name in operator_names() if not name.endswith(_LEFT_OUT)]
    return {name.partition("/")[2]: get_operator(name) for name in names}


def mutations(path: Path) -> Iterator[Mutation]:
    """Yield all mutations of a file, in the order of its text."""
    operators = {name: kind() for name, kind in _operators().items()}
    counts = dict.fromkeys(operators, 0)
    file = str(path.relative_to(SOURCES))
    for node in ast_nodes(get_ast(path.read_text(encoding="utf-8"))):
        for name, operator in operators.items():
            for (line, _), (last, _) in operator.mutation_positions(node):
                yield Mutation(file, name, counts[name], line, last)
                counts[name] += 1


def draw(number: int, seed: int) -> list[Mutation]:
    """Draw mutants, as many of each package, the packages in turn.

    A place in the code is drawn first, then one of its mutations: operators with many variants have
    no more weight than others. Mutants that compile to what was there are left out.
    """
    drawn = [_of_package(package, -(-number // len(PACKAGES)), seed) for package in PACKAGES]
    return list(itertools.chain.from_iterable(zip(*drawn, strict=True)))[:number]


def _of_package(package: str, number: int, seed: int) -> list[Mutation]:
    files = sorted((SOURCES / "fuse_epilogue" / package).rglob("*.py"))
    places: dict[tuple[str, int, int], list[Mutation]] = {}
    for path in files:
        for each in mutations(path):
            places.setdefault((each.file, each.line, each.last), []).append(each)
    generator = random.Random(f"{seed} {package}")
    order = sorted(places)
    generator.shuffle(order)
    chosen = (generator.choice(places[place]) for place in order)
    return list(itertools.islice(filter(is_change, chosen), number))


def is_change(mutation: Mutation) -> bool:
    """Whether a mutant is a program, and another one but for annotations and ``strict`` of zips.

    ``zip(..., strict=True)`` asserts what holds; without it, nothing is computed differently.
    """
    before = (SOURCES / mutation.file).read_text(encoding="utf-8")
    try:
        return _meaning(before) != _meaning(mutation.source())
    except SyntaxError:
        return False


class _Bare(ast.NodeTransformer):
    """Takes out what has no effect: annotations, whose evaluation is postponed, and ``strict``."""

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        if node.arg == "strict":
            node.value = ast.Constant(None)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)


def _meaning(source: str) -> str:
    return ast.dump(_Bare().visit(ast.parse(source)))
