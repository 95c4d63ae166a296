"""Attention in one pass: a block of queries against blocks of keys, scores kept in the cache.

    for heads and blocks of queries, in parallel:
        pack the block's queries, transposed
        for blocks of keys:
            scores = keys x queries, with `f`; their maximum over the block
            shares = exp(scores - maximum); their sum
            result = result * exp(change of the maximum) + shares x values
        store result / sum

Scores are transposed: queries are the lanes, so that the softmax needs no sum over lanes, and keys
and values are read as they lie. One block of keys, if the scores of a block fit: then nothing is
rescaled. Blocks of keys that a mask of places hides, be it causal or a window, with -inf or with a
finite number, are skipped (`hidden_keys.py`, `skipped.py`). One or two queries, as in decoding,
have a kernel of their own, with keys and columns as lanes. Sizes of blocks and of register tiles
are chosen by their cost. Heads, queries and keys may be of any number: the last block is then as
long as what is left.
"""

from __future__ import annotations

from tvm.target import Target

from ....recognize.attention import attention_of
from ....recognize.independent_axes import has_symbolic_sizes
from ....recognize.stages import Program
from ....targets import vector_bits
from ....tir.build import with_fields
from ...scheduled import Scheduled, Way
from ..contraction import machine_of
from ..costs import on_threads, sharing, threads_for
from .few_queries import FewQueries, fits
from .kernel import Kernel
from .tiling import known_length

#: Elements of the shortest vector that the kernel is written in.
LEAST_LANES = 4
#: Multiply-adds per second of one core: a third of AVX2's peak at 3 GHz for short products.
FMA_S = 1 / 3e10


def schedule(program: Program, target: Target, threads: int = 1) -> Scheduled | None:
    """Schedule attention.

    - `target`: target of kind "llvm".
    - `threads`: number of threads that the loop over heads and blocks of queries is made for.
    - Returns: None if the function is not attention in float32, or the result has fewer than four
      columns. Operands and the result may be of 16 bits.
    """
    found = attention_of(program, narrow_result=True)
    lanes = vector_bits(target) // 32
    if found is None:
        return None
    # Short heads are computed in vectors that are half as wide as the processor's, or less.
    while lanes > max(LEAST_LANES, found.column.extent):
        lanes //= 2
    if found.column.extent < lanes:
        return None
    steps = found.depth.extent + found.column.extent
    for axis in (*found.batch, found.query, found.key):
        steps *= known_length(axis)
    used = threads_for(steps * FMA_S, threads)
    kernel: FewQueries | Kernel
    if fits(found):
        kernel, text = FewQueries(found, used), "one query at a time, keys and columns as lanes"
    else:
        kernel = Kernel(found, lanes, machine_of(target, threads).registers, used)
        tiling = kernel.tiling
        keys = f"blocks of {tiling.keys} keys" if tiling.rolling else "all keys"
        text = f"blocks of {kernel.blocks[0].queries} queries as lanes x {keys}"
    func = with_fields(program.func, body=kernel.body())
    # No time is predicted where it depends on the sizes.
    seconds = 0.0 if has_symbolic_sizes(program.func) else on_threads(steps * FMA_S, threads)
    way = Way(text + sharing(steps * FMA_S, threads), seconds)
    return Scheduled(func, "attention", "tail", seconds, ways=(way,))
