"""Mutants that compute what the program does: by the line that is there instead, and why."""

from __future__ import annotations

from collections.abc import Sequence

#: Judged by reading; a changed line that is not here counts as a gap in the tests.
EQUIVALENT = {
    "if type(item) == Tile and isinstance(names, str):": "a class equals only itself",
    'if tile.space is "hbm":': "names of memories are literals, which Python keeps once",
    "if at >= len(known):": "`at` counts the entries of `known`, and is never beyond them",
    "return self._elements(value, param.type)[ -1]": "the array has one element",
    "found = self.add(found, self.mul(self.literal(power), self.atoms[atom].args[ -1]))": (
        "an exponential has one operand"
    ),
    'if a.type.kind in "iu" and a.type.bits >= 64 and suffix != "64":': (
        "no integer has more than 64 bits"
    ),
    "@dataclass(frozen=False)": "nothing assigns to the object: frozen guards against mistakes",
}


def why_equivalent(change: Sequence[str]) -> str:
    """Return why a mutant computes what the program does; empty if that is not known.

    Example
    -------
    >>> why_equivalent(["- if at == len(known):", "+ if at >= len(known):"])[:9]
    '`at` coun'
    """
    added = [line[1:].strip() for line in change if line.startswith("+")]
    return EQUIVALENT.get(added[0], "") if len(added) == 1 else ""
