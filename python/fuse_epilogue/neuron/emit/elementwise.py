"""Writes instructions: operands become text, what no instruction computes at once is cut up."""

from __future__ import annotations

from dataclasses import replace

from ..isa import INSTRUCTIONS
from ..isa.arithmetic import BITWISE
from .moves import Moves
from .patterns import Column, Site, Tile, inner, number
from .program import (
    FLOATS,
    SMALL,
    Binary,
    Compare,
    Convert,
    Expression,
    Function,
    Number,
    Operand,
    Rounded,
    Where,
    parts,
    with_parts,
)
from .reductions import Reduced
from .refusals import EmitError
from .select import Call, select
from .views import Area

#: Instructions that reduce what they compute on the way, and by which operations: those of the
#: vector engine have no second operation then.
REDUCING = {
    "activation": ("activation_reduce", frozenset({"add"})),
    "tensor_scalar": (
        "tensor_scalar_reduce",
        frozenset({"add", "maximum", "minimum", "multiply"}),
    ),
}


def _squared(value: Expression) -> Expression:
    """Return the square of something as a function, which the scalar engine sums up on the way."""
    if isinstance(value, Binary) and value.op == "multiply" and value.a == value.b:
        return Function("square", value.a, value.dtype) if value.dtype == "float32" else value
    return value


def _is_bitwise(value: Expression) -> bool:
    """Return whether something combines bits of integers, which no engine rounds."""
    return isinstance(value, Binary) and value.op in BITWISE


def _moved(each: Expression, target: Expression, value: Expression) -> bool:
    """Return whether a choice only copies something: an integer of which float32 has all."""
    if not isinstance(value, Where) or target.dtype not in SMALL:
        return False
    moved = (target, value, value.a, value.b)
    same = isinstance(each, (Operand, Where)) and each.dtype == target.dtype
    return same and any(each is part for part in moved)


class Elementwise(Moves):
    """Writes what a block computes, besides moving things and products of matrices."""

    def compute(
        self,
        target: Operand,
        value: Expression,
        area: Area,
        block: str,
        engine: str | None,
        first: bool = False,
        reduced: Reduced | None = None,
    ) -> bool:
        """Write the instructions for ``target = value``.

        - `target`: on the chip.
        - `value`: over operands on the chip.
        - `area`: where.
        - `block`: for messages.
        - `engine`: which engine shall do it.
        - `first`: whether this begins a sum: the scalar engine is tried first, which adds a bias on
          the way while the vector engine is busy with the rest.
        - `reduced`: a reduction of all that is computed, along partitions, if it is wanted as well.
        - Returns: whether the last instruction reduces; if not, the reduction is still to be
          written.
        - Raises EmitError: no instruction computes it.
        """
        rounds = isinstance(value, Rounded)
        if isinstance(value, Convert) and value.dtype == target.dtype:
            value = value.a
        if isinstance(value, Compare) and value.dtype == target.dtype:
            self.masks.add(target.name)
        self._typed(value if rounds else target, value, block)
        kept = area.kept(self.ranges)
        site = Site(kept, target.space, engine)
        value = self._narrow(value, target, area, site, block, top=True)
        if isinstance(value, Where):
            self._where(target, value, area, block, site)
            return False
        call = None
        if first and engine is None and not isinstance(value, (Number, Operand)):
            call = select(value, replace(site, engine="scalar"))
        call = call or select(value, site)
        while call is None:
            value = self._simpler(value, area, site, block)
            call = select(value, site)
        return self._write(target, call, area, kept, block, reduced)

    def _typed(self, target: Expression, value: Expression, block: str) -> None:
        """Refuse to compute with what is not a float."""
        whole: list[Expression] = [target, value]
        for each in whole:
            whole += parts(each)
            if each.dtype not in FLOATS and not isinstance(each, Number):
                if isinstance(value, (Number, Operand)) and value.dtype == target.dtype:
                    continue
                if isinstance(each, Compare) or self._is_mask(each):
                    continue
                if isinstance(each, Operand) and each.exact or _is_bitwise(each):
                    continue
                if each is target and _is_bitwise(value) or _moved(each, target, value):
                    continue
                raise EmitError("dtype", f"block '{block}'", f"computes with {each.dtype}")

    def _is_mask(self, value: Expression) -> bool:
        return isinstance(value, Operand) and value.name in self.masks

    def _where(self, target: Operand, value: Where, area: Area, block: str, site: Site) -> None:
        """Write a choice that data make: one of the two values, then the other over it."""
        if site.engine not in (None, "vector"):
            reason = f"the {site.engine} engine has no instruction for a choice that data make"
            raise EmitError("engine", f"block '{block}'", reason)
        mask, chosen = value.mask, value.a
        if not isinstance(mask, Operand):
            mask = self._temporary(mask, mask.dtype, area, block, site)
        # What is copied has the type of where it goes, and is not overwritten before.
        plain = isinstance(chosen, Operand) and chosen.name != target.name
        if not isinstance(chosen, Number) and not (plain and chosen.dtype == target.dtype):
            chosen = self._temporary(chosen, target.dtype, area, block, site)
        self.compute(target, value.b, area, block, site.engine)
        kept = area.kept(self.ranges)
        source = self.view(chosen, area, kept, block) if isinstance(chosen, Operand) else ""
        if isinstance(chosen, Number):
            source = number(chosen.value)
        self.text.call(
            "nisa.tensor_copy_predicated",
            [
                self.view(target, area, kept, block),
                source,
                self.view(mask, area, kept, block),
            ],
        )
        self._widen(target, area, kept, block)

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
        shifted = self._shifted(value, area, site, block)
        if shifted is not None:
            return shifted
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

    def _shifted(self, value: Expression, area: Area, site: Site, block: str) -> Expression | None:
        """Return ``f(t - c)`` as ``f(t + -c)``, which one activation computes, c being a column.

        Both round once, to the same float. None if it is something else.
        """
        if not isinstance(value, Function):
            return None
        inside = value.a
        if not isinstance(inside, Binary) or inside.op != "subtract" or not inner(inside):
            return None
        column = site.column(inside.b)
        if column is None or not isinstance(inside.a, Operand) or site.column(inside.a) is not None:
            return None
        negative = Binary("multiply", column, Number(-1.0, "float32"), "float32")
        made = self._temporary(negative, "float32", replace(area, free=()), block, site)
        return replace(value, a=Binary("add", inside.a, made, "float32"))

    def _none(self, value: Expression, site: Site, block: str) -> EmitError:
        what = type(value).__name__
        if isinstance(value, Binary):
            what = f"{value.op} in {value.dtype}"
        elif isinstance(value, Operand):
            what = f"a copy of {value.dtype} that does not round"
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
        return replace(target, exact=target.exact or _is_bitwise(value))

    def _write(
        self,
        target: Operand,
        call: Call,
        area: Area,
        kept: tuple[str, ...],
        block: str,
        reduced: Reduced | None,
    ) -> bool:
        """Write an instruction; return whether it reduces what it computes, as is wanted."""
        arguments = [self.view(target, area, kept, block)]
        # `activation` takes the operation before its data, the others after.
        for name, argument in call.arguments:
            if isinstance(argument, Tile):
                text = self.view(argument.operand, area, kept, block)
            elif isinstance(argument, Column):
                text = self._column(argument.operand, area, block)
            else:
                text = argument
            arguments.append(f"{name}={text}" if name else text)
        if call.engine != INSTRUCTIONS[call.name].engines[0]:
            arguments.append(f"engine=nisa.{call.engine}_engine")
        name, operations = REDUCING.get(call.name, ("", frozenset()))
        second = any(parameter == "op1" for parameter, _ in call.arguments)
        both = reduced is not None and reduced.op in operations and not second
        both = both and call.engine == INSTRUCTIONS[name].engines[0]
        if both:
            assert reduced is not None
            column = self.view(reduced.target, replace(area, free=()), (), block)
            arguments += [f"reduce_op=nl.{reduced.op}", f"reduce_res={column}"]
        self.text.call(f"nisa.{name if both else call.name}", arguments)
        self._widen(target, area, kept, block)
        if both:
            assert reduced is not None
            self._widen(reduced.target, replace(area, free=()), (), block)
        return both

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
            made = self.tile("float32", ordered, ordered.kept(self.ranges))
            wanted = None if free or engine is not None else Reduced(op, target)
            if wanted is not None and op == "add":
                value = _squared(value)
            if self.compute(made, value, ordered, block, None, reduced=wanted):
                return
            value = made
        axes = tuple(range(1 + len(free), 1 + len(free) + len(over)))
        axis = str(axes[0]) if len(axes) == 1 else str(axes)
        arguments = [
            self.view(target, ordered, free, block),
            f"nl.{op}",
            self.view(value, ordered, (*free, *over), block),
            f"axis={axis}",
        ]
        if engine not in (None, "vector"):
            raise EmitError("engine", f"block '{block}'", f"the {engine} engine does not reduce")
        self.text.call("nisa.tensor_reduce", arguments)
        self._widen(target, ordered, free, block)
