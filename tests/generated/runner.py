"""Long runs over generated programs: in chunks, in several processes, interrupted and taken up."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TextIO

from .chunk import run_chunk
from .state import Chunk, Run, State, commit, provenance
from .tally import Tally

__all__ = ["ProgressBar", "commit", "provenance", "run_all"]

ChunkFunction = Callable[[Run, int, int, tuple[int, ...]], dict[str, Any]]


def run_all(
    run: Run,
    workers: int,
    progress: Callable[[int, Any], None],
    function: ChunkFunction | None = None,
    tally: Callable[[], Any] = Tally,
) -> Any:
    """Run what is not finished yet; return the tally of everything.

    Parameters
    ----------
    run : Run
    workers : int
        Processes; 0 for none but this one, which then ends with a program that ends it.
    progress : callable
        Called with the number of finished programs and the tally.
    function : callable, optional
        Runs a chunk; `chunk.run_chunk` if None. Other processes must be able to import it.
    tally : callable
        Makes what the chunks' results are merged into.

    Raises
    ------
    StateError
        If the state of an earlier run cannot be used.
    """
    state = State(run)
    if state.ignored:
        print(f"{state.path.name}: {state.ignored} broken lines are ignored", file=sys.stderr)
    total = tally()
    done = 0
    missing = []
    for chunk in run.chunks:
        if chunk in state.finished:
            total.merge(state.finished[chunk])
            done += chunk[1] - chunk[0]
        else:
            missing.append(chunk)
    progress(done, total)
    for (start, stop), result in _results(run, missing, workers, function):
        state.add(start, stop, result)
        save_counterexamples(run, result)
        total.merge(result)
        done += stop - start
        progress(done, total)
    return total


def _results(
    run: Run, chunks: list[Chunk], workers: int, function: ChunkFunction | None = None
) -> Iterator[tuple[Chunk, dict[str, Any]]]:
    """Yield the result of every chunk, in the order in which they are finished."""
    function = function or run_chunk
    for marker in run.folder.glob("current-*"):  # of a run that was killed
        marker.unlink(missing_ok=True)
    if workers == 0:
        for chunk in chunks:
            yield chunk, function(run, *chunk, ())
        return
    fatal: dict[Chunk, tuple[int, ...]] = {}
    waiting = list(reversed(chunks))
    while waiting:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _end_with_the_run) as pool:
            running: dict[Future[dict[str, Any]], Chunk] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < workers + 1:
                        chunk = waiting.pop()
                        running[pool.submit(function, run, *chunk, fatal.get(chunk, ()))] = chunk
                    finished, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in finished:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                _blame(run, list(running.values()), fatal)
                waiting += running.values()


def _end_with_the_run() -> None:
    """Have this process end when the one that started it does: killed, it tells nobody."""

    def watch() -> None:
        run = multiprocessing.parent_process()
        assert run is not None
        run.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _blame(run: Run, chunks: list[Chunk], fatal: dict[Chunk, tuple[int, ...]]) -> None:
    """Note the programs that were running when the processes died."""
    for marker in run.folder.glob("current-*"):
        with contextlib.suppress(ValueError):
            numbers = [int(text) for text in marker.read_text().split(",")]
            for chunk in chunks:
                found = tuple(n for n in numbers if chunk[0] <= n < chunk[1])
                fatal[chunk] = (*fatal.get(chunk, ()), *found)
        marker.unlink(missing_ok=True)


def save_counterexamples(run: Run, result: dict[str, Any]) -> None:
    """Write every counterexample of a chunk to a file of its own."""
    if run.baseline:
        return
    folder = run.folder / "counterexamples"
    for failure in result["failures"]:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{failure['verdict']}-{run.seed}-{failure['number']}.json"
        command = f"python -m {run.module} --show {path}"
        path.write_text(json.dumps({"command": command, **failure}, indent=1) + "\n")


class ProgressBar:
    """Shows how far a run is: a bar on a terminal, otherwise a line now and then."""

    def __init__(self, total: int, stream: TextIO = sys.stderr, every: float = 20.0) -> None:
        self._total = total
        self._stream = stream
        self._every = every
        self._start = time.monotonic()
        self._first: int | None = None
        self._shown = -every

    def __call__(self, done: int, tally: Any) -> None:
        """Show that so many programs are done."""
        if self._first is None:
            self._first = done
        elapsed = time.monotonic() - self._start
        terminal = self._stream.isatty()
        if not terminal and done < self._total and elapsed - self._shown < self._every:
            return
        self._shown = elapsed
        rate = (done - self._first) / elapsed if elapsed > 0.1 else 0.0
        left = f"{(self._total - done) / rate / 60:.1f} min left" if rate else ""
        text = (
            f"{done:,}/{self._total:,} programs ({100 * done / max(1, self._total):.0f} %), "
            f"{rate:.0f}/s, {tally.wrong} wrong, {left}"
        )
        if terminal:
            filled = 20 * done // max(1, self._total)
            bar = "#" * filled + "." * (20 - filled)
            end = "\n" if done >= self._total else ""
            print(f"\r[{bar}] {text:<70}", end=end, file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)
