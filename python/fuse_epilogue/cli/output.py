"""What a command has to say: text for people, or JSON for machines; and its exit code."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

#: Exit codes: all went well; something was refused or cannot be done; the input or the command
#: line is wrong.
DONE, REFUSED, WRONG = 0, 1, 2


@dataclass(frozen=True)
class Answer:
    """What a command has found.

    Attributes
    ----------
    text : str
        For people.
    data : dict
        The same for machines; printed as JSON with ``--json``.
    code : int
        :data:`DONE` or :data:`REFUSED`.
    """

    text: str
    data: dict[str, Any]
    code: int = DONE

    def show(self, as_json: bool) -> int:
        """Print it on standard output and return the exit code."""
        print(json.dumps(self.data, indent=2) if as_json else self.text)
        return self.code


def note(text: str) -> None:
    """Print something beside the answer, on standard error."""
    print(text, file=sys.stderr)
