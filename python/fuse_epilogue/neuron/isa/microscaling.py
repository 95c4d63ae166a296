"""Instructions on numbers of 8 and 4 bits that share a scale (OCP Microscaling).

Groups of 32 numbers have one scale: 8 partitions, with the four numbers that an element of a type
in ``_x4`` holds (pages of ``nki.isa.quantize_mx`` and ``nki.isa.nc_matmul_mx``). The scales of a
quadrant of 32 partitions lie in its first four ones: that is how public kernels place them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Refused
from ..values import numpy_dtype
from . import shapes
from .arithmetic import store, widened
from .row import ASSUMED, Arguments, Cost, Instruction, parameters

if TYPE_CHECKING:
    from ..tile import Tile

#: Values of the numbers of 4 bits without sign (OCP Microscaling, FP4 E2M1).
FP4 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)

#: Largest exponent of the numbers in a packed type (OCP Microscaling).
LARGEST_EXPONENT = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}

PACKED = ("float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4")


def fit_quantize(args: Arguments) -> None:
    """Check a quantisation: four numbers of src for each element of dst."""
    dst, src, scale = args["dst"], args["src"], args["dst_scale"]
    if dst.dtype not in LARGEST_EXPONENT or src.dtype not in ("bfloat16", "float16"):
        raise Refused(
            "operand-types",
            f"{src.dtype} to {dst.dtype}: only float16 or bfloat16 become float8_e4m3fn_x4 or "
            "float8_e5m2_x4",
        )
    if scale.dtype != "uint8":
        raise Refused("operand-types", f"dst_scale is uint8, not {scale.dtype}")
    if src.shape[0] % 32 or math.prod(src.shape[1:]) != 4 * math.prod(dst.shape[1:]):
        raise Refused("shapes", f"src {src.shape}, dst {dst.shape}: four numbers in an element")
    if dst.shape[0] != src.shape[0]:
        raise Refused("shapes", f"dst has {dst.shape[0]} partitions, src {src.shape[0]}")
    _fit_scale("dst_scale", scale, dst)


def _fit_scale(name: str, scale: Tile, tile: Tile) -> None:
    """Refuse scales without a place for each group of a tile."""
    shapes.free_like(name, scale, tile)
    last = tile.shape[0] // 8 - 1
    least = last // 4 * 32 + last % 4 + 1
    if scale.shape[0] < least:
        raise Refused(
            "shapes",
            f"{name} has {scale.shape[0]} partitions, at least {least} for {tile.shape[0]}: the "
            "scales of 32 partitions are in the first four of 32",
        )


def run_quantize(dst: np.ndarray, args: Arguments) -> None:
    """Round to numbers of 8 bits, with a power of two for each group.

    The scale is twice the smallest one that the largest number of the group needs (page of
    ``nki.isa.quantize_mx``, SDK 2.32).
    """
    name = args["types"]["dst"]
    rows = dst.shape[0]
    data = widened(args["src"]).reshape(rows // 8, 8, -1, 4)
    most = np.abs(data).max(axis=(1, 3))
    exponent = np.frexp(np.maximum(most, np.float32(2.0**-126)))[1] - LARGEST_EXPONENT[name]
    exponent = np.clip(exponent, -127, 127)
    scaled = data * np.exp2(-exponent.astype(np.float32))[:, None, :, None]
    small = scaled.astype(numpy_dtype(name.removesuffix("_x4")))
    packed = np.ascontiguousarray(small.reshape(rows, -1, 4)).view(np.uint32)
    dst[...] = packed.reshape(dst.shape)
    into = args["dst_scale"]
    for group in range(rows // 8):
        place = group // 4 * 32 + group % 4
        into[place] = (exponent[group] + 127).astype(np.uint8).reshape(into.shape[1:])


def fit_product(args: Arguments) -> None:
    """Check a product of quantised matrices."""
    shapes.fit_matmul(args)
    for name in ("stationary", "moving"):
        tile, scale = args[name], args[f"{name}_scale"]
        if tile.dtype not in PACKED or scale.dtype != "uint8":
            raise Refused(
                "operand-types",
                f"{name} is {tile.dtype} with {scale.dtype}: one of {', '.join(PACKED)} with uint8",
            )
        if tile.shape[0] % 32:
            raise Refused("shapes", f"{name} has {tile.shape[0]} partitions, a multiple of 32")
        _fit_scale(f"{name}_scale", scale, tile)


def unpacked(data: np.ndarray, scale: np.ndarray, dtype: str) -> np.ndarray:
    """Return the numbers of a packed matrix, [partitions, columns, 4], scaled."""
    rows = data.shape[0]
    values: Any
    if dtype == "float4_e2m1fn_x4":
        bits = data.reshape(rows, -1)[..., None] >> np.array([0, 4, 8, 12], np.uint16) & 15
        values = np.where(bits & 8, -FP4[bits & 7], FP4[bits & 7])
    else:
        raw = np.ascontiguousarray(data).reshape(rows, -1, 1).view(np.uint8)
        values = raw.view(numpy_dtype(dtype.removesuffix("_x4"))).astype(np.float32)
    groups = np.arange(rows) // 8
    places = groups // 4 * 32 + groups % 4
    exponent = scale.reshape(scale.shape[0], -1)[places].astype(np.int32) - 127
    return np.asarray(values * np.exp2(exponent.astype(np.float32))[..., None])


def run_product(dst: np.ndarray, args: Arguments) -> None:
    """Compute ``stationary.T @ moving`` of the scaled numbers in float32."""
    left, right = (
        unpacked(args[name], args[f"{name}_scale"], args["types"][name])
        for name in ("stationary", "moving")
    )
    product = np.einsum("pmj,pnj->mn", left, right).reshape(dst.shape)
    store(dst, widened(dst) + product if args["accumulate"] else product)


ROWS = (
    Instruction(
        "quantize_mx",
        ("vector",),
        parameters("dst:dst src:tile dst_scale:result"),
        fit_quantize,
        run_quantize,
        Cost(1.0, ASSUMED),
        since="trn3",
        leading=("dst_scale",),
    ),
    Instruction(
        "nc_matmul_mx",
        ("tensor",),
        parameters(
            "dst:dst stationary:tile moving:tile stationary_scale:tile moving_scale:tile "
            "accumulate:flag",
            accumulate=None,
        ),
        fit_product,
        run_product,
        Cost(1.0, ASSUMED),
        ignored=("name", "tile_position", "tile_size"),
        reads_dst=lambda args: bool(args["accumulate"]),
        since="trn3",
        leading=("stationary_scale", "moving_scale"),
    ),
)
