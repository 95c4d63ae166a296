"""Texts of kernels for the tests of `fuse_epilogue.neuron`."""

from __future__ import annotations

import textwrap

HEADER = """\
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
"""

#: The line of the first statement of a kernel that `kernel` makes.
FIRST = 8


def kernel(body: str, parameters: str = "x") -> str:
    """A file with one kernel; `body` starts in line `FIRST`."""
    return f"{HEADER}def kernel({parameters}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"


def copied(middle: str, shape: str = "(128, 64)") -> str:
    """Loads x to `t` in SBUF, does `middle`, which begins in line 11, and stores `r` or t."""
    result = "r" if "r = nl.ndarray" in middle else "t"
    return kernel(
        f"y = nl.ndarray({shape}, nl.float32, buffer=nl.shared_hbm)\n"
        f"t = nl.ndarray({shape}, nl.float32, buffer=nl.sbuf)\n"
        "nisa.dma_copy(t, x)\n"
        + textwrap.dedent(middle)
        + f"\nnisa.dma_copy(y, {result})\nreturn y\n"
    )


def depthwise(n: int, c: int, w: int, dtype: str = "float32") -> str:
    """Three taps, one zero on each side, bias; c a multiple of 128. 3 instructions for a tile."""
    return kernel(
        f"""\
        y = nl.ndarray(({n}, {c}, {w}), nl.{dtype}, buffer=nl.shared_hbm)
        for j in range({c // 128}):
            taps = nl.ndarray((128, 3), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(taps, weight[nl.ds(j * 128, 128), :])
            start = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(start, bias.ap(((1, 128), (1, 1)), offset=j * 128))
            for i in range({n}):
                xt = nl.ndarray((128, {w}), nl.{dtype}, buffer=nl.sbuf)
                nisa.dma_copy(xt, x[i, j * 128 : j * 128 + 128, 0:{w}])
                yt = nl.ndarray((128, {w}), nl.{dtype}, buffer=nl.sbuf)
                nisa.activation(yt, nl.copy, xt, bias=start, scale=taps[:, 1:2])
                nisa.scalar_tensor_tensor(
                    yt[:, 1:{w}], xt[:, 0 : {w} - 1], nl.multiply, taps[:, 0:1], nl.add,
                    yt[:, 1:{w}],
                )
                nisa.scalar_tensor_tensor(
                    yt[:, 0 : {w} - 1], xt[:, 1:{w}], nl.multiply, taps[:, 2:3], nl.add,
                    yt[:, 0 : {w} - 1],
                )
                nisa.dma_copy(y[i, j * 128 : j * 128 + 128, 0:{w}], yt)
        return y
        """,
        "x, weight, bias",
    )


#: out = relu(a @ b + bias), a transposed on the tensor engine; 128 rows, 256 summed, 512 columns.
MATMUL = kernel(
    """\
    y = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    identity = nl.ndarray((128, 256), a.dtype, buffer=nl.sbuf)
    column = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(identity, a)
    nisa.dma_copy(column, bias[:])
    total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
    for k in range(2):
        turned = nl.ndarray((128, 128), a.dtype, buffer=nl.psum)
        nisa.nc_transpose(turned, identity[:, k * 128 : (k + 1) * 128])
        left = nl.ndarray((128, 128), a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(left, turned)
        right = nl.ndarray((128, 512), b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(right, b[nl.ds(k * 128, 128), :])
        nisa.nc_matmul(total, left, right, accumulate=(k > 0))
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    nisa.activation(out, nl.relu, total, bias=column)
    nisa.dma_copy(y, out)
    return y
    """,
    "a, b, bias",
)
