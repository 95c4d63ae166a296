"""The schedules of the kernels that are kept in ``neuron_golden``, written out by hand.

After a change of the emitter that is meant, look at what the test shows and write them again::

    PYTHONPATH=python:tests python -m neuron_golden_schedules
"""

from __future__ import annotations

import functools
import pathlib

from tvm.s_tir import Schedule

from fuse_epilogue import workloads
from fuse_epilogue.neuron.emit import emit

FOLDER = pathlib.Path(__file__).parent / "neuron_golden"
RENEW = "if it is meant, run: PYTHONPATH=python:tests python -m neuron_golden_schedules"


def conv1d(*sizes, **options):
    """Channels on partitions, all columns at once, one tap after the other."""
    func = workloads.depthwise_conv1d(*sizes, **options)
    sch = Schedule(func)
    conv = sch.get_sblock("conv")
    n, c, w, f = sch.get_loops(conv)
    c_outer, c_inner = sch.split(c, [None, 128])
    sch.reorder(n, c_outer, f, c_inner, w)
    sch.annotate(c_inner, "nki_dim", "P")
    sch.annotate(w, "nki_dim", "F")
    if options.get("bias", True):
        sch.fuse_reduction_epilogue("conv")
    blocks = sch.get_child_blocks(sch.get_sblock("root"))
    names = [sch.get(block).name_hint for block in blocks]
    if "pad" in names:
        sch.set_scope("pad", 0, "trn.sbuf")
        sch.annotate(sch.get_sblock("pad"), "nki_engine", "gpsimd")
        sch.compute_at("pad", c_outer)
    out = sch.cache_write(blocks[-1], 0, "trn.sbuf")
    sch.reverse_compute_at(out, c_outer)
    if names[-1] != "conv":
        sch.set_scope("conv", 0, "trn.sbuf")
    params = {param.name for param in func.params}
    reads = [region.source.name for region in sch.get(sch.get_sblock("conv")).reads]
    for index in range(len([name for name in reads if name in params])):
        reads = [region.source.name for region in sch.get(sch.get_sblock("conv")).reads]
        first = next(i for i, name in enumerate(reads) if name in params)
        sch.compute_at(sch.cache_read(sch.get_sblock("conv"), first, "trn.sbuf"), c_outer)
    return sch


def matmul(*sizes, **options):
    """Tiles of 128 rows and 512 columns in PSUM, which 128 of k add to at a time."""
    sch = Schedule(workloads.matmul(*sizes, transpose_a=True, **options))
    product = sch.get_sblock("matmul")
    i, j, k = sch.get_loops(product)
    (i, m), (j, n), (k, p) = (sch.split(x, [None, y]) for x, y in ((i, 128), (j, 512), (k, 128)))
    sch.reorder(i, j, k, p, m, n)
    for loop, role in ((p, "P"), (m, "lhs_F"), (n, "rhs_F")):
        sch.annotate(loop, "nki_dim", role)
    sch.fuse_reduction_epilogue(product)
    sch.set_scope(product, 0, "trn.psum")
    last = sch.get_child_blocks(sch.get_sblock("root"))[-1]
    sch.reverse_compute_at(sch.cache_write(last, 0, "trn.sbuf"), j)
    for index in range(3):
        sch.compute_at(sch.cache_read(product, index, "trn.sbuf"), j if index == 0 else k)
    return sch


def row_sum(*sizes, **options):
    """Rows on partitions, 64 columns at a time."""
    sch = Schedule(workloads.row_reduce(*sizes, **options))
    block = sch.get_sblock("reduce")
    i, j = sch.get_loops(block)
    i_outer, i_inner = sch.split(i, [None, 128])
    j_outer, j_inner = sch.split(j, [None, 64])
    sch.reorder(i_outer, j_outer, i_inner, j_inner)
    sch.annotate(i_inner, "nki_dim", "P")
    sch.annotate(j_inner, "nki_dim", "F")
    sch.reverse_compute_at(sch.cache_write(block, 0, "trn.sbuf"), i_outer)
    sch.compute_at(sch.cache_read(block, 0, "trn.sbuf"), j_outer)
    return sch


KERNELS = {
    "conv1d_halo": (conv1d, (2, 256, 64, 3), {}),
    "conv1d_bfloat16": (conv1d, (2, 256, 64, 3), {"dtype": "bfloat16", "activation": "relu"}),
    "conv1d_ragged": (conv1d, (2, 200, 64, 3), {"activation": "relu"}),
    "conv1d_causal_silu": (conv1d, (1, 128, 64, 4), {"padding": "causal", "activation": "silu"}),
    "conv1d_valid": (conv1d, (1, 128, 64, 4), {"padding": "valid", "bias": False}),
    "matmul_bias_n": (matmul, (256, 600, 256), {"activation": "relu"}),
    "matmul_bias_m": (matmul, (200, 512, 300), {"activation": "relu", "bias_axis": "m"}),
    "row_sum": (row_sum, (200, 150), {}),
}


@functools.cache
def emitted(name):
    """The function and the kernel of that name."""
    make, sizes, options = KERNELS[name]
    sch = make(*sizes, **options)
    return sch.mod["main"], emit(sch, name=name)


if __name__ == "__main__":
    for each in KERNELS:
        (FOLDER / f"{each}.py").write_text(emitted(each)[1].source)
