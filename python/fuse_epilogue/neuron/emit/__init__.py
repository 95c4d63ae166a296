"""Emits kernels: a scheduled TIR function becomes the text of an NKI kernel.

lower.py       the function as loops around blocks        (program.py, linear.py, integers.py)
layouts.py     which dimension of a buffer counts partitions
write.py       loops and allocations                      (text.py)
instructions.py, matmul.py, elementwise.py                what a block becomes
select.py      the table of instructions
areas.py, views.py                                        ranges and slices
"""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from ..kernel import Kernel
from .layouts import plan
from .lower import lower
from .names import RESERVED, Names
from .refusals import REFUSALS, EmitError
from .write import write

__all__ = ["REFUSALS", "EmitError", "emit"]


def emit(
    scheduled: tirx.PrimFunc | s_tir.Schedule | tvm.IRModule, name: str | None = None
) -> Kernel:
    """Turn a scheduled function into an NKI kernel.

    Parameters
    ----------
    scheduled : tvm.tirx.PrimFunc, tvm.s_tir.Schedule or tvm.IRModule
        The function; of a schedule or a module, its "main". Buffers on the chip have the scopes
        ``"trn.sbuf"`` and ``"trn.psum"``. Loops that an instruction covers are marked with
        ``sch.annotate(loop, "nki_dim", "P")`` (partitions) or ``"F"`` (along them), for a product
        of matrices with ``"P"`` (what is summed), ``"lhs_F"`` and ``"rhs_F"``; blocks without marks
        follow the others. ``sch.annotate(block, "nki_engine", "gpsimd")`` chooses an engine;
        ``"dma"`` lets a load of 16 bits transpose a matrix on the way.
    name : str, optional
        Name of the kernel; the function's name if None.

    Returns
    -------
    Kernel
        With `source`, and the shapes of its inputs. The same function gives the same text.

    Raises
    ------
    EmitError
        Something cannot be expressed; the message says what, why and what to do instead.
    TypeError
        Not a function.
    ValueError
        `name` is not a name in Python, or is a parameter's.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> scheduled = schedules.apply(workloads.matmul(128, 128, 128), "trn1")
    >>> kernel = neuron.emit(scheduled, "product")
    >>> kernel.name, kernel.parameters
    ('product', ('a', 'b', 'bias'))
    """
    func = _function(scheduled)
    if name is not None and (not name.isidentifier() or name in RESERVED):
        raise ValueError(f"name must be one that a function of Python may have, not {name!r}")
    attribute = func.attrs.get("global_symbol") if func.attrs else None
    program = lower(func, name or Names().unique(str(attribute or "main")))
    if any(tensor.name == program.name for tensor in program.parameters):
        raise ValueError(f"'{program.name}' is a parameter's name, give the kernel another one")
    layouts = plan(program)
    inputs = {t.name: (t.shape, t.dtype) for t in program.parameters if t.kind == "input"}
    return Kernel(write(program, layouts), inputs)


def _function(scheduled: object) -> tirx.PrimFunc:
    if isinstance(scheduled, s_tir.Schedule):
        scheduled = scheduled.mod
    if isinstance(scheduled, tvm.IRModule):
        functions = [v for v in scheduled.functions.values() if isinstance(v, tirx.PrimFunc)]
        if len(functions) != 1:
            raise TypeError(f"the module has {len(functions)} functions, one is emitted at a time")
        return functions[0]
    if not isinstance(scheduled, tirx.PrimFunc):
        raise TypeError(f"a PrimFunc or a Schedule is emitted, not {type(scheduled).__name__}")
    return scheduled
