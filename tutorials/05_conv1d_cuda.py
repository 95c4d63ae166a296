"""
A convolution on a GPU: reading the CUDA text
=============================================

Tutorial 04 took a depthwise convolution to the speed of memory on the CPU. Here is the same
function for a GPU. The rule for it schedules it, TVM prints CUDA, and we read that text from
top to bottom: who computes what, what is loaded, what happens at the borders, where bias and ReLU
went.

No GPU is needed, and no CUDA toolkit: TVM prints the text without either. Where there is an nvcc,
we ask it for the registers; where there is a GPU, we run the kernel.
"""

# %%
# The kernel
# ----------
# 8 images, 512 channels, 2048 columns, 3 taps, zeros at both ends, a bias, a ReLU. The target must
# name an architecture, because there is no GPU to ask.

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from fuse_epilogue import schedules, workloads

try:
    from pictures import show, spans
except ImportError:  # the tutorial alone, without its folder: no drawings
    show = spans = lambda *_, **__: None

ARCH = "sm_90"
target = {"kind": "cuda", "arch": ARCH}
N, C, W, F = 8, 512, 2048, 3
conv = workloads.depthwise_conv1d(N, C, W, F, padding="same", activation="relu")


def by_rule(func: tirx.PrimFunc, target: dict = target) -> tirx.PrimFunc:
    """Return a function as the rule for convolutions schedules it."""
    sch = schedules.cuda.DepthwiseConv1d().apply(func, tvm.target.Target(target))
    return sch.mod["main"].with_attr("tirx.is_scheduled", True)


def cuda_text(func: tirx.PrimFunc) -> str:
    """Schedule a function, compile it, and return the CUDA text of its kernels."""
    built = tvm.compile(by_rule(func), target=target)
    return built.mod.imports[0].inspect_source()


def body(text: str) -> list[str]:
    """Return the lines of the only kernel in a text, from its head on."""
    lines = text[text.rindex('extern "C" __global__') :].splitlines()
    return lines[: lines.index("}") + 1]


text = cuda_text(conv)
kernel = body(text)
print(len(kernel), "lines")

# %%
# There is one kernel. Padding, convolution, bias and ReLU, which were four blocks and would have
# been four kernels with three arrays between them, have become one pass over memory: x is read, y
# is written.
#
# Grid and block
# --------------
# The sizes of the launch are not in the text: the caller of the kernel passes them. They are the
# loops of the scheduled function that are bound to blocks and threads.


def launch(func: tirx.PrimFunc) -> dict[str, int]:
    """Return the number of blocks, and of threads in a block."""
    sizes: dict[str, int] = {}

    def note(loop: tirx.For) -> None:
        if loop.thread_binding is not None:
            sizes[loop.thread_binding.thread_tag] = int(loop.extent)

    tvm_ffi.structural_walk(by_rule(func).body, ((tirx.For, note),))
    return sizes


sizes = launch(conv)
blocks, threads = sizes["blockIdx.x"], sizes["threadIdx.x"]
outputs = N * C * W // (blocks * threads)
print(f"{blocks} blocks of {threads} threads: {outputs} outputs for each thread")
assert blocks * threads * outputs == N * C * W

# %%
# All blocks lie along ``blockIdx.x``, because a GPU takes more than 65535 of them only there. With
# these sizes a block computes one row, which is one channel of one image. Where a launch would be
# too small to keep a GPU busy, the rule gives fewer outputs to a thread:

few = launch(workloads.depthwise_conv1d(1, 64, 2048, 3, activation="relu"))
each = 64 * 2048 // (few["blockIdx.x"] * few["threadIdx.x"])
print(f"1 x 64 x 2048: {few['blockIdx.x']} blocks, {each} outputs for each thread")
assert each <= outputs

# %%
# Now the text. First the head and what a thread has for itself. The buffers come in the order of
# their names; ``__restrict__`` is there because the parameters of a workload must not overlap. The
# arrays look like memory, but all their indices are constants once nvcc has unrolled the loops, and
# then they are registers.

sums_at = next(at for at, line in enumerate(kernel[1:], 1) if "bias_ptr[" in line)
while "#pragma unroll" in kernel[sums_at - 1] or "for (" in kernel[sums_at - 1]:
    sums_at -= 1
store_at = next(at for at, line in enumerate(kernel[1:], 1) if "y_ptr" in line)
loads_at = next(at for at, line in enumerate(kernel) if "alignas" not in line and at > 0)
print("\n".join(kernel[:loads_at]))

# %%
# Loads, and the halo
# -------------------
# Then a thread loads all the x that it needs, in *chunks* of four ``float32``: 16 bytes, the most
# that one instruction can load.

print("\n".join(kernel[loads_at:sums_at]))

# %%
# Four columns of y and three taps make six columns of x, ``b - 1`` to ``b + 4``. They lie in three
# chunks: the one in the same place, and one on each side for the *halo*, the columns that belong to
# the neighbour. With half a row between them, a thread has two such groups. All loads come before
# the first sum, so that all of them are under way while the first is waited for.
#
# (Variables named ``cse`` are left by TVM's search for common subexpressions; nvcc drops those that
# are not used.)
#
# How good are these loads? Their addresses are in the text, so we can compute them: for one block
# that is not the first, for all its threads at once.


def loads(kernel: list[str], buffer: str) -> list[tuple[int, str]]:
    """Return the vector loads from a buffer in a kernel: elements, and index of the first."""
    pattern = re.compile(rf"= \*\([a-z]+(\d+)\*\)\({buffer}_ptr \+ (.*)\);")
    return [(int(width), index) for width, index in pattern.findall("\n".join(kernel))]


def stores(kernel: list[str], buffer: str) -> list[tuple[int, str]]:
    """Return the vector stores to a buffer in a kernel: elements, and index of the first."""
    pattern = re.compile(rf"\*\([a-z]+(\d+)\*\)\({buffer}_ptr \+ (.*)\) = ")
    return [(int(width), index) for width, index in pattern.findall("\n".join(kernel))]


BLOCK = 5


def addresses(kernel: list[str], index: str) -> np.ndarray:
    """Return what an index of the text is in each thread of block 5."""
    names = {"blockIdx": BLOCK, "threadIdx": np.arange(threads)}

    def value(expression: str) -> np.ndarray:
        python = re.sub(r"\(int\)|\.x\b", "", expression).replace("/", "//")
        return eval(python, {}, names)

    for name, expression in re.findall(r"int (cse_v\d+) = (.*);", "\n".join(kernel)):
        names.setdefault(name, value(expression))
    return value(index) + np.zeros(threads, int)


SECTOR = 8  # elements in 32 bytes, the least that is fetched from memory

read: set[int] = set()
for width, index in loads(kernel, "x"):
    first = addresses(kernel, index)
    assert not (first % width).any()
    warp = first[32:64, None] + np.arange(width)
    sectors = len(np.unique(warp // SECTOR))
    print(f"a warp loads {warp.size} elements from {sectors} sectors, {index}")
    assert sectors <= warp.size // SECTOR + 1
    read.update((first[:, None] + np.arange(width)).ravel().tolist())

# %%
# One thread in the middle of the row, and its first group; columns count from the row's beginning.

THREAD = 100


def column(index: str) -> int:
    """Return what an index of the text is in that thread."""
    return int(addresses(kernel, index)[THREAD]) - BLOCK * W


size, result = stores(kernel, "y")[0]
out = column(result)
chunks = sorted(at for _, index in loads(kernel, "x") if abs((at := column(index)) - out) <= size)
halo = {
    "stores of y": {"out": (out, size)},
    "needed of x": {"windows of the three taps": (out - 1, size + F - 1)},
    "loads of x": {f"chunk {number}": (at, size) for number, at in enumerate(chunks)},
}
show("cuda_halo", spans(f"columns of thread {THREAD}, its first group", halo))

# %%
# Every load begins at a multiple of four elements, without which a 16-byte load is an error. And
# neighbouring threads load neighbouring chunks (the loads are *coalesced*): a warp, 32 threads that
# run together, asks for 128 elements that lie in 16 sectors, the fewest possible, or in 17 where it
# begins in the middle of one.
#
# Each element of x is loaded up to three times, as the middle chunk of one thread and as the halo
# of two others. That does not cost bandwidth of memory: the three loads are close in time, in the
# same block, and the second and third find the line in the cache of the multiprocessor. What
# reaches memory is what the block reads in all, and that is its row:

row = range(BLOCK * W, (BLOCK + 1) * W)
print("of the row, block 5 reads", len(read & set(row)), "of", W, "elements")
assert read & set(row) == set(row)

# %%
# So why not exchange the halo through shared memory? There every element would be loaded once. But
# it would also be stored to shared memory and loaded from there, with a barrier between. The loads
# that this saves are few already, as we can count:

loaded = sum(width for width, _ in loads(kernel, "x"))
stored = sum(width for width, _ in stores(kernel, "y"))
print("load instructions for x:  ", len(loads(kernel, "x")), "| elements:", loaded)
print("store instructions for y: ", len(stores(kernel, "y")), "| elements:", stored)
print(f"loads per output: {len(loads(kernel, 'x')) / stored}; one element at a time: {F}")
assert stored == outputs
assert len(loads(kernel, "x")) / stored < F / 2
assert "__shared__" not in text and "__syncthreads" not in text

# %%
# Borders
# -------
# Look at the loads again. Those that may lie outside of the row, and only those, have a condition;
# outside, the chunk becomes zeros, in registers. There is no padded copy, and no condition for a
# single element. Of a row, two threads go the other way.

conditions = [line.strip() for line in kernel if line.strip().startswith("if ")]
print("\n".join(conditions))
assert len(conditions) < len(loads(kernel, "x"))

# %%
# Bias, taps, ReLU, store
# -----------------------
# Here are the sums of the first group, and its store.

print("\n".join(kernel[sums_at : store_at + 1]))

# %%
# This is the fused function, element by element. ``sums`` begins with the bias, which the fusion
# has made the first term of the sum; before, it was a block of its own that read and wrote all of
# an array. Then come three taps, each a product and a sum in the four lanes. The window of a tap is
# no more than a shift of the index into ``chunks``: nothing is moved. The ReLU is applied on the
# way to ``out``, and four results leave in one store.
#
# The text loads ``weight`` and ``bias`` for each lane. But the address is the same in all lanes, so
# nvcc loads a value once; and it is the same in all threads of a row, so one fetch serves a warp.
#
# The rest of the text is the same for the second group. Nothing is stored twice, and nothing is
# left out:

written = [addresses(kernel, index)[:, None] + np.arange(w) for w, index in stores(kernel, "y")]
assert sorted(np.concatenate(written, axis=None).tolist()) == list(row)
print("of y, block 5 writes", sum(part.size for part in written), "elements, each once")

# %%
# Other shapes, other text
# ------------------------
# A causal filter looks only to the left. With four taps it needs the chunk in its own place and the
# one before it, and nothing after: two loads for four outputs. SiLU is a longer tail in the same
# place.

to_the_left = workloads.depthwise_conv1d(1, 5120, 4096, 4, padding="causal", activation="silu")
causal = body(cuda_text(to_the_left))
print(next(line.strip() for line in causal if "exp" in line))
assert len(loads(causal, "x")) == 2 * len(stores(causal, "y"))

# %%
# Rows of 197 columns do not begin at multiples of four elements. Vectors then begin where those
# of memory begin: the first of a row begins before it, the last ends after it, and only these two
# look at single elements. ``begin`` counts vectors from the beginning of the buffer, so that all
# see that its index is a multiple of four.

odd = body(cuda_text(workloads.depthwise_conv1d(4, 768, 197, 3, activation="relu")))
print("\n".join(line.strip() for line in odd if "begin_ptr[0] =" in line or "*)(x_ptr" in line))
assert {width for width, _ in loads(odd, "x")} == {4}

# %%
# A symbolic W gives the same form, because it may be anything. Strides, dilations that reach far,
# and channels as the last dimension have other forms. The rule chooses by what the function
# computes; ``schedules.apply`` asks the planner, whose costs of a GPU come from documents alone.
#
# What nvcc makes of it
# ---------------------
# ``ptxas -v`` tells how many registers a thread takes, and whether some had to be *spilled* to
# memory. If one of the arrays had not become registers, it would show here, as a stack frame.

usage = ""
nvcc = shutil.which("nvcc")
if nvcc is None:
    print("There is no nvcc here. Where there is one, save the text as kernel.cu and run")
    print(f"    nvcc -cubin -arch={ARCH} -std=c++17 -Xptxas -v kernel.cu")
else:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.cu"
        source.write_text(text)
        options = ["-cubin", f"-arch={ARCH}", "-std=c++17", "-w", "-Xptxas", "-v"]
        command = [nvcc, *options, "-o", f"{source}.cubin", source]
        done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout + done.stderr)
    if done.returncode == 0:
        usage = done.stdout + done.stderr

# %%
# A multiprocessor of this architecture has 65536 registers and room for 2048 threads. With up to 32
# registers each all of them fit, and the more threads there are, the more loads are under way.

if usage:
    registers = int(re.search(r"Used (\d+) registers", usage)[1])
    fit = min(2048, 65536 // registers // threads * threads)
    print(f"{registers} registers: {fit} threads fit")
    assert " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in usage

# %%
# Run it
# ------
# With a GPU, ``Target.from_device`` names its architecture. The kernel's result is compared with
# numpy, and its time with a copy of x to y within the GPU's memory, the limit for any kernel that
# reads one and writes the other. Whole numbers from -8 to 8 make the sums exact.

if tvm.cuda().exist:
    device = tvm.cuda()
    here = tvm.target.Target.from_device("cuda")
    main = tvm.compile(by_rule(conv, here), target=here)["main"]
    rng = np.random.default_rng(0)
    x, weight, bias = (
        rng.integers(-8, 9, shape).astype("float32") for shape in ((N, C, W), (C, F), (C,))
    )
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    sums = sum(padded[:, :, tap : tap + W] * weight[:, tap, None] for tap in range(F))
    expected = np.maximum(sums + bias[:, None], 0)
    on_gpu = [tvm.runtime.tensor(a, device) for a in (x, weight, bias, np.full_like(x, np.nan))]
    main(*on_gpu)
    assert np.array_equal(on_gpu[-1].numpy(), expected)

    runs = {
        "the rule": lambda: main(*on_gpu),
        "copy": lambda: on_gpu[-1].copyfrom(on_gpu[0]),
    }
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(10):
        for name, run in runs.items():
            run()
            device.sync()
            begin = time.perf_counter()
            for _ in range(20):
                run()
            device.sync()
            best[name] = min(best[name], (time.perf_counter() - begin) / 20)
    print("Measured on this machine, now:")
    for name, seconds in best.items():
        print(f"{name:16} {seconds * 1e6:8.1f} us  {best['copy'] / seconds:6.1%} of a copy's speed")
else:
    print("There is no GPU here. Where there is one, run this tutorial again, or:")
    print('    target = tvm.target.Target.from_device("cuda")')
    print("    main = tvm.compile(schedules.apply(conv, target), target=target)['main']")
    print("    main(*[tvm.runtime.tensor(a, tvm.cuda()) for a in (x, weight, bias, y)])")

# %%
# Without a GPU the text is tested all the same: ``tests/cuda_on_cpu`` has g++ compile it, runs the
# threads of a block one after the other, in several orders, and compares with numpy.
#
# To sum up, the loads from x for each output, away from the borders, in the three kernels that we
# have read. One element at a time, there would be one for each tap.

for name, lines, taps in (("same", kernel, 3), ("causal", causal, 4), ("odd rows", odd, 3)):
    per_output = len(loads(lines, "x")) / sum(width for width, _ in stores(lines, "y"))
    print(f"{name:9} {taps} taps: {per_output} loads per output")
    assert per_output < taps / 2
assert "__syncthreads" not in text
