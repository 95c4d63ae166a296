"""
A kernel as an optimisation problem
===================================

Should the bias be fused into this reduction, or follow it, or stay separate? With tiles of how many
rows? A table of rules would answer by the operator and the shape. This tutorial answers otherwise:
what can be chosen becomes *variables*, what the machine forbids *constraints*, and what a choice
costs a sum of four *terms* in seconds. The best point of that space is the schedule, and its costs
are the reasons. Fusion is not an option to tick, but a variable like the others.

First we write such a problem by hand. Then ``fuse_epilogue.plan`` does it for us, and we read what
it has to say. It needs no more than the LLVM target.
"""

# %%
# The function, and the machine
# -----------------------------
# A product of two matrices with a short sum (K = 16), a bias, and a ReLU. One block for each step.

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import tvm
from tvm import s_tir, tirx

import fuse_epilogue
from fuse_epilogue import schedules, workloads
from fuse_epilogue.planner import Plan
from fuse_epilogue.planner.machines.cpu import Cpu, cpu
from fuse_epilogue.planner.measurement.measure import seconds
from fuse_epilogue.planner.problems.cost import Terms, Weights, traffic_seconds
from fuse_epilogue.planner.problems.nest import Access, Nest
from fuse_epilogue.planner.problems.space import (
    Constraint,
    Point,
    Points,
    Space,
    Variable,
    divisors,
)
from fuse_epilogue.planner.search.search import search

try:
    from pictures import bars, show, written
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = written = lambda *_, **__: None

# TVM takes half of the processors by itself. It reads this when it first starts threads.
THREADS = min(2, os.cpu_count() or 1)
os.environ["TVM_NUM_THREADS"] = str(THREADS)

M, N, K = 256, 512, 16
product = workloads.matmul(M, N, K, activation="relu")
print(product.script())

# %%
# The planner sees a processor as a few numbers: vectors and registers from TVM's target, caches
# from the operating system, what a core executes in a clock from a table. Ours shall use one core.

target = schedules.host(THREADS)
machine = replace(cpu(target), cores=1)
LANES = machine.lanes(32)
print(machine)
for level in machine.levels:
    print(f"  {level.name}: {level.bytes or 'all'} bytes, {level.bytes_per_s / 1e9:.0f} GB/s")

# %%
# Variables
# ---------
# Three of them. A tile of the result, some rows by some vectors, is summed up in registers; and
# what follows the sums runs in loops of its own, on each finished tile, or is absorbed into what
# the sums start from.

WAYS = ("none", "tail", "absorbed")


def variables(m: int, n: int) -> tuple[Variable, ...]:
    """Return what is chosen for a result of m rows and n columns."""
    return (
        Variable("fusion", (0, 1, 2), "", "where bias and ReLU are computed", WAYS),
        Variable("rows", divisors(m, 16), "rows", "rows of a tile"),
        Variable("vectors", divisors(n // LANES, 4), "vectors", "vectors in a row of a tile"),
    )


# %%
# Constraints
# -----------
# One. A sum that has no register goes through memory in every step of k. A step also holds the
# vectors of b, and one element of a in all lanes. Points are arrays: the function is called once,
# for all points.


def live(points: Points) -> np.ndarray:
    """Return the registers that a step needs."""
    return points["rows"] * points["vectors"] + points["vectors"] + 1


registers = Constraint("registers", machine.registers, "registers", live, "a tile stays in them")
space = Space(variables(M, N), (registers,))
points, pruned = space.feasible()
print(f"{space.size} points, {points.size} of them feasible; pruned: {pruned}")
assert points.size + sum(pruned.values()) == space.size

# %%
# The cost
# --------
#     cost = alpha * traffic + beta * latency + gamma * spill - delta * parallelism
#
# - *Traffic*: the bytes that loops move between levels of memory, at the bandwidth of each. We say
#   which loops there are and what their body touches; ``Nest`` computes what is reused.
# - *Latency*: what one core takes to execute all instructions.
# - *Spill*: our constraint leaves none. *Parallelism*: what further cores save; ours is one.
#
# The weights belong to a machine and not to a kernel. 1 means: as its description says.


@dataclass(frozen=True)
class TiledProduct:
    """A problem: what the search and the explanation ask for is all here."""

    func: tirx.PrimFunc
    machine: Cpu
    sizes: dict[str, int]
    kind: str = "tiled product"
    dtype: str = "float32"
    #: Its cost is exact, and no part of the space is left out.
    exact_costs: ClassVar[None] = None
    missing: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def space(self) -> Space:
        """The space of choices."""
        return Space(variables(self.sizes["m"], self.sizes["n"]), (registers,))

    def cost(self, points: Points) -> Terms:
        """Return the terms, each an array: seconds of all points."""
        m, n, k = (self.sizes[name] for name in "mnk")
        r, v = points["rows"], points["vectors"]
        row, column = (("m0", r), ("m1", 1)), (("n0", v * LANES), ("n1", 1))
        tiles = Nest(
            (("m0", m // r), ("n0", n // (v * LANES)), ("k", k), ("m1", r), ("n1", v * LANES)),
            (
                Access("a", (row, (("k", 1),)), 4),
                Access("b", ((("k", 1),), column), 4),
                Access("y", (row, column), 4, write=True, behind="k"),
            ),
        )
        again = Nest(
            (("i", m), ("j", n)),
            (
                Access("sums", ((("i", 1),), (("j", 1),)), 4),
                Access("y", ((("i", 1),), (("j", 1),)), 4, write=True),
            ),
        )
        apart = points["fusion"] == 0
        traffic = traffic_seconds(tiles, self.machine)
        traffic = traffic + apart * traffic_seconds(again, self.machine)

        # Clocks of a step: r * v updates, v loads of b, r of a; a sum waits for the step before.
        core = self.machine.core
        step = np.maximum.reduce([r * v / core.fma, (r + v) / core.load, 0 * r + core.latency])
        # After the steps of a tile: bias and ReLU, and the store. An absorbed bias needs no
        # addition, since the sum starts from it.
        behind = np.where(apart, 0, np.where(points["fusion"] == 1, 2, 1)) / core.add
        tile = k * step + r * v * (behind + 1 / core.store)
        clocks = m // r * (n // (v * LANES)) * tile
        other = m * n // LANES * (2 / core.add + 1 / core.load + 1 / core.store)
        latency = (clocks + apart * other) / self.machine.clock_hz + self.machine.call_s
        nothing = np.zeros(points.size)
        return Terms(traffic + nothing, latency, nothing, nothing)

    def apply(self, point: Point) -> s_tir.Schedule:
        """Return the schedule of a point: TVM's own primitives."""
        self.space.check(point)
        sch = s_tir.Schedule(self.func)
        m, n, k = sch.get_loops("matmul")
        m0, m1 = sch.split(m, [None, point["rows"]])
        n0, n1, lane = sch.split(n, [None, point["vectors"], LANES])
        sch.reorder(m0, n0, k, m1, n1, lane)
        sch.unroll(m1)
        sch.unroll(n1)
        sch.vectorize(lane)
        if point["fusion"]:
            exact = "exact" if point["fusion"] == 1 else "reassociate"
            sch.fuse_reduction_epilogue("matmul", numerics=exact)
        else:
            sch.compute_inline("bias")
            sch.vectorize(sch.split(sch.get_loops("relu")[1], [None, LANES])[1])
        sch.decompose_reduction("matmul", k)
        return sch

    def resized(self, name: str, size: int) -> "TiledProduct":
        """Return the problem with another size: enough to cost it."""
        return replace(self, sizes={**self.sizes, name: size})


# %%
# Solve it
# --------
# The space is small, so all of it is costed. A solution can be explained for any problem, also one
# written by hand.

ours = TiledProduct(product, machine, {"m": M, "n": N, "k": K})
found = search(ours, Weights())
solved = Plan(ours.kind, ours.sizes, ours.dtype, machine, Weights(), found, known=ours)
print(solved.explain())

# %%
# The search has no opinion about fusion. It has seen that a pass over the sums costs traffic and
# instructions, and that a sum which starts from the bias saves an addition. Take the reasons away,
# and the choice goes with them: with weights of 0 all ways cost the same.

everything = Weights().cost(ours.cost(points))
assert found.best.cost == everything.min() and found.evaluated == points.size
assert found.by_fusion["none"].cost > found.best.cost
free = search(ours, Weights(alpha=0, beta=0))
assert len({candidate.cost for candidate in free.by_fusion.values()}) == 1

# %%
# A point is a schedule. Whole numbers make every sum exact, in any order: the comparison with numpy
# is for equality, for every way to fuse.

rng = np.random.default_rng(0)
a, b, bias = (rng.integers(-4, 5, s).astype("float32") for s in ((M, K), (K, N), (N,)))
expected = np.maximum(a @ b + bias, 0)
arguments = [tvm.runtime.tensor(each) for each in (a, b, bias, np.full((M, N), np.nan, "float32"))]


def checked(built: tvm.runtime.Executable) -> tvm.runtime.Executable:
    """Return what was compiled, after it computed the right result."""
    arguments[-1].copyfrom(np.full((M, N), np.nan, "float32"))
    built["main"](*arguments)
    assert np.array_equal(arguments[-1].numpy(), expected)
    return built


for candidate in found.by_fusion.values():
    checked(tvm.compile(ours.apply(candidate.point).mod, target=target))

# %%
# The planner's own
# -----------------
# ``fuse_epilogue.plan`` finds the product in the function by what it computes, and makes a problem
# of it with more variables (blocks for the caches, their order, packing, unrolling, threads), whose
# cost knows more of the machine. Where this processor has been calibrated, the weights are those
# that fit measurements.

plan = fuse_epilogue.plan(product, target)
why = plan.explain(verbose=True)
print(why)

# %%
# That is everything there is to say; ``plan.explain()`` keeps to one screen. How to read it,
# from top to bottom:
#
# - *chosen*: a value for each variable, and what each term adds to the predicted time. Parallelism
#   is what several cores save, so it is taken off.
# - *fused against unfused*: the best point of each way to fuse, so that it is fusion that is
#   compared and not an unlucky tile. Ways that cost about the same are called indifferent; how
#   close that is comes from how far measured pairs of schedules were from their prediction.
# - *searched*: how many points there were, and which constraint ruled out how many of them.
# - *binding constraints*: limits that the choice comes close to, and what breaking one would save.
# - *what another size would change*: the same problem solved again, one size changed. This is where
#   a regime of fusion ends: the longer the sums, the less there is to gain.
# - *what the words mean*: the terms and the variables, for a reader who has only this text.

for part in ("chosen:", "fused against unfused", "searched", "binding constraints", "fusion for k"):
    assert part in why

# %%
# The same as a table, for a report, and as a picture. On its left a roofline: the roofs are those
# of the machine's description, the rings the candidates. On its right what the terms add up to.

print(plan.table())
show("planner_roofline", written(plan.picture))

# %%
# A plan is data
# --------------
# The plan can be stored, compared and loaded again, later or on another machine. Applied to the
# function, it gives the same schedule.

text = plan.to_json()
again = Plan.from_json(text)
print(f"{len(text)} characters; chosen: {again.point}")
assert again == plan
tvm.ir.assert_structural_equal(again.apply(product).mod, plan.apply(product).mod)

# %%
# And it is for one function. Another one has another plan:

try:
    again.apply(workloads.matmul(M, N, 2 * K, activation="relu"))
except ValueError as error:
    refused = str(error)
print(refused)
assert "plan again" in refused

# %%
# Predicted and measured
# ----------------------
# Each way to fuse at its best, compiled, compared with numpy, and timed with its data at hand.
# ``fuse_epilogue.compile(product, target)`` plans and compiles in one call.

print(f"{'':10} predicted    measured on this machine, now")
problem = plan.problem(product)
chart = {}
for way, candidate in plan.found.by_fusion.items():
    built = checked(tvm.compile(problem.apply(candidate.point).mod, target=target))
    took = seconds(built, arguments)
    print(f"{way:10} {1e6 * candidate.cost:6.1f} us    {1e6 * took:6.1f} us")
    chart[way] = {"predicted": 1e6 * candidate.cost, "measured": 1e6 * took}
assert np.array_equal(fuse_epilogue.compile(product, target)(a, b, bias), expected)
show("planner_measured", bars("microseconds, measured on this machine", chart, "us"))

# %%
# No assertion here: your numbers are yours. A model of four terms is not a clock; what it has to
# get right is the order. On a machine that was not calibrated even the scale may be off; ``python
# -m fuse_epilogue calibrate --out FILE`` measures yours, and ``plan(..., profile=...)`` takes what
# it wrote.
#
# Another size
# ------------
# The less there is to sum up, the more the pass over the sums weighs. The gain of fusing, by the
# length of the sums, is a result of the search, not an input.

gains = {}
for k in (4, 16, 64, 256, 1024):
    ways = fuse_epilogue.plan(workloads.matmul(M, N, k, activation="relu"), target).found.by_fusion
    best = min(("tail", "absorbed"), key=lambda way: ways[way].cost)
    gains[k] = ways["none"].cost / ways[best].cost - 1
    print(f"K = {k:4}: {best:8}, unfused it would cost {100 * gains[k]:5.1f} % more")
percent = {f"K = {k}": {"": 100 * gain} for k, gain in gains.items()}
show("planner_gains", bars("what fusing gains, predicted", percent, "%"))
assert gains[4] > gains[64] > gains[1024]
