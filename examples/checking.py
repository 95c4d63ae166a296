"""Compile, run and compare the two versions of a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.tirx import Buffer, PrimFunc

TARGET = tvm.target.Target({"kind": "llvm"})
TOLERANCE = 1e-5  # of the largest value of the result: sums in float32 against sums in float64

Arrays = list[np.ndarray]


class Mismatch(Exception):
    """Two things that must agree do not; the text is a sentence."""


#: Maps the inputs of something compiled to its result.
Run = Callable[[Arrays], np.ndarray]


@dataclass(frozen=True)
class Versions:
    """A function before and after fusing, and a numpy function that computes the same."""

    name: str
    unfused: Run
    fused: Run
    reference: Callable[..., np.ndarray]


def compile_function(func: PrimFunc) -> Run:
    """Compile one function, whose last parameter is its result."""
    built = tvm.compile(func.with_attr("global_symbol", "main"), target=TARGET)
    shape = [int(extent) for extent in func.params[-1].ty.shape]

    def run(inputs: Arrays) -> np.ndarray:
        # The result starts as NaN: an element that is never written cannot go unnoticed.
        result = tvm.runtime.tensor(np.full(shape, np.nan, "float32"))
        built["main"](*map(tvm.runtime.tensor, inputs), result)
        return result.numpy()

    return run


def intermediate_bytes(func: PrimFunc) -> int:
    """Return what the buffers inside a function take once TVM has cut each to the tile it holds."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    sizes: list[int] = []

    def note(block: s_tir.SBlock) -> None:
        sizes.extend(map(buffer_bytes, block.alloc_buffers))

    lowered = tvm.ir.transform.Sequential(passes)(mod)["main"]
    tvm_ffi.structural_walk(lowered.body, ((s_tir.SBlock, note),))
    return sum(sizes)


def buffer_bytes(buffer: Buffer) -> int:
    """Return what the elements of a buffer take."""
    elements = math.prod(int(extent) for extent in buffer.shape)
    return elements * np.dtype(str(buffer.dtype)).itemsize


def normals(params: Sequence) -> Arrays:
    """Draw standard normals, half of them negative, for each parameter.

    Matrices are weights: they are divided by the root of their height, as if a training began, or
    the values would grow from operator to operator until the softmax is all or nothing.
    """
    rng = np.random.default_rng(1)
    shapes = map(shape_of, params)
    scales = ((shape, shape[0] ** -0.5 if len(shape) == 2 else 1) for shape in shapes)
    return [(rng.standard_normal(shape) * scale).astype("float32") for shape, scale in scales]


def integers(params: Sequence) -> Arrays:
    """Draw whole numbers from -8 to 8 for each parameter: then float32 sums are exact."""
    rng = np.random.default_rng(2)
    return [rng.integers(-8, 9, shape_of(p)).astype("float32") for p in params]


def shape_of(param: tvm.ir.Var) -> list[int]:
    """Return the shape of a parameter of a PrimFunc or of a Relax function."""
    return [int(extent) for extent in param.ty.shape]


def is_exact_on_integers(func: PrimFunc) -> bool:
    """Tell whether a function only adds, multiplies, compares and moves: nothing rounds then."""
    found: list[object] = []

    def note(call: tvm.ir.Call) -> None:
        if getattr(call.op, "name", "") != "tirx.if_then_else":
            found.append(call)

    tvm_ffi.structural_walk(func.body, ((tvm.ir.Call, note), (tvm.tirx.Div, found.append)))
    return not found


def compare_bits(versions: Versions, inputs: Arrays) -> str:
    """Demand that both versions and numpy give the same; return that in words."""
    unfused, fused, expected = results(versions, inputs)
    if unfused.tobytes() != fused.tobytes():
        raise Mismatch(f"{versions.name}: on integers, fused and unfused results differ")
    if not np.array_equal(fused, expected):
        raise Mismatch(f"{versions.name}: on integers, both versions differ from numpy")
    return "bit for bit"


def compare_close(versions: Versions, inputs: Arrays) -> str:
    """Demand that both versions are close to numpy; return the larger error as text."""
    unfused, fused, expected = results(versions, inputs)
    errors = [
        distance(f"{versions.name}: the {version} version", result, expected)
        for version, result in (("unfused", unfused), ("fused", fused))
    ]
    return f"{max(errors):.0e}" if max(errors) else "none"


def distance(name: str, result: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error as a part of the largest value; demand that it is small."""
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    if not error <= TOLERANCE:  # written so that NaN fails too
        raise Mismatch(
            f"{name} differs from numpy by {error:.0e} of the largest value, and {TOLERANCE:.0e} "
            f"is allowed"
        )
    return error


def results(versions: Versions, inputs: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what both versions give in float32, and what numpy gives in float64."""
    expected = versions.reference(*(array.astype("float64") for array in inputs))
    unfused, fused = versions.unfused(inputs), versions.fused(inputs)
    for result in (unfused, fused):
        if result.shape != expected.shape:
            raise Mismatch(f"{versions.name}: shape {result.shape}, numpy has {expected.shape}")
    return unfused, fused, expected
