"""Integers of 8 and 16 bits that overflow.

In TIR they wrap around, as they do on their way through memory. TVM writes an operation on them as
the same operation of C, which computes in `int`: within an expression nothing wraps there.

    T.max(s * T.int8(2), T.int8(0))        s = 100: 0        max(s * (signed char)2, 0) is 200
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import prim

# Those whose result may need more bits than their operands.
_OPERATIONS = (prim.Add, prim.Sub, prim.Mul, prim.LShift)


def with_wrapping(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function that computes with narrow integers in 32 bits and casts each result.

    That is done to operations whose result may not fit into the type; the others stay.
    """
    rules = [(kind, _operation) for kind in _OPERATIONS]
    rules.append((prim.BitwiseNot, _complement))
    return func.with_body(tvm_ffi.structural_map(func.body, rules))


def _operation(node: Any) -> Any:
    wide = _wide(node)
    if wide is None:
        return node
    return prim.Cast(node.ty.dtype, type(node)(_cast(wide, node.a), _cast(wide, node.b)))


def _complement(node: Any) -> Any:
    wide = _wide(node)
    return node if wide is None else prim.Cast(node.ty.dtype, prim.BitwiseNot(_cast(wide, node.a)))


def _wide(node: Any) -> str | None:
    """Return the type of 32 bits for an expression of 8 or 16, None for any other."""
    dtype = tvm.DataType(str(node.ty.dtype))
    name = str(dtype)
    if dtype.lanes != 1 or dtype.bits not in (8, 16) or not name.startswith(("int", "uint")):
        return None
    return "int32" if name.startswith("int") else "uint32"


def _cast(dtype: str, value: Any) -> Any:
    if isinstance(value, prim.IntImm):
        return tirx.const(int(value), dtype)
    return prim.Cast(dtype, value)
