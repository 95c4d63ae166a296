"""The costs of a depthwise convolution's forms on a processor; see :mod:`.depthwise_problem`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....kernels.cpu.depthwise.loops import COLUMNS, UNROLLED, UNROLLED_AT_BORDERS
from ....kernels.cpu.depthwise.words import VNNI
from ....rewrites.epilogue import ABSORBED, NONE
from ..cost import Terms, overlapped, traffic_seconds, usable_cores
from ..nest import Access, Nest
from ..space import Points

if TYPE_CHECKING:
    from .depthwise_problem import ConvProblem

#: Clocks for one tap of one element where a condition keeps LLVM from vectors, near a border.
#: Measured, on znver5, as what follows.
_CONDITION = 1.0
#: Clocks for one tap of a vector near a border, written out: before AVX-512 there are no masks, and
#: what is inside is put together. Measured, on znver3.
_BLENDED = 5.0
#: Share of the time that a vector waits for its own sums which later vectors do not fill.
_EXPOSED = 0.5
#: Clocks for one tap of one element where no vector is written, by how many taps there are: LLVM
#: writes the few out, and finds the vectors itself, of rows that have some.
_FEW, _SOME = 3, 8
_OF_FEW, _OF_SOME, _OF_MANY = 0.35, 0.8, 4.3
#: Instructions of an epilogue from which on LLVM does not find its vectors: of an exp or a sigmoid.
_LONG = 16
#: Clocks for one element of such an epilogue where a row ends within a vector. Measured on znver5.
_LONG_AT_END = 8.0


def cost(problem: ConvProblem, points: Points) -> Terms:
    """Return the terms of the cost of points of a convolution."""
    p, machine, core = points, problem.machine, problem.machine.core
    rows, columns, taps = (problem.sizes[name] for name in ("rows", "columns", "taps"))
    # The numbers of the forms are those of .conv_problem, which imports this.
    tiles, rows_alone, by_element, words = (p["form"] == form for form in (0, 1, 2, 3))
    in_rows = rows_alone | words
    vectors = p["vectors"]
    lanes = np.where(by_element, 1, np.minimum(p["lanes"], _neighbours(problem)))
    each, ends = _clocks(problem, p, lanes, tiles, in_rows)
    apart = (p["fusion"] == NONE) & (problem.epilogue.blocks > 0)
    count = rows * columns / lanes
    if not problem.neighbours:
        tile = lanes * np.where(tiles, vectors, 1)
        count = rows * np.ceil(columns / tile) * tile / lanes
    wide = np.where(by_element, p["lanes"], lanes)
    behind = problem.epilogue.operations / core.add + 2 / core.load + 1 / core.store
    own = apart * rows * np.ceil(columns / wide) * behind
    latency = (count * each + own + ends) / machine.clock_hz
    # A tap that has no register is loaded where it is needed.
    over = np.maximum(0, np.where(in_rows, taps + 3, vectors + 1) - machine.registers)
    spill = over / core.load * count / machine.clock_hz
    tasks: Any = rows
    if problem.neighbours:
        some = np.maximum(COLUMNS // vectors, 1) * vectors
        tasks = max(1, rows // problem.neighbours) * np.ceil(columns / some)
    several = p["threads"] > 1
    usable = np.where(several, usable_cores(tasks, p["threads"]), 1.0)
    started = machine.call_s + several * (1 + apart) * machine.launch_s
    share = _traffic(problem, p, apart, usable)
    return overlapped(latency, share, spill, started, usable)


def _neighbours(problem: ConvProblem) -> int:
    """Return the elements along memory that a vector can have, a power of two."""
    size = problem.neighbours or problem.sizes["columns"]
    return 1 << (int(size).bit_length() - 1)


def _clocks(
    problem: ConvProblem, p: Points, lanes: Any, tiles: Any, in_rows: Any
) -> tuple[Any, Any]:
    """Return the clocks of a vector, or of an element, and those that borders add in all rows."""
    epilogue = problem.epilogue
    apart = (p["fusion"] == NONE) & (epilogue.blocks > 0)
    after = np.where(apart, 0, epilogue.operations - epilogue.absorbed * (p["fusion"] == ABSORBED))
    vector = _of_vector(problem, p, lanes, after, in_rows)
    # In loops that are not written out the sums of a tile go one step at a time.
    core, taps, vectors = problem.machine.core, problem.sizes["taps"], p["vectors"]
    rolled = tiles & (vectors * taps > UNROLLED)
    steps = taps * (core.latency / vectors + 1 / core.load)
    vector = np.maximum(vector, np.where(rolled, steps, 0.0))
    each = np.where(tiles | in_rows, vector, _of_element(problem, after))
    if problem.neighbours:
        return each, np.where(tiles, _near_channels(problem, p), 0.0)
    return each, _near_columns(problem, p, lanes, each, tiles, in_rows)


def _of_vector(problem: ConvProblem, p: Points, lanes: Any, after: Any, in_rows: Any) -> Any:
    """Return the clocks of a vector of sums, with what follows."""
    machine, core, vectors = problem.machine, problem.machine.core, p["vectors"]
    words = p["form"] == 3
    # Four taps of a word are one, with one window of its own.
    count = problem.sizes["taps"]
    taps = np.where(words, -(-count // VNNI.count), count)
    # A load at an odd place is one of two lines every other time or more; elements that are not
    # neighbours are loaded one by one.
    crossing = 1 + core.crossing * np.minimum(1.0, lanes * problem.bytes / machine.line)
    if problem.neighbours:
        crossing = np.ones(p.size)
    elif problem.stride > 1:
        crossing = lanes * np.ones(p.size)
    # Taps stay in registers where there are enough of them.
    kept = taps + vectors + 2 <= machine.registers
    loads = np.where(in_rows, 1.0, taps * crossing + np.where(kept, 0.0, taps / vectors))
    moved = np.where(words, taps, taps - 1.0)
    shuffles = np.where(in_rows, moved * _shifting(problem, lanes), 0.0)
    # A conversion to a wider type also moves lanes: two instructions.
    converts = 2 * np.where(in_rows, 1, taps) * (problem.bits > 8 * problem.bytes) * ~words
    units = (taps + converts) / core.fma + (shuffles + after) / core.add
    issued = loads + taps + shuffles + converts + after + 1 + 3 / vectors
    busiest = np.maximum.reduce(
        np.broadcast_arrays(
            units, loads / core.load, np.ones(p.size) / core.store, issued / core.issue
        )
    )
    waits = _EXPOSED * (taps + after) * core.latency * issued / core.window / vectors
    return busiest + waits


def _of_element(problem: ConvProblem, after: Any) -> Any:
    """Return the clocks of one sum with what follows, where no vectors are written."""
    taps, widest = problem.sizes["taps"], problem.machine.lanes(problem.bits)
    few = taps <= _FEW and problem.sizes["columns"] >= 2 * widest
    of_tap = _OF_FEW if few else _OF_SOME if taps <= _SOME else _OF_MANY
    has_vectors = few and problem.epilogue.operations < _LONG
    return taps * of_tap + after / problem.machine.core.add / (widest if has_vectors else 1)


def _near_channels(problem: ConvProblem, p: Points) -> Any:
    """Return the clocks that borders add where channels are neighbours.

    The first and the last columns meet the border, with all their channels.
    """
    rows, columns, taps = (problem.sizes[name] for name in ("rows", "columns", "taps"))
    vectors = p["vectors"]
    return rows * (np.minimum(2.0, np.ceil(columns / vectors)) * vectors * taps * _CONDITION)


def _near_columns(
    problem: ConvProblem, p: Points, lanes: Any, each: Any, tiles: Any, in_rows: Any
) -> Any:
    """Return the clocks that borders add where columns are neighbours.

    The first and the last tile of a row have conditions, written out or not.
    """
    machine, taps, vectors = problem.machine, problem.sizes["taps"], p["vectors"]
    trips = np.ceil(problem.sizes["columns"] / (lanes * np.where(tiles, vectors, 1)))
    by_lane = np.minimum(2.0, trips) * lanes * vectors * taps * _CONDITION
    written = taps * each
    if machine.registers < 32:
        written = np.minimum(2.0, trips) * vectors * taps * _BLENDED
    near = np.where(vectors * taps > UNROLLED_AT_BORDERS, by_lane, written)
    if problem.stride > 1:
        # Written out, loads one by one are so under their conditions too.
        near = np.where(vectors * taps > UNROLLED, by_lane, 2 * by_lane)
    if problem.epilogue.operations >= _LONG:
        fused = (p["fusion"] != NONE) | (problem.epilogue.blocks == 0)
        near = near + fused * (problem.sizes["columns"] % lanes) * _LONG_AT_END
    extra = np.where(in_rows, 2.0 * each, np.where(tiles, near, 0.0))
    return problem.sizes["rows"] * (machine.core.branch * (trips >= machine.core.predicted) + extra)


def _shifting(problem: ConvProblem, lanes: Any) -> Any:
    """Return the instructions that move elements of two vectors into one.

    AVX2 moves them within 16 bytes only: most take two, one of which waits for the other half.
    """
    halves = (lanes * problem.bits > 128) & (problem.machine.registers < 32)
    return np.where(halves, 2.0, 1.0)


def _traffic(problem: ConvProblem, p: Points, apart: Any, cores: Any) -> Any:
    """Return the seconds of the traffic of one core, where n compute at once."""
    machine, at = problem.machine, ((("r", 1),), (("c", 1),))
    size = problem.bits // 8
    loops = (("r", problem.sizes["rows"] / cores), ("c", problem.sizes["columns"]))
    x = Access("x", at, problem.bytes)
    y = Access("y", at, problem.out_bytes, True)
    once, twice, read = (
        traffic_seconds(Nest(loops, accesses), machine, cores)
        for accesses in ((x, y), (Access("sums", at, size), y), (x,))
    )
    # Around the caches, the result goes to memory once, whatever the caches hold.
    stored = problem.sizes["rows"] * problem.sizes["columns"] * problem.out_bytes
    memory = machine.levels[-1]
    around = read + stored / (memory.bytes_per_s * np.minimum(cores, memory.at_once))
    return np.where(p["stores"] == 1, around, once + apart * twice)
