"""Instructions of trn3, and those of several programs and machines: see test_neuron_isa.py."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fuse_epilogue import neuron
from neuron_kernels import kernel

RNG = np.random.default_rng(11)
X = RNG.integers(-8, 9, (128, 64)).astype("float32")
SPEC = [((128, 64), "float32")]


# ---- trn3 ----------------------------------------------------------------------------------------


def mx(body: str) -> str:
    return kernel(
        "a, b = nl.load(x), nl.load(w)\n"
        "y = nl.ndarray((64, 32), nl.float32, buffer=nl.shared_hbm)\n"
        "p = nl.ndarray((64, 32), nl.float32, buffer=nl.psum)\n"
        "r = nl.ndarray((64, 32), nl.float32, buffer=nl.sbuf)\n"
        "qa = nl.ndarray((32, 64), nl.float8_e4m3fn_x4, buffer=nl.sbuf)\n"
        "qb = nl.ndarray((32, 32), nl.float8_e4m3fn_x4, buffer=nl.sbuf)\n"
        "sa = nl.ndarray((32, 64), nl.uint8, buffer=nl.sbuf)\n"
        "sb = nl.ndarray((32, 32), nl.uint8, buffer=nl.sbuf)\n"
        f"{body}\nnisa.tensor_copy(r, p)\nnisa.dma_copy(y, r)\nreturn y\n",
        "x, w",
    )


QUANTISED = "nisa.quantize_mx(qa, a, sa)\nnisa.quantize_mx(qb, b, sb)\n"


def test_products_of_numbers_that_share_a_scale() -> None:
    # Powers of two are exact with any scale.
    x, w = (
        (np.exp2(RNG.integers(-2, 3, (32, n))) * RNG.choice([-1, 1], (32, n))) for n in (256, 128)
    )
    x, w = x.astype(ml_dtypes.bfloat16), w.astype(ml_dtypes.bfloat16)
    read = neuron.load(mx(QUANTISED + "nisa.nc_matmul_mx(p, qa, qb, sa, sb)"))
    expected = np.einsum(
        "pmj,pnj->mn",
        x.astype("float32").reshape(32, 64, 4),
        w.astype("float32").reshape(32, 32, 4),
    )
    np.testing.assert_array_equal(read(x, w), expected)
    with pytest.raises(neuron.CheckError, match="nc_matmul_mx is there from trn3 on"):
        read.check("trn2", x, w)
    twin = neuron.load(mx(QUANTISED + "nisa.nc_matmul_mx(p, qa, b, sa, sb)"))
    with pytest.raises(neuron.KernelError):
        twin(x, w)
    wrong = neuron.load(mx("nisa.quantize_mx(qa, a.view(nl.int16), sa)"))
    with pytest.raises(neuron.KernelError, match="float16 or bfloat16 become"):
        wrong(x, w)


def test_scales_are_in_the_first_partitions_of_each_quadrant() -> None:
    x, w = (np.ones((32, n), ml_dtypes.bfloat16) for n in (256, 128))
    # Only these are written and read: a copy of all scales reads what nothing has written.
    text = mx(QUANTISED + "nisa.nc_matmul_mx(p, qa, qb, sa, sb)")
    read = neuron.load(text)
    read.check("trn3", x, w)
    copied = QUANTISED + (
        "sc = nl.ndarray((32, 32), nl.uint8, buffer=nl.sbuf)\n"
        "nisa.tensor_copy(sc[0:4], sb[0:4])\nnisa.nc_matmul_mx(p, qa, qb, sa, sc)"
    )
    neuron.load(mx(copied)).check("trn3", x, w)
    np.testing.assert_array_equal(neuron.load(mx(copied))(x, w), read(x, w))
    whole = neuron.load(mx(copied.replace("[0:4]", "")))
    with pytest.raises(neuron.KernelError, match="sb\\[4, 0\\], which was not written"):
        whole(x, w)
    with pytest.raises(neuron.CheckError, match="sb\\[4, 0\\], which was not written"):
        whole.check("trn3", x, w)
    few = neuron.load(text.replace("sb = nl.ndarray((32, 32)", "sb = nl.ndarray((3, 32)"))
    with pytest.raises(neuron.KernelError, match="dst_scale has 3 partitions, at least 4 for 32"):
        few(x, w)


def test_numbers_of_four_bits() -> None:
    # 1.5 and -6 alternate: 3 and 15 in bits.
    bits = np.full((32, 64), 0xF3F3, "uint16")
    text = kernel(
        """\
        a = nl.load(x).view(nl.float4_e2m1fn_x4)
        y = nl.ndarray((64, 64), nl.float32, buffer=nl.shared_hbm)
        s = nl.ndarray((32, 64), nl.uint8, buffer=nl.sbuf)
        p = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
        r = nl.ndarray((64, 64), nl.float32, buffer=nl.sbuf)
        nisa.memset(s, 128)
        nisa.nc_matmul_mx(p, a, a, s, s)
        nisa.tensor_copy(r, p)
        nisa.dma_copy(y, r)
        return y
        """
    )
    np.testing.assert_array_equal(neuron.load(text)(bits), 32 * 2 * (1.5**2 + 6.0**2) * 4)


# ---- Several programs and machines ---------------------------------------------------------------


def exchange(body: str) -> str:
    return kernel(
        "y = nl.ndarray((2, 128, 64), nl.float32, buffer=nl.shared_hbm)\n"
        "me = nl.program_id(0)\n"
        "t = nl.load(x)\nr = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n"
        "nisa.tensor_scalar(t, t, nl.add, float(me))\n"
        f"{body}\nnisa.dma_copy(y[me], r)\nreturn y\n"
    )


def test_programs_exchange_tiles() -> None:
    body = "nisa.sendrecv(t, r, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)"
    read = neuron.load(exchange(body), {"x": SPEC[0]}, programs=2)
    np.testing.assert_array_equal(read(X), np.stack([X + 1, X]))
    assert read.check().instructions["sendrecv"] == 1
    with pytest.raises(neuron.KernelError, match="programs=2"):
        neuron.load(exchange(body.replace("1 - me", "0")))(X)
    with pytest.raises(neuron.KernelError, match="programs are 0 to 1"):
        neuron.load(exchange(body.replace("1 - me", "2")), programs=2)(X)
    with pytest.raises(neuron.KernelError, match="dst \\(128, 63\\)"):
        neuron.load(exchange(body.replace(" r,", " r[:, 0:63],")), programs=2)(X)


def test_programs_wait_for_each_other() -> None:
    body = (
        "nisa.dma_copy(y[me], t)\nnisa.core_barrier(y, (0, 1))\n"
        "nisa.dma_copy(r, y[1 - me])\nnisa.core_barrier(y, (0, 1))\n"
    )
    read = neuron.load(exchange(body), {"x": SPEC[0]}, programs=2)
    np.testing.assert_array_equal(read(X), np.stack([X + 1, X]))
    read.check()
    alone = "if me == 0:\n    nisa.core_barrier(y, (0, 1))\nnisa.tensor_copy(r, t)"
    with pytest.raises(neuron.KernelError, match="another program, which does not come"):
        neuron.load(exchange(alone), programs=2)(X)


def test_transfers_between_machines_are_checked_only() -> None:
    text = kernel(
        """\
        a = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        b = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(a, x)
        ncc.all_reduce(srcs=[a], dsts=[b], op=nl.add, replica_group=ncc.ReplicaGroup([[0, 1]]))
        return b
        """
    ).replace("import nki\n", "import nki\nimport nki.collectives as ncc\n")
    read = neuron.load(text, {"x": SPEC[0]})
    assert read.check().instructions == {"dma_copy": 1, "all_reduce": 1}
    with pytest.raises(ValueError, match="no cost is known for all_reduce"):
        read.predict()
    with pytest.raises(neuron.KernelError, match="are not executed here"):
        read(X)
    unwritten = neuron.load(text.replace("    nisa.dma_copy(a, x)\n", ""), {"x": SPEC[0]})
    with pytest.raises(neuron.CheckError, match="all_reduce reads a"):
        unwritten.check()


def test_the_number_of_a_machine_is_checked_only() -> None:
    text = kernel("me = nki.collectives.rank_id()\nreturn x\n").replace(
        "import nki\n", "import nki\nimport nki.collectives\n"
    )
    read = neuron.load(text, {"x": SPEC[0]})
    read.check()
    with pytest.raises(neuron.KernelError, match="rank_id in an execution is not supported here"):
        read(X)


def test_a_vector_is_loaded_to_one_column() -> None:
    text = kernel(
        "y = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)\n"
        "nl.store(y, nl.load(x))\nreturn y\n"
    )
    x = np.arange(128, dtype="float32")
    np.testing.assert_array_equal(neuron.load(text)(x), x[:, None])


def test_loops_whose_length_is_data() -> None:
    text = kernel(
        """\
        y = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
        t, n = nl.load(x), nl.load(count)
        steps = nisa.register_alloc()
        nisa.register_load(steps, n)
        for _ in nl.dynamic_range(steps):
            nisa.tensor_scalar(t, t, nl.add, 1.0)
        while steps:
            nisa.tensor_scalar(n, n, nl.subtract, 1)
            nisa.register_load(steps, n)
        nisa.dma_copy(y, t)
        return y
        """,
        "x, count",
    )
    read = neuron.load(text)
    for steps in (0, 5):
        np.testing.assert_array_equal(read(X, np.array([[steps]], "int32")), X + steps)
    # Walked once, because nobody knows how often.
    assert read.check("trn2", SPEC[0], ((1, 1), "int32")).instructions["tensor_scalar"] == 2
    for body, reason in (
        ("nisa.register_load(steps, t)", "one integer"),
        ("if steps:\n            pass", "a condition on a register"),
    ):
        wrong = text.replace("nisa.register_load(steps, n)", body, 1)
        with pytest.raises(neuron.KernelError, match=reason):
            neuron.load(wrong).trace(SPEC[0], ((1, 1), "int32"))
