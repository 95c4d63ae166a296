"""What users may hand over by mistake: other byte orders, absurd sizes, values no type has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from calls import calls
from fuse_epilogue import neuron
from fuse_epilogue.neuron import limits
from fuse_epilogue.neuron.language import parse
from fuse_epilogue.neuron.memory import Memory
from neuron_kernels import FIRST, copied, kernel

SPEC = ((128, 64), "float32")
#: The line of the first statement in the middle of a kernel that `copied` makes.
MIDDLE = FIRST + 3
INT8 = "r = nl.ndarray((128, 64), nl.int8, buffer=nl.sbuf)\n"
HUGE = "0x" + "f" * 8000


def loaded(middle: str) -> neuron.Kernel:
    # `copied` stores an `r` where there is one: these here are other tensors.
    return neuron.load(copied(middle).replace("dma_copy(y, r)", "dma_copy(y, t)"), {"x": SPEC})


def refusal(call: Any) -> neuron.KernelError:
    with pytest.raises(neuron.KernelError) as caught:
        call()
    return caught.value


# ---- Arrays ------------------------------------------------------------------------------------


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint16", "int8"])
@pytest.mark.parametrize("layout", ["swapped", "fortran", "reversed", "strided", "read-only"])
def test_any_layout_and_byte_order(dtype: str, layout: str) -> None:
    values = np.random.default_rng(3).integers(0, 256, (6, 10 * np.dtype(dtype).itemsize), "uint8")
    x = values.view(dtype)  # any bits, NaN with payloads among them
    given = {
        "swapped": lambda: x.astype(x.dtype.newbyteorder("S")),
        "fortran": lambda: np.asfortranarray(x),
        "reversed": lambda: x[::-1, ::-1].copy()[::-1, ::-1],
        "strided": lambda: np.repeat(x, 3, axis=1).astype(x.dtype.newbyteorder("S"))[:, ::3],
        "read-only": lambda: x.copy(),
    }[layout]()
    given.flags.writeable = layout != "read-only"
    text = kernel(
        f"""\
        y = nl.ndarray((6, 10), nl.{dtype}, buffer=nl.shared_hbm)
        nisa.dma_copy(y, x)
        return y
        """
    )
    y = neuron.load(text)(given)
    assert y.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(bits(y), bits(x))


def test_bfloat16_in_any_layout() -> None:
    x = np.arange(60, dtype="float32").astype(ml_dtypes.bfloat16).reshape(10, 6).T
    text = "y = nl.ndarray((6, 10), x.dtype, buffer=nl.shared_hbm)\nnisa.dma_copy(y, x)\nreturn y\n"
    np.testing.assert_array_equal(neuron.load(kernel(text))(x), x)


SCALAR = kernel(
    """\
    y = nl.ndarray((1,), nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(t, x)
    nisa.tensor_scalar(t, t, nl.add, 1.0)
    nisa.dma_copy(y, t)
    return y
    """
)


def test_array_without_dimensions() -> None:
    x = np.array(4.0, "float32")
    np.testing.assert_array_equal(neuron.load(SCALAR)(x), [5.0])
    for shape in ((), (1,)):
        known = neuron.load(SCALAR, {"x": (shape, "float32")})
        assert known.inputs == {"x": ((1,), "float32")}
        np.testing.assert_array_equal(known(x), [5.0])
        known.check("trn1", x)
        with pytest.raises(ValueError, match="the kernel is for"):
            known(np.ones((2,), "float32"))


def test_arrays_that_are_no_tensors() -> None:
    read = neuron.load(SCALAR)
    with pytest.raises(ValueError, match=r"\(0, 3\) is not the shape of a tensor"):
        read(np.ones((0, 3), "float32"))
    with pytest.raises(ValueError, match="33 dimensions, at most 32"):
        read.trace(((1,) * 33, "float32"))


# ---- Integers and values -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "middle",
    [
        "nisa.memset(t, " + "9" * 400 + ")",
        "nisa.tensor_scalar(t, t, nl.add, " + "9" * 400 + ")",
        "nisa.activation(t, nl.copy, t, scale=-" + "9" * 400 + ")",
        f"nisa.memset(t[:, {HUGE}], 1.0)",
        f"r = nl.ndarray((128, {HUGE}), nl.float32, buffer=nl.sbuf)",
        f"r = nl.ndarray((128, 64), nl.float32, buffer={HUGE})",
        f"assert {HUGE} < 0",
        f"r = {2**63}",
    ],
)
def test_integers_that_leave_64_bits(middle: str) -> None:
    error = refusal(lambda: loaded(middle))
    assert (error.line, "does not fit in 64 bits" in error.reason) == (MIDDLE, True), error


def test_largest_integer_and_large_floats() -> None:
    loaded(f"r = {2**63 - 1}\nassert r > 0\nnisa.memset(t, 1e30)\nnisa.memset(t, -1e999)").check()


def test_ranges_longer_than_an_index() -> None:
    error = refusal(loaded(f"for i in range(-{2**63 - 1}, {2**63 - 1}):\n    pass").trace)
    assert (error.line, "statements" in error.reason) == (MIDDLE, True)
    loaded(f"for i in range({2**63 - 1}, 0):\n    pass").check()


FITS_NOT = [
    ("nisa.memset(r, 300)", "300 is not a value of int8"),
    ("nisa.memset(r, -129)", "-129 is not a value of int8"),
    ("nisa.memset(r, 1.5)", "1.5 is not a value of int8"),
    ("nisa.memset(r, 1e999)", "inf is not a value of int8"),
    ("nisa.memset(r, -1e999)", "-inf is not a value of int8"),
    ("nisa.memset(r, 1e999 - 1e999)", "nan is not a value of int8"),
    ("nisa.tensor_scalar(r, r, nl.bitwise_and, 1000)", "1000 is not a value of int8"),
    ("nisa.tensor_scalar(r, r, nl.bitwise_or, 1.0)", "takes integers, not 1.0 with int8"),
    ("nisa.tensor_scalar(t, t, nl.bitwise_or, 1)", "takes integers, not 1 with float32"),
    (
        "nisa.tensor_scalar(r, r, nl.add, 1, op1=nl.bitwise_and, operand1=2)",
        "nl.add gives floats",
    ),
    (
        "nisa.tensor_scalar(r, r, nl.bitwise_and, 1, op1=nl.bitwise_xor, operand1=-200)",
        "-200 is not a value of int8",
    ),
    ("nisa.scalar_tensor_tensor(r, r, nl.bitwise_xor, 128, nl.bitwise_or, r)", "128 is not"),
    ("nisa.scalar_tensor_tensor(r, r, nl.add, 1, nl.bitwise_or, r)", "nl.add gives floats"),
]


@pytest.mark.parametrize(("instruction", "reason"), FITS_NOT)
def test_values_that_the_type_does_not_have(instruction: str, reason: str) -> None:
    """Execution, check and prediction refuse alike."""
    read = loaded(f"{INT8}nisa.memset(r, 1)\n{instruction}")
    error = refusal(lambda: read(np.ones((128, 64), "float32")))
    assert (error.line, error.rule) == (MIDDLE + 2, "operand-types")
    assert reason in error.reason
    with pytest.raises(neuron.CheckError) as checked:
        read.check()
    (violation,) = checked.value.violations
    assert (violation.line, violation.rule, violation.reason) == (
        error.line,
        error.rule,
        error.reason,
    )
    assert str(refusal(read.predict)) == str(error)


def test_values_that_the_type_has() -> None:
    read = loaded(
        INT8 + "nisa.memset(r, -128)\nnisa.memset(r, 127.0)\n"
        "nisa.tensor_scalar(r, r, nl.bitwise_and, 90, op1=nl.bitwise_xor, operand1=-1)\n"
        "nisa.scalar_tensor_tensor(r, r, nl.bitwise_or, 1, nl.bitwise_and, r)\n"
        "nisa.tensor_scalar(r, r, nl.bitwise_and, 127, op1=nl.add, operand1=0.5)\n"
        "nisa.tensor_copy(t, r)"
    )
    read.check()
    # 127 & 90 ^ -1 = -91, -91 | 1 = -91, & -91, & 127 = 37, and 37.5 is rounded to even.
    np.testing.assert_array_equal(read(np.ones((128, 64), "float32")), np.full((128, 64), 38.0))


# ---- Sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("middle", "line", "reason"),
    [
        ("b = (1,)\nfor i in range(40):\n    b = b + b", 2, "at most 65536 items"),
        ("b = (1,)\nfor i in range(40):\n    b += b", 2, "at most 65536 items"),
        ("b = 1\nfor i in range(40):\n    b = (b, b)", 2, "at most 65536 items"),
        ("b = 1\nfor i in range(40):\n    b = (b,)", 2, "at most 16 deep"),
        (
            "b = 1\nc = 1\nfor i in range(3000):\n    b = (b, 1)\n    c = (c, 1)\nassert b == c",
            3,
            "at most 16 deep",
        ),
        ("r = nl.ndarray((128, " + "1, " * 64 + "), nl.int8, buffer=nl.sbuf)", 0, "65 dimensions"),
        ("r = nl.ndarray((" + "1, " * 33 + "), nl.int8, buffer=nl.hbm)", 0, "33 dimensions"),
        ("nisa.memset(t.ap(((64, 128), " + "(0, 1), " * 40 + ")), 0)", 0, "at most 32 pairs"),
        ("nisa.memset(t.ap(((64, 128), (0, 9000000000000))), 0)", 0, "2147483648 elements"),
        (f"nisa.memset(t.ap((({2**62}, 1), (1, 64))), 0)", 0, "ap: stride"),
    ],
)
def test_refused_in_execution_and_trace(middle: str, line: int, reason: str) -> None:
    read = loaded(middle)
    for call in (read.trace, lambda: read(np.ones((128, 64), "float32"))):
        error = refusal(call)
        assert (error.line, reason in error.reason) == (MIDDLE + line, True), error


def test_dimensions_up_to_the_limit() -> None:
    loaded("r = nl.ndarray((" + "1, " * limits.MOST_DIMS + "), nl.int8, buffer=nl.hbm)").trace()


def test_tuples_up_to_the_limit() -> None:
    middle = "b = (1,)\nfor i in range(12):\n    b = b + b\nassert b[4095] == 1\n"
    middle += "c = 1\nfor i in range(16):\n    c = (c,)\nassert c == c"
    loaded(middle).check()


def test_step_that_is_not_taken() -> None:
    read = loaded(f"nisa.memset(t[:, 5:6:{2**62}], 7)\nnisa.memset(t[:, {2**40}:], 0)")
    assert refusal(lambda: read(np.ones((128, 64), "float32"))).line == MIDDLE + 1
    y = loaded(f"nisa.memset(t[:, 5:6:{2**62}], 7)")(np.ones((128, 64), "float32"))
    assert (y[:, 5] == 7).all() and y.sum() == 128 * (63 + 7)


@pytest.mark.parametrize(
    "loops",
    [
        "for i in range(1000000000):\n    for j in range(0):\n        pass",
        "for i in range(1000000000000):\n    pass",
        "for i in range(2500001):\n    pass",
    ],
)
def test_loops_without_work_are_refused_at_once(loops: str) -> None:
    kernel = loaded(loops)
    # Without counting the iterations ahead, it would be millions before it is refused.
    assert calls(lambda: refusal(kernel.trace)) < 1_000
    error = refusal(kernel.trace)
    assert (error.line, "more than 5000000 statements" in error.reason) == (MIDDLE, True)


def test_iterations_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuse_epilogue.neuron.limits.MOST_STATEMENTS", 100)
    # 100 in all: the loop, 30 iterations and 60 statements in them, one after it, and the others.
    loop = "for i in range({}):\n    if i < 0:\n        pass\n    b = 1\n"
    others = 5  # of `copied`
    loaded(loop.format(30) + "b = 2\n" * (100 - 91 - others)).trace()
    refusal(loaded(loop.format(30) + "b = 2\n" * (101 - 91 - others)).trace)
    # Known before the first iteration.
    assert refusal(loaded(loop.format(34)).trace).line == MIDDLE


def test_tensors_beyond_the_memory_of_the_machine() -> None:
    """Whether they are used or not, and without a mark for each of their elements."""
    for text, rule in (
        ("r = nl.ndarray((128, 1099511627776), nl.float32, buffer=nl.sbuf)", "sbuf-capacity"),
        ("r = nl.ndarray((128, 49153), nl.float32, buffer=nl.sbuf)", "sbuf-capacity"),
        ("r = nl.ndarray((128, 4097), nl.float32, buffer=nl.psum)", "psum-capacity"),
        ("r = nl.ndarray((1099511627776, 1099511627776), nl.int8, buffer=nl.hbm)", "hbm-capacity"),
        (f"r = nl.ndarray(({2**62}, 1), nl.int8, buffer=nl.sbuf)", "partitions"),
    ):
        fill = "memset(r[0:1, 0:1], 0)" if "hbm" not in text else "dma_copy(r[0, :], r[1, :])"
        use = f"\nnisa.{fill}"
        for middle in (text, text + use):
            with pytest.raises(neuron.CheckError) as caught:
                loaded(middle).check("trn1")
            assert [violation.rule for violation in caught.value.violations] == [rule]
    loaded("r = nl.ndarray((128, 49152), nl.float32, buffer=nl.sbuf)").check("trn1")


def test_tensors_in_hbm_together() -> None:
    pieces = "a = nl.ndarray((20, 1024, 1024, 1024), nl.int8, buffer=nl.hbm)\n"
    loaded(pieces + pieces).check("trn2")
    with pytest.raises(neuron.CheckError, match="with the tensors before it") as caught:
        loaded(pieces + pieces).check("trn1")
    assert [violation.line for violation in caught.value.violations] == [MIDDLE + 1]


@pytest.mark.parametrize(
    "shape", ["(1000000, 1000000)", "(9000000000000000000, 9000000000000000000)"]
)
def test_tensors_too_large_to_execute(shape: str) -> None:
    read = loaded(f"r = nl.ndarray({shape}, nl.float32, buffer=nl.hbm)")
    error = refusal(lambda: read(np.ones((128, 64), "float32")))
    assert error.line == MIDDLE
    assert error.reason.startswith("'r' takes ") and "at most 17179869184" in error.reason
    assert len(read.trace().steps) == 2


def test_only_tensors_that_live_count(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((128, 64), "float32")
    # t, and h before and after it is bound again, of 32 KiB each; y is made when it is stored.
    h = "h = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)\n    nisa.tensor_copy(h, t)"
    monkeypatch.setattr(limits, "MOST_BYTES", 3 * 2**15)
    read = loaded(f"for i in range(9):\n    {h}")
    np.testing.assert_array_equal(read(x), x)
    monkeypatch.setattr(limits, "MOST_BYTES", 3 * 2**15 - 1)
    error = refusal(lambda: read(x))
    assert (error.line, "next to 65536" in error.reason) == (MIDDLE + 1, True)


def test_tensors_that_are_never_used_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    take = Memory.take

    def noted(self: Memory, info: Any, dtype: Any) -> np.ndarray:
        taken.append(info.name)
        return take(self, info, dtype)

    monkeypatch.setattr(Memory, "take", noted)
    h = "h = nl.ndarray((128, 16384), nl.float32, buffer=nl.sbuf)"
    loaded(f"for i in range(1000):\n    {h}")(np.ones((128, 64), "float32"))
    assert sorted(taken) == ["t", "y"]


def test_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> np.ndarray:
        raise MemoryError("unable to allocate 1 GiB")

    monkeypatch.setattr(Memory, "take", full)
    error = refusal(lambda: loaded("")(np.ones((128, 64), "float32")))
    assert (error.line, "not enough memory" in error.reason) == (FIRST + 2, True)


# ---- Texts and pictures ------------------------------------------------------------------------


@pytest.mark.parametrize("signature", ["(x: print(1))", "(x) -> print(2)", "(x: int) -> int"])
def test_annotations_are_not_evaluated(signature: str) -> None:
    text = copied("r: nowhere.at_all = t[:, 0:1]").replace("(x)", signature, 1)
    assert parse(text.replace("dma_copy(y, r)", "dma_copy(y, t)")).parameters == ("x",)


@pytest.mark.parametrize("name", ["o.xyz", "o.png", "o.pdf", "o", "svg"])
def test_pictures_are_svg(tmp_path: Path, name: str) -> None:
    predicted = loaded("").predict()
    with pytest.raises(ValueError, match=r"ends in \.svg"):
        predicted.plot(tmp_path / name)
    assert not list(tmp_path.iterdir())
    predicted.plot(str(tmp_path / "o.SVG"))
    assert (tmp_path / "o.SVG").read_text().startswith("<svg")


def test_resources_as_a_table() -> None:
    assert str(loaded("nisa.memset(t, 0.0)").check("trn2")).splitlines() == [
        "needed on trn2",
        "  SBUF  256 bytes of each partition",
        "  PSUM  0 bytes of each partition, 0 banks",
        "  HBM   32,768 bytes read, 32,768 written",
        "  instructions: 2 dma_copy, 1 memset",
        "  by engine: 2 dma, 1 vector",
    ]
