"""Limits of the language and of its execution: no text makes us work or allocate without bound.

These limits are far above what kernels need. None is NKI's own: those are in :mod:`machine` and
checked by rules.
"""

from __future__ import annotations

import ast
from typing import Any

from .errors import KernelError, Refused

#: No integer of a kernel is as large; literals included.
LARGEST = 2**63

#: How deeply statements and expressions may be nested.
MOST_NESTED = 100

#: Statements and iterations of loops, empty ones too, that a walk executes before it gives up.
MOST_STATEMENTS = 5_000_000

#: Items of a tuple or a list, those of the tuples and lists in it counted too; letters of a text.
MOST_ITEMS = 65536

#: How deeply functions may call each other.
MOST_CALLS = 40

#: How deeply tuples may be nested.
MOST_TUPLES = 16

#: Dimensions of a tensor or a view; numpy has at most 32 or 64.
MOST_DIMS = 32

#: Elements that one operand may count, repeats (a stride of 0) included.
MOST_ELEMENTS = 2**31

#: Elements between two neighbours of a view.
LARGEST_STRIDE = 2**40

#: Bytes of all tensors that an execution on numpy holds at a time; its inputs, what instructions
#: compute in between, and the marks of what was written are not counted.
MOST_BYTES = 16 * 2**30


def bounded(tree: ast.AST) -> None:
    """Refuse what is nested too deeply for functions that call themselves, and huge integers.

    - Raises KernelError: with the line.
    """
    level, line = [tree], 1
    for _ in range(MOST_NESTED):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
        line = next((node.lineno for node in level if hasattr(node, "lineno")), line)
        for node in level:
            if isinstance(node, ast.Constant) and type(node.value) is int:
                if node.value >= LARGEST:
                    # Not the integer itself: Python may refuse to write it down.
                    raise KernelError(
                        node.lineno,
                        "an integer does not fit in 64 bits: write large numbers as 1e19",
                    )
    raise KernelError(line, f"nested more than {MOST_NESTED} deep")


def too_many() -> Refused:
    """Return the refusal of a walk that is too long."""
    return Refused(
        "language",
        f"more than {MOST_STATEMENTS} statements and iterations, with all loops unrolled",
    )


def joined(one: Any, other: Any) -> Any:
    """Return two tuples, lists or texts as one, or refuse it."""
    if len(one) + len(other) > MOST_ITEMS:
        raise Refused("language", f"a tuple or a list holds at most {MOST_ITEMS} items")
    return small(one + other)


def small(value: Any) -> Any:
    """Return a tuple, list or text whose parts passed, or refuse it.

    - Raises Refused: longer than `MOST_ITEMS` or deeper than `MOST_TUPLES`.
    """
    level, count = value, len(value)
    for _ in range(MOST_TUPLES):
        if count > MOST_ITEMS:
            raise Refused("language", f"a tuple or a list holds at most {MOST_ITEMS} items")
        if type(level) in (str, range):
            return value
        level = [item for part in level if type(part) in (tuple, list) for item in part]
        if not level:
            return value
        count += len(level)
    raise Refused("language", f"tuples are nested at most {MOST_TUPLES} deep")
