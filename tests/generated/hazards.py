"""The blocks beside the reduction and its epilogues: harmless ones and hazards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm import s_tir, tirx

from . import expressions
from .layouts import ALL_READS
from .literals import literal
from .nests import COMM_REDUCE, SPATIAL, Block, point
from .spec import Hazard

if TYPE_CHECKING:
    from .build import Builder


def bias_of(builder: Builder, target: int) -> Any:
    """Return the bias that hazards touch, and its extents."""
    epilogue = builder.program.epilogues[target]
    dims = ALL_READS[epilogue.read].axes(builder.stages[epilogue.stage].dims)
    return builder.parameter(f"C{target}_9", dims, epilogue.dtype), dims


def hazard_block(builder: Builder, hazard: Hazard, name: str) -> Any:
    """Return the block of a hazard."""
    kind = hazard.kind
    if kind == "unrelated":
        p = builder.parameter("P", (3,), "float32")
        q = builder.parameter("Q", (3,), "float32")
        return builder.element_nest(name, (3,), lambda block, a: block.load(p, a), q)
    if kind.startswith("address of"):
        buffer = {
            "address of result": lambda: builder.buffers[0],
            "address of bias": lambda: bias_of(builder, hazard.target)[0],
            "address of output": lambda: builder.buffers[hazard.target + 1],
        }[kind]()
        first = tirx.BufferLoad(buffer, [builder.constant(0)] * len(buffer.ty.shape))
        return tirx.Evaluate(tirx.address_of(first))
    if kind == "write bias":
        buffer, dims = bias_of(builder, hazard.target)
        values = builder.parameter(f"{name}_in", dims, str(buffer.ty.dtype))
        return builder.element_nest(name, dims, lambda block, a: block.load(values, a), buffer)
    if kind in ("read output", "write output"):
        stage, buffer = builder.stages[hazard.target + 1], builder.buffers[hazard.target + 1]
        other = builder.parameter(f"{name}_other", stage.shape, stage.dtype)
        source, target = (buffer, other) if kind == "read output" else (other, buffer)
        return builder.element_nest(
            name, stage.shape, lambda block, a: block.load(source, a), target
        )
    return _at_result(builder, hazard, name)


def _at_result(builder: Builder, hazard: Hazard, name: str) -> Any:
    result, stage = builder.buffers[0], builder.stages[0]
    dims = stage.dims
    if hazard.kind == "write result":
        value = builder.parameter(f"{name}_in", (), stage.dtype)
        place = stage.place((builder.constant(0),) * len(dims))

        def overwrite(block: Block, axes: list[Any]) -> tuple[Any, Any, Any]:
            return tirx.BufferStore(result, block.load(value, ()), list(place)), None, None

        return builder.nest(
            name, [(1, 0, SPATIAL)], (0,), overwrite, lambda axes: [point(result, place)]
        )
    output = builder.parameter(
        f"{name}_out", dims[:1] if hazard.kind == "total" else dims, stage.dtype
    )
    if hazard.kind == "nested reader":

        def nested(block: Block, axes: list[Any]) -> tuple[Any, Any, Any]:
            value = block.load(result, stage.place(tuple(axes)))
            store = tirx.BufferStore(output, value, axes)
            inner = s_tir.SBlock(
                [], list(block.reads.values()), [point(output, axes)], "inside", store
            )
            return s_tir.SBlockRealize([], True, inner), None, None

        return builder.nest(
            name,
            [(d, 0, SPATIAL) for d in dims],
            range(len(dims)),
            nested,
            lambda axes: [point(output, axes)],
        )

    combine = expressions.BINARY["or" if stage.dtype == "bool" else "max"]

    def total(block: Block, axes: list[Any]) -> tuple[Any, Any, Any]:
        value = block.load(result, stage.place(tuple(axes)))
        update = combine(tirx.BufferLoad(output, axes[:1]), value)
        start = tirx.BufferStore(output, literal(stage.dtype, 0), axes[:1])
        return tirx.BufferStore(output, update, axes[:1]), start, None

    kinds = [SPATIAL] + [COMM_REDUCE] * (len(dims) - 1)
    return builder.nest(
        name,
        [(d, 0, kind) for d, kind in zip(dims, kinds, strict=True)],
        range(len(dims)),
        total,
        lambda axes: [point(output, axes[:1])],
    )
