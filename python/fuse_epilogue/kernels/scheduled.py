"""The result of scheduling a function, for any machine and kind of kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Packing:
    """Layout that a kernel takes a constant argument in; it is packed when the module is compiled.

    - `shape`: shape of the packed array.
    - `dtype`: type of the packed array.
    - `pack`: returns the packed array for an array of the parameter's own shape and type. Two that
      are equal pack equally; only dataclasses of :data:`.storage.PACKERS` can be kept in a
      database.
    """

    shape: tuple[int, ...]
    dtype: str
    pack: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Way:
    """A way to compute a function, for reports.

    - `text`: description of the loops.
    - `seconds`: by the cost model, or by the clock if ways were timed.
    - `parts`: seconds that each part of the work takes on one thread by the cost model; some
      overlap.
    """

    text: str
    seconds: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Scheduled:
    """A function with a schedule.

    - `func` (tvm.tirx.PrimFunc): the parameters of the function it replaces, in their order; those
      that are packed have the shape of their packing.
    - `kind`: kind of kernel, such as "contraction", "row program", "elementwise" or "scan".
    - `fusion`: what became of the epilogue of its reduction: "none", "tail" or "absorbed".
    - `predicted_s`: seconds by the cost model, on as many threads as it is scheduled for; by the
      clock if `trials` is not 0.
    - `packing`: by the index of a parameter that is constant at every call.
    - `trials`: number of ways that were timed to choose this one; 0 if it was chosen by prediction.
    - `why`: reason why it does not make use of what the caller allows; empty otherwise.
    - `ways`: this way, and after it those that were considered instead, the fastest first.
    """

    func: Any
    kind: str
    fusion: str = "none"
    predicted_s: float = 0.0
    packing: Mapping[int, Packing] = field(default_factory=dict)
    trials: int = 0
    why: str = ""
    ways: tuple[Way, ...] = ()
