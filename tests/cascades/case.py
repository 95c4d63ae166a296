"""What a program with a cascade is: a function, how it is called, what is right, and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from tvm import te
from tvm.tirx import PrimFunc

from .bounded import Bounded, Rules, exactly

Oracle = Callable[..., dict[str, Any]]

#: Rows of most programs, and columns of what they multiply with.
ROWS, COLUMNS = 4, 3
#: Keys of most programs, and how many of them are a block: the last block is not a whole one.
KEYS, FACTOR = 10, 4


@dataclass(frozen=True)
class Cascade:
    """One program and its verdict.

    - `name`: unique.
    - `make`: the function for a number of keys.
    - `block`: the block that the primitive is called with.
    - `verdict`: ``"accept"``, ``"refuse"``, or ``"either"``: both are right as long as the result
      is.
    - `oracle`: gets the inputs by name, floats as `Bounded` numbers, and returns the outputs by
      name.
    - `law`: what makes it fusable, or what forbids it.
    - `logits`: inputs that get hard rows, with the axis of the keys.
    - `ranges`: smallest and largest value of integer inputs; the whole range of their type
      otherwise.
    - `sizes`: symbolic dimensions as functions of the number of keys.
    - `finite`: whether hard rows are of finite numbers only, not near the largest: where a product
      or a square of the others says nothing.
    - `nan`: whether hard rows have NaN in them. A maximum passes over some of them and forgets what
      was before: where an order of NaN matters nothing is promised, except for ``"exact"``.
    - `numerics`: how the primitive is called.
    - `codes`: the refusal's code, or the codes between which there is a choice; empty: any.
    - `twin`: the program that differs in the one thing that matters, with the other verdict.
    - `schedule` (Callable, optional): steps before the primitive is called.
    """

    name: str
    make: Callable[[int], PrimFunc]
    block: str
    verdict: Literal["accept", "refuse", "either"]
    oracle: Oracle
    law: str = ""
    logits: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    sizes: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    finite: bool = False
    nan: bool = True
    numerics: Literal["reassociate", "exact"] = "reassociate"
    codes: tuple[str, ...] = ()
    twin: str = ""
    schedule: Callable[[Any], None] | None = None

    def func(self, keys: int = KEYS) -> PrimFunc:
        """The function before anything is done to it."""
        return _made(self.make, keys)

    def expected(self, arrays: Mapping[str, Any], blocks: int) -> dict[str, Any]:
        """What the outputs must be; floats as `Bounded` numbers, rolled over `blocks` blocks."""
        given: dict[str, Any] = {}
        for name, array in arrays.items():
            floating = array.dtype.kind == "f"
            given[name] = exactly(array, Rules(str(array.dtype), blocks)) if floating else array
        with np.errstate(all="ignore"):
            return self.oracle(**given)


@cache
def _made(make: Callable[[int], Any], keys: int) -> PrimFunc:
    made = make(keys)
    return made if isinstance(made, PrimFunc) else te.create_prim_func(made)


class Family:
    """Collects the programs of a file."""

    def __init__(self) -> None:
        self.cases: list[Cascade] = []

    def _add(self, verdict: Any, block: str, oracle: Oracle, law: str, more: Any) -> Any:
        def add(make: Callable[[int], Any]) -> Callable[[int], Any]:
            self.cases.append(Cascade(make.__name__, make, block, verdict, oracle, law=law, **more))
            return make

        return add

    def accept(self, block: str, oracle: Oracle, law: str, **more: Any) -> Any:
        """Add a program that must be fused, named like its function."""
        return self._add("accept", block, oracle, law, more)

    def refuse(self, block: str, oracle: Oracle, law: str, **more: Any) -> Any:
        """Add a program that must be refused."""
        return self._add("refuse", block, oracle, law, more)

    def either(self, block: str, oracle: Oracle, law: str, **more: Any) -> Any:
        """Add a program that may be refused; fused, it must be right."""
        return self._add("either", block, oracle, law, more)


def number(value: Any) -> Bounded:
    """For the type checker: an input that is a float."""
    assert isinstance(value, Bounded)
    return value
