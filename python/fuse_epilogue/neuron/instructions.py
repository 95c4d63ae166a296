"""The instructions of ``nisa``: parameters, engines, what fits together, and what they compute.

Source: AWS Neuron documentation, the pages of ``nki.isa`` (signatures of NKI 0.6). Where it leaves
a choice, the stricter one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import execute, shapes
from .arithmetic import BINARY, FUNCTIONS, REDUCERS

Kind = Literal["dst", "tile", "vector", "number", "op", "function", "reducer", "flag", "axes"]
Arguments = Mapping[str, Any]

#: Engines by their name in ``nisa``.
ENGINES = {
    "tensor_engine": "tensor",
    "vector_engine": "vector",
    "scalar_engine": "scalar",
    "gpsimd_engine": "gpsimd",
}

#: What the names of operations in ``nl`` may stand for.
OPERATIONS: dict[str, Mapping[str, Any]] = {
    "op": BINARY,
    "function": FUNCTIONS,
    "reducer": REDUCERS,
}

#: The default of a parameter that has none.
REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an instruction.

    Attributes
    ----------
    name : str
        Its name.
    kind : str
        ``dst`` is written, ``tile`` read. ``vector``: a number, or a tile of one column, one value
        for each partition. ``op``, ``function`` and ``reducer`` are names in ``nl``.
    default : Any
        `REQUIRED` if there is none.
    """

    name: str
    kind: Kind
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    Attributes
    ----------
    name : str
        Its name in ``nisa``.
    engines : tuple[str, ...]
        Which may execute it, NKI's choice first.
    parameters : tuple[Parameter, ...]
        In their order.
    fit : Callable[[Arguments], None]
        Raises `Refused` where the operands' shapes do not make an instruction.
    run : Callable[[numpy.ndarray, Arguments], None]
        Computes; tiles are arrays.
    """

    name: str
    engines: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    fit: Callable[[Arguments], None]
    run: Callable[[np.ndarray, Arguments], None]


_DST = Parameter("dst", "dst")
_P = Parameter

#: All instructions, by name.
INSTRUCTIONS = {
    it.name: it
    for it in (
        Instruction(
            "dma_copy", ("dma",), (_DST, _P("src", "tile")), shapes.fit_dma, execute.run_copy
        ),
        Instruction(
            "memset",
            ("vector", "gpsimd"),
            (_DST, _P("value", "number")),
            shapes.fit_memset,
            execute.run_memset,
        ),
        Instruction(
            "tensor_copy",
            ("vector", "scalar", "gpsimd"),
            (_DST, _P("src", "tile")),
            shapes.elementwise("src"),
            execute.run_copy,
        ),
        Instruction(
            "tensor_tensor",
            ("vector", "gpsimd"),
            (_DST, _P("data1", "tile"), _P("data2", "tile"), _P("op", "op")),
            shapes.elementwise("data1", "data2"),
            execute.run_tensor_tensor,
        ),
        Instruction(
            "tensor_scalar",
            ("vector", "gpsimd"),
            (
                _DST,
                _P("data", "tile"),
                _P("op0", "op"),
                _P("operand0", "vector"),
                _P("reverse0", "flag", False),
                _P("op1", "op", None),
                _P("operand1", "vector", None),
                _P("reverse1", "flag", False),
            ),
            shapes.fit_tensor_scalar,
            execute.run_two_ops,
        ),
        Instruction(
            "scalar_tensor_tensor",
            ("vector",),
            (
                _DST,
                _P("data", "tile"),
                _P("op0", "op"),
                _P("operand0", "vector"),
                _P("op1", "op"),
                _P("operand1", "tile"),
                _P("reverse0", "flag", False),
                _P("reverse1", "flag", False),
            ),
            shapes.fit_two_tiles,
            execute.run_two_ops,
        ),
        Instruction(
            "activation",
            ("scalar",),
            (
                _DST,
                _P("op", "function"),
                _P("data", "tile"),
                _P("bias", "vector", None),
                _P("scale", "vector", 1.0),
            ),
            shapes.elementwise("data", vectors=("bias", "scale")),
            execute.run_activation,
        ),
        Instruction(
            "tensor_reduce",
            ("vector", "gpsimd"),
            (
                _DST,
                _P("op", "reducer"),
                _P("data", "tile"),
                _P("axis", "axes"),
                _P("negate", "flag", False),
                _P("keepdims", "flag", False),
            ),
            shapes.fit_reduce,
            execute.run_reduce,
        ),
        Instruction(
            "nc_matmul",
            ("tensor",),
            (
                _DST,
                _P("stationary", "tile"),
                _P("moving", "tile"),
                _P("accumulate", "flag", None),
            ),
            shapes.fit_matmul,
            execute.run_matmul,
        ),
        Instruction(
            "nc_transpose",
            ("tensor",),
            (_DST, _P("data", "tile")),
            shapes.fit_transpose,
            execute.run_transpose,
        ),
    )
}
