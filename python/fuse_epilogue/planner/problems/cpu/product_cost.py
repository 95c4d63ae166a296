"""Costs of the points of a product of matrices on a processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....rewrites.epilogue import ABSORBED, NONE
from ..cost import Terms, overlapped, traffic_seconds, usable_cores
from ..nest import Access, Nest
from ..space import Points

if TYPE_CHECKING:
    from .product import ProductProblem


#: How much longer it takes to spill a vector that fills a line: measured, on znver5.
_WHOLE = 4.0
#: Clocks from the store of a vector to its load: "Software Optimization Guide for the AMD Family
#: 19h Processors", "Store to Load Forwarding".
_PASSED_ON = 8.0


def nest(problem: ProductProblem, p: Points, cores: Any = 1.0) -> Nest:
    """Return the loops that each of n cores runs, and the memory that their body touches."""
    m, n, k = (problem.sizes[letter] for letter in "mnk")
    rows, width = p["rows"], problem.width(p)
    tiles_m, tiles_n = p["block_rows"] // rows, p["block_columns"] // width
    inside = p["order"] == 1  # the rows' loop is inside of the columns'
    blocks = m // p["block_rows"]
    # Cores take blocks of rows; of columns too, where there are too few of those.
    of_rows = np.minimum(cores, blocks)
    loops = (
        ("m0", blocks / of_rows),
        ("n0", n // p["block_columns"] / (cores / of_rows)),
        ("m1", np.where(inside, 1, tiles_m)),
        ("n1", tiles_n),
        ("m2", np.where(inside, tiles_m, 1)),
        ("k", k),
        ("m3", rows),
        ("n3", width),
    )
    at_m = (("m0", p["block_rows"]), ("m1", rows), ("m2", rows), ("m3", 1))
    at_n = (("n0", p["block_columns"]), ("n1", width), ("n3", 1))
    at_k = (("k", 1),)
    a = (at_k, at_m) if problem.a.transposed else (at_m, at_k)
    b = (at_n, at_k) if problem.b.transposed else (at_k, at_n)
    packed = p["pack"] == 1
    panel = (("k", width), ("n3", 1))
    panels = (("n0", tiles_n), ("n1", 1))
    # Two accesses of which one is nothing: an element of 0 bytes touches no line.
    bytes_b = problem.b.bytes
    rows_a = problem.a.bytes * (m if problem.a.transposed else k)
    rows_b = problem.b.bytes * (k if problem.b.transposed else n)
    stored = problem.stored_bytes(p)
    return Nest(
        loops,
        (
            Access("a", a, problem.a.bytes, row=rows_a),
            Access("b", b, np.where(packed, 0, bytes_b), row=rows_b, turns=True),
            Access("b packed", (panels, panel), np.where(packed, bytes_b, 0), turns=True),
            Access("sums", (at_m, at_n), stored, True, n * stored, behind="k"),
        ),
    )


def terms(problem: ProductProblem, points: Points) -> Terms:
    """Return the terms of the cost of points."""
    p, machine = points, problem.machine
    clocks, spilled = _clocks(problem, p)
    own = _own_passes(problem, p)
    several = p["threads"] > 1
    passes = 1 + (p["pack"] == 1) + _is_apart(problem, p)
    started = machine.call_s + several * passes * machine.launch_s
    latency = (clocks + own) / machine.clock_hz
    spill = spilled / machine.clock_hz
    usable = np.where(several, usable_cores(problem.tasks(p), p["threads"]), 1.0)

    def traffic(cores: Any) -> Any:
        main = traffic_seconds(nest(problem, p, cores), machine, cores)
        return main + _other_traffic(problem, p, cores)

    return overlapped(latency, traffic(usable), spill, started, usable)


def _is_apart(problem: ProductProblem, p: Points) -> Any:
    """Whether what follows has loops of its own."""
    return (p["fusion"] == NONE) & (problem.epilogue.blocks > 0)


def _clocks(problem: ProductProblem, p: Points) -> tuple[Any, Any]:
    """Return the clocks of all tiles on one core, and those of what registers do not hold."""
    core, k = problem.machine.core, problem.sizes["k"]
    rows, (vectors, lanes) = p["rows"], _vectors(problem, p)
    sums = rows * vectors
    gathered = problem.b.transposed & (p["pack"] == 0)
    loads_b = vectors * np.where(gathered, lanes, 1)
    converts = 0 if problem.dtype in ("float32", "float64") else vectors + rows
    updates = sums * (1 if problem.bits == 32 and problem.dtype.startswith(("float", "b")) else 2)
    units = (updates + converts) / core.fma + 2 * (loads_b - vectors) / core.add
    loads = loads_b + rows
    issued = updates + converts + loads_b + np.where(vectors > 1, rows, 0) + 3 / p["unroll"]
    # A sum waits for the step before; tiles that are in flight together wait together.
    waits = core.latency / np.maximum(1.0, core.window / (k * issued))
    step = np.maximum.reduce(
        np.broadcast_arrays(units, loads / core.load, issued / core.issue, waits)
    )
    live = sums + np.where(rows > 1, vectors, 0) + 1 + (converts > 0)
    over = np.maximum(0, live - problem.machine.registers)
    # A sum that fills a line is not passed on from its store to its load.
    whole = lanes * problem.bits // 8 >= problem.machine.line
    spilled = over * (1 / core.store + 1 / core.load) * np.where(whole, _WHOLE, 1.0)
    if problem.machine.registers < 32:
        spilled = np.maximum(spilled, _moved_sums(problem, p, loads, step))
    spilled = spilled * k
    start, tail = _around(problem, p)
    unforeseen = core.branch * (k // p["unroll"] > core.predicted)
    around = sums * (start + tail + 1 / core.store) + unforeseen + 4 / core.issue
    tiles = (problem.sizes["m"] // rows) * (problem.sizes["n"] // problem.width(p))
    # The two loops of a block's tiles end unexpectedly.
    blocks = 2 * core.branch * problem.tasks(p)
    return tiles * (k * step + around) + blocks, tiles * spilled


def _moved_sums(problem: ProductProblem, p: Points, loads: Any, step: Any) -> Any:
    """Return the clocks of a step for sums without a register, in tiles of one vector's width.

    Before AVX-512 each element of a is a vector of its own. Where that is used for one sum only,
    LLVM puts the sum into its register, and has those of two steps at a time, or of four. A sum
    that finds none there is stored and loaded again once for these steps, which takes two of the
    loads that a step can have, and makes the sum wait. Read off what LLVM 22 generates.
    """
    core = problem.machine.core
    missing = 2 * p["rows"] + 1 - problem.machine.registers
    steps = np.where(p["unroll"] >= 4, 4, 2)
    # Of one sum: LLVM has three steps at a time instead, where nothing asks for two.
    some = (p["vectors"] == 1) & ((missing > 1) | ((missing == 1) & (p["unroll"] == 2)))
    longer = np.maximum((loads + missing / steps) / core.load, core.latency + _PASSED_ON / steps)
    return np.where(some, np.maximum(step, longer) - step, 0.0)


def _vectors(problem: ProductProblem, p: Points) -> tuple[Any, Any]:
    """Return the vectors of a tile's row, and their lanes.

    Where columns are unrolled and not vectorized, LLVM makes vectors of neighbours.
    """
    widest = problem.machine.lanes(problem.bits)
    neighbours = np.minimum(p["vectors"] & -p["vectors"], widest)
    lanes = np.where(p["lanes"] > 1, p["lanes"], neighbours)
    return problem.width(p) // lanes, lanes


def _around(problem: ProductProblem, p: Points) -> tuple[Any, Any]:
    """Return the clocks for a vector of a tile before its first step and after its last."""
    core, epilogue = problem.machine.core, problem.epilogue
    absorbed = p["fusion"] == ABSORBED
    loads = len(epilogue.loads) / core.load
    # What a sum starts from is loaded and copied into its register: as much as to add it later.
    start = np.where(absorbed, epilogue.absorbed * (1 / core.load + 1 / core.add), 0.0)
    tail = (epilogue.operations - epilogue.absorbed * absorbed) / core.add
    tail = tail + loads - np.where(absorbed, epilogue.absorbed / core.load, 0.0)
    return start, np.where(p["fusion"] == NONE, 0.0, np.maximum(tail, 0.0))


def _own_passes(problem: ProductProblem, p: Points) -> Any:
    """Return the clocks of what is computed in loops of its own: packing, what follows."""
    core, epilogue = problem.machine.core, problem.epilogue
    m, n, k = (problem.sizes[letter] for letter in "mnk")
    copied = np.where(problem.b.transposed, 1, p["lanes"])
    pack = k * n / copied * (1 / core.load + 1 / core.store)
    each = epilogue.operations / core.add + (1 + len(epilogue.loads)) / core.load
    after = m * n / np.minimum(p["lanes"], _vector(n, p)) * (each + 1 / core.store)
    after = after + m * core.branch * (n // p["lanes"] > core.predicted)
    return pack * (p["pack"] == 1) + after * _is_apart(problem, p)


def _other_traffic(problem: ProductProblem, p: Points, cores: Any) -> Any:
    """Return the seconds of the traffic of loops of their own, in a core's share."""
    m, n, k = (problem.sizes[letter] for letter in "mnk")
    rows, columns = (("i", 1),), (("j", 1),)
    after = Nest(
        (("i", m / cores), ("j", n)),
        (
            Access("sums", (rows, columns), problem.bits // 8),
            Access("y", (rows, columns), problem.out_bytes, True),
        ),
    )
    # Panel after panel; where b is transposed, row after row into the lines of a panel.
    width = np.where(problem.b.transposed, n, problem.width(p))
    panel = (("n0", width), ("n1", 1))
    pack = Nest(
        (("n0", n / width / cores), ("k", k), ("n1", width)),
        (
            Access("b", ((("k", 1),), panel), problem.b.bytes, row=n * problem.b.bytes),
            Access("b packed", ((("n0", k), ("k", 1)), (("n1", 1),)), problem.b.bytes, True),
        ),
    )
    seconds = (traffic_seconds(each, problem.machine, cores) for each in (after, pack))
    return next(seconds) * _is_apart(problem, p) + next(seconds) * (p["pack"] == 1)


def _vector(n: int, p: Points) -> Any:
    return np.where(n % p["lanes"] == 0, p["lanes"], 1)
