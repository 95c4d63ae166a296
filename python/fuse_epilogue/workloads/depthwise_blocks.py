"""The blocks that depthwise convolutions share: the sum over the taps, and all that follows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from .arguments import UNQUANTISED, Size, check_activation, one_of, whole
from .writer import Index, Writer, final_blocks

LAYOUTS = ("NCW", "NWC")
REQUANTISING_SHIFT = 7


@dataclass(frozen=True)
class Epilogue:
    """The work after the sum over the taps.

    - `bias`, `gate`, `residual`: whether there is one.
    - `activation`: name of the activation, or None.
    - `shift`: bits that requantising drops, for int8.
    """

    bias: bool
    activation: str | None
    gate: bool
    residual: bool
    shift: int

    def check(self, dtype: str) -> Epilogue:
        """Check the arguments of a workload.

        - Raises ValueError: an argument is not possible; the message says which, what was given and
          what is possible.
        """
        one_of("bias", self.bias, (False, True))
        check_activation(self.activation, dtype)
        one_of("gate", self.gate, (False, True))
        one_of("residual", self.residual, (False, True))
        whole("shift", self.shift, 0, 31)
        if dtype != "int8":
            if self.shift != REQUANTISING_SHIFT:
                raise ValueError(
                    f'shift is for dtype = "int8" only; leave it out for dtype = {dtype!r}: '
                    f"{self.shift!r}"
                )
            return self
        for name in ("gate", "residual"):
            if getattr(self, name):
                raise ValueError(f"{name} must be False for dtype = 'int8': True")
        return self

    def blocks(self, dtype: str, accumulator: str) -> list[str]:
        """Name the blocks, in their order."""
        names = [*["bias"] * self.bias, *final_blocks(self.activation, accumulator, accumulator)]
        names += ["gate"] * self.gate + ["residual"] * self.residual
        if dtype == "int8":
            return [*names, "requantise"]
        return [*names, *["cast"] * (dtype != accumulator)]


@dataclass(frozen=True)
class Operands:
    """The parameters that the epilogue reads; None for those that it has not."""

    bias: Any = None
    residual: Any = None
    z: Any = None


class ConvWriter(Writer):
    """Writes a depthwise convolution and its epilogue.

    - `dims`: the letters and sizes of the result.
    - `dtype`, `accumulator`: the type of the data, and the type it is summed in.
    - `index_dtype`: the type of loops and indices.
    - `epilogue`: the work after the sum.
    """

    def __init__(
        self,
        dims: Mapping[str, Size],
        dtype: str,
        accumulator: str,
        index_dtype: str,
        epilogue: Epilogue,
    ) -> None:
        self.dtype, self.epilogue = dtype, epilogue
        last = ["conv", *epilogue.blocks(dtype, accumulator)][-1]
        super().__init__(dims, accumulator, index_dtype, last)

    def bias_parameter(self, c: int) -> Any:
        """Declare the bias, if there is one."""
        if not self.epilogue.bias:
            return None
        return self.parameter("bias", (c,), UNQUANTISED[self.dtype])

    def operands(self, bias: Any) -> Operands:
        """Declare residual and z, those that there are."""
        wanted = {"residual": self.epilogue.residual, "z": self.epilogue.gate}
        shape = self.dims.values()
        made = {k: self.parameter(k, shape, self.dtype) for k, there in wanted.items() if there}
        return Operands(bias, **made)

    def conv_block(self, element: Callable[[Index, Any], Any], weight: Any, taps: int) -> Any:
        """Write block "conv": the sum over the taps of ``element(index, tap) * weight``."""
        channel = list(self.dims).index("c")

        def step(s: Any, index: Index) -> Any:
            *at, tap = index
            return s + self.cast(element(tuple(at), tap)) * self.cast(weight[at[channel], tap])

        return self.reduce("conv", "summed", {"f": taps}, 0, step)

    def finish(self, s: Any, operands: Operands) -> None:
        """Write the epilogue of the sum `s`; its last block stores into y."""
        epilogue = self.epilogue
        if operands.bias is not None:
            s = self.add_bias(s, operands.bias, list(self.dims).index("c"))
        s = self.activate(s, epilogue.activation)
        if operands.z is not None:
            total, z = s, operands.z
            s = self.each(
                "gate", "gated_by_z", lambda at: self.cast(total[at]) * silu(self.cast(z[at]))
            )
        if operands.residual is not None:
            before, other = s, operands.residual
            s = self.each(
                "residual", "added", lambda at: self.cast(before[at]) + self.cast(other[at])
            )
        if self.dtype == "int8":
            self.each("requantise", "", lambda at: requantised(s[at], epilogue.shift), "int8")
        else:
            self.convert(s, self.dtype)


def silu(x: Any) -> Any:
    """Return x times its sigmoid."""
    return x * T.sigmoid(x)


def layout_dims(layout: str, n: Size, c: Size, w: Size) -> dict[str, Size]:
    """Return the sizes by the letters of a layout, in its order."""
    of = {"n": n, "c": c, "w": w}
    return {letter: of[letter] for letter in layout.lower()}


def with_column(at: Sequence[Any], place: int, column: Any) -> Index:
    """Move an index to another column."""
    return tuple(column if i == place else v for i, v in enumerate(at))


def requantised(value: Any, shift: int) -> Any:
    """Return a sum of int32 as int8: rounded to a multiple of ``2**shift``, and saturated."""
    if shift:
        value = T.shift_right(value + (1 << (shift - 1)), tirx.const(shift, "int32"))
    return T.cast(T.max(T.min(value, 127), -128), "int8")
