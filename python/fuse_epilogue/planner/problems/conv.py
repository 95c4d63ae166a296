"""A depthwise convolution along one dimension, on a processor.

    y[.., i] = epilogue(sum_f x[.., i + f - left] * weight[.., f])

It has two forms. "rows" is what :mod:`fuse_epilogue.schedules.cpu.rows` writes: every element of x
is loaded once, and the windows of the taps are put together in registers. "tiles" is made of TVM's
loops, see :mod:`fuse_epilogue.schedules.cpu.loops`: a load for every tap. Only the latter can leave
what follows in loops of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ...schedules.convolution import DepthwiseConv, find_depthwise_conv, plain
from ...schedules.cpu.loops import UNROLLED, UNROLLED_AT_BORDERS, in_loops
from ...schedules.cpu.row_limits import why_not_rows
from ...schedules.cpu.rows import in_rows
from ...schedules.fused import find_fused_conv
from ...schedules.prepare import prepare
from ..cost import Terms, traffic_seconds, usable_cores
from ..machine import Cpu
from ..nest import Access, Nest
from ..space import Constraint, Point, Points, Space, Variable
from .epilogue import NONE, Epilogue, find_epilogue, fuse, unfused

TILES, ROWS = 0, 1
_VECTORS = (1, 2, 4, 8)
#: Clocks for one tap of one element in a tile at a border that is not written out: its condition
#: keeps LLVM from vectors. Measured, on znver5.
_CONDITION = 3.0


@dataclass(frozen=True)
class ConvProblem:
    """A depthwise convolution and a processor; see :class:`.problem.Problem`.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    machine : Cpu
    sizes : dict[str, int]
        "rows": images times channels; "columns" of the result; "taps".
    dtype : str
        Of x.
    bits : int
        Of a sum.
    bytes : int
        Of an element of x.
    epilogue : Epilogue
    in_rows : tuple[int, ...]
        The ways to fuse in which the form "rows" is possible.
    why_not_rows : str
        Why it is in none; "" if it is in one.
    columns_last : bool
        Whether columns, and not channels, are neighbours in memory.
    """

    func: tirx.PrimFunc
    machine: Cpu
    sizes: dict[str, int]
    dtype: str
    bits: int
    bytes: int
    epilogue: Epilogue
    in_rows: tuple[int, ...]
    why_not_rows: str
    columns_last: bool
    kind: str = "conv"

    @cached_property
    def space(self) -> Space:
        """The variables, and what forbids some of their values."""
        widest = self.machine.lanes(self.bits)
        lanes = tuple(dict.fromkeys((max(1, widest // 2), widest)))
        forms = (TILES,) if self.why_not_rows else (TILES, ROWS)
        threads = tuple(dict.fromkeys((1, self.machine.cores)))
        variables = (
            self.epilogue.variable,
            Variable(
                "form",
                forms,
                "",
                "loads of x: one for each tap, or one for all",
                ("tiles", "rows")[: len(forms)],
            ),
            Variable("vectors", _VECTORS, "vectors", "vectors of a tile"),
            Variable("lanes", lanes, "elements", "elements of a vector"),
            Variable("threads", threads, "cores", "cores that compute rows"),
        )
        constraints = (
            Constraint(
                "one pass",
                0,
                "passes",
                lambda p: (p["form"] == ROWS) & ~np.isin(p["fusion"], self.in_rows),
                "rows are written with all that follows, where that is a value of each sum",
            ),
            Constraint(
                "one way",
                1,
                "vectors",
                lambda p: np.where(p["form"] == ROWS, p["vectors"], 1),
                "of rows LLVM chooses how many vectors it unrolls",
            ),
            Constraint(
                "registers",
                self.machine.registers,
                "registers",
                lambda p: np.where(p["form"] == ROWS, 2 + self.sizes["taps"], p["vectors"]),
                "each sum of a tile has a register, and each tap of a row",
            ),
            Constraint(
                "written out",
                UNROLLED,
                "updates",
                lambda p: np.where(p["form"] == TILES, p["vectors"] * self.sizes["taps"], 0),
                "more code than this takes LLVM long",
            ),
        )
        return Space(variables, constraints)

    def cost(self, points: Points) -> Terms:
        """Return the terms of the cost of points."""
        p, machine, core, epilogue = points, self.machine, self.machine.core, self.epilogue
        rows, columns, taps = (self.sizes[name] for name in ("rows", "columns", "taps"))
        lanes, vectors = p["lanes"], p["vectors"]
        in_registers = p["form"] == ROWS
        apart = (p["fusion"] == NONE) & (epilogue.blocks > 0)
        at = ((("r", 1),), (("c", 1),))
        size = self.bits // 8
        once = Nest(
            (("r", rows), ("c", columns)),
            (Access("x", at, self.bytes), Access("y", at, size, True)),
        )
        twice = Nest(once.loops, (Access("sums", at, size), Access("y", at, size, True)))
        private, shared = (
            a + apart * b
            for a, b in zip(
                traffic_seconds(once, machine), traffic_seconds(twice, machine), strict=True
            )
        )
        # Of a vector. A load at an odd place crosses a line every other time or more.
        crossing = 1 + np.minimum(1.0, lanes * self.bytes / machine.line)
        loads = np.where(in_registers, 1.0, taps * (crossing if self.columns_last else 1.0))
        loads = loads + np.where(in_registers, 0.0, taps / vectors)
        shuffles = np.where(in_registers, taps - 1.0, 0.0)
        converts = np.where(in_registers, 1, taps) * (self.bits > 8 * self.bytes)
        after = np.where(apart, 0, epilogue.operations)
        units = (taps + converts) / core.fma + (shuffles + after) / core.add
        issued = loads + taps + shuffles + converts + after + 1 + 3 / vectors
        each = np.maximum.reduce(
            np.broadcast_arrays(
                units, loads / core.load, np.ones(p.size) / core.store, issued / core.issue
            )
        )
        count = rows * -(-columns // lanes)
        own = apart * count * (epilogue.operations / core.add + 2 / core.load + 1 / core.store)
        # The first and the last tile of a row: with conditions, written out or not.
        rolled = vectors * taps > UNROLLED_AT_BORDERS
        tile = np.where(rolled, 2 * lanes * vectors * taps * _CONDITION, vectors * taps * each)
        ends = rows * (core.branch + np.where(in_registers, 2.0 * each, tile))
        latency = (count * each + own + ends) / machine.clock_hz
        live = np.where(in_registers, taps + 3, vectors + 1)
        over = np.maximum(0, live - machine.registers)
        spill = over * (1 / core.store + 1 / core.load) * count / machine.clock_hz
        several = p["threads"] > 1
        saved = (latency + private) * (1.0 - 1.0 / usable_cores(rows, p["threads"]))
        started = machine.call_s + several * (1 + apart) * machine.launch_s
        ones = np.ones(p.size)
        return Terms((private + shared) * ones, latency + started, spill * ones, saved * ones)

    def resized(self, name: str, size: int) -> ConvProblem | None:
        """Return the problem with another size; it costs points, but its function stays."""
        if name not in self.sizes or size < 1:
            return None
        return replace(self, sizes={**self.sizes, name: size})

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the function scheduled; its borders are split, or it is written in rows."""
        self.space.check(point)
        prepared = prepare(self.func)
        assert prepared is not None, "it was when the problem was found"
        sch, conv = prepared
        mode, lanes = point["fusion"], point["lanes"]
        if point["form"] == ROWS:
            fuse(sch, conv, mode)
            fused = find_fused_conv(sch, conv)
            assert fused is not None, "it was when the problem was found"
            func = in_rows(sch.mod["main"], fused, lanes, self.machine.target)
            return _on(func, point["threads"])
        found = find_depthwise_conv(sch.get(conv))
        assert found is not None, "it was when the problem was found"

        def follow(sch: s_tir.Schedule, conv: Any) -> None:
            if mode != NONE:
                fuse(sch, conv, mode)
                return
            blocks = [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))]
            last = unfused(sch, blocks[blocks.index(sch.get(conv).name_hint) + 1 :])
            if last is not None:
                _in_vectors(sch, last, lanes, point["threads"] > 1)

        func = in_loops(sch, conv, found, lanes, point["vectors"], follow)
        return _on(func, point["threads"])


def _on(func: tirx.PrimFunc, threads: int) -> s_tir.Schedule:
    """Return a function whose rows are in parallel as a schedule, for one core without that."""
    if threads == 1:

        def serial(loop: Any) -> Any:
            if loop.kind != tirx.ForKind.PARALLEL:
                return loop
            kind = tirx.ForKind.SERIAL
            return tirx.For(
                loop.loop_var, loop.min, loop.extent, kind, loop.body, annotations=loop.annotations
            )

        func = func.with_body(tvm_ffi.structural_map(func.body, (tirx.For, serial)))
    return s_tir.Schedule(func)


def _in_vectors(sch: s_tir.Schedule, block: Any, lanes: int, parallel: bool) -> None:
    """Schedule an elementwise block: its last axis in vectors, the others in parallel."""
    *rows, columns = sch.get_loops(block)
    if int(sch.get(columns).extent) % lanes == 0:
        sch.vectorize(sch.split(columns, [None, lanes])[1])
    if rows and parallel:
        sch.parallel(sch.fuse(*rows) if len(rows) > 1 else rows[0])


def find_conv(func: tirx.PrimFunc, machine: Cpu) -> ConvProblem | None:
    """Return the depthwise convolution that a function is, None if it is something else.

    Parameters
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    machine : Cpu
    """
    prepared = prepare(func)
    if prepared is None:
        return None
    sch, conv = prepared
    found = find_depthwise_conv(sch.get(conv))
    epilogue = find_epilogue(sch, conv) if found is not None else None
    if found is None or epilogue is None:
        return None
    outer = [plain(axis.dom.extent) for axis in found.outer]
    if not all(isinstance(size, int) for size in (*outer, found.columns, found.width)):
        return None
    bits = int(tvm.DataType(str(found.out.ty.dtype)).bits)
    dtype = str(found.data.source.ty.dtype)
    return ConvProblem(
        func,
        machine,
        {"rows": prod(outer), "columns": found.columns, "taps": found.taps},
        dtype,
        bits,
        int(tvm.DataType(dtype).bits) // 8,
        epilogue,
        *_rows(sch, conv, epilogue, machine.lanes(bits)),
        _columns_last(found),
    )


def _rows(
    sch: s_tir.Schedule, conv: Any, epilogue: Epilogue, lanes: int
) -> tuple[tuple[int, ...], str]:
    """Return the ways to fuse in which the form "rows" is possible, and why it is in none."""
    name, possible = sch.get(conv).name_hint, []
    why = "what follows does not compute one element from each sum"
    for mode in epilogue.modes:
        if mode == NONE and epilogue.blocks:
            continue
        copy = sch.copy()
        fuse(copy, name, mode)
        fused = find_fused_conv(copy, copy.get_sblock(name))
        if fused is None:
            continue
        against = why_not_rows(fused, lanes)
        if against is None:
            possible.append(mode)
        else:
            why = against
    return tuple(possible), "" if possible else why


def _columns_last(found: DepthwiseConv) -> bool:
    return bool(found.out.indices[-1].same_as(found.column.var))
