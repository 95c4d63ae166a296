"""Constraints on instructions from the order of a block's iterations and assignments.

An instruction covers all iterations of its axes at once, and a block with several assignments
becomes several instructions: nothing may depend on one iteration being done before another.
"""

from __future__ import annotations

from collections.abc import Mapping

from .linear import Linear
from .program import Program, Store, loads, stores
from .refusals import EmitError


def find_results(program: Program) -> None:
    """Tell which parameters are results.

    Raises
    ------
    EmitError
        One is read as well, or there is none.
    """
    written = {id(leaf.update.tensor) for leaf in program.leaves()}
    read = {
        id(load.tensor): leaf.block
        for leaf in program.leaves()
        for store in stores(leaf)
        for load in loads(store.value)
    }
    for tensor in program.parameters:
        if id(tensor) in written:
            tensor.kind = "output"
            if id(tensor) in read:
                block = read[id(tensor)]
                reason = f"is a result, and block '{block}' reads it"
                raise EmitError("in-place", f"parameter '{tensor.name}'", reason)
    if not any(tensor.kind == "output" for tensor in program.parameters):
        raise EmitError("statement", program.name, "it writes to none of its parameters")


def check_order(made: list[Store], loops: Mapping[str, int], block: str) -> None:
    """Refuse assignments of a block that depend on the order of its iterations.

    Parameters
    ----------
    made : list[Store]
        All of the block, T.init aside.
    loops : Mapping[str, int]
        Loops that an instruction may cover, with the number of iterations.
    block : str
        For messages.

    Raises
    ------
    EmitError
        One reads other elements of what the block writes, or an element is written several times.
    """
    for store in made:
        for other in made:
            same = store.tensor is other.tensor
            if same and store.index != other.index:
                reason = f"writes two elements of '{store.tensor.name}'"
                raise EmitError("in-place", block, reason)
        for load in loads(store.value):
            for other in made:
                if load.tensor is other.tensor and load.index != other.index:
                    reason = f"reads other elements of '{load.tensor.name}', which it writes"
                    raise EmitError("in-place", block, reason)
        used = {name: n for name, n in loops.items() if any(i.of(name) for i in store.index)}
        # One assignment alone may sum up over loops; those of several would be torn apart.
        if not _separate(store.index, used if len(made) == 1 else loops):
            reason = f"writes an element of '{store.tensor.name}' in several iterations"
            raise EmitError("in-place", block, reason)


def _separate(index: tuple[Linear, ...], loops: Mapping[str, int]) -> bool:
    """Whether each iteration has an element of its own.

    True if each loop is in an index, and in each index a loop's step is beyond all that the loops
    with smaller steps reach.
    """
    several = {name: n for name, n in loops.items() if n > 1}
    if not all(any(each.of(name) for each in index) for name in several):
        return False
    for each in index:
        reach = 0
        for step, name in sorted((abs(each.of(name)), name) for name in several if each.of(name)):
            if step <= reach:
                return False
            reach += step * (several[name] - 1)
    return True


def first_iterations(
    conditions: tuple[Linear, ...], around: list[Linear]
) -> tuple[tuple[str, ...], tuple[Linear, ...]]:
    """Split the conditions of an init: loops that are in their first iteration, and the others.

    TVM writes ``k_0 * 4 + k_1 == 0``: no factor and no variable is negative, so all are 0.
    """
    first: list[str] = []
    rest: list[Linear] = []
    for each in conditions:
        if each in around:
            rest.append(each)
        elif each.constant == 0 and all(factor < 0 for factor in each.terms.values()):
            first += [name for name in each.terms if name not in first]
        else:
            rest.append(each)
    return tuple(first), tuple(rest)
