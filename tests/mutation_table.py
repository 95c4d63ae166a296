"""The counts of the mutation tests, as a table for the terminal summary."""

from __future__ import annotations

from dataclasses import dataclass

# What becomes of a program without a check, from good to bad. Refused by another check; accepted,
# with the same result; accepted, and the result is another one, or depends on garbage, or TVM does
# not take the program.
STILL_REFUSED, ACCEPTED, WRONG = "still refused", "accepted", "wrong"
VERDICTS = (STILL_REFUSED, ACCEPTED, WRONG)


@dataclass
class Row:
    """How many programs came out how without the checks of a code."""

    check: str
    programs: int = 0
    still_refused: int = 0
    accepted: int = 0
    wrong: int = 0

    def count(self, verdict: str) -> None:
        self.programs += 1
        self.still_refused += verdict == STILL_REFUSED
        self.accepted += verdict != STILL_REFUSED
        self.wrong += verdict == WRONG


#: What the tests call it among their properties, which reports carry from process to process.
PROPERTY = "soundness check"


def table(rows: list[Row]) -> list[str]:
    """The rows as lines of text; nothing if there is none."""
    if not rows:
        return []
    heading = f"{'check':24}{'programs':>10}{'still refused':>15}{'accepted':>10}{'wrong':>7}"
    lines = [
        f"{row.check:24}{row.programs:10}{row.still_refused:15}{row.accepted:10}{row.wrong:7}"
        for row in sorted(rows, key=lambda row: row.check)
    ]
    return [heading, *lines]
