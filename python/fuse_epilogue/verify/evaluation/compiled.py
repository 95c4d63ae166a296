"""The function as TVM compiles it for the CPU: an oracle that shares nothing with the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from .data import Arrays, copies
from .layouts import placed
from .parameters import unique_names

_THREADS = (tirx.ForKind.THREAD_BINDING, tirx.ForKind.PARALLEL)


def without_threads(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Make parallel loops serial, those that are bound to threads included.

    The function then runs on a CPU, and in a child process, which has none of TVM's threads.

    - `func`: any.
    - Returns: `func` itself where there is nothing to change.
    """

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind not in _THREADS:
            return loop
        kind = tirx.ForKind.SERIAL
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, step=loop.step)

    return tvm_ffi.structural_map(func, [(tirx.For, serial)])


class Compiled:
    """Functions compiled by TVM into one module.

    - `functions`: functions of one signature.
    - `strides`: those of parameters whose elements are not one after the other.
    """

    def __init__(
        self,
        functions: Sequence[tirx.PrimFunc],
        strides: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        names = [f"function_{place}" for place in range(len(functions))]
        module = tvm.IRModule(
            {
                name: without_threads(func).with_attr("global_symbol", name)
                for name, func in zip(names, functions, strict=True)
            }
        )
        built = tvm.compile(module, target="llvm")
        self._functions = [built[name] for name in names]
        self._parameters = unique_names(functions[0].params)
        self._strides = strides or {}

    def run(self, place: int, arrays: Arrays) -> Arrays:
        """Call one of the functions on copies.

        - `place`: which function.
        - `arrays`: a value for each parameter.
        - Returns: every array as it is after the call.
        """
        arguments: dict[str, Any] = {}
        apart: Arrays = {}
        for name in self._parameters:
            value = arrays[name]
            if name in self._strides:
                arguments[name], apart[name] = placed(value, self._strides[name])
                continue
            # Copied by TVM: generated code relies on an alignment that numpy does not promise.
            arguments[name] = (
                tvm.runtime.tensor(value) if isinstance(value, np.ndarray) else value.item()
            )
        self._functions[place](*arguments.values())
        return copies(apart) | {
            name: value.numpy()
            for name, value in arguments.items()
            if isinstance(arrays[name], np.ndarray) and name not in apart
        }
