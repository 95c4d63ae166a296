"""
A convolution on Trainium: kernels without the machine
======================================================

AWS Trainium is programmed in NKI, a language of instructions for the engines of a NeuronCore. This
tutorial schedules a depthwise convolution with TVM's primitives, has the kernel written for us,
runs it on numpy, checks it against the limits of the machine, and asks the latency model where its
time would go. Then it climbs a published ladder of seven kernels, and goes past its end.

No Trainium is needed, and none was used: every time that comes from the model is *predicted*, from
the documented costs of the instructions. Nothing here was measured by us. Times measured by others
are called *published*.
"""

# %%
# The machine in a few words
# --------------------------
# Data lies in HBM. Engines compute on SBUF, memory on the chip of 128 *partitions* that are worked
# on at once, like the lanes of a vector; along a partition lies the *free* dimension, which an
# instruction runs through element by element. PSUM is a smaller memory of the same form, for sums
# of the tensor engine. The engines work at the same time, each on its own instructions: *vector*
# (two operands, reductions), *scalar* (activations: a function of scale times x plus bias),
# *tensor* (products of matrices), *gpsimd* (the rest); and the *DMA* engines move data between HBM
# and SBUF.
#
# A first schedule
# ----------------
# A small layer: 2 images, 64 channels, 256 columns, 3 taps, a column of zeros at both ends, a bias.

import json
import re
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import tvm
from tvm.s_tir import Schedule

from fuse_epilogue import neuron, schedules, workloads
from fuse_epilogue.kernels.trainium import ladder
from fuse_epilogue.schedules.neuron import DepthwiseConv1d

try:
    from pictures import bars, show, written
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = written = lambda *_, **__: None

small = workloads.depthwise_conv1d(2, 64, 256, 3)
print(small.script())

# %%
# Three blocks: "pad", "conv", "bias". Channels go on partitions and columns along them, because
# each channel has its own weights, and a number for each partition is what instructions take as a
# scale. Three things are to be said, all with TVM's own primitives:
#
# - *what an instruction covers*: the loops marked ``nki_dim``, ``"P"`` for partitions, ``"F"`` for
#   the free dimension. All other loops stay loops of the kernel;
# - *where buffers are*: ``set_scope``, ``cache_read`` and ``cache_write`` with ``"trn.sbuf"``.
#   Engines do not reach HBM, so whatever they compute with is brought to the chip first;
# - *when*: ``compute_at``, as ever.


def mark(sch: Schedule, partition, *free) -> None:
    """Mark the loops that one instruction covers."""
    sch.annotate(partition, "nki_dim", "P")
    for loop in free:
        sch.annotate(loop, "nki_dim", "F")


def by_hand(brought: tuple[str, ...]) -> Schedule:
    """Schedule the small layer; `brought` are the parameters to be read through SBUF."""
    sch = Schedule(small)
    print(sch.fuse_reduction_epilogue("conv"))
    conv = sch.get_sblock("conv")
    n, c, w, f = sch.get_loops(conv)
    sch.reorder(n, f, c, w)
    mark(sch, c, w)
    sch.set_scope("pad", 0, "trn.sbuf")
    for name in brought:
        sch.cache_read(conv, name, "trn.sbuf")
    result = sch.cache_write(conv, 0, "trn.sbuf")
    sch.compute_at("pad", n)
    sch.reverse_compute_at(result, n)
    return sch


kernel = neuron.emit(by_hand(("weight", "bias")))
print(kernel.source)

# %%
# Every block has become the instructions under the comment with its name. ``padded_sbuf`` and the
# like are the function's buffers, cut to what is alive at a time, with the place where they are.
#
# Look at "conv", and where the bias went. ``fuse_reduction_epilogue`` made it the start of the sum:
# it is in ``T.init``. The init and the first tap together are ``weight * x + bias``, with a weight
# and a bias for each partition, and that is what one ``nisa.activation`` computes. So the bias
# costs no instruction: it rides on the first tap. As a block of its own it would have been another
# pass over the tile. The other taps are ``scalar_tensor_tensor``, ``(x * weight) + sum``.
#
# The padding is two columns of zeros and one transfer; the condition of block "pad" is gone.

counts = kernel.predict("trn1").counts
assert counts["activation"] == 2 and counts["scalar_tensor_tensor"] == 4
assert "tensor_tensor" not in counts and "tensor_scalar" not in counts

# %%
# Run it, check it
# ----------------
# A kernel is called with arrays. Its text is what runs: it is parsed, and every instruction is
# carried out on numpy with the hardware's types. Data are whole numbers, so that sums are exact and
# equal means equal.

rng = np.random.default_rng(0)


def whole_numbers(kernel: neuron.Kernel) -> list[np.ndarray]:
    """Return inputs for a kernel."""
    types = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
    return [rng.integers(-4, 5, shape).astype(types[d]) for shape, d in kernel.inputs.values()]


def expected(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """Compute the convolution with numpy."""
    wide, taps = x.astype("float32"), weight.astype("float32")
    padded = np.pad(wide, [(0, 0), (0, 0), (1, 1)])
    sums = sum(padded[:, :, f : f + x.shape[2]] * taps[:, f, None] for f in range(3))
    if bias is not None:
        sums = sums + bias.astype("float32")[:, None]
    return sums.astype(x.dtype)


def is_right(kernel: neuron.Kernel) -> bool:
    """Check the kernel for trn1, run it, and compare."""
    kernel.check("trn1")
    arrays = whole_numbers(kernel)
    return np.array_equal(kernel(*arrays), expected(*arrays))


assert is_right(kernel)
print(kernel.check("trn1"))

# %%
# ``check`` unrolls the loops and holds every instruction against the rules of the machine: memory,
# partitions, banks, types, bounds. It returns what the kernel needs, or raises an error that lists
# all violations with their lines.
#
# Kernels need not be emitted. ``neuron.load`` takes a text, one written by hand, or ours with a
# change. Here is a mistake that is easily made: the zeros on the right are forgotten. On a machine
# the last column would be computed with what happened to be there.

zeros = "        nisa.memset(padded_sbuf[0:64, 257:258], 0.0)\n"
assert zeros in kernel.source
forgotten = neuron.load(kernel.source.replace(zeros, ""), kernel.inputs)
try:
    forgotten(*whole_numbers(forgotten))
except neuron.KernelError as error:
    found = str(error)
print(found)
assert "padded_sbuf" in found

# %%
# And what does ``emit`` do when something is missing in the schedule? Forget to bring the weights:

try:
    neuron.emit(by_hand(("bias",)))
except neuron.EmitError as error:
    refused = error
print(refused)

# %%
# A function that NKI cannot express is refused before any text is written, with a code, the
# reason, and the way out. Nothing is brought silently: the place of a copy decides how often it is
# made.

assert refused.code == "reads-hbm" and "'weight'" in str(refused)

# %%
# How long would it take?
# -----------------------
# The model knows what each instruction costs on its engine, what a transfer costs, and who waits
# for whom. From that follow the times of all instructions, one by one. Here they are as a picture:
# a row for each engine and each DMA queue.

prediction = kernel.predict("trn1")
print(prediction)
assert prediction.bound_by == "latency"
show("trainium_small", written(prediction.plot))

# %%
# "Bound by latency": this layer is so small that every engine mostly waits. Some transfers bring
# the data of the first image; its sums follow, while the second image is on its way. From here on
# the layer is larger.
#
# The ladder
# ----------
# "How we made AWS Trainium 17x faster (for conv1d)" (Autocomp, UC Berkeley SLICE lab, November
# 2025) optimises a depthwise convolution in steps, each measured on a trn1: 8 images, 512 channels,
# 2048 columns, 3 taps, ``float32``, no bias. ``ladder.schedule(step)`` has these kernels as
# schedules of the one workload, and ``ladder.PUBLISHED`` the latencies.

for step, published in enumerate(ladder.PUBLISHED):
    print(f"step {step}  {published.latency_ms:6.3f} ms published  {published.what}")

# %%
# All of them multiply a window with the taps, and then sum up the products. In TVM that is
# ``rfactor``, with which the multiplication becomes a block of its own, "conv_rf". Step 3 in full,
# one column after the other:

large = workloads.depthwise_conv1d(ladder.N, ladder.C, ladder.W, ladder.F, bias=False)


def step_3_or_4(gathered: int | None = None) -> Schedule:
    """Load a tile, compute column by column, store the tile; perhaps gather columns in PSUM."""
    sch = Schedule(large)
    conv = sch.get_sblock("conv")
    products = sch.rfactor(sch.get_loops(conv)[-1], factor_axis=3)
    for block in ("pad", products):
        sch.set_scope(block, 0, "trn.sbuf")
    weights = sch.cache_read(products, 1, "trn.sbuf")
    result = sch.cache_write(conv, 0, "trn.sbuf")

    n, c, w, f = sch.get_loops(conv)
    tile, c = sch.split(c, [None, 128])
    sch.reorder(n, tile, w, c, f)
    stored = tile
    if gathered:  # step 4
        in_psum = sch.cache_write(conv, 0, "trn.psum")
        stored, w = sch.split(w, [None, gathered])
        sch.reverse_compute_at(in_psum, stored)
    mark(sch, c, f)
    sch.compute_at(products, w)
    f, c = sch.get_loops(products)[-2:]
    mark(sch, c, f)

    for block in ("pad", weights):
        sch.compute_at(block, tile)
    sch.reverse_compute_at(result, stored)
    fill = sch.decompose_padding("pad", sch.get_loops("pad")[2])
    sch.annotate(fill, "nki_engine", "gpsimd")
    return sch


def excerpt(kernel: neuron.Kernel, block: str) -> str:
    """Return the loop around a block in a kernel's text."""
    lines = kernel.source.splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == f"# {block}")
    start = max(i for i in range(at) if lines[i].strip().startswith("for i_w"))
    deep = len(lines[start]) - len(lines[start].lstrip())
    stop = next(
        i for i in range(start + 1, len(lines)) if len(lines[i]) - len(lines[i].lstrip()) <= deep
    )
    return "\n".join(lines[start:stop])


steps = {step: neuron.emit(ladder.schedule(step)) for step in (0, 3, 4, 5, 6)}
print(excerpt(steps[3], "conv_rf"))
assert neuron.emit(step_3_or_4()).source == steps[3].source

# %%
# Each instruction works on 128 partitions and on 3 elements along them. That is the trouble with
# it. An engine starts an instruction every 64 cycles at best, and there are 65,536 of each kind.
#
# Unrolled these are 131,072 instructions, and the model takes all of them one by one, which is some
# seconds for a kernel. Steps 0 to 5 do the same for each image, so we look at a single one. The
# text is there to be changed:


def one_image(kernel: neuron.Kernel) -> neuron.Kernel:
    """Return a kernel for one image instead of eight."""
    text = re.sub(r"\brange\(8\)", "range(1)", kernel.source).replace("(8, 512,", "(1, 512,")
    shapes = {"x": ((1, ladder.C, ladder.W), "float32"), "weight": kernel.inputs["weight"]}
    return neuron.load(text, shapes)


images = {step: one_image(steps[step]) for step in (0, 3, 4, 5)}
assert all(is_right(kernel) for kernel in images.values())
predicted = {step: kernel.predict("trn1") for step, kernel in images.items()}

prediction = predicted[3]
print(prediction)
cycle_ms = 1e-6 / prediction.machine.clock_ghz["vector"]
least = 2 * 65536 * prediction.machine.min_cycles * cycle_ms
print(f"131,072 instructions of {prediction.machine.min_cycles} cycles: {least:.2f} ms")
assert prediction.bound_by == "vector" and prediction.utilisation["dma"] < 0.05
show("trainium_step_3", written(prediction.plot))

# %%
# All the time goes into starting instructions of the vector engine. The DMA engines, which are what
# should limit a layer like this, are nearly idle.
#
# Now the steps, by what is different in their schedules:
#
# *Step 0* loads all, computes all, stores all: padding and stores stay in loops of their own. SBUF
# has no room for so much, so the tiles go through HBM, with a ``cache_read`` and a ``cache_write``
# more. Here are its loops and blocks:

lines = steps[0].source.splitlines()
print("\n".join(line for line in lines if line.strip().startswith(("for ", "# "))))
assert predicted[0].counts["dma_copy"] > 2 * predicted[3].counts["dma_copy"]
assert predicted[0].latency_ms > predicted[3].latency_ms

# %%
# Six times the bytes of x pass the DMA engines instead of two, partly before and after everything
# else. *Steps 1 and 2* move index computations in the program, which is nothing that a schedule
# says: to us they are step 0.
#
# *Step 4* gathers 512 columns in PSUM and stores them together. It is the three lines in the
# schedule above:

gathered = neuron.emit(step_3_or_4(512))
print(excerpt(gathered, "conv_rf"))
assert gathered.source == steps[4].source

# %%
# *Steps 5 and 6* have the loop over channels outside, so that the taps are loaded once for all
# images, and a copy of the taps in PSUM. And they compute several columns in one instruction: in
# step 5 the compiler of that study summed up four at once, which was published with it and is an
# input here; in step 6 it multiplied and summed 128.


def step_5_or_6(columns: int, multiply_at_once: bool) -> Schedule:
    """Sum several columns in one instruction, and perhaps multiply them so too."""
    sch = Schedule(large)
    conv = sch.get_sblock("conv")
    products = sch.rfactor(sch.get_loops(conv)[-1], factor_axis=3)
    for block in ("pad", products):
        sch.set_scope(block, 0, "trn.sbuf")
    weights = sch.cache_read(products, 1, "trn.sbuf")
    taps = sch.cache_read(products, 1, "trn.psum")
    result = sch.cache_write(conv, 0, "trn.sbuf")

    n, c, w, f = sch.get_loops(conv)
    tile, c = sch.split(c, [None, 128])
    group, w = sch.split(w, [None, columns])
    sch.reorder(tile, n, group, c, w, f)
    mark(sch, c, w, f)
    sch.compute_at(products, group)
    f, c, w = sch.get_loops(products)[-3:]
    if multiply_at_once:
        sch.reorder(c, w, f)
        mark(sch, c, w, f)
    else:
        sch.reorder(w, c, f)
        mark(sch, c, f)

    for block in (taps, weights):
        sch.compute_at(block, tile)
    sch.compute_at("pad", n)
    sch.reverse_compute_at(result, n)
    fill = sch.decompose_padding("pad", sch.get_loops("pad")[2])
    sch.annotate(fill, "nki_engine", "gpsimd")
    return sch


print(excerpt(steps[5], "conv_rf"))
print(excerpt(steps[6], "conv_rf"))

# %%
# In step 6 the window is written with ``ap``, an access pattern: pairs of step and count, here 128
# partitions, 128 columns one apart, and 3 taps one apart, which overlap. The taps have a step of 0
# along the columns: they are repeated.
#
# Our two schedules are those of the ladder, up to the number in a loop's name:

for step, mine in ((5, step_5_or_6(4, False)), (6, step_5_or_6(128, True))):
    assert neuron.emit(mine).source == steps[step].source.replace("i_w_1", "i_w_0")

# %%
# Step 6 has few instructions, so it runs at its full size. Here the vector engine is busy with
# elements, not with starting: 384 to an instruction, and with the taps in PSUM, a product takes one
# cycle for each of them instead of two.

assert is_right(steps[6])
predicted[6] = steps[6].predict("trn1")
print(predicted[6])
show("trainium_step_6", written(predicted[6].plot))

# %%
# Predicted beside published
# --------------------------
# For steps 0 to 5 eight times an image stands for the whole. (That is a little too much: the start
# and the end count eight times. ``benchmarks/neuron_ladder.py`` takes the whole kernels.) The
# constants of the model are the same for all of them.

print("step  predicted  published   error   vector     dma   bound by")
ladder_ms = {step: each.latency_ms * (1 if step == 6 else 8) for step, each in predicted.items()}
errors = {}
for step, prediction in predicted.items():
    published = ladder.PUBLISHED[step].latency_ms
    errors[step] = ladder_ms[step] / published - 1
    busy = prediction.utilisation
    print(
        f"{step:4} {ladder_ms[step]:10.3f} {published:10.3f} {errors[step]:+7.1%}"
        f" {busy['vector']:8.1%} {busy['dma']:7.1%}   {prediction.bound_by}"
    )
assert all(abs(error) < 0.1 for step, error in errors.items() if step != 4)
chart = {
    f"step {step}": {"predicted": ms, "published": ladder.PUBLISHED[step].latency_ms}
    for step, ms in ladder_ms.items()
}
show("trainium_ladder", bars("the ladder on trn1, one NeuronCore", chart, "ms"))

# %%
# Step 4 is not explained. It has as many vector instructions as step 3, and at 64 cycles each they
# take longer than what was published for the whole kernel:

published = ladder.PUBLISHED[4].latency_ms
print(f"step 4: {least:.2f} ms for its instructions alone, published {published} ms")
assert least > 1.3 * published and 4 in ladder.UNEXPLAINED

# %%
# So the compiler of that run must have merged some of them; how many was not published, for this
# step. If it was four sums in one, as in step 5, the prediction comes near, from the other side:

merged = one_image(neuron.emit(ladder.schedule(4, merged=4))).predict("trn1")
print(f"step 4 with four sums merged: {8 * merged.latency_ms:.2f} ms predicted")
assert 8 * merged.latency_ms < published

# %%
# We could now choose a number that fits, and it would explain nothing. The model keeps its
# constants, and step 4 is left unexplained.
#
# Past step 6
# -----------
# Step 6 is bound by the vector engine, which multiplies and sums every product separately. It can
# be used better: the scalar engine multiplies, the first tap with the bias, the others into PSUM,
# and the vector engine only adds them up. ``schedules.apply`` does that, and plans the tiles. Here
# with a bias:


def layer(dtype: str) -> tvm.tirx.PrimFunc:
    """Return the study's layer, with a bias."""
    return workloads.depthwise_conv1d(ladder.N, ladder.C, ladder.W, ladder.F, dtype=dtype)


applied = neuron.emit(schedules.apply(layer("float32"), "trn1"))
print(applied.source[applied.source.index("    for i_n") :])
assert is_right(applied)
ours = applied.predict("trn1")
print(ours)
assert ours.latency_ms < 0.6 * predicted[6].latency_ms
show("trainium_ours", written(ours.plot))

# %%
# A tile is all columns of 128 channels, computed in two parts, while the next one is loaded. It
# holds every fourth channel: then the weights of a partition are neighbours in HBM, and one
# transfer brings all of them. The planner chose that among tiles of other sizes, in parts
# or not. The most promising were timed by the model itself, and the checker let the chosen one
# pass; tutorial 07 shows how to read its reasons.
#
# The DMA engines are busy nearly all the time, the others half of it. Nothing that reads x and
# writes y can be faster than their bytes, at the 272 GB/s that long transfers sustain by AWS's
# guide (in theory the DMA engines reach 435, and HBM 410):


def bytes_ms(dtype: str, prediction) -> float:
    """Return how long x and y take at the rate of long transfers."""
    moved = 2 * ladder.N * ladder.C * ladder.W * {"float32": 4, "bfloat16": 2}[dtype]
    return moved / (prediction.machine.dma_gb_per_s * 1e9) * 1e3


floor = bytes_ms("float32", ours)
print(f"predicted {ours.latency_ms:.3f} ms, its bytes alone {floor:.3f} ms")
assert ours.bound_by == "dma" and floor < ours.latency_ms < 1.1 * floor

# %%
# In ``bfloat16`` there is half as much to move, but a tap keeps the other engines busy for as long
# as before. On trn1 the scalar and the vector engine cannot both be in PSUM, and take turns there:

narrow = neuron.emit(schedules.apply(layer("bfloat16"), "trn1")).predict("trn1")
print(narrow)
assert narrow.utilisation["dma"] < 0.6
assert narrow.utilisation["scalar"] + narrow.utilisation["vector"] > 1

# %%
# There is an engine that has done nothing so far. The tensor engine multiplies matrices, and a tap
# is such a product: its 128 weights on a diagonal, times the tile. Zeros on the other places make
# it right, as long as all data and weights are finite: 0 times infinity is NaN, and would spoil
# the other channels. So one has to ask for it:

rule = DepthwiseConv1d(finite=True)
choice = rule.choose(layer("bfloat16"), "trn1")
on_tensor = neuron.emit(choice.schedule)
print(choice)
print(excerpt(on_tensor, "products"))

# %%
# The diagonal matrices are made once, under the ``if``. Two taps are summed up in PSUM, and
# meanwhile the scalar engine computes the third, with the bias again. All that the vector engine
# has to do is to add the two, and to round to ``bfloat16``.
#
# All machines and types:

best = {}
for machine in ("trn1", "trn2"):
    for dtype in ("float32", "bfloat16"):
        chosen = choice
        if (machine, dtype) != ("trn1", "bfloat16"):
            chosen = rule.choose(layer(dtype), machine)
        made = neuron.emit(chosen.schedule)
        made.check(machine)
        arrays = whole_numbers(made)
        assert np.array_equal(made(*arrays), expected(*arrays))
        best[machine, dtype] = prediction = made.predict(machine)
        print(f"{machine} {dtype}: {chosen}")
        moved_ms, busy = bytes_ms(dtype, prediction), prediction.utilisation
        print(f"  predicted {prediction.latency_ms:.3f} ms, its bytes {moved_ms:.3f} ms")
        print("  " + ", ".join(f"{name} {part:.0%}" for name, part in busy.items()))

# %%
# In ``float32`` a tap takes the tensor engine four times as long, and the scalar engine has time
# enough for all of them. Everywhere the DMA engines are what limits, as they should.

assert {prediction.bound_by for prediction in best.values()} == {"dma"}
assert best["trn1", "bfloat16"].latency_ms < 0.6 * narrow.latency_ms
for (machine, dtype), prediction in best.items():
    assert 1 < prediction.latency_ms / bytes_ms(dtype, prediction) < 1.3

# %%
# The timeline
# ------------
# Every prediction is a timeline: ``plot`` drew the pictures above, and ``write_trace`` writes one
# for Perfetto (ui.perfetto.dev) and ``chrome://tracing``, with every instruction and its line.

prediction = best["trn1", "bfloat16"]
with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder) / "timeline.json"
    prediction.write_trace(trace)
    events = json.loads(trace.read_text())["traceEvents"]
boxes = [event for event in events if event["ph"] == "X"]
print(len(boxes), "instructions; the first of each engine and queue, in microseconds:")
for number, name in enumerate(prediction.queues):
    first = next((box for box in boxes if box["tid"] == number), None)
    if first is not None:
        print(f"  {name:8} {first['ts']:7.2f}  {first['name']}, line {first['args']['line']}")
end = max(box["ts"] + box["dur"] for box in boxes)
assert abs(end / 1e3 - prediction.latency_ms) < 1e-6
assert len(boxes) == sum(prediction.counts.values())
show("trainium_bfloat16", written(prediction.plot))

# %%
# The lines are those of ``kernel.source``: from a gap in the timeline one finds the instruction.
#
# Limits
# ------
# Where a sum begins with 0, the kernel does not add its first tap to it. That changes nothing but
# the sign of a zero: a sum of negative zeros is ``-0.0`` here, and would be ``0.0`` as written.

begins_with_zero = workloads.depthwise_conv1d(1, 4, 8, 3, padding="valid", bias=False)
signs = neuron.emit(schedules.apply(begins_with_zero, "trn1"))
y = signs(np.full((1, 4, 8), -0.0, "float32"), np.ones((4, 3), "float32"))
print(y[0, 0])
assert not y.any() and np.signbit(y).all()

# %%
# And a prediction is a prediction. Nothing of ours has run on a Trainium; what the model could be
# compared with are latencies that others published: the ladder, of which it explains six steps and
# does not explain one, and products of matrices (``benchmarks/neuron_published.py``). How wrong it
# may be it says itself, as far as AWS's documents leave things open:

least, most = ours.range_ms
print(f"{ours.latency_ms:.3f} ms predicted, {least:.3f} to {most:.3f} by the documents")
assert least < floor < ours.latency_ms < most

# %%
# To sum up, the ladder and what lies past its end, on trn1:

names = {step: f"step {step}" for step in predicted}
latencies = {names[step]: ms for step, ms in ladder_ms.items()}
latencies["ours, with bias"] = ours.latency_ms
latencies["ours, bfloat16"] = best["trn1", "bfloat16"].latency_ms
for name, ms in latencies.items():
    print(f"{name:16} {ms:7.3f} ms predicted")
show(
    "trainium_past_the_ladder",
    bars("predicted, trn1", {n: {"": m} for n, m in latencies.items()}, "ms"),
)
assert latencies["step 0"] > 15 * latencies["step 6"]
assert latencies["step 6"] > 1.8 * latencies["ours, with bias"]
