"""Programs that share a kernel's work: what they see of each other when a kernel is executed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import Refused
from .written import Written

if TYPE_CHECKING:
    from .values import Buffer


ALONE = "waits for another program, which does not come here"


class Peers:
    """The programs of one execution; one of them works at a time.

    - `count`: how many there are.
    - `written` (Written): which elements of shared tensors have been written.
    - `shared` (list[Buffer]): tensors in shared memory, in the order in which each program
      allocates them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.written = Written()
        self.shared: list[Buffer] = []
        self._turn = threading.Lock()
        self._barrier = threading.Barrier(count, self._compare)
        self._places: list[str] = []
        self._together = True
        self._mail: dict[int, np.ndarray] = {}

    def wait(self, place: str) -> None:
        """Wait until all programs are at such a place, for instance ``"core_barrier"``.

        - Raises Refused: another program waits at another place, or has ended.
        """
        self._places.append(place)
        self._turn.release()
        try:
            self._barrier.wait()
        except threading.BrokenBarrierError:
            raise Refused("language", ALONE) from None
        finally:
            self._turn.acquire()
        if not self._together:
            raise Refused("language", ALONE)

    def _compare(self) -> None:
        """Note whether the programs that have met are at such a place all of them."""
        self._together = len(set(self._places)) == 1
        self._places.clear()

    def exchange(self, program: int, data: np.ndarray, to: int, source: int) -> np.ndarray:
        """Send data to a program, and return what another one sends.

        - Raises Refused: there is no such program, or nothing comes from it.
        """
        if not 0 <= to < self.count or not 0 <= source < self.count:
            raise Refused("language", f"programs are 0 to {self.count - 1}")
        self._mail[to] = data.copy()
        self.wait("sendrecv")
        received = self._mail.get(program)
        self.wait("sendrecv")
        self._mail.pop(program, None)
        self.wait("sendrecv")
        if received is None:
            raise Refused("language", f"program {source} sends nothing here")
        return received

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """Return what `work` returns for each program.

        - Raises Exception: the first error of the first program that has one.
        """
        results: list[Any] = [None] * self.count
        errors: list[BaseException | None] = [None] * self.count

        def one(program: int) -> None:
            with self._turn:
                try:
                    results[program] = work(program)
                except BaseException as error:
                    errors[program] = error
            # No program has to wait for it any more.
            if errors[program] is not None or self._barrier.n_waiting:
                self._barrier.abort()

        threads = [threading.Thread(target=one, args=(at,)) for at in range(self.count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first = [it for it in errors if it is not None and ALONE not in str(it)]
        for error in (*first, *(it for it in errors if it is not None)):
            raise error
        return results
