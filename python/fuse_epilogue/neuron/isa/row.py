"""The row of an instruction of ``nisa``: all that this package knows about it.

Sources: AWS Neuron documentation, the pages of ``nki.isa`` (signatures of NKI 0.6, SDK 2.30 to
2.33). Where it leaves a choice, the stricter one is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .arithmetic import BINARY, FUNCTIONS, REDUCERS

if TYPE_CHECKING:
    from ..trace import Access

Arguments = Mapping[str, Any]

#: Engines by their name in ``nisa``.
ENGINES = {
    "tensor_engine": "tensor",
    "vector_engine": "vector",
    "scalar_engine": "scalar",
    "gpsimd_engine": "gpsimd",
}

#: Enumerations of ``nisa``, by name.
ENUMERATIONS: dict[str, tuple[str, ...]] = {
    "reduce_cmd": ("idle", "reset", "reduce", "reset_reduce", "load_reduce"),
    "dge_mode": ("unknown", "none", "swdge", "hwdge"),
    "oob_mode": ("error", "skip"),
    "matmul_perf_mode": ("none", "double_row"),
    "dma_engine": ("dma", "gpsimd_dma"),
}

#: What the names of operations in ``nl`` may stand for.
OPERATIONS: dict[str, Mapping[str, Any]] = {
    "op": BINARY,
    "function": FUNCTIONS,
    "reducer": REDUCERS,
}

#: The default of a parameter that has none.
REQUIRED: Any = object()

#: Of costs that no page of AWS was compared with.
ASSUMED = "assumed: compared with no document"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an instruction.

    - `kind`: ``dst``, ``result`` and ``results`` (several) are written; ``tile`` and ``tiles`` are
      read, ``any`` is not looked at. ``vector``: a number, or a tile of one column, one value for
      each partition; ``operand`` is the same, or None. ``op``, ``function`` and ``reducer`` are
      names in ``nl``. ``number``, ``integer``, ``flag``, ``axes``, ``pattern`` and ``values`` are
      constants; any other kind is an enumeration of ``nisa``.
    - `default`: `REQUIRED` if there is none.
    """

    name: str
    kind: str
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of an instruction.

    - `per_element`: cycles for each free element of the largest operand.
    - `source`: where the figure is from.
    - `machines`: names of the machines it is for.
    """

    per_element: float
    source: str
    machines: tuple[str, ...] = ("trn1", "trn2", "trn3")


def never(args: Arguments) -> bool:
    """Return that what is written is not read."""
    return False


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    - `engines`: which may execute it, NKI's choice first.
    - `parameters`: in their order; ``dst`` is one of them.
    - `fit`: raises `Refused` where the operands' shapes do not make an instruction.
    - `run`: computes; tiles are arrays. Further results are written in place.
    - `cost`: None: in `fuse_epilogue.neuron.costs`, where it depends on the operands, or a
      transfer.
    - `ignored`: parameters that change nothing here, such as hints to the compiler.
    - `reads_dst`: whether what it writes counts as read, too.
    - `since`: first machine that has it.
    - `hbm`: whether operands may be in HBM.
    - `partly`: operands of which only some elements are read: the others may be uninitialised.
    - `leading`: operands of which an instruction touches only the first four of every 32
      partitions.
    - `between_machines`: whether other machines take part: then how long it takes is not known.
    - `choose`: returns NKI's choice of an engine, where it depends on the operands.
    """

    name: str
    engines: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    fit: Callable[[Arguments], None]
    run: Callable[[np.ndarray, Arguments], None]
    cost: Cost | None = None
    ignored: tuple[str, ...] = ("name",)
    reads_dst: Callable[[Arguments], bool] = never
    since: str = "trn1"
    hbm: bool = False
    partly: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    between_machines: bool = False
    choose: Callable[[Arguments], str] | None = None

    def touched(self, name: str, access: Access) -> tuple[Access, ...]:
        """Return what is touched of an operand."""
        if name not in self.leading or access.partitions is None:
            return (access,)
        start, count = access.partitions
        return tuple(
            replace(access, partitions=(first, min(4, start + count - first)))
            for first in range(start, start + count, 32)
        )


def parameters(text: str, **defaults: Any) -> tuple[Parameter, ...]:
    """Return parameters written as ``"dst:dst data:tile axis:axes"``.

    >>> [it.kind for it in parameters("dst:dst value:number", value=0)]
    ['dst', 'number']
    """
    made = []
    for item in text.split():
        name, kind = item.split(":")
        made.append(Parameter(name, kind, defaults.get(name, REQUIRED)))
    return tuple(made)
