"""Programs that come out wrong, or not at all, where one soundness check is missing.

Each shows what a check is there for. The programs of the corpus that are refused for the same
reason are often right all the same if the check is switched off, or refused by another one.
"""

from __future__ import annotations

from mutation import Mutant

from . import mutants_loops, mutants_memory

MUTANTS: list[Mutant] = [
    *mutants_loops.MUTANTS,
    *mutants_memory.MUTANTS,
]
