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

#: h[t] = exp(delta[t] * a) * h[t - 1] + delta[t] * u[t] * b[t], y = sum of c * h over states; rows
#: of b and c are spread over partitions by products with ones.
SELECTIVE_SCAN = (
    IMPORTS
    + """\
def spread(ones, source, row: int, start: int, size: int):
    narrow = nl.load(source[row : row + 1, nl.ds(start, size)])
    wide = nl.ndarray((P, size), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(wide, ones, narrow)
    return wide


@nki.jit
def selective_scan(delta, u, a, b, c, block: int = 256):
    channels, length = delta.shape
    states, _ = b.shape
    assert channels % P == 0, f"{channels} channels"
    y = nl.ndarray(delta.shape, delta.dtype, buffer=nl.shared_hbm)
    ones = nl.ones((1, P), nl.float32, buffer=nl.sbuf)
    for tile in nl.affine_range(channels // P):
        here = nl.ds(tile * P, P)
        rates = nl.load(a[here, :])
        last = nl.zeros((P, states), nl.float32, buffer=nl.sbuf)
        for start in nl.sequential_range(0, length, block):
            size = min(block, length - start)
            now = nl.ds(start, size)
            step = nl.load(delta[here, now])
            input_ = nl.multiply(step, nl.load(u[here, now]))
            total = nl.zeros((P, size), nl.float32, buffer=nl.sbuf)
            for s in range(states):
                kept = nl.ndarray((P, size), nl.float32, buffer=nl.sbuf)
                nisa.activation(kept, nl.exp, step, scale=rates[:, s : s + 1])
                added = nl.multiply(input_, spread(ones, b, s, start, size))
                h = nl.ndarray((P, size), nl.float32, buffer=nl.sbuf)
                nisa.tensor_tensor_scan(h, kept, added, last[:, s : s + 1], nl.multiply, nl.add)
                nisa.tensor_copy(last[:, s : s + 1], h[:, size - 1 : size])
                nisa.tensor_tensor(h, h, spread(ones, c, s, start, size), nl.multiply)
                nisa.tensor_tensor(total, total, h, nl.add)
            nl.store(y[here, now], total)
    return y
"""
)

#: Attention of one query for each head to pages of a cache: a largest score and a sum that are
#: corrected for each page.
PAGED_DECODE = (
    IMPORTS
    + """\
@nki.jit
def paged_decode(q, keys, values, pages, scale=None):
    width, heads = q.shape
    scale = scale or 1.0 / width**0.5
    assert pages.shape[1] == P, f"pages of {pages.shape[1]} positions"
    y = nl.ndarray((heads, width), nl.float32, buffer=nl.shared_hbm)
    query = nl.load(q)
    top = nl.full((heads, 1), -3.0e38, nl.float32, buffer=nl.sbuf)
    total = nl.zeros((heads, 1), nl.float32, buffer=nl.sbuf)
    out = nl.zeros((heads, width), nl.float32, buffer=nl.sbuf)
    for page in nl.sequential_range(pages.shape[0]):
        places = nl.ndarray((P, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(places, pages.ap([[1, P], [1, 1]], offset=page * P))
        key, value = [nl.ndarray((P, width), nl.float32, buffer=nl.sbuf) for _ in range(2)]
        for tile, cache in ((key, keys), (value, values)):
            rows = cache.ap([[width, P], [1, width]], vector_offset=places, indirect_dim=0)
            nisa.dma_copy(tile, rows)
        across = nl.ndarray((width, P), nl.float32, buffer=nl.psum)
        nisa.nc_transpose(across, key)
        turned = nl.ndarray((width, P), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(turned, across)
        scores = nl.ndarray((heads, P), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(scores, query, turned)
        low = nl.ndarray((heads, 1), nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(low, nl.maximum, scores, axis=1)
        nisa.tensor_scalar(low, low, nl.multiply, scale, op1=nl.maximum, operand1=top)
        least = nl.negative(low)
        factor = nl.ndarray((heads, 1), nl.float32, buffer=nl.sbuf)
        nisa.activation(factor, nl.exp, top, bias=least)
        shares = nl.ndarray((heads, P), nl.float32, buffer=nl.sbuf)
        part = nl.ndarray((heads, 1), nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(shares, nl.exp, scores, nl.add, part, bias=least, scale=scale)
        nisa.scalar_tensor_tensor(total, total, nl.multiply, factor, nl.add, part)
        down = nl.ndarray((P, heads), nl.float32, buffer=nl.psum)
        nisa.nc_transpose(down, shares)
        weights = nl.ndarray((P, heads), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(weights, down)
        more = nl.ndarray((heads, width), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(more, weights, value)
        nisa.scalar_tensor_tensor(out, out, nl.multiply, factor, nl.add, more)
        top = low
    nisa.tensor_scalar(out, out, nl.divide, total)
    nl.store(y, out)
    return y
"""
)
