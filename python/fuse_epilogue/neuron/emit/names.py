"""Names for Python."""

from __future__ import annotations

import keyword
import re

#: Names that mean something else in a kernel.
RESERVED = frozenset({"nki", "nisa", "nl", "min", "max", "range", *keyword.kwlist})


class Names:
    """Names for Python, each given once."""

    def __init__(self) -> None:
        self._taken = set(RESERVED)

    def copy(self) -> Names:
        """Return the same names, to be added to."""
        made = Names()
        made._taken |= self._taken
        return made

    def unique(self, name: str) -> str:
        """Return a name that is not taken."""
        name = re.sub(r"\W", "_", name.replace("_trn.", "_").replace("_trn_", "_")).strip("_")
        name = name if name and not name[0].isdigit() else f"t{name}"
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found
