"""Blocks in their loops, out of IR nodes, and the buffers that they use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from .layouts import Dims
from .spec import bits

SPATIAL, COMM_REDUCE = 0, 2


class Block:
    """What a block loads, while its body is being made."""

    def __init__(self) -> None:
        self.reads: dict[tuple[Any, ...], Any] = {}

    def load(self, buffer: Any, index: Sequence[Any], *key: Any) -> Any:
        """Load an element; the same key stands for the same element."""
        load = tirx.BufferLoad(buffer, list(index))
        self.reads.setdefault((buffer.name, *key), point(buffer, index))
        return load

    def load_anywhere(self, buffer: Any, index: Sequence[Any]) -> Any:
        """Load an element that the declared region does not say."""
        self.reads[(buffer.name, "all")] = whole(buffer)
        return tirx.BufferLoad(buffer, list(index))


def point(buffer: Any, index: Sequence[Any]) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(i, 1) for i in index])


def whole(buffer: Any) -> Any:
    return tirx.BufferRegion(buffer, [ir.Range.from_min_extent(0, d) for d in buffer.ty.shape])


def inside(index: Any, extent: Any) -> Any:
    return tirx.And(tirx.GE(index, like(index, 0)), tirx.LT(index, like(index, extent)))


def like(index: Any, value: Any) -> Any:
    return tirx.IntImm(str(index.ty.dtype), value) if isinstance(value, int) else value


def cast(dtype: str, value: Any) -> Any:
    return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)


class Nests:
    """Makes loop nests, and the parameters of a function as they are asked for."""

    def __init__(self, index: str) -> None:
        self.index = index
        self.params: dict[str, Any] = {}

    def parameter(self, name: str, shape: Dims, dtype: str) -> Any:
        if name not in self.params:
            self.params[name] = self.declare(name, shape, dtype)
        return self.params[name]

    def declare(self, name: str, shape: Dims, dtype: str) -> Any:
        # Extents have the type of the indices, as TVMScript makes them. Nothing is promised of the
        # alignment, so that an array of any size can end at the end of a page.
        return tirx.decl_buffer(
            tuple(self.constant(d) for d in shape),
            dtype,
            name,
            data_alignment=max(1, bits(dtype) // 8),
        )

    def constant(self, value: Any) -> Any:
        return tirx.IntImm(self.index, value) if isinstance(value, int) else value

    def nest(
        self,
        name: str,
        axes: Sequence[tuple[Any, int, int]],
        order: Sequence[int],
        make: Callable[[Block, list[Any]], tuple[Any, Any, Any]],
        writes: Callable[[list[Any]], list[Any]],
        *,
        predicate: Callable[[list[Any]], Any] | None = None,
        kinds: dict[int, Any] | None = None,
        outside: int = 0,
        index: str = "",
        bindings: Callable[[list[Any]], list[Any]] | None = None,
    ) -> Any:
        """Return a block in its own loops.

        ``axes`` are (extent, base, type); ``make`` gives body, init and match buffers.
        """
        index = index or self.index
        loops = [tirx.Var(f"{'ijk'[n % 3]}{n}", index) for n in range(len(axes))]
        iters = [tirx.Var(f"v{n}", index) for n in range(len(axes))]

        def constant(value: Any) -> Any:
            return tirx.IntImm(index, value) if isinstance(value, int) else value

        counted = [v - base if base else v for v, (_, base, _) in zip(iters, axes, strict=True)]
        block = Block()
        body, init, matched = make(block, counted)
        variables = [
            tirx.IterVar(ir.Range.from_min_extent(constant(base), constant(extent)), var, kind)
            for var, (extent, base, kind) in zip(iters, axes, strict=True)
        ]
        realize = s_tir.SBlockRealize(
            bindings(loops) if bindings else list(loops),
            predicate(loops) if predicate else True,
            s_tir.SBlock(
                variables,
                list(block.reads.values()),
                writes(counted),
                name,
                body,
                init=init,
                match_buffers=matched or [],
            ),
        )
        stmt = realize
        for n in reversed(order):
            extent, base, _ = axes[n]
            kind = (kinds or {}).get(n, tirx.ForKind.SERIAL)
            stmt = tirx.For(loops[n], constant(base), constant(extent), kind, stmt)
        if outside:
            again = tirx.Var("again", index)
            stmt = tirx.For(again, constant(0), constant(outside), tirx.ForKind.SERIAL, stmt)
        return stmt

    def element_nest(
        self, name: str, dims: Dims, make: Callable[[Block, list[Any]], Any], buffer: Any
    ) -> Any:
        """Return a block that stores what ``make`` gives to every element of a box."""

        def body(block: Block, axes: list[Any]) -> tuple[Any, Any, Any]:
            return tirx.BufferStore(buffer, make(block, axes), axes), None, None

        return self.nest(
            name,
            [(d, 0, SPATIAL) for d in dims],
            range(len(dims)),
            body,
            lambda axes: [point(buffer, axes)],
        )
