"""Kernels as people write them: helpers, classes, defaults, lists of tiles, assertions with text.

Their structures are in no other test, and no latency of any was published.
"""

from __future__ import annotations

IMPORTS = """\
from dataclasses import dataclass

import nki
import nki.isa as nisa
import nki.language as nl

P = nl.tile_size.pmax


def ceil_div(a: int, b: int) -> int:
    return (a + b - 1) // b


"""

#: down(act(x @ gate) * (x @ up)): hidden features on partitions, so that nothing is transposed but
#: the tokens.
GATED_MLP = (
    IMPORTS
    + '''\
@dataclass(frozen=True)
class Sizes:
    tokens: int
    model: int
    hidden: int

    def __post_init__(self):
        for name, size in (("model", self.model), ("hidden", self.hidden)):
            assert size % P == 0, f"{name} is {size}, not a multiple of {P}"


def in_tiles(matrix, rows: int, columns: int):
    """Load a matrix, 128 rows to a tile."""
    tiles = []
    for k in range(rows // P):
        tile = nl.ndarray((P, columns), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=matrix[nl.ds(k * P, P), :])
        tiles.append(tile)
    return tiles


def transposed(x, first: int, count: int, sizes: Sizes):
    """Load some tokens with their features on partitions."""
    rows = nl.ndarray((P, sizes.model), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows[0:count, :], src=x[first : first + count, :])
    made = []
    for k in range(sizes.model // P):
        transposed = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=transposed[:, 0:count], data=rows[0:count, nl.ds(k * P, P)])
        tile = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile[:, 0:count], src=transposed[:, 0:count])
        made.append(tile)
    return made


def projected(weights, tokens, h: int, count: int):
    """Return hidden features of some tokens, in PSUM."""
    total = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.psum)
    for k, (weight, token) in enumerate(zip(weights, tokens)):
        nisa.nc_matmul(
            dst=total[:, 0:count],
            stationary=weight[:, nl.ds(h * P, P)],
            moving=token[:, 0:count],
            accumulate=(k > 0),
        )
    return total


@nki.jit
def gated_mlp(x, gate, up, down, act=nl.silu):
    sizes = Sizes(x.shape[0], x.shape[1], gate.shape[1])
    assert down.shape == (sizes.hidden, sizes.model), f"down has shape {down.shape}"
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    gates, ups = [in_tiles(each, sizes.model, sizes.hidden) for each in (gate, up)]
    downs = in_tiles(down, sizes.hidden, sizes.model)
    for tile in nl.affine_range(ceil_div(sizes.tokens, P)):
        first = tile * P
        count = min(P, sizes.tokens - first)
        tokens = transposed(x, first, count, sizes)
        hidden = []
        for h in range(sizes.hidden // P):
            wide = projected(gates, tokens, h, count)
            factor = projected(ups, tokens, h, count)
            open_ = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=open_[:, 0:count], op=act, data=wide[:, 0:count])
            made = nl.ndarray((P, P), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor(
                dst=made[:, 0:count], data1=open_[:, 0:count], data2=factor[:, 0:count],
                op=nl.multiply,
            )
            hidden.append(made)
        for start in range(0, sizes.model, 512):
            size = min(512, sizes.model - start)
            total = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.psum)
            for h, (made, weight) in enumerate(zip(hidden, downs)):
                nisa.nc_matmul(
                    dst=total[0:count, 0:size],
                    stationary=made[:, 0:count],
                    moving=weight[:, nl.ds(start, size)],
                    accumulate=(h > 0),
                )
            out = nl.ndarray((P, 512), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(
                dst=out[0:count, 0:size], src=total[0:count, 0:size], engine=nisa.scalar_engine
            )
            nisa.dma_copy(
                dst=y[first : first + count, start : start + size], src=out[0:count, 0:size]
            )
    return y
'''
)

#: Scores of one head after a rotation of pairs of halves, and their softmax; causal.
ROTARY = (
    IMPORTS
    + '''\
def rotated(x, cos, sin, tile: int, half: int):
    """Load 128 positions, rotate them, and return them with features on partitions."""
    rows = nl.ndarray((P, 2 * half), nl.float32, buffer=nl.sbuf)
    angles = [nl.ndarray((P, half), nl.float32, buffer=nl.sbuf) for _ in range(2)]
    nisa.dma_copy(rows, x[nl.ds(tile * P, P), :])
    for angle, table in zip(angles, (cos, sin)):
        nisa.dma_copy(angle, table[nl.ds(tile * P, P), :])
    first, second = rows[:, :half], rows[:, half:]
    rotated = nl.ndarray((P, 2 * half), nl.float32, buffer=nl.sbuf)
    scratch = nl.ndarray((P, 2 * half), nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(rotated[:, :half], first, angles[0], nl.multiply)
    nisa.tensor_tensor(scratch[:, :half], second, angles[1], nl.multiply)
    nisa.tensor_tensor(rotated[:, half:], second, angles[0], nl.multiply, engine=nisa.gpsimd_engine)
    nisa.tensor_tensor(scratch[:, half:], first, angles[1], nl.multiply, engine=nisa.gpsimd_engine)
    nisa.tensor_tensor(rotated[:, :half], rotated[:, :half], scratch[:, :half], nl.subtract)
    nisa.tensor_tensor(rotated[:, half:], rotated[:, half:], scratch[:, half:], nl.add)
    across = nl.ndarray((2 * half, P), nl.float32, buffer=nl.psum)
    nisa.nc_transpose(across, rotated)
    made = nl.ndarray((2 * half, P), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(made, across)
    return made


@nki.jit
def rotary_scores(q, k, cos, sin, scale: float = 0.125, hidden: float = -30000.0):
    length, width = q.shape
    half = width // 2
    assert width <= P and length % P == 0, f"{length} positions of {width} features"
    y = nl.ndarray((length, length), nl.float32, buffer=nl.shared_hbm)
    tiles = length // P
    keys = [rotated(k, cos, sin, tile, half) for tile in range(tiles)]
    for tile in nl.static_range(tiles):
        query = rotated(q, cos, sin, tile, half)
        row = nl.ndarray((P, length), nl.float32, buffer=nl.sbuf)
        nisa.memset(row, hidden)
        for at in range(tile + 1):
            scores = nl.ndarray((P, P), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(scores, query, keys[at])
            here = row[:, nl.ds(at * P, P)]
            nisa.activation(here, nl.copy, scores, scale=scale)
            if at == tile:
                nisa.affine_select(
                    dst=here, pattern=[[-1, P]], channel_multiplier=1, on_true_tile=here,
                    on_false_value=hidden, cmp_op=nl.greater_equal,
                )
        low = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(low, nl.maximum, row, axis=1, negate=True)
        nisa.activation_reduce(row, nl.exp, row, reduce_op=nl.add, reduce_res=total, bias=low)
        nisa.reciprocal(total, total)
        nisa.tensor_scalar(row, row, nl.multiply, total)
        nisa.dma_copy(y[nl.ds(tile * P, P), :], row)
    return y
'''
)

#: The k largest of each row and their places, eight at a time.
TOP_K = (
    IMPORTS
    + """\
EIGHT = 8
LOWEST = -3.0e38


@nki.jit
def top_k(x, k: int = 16):
    rows, columns = x.shape
    rounds = ceil_div(k, EIGHT)
    assert columns >= rounds * EIGHT, f"{columns} columns have no {k} largest"
    values = nl.ndarray((rows, k), nl.float32, buffer=nl.shared_hbm)
    places = nl.ndarray((rows, k), nl.uint32, buffer=nl.shared_hbm)
    for tile in nl.affine_range(ceil_div(rows, P)):
        count = min(P, rows - tile * P)
        here = nl.ds(tile * P, count)
        data = nl.ndarray((P, columns), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(data[:count], x[here, :])
        best = nl.ndarray((P, rounds * EIGHT), nl.float32, buffer=nl.sbuf)
        where = nl.ndarray((P, rounds * EIGHT), nl.uint32, buffer=nl.sbuf)
        for turn in nl.sequential_range(rounds):
            eight = nl.ds(turn * EIGHT, EIGHT)
            nisa.max8(best[:count, eight], data[:count])
            nisa.nc_find_index8(where[:count, eight], data[:count], best[:count, eight])
            if turn + 1 < rounds:
                rest = nl.ndarray((P, columns), nl.float32, buffer=nl.sbuf)
                nisa.nc_match_replace8(rest[:count], data[:count], best[:count, eight], LOWEST)
                data = rest
        nisa.dma_copy(values[here, :], best[:count, :k])
        nisa.dma_copy(places[here, :], where[:count, :k])
    return values, places
"""
)

#: y[o, stride * i + t] += w[c, t, o] * x[c, i]: every tap is a product, sums of neighbours overlap.
TRANSPOSED_CONV = (
    IMPORTS
    + """\
@nki.jit
def transposed_conv(x, weight, stride: int = 2):
    channels, width = x.shape
    _, taps, outputs = weight.shape
    assert max(channels, outputs) <= P, f"{channels} to {outputs} channels: at most {P}"
    length = (width - 1) * stride + taps
    y = nl.ndarray((outputs, length), nl.float32, buffer=nl.shared_hbm)
    w = nl.ndarray((channels, taps * outputs), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(w, weight.reshape((channels, taps * outputs)))
    row = nl.ndarray((channels, width), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(row, x)
    total = nl.ndarray((outputs, length), nl.float32, buffer=nl.sbuf)
    nisa.memset(total, value=0.0)
    for start in range(0, width, 512):
        size = min(512, width - start)
        for tap in range(taps):
            part = nl.ndarray((outputs, 512), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                part[:, :size], w[:, nl.ds(tap * outputs, outputs)], row[:, nl.ds(start, size)]
            )
            first = start * stride + tap
            into = total.ap([[length, outputs], [stride, size]], offset=first)
            nisa.tensor_tensor(into, part[:, :size], into, nl.add)
    nisa.dma_copy(y, total)
    return y
"""
)

#: Rows summed by the segment they are of: a product with an indicator that is made on the chip.
SEGMENT_SUM = (
    IMPORTS
    + """\
@nki.jit
def segment_sum(x, segment, segments: int = 8):
    rows, width = x.shape
    assert rows % P == 0 and width <= 512, f"{rows} rows of {width}"
    y = nl.ndarray((segments, width), nl.float32, buffer=nl.shared_hbm)
    places = nl.ndarray((P, segments), nl.int32, buffer=nl.sbuf)
    nisa.iota(places, [[1, segments]], offset=0, channel_multiplier=0)
    numbers = nl.ndarray((P, segments), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(numbers, places)
    total = nl.ndarray((segments, width), nl.float32, buffer=nl.psum)
    for tile in range(rows // P):
        here = nl.ds(tile * P, P)
        own = nl.ndarray((P, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(own, segment[here, 0:1])
        number = nl.ndarray((P, 1), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(number, own)
        is_own = nl.ndarray((P, segments), nl.bfloat16, buffer=nl.sbuf)
        nisa.tensor_scalar(is_own, numbers, op0=nl.equal, operand0=number)
        data = nl.ndarray((P, width), nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(data, x[here, :])
        nisa.nc_matmul(total, is_own, data, accumulate=(tile > 0))
    out = nl.ndarray((segments, width), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(out, total)
    nisa.dma_copy(y, out)
    return y
"""
)
