"""
Fuse your first epilogue
========================

A reduction is rarely the end of the story. A matrix product is followed by a bias, a convolution by
a bias and an activation, a dot product by a residual. The work that follows, one value for each
value of the reduction, is its *epilogue*.

In TIR an epilogue starts as a block of its own: the reduction writes an intermediate buffer, and
a second loop nest reads it back and writes the result. ``sch.fuse_reduction_epilogue(block)``
makes one block of the two, and the intermediate buffer disappears.

This tutorial fuses a bias into a small matrix product, looks at what changed and why that is
allowed, runs both versions, replays the fusion, and meets a fusion that is refused. It needs no
more than the LLVM target, and no other tutorial.
"""

# %%
# TIR in a minute
# ---------------
# Those who know TVM can go on with the program. TIR is TVM's language of loops: what NKI has as
# loops around instructions on tiles, TIR has as loops around *blocks*. A block is what is computed
# for one point; its axes are named at its top. ``vi, vj, vk = T.axis.remap("SSR", [i, j, k])`` says
# that vi, vj and vk are the loop variables i, j and k, that vi and vj are *spatial* (each point has
# a result of its own), and that vk is *reduced* over (all its points go into the same result).
# ``T.init`` is what a reduction does before its first step; storing 0, mostly.
#
# ``T.Buffer`` is an array that the caller passes, ``T.sblock_alloc_buffer`` one that lives inside
# the function. A ``Schedule`` changes such a program step by step, with *primitives*: it splits a
# loop, moves a block, makes a loop parallel. Each primitive leaves the result as it was.
# ``fuse_reduction_epilogue`` is one more of them.

# %%
# The program
# -----------
# ``import tvm`` is enough to have the primitive, because TVM loads installed backends by itself.
# We import ``fuse_epilogue`` as well, for the table of refusals that we need later.
#
# The block ``multiply`` adds up products of 8-bit integers in 32 bits. The block ``add`` is its
# epilogue.

# sphinx_gallery_thumbnail_path = '_static/overview.svg'

import numpy as np
import tvm
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.script import tirx as T

import fuse_epilogue

try:
    from pictures import show, side_by_side
except ImportError:  # the tutorial alone, without its folder: no drawings
    show = side_by_side = lambda *_, **__: None


@T.prim_func(s_tir=True)
def matmul_bias(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
) -> None:
    temp = T.sblock_alloc_buffer((16, 16), dtype="int32")
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.int32(0)
            temp[vi, vj] = temp[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(B[vj, vk], "int32")
    for i, j in T.grid(16, 16):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + C[vi, vj]


# %%
# The call
# --------
# One argument is enough: the reduction. The primitive finds what reads its result, and goes on
# with what follows for as long as it can. ``debug_mask="all"`` asks TVM to check its own records
# after every step. It is slower, and a good habit while you write a schedule.
#
# The call returns a report: which block was fused, what the init took over, and whether something
# after it had to be left.

sch = Schedule(matmul_bias, debug_mask="all")
report = sch.fuse_reduction_epilogue("multiply")
print(report)

# %%
# The report is data too. ``steps`` has one entry per epilogue, and ``stopped`` is ``None`` because
# nothing follows the bias that could have been fused as well.

(step,) = report.steps
print("fused block:       ", step.epilogue)
print("now in T.init:     ", step.absorbed)
print("buffer removed:    ", step.removed)
print("reduction writes:  ", report.output)
print("stopped by:        ", report.stopped)

# %%
# The result
# ----------
# Here is the function before and after. (In a terminal it is the text of the second one alone; the
# environment variable ``TUTORIAL_PICTURES`` names a folder for pictures, if you want them.)
#
# Three things have changed. ``T.init`` stores ``C[vi, vj]`` instead of 0. The sum is built in
# ``D``, where the result belongs. The block ``add`` and the buffer ``temp`` are gone, so 256 values
# are no longer written and read back. ``T.reads`` and ``T.writes`` say what the block now does.

fused = sch.mod["main"]
print(fused.script())
show("first_epilogue", side_by_side(matmul_bias.script(), fused.script()))

# %%
# Why this is allowed
# -------------------
# ``T.init`` runs once for each element of the result, before its first step. The two versions
# compute
#
# .. code-block:: text
#
#    before:  D = (0 + t[0] + t[1] + ... + t[15]) + C
#    after:   D =  C + t[0] + t[1] + ... + t[15]
#
# Addition is associative and commutative and 0 is its neutral element, so both are the same sum.
# On integers they agree bit for bit. On floating-point numbers only the order of the additions
# differs, and with it the rounding. ``numerics="exact"`` forbids even that: tutorial 03 tells what
# the primitive does then.
#
# ``C`` may move because it does not depend on ``k`` and nothing writes it between the two blocks.
# The primitive proves that, and more, before it changes anything.

# %%
# Run both
# --------
# The inputs cover all of ``int8``, negative numbers included. Inputs that are never negative hide
# many mistakes: a misplaced ReLU, for one, has no effect on them.

rng = np.random.default_rng(0)
a, b = (rng.integers(-128, 128, (16, 16)).astype("int8") for _ in range(2))
c = rng.integers(-100_000, 100_000, (16, 16)).astype("int32")


def run(program: tvm.tirx.PrimFunc | tvm.IRModule) -> np.ndarray:
    """Compile ``program`` for LLVM and return what it computes from ``a``, ``b`` and ``c``."""
    built = tvm.compile(program, target={"kind": "llvm"})
    # tvm.runtime.tensor copies the memory: compiled code expects it at aligned addresses.
    tensors = [tvm.runtime.tensor(array) for array in (a, b, c, np.zeros_like(c))]
    built["main"](*tensors)
    return tensors[-1].numpy()


expected = a.astype("int32") @ b.astype("int32").T + c
print("unfused equals numpy:", np.array_equal(run(matmul_bias), expected))
print("fused equals numpy:  ", np.array_equal(run(sch.mod), expected))

# %%
# Both lines end in ``True``: the three results are the same in every bit.
#
# Replay
# ------
# A schedule keeps a trace of its steps. The fusion is one of them, as it was called: with one
# block, and whatever follows it.

print(sch.trace)

# %%
# So the trace can be stored as JSON and replayed on a fresh copy of the program, which is what
# MetaSchedule does with its database. A replay takes nothing on trust: it proves every condition
# again. Here it leads to the same program.

replayed = Schedule(matmul_bias, debug_mask="all")
Trace.apply_json_to_schedule(sch.trace.as_json(), replayed)
tvm.ir.assert_structural_equal(replayed.mod, sch.mod)

# %%
# A refusal
# ---------
# What a reduction cannot absorb is seldom a problem: a ReLU, say, is placed right after the
# reduction loops instead (tutorial 02). A problem is a value that would be read too early. Here the
# result is shifted by a zero point of 128. The generator of the code moved that shift into the
# bias, in a block between the reduction and its epilogue:


@T.prim_func(s_tir=True)
def matmul_corrected(
    A: T.Buffer((16, 16), "int8"),
    B: T.Buffer((16, 16), "int8"),
    C: T.Buffer((16, 16), "int32"),
    D: T.Buffer((16, 16), "int32"),
) -> None:
    temp = T.sblock_alloc_buffer((16, 16), dtype="int32")
    corrected = T.sblock_alloc_buffer((16, 16), dtype="int32")
    for i, j, k in T.grid(16, 16, 16):
        with T.sblock("multiply"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                temp[vi, vj] = T.int32(0)
            temp[vi, vj] = temp[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(B[vj, vk], "int32")
    for i, j in T.grid(16, 16):
        with T.sblock("correct"):
            vi, vj = T.axis.remap("SS", [i, j])
            corrected[vi, vj] = C[vi, vj] - 128
    for i, j in T.grid(16, 16):
        with T.sblock("add"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = temp[vi, vj] + corrected[vi, vj]


# %%
# An init that loads ``corrected[vi, vj]`` would run before ``correct`` has stored anything there:
# the sums would start from whatever the memory held before. So the call raises ``ScheduleError``,
# like every primitive of TVM that cannot do what it is asked.

refusing = Schedule(matmul_corrected, debug_mask="all")
refused = None
try:
    refusing.fuse_reduction_epilogue("multiply")
except ScheduleError as error:
    refused = error
print(refused)

# %%
# How to read it: the program is printed as it was when the call was made, with the offending part
# underlined. The line that starts with ``Error message:`` has a code in brackets and a sentence:
# what failed, for which block, and what to do instead. The code never changes, so a program can
# ask for it, and ``REFUSALS`` explains all of them.

code = fuse_epilogue.refusal_code(refused)
print(code)
print(fuse_epilogue.REFUSALS[code])

# %%
# A refused call changes nothing. The module is the one we began with, and the trace is empty.

tvm.ir.assert_structural_equal(refusing.mod["main"], matmul_corrected)
print("steps recorded:", len(refusing.trace.insts))

# %%
# So the schedule can go on. The message says that the bias must be computed before the reduction.
# Here there is an even simpler way, because ``correct`` is elementwise: once TVM has inlined it, it
# is a part of the epilogue.

refusing.compute_inline("correct")
print(refusing.fuse_reduction_epilogue("multiply"))

# %%
# What next
# ---------
# The fused block is an ordinary reduction block, so it is scheduled like any other. Here the
# columns are split by 8, the reduction moves outside of these 8, the init becomes a block of its
# own (``multiply_init``, which now loads the bias), and both inner loops become vector
# instructions.

block = sch.get_sblock("multiply")
i, j, k = sch.get_loops(block)
j_outer, j_inner = sch.split(j, factors=[None, 8])
sch.reorder(i, j_outer, k, j_inner)
sch.vectorize(j_inner)
init = sch.decompose_reduction(block, k)
sch.vectorize(sch.get_loops(init)[-1])
print(sch.mod["main"].script())

# %%
# Still one pass over ``D``, still the same bits, and so for the program with the correction. The
# order matters, though: fuse first and decompose later, because a reduction without its ``T.init``
# has no place left for the bias.

assert np.array_equal(run(sch.mod), expected)
assert np.array_equal(run(refusing.mod), expected - 128)
