"""What a generated program is, and one drawn at random."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from .expressions import Tree

#: Terms of the second reduction that a law covers, by the head they are for. In all of them x is
#: what the head reads (see `Program.z`), r its result, v a factor.
ROLLED: dict[str, tuple[Tree, ...]] = {
    "max": (
        ["exp", ["sub", "x", "r"]],
        ["mul", ["exp", ["sub", "x", "r"]], "v"],
        ["mul", "v", ["exp", ["sub", "x", "r"]]],
        ["exp", ["mul", ["sub", "x", "r"], 0.5]],
        ["mul", ["mul", ["exp", ["sub", "x", "r"]], 2.0], "v"],
    ),
    "min": (
        ["exp", ["sub", "r", "x"]],
        ["mul", ["exp", ["sub", "r", "x"]], "v"],
    ),
    "sum": (),
    "squares": (),
}
DEFERRED: dict[str, tuple[Tree, ...]] = {
    "max": (["mul", "v", ["exp", ["mul", "r", -0.125]]],),
    "min": (),
    "sum": (["mul", "v", "r"], ["mul", ["mul", "x", 0.5], "r"]),
    "squares": (
        ["mul", ["mul", "x", ["rsqrt", ["add", ["mul", "r", 0.25], 1.0]]], "v"],
        ["mul", "v", ["rsqrt", ["add", "r", 0.5]]],
        ["div", "v", ["add", "r", 1.0]],
    ),
}
#: Terms that no law covers, or that a law covers only where something else is known.
OTHERS: tuple[Tree, ...] = (
    ["exp", ["sub", "r", "x"]],
    ["exp", ["sub", "x", "r"]],
    ["exp", ["add", "x", "r"]],
    ["abs", ["sub", "x", "r"]],
    ["mul", ["sub", "x", "r"], ["sub", "x", "r"]],
    ["sub", "x", "r"],
    ["min", "v", "r"],
    ["max", "x", "r"],
    ["half", ["exp", ["sub", "x", "r"]]],
    ["round", ["mul", "x", "r"]],
    ["below", ["sub", "r", 1.0], "x", ["exp", ["sub", "x", "r"]], 0.0],
    ["equal", "x", "r", "v", 0.0],
    ["equal", "x", "r", 1.0, 0.0],
    ["exp", ["sub", ["add", "x", "v"], "r"]],
    ["exp", ["sub", ["tanh", "x"], "r"]],
    ["exp", ["sub", ["mul", "x", 0.5], "r"]],
    ["exp", ["mul", ["sub", "x", "r"], ["sub", "x", "r"]]],
    ["div", "x", ["add", ["abs", "r"], 1.0]],
    ["mul", ["exp", ["sub", "x", "r"]], "r"],
    ["add", ["exp", ["sub", "x", "r"]], "v"],
    ["mul", "v", "v"],
)
#: What is between the input and the head: z of x and a bias b.
BEFORE: tuple[Tree, ...] = (
    "x",
    "x",
    "x",
    ["mul", "x", 0.25],
    ["add", "x", "b"],
    ["mul", ["tanh", ["mul", "x", 0.5]], 2.0],
    ["add", ["mul", "x", 2.0], "b"],
    ["max", "x", "b"],
    ["abs", "x"],
)
#: Terms of a third reduction; t is the second one's term, s its result.
THIRD: tuple[Tree, ...] = (
    ["mul", ["div", "t", "s"], "w"],
    ["mul", "t", "w"],
    ["div", ["mul", "t", "w"], "s"],
    ["mul", ["mul", "t", "w"], ["div", 1.0, "s"]],
)
OTHER_THIRD: tuple[Tree, ...] = (
    ["mul", ["half", ["div", "t", "s"]], "w"],
    ["abs", ["sub", "t", "s"]],
    ["mul", ["exp", ["sub", "t", "s"]], "w"],
    ["sub", "t", "s"],
)
#: Of integers: what is between the input and the head, and terms of the second reduction; n is the
#: number of keys.
BEFORE_INTEGERS: tuple[Tree, ...] = (
    "x", "x", ["add", "x", "b"], ["mul", "x", 2], ["max", "x", "b"]
)  # fmt: skip
_FROM_MEAN: Tree = ["sub", "x", ["truncdiv", "r", "n"]]
INTEGERS: dict[str, tuple[Tree, ...]] = {
    "sum": (
        ["mul", "v", "r"],
        ["equal", "x", "r", "v", 0],
        ["sub", "x", "r"],
        ["mul", _FROM_MEAN, _FROM_MEAN],
        ["truncdiv", ["mul", "v", "r"], "n"],
    ),
    "max": (
        ["add", "x", "r"],
        ["sub", "v", "r"],
        ["min", "v", "r"],
        ["max", ["min", "x", "r"], "v"],
    ),
}
#: Of the head's result r: what a block of rows between the reductions makes of it, and of that, c,
#: widened, a term.
BETWEEN_INTEGERS: tuple[Tree, ...] = (
    ["add", "r", 1], ["sub", "r", 1], ["mul", "r", 2], ["signed", "r"], ["unsigned", "r"]
)  # fmt: skip
BETWEEN_FLOATS: tuple[Tree, ...] = (["less", "r", "b"], ["less", "b", "r"])
OF_BOOLS: tuple[Tree, ...] = (["mul", "v", ["not", "c"]], ["mul", "v", ["is", "c"]])
_NARROW = ("int8", "uint8", "int16")
MASKS = ("none", "none", "select", "causal")


@dataclass(frozen=True)
class Program:
    """A chain of two or three reductions over the same keys.

    - `rows`, `keys`: extents; rows are (rows, heads).
    - `columns`: of an axis that the last reduction has for itself; 0 for none.
    - `group`: how many heads share one row of the factor v (and w).
    - `symbolic`: whether the number of keys is known only when the function runs.
    - `layout`: where the keys are in x: ``"last"``, ``"first"`` or ``"middle"``.
    - `transposed`: whether the head's result has its two axes the other way round.
    - `mask`: ``"none"``; ``"select"``: -inf where a mask is 0; ``"causal"``: -inf above the
      diagonal.
    - `z`: what the head and the term read as x.
    - `stored`: whether z is a block of its own.
    - `head`: ``"max"``, ``"min"``, ``"sum"`` or ``"squares"``.
    - `infinite`: whether the head starts from an infinity.
    - `term`: of the second reduction.
    - `held`: whether the term is a block of its own.
    - `second`: ``"sum"``, ``"max"`` or ``"min"``.
    - `third`: the term of the third reduction, a sum.
    - `fault`: something that forbids to fuse: ``""``, ``"row"`` (r of another row), ``"keys"`` (one
      key less) or ``"reversed"`` (x is read backwards).
    - `reader`: who else reads: ``""``, ``"head"`` (r is an output), ``"terms"`` (the terms are),
      ``"normal"`` (terms divided by the sum are).
    - `dtype`: the floating type.
    - `called`: the block that the primitive is called with.
    - `factor`: keys in a block.
    - `numerics`: how the primitive is called.
    - `fusable`: whether a law is known to cover it.
    - `parts`: how many parts of the keys have a state of their own.
    - `later`: ``"overwritten"``: a block after all others overwrites x by another parameter;
      ``"read before"``: the term reads that parameter in place of x.
    - `between`: a block of rows between the head and the term, which reads its result as c.
    - `wide`: the type of v and of the second reduction, if it is not `dtype`: x, r and c are
      converted.
    """

    rows: int
    heads: int
    keys: int
    columns: int
    group: int
    symbolic: bool
    layout: str
    transposed: bool
    mask: str
    z: Tree
    stored: bool
    head: str
    infinite: bool
    term: Tree
    held: bool
    second: str
    third: Tree
    fault: str
    reader: str
    dtype: str
    called: str
    factor: int
    numerics: str
    fusable: bool
    parts: int = 1
    later: str = ""
    between: Tree = None
    wide: str = ""

    @property
    def integers(self) -> bool:
        """Whether it reduces integers."""
        return "int" in self.dtype

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(saved: dict[str, Any]) -> Program:
        return Program(**saved)


def mentions(tree: Tree, name: str) -> bool:
    """Whether a name occurs in a tree."""
    if isinstance(tree, list):
        return any(mentions(part, name) for part in tree[1:])
    return bool(tree == name)


def draw(seed: str) -> Program:
    """Return the program of a seed.

    Example
    -------
    >>> draw("1/0") == draw("1/0")
    True
    """
    rng = random.Random(seed)
    head = rng.choice(("max", "max", "max", "max", "min", "sum", "squares", "squares"))
    lawful = (*ROLLED[head], *ROLLED[head], *DEFERRED[head])
    known = rng.random() < 0.6
    term = rng.choice(lawful if known else OTHERS)
    z = rng.choice(BEFORE)
    three = rng.random() < 0.4
    third = None
    if three:
        known_third = rng.random() < 0.8
        third = rng.choice(THIRD if known_third else OTHER_THIRD)
        known &= known_third
    heads, columns = rng.choice((1, 2, 4)), rng.choice((0, 0, 2, 3))
    program = Program(
        rows=rng.choice((1, 2, 3)),
        heads=heads,
        keys=rng.randint(1, 9),
        columns=columns,
        group=rng.choice([group for group in (1, 1, 2, 4) if heads % group == 0]),
        symbolic=rng.random() < 0.15,
        layout=rng.choice(("last", "last", "first", "middle")),
        transposed=rng.random() < 0.2,
        mask=rng.choice(MASKS) if head == "max" else "none",
        z=z,
        stored=rng.random() < 0.6,
        head=head,
        infinite=head in ("max", "min") and rng.random() < 0.1,
        term=term,
        held=rng.random() < 0.6,
        second=rng.choice(("sum",) * 8 + ("max", "min")),
        third=third,
        fault=rng.choice(("",) * 14 + ("row", "keys", "reversed")),
        reader=rng.choice(("", "", "", "head", "terms", "normal")),
        dtype=rng.choice(("float32",) * 6 + ("float64",)),
        called=rng.choice(("second", "second", "head", "last", "term")),
        factor=rng.choice((1, 2, 3, 4, 64)),
        numerics=rng.choice(("reassociate",) * 6 + ("exact",)),
        fusable=False,
        parts=rng.choice((1,) * 17 + (2, 3, 5)),
    )
    program = replace(program, fusable=known and _covered(program))
    kind = rng.random()
    if kind < 0.15:
        program = _of_integers(rng, program)
    elif kind < 0.18:
        between, term = rng.choice(BETWEEN_FLOATS), rng.choice(OF_BOOLS)
        program = _simple(program, z="x", head="max", between=between, term=term)
    later = rng.choice(("",) * 30 + ("overwritten", "read before"))
    if later == "read before":
        # Of what overwrites x the term would be right.
        term = rng.choice(ROLLED["max"])
        program = _simple(program, head="max", second="sum", term=term, dtype="float32")
        program = replace(program, between=None, wide="", fault="", z=rng.choice(BEFORE))
    return replace(program, later=later)


def _simple(program: Program, **changes: Any) -> Program:
    """A program of two reductions without masks, of which it is not known whether it is covered."""
    fields: dict[str, Any] = {"mask": "none", "infinite": False, "third": None, "fusable": False}
    reader = "" if program.reader == "normal" else program.reader
    return replace(program, **fields, reader=reader, **changes)


def _of_integers(rng: random.Random, program: Program) -> Program:
    narrow = rng.random() < 0.8
    second = rng.choice(("sum", "sum", "max", "min"))
    program = _simple(
        program,
        dtype=rng.choice(_NARROW) if narrow else "int32",
        head=rng.choice(("max", "min", "sum", "sum")),
        second=second,
        z=rng.choice(BEFORE_INTEGERS),
        term=rng.choice(INTEGERS["sum" if second == "sum" else "max"]),
    )
    if not narrow or rng.random() < 0.5:
        return program
    between = rng.choice(BETWEEN_INTEGERS)
    held = between[0] if between[0] in ("signed", "unsigned") else program.dtype
    low, high = {
        "int8": (-128, 127), "signed": (-128, 127), "int16": (-32768, 32767)
    }.get(held, (0, 255))  # fmt: skip
    edge = rng.choice((low, low + 1, high, high - 1))
    clipped: Tree = rng.choice((
        ["mul", "v", ["max", "c", edge]],
        ["mul", "v", ["min", "c", edge]],
        ["mul", "v", ["below", "c", edge, 1, 0]],
    ))  # fmt: skip
    return replace(program, wide="int32", second="sum", between=between, term=clipped)


def _covered(program: Program) -> bool:
    """Whether nothing but the term could forbid to fuse."""
    # The smallest finite number as a term's own: a head from -inf may be refused.
    plain = not program.infinite and not program.fault and program.numerics == "reassociate"
    overflows = program.head == "sum" and mentions(program.term, "x")
    return plain and program.second == "sum" and not program.symbolic and not overflows


def text(program: Program) -> str:
    """Return a program as a line."""
    return json.dumps(program.to_json(), sort_keys=True)
