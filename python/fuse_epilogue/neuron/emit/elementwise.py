"""Writes instructions: operands become text, what no instruction computes at once is cut up."""

from __future__ import annotations

from dataclasses import replace

from ..instructions import INSTRUCTIONS
from .linear import Interval, Linear
from .patterns import Column, Site, Tile, inner, number
from .program import Binary, Convert, Expression, Names, Number, Operand, parts, with_parts
from .refusals import EmitError
from .select import Call, select
from .terms import FLOATS
from .text import Text
from .views import Area, at_start, written

Ranges = dict[str, Interval]


class Elementwise:
    """Writes instructions of one kernel.

    Parameters
    ----------
    names : Names
        Those that are taken.
    ranges : dict[str, Interval]
        The values of all terms.
    text : Text
        Where to write.
    widened : frozenset[str]
        Tensors that have a copy in float32.

    Attributes
    ----------
    wanted : set[str]
        Tensors that need one: their columns are operands.
    """

    def __init__(self, names: Names, ranges: Ranges, text: Text, widened: frozenset[str]) -> None:
        self.names = names
        self.ranges = ranges
        self.text = text
        self.widened = widened
        self.wanted: set[str] = set()
        self._ones: dict[str, tuple[str, int]] = {}

    # ---- Constants ---------------------------------------------------------------------------

    def ones(self, dtype: str, size: int, axes: tuple[str, ...]) -> Operand:
        """Return a row of ones in one partition, along an axis if there is one."""
        name, known = self._ones.get(dtype, ("", 0))
        name = name or self.names.unique("ones")
        self._ones[dtype] = (name, max(known, size))
        along = Linear({axis: 1 for axis in axes})
        # The size of the row is known at the end: nothing is "all of it" before.
        return Operand(name, "sbuf", dtype, (1, 0), (Linear(), along))

    def constants(self) -> list[str]:
        """Return the lines that make the rows of ones."""
        lines = []
        for dtype, (name, size) in self._ones.items():
            lines.append(f"    {name} = nl.ndarray((1, {size}), nl.{dtype}, buffer=nl.sbuf)")
            lines.append(f"    nisa.memset({name}, 1.0)")
        return lines

    # ---- Instructions ------------------------------------------------------------------------

    def dma(self, target: Operand, value: Operand, area: Area, block: str) -> None:
        """Write a transfer."""
        kept = area.kept(self.ranges)
        self.text.call(
            "nisa.dma_copy",
            [self._view(target, area, kept, block), self._view(value, area, kept, block)],
        )
        self._widen(target, area, kept, block)

    def transpose(
        self, target: Operand, value: Operand, area: Area, columns: tuple[str, ...], block: str
    ) -> None:
        """Write a transposition: `columns` counts the partitions of what is read, if several."""
        assert area.partition is not None
        turned = replace(area, partition=(*columns, None)[0], free=(area.partition,))
        gone = tuple(name for name in area.free if name not in columns)
        self.text.call(
            "nisa.nc_transpose",
            [
                written(at_start(target, area, gone), area, columns, block),
                written(at_start(value, area, gone), turned, turned.free, block),
            ],
        )

    def diagonal(self, target: Operand, on: Number, off: Number, area: Area, block: str) -> None:
        """Write one number on the diagonal of a square, another one elsewhere.

        No access pattern goes along a diagonal on the chip, where each partition is a memory of
        its own; in HBM it is a column with a larger stride.
        """
        assert area.partition is not None
        (column,) = area.free
        size = self._extent(area, area.partition)
        far = self.names.unique(f"{target.name}_hbm")
        spots = self.names.unique(f"{target.name}_diagonal")
        here = self._view(target, area, (column,), block)
        self.text.call("nisa.memset", [here, number(off.value)])
        line = f"{spots} = nl.ndarray(({size}, 1), nl.{target.dtype}, buffer=nl.sbuf)"
        self.text.add(line)
        self.text.call("nisa.memset", [spots, number(on.value)])
        line = f"{far} = nl.ndarray(({size}, {size}), nl.{target.dtype}, buffer=nl.hbm)"
        self.text.add(line)
        self.text.call("nisa.dma_copy", [far, here])
        self.text.call(
            "nisa.dma_copy", [f"{far}.ap((({size + 1}, {size}), (1, 1)), offset=0)", spots]
        )
        self.text.call("nisa.dma_copy", [here, far])

    def compute(
        self,
        target: Operand,
        value: Expression,
        area: Area,
        block: str,
        engine: str | None,
        first: bool = False,
    ) -> None:
        """Write the instructions for ``target = value``.

        Parameters
        ----------
        target : Operand
            On the chip.
        value : Expression
            Over operands on the chip.
        area : Area
            Where.
        block : str
            For messages.
        engine : str or None
            Which engine shall do it.
        first : bool
            Whether this begins a sum: the scalar engine is tried first, which adds a bias on the
            way while the vector engine is busy with the rest.

        Raises
        ------
        EmitError
            No instruction computes it.
        """
        if isinstance(value, Convert) and value.dtype == target.dtype:
            value = value.a
        self._typed(target, value, block)
        kept = area.kept(self.ranges)
        site = Site(kept, target.space, engine)
        value = self._narrow(value, target, area, site, block, top=True)
        call = None
        if first and engine is None and not isinstance(value, (Number, Operand)):
            call = select(value, replace(site, engine="scalar"))
        call = call or select(value, site)
        while call is None:
            value = self._simpler(value, area, site, block)
            call = select(value, site)
        self._write(target, call, area, kept, block)

    def _typed(self, target: Operand, value: Expression, block: str) -> None:
        """Refuse to compute with what is not a float."""
        whole: list[Expression] = [target, value]
        for each in whole:
            whole += parts(each)
            if each.dtype not in FLOATS and not isinstance(each, Number):
                if isinstance(value, (Number, Operand)) and value.dtype == target.dtype:
                    continue
                raise EmitError("dtype", f"block '{block}'", f"computes with {each.dtype}")

    def _narrow(
        self,
        value: Expression,
        target: Operand,
        area: Area,
        site: Site,
        block: str,
        top: bool = False,
    ) -> Expression:
        """Round what TIR rounds in the middle of an expression, in tiles of that type."""
        made = with_parts(value, lambda part: self._narrow(part, target, area, site, block))
        if top or isinstance(made, (Number, Operand)) or made.dtype == "float32":
            return made
        return self._temporary(made, made.dtype, area, block, site)

    def _simpler(self, value: Expression, area: Area, site: Site, block: str) -> Expression:
        """Compute a part of an expression into a tile of its own."""
        inside: list[Expression]
        inside = [part for part in parts(value) if not isinstance(part, (Number, Operand))]
        if not inside:
            inside += [p for p in parts(value) if isinstance(p, Operand) and p.space == "psum"]
            if len(inside) < 2:
                raise self._none(value, site, block)
        # A part that an instruction takes along as it is comes last.
        chosen = min(inside, key=lambda part: inner(part) and select(part, site) is not None)
        if site.engine is not None and select(chosen, site) is None and not parts(chosen):
            raise self._none(value, site, block)
        temporary = self._temporary(chosen, "float32", area, block, site)
        return with_parts(value, lambda part: temporary if part is chosen else part)

    def _none(self, value: Expression, site: Site, block: str) -> EmitError:
        what = f"{value.op} in {value.dtype}" if isinstance(value, Binary) else type(value).__name__
        if site.engine is not None and select(value, replace(site, engine=None)) is not None:
            reason = f"the {site.engine} engine has no instruction for {what}"
            return EmitError("engine", f"block '{block}'", reason)
        return EmitError("expression", f"block '{block}'", f"no instruction computes {what}")

    def _temporary(
        self, value: Expression, dtype: str, area: Area, block: str, site: Site
    ) -> Operand:
        """Compute into a tile of its own, over the same elements."""
        target = self.tile(dtype, area, area.kept(self.ranges))
        self.compute(target, value, area, block, site.engine)
        return target

    def tile(self, dtype: str, area: Area, free: tuple[str, ...]) -> Operand:
        """Allocate a tile with an element for each iteration of an area."""
        name = self.names.unique("part")
        shape, index = [1], [Linear()]
        if area.partition is not None:
            shape, index = [self._extent(area, area.partition)], [Linear({area.partition: 1})]
        for each in free:
            shape.append(self._extent(area, each))
            index.append(Linear({each: 1}))
        if len(shape) == 1:
            shape.append(1)
            index.append(Linear())
        sizes = ", ".join(map(str, shape))
        self.text.add(f"{name} = nl.ndarray(({sizes}), nl.{dtype}, buffer=nl.sbuf)")
        if name in self.widened:
            self.text.add(f"{name}_f32 = nl.ndarray(({sizes}), nl.float32, buffer=nl.sbuf)")
        return Operand(name, "sbuf", dtype, tuple(shape), tuple(index))

    def _extent(self, area: Area, name: str) -> int:
        return area.box[name][1].bounds(self.ranges)[1]

    def _write(
        self, target: Operand, call: Call, area: Area, kept: tuple[str, ...], block: str
    ) -> None:
        """Write an instruction."""
        arguments = [self._view(target, area, kept, block)]
        # `activation` takes the operation before its data, the others after.
        for name, argument in call.arguments:
            if isinstance(argument, Tile):
                text = self._view(argument.operand, area, kept, block)
            elif isinstance(argument, Column):
                text = self._column(argument.operand, area, block)
            else:
                text = argument
            arguments.append(f"{name}={text}" if name else text)
        if call.engine != INSTRUCTIONS[call.name].engines[0]:
            arguments.append(f"engine=nisa.{call.engine}_engine")
        self.text.call(f"nisa.{call.name}", arguments)
        self._widen(target, area, kept, block)

    def _view(self, operand: Operand, area: Area, kept: tuple[str, ...], block: str) -> str:
        """Write an operand with an element for each iteration."""
        gone = tuple(name for name in area.free if name not in kept)
        return written(at_start(operand, area, gone), area, kept, block)

    def _column(self, operand: Operand, area: Area, block: str) -> str:
        """Write one value for each partition, in float32."""
        if operand.dtype != "float32":
            self.wanted.add(operand.name)
            operand = replace(operand, name=f"{operand.name}_f32", dtype="float32")
        return written(at_start(operand, area, area.free), area, (), block)

    def _widen(self, target: Operand, area: Area, kept: tuple[str, ...], block: str) -> None:
        """Write the copy in float32 of a tensor whose columns are operands."""
        if target.name not in self.widened:
            return
        wide = replace(target, name=f"{target.name}_f32", dtype="float32")
        self.text.call(
            "nisa.tensor_copy",
            [self._view(wide, area, kept, block), self._view(target, area, kept, block)],
        )

    # ---- Reductions --------------------------------------------------------------------------

    def reduce(
        self,
        target: Operand,
        op: str,
        value: Expression,
        area: Area,
        summed: list[str],
        block: str,
        engine: str | None,
    ) -> None:
        """Write ``target = reduction of value`` over the free axes `summed`."""
        kept = area.kept(self.ranges)
        free = tuple(n for n in kept if n not in summed)
        over = tuple(n for n in kept if n in summed)
        ordered = replace(area, free=(*(n for n in area.free if n not in summed), *summed))
        if not over:
            self.compute(target, value, replace(area, free=free), block, engine)
            return
        if not isinstance(value, Operand):
            value = self._temporary(value, "float32", ordered, block, Site((), "sbuf", None))
        axes = tuple(range(1 + len(free), 1 + len(free) + len(over)))
        axis = str(axes[0]) if len(axes) == 1 else str(axes)
        arguments = [
            self._view(target, ordered, free, block),
            f"nl.{op}",
            self._view(value, ordered, (*free, *over), block),
            f"axis={axis}",
        ]
        if engine == "gpsimd":
            arguments.append("engine=nisa.gpsimd_engine")
        elif engine not in (None, "vector"):
            raise EmitError("engine", f"block '{block}'", f"the {engine} engine does not reduce")
        self.text.call("nisa.tensor_reduce", arguments)
        self._widen(target, ordered, free, block)

    # ---- Matrices ----------------------------------------------------------------------------

    def matmul(
        self,
        target: str,
        stationary: str,
        moving: str,
        accumulate: str,
    ) -> None:
        """Write a product of matrices."""
        self.text.call("nisa.nc_matmul", [target, stationary, moving, f"accumulate={accumulate}"])
