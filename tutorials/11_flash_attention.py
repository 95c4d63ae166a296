"""
From softmax to flash attention in six lines of schedule
========================================================

Attention is two products with a softmax between them. As written it takes four passes and stores a
matrix of scores that grows with the square of the length. Flash attention is one loop over blocks
of keys, which stores a block. It computes something else on its way, and the same in the end: that
needs a proof. ``sch.fuse_cascaded_reductions`` finds it, or refuses.
"""

# %%
# Attention, as it is written
# ---------------------------

import math

import numpy as np
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.s_tir import transform as passes

import fuse_epilogue
from fuse_epilogue import verify

try:
    from pictures import bars, show
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = lambda *_, **__: None

LENGTH, SIZE, BLOCK = 256, 32, 64


def attention(length: int = LENGTH, weights: str = "exp", dtype: str = "float32") -> tirx.PrimFunc:
    """Return attention of one head; `weights` and `dtype` make it something else."""
    q, k, v = (te.placeholder((length, SIZE), "float32", name) for name in "qkv")
    depth = te.reduce_axis((0, SIZE), "depth")
    keys = [te.reduce_axis((0, length), name) for name in ("key", "key_", "key__")]
    scores = te.compute(
        (length, length), lambda i, j: te.sum(q[i, depth] * k[j, depth], depth), "scores"
    )
    extreme = te.min if weights == "from the minimum" else te.max
    top = te.compute((length,), lambda i: extreme(scores[i, keys[0]], keys[0]), "top")

    def weight(i: tirx.Var, j: tirx.Var) -> tvm.ir.Expr:
        value = te.exp(scores[i, j] - top[i])
        if weights == "near the maximum":
            return tirx.Select(scores[i, j] > top[i] - 5.0, value, tirx.const(0.0, "float32"))
        return value.astype(dtype).astype("float32") if dtype != "float32" else value

    total = te.compute((length,), lambda i: te.sum(weight(i, keys[1]), keys[1]), "total")
    out = te.compute(
        (length, SIZE),
        lambda i, c: te.sum(weight(i, keys[2]) / total[i] * v[keys[2], c], keys[2]),
        "out",
    )
    return te.create_prim_func([q, k, v, out])


func = attention()

# %%
# Six lines
# ---------
# The first makes one loop of the maximum, the sum and the product: a block of 64 keys in each step.
# The next ones are TVM's own: compute a row's scores a block at a time, divide when the row is
# finished, and give the rows to threads.

sch = Schedule(func)
report = sch.fuse_cascaded_reductions("top", factor=BLOCK)
row, block = sch.get_loops(sch.get_sblock(report.certificate.block))
sch.compute_at(sch.get_sblock("scores"), block)
sch.reverse_compute_at(sch.get_sblock("out"), row)
sch.parallel(row)
print(report)

# %%
# The results agree with a softmax in ``float64``, also where the scores are in the thousands:


def run(mod: tvm.IRModule, *arrays: np.ndarray) -> np.ndarray:
    """Compile for LLVM, call, and return the result."""
    out = tvm.runtime.tensor(np.zeros_like(arrays[0]))
    tvm.compile(mod, target={"kind": "llvm"})["main"](*map(tvm.runtime.tensor, arrays), out)
    return out.numpy()


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return attention in float64."""
    scores = q.astype("float64") @ k.astype("float64").T
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v


rng = np.random.default_rng(0)
for scale in (1.0, 100.0):
    q, k, v = rng.standard_normal((3, LENGTH, SIZE)).astype("float32")
    result = run(sch.mod, q * np.float32(scale), k, v)
    error = abs(result - reference(q * np.float32(scale), k, v)).max()
    assert error < 1e-3
    print(f"queries times {scale:.0f}: largest error {error:.0e}")

# %%
# And no matrix of scores is left. These are the bytes that each function allocates, by its length:


def allocated(func: tirx.PrimFunc) -> int:
    """Return the bytes of the buffers that a function allocates, as TVM compacts them."""
    mod = tvm.IRModule({"main": func})
    for name in (
        *("LowerInitBlock", "PlanAndUpdateBufferAllocationLocation", "ConvertBlocksToOpaque"),
        "CompactBufferAllocation",
    ):
        mod = getattr(passes, name)()(mod)
    sizes: list[int] = []

    def visit(block: tvm.s_tir.SBlock) -> None:
        sizes.extend(4 * math.prod(map(int, buffer.shape)) for buffer in block.alloc_buffers)

    tvm_ffi.structural_walk(mod["main"].body, (tvm.s_tir.SBlock, visit))
    return sum(sizes)


lengths = (256, 1024, 4096)
as_written, fused = [], []
for length in lengths:
    own = Schedule(attention(length))
    name = own.fuse_cascaded_reductions("top", factor=BLOCK).certificate.block
    rows, blocks = own.get_loops(own.get_sblock(name))
    own.compute_at(own.get_sblock("scores"), blocks)
    own.reverse_compute_at(own.get_sblock("out"), rows)
    as_written.append(allocated(attention(length)))
    fused.append(allocated(own.mod["main"]))
    print(f"{length:5} keys: {as_written[-1]:10} bytes as written, {fused[-1]:6} fused")
assert fused[-1] < as_written[-1] / 1000
show(
    "flash_attention_memory",
    bars(
        "memory for intermediate results, by the number of keys",
        {
            f"{length} keys": {"as written": before / 1024, "fused": after / 1024}
            for length, before, after in zip(lengths, as_written, fused, strict=True)
        },
        "KiB",
    ),
)

# %%
# The proof, read aloud
# ---------------------
# The report carries a certificate: for each reduction the law that it follows, and what that means
# here.

for stage in report.certificate.stages:
    print(f"{stage.name}, by the law '{stage.rule}'")
    if stage.quotient is not None:
        print(f"    a block changes the maximum: times {stage.quotient}")
    if stage.deferred is not None:
        print(f"    the factor {stage.deferred} waits: {stage.tail}")

# %%
# Read aloud: the maximum is the head, which reads no other result and is computed as before. The
# sum rolls: its terms are exp(s - m), and exp(s - m) times exp(m - m') is exp(s - m'), so that one
# factor corrects all terms so far. The factor is at most 1, because m' is not below m; so nothing
# overflows that did not before. The product does both: it rolls like the sum, and 1 / total
# multiplies every term, so it can wait until the sum is finished.
#
# A checker that shares no code with the primitive proves all of it again, from the two functions:

certified = Schedule(func)
certificate = certified.fuse_cascaded_reductions("top", factor=BLOCK).certificate
print(verify.check(func, certified.mod["main"], certificate))

# %%
# What is refused
# ---------------
# Three functions that look much like it, and the reasons why none of them is fused whole:

twins = {
    "exp(s - min)": attention(weights="from the minimum"),
    "only weights near the maximum": attention(weights="near the maximum"),
    "weights rounded to 16 bits": attention(dtype="float16"),
}
codes = []
for what, twin in twins.items():
    verdict = fuse_epilogue.analyze_cascade(Schedule(twin), "top")
    assert verdict.stopped is not None and not verdict.fusable
    codes.append(verdict.stopped.code)
    print(f"{what}: [{verdict.stopped.code}] {verdict.stopped.message}")

# %%
# Where the minimum falls, old terms would have to grow: what has vanished does not come back. Which
# weights are near the maximum is only known at the end. And rounding is not exp's: a rounded weight
# times a factor is not the rounded product.
#
# ``fuse_epilogue.compile`` asks for the same proof before it writes its kernel for the attention of
# a model, and takes the corrections from the certificate.

assert codes == ["cascade-expanding", "cascade-condition", "cascade-cast"]
