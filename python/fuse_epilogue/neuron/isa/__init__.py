"""The instructions of ``nisa``: one row each, by family."""

from . import elementwise, exchange, matrix, microscaling, moves, reductions, search
from .row import ENGINES, ENUMERATIONS, OPERATIONS, REQUIRED, Cost, Instruction, Parameter

#: All instructions, by name.
INSTRUCTIONS: dict[str, Instruction] = {
    it.name: it
    for it in (
        *moves.ROWS,
        *elementwise.ROWS,
        *reductions.ROWS,
        *matrix.ROWS,
        *search.ROWS,
        *microscaling.ROWS,
        *exchange.ROWS,
    )
}

#: Instructions of ``nki.collectives``, by name.
COLLECTIVES: dict[str, Instruction] = {it.name: it for it in exchange.COLLECTIVES}

__all__ = [
    "COLLECTIVES",
    "ENGINES",
    "ENUMERATIONS",
    "INSTRUCTIONS",
    "OPERATIONS",
    "REQUIRED",
    "Cost",
    "Instruction",
    "Parameter",
]
