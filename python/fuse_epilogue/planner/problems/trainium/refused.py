"""Functions without a kernel on Trainium, and the reasons why a point has none."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tvm import s_tir

from ....kernels.trainium.rule import SPOILS, spoils
from ....kernels.trainium.unfused import Unfused
from ....neuron import CheckError, KernelError
from ....neuron.machine import Machine
from ....tir.affine import as_constant
from ....tir.walk import handle, loads

#: Steps of a reduction that are counted: its bytes and cycles are integers of 64 bits here.
MOST_STEPS = 2**60
#: What to do where there is no kernel.
_WAY_OUT = "or plan for another target"


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Do nothing for sizes that can be planned.

    - `sizes`: sizes of a reduction, by name.
    - Raises ValueError: there are more than are counted.
    """
    steps = prod(sizes.values())
    if steps > MOST_STEPS:
        which = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise ValueError(
            f"{which} are {steps:.3g} steps, more than the {MOST_STEPS:.3g} that are counted: make "
            "the function for a part of these sizes"
        )


def check_transposing(core: Machine, finite: bool) -> None:
    """Do nothing where a machine's tensor engine transposes the data as they are.

    - Raises ValueError: the tensor engine spoils data that are not finite, and `finite` is not
      said.
    """
    if spoils(core, finite):
        raise ValueError(f"{SPOILS}: say finite=True if there are none, {_WAY_OUT}")


def check_in_place(apart: Unfused) -> None:
    """Do nothing for a function that does not overwrite what its reduction reads.

    - Raises ValueError: the function does so: tiles that are computed later would read results.
    """
    read = {handle(param) for param in apart.reduction.params[:-1]}
    written = apart.rest.params[-1]
    if handle(written) in read:
        raise ValueError(
            f"what follows the reduction writes '{written.name}', which the reduction reads: a "
            f"kernel for Trainium has no result in place; write a buffer of its own, {_WAY_OUT}"
        )


def read_beyond(found: Any) -> str:
    """Return the name of a buffer that is read out of bounds but for a condition, or "".

    A tile is loaded as a whole, whatever the condition says: that kernel reads out of bounds.

    - `found` (PreparedMatch or None): outputs of a rule, with what it computes of a sum, and of an
      element where it reduces any.
    """
    if found is None:
        return ""
    axes = found.sch.get(found.sch.get_sblock(found.block)).iter_vars
    extents = {handle(axis.var): as_constant(axis.dom.extent) for axis in axes}
    parts = (getattr(found, "term", None), found.fused.start, found.fused.result)
    for load in (load for part in parts for load in loads(part)):
        for index, size in zip(load.indices, load.source.ty.shape, strict=True):
            known = as_constant(index)
            # An axis runs from 0; a rule takes no other indices than axes and constants.
            low, high = (known, known + 1) if isinstance(known, int) else (0, 0)
            if low < 0 or max(high, extents.get(handle(index), 0)) > as_constant(size):
                return str(load.source.name)
    return ""


def beyond(name: str) -> ValueError:
    """Return the error for a buffer that is read beyond its end but for a condition."""
    return ValueError(
        f"'{name}' is read beyond its end but for a condition, and a kernel for Trainium loads "
        f"whole tiles: pad in a function of its own, {_WAY_OUT}"
    )


def reason(error: Exception) -> str:
    """Return in one line why there is no kernel of a point."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, s_tir.ScheduleError):
        # The lines after this one explain its terms; they may be missing.
        start = "Error message: "
        message = next((line for line in lines if line.startswith(start)), lines[-1])
        return f"TVM refuses its loops: {message.removeprefix(start)}"
    # These are about lines of its text.
    return f"its kernel, {lines[0]}" if isinstance(error, KernelError | CheckError) else lines[0]
