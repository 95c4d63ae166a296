"""Writes functions for Trainium as they are scheduled: tiles on chip, a block for each step.

A rule that cuts everything into tiles itself writes its result here, loops and marks included,
where others write blocks over whole buffers and cut them with TVM's primitives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ...neuron.emit.lower import DISTINCT, ENGINE, MARK


@dataclass(frozen=True)
class Span:
    """A loop of a block.

    - `role`: its mark: "P", "F", "lhs_F" or "rhs_F"; "" for a loop of the kernel.
    - `summed`: whether the block sums over it.
    """

    extent: int
    role: str = "F"
    summed: bool = False


class Values(dict[str, Any]):
    """The values of the loops around a block, by name: its own variables.

    - `loops`: the variables of the loops, which a condition of the block is about.
    """

    def __init__(self, loops: dict[str, Any]) -> None:
        super().__init__()
        self.loops = loops


class TileWriter:
    """Writes a function with the parameters of another one.

    - `func`: with constant sizes.
    - `index_dtype`: the type of loops and indices.
    """

    def __init__(self, func: tirx.PrimFunc, index_dtype: str) -> None:
        self.func = func
        self.index_dtype = index_dtype
        self.builder = IRBuilder()
        self.parameters: dict[Any, Any] = {}
        self.outer: dict[str, tuple[Any, int]] = {}
        self._taken: set[str] = set()

    @contextlib.contextmanager
    def function(self) -> Iterator[None]:
        """Open the function; everything else is written inside."""
        with self.builder, T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            for param in self.func.params:
                shape = [int(extent) for extent in param.ty.shape]
                made = T.arg(param.name, T.buffer(shape, str(param.ty.dtype)))
                self.parameters[param] = made
            yield

    def written(self) -> tirx.PrimFunc:
        """Return the function, when it is closed."""
        return self.builder.get()

    @contextlib.contextmanager
    def loop(self, name: str, extent: int) -> Iterator[None]:
        """Open a loop of the kernel; its variable has that name in the blocks inside."""
        with T.serial(self.number(extent)) as var:
            IRBuilder.name(f"i_{name}", var)
            self.outer[name] = var, extent
            yield
            del self.outer[name]

    def tile(self, name: str, shape: tuple[int, ...], dtype: str, space: str = "trn.sbuf") -> Any:
        """Allocate a buffer on the chip; it lives in the loops around all that use it."""
        made = T.sblock_alloc_buffer(list(shape), dtype, scope=space)
        IRBuilder.name(self._unused(name), made)
        return made

    @contextlib.contextmanager
    def block(
        self, name: str, spans: Mapping[str, Span], engine: str = "", *, distinct: bool = False
    ) -> Iterator[Any]:
        """Open a block in loops of its own; yield the values of all loops around it, by name.

        `distinct`: what it stores is at indices of a table, all of which differ.
        """
        with contextlib.ExitStack() as stack:
            loops = dict(self.outer)
            for key, span in spans.items():
                marks = {MARK: span.role} if span.role else None
                var = stack.enter_context(T.serial(self.number(span.extent), annotations=marks))
                IRBuilder.name(f"i_{key}", var)
                loops[key] = var, span.extent
            stack.enter_context(T.sblock(self._unused(name)))
            if engine:
                T.sblock_attr({ENGINE: engine})
            if distinct:
                T.sblock_attr({DISTINCT: True})
            at = Values({key: var for key, (var, _) in loops.items()})
            for key, (var, extent) in loops.items():
                summed = key in spans and spans[key].summed
                at[key] = (T.axis.reduce if summed else T.axis.spatial)(self.number(extent), var)
                IRBuilder.name(f"v_{key}", at[key])
            yield at

    def number(self, value: int) -> Any:
        """Return a number of the type of indices."""
        return tirx.const(value, self.index_dtype)

    def _unused(self, name: str) -> str:
        made, count = name, 1
        while made in self._taken:
            made, count = f"{name}_{count}", count + 1
        self._taken.add(made)
        return made
