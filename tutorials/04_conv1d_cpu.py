"""
A convolution on the CPU: from naive to memory speed
====================================================

A depthwise convolution with a short filter does little with each number it reads: for a filter of
three taps, three products and three additions for one ``float32`` that is read and one that is
written. Memory cannot deliver operands as fast as a core computes with them, so there is a limit
that no schedule can beat by much: the time to copy x to y.

This tutorial starts from the function as one would write it down, and takes it towards that limit
in five steps. Each step is a schedule of a few lines, compiled, compared with numpy, and timed
against ``memcpy``. The last one is a rule of ``schedules``, which writes the code by itself. At the
end is a chart. It needs no more than the LLVM target.
"""

# %%
# The function
# ------------
# ``workloads.depthwise_conv1d`` gives it to us: 2 images, 256 channels, 2048 columns, 3 taps, zeros
# at both ends so that the result has as many columns as the input, a bias and a ReLU. One block for
# each step, nothing scheduled.

import os
import time

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir import Schedule
from tvm.script import tirx as T

from fuse_epilogue import schedules, workloads
from fuse_epilogue.targets import vector_bits

try:
    from pictures import bars, show, side_by_side
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = side_by_side = lambda *_, **__: None

# TVM takes half of the processors by itself. It reads this when it first starts threads.
THREADS = min(2, os.cpu_count() or 1)
os.environ["TVM_NUM_THREADS"] = str(THREADS)

N, C, W, F = 2, 256, 2048, 3
conv = workloads.depthwise_conv1d(N, C, W, F, padding="same", activation="relu")
print(conv.script())

# %%
# What to measure
# ---------------
# Before any clock is started, two numbers can be read off the program.
#
# *Passes*: how many times an array of the size of x or y is read or written from end to end. A copy
# has two. TVM cuts an intermediate buffer to the part that is alive at a time; what is small then
# stays in a register or in the nearest cache, and is not a pass.


def passes(func: tirx.PrimFunc) -> int:
    """Return how many times arrays as large as y are read or written by a block."""
    cut = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
    mod = tvm.ir.transform.Sequential(cut)(tvm.IRModule({"main": func}))
    touched: list[int] = []

    def note(block: s_tir.SBlock) -> None:
        # The blocks that TVM puts around others, to hold their buffers, have no names.
        if block.name_hint not in ("root", ""):
            buffers = [region.source for region in (*block.reads, *block.writes)]
            sizes = [np.prod([int(size) for size in buffer.ty.shape]) for buffer in buffers]
            touched.append(sum(size >= N * C * W for size in sizes))

    tvm_ffi.structural_walk(mod["main"].body, ((s_tir.SBlock, note),))
    return sum(touched)


# %%
# *Loads per output*: how many instructions load from x (or from its padded copy) for each element
# of y. A load of a whole vector counts as one. It is counted in what TVM hands to LLVM, which may
# still join neighbouring loads.


def loads_per_output(func: tirx.PrimFunc) -> float:
    """Return how many loads from x or its padded copy are executed for each element of y."""
    lower = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerOpaqueBlock(),
        s_tir.transform.LoopPartition(),
        tirx.transform.VectorizeLoop(),
        tirx.transform.UnrollLoop(),
        tirx.transform.StmtSimplify(),
    ]
    mod = tvm.ir.transform.Sequential(lower)(tvm.IRModule({"main": func}))

    def executed(statement: tirx.Stmt) -> int:
        if isinstance(statement, tirx.For):
            return int(statement.extent) * executed(statement.body)
        if isinstance(statement, tirx.SeqStmt):
            return sum(map(executed, statement.seq))
        if getattr(statement, "body", None) is not None:
            return executed(statement.body)
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(statement, (TensorLoad, loads.append))
        return sum(load.source.name in ("x", "padded") for load in loads)

    return executed(mod["main"].body) / (N * C * W)


# %%
# Whole numbers from -8 to 8 make every sum exact in ``float32``, in any order, so the comparison
# with numpy is for equality. y starts as NaN: an element that is not written cannot go unnoticed.
#
# ``schedules.host()`` is this machine: its processor by name, widest vectors. A plain ``"llvm"``
# means a processor as all of its kind are, on x86 with vectors of four ``float32``.

target = schedules.host()

# How many float32 a vector register holds: 16 with AVX-512, 8 with AVX, 4 with NEON. (TVM's own
# ``target.llvm_get_vector_width`` says 16 for any x86.)
LANES = vector_bits(target) // 32
print("elements of a vector:", LANES)

rng = np.random.default_rng(0)
x, weight, bias = (
    rng.integers(-8, 9, shape).astype("float32") for shape in ((N, C, W), (C, F), (C,))
)
padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
sums = sum(padded[:, :, tap : tap + W] * weight[:, tap, None] for tap in range(F))
expected = np.maximum(sums + bias[:, None], 0)
arguments = [tvm.runtime.tensor(a) for a in (x, weight, bias, np.full_like(x, np.nan))]

steps = {}  # name: the function
runs = {}  # name: a call of what it was compiled to


def step(name: str, func: tirx.PrimFunc) -> None:
    """Compile a function, compare its result with numpy, print the two numbers."""
    func = func.with_attr("global_symbol", "main")
    main = tvm.compile(func, target=target)["main"]
    arguments[-1].copyfrom(np.full_like(x, np.nan))
    main(*arguments)
    assert np.array_equal(arguments[-1].numpy(), expected), name
    steps[name], runs[name] = func, lambda: main(*arguments)
    print(f"{name}: {passes(func)} passes, {loads_per_output(func):.3f} loads per output")


# %%
# Step 0: as written
# ------------------
# Four blocks, and each of them reads one large array and writes another: eight passes, where two
# would do. The padded copy alone is two of them.

step("as written", conv)

# %%
# Step 1: no padded copy
# ----------------------
# ``compute_inline`` puts the padding where the convolution reads it. The copy is gone, and a
# condition has come in its place: the first and the last column of a row ask for an element that x
# does not have. Keep it in mind.

inlined = Schedule(conv)
inlined.compute_inline("pad")
step("padding inlined", inlined.mod["main"])
print(inlined.mod.script().partition("for i_n, i_c, i_w in")[0])

# %%
# Step 2: threads and vectors
# ---------------------------
# Rows (a channel of an image) are independent: they become one parallel loop. A row is cut into
# tiles of two vectors of columns. The taps are unrolled outside of the lanes, so that all lanes of
# a vector do the same thing to neighbouring columns.


def tiles(sch: Schedule) -> s_tir.schedule.LoopRV:
    """Schedule the convolution and return the loop over the tiles of a row."""
    n, c, w, tap = sch.get_loops("conv")
    tile, vector, lane = sch.split(w, [None, 2, LANES])
    sch.reorder(n, c, tile, tap, vector, lane)
    sch.unroll(tap)
    sch.unroll(vector)
    sch.vectorize(lane)
    sch.parallel(sch.fuse(n, c))
    return tile


vectors = inlined.copy()
tiles(vectors)
for block in ("bias", "relu"):
    n, c, w = vectors.get_loops(block)
    tile, lane = vectors.split(w, [None, LANES])
    vectors.vectorize(lane)
    vectors.parallel(vectors.fuse(n, c))
step("threads, vectors", vectors.mod["main"])

# %%
# The loads per output have not changed, although one load should serve a whole vector now. The
# condition is to blame: TVM has no vectors some lanes of which do not load, so it writes such a
# statement out as a loop over the lanes, one by one, and the sums go through memory between the
# taps. That is why this step can even be slower than the one before, despite its threads. The next
# two steps repair one thing each.
#
# Step 3: one pass
# ----------------
# Still the sums are written to memory, read to add the bias, written, read for the ReLU, and
# written. ``fuse_reduction_epilogue`` ends that. Each sum starts from the bias, and the ReLU runs
# right after the taps of a tile. The two buffers between the blocks took 4 MiB each; now there is
# only the current tile, two vectors.

fused = inlined.copy()
tile = tiles(fused)
report = fused.fuse_reduction_epilogue("conv")
print(report)
step("epilogue fused", fused.mod["main"])
assert report.steps[0].absorbed and passes(steps["epilogue fused"]) == 2
titles = "step 2: threads and vectors", "step 3: the same, fused"
before, after = (steps[name].script() for name in ("threads, vectors", "epilogue fused"))
show("conv1d_cpu_fused", side_by_side(before, after, titles))

# %%
# Two passes: x is read and y is written. No schedule needs fewer.
#
# Step 4: separate borders
# ------------------------
# Only the first and the last tile of a row meet a border. A hint has TVM split the loop over the
# tiles there, and for all those in the middle it can prove the condition, and drops it. Without a
# condition the vectors are vectors, and the sums of a tile stay in two registers.

apart = fused.copy()
apart.annotate(tile, "pragma_loop_partition_hint", 1)
step("borders apart", apart.mod["main"])
assert loads_per_output(steps["borders apart"]) < loads_per_output(steps["epilogue fused"]) / 2

# %%
# In the middle, three loads make a vector of results: one for each tap. They overlap almost
# entirely (``x[b - 1 : b - 1 + LANES]``, ``x[b : b + LANES]`` and ``x[b + 1 : b + 1 + LANES]``), so
# memory delivers each line only once, and the rest comes from the nearest cache. But two of the
# three do not begin where a vector of x begins, and some of those lie across two lines of the
# cache: such a load costs two. With AVX-512 a vector is as long as a line, and all of them do. The
# borders are still computed column by column.
#
# Step 5: the rule
# ----------------
# TVM's loops cannot say more than that. The rule ``schedules.cpu.DepthwiseConv1d`` takes the
# function as it was written, finds the convolution in it by what it computes, does the steps above
# (padding inlined, epilogue fused), and then writes the code for a row itself. With
# ``schedules.apply(conv, target)`` the planner chooses between this and the tiles above, by what
# they cost on the machine: tutorial 07.


def by_rule(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return a function as the rule schedules it."""
    sch = schedules.cpu.DepthwiseConv1d().apply(func, tvm.target.Target(target))
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


ruled = by_rule(conv)
step("the rule", ruled)

# %%
# Here is the middle of a row, from the loop over its tiles to the first store:

text = ruled.script(show_meta=False).splitlines()
start = next(at for at, line in enumerate(text) if "for tile in" in line)
end = next(at for at in range(start, len(text)) if " y[" in text[at])
print("\n".join(text[start : end + 1]))

# %%
# How to read it:
#
# - *Chunks.* x is loaded in chunks of one vector that lie where vectors of x lie: none of them
#   crosses a line (where rows are whole vectors, as here). A vector of results needs three, its own
#   and one on each side, and has two of them from the vector before: one load for a vector of
#   results, for any number of taps. Step 4 has a load for each tap.
# - *Windows.* What a tap needs is put together in registers: the first ``T.Shuffle`` takes the last
#   lane of one chunk, and all but the last of the next. That does not access memory, and with
#   AVX-512 is a single instruction. (The chunks hold the bits as integers, because LLVM has a
#   cheaper instruction to shift those.)
# - *Sums.* They start from the bias, take one product for each tap, and end in the ReLU, on the way
#   to the store: this is what the fused function computes for one element.
# - *Borders.* Nothing above asks where a row ends. The chunk before the first column is a vector of
#   zeros, known when the code is written:

print(text[next(at for at, line in enumerate(text) if "T.Broadcast(0" in line)].strip())
scheduled = ruled.script()
assert "if_then_else" not in scheduled and "T.Shuffle" in scheduled
assert loads_per_output(steps["the rule"]) < loads_per_output(steps["borders apart"])

# %%
# One more thing does not show at this size. A store to a line that is not in the cache loads that
# line first, so a pass that writes moves twice its bytes. There are stores that go around the
# caches (*streaming* stores) and save that: a third of what a copy moves. For a y that fits into a
# cache they would be a loss, because its reader would find it there. So the rule takes
# them only for a large y, and only on x86:

large = by_rule(workloads.depthwise_conv1d(64, 512, 2048, 3, activation="relu"))
streams = {"4 MiB": scheduled, "256 MiB": large.script()}
for size, script in streams.items():
    print(f"y of {size}: streamed" if "_stream_" in script else f"y of {size}: plain stores")
assert "_stream_" not in scheduled

# %%
# The clock
# ---------
# ``memcpy`` has to copy x to y with as many threads, called from Python in the same way. All
# versions take turns, so that whatever else the machine does meets all of them, and the fastest
# turn of each counts. The first two steps have no parallel loop: they run on one thread.


@T.prim_func(s_tir=True)
def copy(
    x: T.Buffer((N, C, W), "float32"),
    weight: T.Buffer((C, F), "float32"),
    bias: T.Buffer((C,), "float32"),
    y: T.Buffer((N, C, W), "float32"),
) -> None:
    for row in T.parallel(N * C):
        T.evaluate(
            T.call_extern(
                "handle",
                "memcpy",
                T.address_of(y[row // C, row % C, 0]),
                T.address_of(x[row // C, row % C, 0]),
                T.uint64(W * 4),
            )
        )


copying = tvm.compile(copy.with_attr("global_symbol", "main"), target=target)["main"]
copying(*arguments)
assert np.array_equal(arguments[-1].numpy(), x)
runs["memcpy"] = lambda: copying(*arguments)

samples: dict[str, list[float]] = {name: [] for name in runs}
for _ in range(25):
    for name, run in runs.items():
        run()  # Each version finds the caches as it leaves them itself.
        begin = time.perf_counter()
        for _ in range(4):
            run()
        samples[name].append((time.perf_counter() - begin) / 4)
seconds = {name: min(times) for name, times in samples.items()}

print(f"Measured on this machine, now, with {THREADS} threads:\n")
for name, time_of in seconds.items():
    ratio = time_of / seconds["memcpy"]
    print(f"{name:17} {time_of * 1e3:6.3f} ms {ratio:6.2f} x memcpy")
title = f"milliseconds, measured on this machine with {THREADS} threads"
chart = {name: {"": seconds[name] * 1e3} for name in steps}
show("conv1d_cpu_steps", bars(title, chart, "ms", limit=("memcpy", seconds["memcpy"] * 1e3)))

# %%
# Your numbers are yours, and other programs on the machine change them. What to look for: what the
# fusion gains, which removes four of six passes; then the vectors, once nothing is in their way;
# and how far the last step is from ``memcpy``. ``benchmarks/conv1d_cpu.py`` measures with more
# care, at many sizes, cold and warm, beside other libraries.
#
# To sum up, what each step did to the two numbers that no clock has measured:

for name, func in steps.items():
    print(f"{name:17} {passes(func)} passes  {loads_per_output(func):6.3f} loads per output")
assert [passes(func) for func in steps.values()] == [8, 6, 6, 2, 2, 2]
