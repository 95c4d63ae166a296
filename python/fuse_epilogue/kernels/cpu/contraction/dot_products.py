"""Instructions of x86 that add products of short integers, two or four to each sum of 32 bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import tvm
from tvm import tirx
from tvm.target import Target, codegen

from ....tir.types import bits_of
from ..loops import index

#: Bits of a sum, and of the values of a word together.
WORD = 32


@dataclass(frozen=True)
class Instruction:
    """An instruction that multiplies the values of two words, and sums the products.

    - `factors`: types of the values of the first word and of the second.
    - `adds`: whether the instruction itself adds to a sum.
    - `names`: LLVM's names, by the sums in a vector.
    - `features`: by the sums in a vector: sets of features, each of which has the instruction.
    - `llvm`: the first version of LLVM with these types of arguments.
    """

    name: str
    factors: tuple[str, str]
    adds: bool
    names: Mapping[int, str]
    features: Mapping[int, tuple[tuple[str, ...], ...]]
    llvm: int = 0

    @property
    def count(self) -> int:
        """Number of values in a word."""
        return WORD // bits_of(self.factors[0])

    def lanes(self, target: Target) -> int:
        """Return the sums in the longest vector that a processor has; 0 if it has none.

        - `target`: target of kind "llvm".
        """
        has = tvm.get_global_func("target.llvm_cpu_has_feature")
        lookup = tvm.get_global_func("target.llvm_lookup_intrinsic_id")
        if codegen.llvm_version_major() < self.llvm:
            return 0
        return max(
            (
                lanes
                for lanes, name in self.names.items()
                if any(all(has(each, target) for each in both) for both in self.features[lanes])
                and lookup(name)
            ),
            default=0,
        )


#: Kernels move and pack bytes as well, for which vectors of 512 bits need avx512bw.
_VNNI = (("avx512vnni", "avx512vl"), ("avxvnni",))
#: The instructions, the one with the most products first. vpmaddubsw is not among them: it
#: saturates at 16 bits.
INSTRUCTIONS = (
    Instruction(
        "vpdpbusd",
        ("uint8", "int8"),
        True,
        MappingProxyType(
            {lanes: f"llvm.x86.avx512.vpdpbusd.{lanes * WORD}" for lanes in (4, 8, 16)}
        ),
        MappingProxyType({4: _VNNI, 8: _VNNI, 16: (("avx512vnni", "avx512bw"),)}),
        llvm=22,
    ),
    Instruction(
        "vpmaddwd",
        ("int16", "int16"),
        False,
        MappingProxyType(
            {
                4: "llvm.x86.sse2.pmadd.wd",
                8: "llvm.x86.avx2.pmadd.wd",
                16: "llvm.x86.avx512.pmaddw.d.512",
            }
        ),
        MappingProxyType({4: (("sse2",),), 8: (("avx2",),), 16: (("avx512bw",),)}),
    ),
)


def instructions_of(target: Target) -> tuple[tuple[Instruction, int], ...]:
    """Return the instructions that a processor has, each with the sums in its longest vector.

    - `target`: target of kind "llvm".
    """
    found = ((each, each.lanes(target)) for each in INSTRUCTIONS)
    return tuple((each, lanes) for each, lanes in found if lanes)


def add_dot_products(
    instruction: Instruction, sums: tuple[Any, int], first: Any, second: Any, lanes: int
) -> Any:
    """Return a statement that adds the products of two vectors of words to sums.

    - `sums`: buffer of 32 bits, and where the first sum is in it.
    - `first`, `second` (Expr): vectors of words.
    """
    buffer, place = sums
    dtype = f"int{WORD}x{lanes}"
    values = [
        # LLVM's integers have no sign.
        tirx.reinterpret(f"{kind.lstrip('u')}x{lanes * instruction.count}", words)
        for kind, words in zip(instruction.factors, (first, second), strict=True)
    ]
    at = [tirx.Ramp(index(place), index(1), lanes)]
    so_far = tirx.BufferLoad(buffer, at)
    name = instruction.names[lanes]
    if instruction.adds:
        total = tirx.call_llvm_pure_intrin(dtype, name, so_far, *values)
    else:
        total = so_far + tirx.call_llvm_pure_intrin(dtype, name, *values)
    return tirx.BufferStore(buffer, total, at)


def same_word(buffer: Any, place: Any, instruction: Instruction, lanes: int) -> Any:
    """Return a vector whose words are all the one that begins at a place in a buffer of values."""
    values = tirx.BufferLoad(buffer, [tirx.Ramp(place, index(1), instruction.count)])
    return tirx.Broadcast(tirx.reinterpret(f"int{WORD}", values), lanes)
