"""From blocks to instructions: what kind of work a block is.

d = t                     between HBM and the chip     dma_copy, or dma_transpose if asked for
d[j, i] = t[i, j]         partitions become columns    nc_transpose
d = d + a * b             summed over partitions       nc_matmul
d = d + e                 summed along partitions      tensor_reduce, or on the way: `reductions`
d = e                     everything else              the table of `select`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .areas import Areas, Place, filled_from_below, pieces
from .elementwise import Elementwise
from .layout import Layout
from .layouts import is_matmul
from .linear import Linear
from .lower import DMA
from .masks import Mask, mask_of
from .matmul import Matmul
from .program import (
    NARROW,
    WIDE,
    Binary,
    Choose,
    Convert,
    Expression,
    Leaf,
    Number,
    Operand,
    Program,
    Store,
    loads,
    parts,
)
from .reductions import Reduced, Total
from .refusals import EmitError
from .terms import Terms, identity, merged
from .text import Text
from .views import Area

#: Operations that `tensor_reduce` repeats.
REDUCERS = ("add", "maximum", "minimum", "multiply")
#: Free dimensions of what `dma_transpose` writes here: it exchanges the first and the last one of
#: two or three.
MOST_TRANSPOSED = 2


class Instructions:
    """Writes the instructions of blocks.

    - `program`: the function.
    - `layouts`: layouts of its buffers on the chip.
    - `widened`: tensors of narrow types that have a copy in float32, as columns have to be.
    - `text`: where to write.
    """

    def __init__(
        self,
        program: Program,
        layouts: Mapping[int, Layout],
        widened: frozenset[str],
        text: Text,
    ) -> None:
        self.program = program
        self.text = text
        self.widened = widened
        self.terms = Terms(program, layouts)
        self.elementwise = Elementwise(program.names, program.ranges, text, widened)

    @property
    def wanted(self) -> set[str]:
        """Tensors that need a copy in float32."""
        return self.elementwise.wanted

    def constants(self) -> list[str]:
        """Return the lines that make constant tiles, for the head of the kernel."""
        return self.elementwise.constants()

    def write(self, leaf: Leaf) -> None:
        """Write one block.

        - Raises EmitError: no instruction does what it does.
        """
        partition = next((a.name for a in leaf.axes if a.role == "P"), None)
        if is_matmul(leaf):
            Matmul(self.terms, self.elementwise, self.text).write(leaf, self.areas(leaf, partition))
            return
        areas = self.areas(leaf, partition)
        index = leaf.update.index
        many = [a for a in leaf.axes if a.extent > 1]
        summed = [a.name for a in many if not any(i.of(a.name) for i in index)]
        if partition in summed:
            raise EmitError(
                "reduction",
                f"block '{leaf.block}'",
                f"'{leaf.update.tensor.name}' does not depend on the partitions of '{partition}'",
            )
        if summed:
            self._reduce(leaf, areas, summed)
        else:
            self._assign(leaf, areas)

    def write_with_total(self, leaf: Leaf, total: Total) -> bool:
        """Write a block, and in the same instruction the reduction of all that it stores.

        - Returns: whether there is such an instruction; if not, the block is written alone.
        """
        subject = f"block '{leaf.block}'"
        partition = next(axis.name for axis in leaf.axes if axis.role == "P")
        update, place = leaf.update, self.areas(leaf, partition).place(leaf.update.conditions)
        tensors = [update.tensor, total.load.tensor, *(x.tensor for x in loads(update.value))]
        on_chip = all(tensor.space != "hbm" for tensor in tensors)
        if place is not None and on_chip and mask_of(update, leaf.axes) is None:
            value = self.terms.term(update.value, subject)
            if len(pieces(update)) == 1 and not isinstance(value, (Operand, Choose)):
                target = self.terms.operand(update.tensor, update.index, subject)
                own = self.terms.operand(total.load.tensor, total.load.index, subject)
                reduced = Reduced(total.op, own)
                with self.text.when(place.guards):
                    return self.elementwise.compute(
                        target, value, place.area, leaf.block, leaf.engine, reduced=reduced
                    )
        self.write(leaf)
        return False

    def areas(self, leaf: Leaf, partition: str | None) -> Areas:
        """Return what makes places for a block."""
        program = self.program
        return Areas(leaf.block, leaf.axes, partition, program.ranges, program.names, self.text)

    # ---- Assignments -------------------------------------------------------------------------

    def _assign(self, leaf: Leaf, areas: Areas) -> None:
        """Write ``d = e``, or one step of a sum over loops of the kernel."""
        update, init = leaf.update, leaf.init
        if init is None:
            if isinstance(update.value, Choose) and self._identity(leaf, update, update.value):
                return
            self._store(leaf, areas, update)
            return
        # If one instruction updates all that begins, the init rides on the first update.
        joined = merged(update, init)
        rides = len(pieces(joined)) == 1 and set(joined.conditions) == set(init.conditions)
        first = [f"{name} == 0" for name in leaf.first]
        with self.text.when(first):
            self._store(leaf, areas, joined if rides else init, first=rides)
        if rides and first:
            with self.text.inside("else:"):
                self._store(leaf, areas, update)
        elif not rides:
            self._store(leaf, areas, update)

    def _identity(self, leaf: Leaf, store: Store, value: Choose) -> bool:
        """Write one number on the diagonal and another one elsewhere, if that is what it is."""
        if len(leaf.axes) != 2 or store.conditions or len(value.conditions) != 2:
            return False
        rows, columns = (axis.name for axis in leaf.axes)
        equal = Linear({rows: 1, columns: -1})
        if set(value.conditions) != {equal, equal * -1}:
            return False
        a, b = value.a, value.b
        if not isinstance(a, Number) or not isinstance(b, Number):
            return False
        target = self.terms.operand(store.tensor, store.index, f"block '{leaf.block}'")
        area = Areas.whole(leaf.axes, rows)
        if target.space != "sbuf" or leaf.axes[0].role != "P" or target.dtype in WIDE:
            return False
        self.elementwise.diagonal(target, a, b, area, leaf.block)
        return True

    def _store(
        self, leaf: Leaf, areas: Areas, store: Store, first: bool = False, masked: bool = False
    ) -> None:
        """Write an assignment where its conditions hold; if `masked`, a part is replaced later."""
        mask = mask_of(store, leaf.axes)
        if mask is not None:
            self._store(leaf, areas, replace(store, value=mask.value), first, masked=True)
            place = areas.place(store.conditions)
            if place is not None:
                with self.text.when(place.guards):
                    self._mask(leaf, store, mask, place)
            return
        placed = [(each, areas.place(each.conditions)) for each in pieces(store)]
        found = [(piece, place) for piece, place in placed if place is not None]
        if store.tensor.space != "hbm" and not masked:
            subject = f"block '{leaf.block}'"
            row = self.terms.operand(store.tensor, store.index, subject).index[0]
            numbers = [isinstance(self.terms.term(p.value, subject), Number) for p, _ in found]
            found = filled_from_below(found, numbers, row)
        for piece, place in found:
            if masked:
                self._check_inside(leaf, piece, place)
            with self.text.when(place.guards):
                self._piece(leaf, piece, place, first)

    def _check_inside(self, leaf: Leaf, piece: Store, place: Place) -> None:
        """Refuse a mask whose value loads what is not there: it is computed everywhere."""
        ranges = dict(self.program.ranges)
        for name, (start, stop) in place.area.box.items():
            ranges[name] = (start.bounds(ranges)[0], stop.bounds(ranges)[1] - 1)
        for load in loads(piece.value):
            for index, size in zip(load.index, load.tensor.shape, strict=True):
                low, high = index.bounds(ranges)
                if low < 0 or high >= size:
                    name = load.tensor.name
                    reason = f"only a condition of several loops keeps an index of '{name}' inside"
                    raise EmitError("not-affine", f"block '{leaf.block}'", reason)

    def _mask(self, leaf: Leaf, store: Store, mask: Mask, place: Place) -> None:
        """Write the number of a mask over what was written."""
        subject = f"block '{leaf.block}'"
        target = self.terms.operand(store.tensor, store.index, subject)
        if target.space != "sbuf":
            reason = (
                f"what a condition of several loops chooses goes to SBUF, not to {target.space}"
            )
            raise EmitError("not-affine", subject, reason)
        if target.dtype in WIDE:
            reason = f"a condition of several loops chooses {target.dtype}, which would be rounded"
            raise EmitError("dtype", subject, reason)
        for condition in mask.conditions:
            self.elementwise.select(target, condition, mask.otherwise, place.area, leaf.block)

    def _piece(self, leaf: Leaf, store: Store, place: Place, first: bool) -> None:
        subject = f"block '{leaf.block}'"
        target = self.terms.operand(store.tensor, store.index, subject)
        value = self.terms.term(store.value, subject)
        far = [load.tensor.name for load in loads(store.value) if load.tensor.space == "hbm"]
        area = place.area
        if target.space == "hbm" or far:
            self._transfer(target, value, place, leaf, far)
        elif isinstance(value, Operand) and self._turned(value, area):
            self._transpose(target, value, place, leaf)
        else:
            self.elementwise.compute(target, value, area, leaf.block, leaf.engine, first)

    @staticmethod
    def _turned(value: Operand, area: Area) -> bool:
        """Whether an operand's partitions are not those of an area."""
        if area.partition is None or value.index[0].of(area.partition):
            return False
        return area.size(area.partition).fixed != 1 or any(map(value.index[0].of, area.free))

    def _transfer(
        self, target: Operand, value: object, place: Place, leaf: Leaf, far: list[str]
    ) -> None:
        """Write a copy from or to HBM."""
        subject = f"block '{leaf.block}'"
        if isinstance(value, Operand) and value.dtype == target.dtype:
            if "psum" in (target.space, value.space):
                raise EmitError("dma", subject, "moves between HBM and PSUM")
            if leaf.engine == DMA:
                self._load_transposed(target, value, place.area, leaf)
            else:
                self.elementwise.dma(target, value, place.area, leaf.block)
            return
        converted = value.a if isinstance(value, Convert) else value
        if isinstance(converted, Operand):
            reason = f"a transfer does not convert {converted.dtype} to {target.dtype}"
            raise EmitError("dma", subject, reason)
        if target.space == "hbm":
            raise EmitError("writes-hbm", subject, f"computes '{target.name}', which is in HBM")
        raise EmitError("reads-hbm", subject, f"computes with '{far[0]}', which is in HBM")

    def _load_transposed(self, target: Operand, value: Operand, area: Area, leaf: Leaf) -> None:
        """Write a load that transposes matrices of 16 bits on the way, several of one row."""
        free, partition = area.kept(self.program.ranges), area.partition
        fits = partition is not None and 1 <= len(free) <= MOST_TRANSPOSED
        fits = fits and all(map(value.uses, free)) and not value.index[-1].of(free[-1])
        turned = fits and partition is not None and value.index[-1].of(partition) == 1
        if target.space != "sbuf" or not turned or target.dtype not in NARROW:
            raise EmitError(
                "dma",
                f"block '{leaf.block}'",
                "does not load a matrix of 16 bits, transposed, as its engine says",
            )
        self.elementwise.load_transposed(target, value, area, free, leaf.block)

    def _transpose(self, target: Operand, value: Operand, place: Place, leaf: Leaf) -> None:
        """Write a copy that turns columns into partitions."""
        free = place.area.kept(self.program.ranges)
        counted = sum(value.index[0].of(name) for name in free)
        if target.space != "psum" or len(free) > 1 or counted != len(free):
            raise EmitError(
                "layout",
                f"block '{leaf.block}'",
                f"'{value.name}' has other partitions than '{target.name}', and this is not the "
                'transposition of one matrix into "trn.psum"',
            )
        self.elementwise.transpose(target, value, place.area, free, leaf.block)

    # ---- Sums along partitions ---------------------------------------------------------------

    def _reduce(self, leaf: Leaf, areas: Areas, summed: list[str]) -> None:
        """Write a sum over free axes, which may go on over loops of the kernel."""
        subject, write = f"block '{leaf.block}'", self.elementwise
        update, init = leaf.update, leaf.init
        own = self.terms.operand(update.tensor, update.index, subject)
        value = self.terms.term(update.value, subject)
        if not isinstance(value, Binary) or own not in (value.a, value.b):
            raise EmitError(
                "reduction", subject, f"'{own.name}' is overwritten in loop '{summed[0]}'"
            )
        op, inside = value.op, value.b if value.a == own else value.a
        if own.name in _names(inside):
            reason = f"what is added depends on '{own.name}', the sum so far"
            raise EmitError("reduction", subject, reason)
        if op in ("add", "multiply") and own.dtype != "float32":
            raise EmitError("reduction", subject, f"rounds to {own.dtype} in every step")
        if op not in REDUCERS:
            raise EmitError("reduction", subject, f"no instruction reduces with {op}")
        if own.space == "hbm":
            raise EmitError("writes-hbm", subject, f"computes '{own.name}', which is in HBM")
        place = areas.place(update.conditions)
        if place is None or len(pieces(update)) > 1:
            raise EmitError("reduction", subject, "reads what a condition chooses")
        first = [f"{name} == 0" for name in leaf.first if name not in summed]
        start = None if init is None else self.terms.term(init.value, subject)
        kept = replace(place.area, free=tuple(n for n in place.area.free if n not in summed))
        same = False
        if init is not None:
            # It is made in the first iteration of what is summed over.
            for name in summed:
                held = tuple(each.put(name, Linear()) for each in init.conditions)
                init = replace(init, conditions=held)
            alone = replace(leaf, axes=[a for a in leaf.axes if a.name not in summed])
            own_areas = self.areas(alone, areas.partition)
            # What begins has to be all that is summed up, or the rest would begin with nothing.
            begun = own_areas.place(init.conditions)
            if begun is not None and begun.guards == place.guards:
                same = all(begun.area.box[n] == place.area.box[n] for n in kept.order)
        neutral = start is not None and same and identity(op, start)
        if neutral and not first:
            with self.text.when(place.guards):
                write.reduce(own, op, inside, place.area, summed, leaf.block, leaf.engine)
            return
        if init is not None and not neutral:
            with self.text.when(first):
                self._store(alone, own_areas, init)
        with self.text.when(place.guards):
            part = write.tile("float32", kept, kept.kept(self.program.ranges))
            write.reduce(part, op, inside, place.area, summed, leaf.block, leaf.engine)
            joined = Binary(op, own, part, "float32")
            if not neutral:
                write.compute(own, joined, kept, leaf.block, leaf.engine)
                return
            with self.text.when(first):
                write.compute(own, part, kept, leaf.block, leaf.engine)
            with self.text.inside("else:"):
                write.compute(own, joined, kept, leaf.block, leaf.engine)


def _names(value: Expression) -> set[str]:
    """Return the names of the tensors that an expression reads."""
    if isinstance(value, Operand):
        return {value.name}
    return {name for part in parts(value) for name in _names(part)}
