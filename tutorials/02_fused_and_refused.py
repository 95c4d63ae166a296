"""
What can be fused, and what is refused
======================================

Tutorial 01 fused one bias into one sum. This one is a tour along the border: first what is fused,
from a chain of five blocks to a maximum that takes in a clip, then what is not. Every refusal has a
code; here is the smallest program for each of them, and the message that it gets.

All programs of the second part are the same dozen lines with a line or two changed, so what is
shown is the change.

.. contents::
    :local:
    :depth: 1
    :class: this-will-duplicate-information-and-it-is-still-useful-here
"""

# %%
# A chain
# -------
# Here is what a compiler makes of ``silu(a @ b + bias) + skip``, with ``a``, ``b``, ``skip`` and
# the result in ``float16``: a product that accumulates in ``float32``, followed by five blocks.
# SiLU is ``y * sigmoid(y)``, so the biased sum has two readers.

# sphinx_gallery_thumbnail_path = '_static/contract.svg'

import difflib
import textwrap
from collections.abc import Callable

import tvm
import tvm_ffi
from tvm import s_tir
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.script import tirx as T

import fuse_epilogue
from fuse_epilogue import schedules, workloads

try:
    from pictures import show, side_by_side
except ImportError:  # the tutorial alone, without its folder: no drawings
    show = side_by_side = lambda *_, **__: None


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
# ``analyze`` takes what ``sch.fuse_reduction_epilogue`` takes and returns the report that it would
# return, without doing anything.

sch = Schedule(layer, debug_mask="all")
print(fuse_epilogue.analyze(sch, "matmul"))
tvm.ir.assert_structural_equal(sch.mod["main"], layer)

# %%
# In these sentences ``x`` is an element that the reduction has just finished. The bias is absorbed.
# Everything after it is a function of ``x`` that grows from block to block and that no sum can
# absorb: a sigmoid of a sum is not a sum of sigmoids. Such a rest is called a *tail*.
#
# One call fuses all five:

report = sch.fuse_reduction_epilogue("matmul")
print(sch.mod["main"].script())
assert [step.epilogue for step in report.steps if step.absorbed] == ["add_bias"]

# %%
# Two blocks are left of six, and one intermediate of five. The reduction starts from the bias. The
# rest of the chain has become a single expression in the block of its last member, ``narrow``,
# which is right after the ``k`` loop, where its element is complete. There is no ``if k == 31`` in
# the reduction: TVM can still split its loops, and decompose it into init and update.
#
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
# Where the tail runs
# -------------------
# A tail is inside the innermost loop that encloses all reduction loops. You choose that loop,
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
print(intermediates(rows.mod))
assert intermediates(rows.mod) == {"biased": [1, 128]}

element, row = sch.mod["main"].script(), rows.mod["main"].script()
show("tail_element_and_row", side_by_side(element, row, ("one element at a time", "row by row")))

# %%
# A row of 128 sums is 512 bytes, which do not leave the nearest cache between bias and cast.
#
# Other blocks read it
# --------------------
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
assert report.kept == ("sums",) and not any(step.absorbed for step in report.steps)

# %%
# All consumers that can be fused are fused, in program order. But a sum that starts from the bias
# would be the wrong one for the other two readers, so nothing is absorbed: ``shift`` and ``square``
# become two tails side by side. ``add_up`` cannot follow, and the last line says why; for its sake
# ``sums`` is kept. A parameter of the function is kept in the same way, because the caller may read
# it. No reader is ever left with a buffer that is no longer written.
#
# More than sums
# --------------
# A maximum is to maxima as a sum is to additions; the same holds for minima, products, and the
# logical and bit-wise reductions. From here on programs are texts: a reduction of rows, and what is
# done with each result. ``changed`` replaces parts of them.

HEAD = """\
@T.prim_func(s_tir=True)
def main(
    A: T.Buffer((8, 6), "int32"),
    C: T.Buffer((8,), "int32"),
    D: T.Buffer((8,), "int32"),
):
    temp = T.sblock_alloc_buffer((8,), "int32")
"""
INIT = """\
            with T.init():
                temp[vi] = 0
"""
SUM = f"""\
    for i, k in T.grid(8, 6):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
{INIT}\
            temp[vi] = temp[vi] + A[vi, vk]
"""
ADD = """\
    for i in range(8):
        with T.sblock("add"):
            vi = T.axis.spatial(8, i)
            D[vi] = temp[vi] + C[vi]
"""
BASE = HEAD + SUM + ADD


def changed(changes: dict[str, str]) -> str:
    """Return the program with parts of its text replaced."""
    text = BASE
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def schedule(text: str) -> Schedule:
    """Return a schedule of a program that is given as text."""
    return Schedule(tvm.script.from_source(text), debug_mask="all")


def reducing(start: str, update: str, epilogue: str, dtype: str = "int32") -> Schedule:
    """Return a schedule of another reduction with another epilogue."""
    changes = {"temp[vi] = 0": f"temp[vi] = {start}", "temp[vi] + A[vi, vk]": update}
    return schedule(changed({**changes, "temp[vi] + C[vi]": epilogue, "int32": dtype}))


least = 'T.min_value("float32")'
greatest = "T.max(temp[vi], A[vi, vk])"
for what, sch in {
    "a sum, subtracted from something": reducing("0", "temp[vi] + A[vi, vk]", "C[vi] - temp[vi]"),
    "a product": reducing("1", "temp[vi] * A[vi, vk]", "temp[vi] * C[vi]"),
    "a maximum": reducing(least, greatest, "T.max(temp[vi], C[vi])", "float32"),
    "an exclusive or": reducing(
        "0", "T.bitwise_xor(temp[vi], A[vi, vk])", "T.bitwise_xor(temp[vi], C[vi])"
    ),
}.items():
    report = sch.fuse_reduction_epilogue("sum")
    print(f"{what}: {report}")
    assert report.steps[0].absorbed and not report.steps[0].tail

# %%
# Some epilogues can go into the terms. To cut a maximum at 6 is to take the maximum of terms that
# were cut at 6; but then the cut is made for every term and not once for each result. Such
# *distribution* is not free, so you have to ask for it. Without, the cut is a tail.

clip = "T.min(T.max(temp[vi], T.float32(0)), T.float32(6))"
for distribute in (False, True):
    sch = reducing(least, greatest, clip, "float32")
    print(f"distribute={distribute}: {sch.fuse_reduction_epilogue('sum', distribute=distribute)}")
assert intermediates(sch.mod) == {}

# %%
# What is refused
# ---------------
# A call that cannot do what it is asked raises ``ScheduleError``, as all primitives of TVM do, and
# changes nothing. The message has a code. From here to the end, each example is ``BASE`` with the
# lines marked ``-`` replaced by those marked ``+``, and the message.

REFUSED: set[str] = set()


def expect(code: str, sch: Schedule, act: Callable[[Schedule], object]) -> None:
    """Show the refusal of a call."""
    try:
        act(sch)
    except ScheduleError as error:
        assert fuse_epilogue.refusal_code(error) == code, error
        print(textwrap.fill(str(error).rpartition("Error message: ")[2], 96), end="\n\n")
    else:
        raise AssertionError(f"{code}: this was not refused")
    REFUSED.add(code)


def refuse(
    code: str,
    changes: dict[str, str],
    act: Callable[[Schedule], object] = lambda sch: sch.fuse_reduction_epilogue("sum"),
    before: Callable[[Schedule], object] = lambda sch: None,
) -> None:
    """Show what changes, and the refusal that follows; `before` are steps of a schedule."""
    if not changes:
        print("    (as it is)")
    for line in difflib.unified_diff(BASE.splitlines(), changed(changes).splitlines(), n=0):
        if not line.startswith(("---", "+++", "@@")):
            print("   ", line)
    sch = schedule(changed(changes))
    before(sch)
    module = sch.mod
    expect(code, sch, act)
    assert sch.mod.same_as(module)


# %%
# The reduction
# -------------
# The reduction has to be one store, ``acc = acc (+) term``, that starts from a ``T.init``, visits
# every step once, and begins with the first. Why? A bias that is absorbed becomes what ``T.init``
# stores. Where a step clips the sum so far, another start gives another result. Where loops visit a
# step twice, or the last step comes first, ``T.init`` fires at another time than one thinks. And
# where steps run in parallel, each thread would start from the bias.

refuse("reduction-form", {"temp[vi] + A[vi, vk]": "T.min(temp[vi] + A[vi, vk], 100)"})
refuse("no-init", {INIT: ""})
refuse("reduction-domain", {"i, k in T.grid(8, 6)": "i, k, again in T.grid(8, 6, 2)"})

BACKWARDS = "vi = T.axis.spatial(8, i)\n            vk = T.axis.reduce(6, 5 - k)"
REMAP = 'vi, vk = T.axis.remap("SR", [i, k])'
refuse("reduction-order", {REMAP: BACKWARDS})
GRID = "    for i, k in T.grid(8, 6):"
in_parallel = "    for i in range(8):\n      for k in T.parallel(6):"
refuse("reduction-loop-kind", {GRID: in_parallel})

# %%
# An ``argmax`` reduces two values at once, the number and its place: there is no single result for
# an epilogue to be absorbed into. The last block here is not a reduction.

PAIR = """\
            where: T.let[T.int32] = T.Select(temp[vi] >= A[vi, vk], place[vi], vk)
            best: T.let[T.int32] = T.max(temp[vi], A[vi, vk])
            place[vi] = where
            temp[vi] = best
"""
argmax = {
    "    temp = T": '    place = T.sblock_alloc_buffer((8,), "int32")\n    temp = T',
    INIT: INIT + "                place[vi] = -1\n",
    "            temp[vi] = temp[vi] + A[vi, vk]\n": PAIR,
}
refuse("tuple-reduction", argmax)
spatial = {"T.grid(8, 6)": "T.grid(8, 1)", '"SR"': '"SS"', INIT: "", "= temp[vi] + A": "= A"}
refuse("not-a-reduction", spatial)

# %%
# The epilogue
# ------------
# The epilogue has to be a block of spatial axes with a single store, after the reduction, that
# reads each result once and writes each element of its output once.

refuse("no-consumer", {"temp[vi] + C[vi]": "C[vi]"})
refuse(
    "consumer-form", {"            D[vi] =": "            if C[vi] > 0:\n                D[vi] ="}
)
refuse("consumer-domain", {"i in range(8)": "i, again in T.grid(8, 2)"})
refuse("order", {SUM + ADD: ADD + SUM})
refuse("impure", {"+ C[vi]": '+ T.call_extern("int32", "abs", C[vi])'})

# %%
# Which result it reads may be permuted, split or shifted, but it must be known, and all results
# must be read. A read whose place depends on data cannot be inverted. Of a slice, the rest would
# never be written.

refuse("index-map", {"temp[vi] + C": "temp[C[vi]] + C"})
refuse("domain", {"range(8)": "range(6)", "spatial(8": "spatial(6"})
refuse("output-write", {"D[vi] =": "D[vi // 2] ="})

# %%
# Axes of different integer types are converted to the epilogue's, where that type holds all values.
# To a narrower type, only numbers show that.

refuse(
    "index-type",
    {
        "main(": "main(\n    n: T.int32,",
        "T.grid(8, 6)": 'T.grid(T.Cast("int64", n), 6)',
        "range(8)": "range(n)",
        "spatial(8": "spatial(n",
    },
)

# %%
# With two names, the call is about that epilogue alone. Here ``add`` reads something else. And an
# epilogue that is where it belongs already is left there.


def fuse_both(sch: Schedule) -> object:
    """Make TVM's own call, with two names."""
    return sch.fuse_reduction_epilogue("sum", "add")


def like_add(name: str, store: str) -> str:
    """Return the loops of "add" with another name and another store."""
    loops = ADD.replace("for i", "for r").replace("(8, i)", "(8, r)").replace("add", name)
    return loops.replace("D[vi] = temp[vi] + C[vi]", store)


D = '    D: T.Buffer((8,), "int32"),\n'
MORE = {D: D + D.replace("D", "E")}  # one more parameter
RELU = {"temp[vi] + C[vi]": "T.max(temp[vi], 0)"}
elsewhere = {SUM: SUM + like_add("copy", "E[vi] = temp[vi]"), "= temp[vi] + C": "= A[vi, 0] + C"}
refuse("wrong-pair", elsewhere | MORE, fuse_both)
refuse("already-fused", RELU, fuse_both, lambda sch: sch.fuse_reduction_epilogue("sum"))

# %%
# Loops and statements
# --------------------
# Between the two blocks there may be loops, and nothing else. If they share loops, an iteration
# must finish what it consumes: here the epilogue is inside the loop over ``k``, where the
# sums are not complete. In the last example one loop runs through steps and columns, so that there
# is no place for the tail after all steps of an element.

refuse("structure", {ADD: "    if C[0] > 0:\n" + textwrap.indent(ADD, "    ")})
refuse("shared-loops", {"    for i in range(8):\n": ""})
mixed = """\
vi = T.axis.spatial(8, i * 4 + f // 6 * 2 + j)
            vk = T.axis.reduce(6, f % 6)"""
refuse("tail-place", {"i, k in T.grid(8, 6)": "i, f, j in T.grid(2, 12, 2)", REMAP: mixed} | RELU)

# %%
# Other blocks
# ------------
# Fused, the bias is read before the sum, and the output is written by the reduction's loops. So no
# block in between may write the bias or read the output, and no other block may write the buffers.

refuse("bias-written-between", {ADD: like_add("double", "C[vi] = C[vi] * 2") + ADD})
refuse("output-used-between", {ADD: like_add("keep", "E[vi] = D[vi]") + ADD} | MORE)
refuse("output-aliases-input", {"+ C[vi]": "+ D[7 - vi]"})
refuse("other-writer", {ADD: like_add("double", "temp[vi] = temp[vi] * 2") + ADD})
refuse("output-writers", {ADD: ADD + like_add("clear", "D[vi] = 0")})

# %%
# The next one is about a habit of TVM. It allocates a buffer in the innermost loop around all
# that uses it. ``before`` reads the sum of the row before; if ``add`` moved into the loop over rows
# as well, ``temp`` would be allocated again for each row, and that sum would be lost.

by_row = {GRID: "    for i in range(8):\n      for k in range(6):"}
inside = like_add("before", "E[vi] = T.if_then_else(vi > 0, temp[vi - 1], 0)")
inside = inside.partition("\n")[2].replace("(8, r)", "(8, i)")
refuse("carried-value", by_row | {ADD: inside + ADD} | MORE, fuse_both)

# %%
# Memory
# ------
# With a pointer a call may read or write anything. Registers of a tensor core cannot be stored to
# one by one. And an alignment was asked for the buffer that would go.

peek = """\
    with T.sblock("peek"):
        T.reads()
        T.writes()
        T.evaluate(T.call_extern("int32", "print_rows", temp.data))
"""
refuse("opaque-access", {ADD: peek + ADD})
tensor_core = 'alloc_buffer((8,), "int32", scope="wmma.accumulator")'
refuse("storage-scope", {'alloc_buffer((8,), "int32")': tensor_core})
refuse("storage-align", {}, before=lambda sch: sch.storage_align("sum", 0, 0, 8, 1))

# %%
# After fusing
# ------------
# A fused block is an ordinary one, but not quite: its init reads a bias, and a tail shares its
# loops. Three habits of TVM's own primitives do not fit that. This package repairs them where it
# can, and where it cannot, refuses them too: these are calls of ``blockize``, ``vectorize`` and
# ``rfactor``, on ``BASE`` after it was fused, without and with a ReLU.


def fuse(sch: Schedule) -> object:
    """Fuse what will be in the way of the next step."""
    return sch.fuse_reduction_epilogue("sum")


def loop(sch: Schedule, at: int) -> s_tir.schedule.LoopRV:
    """Return a loop around the reduction."""
    return sch.get_loops(sch.get_sblock("sum"))[at]


refuse("init-reads", {}, lambda sch: sch.blockize(loop(sch, 1)), fuse)
refuse("vector-lanes", RELU, lambda sch: sch.vectorize(loop(sch, 0)), fuse)
refuse("not-alone", RELU, lambda sch: sch.rfactor(loop(sch, 1), 0), fuse)

# %%
# A schedule for convolutions (tutorial 04) has steps that write the code of a row themselves.
# They are recorded on the trace like any other, and proved again when the trace is replayed: here
# the trace of a convolution, on one that goes two columns at a time.

conv, strided = (workloads.depthwise_conv1d(2, 4, 64, 3, stride=stride) for stride in (1, 2))
rule = schedules.cpu.DepthwiseConv1d()
trace = rule.apply(conv, tvm.target.Target(schedules.host())).trace.as_json()
expect("rewriting", Schedule(strided), lambda sch: Trace.apply_json_to_schedule(trace, sch))

# %%
# These are all but those of cascades (``no-cascade`` and ``cascade-...``). The table with every
# code and the way out is ``fuse_epilogue.REFUSALS``; kernels for Trainium have codes of their own
# (``fuse_epilogue.neuron.REFUSALS``, tutorial 06).

print(len(REFUSED), "codes")
# One code is there for callers that compare with it: nothing is refused with it any more.
CASCADES = {code for code in fuse_epilogue.REFUSALS if "cascade" in code}
assert REFUSED | CASCADES | {"accumulator-type"} == set(fuse_epilogue.REFUSALS)
