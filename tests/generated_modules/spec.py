"""A Relax module as a value: parameters, operators, outputs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int8", "int32", "int64")

#: Whole numbers up to this one are computed exactly in a type, and never overflow.
EXACT_LIMIT = {
    "float16": 2**11,
    "float32": 2**24,
    "float64": 2**50,
    "int8": 127,
    "int32": 2**30,
    "int64": 2**30,
    "bool": 1,
}
#: Largest magnitude of a value that is not exact: far from the infinities of the type.
LARGE = {"float16": 2.0**13, "float32": 2.0**60, "float64": 2.0**60}


def is_float(dtype: str) -> bool:
    """Return whether a type is one of floating point."""
    return dtype.startswith("float")


@dataclass(frozen=True)
class Value:
    """What is known of a value while a module is drawn.

    - `exact`: whether it is a whole number in every element, and computed without rounding in any
      order.
    - `bound`: no element has a larger magnitude.
    """

    shape: tuple[int, ...]
    dtype: str
    exact: bool
    bound: float

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Parameter:
    """An input of a module, and what its elements may be.

    - `low`, `high`: the elements are whole numbers from `low` to `high`.
    - `kind`: "data"; "divisors", in which zeros are frequent; "wild", in which numbers outside of
      `low` to `high`, far from any index, are frequent; "index".
    """

    value: Value
    low: int
    high: int
    kind: str = "data"


@dataclass(frozen=True)
class Node:
    """An operator with its arguments and its result.

    - `args`: numbers of values: the parameters come first, then the nodes.
    - `attrs` (dict): of JSON's types.
    """

    op: str
    args: tuple[int, ...]
    attrs: dict[str, Any]
    value: Value


@dataclass(frozen=True)
class Module:
    """A module: what goes in, what is computed, what comes out, and how the pass is asked.

    - `outputs`: numbers of nodes' values.
    - `options`: ``rows`` and ``distribute`` of the pass.
    """

    parameters: tuple[Parameter, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]
    options: dict[str, bool] = field(default_factory=dict)

    def value(self, number: int) -> Value:
        """Return what is known of a value."""
        count = len(self.parameters)
        item = self.parameters[number] if number < count else self.nodes[number - count]
        return item.value

    @property
    def guarded(self) -> bool:
        """Whether some operand is undefined where its guard is false."""
        return any(node.op.startswith("guarded") for node in self.nodes)

    def to_json(self) -> dict[str, Any]:
        """Return the module as JSON's types."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Module:
        """Return the module that `to_json` wrote."""
        return Module(
            tuple(
                Parameter(_value(each["value"]), each["low"], each["high"], each["kind"])
                for each in data["parameters"]
            ),
            tuple(
                Node(each["op"], tuple(each["args"]), each["attrs"], _value(each["value"]))
                for each in data["nodes"]
            ),
            tuple(data["outputs"]),
            data["options"],
        )


def _value(data: dict[str, Any]) -> Value:
    return Value(tuple(data["shape"]), data["dtype"], data["exact"], data["bound"])
