"""Several reductions along the same rows and what is between them, read from a function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Var, prim

from ...recognize.row_stages import prepared
from ...recognize.stages import Axis, Program, Stage, Store, read_program
from ...rewrites.step import NotRewritten
from ...tir.walk import handle, same, substitute
from .row_blocks import MATRICES, RowWork
from .tiles import axis_loads, is_fixed

#: Reductions that are one of their values: they round nothing, whatever their type.
_EXTREMES = (prim.Max, prim.Min)


@dataclass(frozen=True)
class Stages(RowWork):
    """Stages along the same rows.

    - `stages`: in the order in which they run, over common axes: that of a reduction is "n", as
      that of the columns of an elementwise stage.
    - `result` (tvm.tirx.Buffer): the parameter that the last stage computes.
    """

    stages: tuple[Stage, ...]
    result: Any

    def size(self, letter: str) -> int:
        """Return how long an axis is."""
        return self.axes[letter].extent if letter in self.axes else 1

    @property
    def parts(self) -> list[Any]:
        """The loads of parameters."""
        computed = {handle(stage.output) for stage in self.stages}
        return [
            load
            for stage in self.stages
            for load in stage.loads
            if handle(load.source) not in computed
        ]

    def letters(self, stage: Stage) -> str:
        """Return the letters of a stage's axes, without that of a reduction."""
        return "".join(x for x, axis in self.axes.items() if any(axis is a for a in stage.axes))


def find_row_stages(func: tirx.PrimFunc) -> Stages:
    """Return the stages of a function that reduces the same rows.

    - `func`: not scheduled.
    - Raises NotRewritten: the function is something else; the text says what it misses.
    """
    sch = s_tir.Schedule(func)
    program = read_program(sch.mod["main"]) if is_fixed(func) else None
    if program is None:
        raise NotRewritten(
            "it must consist of blocks that each compute one whole buffer of floats of fixed sizes"
        )
    program, views = prepared(program)
    last = program.stages[-1].output
    result = next((output for view, output in views if same(view, last)), last)
    outputs = [param for param in program.outputs if not same(param, last)]
    if outputs or not program.is_param(last) or _sizes(last) != _sizes(result):
        raise NotRewritten("its last block must compute its only result, in the shape of the rows")
    axes = _axes(program)
    stages = tuple(_on_axes(stage, axes) for stage in program.stages)
    found = Stages(sch, program.stages[-1].name, axes, stages, result)
    if axis_loads(found.parts, axes) is None:
        raise NotRewritten("its operands are not indexed by the axes of the rows")
    for stage in stages:
        _check_loads(found, stage)
    return found


def _axes(program: Program) -> dict[str, Axis]:
    """Return the axes of all stages, by letter; those with one value are left out."""
    reductions = [stage for stage in program.stages if stage.reduced]
    if not reductions:
        raise NotRewritten("it does not reduce rows")
    rows = _long(reductions[0].axes)
    columns = {tuple(axis.extent for axis in _long(stage.reduced)) for stage in reductions}
    if len(columns) != 1 or len(extents := columns.pop()) != 1:
        raise NotRewritten("its reductions are not along one axis of the same length")
    if any(len(stage.stores) > 1 for stage in reductions):
        raise NotRewritten("it reduces pairs of values")
    if len(rows) > len(MATRICES):
        raise NotRewritten(f"its rows have more than {len(MATRICES)} axes")
    letters = (MATRICES[: max(0, len(rows) - 1)] + "m" if rows else "") + "n"
    sizes = (*(axis.extent for axis in rows), *extents)
    dtype = str(reductions[0].reduced[0].var.ty.dtype)
    return {x: Axis(Var(x, dtype), size) for x, size in zip(letters, sizes, strict=True)}


def _sizes(buffer: Any) -> list[int]:
    return [int(size) for size in buffer.shape if int(size) > 1]


def _long(axes: tuple[Axis, ...]) -> list[Axis]:
    return [axis for axis in axes if axis.extent > 1]


def _on_axes(stage: Stage, axes: dict[str, Axis]) -> Stage:
    """Return a stage over the common axes."""
    *rows, column = axes.values()
    own = _long(stage.axes)
    common = rows if stage.reduced or len(own) == len(rows) else [*rows, column]
    if [axis.extent for axis in own] != [axis.extent for axis in common]:
        raise NotRewritten(
            f"its block '{stage.name}' iterates over axes other than those of the rows"
        )
    table = {old.var: new.var for old, new in zip(own, common, strict=True)}
    for axis in (*stage.axes, *stage.reduced):
        if axis.extent == 1:
            table[axis.var] = prim.IntImm(str(axis.var.ty.dtype), 0)
        elif any(axis is each for each in stage.reduced):
            table[axis.var] = column.var
    (store,) = stage.stores
    rounds = str(store.buffer.dtype) != "float32" and not isinstance(stage.value, _EXTREMES)
    if stage.reduced and rounds:
        raise NotRewritten(f"its block '{stage.name}' accumulates in {store.buffer.dtype}")
    changed = Store(
        store.buffer,
        substitute(store.value, table),
        None if store.init is None else substitute(store.init, table),
    )
    reduced = (column,) if stage.reduced else ()
    return Stage(stage.name, tuple(common), reduced, (changed,))


def _check_loads(found: Stages, stage: Stage) -> None:
    """Refuse a stage that reads another row of an intermediate, or the output."""
    for load in stage.loads:
        made = next((s for s in found.stages if same(s.output, load.source)), None)
        if made is None:
            continue
        indices = [index for index in load.indices if not isinstance(index, prim.IntImm)]
        wanted = [axis.var for axis in made.axes]
        if len(indices) != len(wanted) or not all(map(tvm_ffi.structural_equal, indices, wanted)):
            raise NotRewritten(f"its block '{stage.name}' reads rows other than its own")
