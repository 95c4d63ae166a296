"""A scheduled function as the emitter sees it: loops around blocks that store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from .linear import Interval, Linear
from .names import Names

#: What a marked loop is to its instruction; the names are TVM's.
Role = Literal["P", "F", "lhs_F", "rhs_F"]
ROLES: tuple[Role, ...] = ("P", "F", "lhs_F", "rhs_F")

#: Types the engines compute with; others can only be moved.
FLOATS = frozenset({"float32", "float16", "bfloat16"})

#: Those of 16 bits, which transfers can transpose.
NARROW = frozenset({"float16", "bfloat16"})

#: Integers of which float32 does not have all: instructions that compute in it would round them.
WIDE = frozenset({"int32", "uint32"})

#: Integers of which float32 has all: engines read them as they are.
SMALL = frozenset({"int8", "uint8", "int16", "uint16"})

#: Type of what comparisons give: `nisa.tensor_copy_predicated` takes no float.
MASK = "uint8"
#: The same for comparisons of integers of 32 bits: where every operand has 32 bits, GpSimd compares
#: them as integers.
WIDE_MASK = "uint32"
#: Types of buffers that hold comparisons.
MASKS = frozenset({MASK, WIDE_MASK})

#: Binary operations by their name in ``nl``.
COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})


@dataclass(eq=False)
class Tensor:
    """A buffer.

    - `name`: unique in the kernel.
    - `space`: ``"hbm"``, ``"sbuf"`` or ``"psum"``.
    - `shape`: as in TIR.
    - `dtype`: type of its elements.
    - `kind`: ``"input"``, ``"output"`` or ``"temporary"``.
    """

    name: str
    space: str
    shape: tuple[int, ...]
    dtype: str
    kind: str = "temporary"


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float
    dtype: str


@dataclass(frozen=True)
class Load:
    """An element of a buffer.

    - `exact`: whether an instruction computes with integers as they are: nothing is rounded, or
      what is computed is the same nevertheless.
    """

    tensor: Tensor
    index: tuple[Linear, ...]
    dtype: str
    exact: bool = False


@dataclass(frozen=True)
class Operand:
    """A tensor as it lies in memory, with an index: what an instruction reads or writes.

    - `name`: name of the tensor in the kernel.
    - `space`, `dtype`, `shape`: shape of the tensor; on the chip its first dimension counts
      partitions.
    - `index`: for each dimension, in terms of the instruction's axes and of outer loops.
    - `exact`: as of :class:`Load`.
    """

    name: str
    space: str
    dtype: str
    shape: tuple[int, ...]
    index: tuple[Linear, ...]
    exact: bool = False

    def uses(self, axis: str) -> bool:
        """Whether the index depends on an axis."""
        return any(each.of(axis) for each in self.index)


@dataclass(frozen=True)
class Binary:
    """``a op b``, rounded to a type."""

    op: str
    a: Expression
    b: Expression
    dtype: str


@dataclass(frozen=True)
class Compare(Binary):
    """A comparison of two numbers, or of two comparisons: 1 where it holds, 0 elsewhere."""

    dtype: str = MASK


@dataclass(frozen=True)
class Function:
    """A function of ``nl``, rounded to a type."""

    op: str
    a: Expression
    dtype: str


@dataclass(frozen=True)
class Convert:
    """A conversion to another type."""

    a: Expression
    dtype: str


@dataclass(frozen=True)
class Rounded(Convert):
    """A conversion of a float to the nearest integer, as engines store it; it is in range."""


@dataclass(frozen=True)
class Choose:
    """`a` where all conditions hold (each is ``value >= 0``), `b` elsewhere."""

    conditions: tuple[Linear, ...]
    a: Expression
    b: Expression
    dtype: str


@dataclass(frozen=True)
class Where:
    """`a` where data fulfil a condition, `b` elsewhere."""

    mask: Expression
    a: Expression
    b: Expression
    dtype: str


Expression: TypeAlias = Number | Load | Operand | Binary | Function | Convert | Choose | Where


@dataclass(frozen=True)
class Axis:
    """A loop that an instruction covers."""

    name: str
    extent: int
    role: Role


@dataclass(frozen=True)
class Store:
    """An assignment, made where all conditions hold (each is ``value >= 0``)."""

    tensor: Tensor
    index: tuple[Linear, ...]
    value: Expression
    conditions: tuple[Linear, ...] = ()


@dataclass
class Leaf:
    """A block that stores, in loops of its own.

    - `block`: its name in TIR.
    - `engine`: which engine shall run it, from the block's annotation ``nki_engine``.
    - `axes`: loops that its instructions cover, outermost first. Empty until the roles of loops
      without marks are known.
    - `own`: the loops without marks around this block alone.
    - `init`: made instead of reading the result for the first time.
    - `update`: the assignment.
    - `first`: loops in whose first iterations, all at once, `init` is made.
    - `late`: whether it may wait until its result is needed.
    - `distinct`: whether the elements of a table that its addresses are read of differ.
    """

    block: str
    engine: str | None
    axes: list[Axis]
    own: list[tuple[str, int]]
    init: Store | None
    update: Store
    first: tuple[str, ...] = ()
    late: bool = False
    distinct: bool = False


@dataclass
class Once:
    """Statements that run in the first iterations of some loops, all at once.

    - `loops`: their variables.
    - `body`: the statements.
    """

    loops: tuple[str, ...]
    body: list[Node]


@dataclass
class Loop:
    """A loop of the kernel."""

    name: str
    extent: int
    body: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class Allocate:
    """The allocation of a buffer."""

    tensor: Tensor


Node: TypeAlias = Loop | Once | Allocate | Leaf


@dataclass
class Program:
    """A function.

    - `name`: name of the kernel.
    - `parameters`: in their order, results among them.
    - `body`: its statements.
    - `ranges`: the values of every term of indices and conditions.
    - `names`: all that are taken.
    - `tables`: parameters of which addresses are read, by the names of their copies in SBUF.
    """

    name: str
    parameters: list[Tensor]
    body: list[Node]
    ranges: dict[str, Interval]
    names: Names
    tables: dict[str, Tensor] = field(default_factory=dict)

    def leaves(self) -> list[Leaf]:
        """Return all blocks, in order."""
        found: list[Leaf] = []

        def visit(nodes: list[Node]) -> None:
            for node in nodes:
                if isinstance(node, Leaf):
                    found.append(node)
                elif isinstance(node, Loop | Once):
                    visit(node.body)

        visit(self.body)
        return found


def stores(leaf: Leaf) -> list[Store]:
    """Return the assignments of a block."""
    return [leaf.update] if leaf.init is None else [leaf.init, leaf.update]


def loads(value: Expression) -> list[Load]:
    """Return the loads of an expression, in order."""
    if isinstance(value, Load):
        return [value]
    return [load for part in parts(value) for load in loads(part)]


def parts(value: Expression) -> list[Expression]:
    """Return what an expression is made of."""
    match value:
        case Binary(a=a, b=b) | Choose(a=a, b=b):
            return [a, b]
        case Where(mask, a, b):
            return [mask, a, b]
        case Function(a=a) | Convert(a=a):
            return [a]
    return []


def with_parts(value: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """Return an expression with its parts changed; the same one if nothing changes."""
    match value:
        case Binary(op, a, b, dtype):
            return type(value)(op, change(a), change(b), dtype)
        case Where(mask, a, b, dtype):
            return Where(change(mask), change(a), change(b), dtype)
        case Choose(conditions, a, b, dtype):
            return Choose(conditions, change(a), change(b), dtype)
        case Function(op, a, dtype):
            return Function(op, change(a), dtype)
        case Convert(a, dtype):
            return type(value)(change(a), dtype)
    return value
