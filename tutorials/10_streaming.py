"""
A convolution of a stream: states, one column at a time, many requests
======================================================================

A model that writes a token after the other, such as Mamba, has a depthwise convolution over the
last few columns. The columns come one at a time, and the convolution has to remember those before:
its *state*. This tutorial computes the same stream in four ways, each of which gives the same
numbers: at once, in pieces, a column at a time in place, and for a batch of requests that share one
pool of states. At the end are the gradients.
"""

# %%
# The stream at once
# ------------------
# With ``padding="causal"`` a result depends on no later column. This is the reference for the rest.
# The numbers are multiples of 1/8, so that sums are exact, in whatever order they are added.

import numpy as np
import tvm

from fuse_epilogue import schedules, verify, workloads

try:
    from pictures import bars, show
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = lambda *_, **__: None

CHANNELS, COLUMNS, TAPS = 8, 40, 4
rng = np.random.default_rng(1)
target = schedules.host(1)


def drawn(*shape: int) -> np.ndarray:
    """Multiples of 1/8."""
    return (rng.integers(-24, 25, shape) / 8).astype("float32")


def call(func: tvm.tirx.PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    """Schedule, compile and call a function; returns all arrays as they are afterwards."""
    built = tvm.compile(schedules.apply(func, target), target=target)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    built["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


x, weight, bias = drawn(1, CHANNELS, COLUMNS), drawn(CHANNELS, TAPS), drawn(CHANNELS)
whole = workloads.depthwise_conv1d(1, CHANNELS, COLUMNS, TAPS, padding="causal")
expected = call(whole, x, weight, bias, np.zeros_like(x))[-1]

# %%
# In pieces
# ---------
# ``initial_state=True`` reads the three columns before a piece in place of the zeros, and
# ``final_state=True`` returns the three after which the next piece goes on. A piece may be shorter
# than the state: then a part of the old state is in the new one.

state, results = np.zeros((1, CHANNELS, TAPS - 1), "float32"), []
for start, stop in ((0, 23), (23, 25), (25, 40)):
    part = np.ascontiguousarray(x[:, :, start:stop])
    piece = workloads.depthwise_conv1d(
        1, CHANNELS, stop - start, TAPS, padding="causal", initial_state=True, final_state=True
    )
    *_, y, state = call(piece, part, weight, bias, state, np.zeros_like(part), np.zeros_like(state))
    results.append(y)
np.testing.assert_array_equal(np.concatenate(results, axis=2), expected)
print(schedules.explain(piece, target))

# %%
# The kernel is that of the convolution without a state. The three columns that see the state are
# computed again after it, each by the expression of one element; then the new state is copied.
#
# One column at a time
# --------------------
# ``workloads.depthwise_conv1d_update`` takes the next column of each stream, and updates the state
# in place. Everything after the sum is fused by the primitive, with a certificate that an
# independent checker accepts.

step = workloads.depthwise_conv1d_update(1, CHANNELS, TAPS)
sch = tvm.s_tir.Schedule(step)
report = sch.fuse_reduction_epilogue("conv")
print(report)
print(verify.check(step, sch.mod["main"], report.certificate))

built = tvm.compile(schedules.apply(step, target), target=target)["main"]
state = tvm.runtime.tensor(np.zeros((1, CHANNELS, TAPS - 1), "float32"))
arguments = [tvm.runtime.tensor(each) for each in (weight, bias)]
for column in range(COLUMNS):
    y = tvm.runtime.tensor(np.zeros((1, CHANNELS), "float32"))
    built(tvm.runtime.tensor(np.ascontiguousarray(x[:, :, column])), *arguments, state, y)
    np.testing.assert_array_equal(y.numpy(), expected[:, :, column])

# %%
# The state is read once and written once. Step by step, as the function is written, the state and x
# are copied to one place, summed, and read again by the steps after it. Counted for one channel:

numbers = {
    "one pass": {"read": 3 + 1, "written": 3 + 1},
    "step by step": {"read": (3 + 1) + 4 + 1 + 3, "written": 4 + 1 + 1 + 3},
}
for name, count in numbers.items():
    print(f"{name}: {4 * sum(count.values())} bytes, beside weights and bias")
show("streaming_bytes", bars("numbers for one column of a channel", numbers, "numbers"))

# %%
# Many requests, one pool
# -----------------------
# A server has more requests than are in one batch. With ``pool=5`` there are five states, and
# ``indices`` says which of them belongs to each stream of the call. With ``circular=True`` a state
# is not moved at all: ``positions`` has the number of columns that each request has seen.

pooled = workloads.depthwise_conv1d_update(
    2, CHANNELS, TAPS, pool=5, circular=True, state_length=TAPS - 1
)
print([param.name for param in pooled.params])
built = tvm.compile(schedules.apply(pooled, target), target=target)["main"]
pool = tvm.runtime.tensor(np.zeros((5, CHANNELS, TAPS - 1), "float32"))


def advance(columns: np.ndarray, positions: list[int], indices: list[int]) -> np.ndarray:
    """One column for each of two requests."""
    y = tvm.runtime.tensor(np.zeros((2, CHANNELS), "float32"))
    numbers = [tvm.runtime.tensor(np.array(each, "int32")) for each in (positions, indices)]
    built(tvm.runtime.tensor(columns), *arguments, pool, *numbers, y)
    return y.numpy()


# The second request begins ten columns later, and the two change places in the batch.
zero = np.zeros((1, CHANNELS), "float32")
for column in range(10):
    both = np.concatenate([x[:, :, column], zero])
    y = advance(both, [column, column], [3, 1])
    np.testing.assert_array_equal(y[0], expected[0, :, column])
for column in range(10, COLUMNS):
    both = np.concatenate([x[:, :, column - 10], x[:, :, column]])
    y = advance(both, [column - 10, column], [4, 3])
    np.testing.assert_array_equal(y, expected[0, :, [column - 10, column]])

# %%
# Numbers that are data can be wrong, and are checked in the call, before anything is written:

refused = []
for positions, indices in (([0, 0], [3, 5]), ([0, 0], [3, 3]), ([0, -1], [3, 4])):
    try:
        advance(np.concatenate([zero, zero]), positions, indices)
    except ValueError as error:
        refused.append(str(error))
        print(error)

# %%
# Several sequences in one row
# ----------------------------
# Short sequences are packed into one row, with the number of its sequence for each column. Taps
# that would reach into another sequence are zero.

packed = workloads.depthwise_conv1d(1, CHANNELS, COLUMNS, TAPS, padding="causal", sequences=True)
numbers = np.repeat([[0, 1, 2]], [12, 20, 8], axis=1).astype("int32")
y = call(packed, x, weight, bias, numbers, np.zeros_like(x))[-1]
for start, stop in ((0, 12), (12, 32), (32, 40)):
    part = np.ascontiguousarray(x[:, :, start:stop])
    alone = workloads.depthwise_conv1d(1, CHANNELS, stop - start, TAPS, padding="causal")
    own = call(alone, part, weight, bias, np.zeros_like(part))[-1]
    np.testing.assert_array_equal(y[:, :, start:stop], own)

# %%
# Gradients
# ---------
# ``workloads.depthwise_conv1d_backward`` computes those of x, weight and bias (and of a state)
# from dy, through the activation. The pass over modules gives each of its sums a kernel.

from fuse_epilogue.transform import ScheduleModule, schedules_of  # noqa: E402

backward = workloads.depthwise_conv1d_backward(1, CHANNELS, COLUMNS, TAPS, activation="silu")
mod = ScheduleModule(target)(tvm.IRModule({"main": backward}))
print(schedules_of(mod)[0].kind)
assert len(refused) == 3
