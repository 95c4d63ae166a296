"""Constraints on instructions from the order of a block's iterations and assignments.

An instruction covers all iterations of its axes at once, and a block with several assignments
becomes several instructions: nothing may depend on one iteration being done before another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .linear import Linear
from .program import Leaf, Loop, Node, Once, Program, Store, Tensor, loads, stores
from .refusals import EmitError


def find_results(program: Program) -> None:
    """Tell which parameters are results.

    A parameter that is updated in place becomes two, since a kernel returns its results: the one
    that is read keeps its name, and "_after" is added to that of the result. One of which a table
    picks the elements stays one, and the kernel changes its argument: the others stay as they are.

    - Raises EmitError: one is read where it may have been written before, or there is none.
    """
    written = {id(leaf.update.tensor) for leaf in program.leaves()}
    read = {
        id(load.tensor): leaf.block
        for leaf in program.leaves()
        for store in stores(leaf)
        for load in loads(store.value)
    }
    for tensor in list(program.parameters):
        if id(tensor) in written and id(tensor) in read:
            block = read[id(tensor)]
            if _is_picked(program, tensor):
                tensor.kind = "input"
                continue
            reason = _why_not_separate(program, tensor)
            if reason:
                reason = f"is a result, and block '{block}' reads it: {reason}"
                raise EmitError("in-place", f"parameter '{tensor.name}'", reason)
            _make_separate(program, tensor)
        elif id(tensor) in written:
            tensor.kind = "output"
    if not any(tensor.kind == "output" for tensor in program.parameters):
        raise EmitError("statement", program.name, "it writes to none of its parameters")


def _is_picked(program: Program, tensor: Tensor) -> bool:
    """Whether a table picks what is read and written of a parameter, the same in each iteration."""
    found = list(_accesses(program.body, tensor, ()))
    picked = {each.index[0].picked for each in found}
    around = {tuple(loop.name for loop in each.loops) for each in found}
    writing = [leaf for leaf in program.leaves() if leaf.update.tensor is tensor]
    if len(writing) != 1 or not writing[0].distinct or not found[-1].writes:
        return False
    if len(picked) != 1 or len(around) != 1:
        return False
    words = set(re.findall(r"\w+", picked.pop() or ""))
    return bool(words) and all(name in words for name in around.pop())


def _why_not_separate(program: Program, tensor: Tensor) -> str:
    """Return why a result may be read after it was written, or is not written whole; "" if not."""
    found = list(_accesses(program.body, tensor, ()))
    around = {tuple(loop.name for loop in each.loops) for each in found}
    writes = [place for place, each in enumerate(found) if each.writes]
    if len(writes) != 1 or writes[0] != len(found) - 1:
        return "it is not stored by one block, after all that read it"
    if len(around) != 1:
        return "some of the loops around the block that stores it are not around those that read it"
    last = found[-1]
    for loop in last.loops:
        own = Linear({loop.name: 1})
        if not any(all(each.has(place, own) for each in found) for place in range(len(last.index))):
            return f"two iterations of loop '{loop.name}' may touch the same element"
    loops = {loop.name: loop.extent for loop in last.loops} | last.own
    size = 1
    for extent in loops.values():
        size *= extent
    if size != math.prod(tensor.shape) or not _separate(last.index, loops):
        return f"block '{last.block}' does not store all of its elements once"
    return ""


@dataclass(frozen=True)
class _Access:
    """A load or a store of a parameter, the loops around its block, and those of its own."""

    block: str
    loops: tuple[Loop, ...]
    own: dict[str, int]
    index: tuple[Linear, ...]
    writes: bool

    def has(self, place: int, index: Linear) -> bool:
        """Whether it has an index in a place."""
        return self.index[place] == index


def _accesses(nodes: list[Node], tensor: Tensor, around: tuple[Loop, ...]) -> Iterator[_Access]:
    """Yield the accesses of a parameter in the order in which they happen, with all conditions."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from _accesses(node.body, tensor, (*around, node))
        elif isinstance(node, Once):
            yield from _accesses(node.body, tensor, around)
        elif isinstance(node, Leaf):
            own = {axis.name: axis.extent for axis in node.axes} | dict(node.own)
            for store in stores(node):
                for load in loads(store.value):
                    if load.tensor is tensor:
                        yield _Access(node.block, around, own, load.index, False)
                if store.tensor is tensor:
                    # Under a condition it would not be stored whole.
                    whole = {} if store.conditions else own
                    yield _Access(node.block, around, whole, store.index, True)


def _make_separate(program: Program, tensor: Tensor) -> None:
    """Let what is stored into a parameter go to a result of its own."""
    name = program.names.unique(f"{tensor.name}_after")
    after = Tensor(name, tensor.space, tensor.shape, tensor.dtype, "output")
    program.parameters.append(after)
    tensor.kind = "input"
    for leaf in program.leaves():
        if leaf.update.tensor is tensor:
            leaf.update = replace(leaf.update, tensor=after)
        if leaf.init is not None and leaf.init.tensor is tensor:
            leaf.init = replace(leaf.init, tensor=after)


def check_order(made: list[Store], loops: Mapping[str, int], block: str) -> None:
    """Refuse assignments of a block that depend on the order of its iterations.

    - `made`: all of the block, T.init aside.
    - `loops`: loops that an instruction may cover, with the number of iterations.
    - `block`: for messages.
    - Raises EmitError: one reads other elements of what the block writes, or an element is written
      several times.
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
