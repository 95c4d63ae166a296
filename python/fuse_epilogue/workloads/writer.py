"""The writer of workloads: block after block, each in loops of its own over its result."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.tirx import PrimFunc

from .arguments import ACTIVATIONS, Size

#: The values of a block's variables; those of the result's dimensions come first.
Index = tuple[Any, ...]


def final_blocks(activation: str | None, accumulator: str, dtype: str) -> list[str]:
    """Name the blocks of :meth:`Writer.activate`, and of :meth:`Writer.convert` to `dtype`."""
    return [*ACTIVATIONS[activation], *["cast"] * (dtype != accumulator)]


def gelu(x: Any) -> Any:
    """Return x times the probability that a standard normal variable is below x."""
    half, slope = (tirx.const(v, x.ty.dtype) for v in (0.5, math.sqrt(0.5)))
    return x * (half + half * T.erf(x * slope))


class Writer:
    """Writes the blocks one after the other; the last one stores into the output.

    - `dims`: the letter of each dimension of the result, and its size: the loop over "n" is "i_n",
      and the block's variable is "v_n".
    - `accumulator`: the type in which everything is computed.
    - `index_dtype`: the type of loops and indices.
    - `last`: the name of the last block.
    """

    def __init__(
        self, dims: Mapping[str, Size], accumulator: str, index_dtype: str, last: str
    ) -> None:
        self.dims = dict(dims)
        self.accumulator = accumulator
        self.index_dtype = index_dtype
        self.last = last
        #: The output that a block stores into, by the name of the block.
        self.outputs: dict[str, Any] = {}
        self.builder = IRBuilder()

    @contextlib.contextmanager
    def function(self) -> Iterator[None]:
        """Open the function "main"; its parameters and blocks are written inside."""
        with self.builder, T.prim_func(s_tir=True):
            T.func_name("main")
            T.func_attr({"tirx.noalias": True})
            yield

    def written(self) -> PrimFunc:
        """Return the function, when it is closed."""
        return self.builder.get()

    def parameter(self, name: str, shape: Iterable[Size], dtype: str) -> Any:
        """Declare a buffer that the function is called with."""
        return T.arg(name, T.buffer(self.sizes(shape), dtype))

    def output(self, name: str, dtype: str) -> None:
        """Declare the parameter that the last block stores into."""
        self.outputs[self.last] = self.parameter(name, self.dims.values(), dtype)

    def reduce(
        self,
        block: str,
        buffer: str,
        reduced: Mapping[str, Size],
        start: float,
        step: Callable[[Any, Index], Any],
    ) -> Any:
        """Write a reduction: from `start` on, ``step(value so far, index)``."""
        target = self.buffer(block, buffer, self.dims, self.accumulator)
        with self.block(block, self.dims, reduced) as index:
            at = index[: len(self.dims)]
            with T.init():
                T.buffer_store(target, tirx.const(start, self.accumulator), at)
            T.buffer_store(target, step(target[at], index), at)
        return target

    def each(
        self, block: str, buffer: str, element: Callable[[Index], Any], dtype: str | None = None
    ) -> Any:
        """Write a block that stores ``element(index)`` at every index of the result.

        `dtype` is that of the accumulator if it is not given.
        """
        target = self.buffer(block, buffer, self.dims, dtype or self.accumulator)
        with self.block(block, self.dims) as at:
            T.buffer_store(target, element(at), at)
        return target

    def add_bias(self, s: Any, bias: Any, axis: int) -> Any:
        """Write block "bias": add a number to `s` for each index in one of its dimensions."""
        return self.each("bias", "biased", lambda at: self.cast(s[at]) + self.cast(bias[at[axis]]))

    def activate(self, s: Any, activation: str | None) -> Any:
        """Write an activation of `s`."""
        if activation == "relu":
            zero = tirx.const(0, self.accumulator)
            return self.each("relu", "rectified", lambda at: T.max(self.cast(s[at]), zero))
        if activation == "silu":
            gate = self.each("sigmoid", "gate", lambda at: T.sigmoid(self.cast(s[at])))
            return self.each("silu", "gated", lambda at: self.cast(s[at]) * gate[at])
        if activation == "gelu":
            return self.each("gelu", "bent", lambda at: gelu(self.cast(s[at])))
        return s

    def convert(self, s: Any, dtype: str) -> None:
        """Write the conversion of `s` to another type, if it is another one."""
        if dtype != self.accumulator:
            self.each("cast", "", lambda at: T.cast(s[at], dtype), dtype)

    @contextlib.contextmanager
    def block(
        self, name: str, dims: Mapping[str, Size], reduced: Mapping[str, Size] | None = None
    ) -> Iterator[Index]:
        """Open a block in loops over dimensions, those reduced innermost; yield its variables."""
        letters = [*dims, *(reduced or {})]
        kinds = "S" * len(dims) + "R" * len(reduced or {})
        with T.grid(*self.sizes([*dims.values(), *(reduced or {}).values()])) as opened:
            loops = list(opened) if len(letters) > 1 else [opened]
            for loop, letter in zip(loops, letters, strict=True):
                IRBuilder.name(f"i_{letter}", loop)
            with T.sblock(name):
                variables = T.axis.remap(kinds, loops)
                variables = list(variables) if len(letters) > 1 else [variables]
                for variable, letter in zip(variables, letters, strict=True):
                    IRBuilder.name(f"v_{letter}", variable)
                yield tuple(variables)

    def buffer(self, block: str, name: str, dims: Mapping[str, Size], dtype: str) -> Any:
        """Return the buffer that `block` stores into: an output, or a new one."""
        if block in self.outputs:
            return self.outputs[block]
        made = T.sblock_alloc_buffer(self.sizes(dims.values()), dtype)
        IRBuilder.name(name, made)
        return made

    def sizes(self, values: Iterable[Size]) -> list[Any]:
        """Give numbers the type of all indices."""
        return [tirx.const(v, self.index_dtype) if isinstance(v, int) else v for v in values]

    def cast(self, value: Any) -> Any:
        """Convert a value to the type in which everything is computed."""
        return T.cast(value, self.accumulator)
