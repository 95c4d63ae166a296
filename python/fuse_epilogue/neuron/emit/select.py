"""Instruction selection: which instruction computes an expression, as a table.

The rows are tried in order; the first that fits is taken. Expressions that no row fits are computed
in parts, the inner ones into temporary tiles. Costs are those of `neuron.costs`, N elements in a
partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import patterns
from .patterns import Arguments, Column, Site, Tile
from .program import Expression


@dataclass(frozen=True)
class Call:
    """An instruction without its destination.

    - `name`: the instruction.
    - `arguments`: by parameter; an empty name is one given by position.
    - `engine`: where it runs.
    """

    name: str
    arguments: Arguments
    engine: str


Match = Callable[[Expression, Site], "Arguments | None"]


@dataclass(frozen=True)
class Row:
    """A row of the table.

    - `instruction`: its name in ``nisa``.
    - `engines`: which may run it, the usual one first.
    - `computes`: the algebra: t and u are tiles, s and r constants or columns.
    - `cost`: cycles of the engine on trn1 for N elements in a partition (source: AWS Neuron
      documentation of SDK 2.26, see `neuron.costs`).
    - `limits`: case that the instruction cannot handle.
    - `match`: returns the arguments.
    """

    instruction: str
    engines: tuple[str, ...]
    computes: str
    cost: str
    limits: str
    match: Match


#: The table.
ROWS = (
    Row("memset", ("vector", "gpsimd"), "s", "max(64, N)", "s a constant", patterns.memset),
    Row(
        "tensor_copy",
        ("vector", "gpsimd"),
        "t",
        "max(64, N)",
        "gpsimd not in PSUM",
        patterns.copy,
    ),
    Row(
        "tensor_scalar",
        ("vector", "gpsimd"),
        "t op s, (t op s) op r",
        "max(64, N)",
        "columns are float32 in SBUF; gpsimd not in PSUM",
        patterns.tensor_scalar,
    ),
    Row(
        "scalar_tensor_tensor",
        ("vector",),
        "(t op s) op u",
        "2 N",
        "t and u not both in PSUM",
        patterns.scalar_tensor_tensor,
    ),
    Row(
        "activation",
        ("scalar",),
        "f(t * s + b)",
        "max(64, N)",
        "b is a column, a constant is not possible on trn1",
        patterns.activation,
    ),
    Row(
        "tensor_tensor",
        ("vector", "gpsimd"),
        "t op u",
        "max(64, 2 N), max(64, N) with one of them in PSUM",
        "t and u not both in PSUM; gpsimd not in PSUM",
        patterns.tensor_tensor,
    ),
)


def select(term: Expression, site: Site) -> Call | None:
    """Return the first instruction that computes an expression at once.

    - `term`: the expression to compute.
    - `site`: where.
    """
    for row in ROWS:
        engine = row.engines[0] if site.engine is None else site.engine
        if engine not in row.engines:
            continue
        arguments = row.match(term, site)
        if arguments is None:
            continue
        spaces = {a.operand.space for _, a in arguments if isinstance(a, (Tile, Column))}
        if engine == "gpsimd" and "psum" in spaces | {site.space}:
            continue
        return Call(row.instruction, arguments, engine)
    return None
