"""Decides the layout of every buffer on the chip, and what blocks without marks cover.

Marked loops decide; blocks without marks follow what is known of their buffers. What the partitions
of a buffer are has to be agreed by all blocks that use it, copies into PSUM aside: they transpose.
"""

from __future__ import annotations

from dataclasses import replace

from .layout import PARTITIONS, Layout, layout_of
from .linear import Linear
from .program import (
    FLOATS,
    Axis,
    Binary,
    Choose,
    Convert,
    Expression,
    Leaf,
    Load,
    Program,
    Store,
    Tensor,
    loads,
    with_parts,
)
from .refusals import EmitError


def plan(program: Program) -> dict[int, Layout]:
    """Decide the layout of every buffer on the chip, and the axes of blocks without marks.

    - Returns: by ``id`` of the tensor.
    - Raises EmitError: a buffer is needed in two layouts, or nothing tells one.
    """
    planner = _Planner(program)
    leaves = program.leaves()
    for matmuls in (True, False):
        for leaf in leaves:
            if leaf.axes and is_matmul(leaf) == matmuls:
                planner.follow(leaf)
    waiting = [leaf for leaf in leaves if not leaf.axes]
    while waiting:
        left = [leaf for leaf in waiting if not planner.adopt(leaf)]
        if len(left) == len(waiting):
            left.remove(planner.choose(left))
        waiting = left
    return planner.layouts


def is_matmul(leaf: Leaf) -> bool:
    """Whether a block sums products over partitions."""
    return any(axis.role in ("lhs_F", "rhs_F") for axis in leaf.axes)


def factors(store: Store) -> tuple[Load, Load] | None:
    """Return a and b of ``d = d + a * b``, whose types the tensor engine reads as they are."""
    value = store.value
    if not isinstance(value, Binary) or value.op != "add":
        return None
    for side, other in ((value.b, value.a), (value.a, value.b)):
        own = isinstance(other, Load) and other.tensor is store.tensor
        if own and isinstance(side, Binary) and side.op == "multiply":
            a, b = _plain(side.a), _plain(side.b)
            if a is not None and b is not None:
                return a, b
    return None


def _plain(value: Expression) -> Load | None:
    if isinstance(value, Convert) and value.dtype == "float32":
        value = value.a
    return value if isinstance(value, Load) and value.dtype in FLOATS else None


class _Planner:
    def __init__(self, program: Program) -> None:
        self.ranges = program.ranges
        self.names = program.names
        self.layouts: dict[int, Layout] = {}

    def follow(self, leaf: Leaf) -> None:
        """Decide from a block with marks."""
        partition = next((axis for axis in leaf.axes if axis.role == "P"), None)
        target = leaf.update
        if is_matmul(leaf):
            self._matmul(leaf, partition)
            return
        places = [(target.tensor, target.index)]
        for value in (target.value, *([leaf.init.value] if leaf.init else [])):
            places += [(load.tensor, load.index) for load in loads(value)]
        if partition is None:
            if all(tensor.space == "hbm" for tensor, _ in places):
                return  # HBM has no partitions
            raise EmitError("no-partition-loop", f"block '{leaf.block}'", 'no loop is marked "P"')
        _at_most(leaf, partition)
        copy = isinstance(target.value, Load)
        for place, (tensor, index) in enumerate(places):
            # A copy's source may lie otherwise: then it is a transposition.
            self._need(leaf, tensor, index, partition, lenient=copy and place > 0)

    def _matmul(self, leaf: Leaf, partition: Axis | None) -> None:
        block = f"block '{leaf.block}'"
        operands = factors(leaf.update)
        lhs = [axis for axis in leaf.axes if axis.role == "lhs_F"]
        if partition is None or operands is None or len(lhs) > 1:
            raise EmitError("matmul", block, "is not a sum of products of two matrices over a loop")
        _at_most(leaf, partition)
        for load in operands:
            self._need(leaf, load.tensor, load.index, partition)
        if lhs:
            _at_most(leaf, lhs[0])
            self._need(leaf, leaf.update.tensor, leaf.update.index, lhs[0])
        if leaf.init is not None:
            for load in loads(leaf.init.value):
                if load.tensor.space != "hbm":
                    self._decide(leaf, load.tensor, Layout(None, 1, 1, 1))

    def _need(
        self,
        leaf: Leaf,
        tensor: Tensor,
        index: tuple[Linear, ...],
        axis: Axis,
        lenient: bool = False,
    ) -> None:
        """Ask for the layout of a buffer whose partitions a loop counts."""
        if tensor.space == "hbm":
            return
        dims = [d for d, each in enumerate(index) if each.of(axis.name)]
        if not dims and axis.extent == 1:
            self.layouts.setdefault(id(tensor), Layout(None, 1, 1, 1))
            return
        known = self.layouts.get(id(tensor))
        if known is not None and lenient:
            return
        if len(dims) != 1:
            raise EmitError(
                "broadcast",
                f"'{tensor.name}' in block '{leaf.block}'",
                f"the loop '{axis.name}' over partitions is in {len(dims)} of its indices",
            )
        layout = layout_of(tensor, dims[0], index[dims[0]], axis, self.ranges)
        if layout is None:
            raise EmitError(
                "partitions",
                f"'{tensor.name}' in block '{leaf.block}'",
                f"index {index[dims[0]]} of dimension {dims[0]} ({tensor.shape[dims[0]]}) "
                "does not go through partitions one by one",
            )
        self._decide(leaf, tensor, layout)

    def _decide(self, leaf: Leaf, tensor: Tensor, layout: Layout) -> None:
        known = self.layouts.setdefault(id(tensor), layout)
        one = known.size == layout.size == 1 and known.shape(tensor) == layout.shape(tensor)
        if known != layout and not one:
            raise EmitError(
                "layout",
                f"'{tensor.name}'",
                f"block '{leaf.block}' needs {layout}, another block {known}",
            )

    # ---- Blocks without marks ----------------------------------------------------------------

    def adopt(self, leaf: Leaf) -> bool:
        """Find the loop over partitions of a block without marks, from a buffer's layout."""
        store = leaf.update
        places = [(store.tensor, store.index)]
        places += [(load.tensor, load.index) for load in loads(store.value)]
        if all(tensor.space == "hbm" for tensor, _ in places):
            leaf.axes = [Axis(name, extent, "F") for name, extent in leaf.own]
            return True
        for tensor, index in places:
            layout = self.layouts.get(id(tensor))
            if layout is not None:
                return self._take(leaf, tensor, index, layout)
        return False

    def choose(self, leaves: list[Leaf]) -> Leaf:
        """Decide about one of several blocks of whose buffers nothing is known; return it."""
        # What computes is asked first: a copy may be of what another block reads across.
        for leaf in sorted(leaves, key=lambda leaf: isinstance(leaf.update.value, Load)):
            if self._guess(leaf):
                return leaf
        leaf = leaves[0]
        if len(leaf.own) > 1:
            raise EmitError(
                "no-partition-loop",
                f"block '{leaf.block}'",
                f"none of its loops can run over at most {PARTITIONS} partitions",
            )
        self._row(leaf)
        return leaf

    def _guess(self, leaf: Leaf) -> bool:
        """Let the outermost loop that has not too many iterations run over partitions."""
        index = leaf.update.index
        for at, (name, extent) in enumerate(leaf.own):
            if extent <= PARTITIONS and any(each.of(name) == 1 for each in index):
                rest = [Axis(n, e, "F") for n, e in leaf.own[at + 1 :]]
                leaf.axes = [Axis(name, extent, "P"), *rest]
                leaf.own = leaf.own[:at]
                self.follow(leaf)
                return True
        return False

    def _row(self, leaf: Leaf) -> None:
        """Let a block work in one partition, on buffers that lie in one unless it is known."""
        leaf.axes = [Axis(name, extent, "F") for name, extent in leaf.own]
        for store in (leaf.update, leaf.init):
            if store is not None:
                for tensor in (store.tensor, *(load.tensor for load in loads(store.value))):
                    if tensor.space != "hbm":
                        self.layouts.setdefault(id(tensor), Layout(None, 1, 1, 1))

    def _take(self, leaf: Leaf, tensor: Tensor, index: tuple[Linear, ...], layout: Layout) -> bool:
        extents = dict(leaf.own)
        names = list(extents)
        if layout.dim is None:
            self._row(leaf)
            return True
        place = index[layout.dim]
        wanted = layout.step
        most = PARTITIONS if layout.rest == 1 else layout.size
        found = [n for n in names if place.of(n) == wanted and extents[n] <= most]
        if not found:
            found = self._divide(leaf, names, place, layout)
        if not found:
            if layout.size > 1:
                raise EmitError(
                    "no-partition-loop",
                    f"block '{leaf.block}'",
                    f"no loop runs over the {layout.size} partitions of '{tensor.name}'",
                )
            self._row(leaf)
            return True
        at = [name for name, _ in leaf.own].index(found[0])
        leaf.axes = [
            Axis(name, extent, "P" if name == found[0] else "F") for name, extent in leaf.own[at:]
        ]
        # Loops outside of the one over partitions belong to the kernel.
        leaf.own = leaf.own[:at]
        self.follow(leaf)
        return True

    def _divide(self, leaf: Leaf, names: list[str], place: Linear, layout: Layout) -> list[str]:
        """Replace a loop over all of a dimension by one over partitions and one over the rest.

        If the partitions of the last tile are not all in use, the rest is a loop of the kernel.
        """
        extents = dict(leaf.own)
        if layout.rest == 1:
            return []
        for name in names:
            if place != Linear({name: 1}):
                continue
            partition, rest = self.names.unique(f"{name}_p"), self.names.unique(f"{name}_r")
            step, jump = (layout.step, 1) if layout.step > 1 else (1, layout.size)
            value = Linear({partition: step, rest: jump})
            self.ranges[partition] = (0, layout.size - 1)
            self.ranges[rest] = (0, layout.rest - 1)
            at = names.index(name)
            pair = [(partition, layout.size), (rest, layout.rest)]
            full = layout.size * layout.rest == extents[name]
            leaf.own[at : at + 1] = pair if full else pair[::-1]
            _rename(leaf, name, value, () if full else (value * -1 + (extents[name] - 1),))
            return [partition]
        return []


def _rename(leaf: Leaf, name: str, value: Linear, also: tuple[Linear, ...]) -> None:
    """Replace a loop variable in a block, which gets further conditions."""

    def each(part: Expression) -> Expression:
        if isinstance(part, Load):
            return replace(part, index=tuple(i.put(name, value) for i in part.index))
        made = with_parts(part, each)
        if isinstance(made, Choose):
            made = replace(made, conditions=tuple(i.put(name, value) for i in made.conditions))
        return made

    for field in ("init", "update"):
        store = getattr(leaf, field)
        if store is not None:
            index = tuple(i.put(name, value) for i in store.index)
            conditions = tuple(i.put(name, value) for i in store.conditions)
            made = Store(store.tensor, index, each(store.value), conditions + also)
            setattr(leaf, field, made)


def _at_most(leaf: Leaf, axis: Axis) -> None:
    if axis.extent > PARTITIONS:
        raise EmitError(
            "partitions",
            f"block '{leaf.block}'",
            f"loop '{axis.name}' runs over {axis.extent} partitions",
        )
