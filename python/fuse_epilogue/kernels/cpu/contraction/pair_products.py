"""The instruction of x86 that adds up products of pairs of 16-bit integers."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target

from ..loops import index
from .pairs import PAIR

#: LLVM's name of vpmaddwd, by the sums of 32 bits in a vector, and the feature that has it.
INTRINSICS = {
    4: ("llvm.x86.sse2.pmadd.wd", "sse2"),
    8: ("llvm.x86.avx2.pmadd.wd", "avx2"),
    16: ("llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
}


def pair_lanes(target: Target) -> int:
    """Return the sums in the longest vector of the instruction; 0 if there is no instruction.

    Parameters
    ----------
    target : tvm.target.Target
        Target of kind "llvm".
    """
    has = tvm.get_global_func("target.llvm_cpu_has_feature")
    lookup = tvm.get_global_func("target.llvm_lookup_intrinsic_id")
    return max(
        (
            lanes
            for lanes, (name, feature) in INTRINSICS.items()
            if has(feature, target) and lookup(name)
        ),
        default=0,
    )


def add_products_of_pairs(
    sums: Any, place: int, a: tuple[Any, Any], b: tuple[Any, Any], lanes: int
) -> Any:
    """Return a statement that adds the products of a pair and of a pair for each lane.

    Parameters
    ----------
    sums : Buffer
        Buffer of 32 bits.
    place : int
        The first sum.
    a : tuple
        Buffer of 16 bits, and where the pair is in it.
    b : tuple
        Buffer of pairs in 32 bits, and where the pair of the first lane is.
    lanes : int
    """
    narrow = f"int16x{lanes * PAIR}"
    pair = tirx.BufferLoad(a[0], [tirx.Ramp(a[1], index(1), PAIR)])
    same = tirx.Broadcast(tirx.reinterpret("int32", pair), lanes)
    others = tirx.BufferLoad(b[0], [tirx.Ramp(b[1], index(1), lanes)])
    added = tirx.call_llvm_pure_intrin(
        f"int32x{lanes}",
        INTRINSICS[lanes][0],
        tirx.reinterpret(narrow, same),
        tirx.reinterpret(narrow, others),
    )
    at = [tirx.Ramp(index(place), index(1), lanes)]
    return tirx.BufferStore(sums, tirx.BufferLoad(sums, at) + added, at)
