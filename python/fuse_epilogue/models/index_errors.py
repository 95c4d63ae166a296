"""The error for an index that is outside of its array, with the index and its place.

The check in the machine code only knows that there is one. After an error the model runs again, and
the indices of the check that fails are searched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph.index_check_function import ALLOWED, AN_INDEX, NAME


def with_index(error: IndexError, machine: Any, entry: str, arguments: Sequence[Any]) -> IndexError:
    """Return an error that names the index; the same one if no check fails.

    - `error`: what a call of the model raised.
    - `machine`: tvm.relax.VirtualMachine that nothing else uses.
    - `entry`, `arguments`: the function of the model that was called, and with what.
    """
    indices, limits = np.empty(0), []

    def instrument(_func: Any, name: Any, before: Any, _result: Any, *values: Any) -> None:
        nonlocal indices, limits
        if before and str(name).startswith(NAME):
            indices, limits = values[0].numpy(), [int(each) for each in values[1:]]

    machine.set_instrument(instrument)
    try:
        machine[entry](*arguments)
    except IndexError as again:
        return _described(str(again), indices, limits) or error
    return error


def _described(message: str, indices: np.ndarray, limits: Sequence[int]) -> IndexError | None:
    head, found, _ = message.partition(ALLOWED)
    pairs = list(zip(limits[::2], limits[1::2], strict=True))
    for at, (least, most) in enumerate(pairs):
        part = indices if len(pairs) == 1 else indices[..., at]
        # An unsigned type has no numbers below zero to compare with.
        outside = (part < least) | (part > most)
        if found and outside.any():
            place = [int(each) for each in np.argwhere(outside)[0]]
            where = [*place, *([at] if len(pairs) > 1 else [])]
            index = f"index {part[tuple(place)]}" + (f" at {where}" if where else "")
            return IndexError(f"{head.replace(AN_INDEX, index, 1)}{ALLOWED}{least} to {most}")
    return None
