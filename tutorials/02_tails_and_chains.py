"""
Tails and chains
================

Tutorial 01 fused a bias, which a sum absorbs without a trace. Most epilogues are longer than that,
and have something in them that no sum can absorb: an activation, a cast to a narrower type. This
tutorial fuses such a chain. It shows what the reduction absorbs, what is left (the *tail*), and
where that runs; what happens when somebody else needs the intermediate; what may happen to a float
and what may not; and how to check a fusion without believing the one who did it.
"""

# %%
# A chain
# -------
# Here is what a compiler makes of ``silu(a @ b + bias) + skip``, with ``a``, ``b``, ``skip`` and
# the result in ``float16``: a product that accumulates in ``float32``, and behind it five blocks.
# SiLU is ``y * sigmoid(y)``, so the biased sum has two readers.

import dataclasses

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule, ScheduleError
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import verify


@T.prim_func(s_tir=True)
def layer(
    a: T.Buffer((64, 32), "float16"),
    b: T.Buffer((32, 128), "float16"),
    bias: T.Buffer((128,), "float32"),
    skip: T.Buffer((64, 128), "float16"),
    out: T.Buffer((64, 128), "float16"),
) -> None:
    product = T.sblock_alloc_buffer((64, 128), "float32")
    biased = T.sblock_alloc_buffer((64, 128), "float32")
    gate = T.sblock_alloc_buffer((64, 128), "float32")
    silu = T.sblock_alloc_buffer((64, 128), "float32")
    total = T.sblock_alloc_buffer((64, 128), "float32")
    for i, j, k in T.grid(64, 128, 32):
        with T.sblock("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                product[vi, vj] = T.float32(0)
            product[vi, vj] += T.cast(a[vi, vk], "float32") * T.cast(b[vk, vj], "float32")
    for i, j in T.grid(64, 128):
        with T.sblock("add_bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            biased[vi, vj] = product[vi, vj] + bias[vj]
    for i, j in T.grid(64, 128):
        with T.sblock("sigmoid"):
            vi, vj = T.axis.remap("SS", [i, j])
            gate[vi, vj] = T.sigmoid(biased[vi, vj])
    for i, j in T.grid(64, 128):
        with T.sblock("multiply"):
            vi, vj = T.axis.remap("SS", [i, j])
            silu[vi, vj] = biased[vi, vj] * gate[vi, vj]
    for i, j in T.grid(64, 128):
        with T.sblock("residual"):
            vi, vj = T.axis.remap("SS", [i, j])
            total[vi, vj] = silu[vi, vj] + T.cast(skip[vi, vj], "float32")
    for i, j in T.grid(64, 128):
        with T.sblock("narrow"):
            vi, vj = T.axis.remap("SS", [i, j])
            out[vi, vj] = T.cast(total[vi, vj], "float16")


# %%
# Ask first
# ---------
# ``analyze`` takes what ``sch.fuse_reduction_epilogue`` takes and returns the report that it would
# return, without doing anything. Where the call would raise, ``fusable`` is false.

sch = Schedule(layer, debug_mask="all")
plan = fuse_epilogue.analyze(sch, "matmul")
print(plan)

tvm.ir.assert_structural_equal(sch.mod["main"], layer)
print("fusable:", plan.fusable, "| steps recorded on the trace:", len(sch.trace.insts))

# %%
# In these sentences ``x`` is an element that the reduction has just finished. The bias is absorbed.
# Everything after it is a function of ``x`` that grows from block to block and that no sum can
# absorb: a sigmoid of a sum is not a sum of sigmoids.
#
# What became of it
# -----------------
# One call fuses all five.

report = sch.fuse_reduction_epilogue("matmul")
print(sch.mod["main"].script())

# %%
# Two blocks are left of six, and one intermediate of five. The reduction starts from the bias. The
# rest of the chain has become a single expression in the block of its last member, ``narrow``: each
# tail was merged into the next, because nobody else reads what it stored. That block stands right
# behind the ``k`` loop, where its element is complete.
#
# There is no ``if k == 31`` in the reduction. Its block is as simple as it was before, so TVM can
# still split its loops, reorder them, and take its init and its update apart.
#
# The steps of the report say the same, as data:

for step in report.steps:
    absorbed, removed = step.absorbed or "-", step.removed or "-"
    print(f"{step.epilogue:9} absorbed: {absorbed:9} buffer removed: {removed}")
assert [step.epilogue for step in report.steps if step.absorbed] == ["add_bias"]

# %%
# ``biased`` is still declared with 64 x 128 elements, but it only lives from its init to its tail,
# and that is one element. TVM's own lowering cuts every buffer to what is alive at a time:


def intermediates(mod: tvm.IRModule) -> dict[str, list[int]]:
    """Return the buffers inside the function, with their shapes after TVM has lowered them."""
    passes = [
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
    ]
    found: dict[str, list[int]] = {}

    def note(block: s_tir.SBlock) -> None:
        for buffer in block.alloc_buffers:
            found[buffer.name] = [int(extent) for extent in buffer.shape]

    lowered = tvm.ir.transform.Sequential(passes)(mod)["main"]
    tvm_ffi.structural_walk(lowered.body, ((s_tir.SBlock, note),))
    return found


print("before:", intermediates(Schedule(layer).mod))
print("after: ", intermediates(sch.mod))
assert intermediates(sch.mod) == {"biased": [1, 1]}

# %%
# Run it
# ------
# The reference is numpy in ``float64``. How close must the result be? In ``float32`` a sum of 32
# products and a bias is off by at most about ``33 * 2**-24`` of the sum of their absolute values;
# SiLU is nowhere steeper than 1.1; the rest rounds a few times more; and at the end the result
# is rounded to ``float16``, by half a unit in its last place.

rng = np.random.default_rng(0)
inputs = [
    rng.standard_normal((64, 32)).astype("float16"),
    rng.standard_normal((32, 128)).astype("float16"),
    rng.standard_normal(128).astype("float32"),
    rng.standard_normal((64, 128)).astype("float16"),
]


def run(program: tvm.tirx.PrimFunc | tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    """Compile ``program`` for LLVM, call it, and return its last parameter."""
    if isinstance(program, tvm.tirx.PrimFunc):
        program = tvm.IRModule({"main": program.with_attr("global_symbol", "main")})
    result = program["main"].params[-1].ty
    memory = np.full([int(extent) for extent in result.shape], 77, str(result.dtype))
    tensors = [tvm.runtime.tensor(array) for array in (*arrays, memory)]
    tvm.compile(program, target={"kind": "llvm"})["main"](*tensors)
    return tensors[-1].numpy()


wide = [array.astype("float64") for array in inputs]
y = wide[0] @ wide[1] + wide[2]
expected = y / (1 + np.exp(-y)) + wide[3]
magnitude = abs(wide[0]) @ abs(wide[1]) + abs(wide[2])
allowed = 1.1 * 40 * 2.0**-24 * magnitude + np.spacing(abs(expected).astype("float16")) / 2


def error(result: np.ndarray) -> float:
    """Return the largest error, as a part of what is allowed."""
    return float((abs(result.astype("float64") - expected) / allowed).max())


print(f"unfused: {error(run(layer, *inputs)):.3f} of the allowed error")
print(f"fused:   {error(run(sch.mod, *inputs)):.3f} of the allowed error")
assert error(run(sch.mod, *inputs)) <= 1

# %%
# Where the tail runs
# -------------------
# A tail stands inside the innermost loop that encloses all reduction loops. You choose that loop,
# by scheduling before you fuse. With ``k`` innermost it was ``j``, and the tail ran on one element
# at a time: little memory, but nothing to vectorize. In the *row form*, ``i, k, j``, it is ``i``,
# and the tail runs on a row. It gets copies of the reduction's spatial loops below that point, and
# they keep their kinds: what is vectorized, unrolled or parallel there, is so in the tail.

rows = Schedule(layer, debug_mask="all")
i, j, k = rows.get_loops("matmul")
j_outer, j_inner = rows.split(j, factors=[None, 16])
rows.reorder(i, k, j_outer, j_inner)
rows.vectorize(j_inner)
rows.fuse_reduction_epilogue("matmul")
rows.decompose_reduction("matmul", k)
rows.vectorize(rows.get_loops("matmul_init")[-1])
print(rows.mod["main"].script())
print(intermediates(rows.mod))

# %%
# Three vector loops work on one row of 128 sums: 512 bytes that do not leave the fastest cache
# between the bias and the cast. ``decompose_reduction`` came last, as in tutorial 01.

assert error(run(rows.mod, *inputs)) <= 1
assert intermediates(rows.mod) == {"biased": [1, 128]}

# %%
# Somebody else reads it
# ----------------------
# Here the plain row sums are wanted in three ways: with a bias, squared, and added up to a grand
# total, which is a reduction itself.


@T.prim_func(s_tir=True)
def statistics(
    x: T.Buffer((8, 64), "float32"),
    bias: T.Buffer((8,), "float32"),
    shifted: T.Buffer((8,), "float32"),
    squared: T.Buffer((8,), "float32"),
    grand: T.Buffer((1,), "float32"),
) -> None:
    sums = T.sblock_alloc_buffer((8,), "float32")
    for i, k in T.grid(8, 64):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                sums[vi] = T.float32(0)
            sums[vi] += x[vi, vk]
    for i in range(8):
        with T.sblock("shift"):
            vi = T.axis.remap("S", [i])
            shifted[vi] = sums[vi] + bias[vi]
    for i in range(8):
        with T.sblock("square"):
            vi = T.axis.remap("S", [i])
            squared[vi] = sums[vi] * sums[vi]
    for one, i in T.grid(1, 8):
        with T.sblock("add_up"):
            vo, vi = T.axis.remap("SR", [one, i])
            with T.init():
                grand[vo] = T.float32(0)
            grand[vo] += sums[vi]


shared = Schedule(statistics, debug_mask="all")
report = shared.fuse_reduction_epilogue("sum")
print(report)
print("kept:", report.kept)

# %%
# All consumers that can be fused are fused, in program order. But a sum that starts from the bias
# would be the wrong one for the other two readers, so nothing is absorbed: ``shift`` and ``square``
# become two tails side by side. ``add_up`` cannot follow, and the last line says why; for its sake
# ``sums`` is kept. A parameter of the function is kept in the same way, because the caller may read
# it. Nobody is ever left with a buffer that is no longer written.

assert report.kept == ("sums",) and not any(step.absorbed for step in report.steps)
print(shared.mod["main"].script())

# %%
# What may happen to a float
# --------------------------
# Integers always stay equal bit for bit. An absorbed bias is the first term of a sum instead of the
# last one, which for floats is another order of additions. Three terms and a bias are enough to
# see the difference:


@T.prim_func(s_tir=True)
def three_and_bias(
    x: T.Buffer((1, 3), "float32"),
    bias: T.Buffer((1,), "float32"),
    out: T.Buffer((1,), "float32"),
) -> None:
    acc = T.sblock_alloc_buffer((1,), "float32")
    for i, k in T.grid(1, 3):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                acc[vi] = T.float32(0)
            acc[vi] += x[vi, vk]
    for i in range(1):
        with T.sblock("add_bias"):
            vi = T.axis.remap("S", [i])
            out[vi] = acc[vi] + bias[vi]


terms = np.array([[1e8, 1, -1e8]], "float32")
half = np.array([0.5], "float32")
outcomes = {"as written": run(three_and_bias, terms, half)}
for numerics in ("reassociate", "exact"):
    sum_up = Schedule(three_and_bias, debug_mask="all")
    print(f"{numerics}: {sum_up.fuse_reduction_epilogue('sum', numerics=numerics)}")
    outcomes[numerics] = run(sum_up.mod, terms, half)
for name, outcome in outcomes.items():
    print(f"{name:12} {outcome[0]}")

# %%
# The true value is 1.5, and all of them miss it, because around 1e8 ``float32`` knows only every
# eighth integer. As written the sum is ``((1e8 + 1) - 1e8) + 0.5``: the 1 is lost and the bias is
# not. Absorbed, it is ``((0.5 + 1e8) + 1) - 1e8``: both are lost. Neither order is better in
# general, and both keep the bound that numerical analysis gives for a sum in any order.

one, big, small = np.float32(1), np.float32(1e8), np.float32(0.5)
assert outcomes["as written"][0] == ((big + one) - big) + small == np.float32(0.5)
assert outcomes["reassociate"][0] == ((small + big) + one) - big == np.float32(0)
bound = 4 * 2.0**-24 * (1e8 + 1 + 1e8 + 0.5)
assert all(abs(outcome[0] - 1.5) <= bound for outcome in outcomes.values())
print(f"a sum in any order: 1.5, plus or minus {bound:.1f}")

# %%
# ``numerics="exact"`` is for those who compare bits. Nothing of a float is absorbed then; the whole
# epilogue becomes a tail. It is still one pass over memory:

assert outcomes["exact"].tobytes() == outcomes["as written"].tobytes()
exact = Schedule(layer, debug_mask="all")
exact.fuse_reduction_epilogue("matmul", numerics="exact")
assert run(exact.mod, *inputs).tobytes() == run(layer, *inputs).tobytes()
print(intermediates(exact.mod))

# %%
# Narrow accumulators
# -------------------
# The bound above grows with the unit of the type, and for ``float16`` that is 8192 times as large.
# Add up 64 terms of 0.5 and then a bias of 2048:

terms, big = np.full(64, 0.5, "float16"), np.float16(2048)
bias_first = big
for term in terms:
    bias_first = bias_first + term
bias_last = np.float16(0)
for term in terms:
    bias_last = bias_last + term
bias_last = bias_last + big
print(f"bias last: {bias_last:.0f} | bias first: {bias_first:.0f}")
assert bias_last == 2080 and bias_first == 2048

# %%
# Next to 2048 every single term is rounded away, however many there are. So a floating sum or
# product of fewer than 32 bits absorbs nothing. What to do about it is your choice, and so the call
# refuses and names the options:


@T.prim_func(s_tir=True)
def half_sum(
    x: T.Buffer((1, 64), "float16"), bias: T.Buffer((1,), "float16"), out: T.Buffer((1,), "float16")
) -> None:
    acc = T.sblock_alloc_buffer((1,), "float16")
    for i, k in T.grid(1, 64):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                acc[vi] = T.float16(0)
            acc[vi] += x[vi, vk]
    for i in range(1):
        with T.sblock("add_bias"):
            vi = T.axis.remap("S", [i])
            out[vi] = acc[vi] + bias[vi]


narrow = Schedule(half_sum, debug_mask="all")
verdict = fuse_epilogue.analyze(narrow, "sum")
print(verdict)
assert not verdict.fusable and verdict.stopped.code == "accumulator-type"

code = None
try:
    narrow.fuse_reduction_epilogue("sum")
except ScheduleError as refused:
    code = fuse_epilogue.refusal_code(refused)
assert code == "accumulator-type"

print(narrow.fuse_reduction_epilogue("sum", numerics="exact"))
assert run(narrow.mod, terms[None], big[None])[0] == 2080

# %%
# More than sums
# --------------
# What a sum is to additions, a maximum is to maxima: max pooling absorbs a ReLU, because
# ``max(max(x0, x1), 0)`` may as well start from 0. Minima, products, and the logical and bit-wise
# reductions do the same with their own operation. Here the pooling is followed by a clip to [0, 6]:


@T.prim_func(s_tir=True)
def pool(x: T.Buffer((8, 64), "float32"), out: T.Buffer((8, 32), "float32")) -> None:
    best = T.sblock_alloc_buffer((8, 32), "float32")
    for c, o, w in T.grid(8, 32, 2):
        with T.sblock("pool"):
            vc, vo, vw = T.axis.remap("SSR", [c, o, w])
            with T.init():
                best[vc, vo] = T.min_value("float32")
            best[vc, vo] = T.max(best[vc, vo], x[vc, vo * 2 + vw])
    for c, o in T.grid(8, 32):
        with T.sblock("clip"):
            vc, vo = T.axis.remap("SS", [c, o])
            out[vc, vo] = T.min(T.max(best[vc, vo], T.float32(0)), T.float32(6))


pooling = Schedule(pool, debug_mask="all")
print(fuse_epilogue.analyze(pooling, "pool"))

# %%
# The lower limit is absorbed. The upper one could go too: to cut a maximum at 6 is to take the
# maximum of terms that were cut at 6. But then the cut is made for every term and not once for each
# result. Such *distribution* is not free, so you have to ask for it. Here, with two terms for each
# result, there are twice as many cuts; in exchange, no intermediate is left at all.

print(fuse_epilogue.analyze(pooling, "pool", distribute=True))
pooling.fuse_reduction_epilogue("pool", distribute=True)
print(pooling.mod["main"].script())

x = (8 * rng.standard_normal((8, 64))).astype("float32")
assert intermediates(pooling.mod) == {}
assert np.array_equal(run(pooling.mod, x), np.clip(x.reshape(8, 32, 2).max(axis=2), 0, 6))

# %%
# Trust, and check
# ----------------
# Every report of a fusion carries a certificate: what was proved, as data. ``verify.check`` takes
# the functions before and after, and proves each claim again. It shares no code with the library
# that did the fusing, and it returns nothing, or raises.

sch = Schedule(layer, debug_mask="all")
before = sch.mod["main"]
certificate = sch.fuse_reduction_epilogue("matmul").certificate
after = sch.mod["main"]
verify.check(before, after, certificate)
print("a", certificate.monoid, "that starts from", certificate.init)
print("floating operations in another order:", certificate.reassociates)
for tail in certificate.tails:
    print(f"{tail.name} stores {tail.value}")

# %%
# Would it notice? Let a forged certificate claim that the sum still starts from 0, or that nothing
# was reordered. The first is a lie about the program, the second about its rounding:


def verdict_on(claims: fuse_epilogue.Certificate) -> str:
    """Return which claim the checker does not believe, or an empty text."""
    try:
        verify.check(before, after, claims)
    except verify.CertificateError as error:
        return str(error)
    return ""


zero = tvm.tirx.const(0, "float32")
forged = [
    dataclasses.replace(certificate, init=zero),
    dataclasses.replace(certificate, reassociates=False),
]
for claims in forged:
    print(verdict_on(claims))
assert all(verdict_on(claims) for claims in forged) and not verdict_on(certificate)

# %%
# ``verify.equivalent`` does without a certificate. It runs two functions, both compiled by TVM and
# executed by an evaluator of its own, on whole numbers, on normals, and on the nasty ones: signed
# zeros, infinities, NaN, denormals. And it unrolls them, puts an unknown in the place of every
# element, and proves that they store the same. Here are both for ``statistics``:

print(verify.equivalent(statistics, shared.mod["main"]))

# %%
# It also tells apart what ``numerics`` tells apart. Three terms and a bias, fused with the bias
# absorbed, are as good as before when order does not matter, and something else bit for bit:

sum_up = Schedule(three_and_bias)
sum_up.fuse_reduction_epilogue("sum")
assert verify.equivalent(three_and_bias, sum_up.mod["main"]).proved

difference = None
try:
    verify.equivalent(three_and_bias, sum_up.mod["main"], numerics="exact")
except verify.NotEquivalent as error:
    difference = error
print(difference)
assert difference is not None
