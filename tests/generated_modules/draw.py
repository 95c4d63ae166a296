"""Draws modules: reductions, each with a chain of operators that consume its result."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from .spec import EXACT_LIMIT, FLOATS, INTEGERS, LARGE, Module, Node, Parameter, Value, is_float

#: No value has more elements, and no reduction combines more pairs: modules compile fast.
MAX_ELEMENTS = 1500
MAX_WORK = 60_000


class Drawing:
    """A module while it is drawn: shapes, types and magnitudes are known of each value.

    - `rng` (random.Random)
    - `values` (list[Value]): of nodes that can be used further, by their number in `nodes`.
    """

    def __init__(self, seed: str) -> None:
        """Start without anything."""
        self.rng = random.Random(seed)
        self.parameters: list[Parameter] = []
        self.nodes: list[tuple[str, tuple[int, ...], dict[str, Any], Value]] = []

    # Values are numbered -1, -2, ... for parameters and 0, 1, ... for nodes until all is drawn.

    def value(self, number: int) -> Value:
        """Return what is known of a value."""
        return self.nodes[number][3] if number >= 0 else self.parameters[-1 - number].value

    def parameter(
        self, shape: tuple[int, ...], dtype: str, bound: int = 4, kind: str = "data", low: int = 0
    ) -> int:
        """Add a parameter of whole numbers from -`bound` to `bound`, or as its kind says."""
        first = low if kind in ("index", "wild") else 0 if dtype == "bool" else -bound
        value = Value(shape, dtype, True, float(bound))
        self.parameters.append(Parameter(value, first, bound, kind))
        return -len(self.parameters)

    def node(
        self,
        op: str,
        args: tuple[int, ...],
        shape: tuple[int, ...],
        bound: float,
        *,
        dtype: str | None = None,
        exact: bool | None = None,
        **attrs: Any,
    ) -> int | None:
        """Add a node; None if its elements may be too large for its type.

        - `bound`: no element, and no partial result in any order, has a larger magnitude.
        - `dtype`: that of the first argument if it is not given.
        - `exact`: whether whole numbers stay whole; as the arguments if it is not given.
        """
        values = [self.value(number) for number in args]
        dtype = dtype or values[0].dtype
        keeps = all(value.exact for value in values) if exact is None else exact
        fits = bound <= EXACT_LIMIT[dtype]
        if not is_float(dtype) and not (keeps and fits):
            return None
        if is_float(dtype) and bound > LARGE[dtype]:
            return None
        value = Value(shape, dtype, keeps and fits, bound)
        if value.size > MAX_ELEMENTS or 0 in shape:
            return None
        self.nodes.append((op, args, attrs, value))
        return len(self.nodes) - 1

    def some_value(self, accept: Callable[[Value], bool]) -> int | None:
        """Return a node's value that is accepted, a late one more likely than an early one."""
        found = [number for number, node in enumerate(self.nodes) if accept(node[3])]
        if not found:
            return None
        return found[-1] if self.rng.random() < 0.5 else self.rng.choice(found)

    def finish(self) -> Module:
        """Return the module: its outputs are the values that nothing reads, and some others."""
        read = {number for node in self.nodes for number in node[1]}
        outputs = [n for n in range(len(self.nodes)) if n not in read or self.rng.random() < 0.12]
        count = len(self.parameters)

        def renumbered(number: int) -> int:
            return number + count if number >= 0 else -1 - number

        nodes = tuple(
            Node(op, tuple(map(renumbered, args)), attrs, value)
            for op, args, attrs, value in self.nodes
        )
        options = {"rows": self.rng.random() < 0.7, "distribute": self.rng.random() < 0.3}
        return Module(tuple(self.parameters), nodes, tuple(map(renumbered, outputs)), options)


def random_module(seed: str) -> Module:
    """Return the module of a seed.

    Example
    -------
    >>> random_module("1/0") == random_module("1/0")
    True
    """
    from .operators import EPILOGUES
    from .reductions import REDUCTIONS

    drawing = Drawing(seed)
    rng = drawing.rng
    names, weights = zip(*((op, weight) for op, (_, weight) in EPILOGUES.items()), strict=True)
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        result = None
        while result is None:
            mark = len(drawing.parameters)
            result = rng.choice(REDUCTIONS)(drawing)
            if result is None:
                del drawing.parameters[mark:]
        for _ in range(rng.randint(1, 6)):
            mark = len(drawing.parameters), len(drawing.nodes)
            (name,) = rng.choices(names, weights)
            found = EPILOGUES[name][0](drawing, result)
            if found is None:
                del drawing.parameters[mark[0] :], drawing.nodes[mark[1] :]
            elif rng.random() < 0.93:  # otherwise what follows reads the value before, too
                result = found
    return drawing.finish()


def any_type(rng: random.Random) -> str:
    """Return an element type: float32 half of the time."""
    return "float32" if rng.random() < 0.5 else rng.choice((*FLOATS, *INTEGERS))
