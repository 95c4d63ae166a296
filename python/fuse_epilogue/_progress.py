"""Progress of long work on standard error: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time

_BAR = 30
#: Off a terminal, seconds from one line to the next at least.
EVERY_S = 5.0


class Progress:
    """The steps of one piece of work, and how long the rest of it will take.

    Nothing that fails here stops the work: standard error may be closed, or its disk full.
    """

    def __init__(self) -> None:
        self._since: tuple[float, int] | None = None
        self._said = time.monotonic()

    def show(self, what: str, number: int, of: int, said: str = "") -> None:
        """Redraw the bar; off a terminal, print a line if the last one is :data:`EVERY_S` ago.

        - `what`: name of the current work.
        - `number`, `of`: how many steps are done, of how many.
        - `said`: about the last of them.
        """
        now = time.monotonic()
        if self._since is None or number < self._since[1]:
            self._since = now, number
        if sys.stderr is None:
            return
        rest = self._rest(now, number, of)
        if sys.stderr.isatty():
            bar = "#" * (_BAR * number // max(of, 1))
            columns = shutil.get_terminal_size().columns - 1
            text = f"{what[:30]}: [{bar:{_BAR}}] {number}/{of} {rest}{said}"[:columns]
            _print(f"\r{text:{columns}}", "\n" if number == of else "")
        elif now - self._said >= EVERY_S:
            self._said = now
            _print(f"{what}: {number} of {of} {rest}{said}".rstrip(), "\n")

    def _rest(self, now: float, number: int, of: int) -> str:
        """Return how long what is left takes, if each step takes as long as those before."""
        assert self._since is not None
        begin, first = self._since
        if number <= first or number >= of or now - begin < EVERY_S:
            return ""
        return f"({duration((now - begin) / (number - first) * (of - number))} left) "


def duration(seconds: float) -> str:
    """Return a time as it is said of what is left.

    >>> duration(7.6), duration(200), duration(7300)
    ('8 s', '3 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def _print(text: str, end: str) -> None:
    with contextlib.suppress(OSError):
        print(text, end=end, file=sys.stderr, flush=True)
