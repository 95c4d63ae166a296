"""What the order of a block's iterations and of its assignments means for instructions.

An instruction covers all iterations of its axes at once, and a block with several assignments
becomes several instructions: nothing may depend on one iteration being done before another.
"""

from __future__ import annotations

from .linear import Linear
from .program import Binary, Load, Program, Store, loads, stores
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


def check_order(made: list[Store], block: str) -> None:
    """Refuse assignments of a block that depend on the order of its iterations.

    Raises
    ------
    EmitError
        One reads other elements of what the block writes.
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


def begins(init: Store, update: Store) -> bool:
    """Whether a store gives an element its first value, and the next one updates it."""
    return (
        init.tensor is update.tensor
        and init.index == update.index
        and isinstance(update.value, Binary)
        and any(
            isinstance(side, Load) and side.tensor is init.tensor and side.index == init.index
            for side in (update.value.a, update.value.b)
        )
    )


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
