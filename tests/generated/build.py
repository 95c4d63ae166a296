"""TIR of a program, made of IR nodes directly: parsing TVMScript would take most of the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, s_tir, tirx

from . import expressions
from .expressions import TABLE
from .hazards import hazard_block
from .layouts import ALL_READS, ALL_WRITES, Dims
from .literals import literal
from .monoids import ROWS
from .nests import COMM_REDUCE, SPATIAL, Block, Nests, cast, inside, like, point, whole
from .spec import Epilogue, Expr, Program
from .stages import Stage, stages_of

REDUCTION = "reduce"
RESULT = "result"


def epilogue_name(number: int) -> str:
    """Return the name of an epilogue's block."""
    return f"epilogue{number}"


def output_name(number: int) -> str:
    """Return the name of an epilogue's output, unless it shares a buffer."""
    return f"D{number}"


def input_name(number: int, node: Expr) -> str:
    """Return the name of an input of an epilogue, unless it shares a buffer."""
    letter = {"lookup": "T", "table": "T", "short": "S"}.get(node[0], "C")
    return f"{letter}{number}_{node[2]}"


def build(program: Program) -> tirx.PrimFunc:
    """Return the function of a program, without its schedule steps."""
    return Builder(program).function()


class Builder(Nests):
    """Builds the function of a program.

    Attributes
    ----------
    program : Program
    spatial, reduce : tuple
        The extents of the reduction's axes, with variables for those that are not known.
    stages : list[Stage]
    buffers : list
        The buffer of each stage.
    allocated : list
        Those that the function allocates.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program.index)
        self.program = program
        self.allocated: list[Any] = []
        extents = list(program.reduction.spatial)
        depths = list(program.reduction.reduce)
        if program.symbolic:
            extents[0] = tirx.Var("n", self.index)
            depths[0] = tirx.Var("m", self.index)
        self.spatial: Dims = tuple(extents)
        self.reduce: Dims = tuple(depths)
        self.stages: list[Stage] = stages_of(program, self.spatial)
        self.buffers: list[Any] = []

    def make_buffers(self) -> None:
        program = self.program
        first = self.stages[0]
        result = self.declare(RESULT, first.shape, first.dtype)
        self.buffers = [result]
        if program.reduction.parameter:
            self.params[RESULT] = result
        else:
            self.allocated.append(result)
        for number, epilogue in enumerate(program.epilogues):
            stage = self.stages[number + 1]
            if epilogue.alias == "source":
                self.buffers.append(self.source())
                continue
            name = output_name(number)
            buffer = self.declare(name, stage.shape, stage.dtype)
            self.buffers.append(buffer)
            if epilogue.parameter:
                self.params[name] = buffer
            else:
                self.allocated.append(buffer)

    def source(self) -> Any:
        reduction = self.program.reduction
        if reduction.term == "window":
            shape = (self.spatial[0] + self.reduce[0], *self.spatial[1:], *self.reduce[1:])
        else:
            shape = (*self.spatial, *self.reduce)
        return self.parameter("X", shape, reduction.source)

    # ---- The function ----

    def function(self) -> tirx.PrimFunc:
        program = self.program
        self.make_buffers()
        statements: list[Any] = []
        for slot in range(len(program.epilogues) + 2):
            for number, hazard in enumerate(program.hazards):
                if hazard.at == slot:
                    statements.append(hazard_block(self, hazard, f"other{number}"))
            if slot == 0:
                statements += self.reduction()
            elif slot <= len(program.epilogues):
                statements.append(self.epilogue(slot - 1))
        root = s_tir.SBlock(
            [],
            [],
            [],
            "root",
            statements[0] if len(statements) == 1 else tirx.SeqStmt(statements),
            alloc_buffers=self.allocated,
        )
        attrs = ir.make_node("ir.DictAttrs", s_tir=True, global_symbol="main")
        return tirx.PrimFunc(
            list(self.params.values()), s_tir.SBlockRealize([], True, root), attrs=attrs
        )

    # ---- The reduction ----

    def term(self, block: Block, s: list[Any], r: list[Any]) -> Any:
        reduction = self.program.reduction
        dtype = reduction.accumulator
        source = self.source()
        if reduction.term == "window":
            value = block.load(source, (s[0] + r[0], *s[1:], *r[1:]))
        else:
            value = block.load(source, (*s, *r))
        if reduction.term == "less one":
            value = tirx.Sub(value, literal(reduction.source, 1))
        value = cast(dtype, value)
        if reduction.term in ("product", "two loads"):
            second = self.parameter("W", (self.spatial[-1], *self.reduce), reduction.source)
            other = cast(dtype, block.load(second, (s[-1], *r)))
            name = "mul" if reduction.term == "product" else ROWS[reduction.monoid].operation
            return expressions.BINARY[name](value, other)
        if reduction.term == "masked":
            return tirx.Select(tirx.GE(r[0], like(r[0], 1)), value, literal(dtype, 1))
        return value

    def initial(self, block: Block, s: list[Any], r: list[Any]) -> Any:
        reduction = self.program.reduction
        dtype = reduction.accumulator
        if reduction.fault == "init by step":
            return tirx.Cast(dtype, r[0])
        if reduction.init == "literal":
            return literal(dtype, reduction.literal)
        if reduction.init == "buffer":
            return block.load(self.parameter("G", (self.spatial[-1],), dtype), (s[-1],))
        if reduction.init == "scalar":
            return block.load(self.parameter("G", (), dtype), ())
        return ROWS[reduction.monoid].identity(dtype)

    def reduction(self) -> list[Any]:
        reduction = self.program.reduction
        fault, dtype = reduction.fault, reduction.accumulator
        result = self.buffers[0]
        rank = len(self.spatial)
        write = ALL_WRITES[reduction.layout]
        combine = expressions.BINARY[ROWS[reduction.monoid].operation]
        second = None
        if fault == "tuple":
            second = self.parameter("result2", self.stages[0].shape, dtype)

        def make(block: Block, axes: list[Any]) -> tuple[Any, Any, Any]:
            s, r = axes[:rank], axes[rank:]
            place = list(write.place(write.element(self.spatial, tuple(s))))
            accumulator = tirx.BufferLoad(result, place)
            term = self.term(block, s, r)
            value = {
                "accumulator first": lambda: combine(accumulator, term),
                "term first": lambda: combine(term, accumulator),
                "subtracted": lambda: tirx.Sub(accumulator, term),
            }[reduction.update]()
            start = self.initial(block, s, r)
            if fault == "clamped":
                value = tirx.Max(value, literal(dtype, 0))
            if fault == "init of itself":
                start = combine(tirx.BufferLoad(result, place), literal(dtype, 1))
            body = tirx.BufferStore(result, value, place)
            init = None if fault == "no init" else tirx.BufferStore(result, start, place)
            if second is not None:
                again = combine(tirx.BufferLoad(second, place), term)
                body = tirx.SeqStmt([body, tirx.BufferStore(second, again, place)])
                init = tirx.SeqStmt([init, tirx.BufferStore(second, start, place)])
            return body, init, None

        def writes(axes: list[Any]) -> list[Any]:
            place = write.place(write.element(self.spatial, tuple(axes[:rank])))
            return [point(b, place) for b in (result, second) if b is not None]

        def bindings(loops: list[Any]) -> list[Any]:
            if fault == "reversed":
                return [*loops[:rank], self.reduce[0] - 1 - loops[rank], *loops[rank + 1 :]]
            return list(loops)

        def predicate(loops: list[Any]) -> Any:
            return tirx.LT(loops[rank], self.constant(self.reduce[0] - 1))

        nest = self.nest(
            REDUCTION,
            [(d, 0, SPATIAL) for d in self.spatial] + [(d, 0, COMM_REDUCE) for d in self.reduce],
            reduction.order,
            make,
            writes,
            predicate=predicate if fault == "last step cut" else None,
            kinds={rank: tirx.ForKind.PARALLEL} if fault == "parallel step" else None,
            outside=2 if fault == "repeated" else 0,
            bindings=bindings,
        )
        if fault != "no init":
            return [nest]
        fill = self.element_nest(
            "fill",
            self.stages[0].shape,
            lambda block, axes: ROWS[reduction.monoid].identity(dtype),
            result,
        )
        return [fill, nest]

    # ---- An epilogue ----

    def epilogue(self, number: int) -> Any:
        epilogue = self.program.epilogues[number]
        stage = self.stages[epilogue.stage]
        fault = epilogue.fault
        read = ALL_READS[epilogue.read]
        dims = read.axes(stage.dims)
        output = self.buffers[number + 1]
        index = "int64" if fault == "int64 axes" else self.index
        axes = [(d, epilogue.base, SPATIAL) for d in dims]

        def place(a: list[Any]) -> list[Any]:
            element = ALL_WRITES[epilogue.write].element(dims, tuple(a))
            return [self.constant(i) for i in self.stages[number + 1].place(element)]

        def make(block: Block, a: list[Any]) -> tuple[Any, Any, Any]:
            return self.epilogue_body(number, block, a, dims, place(a))

        def writes(a: list[Any]) -> list[Any]:
            if fault == "scatter":
                return [whole(output)]
            return [point(output, place(a))]

        def predicate(loops: list[Any]) -> Any:
            extent = dims[0] + epilogue.base - (1 if epilogue.predicate == "cut" else 0)
            return tirx.LT(loops[0], like(loops[0], extent))

        order = range(len(dims))
        nest = self.nest(
            epilogue_name(number),
            axes,
            order[::-1] if epilogue.backwards else order,
            make,
            writes,
            predicate=predicate if epilogue.predicate else None,
            outside=2 if fault == "repeated" else 0,
            index=index,
        )
        if fault == "branch around":
            flag = self.parameter("flag", (), "int32")
            condition = tirx.GT(tirx.BufferLoad(flag, []), literal("int32", 0))
            return tirx.IfThenElse(condition, nest, None)
        return nest

    def epilogue_body(
        self, number: int, block: Block, a: list[Any], dims: Dims, place: list[Any]
    ) -> tuple[Any, Any, Any]:
        epilogue = self.program.epilogues[number]
        fault = epilogue.fault
        output = self.buffers[number + 1]
        matched: list[Any] = []

        def stage_at(which: int, element: tuple[Any, ...], key: str) -> Any:
            stage, buffer = self.stages[which], self.buffers[which]
            index = stage.place(element)
            if fault == "matched" and key == "x":
                view = self.declare("view", (1,) * len(index), stage.dtype)
                matched.append(s_tir.MatchBufferRegion(view, point(buffer, index)))
                block.reads[(buffer.name, key)] = point(buffer, index)
                return tirx.BufferLoad(view, [self.constant(0)] * len(index))
            return block.load(buffer, index, which, key)

        def leaf(expr: Expr) -> Any:
            name = expr[0]
            if name in ("x", "y", "next"):
                return self.stage_load(epilogue, name, block, a, stage_at)
            if name == "axis":
                return cast(expr[1], a[-1]) if a else literal(expr[1], 1)
            if name in ("lookup", "table"):
                table = self.parameter(input_name(number, expr), (TABLE,), expr[1])
                return lambda i: block.load_anywhere(table, [i])
            return self.input(number, expr, block, a, dims, place)

        value = expressions.build(epilogue.expr, leaf)
        store = tirx.BufferStore(output, value, place)
        if fault == "two stores":
            extra = self.parameter(f"D{number}_2", self.stages[number + 1].shape, epilogue.dtype)
            return tirx.SeqStmt([store, tirx.BufferStore(extra, value, place)]), None, None
        if fault == "branch inside":
            flag = self.parameter("flag", (), "int32")
            condition = tirx.GT(block.load(flag, ()), literal("int32", 0))
            return tirx.IfThenElse(condition, store, None), None, None
        if fault == "scatter":
            extent = self.stages[number + 1].shape[0]
            row = tirx.FloorMod(cast(self.index, value), self.constant(extent))
            return tirx.BufferStore(output, value, [row, *place[1:]]), None, None
        if fault == "init":
            combine = "or" if epilogue.dtype == "bool" else "max"
            update = expressions.BINARY[combine](tirx.BufferLoad(output, place), value)
            start = tirx.BufferStore(output, literal(epilogue.dtype, 0), place)
            return tirx.BufferStore(output, update, place), start, None
        if fault == "nested":
            inner = s_tir.SBlock(
                [], list(block.reads.values()), [point(output, place)], "inner", store
            )
            return s_tir.SBlockRealize([], True, inner), None, None
        return store, None, matched

    def stage_load(
        self,
        epilogue: Epilogue,
        name: str,
        block: Block,
        a: list[Any],
        stage_at: Callable[[int, tuple[Any, ...], str], Any],
    ) -> Any:
        dims = self.stages[epilogue.stage].dims
        element = ALL_READS[epilogue.read].index(dims, tuple(a))
        if name == "y":
            return stage_at(epilogue.other, element, "y")
        if name == "next":
            return stage_at(epilogue.stage, (element[0] + 1, *element[1:]), "next")
        if epilogue.read == "gather":
            table = self.parameter("rows", (dims[0],), self.index)
            row = block.load(table, (a[0],))
            block.reads[(self.buffers[epilogue.stage].name, "all")] = whole(
                self.buffers[epilogue.stage]
            )
            return tirx.BufferLoad(
                self.buffers[epilogue.stage], list(self.stages[epilogue.stage].place((row, *a[1:])))
            )
        load = stage_at(epilogue.stage, element, "x")
        if epilogue.read == "padded":
            block.reads[(self.buffers[epilogue.stage].name, epilogue.stage, "x")] = whole(
                self.buffers[epilogue.stage]
            )
            outside = literal(self.stages[epilogue.stage].dtype, 0)
            return tirx.if_then_else(inside(element[0], dims[0]), load, outside)
        return load

    def input(
        self,
        number: int,
        expr: Expr,
        block: Block,
        a: list[Any],
        dims: Dims,
        place: list[Any],
    ) -> Any:
        kind, dtype, which = expr[:3]
        epilogue = self.program.epilogues[number]
        name = input_name(number, expr)
        if kind == "short":
            extent, offset = expr[3:]
            short = self.parameter(name, (extent,), dtype)
            return block.load_anywhere(short, [a[-1] - offset if a else self.constant(0)])
        if kind == "elem" and which == 9 and epilogue.alias:
            output = self.buffers[number + 1]
            if epilogue.alias == "bias":
                return block.load(output, place)
            if epilogue.alias == "shifted bias":
                return block.load(output, (place[0] + 1, *place[1:]))
        if kind == "elem":
            return block.load(self.parameter(name, dims, dtype), a)
        if kind == "row" and dims:
            return block.load(self.parameter(name, dims[-1:], dtype), a[-1:])
        return block.load(self.parameter(name, (), dtype), ())


def sizes_of(program: Program, which: int = 0) -> dict[str, int]:
    """Return values for the unknown extents: those in the program, all 1, or others."""
    if not program.symbolic:
        return {}
    n, m = program.reduction.spatial[0], program.reduction.reduce[0]
    return [{"n": n, "m": m}, {"n": 1, "m": 1}, {"n": n + 3, "m": m + 1}][which]
