"""Texts that are kernels, and texts that are refused, with the line and the reason."""

from __future__ import annotations

import random

import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.errors import Refused
from fuse_epilogue.neuron.language.builtins import power
from neuron_kernels import FIRST, MATMUL, copied, depthwise, kernel

GOOD = copied("nisa.tensor_scalar(t, t, nl.multiply, 2.0)")
#: The first line of the middle of `copied`.
MIDDLE = FIRST + 3

# A statement, a part of the reason. The line to blame is the first one, or says `here`.
REFUSED = [
    # Names of older editions, and what to use.
    ("i = nl.arange(128)", "use slices"),
    ("i = nl.mgrid[0:128, 0:64]", "use slices"),
    ("r = nl.ndarray((nl.par_dim(128), 64), nl.float32, buffer=nl.sbuf)", "first dimension"),
    ("nisa.tensor_copy(t, t, mask=(1 < 2))", "no mask="),
    ("r = nisa.tensor_copy(t, t)", "return nothing"),
    # Names that there are not.
    ("r = nl.ndarray((128, 64), nl.float64, buffer=nl.sbuf)", "nl.float64 is not supported here"),
    ("nisa.rng(t)", "nisa.rng is not supported here: random numbers"),
    ("nisa.tensor_reducer(t)", "is nisa.tensor_reduce meant?"),
    ("r = nl.tile_size.other", "nl.tile_size has pmax"),
    ("r = nl.__dict__", "not supported here"),
    ("r = z + 1", "'z' is not defined"),
    ("open('/etc/passwd')", "'open' is not defined"),
    ("r = __import__('os')", "'__import__' is not defined"),
    ("nisa.tensor_tensor(t, t, t, np.add)", "'np' is not defined"),
    # Arguments of instructions.
    ("nisa.tensor_copy(t)", "needs src"),
    ("nisa.tensor_copy(t, t, t)", "takes dst, src"),
    ("nisa.tensor_copy(t, src=t, out=t)", "takes dst, src here, not out"),
    ("nisa.tensor_copy(t, t, dst=t)", "dst is given twice"),
    # Python that is not available.
    ("r = (i for i in range(4))", "generators are not supported here"),
    ("with x:\n    pass", "`with nl.no_reorder():` only"),
    ("global t", "`global` is not supported here"),
    ("r = {**x}", "`**` in a dictionary is not supported here"),
    ("r = 1j", "1j is not supported here"),
    ("1 + 1", "without effect"),
    ("nl = 1", "'nl' is taken"),
    ("for nisa in range(4):\n    pass", "'nisa' is taken"),
]

# Found when the kernel is walked.
REFUSED_ON_THE_WALK = [
    # What NKI does not allow.
    ("r = nl.ndarray((128, 64), nl.float32, buffer='sbuf')", "not 'sbuf'"),
    ("r = nl.ndarray((128, 64), nl.float32, buffer=1)", "not '1'"),
    ("r = nl.ndarray((128, 64), 'float32', buffer=nl.sbuf)", "not 'float32'"),
    ("r = nl.ndarray((128, 64), nl.add, buffer=nl.sbuf)", "not 'nl.add'"),
    ("nisa.tensor_tensor(t, t, t, 0)", "op must be one of nl.add"),
    ("nisa.tensor_tensor(t, t, t, 'add')", "op must be one of nl.add"),
    ("nisa.tensor_reduce(t[:, 0:1], nl.subtract, t, axis=1)", "op must be one of nl.add"),
    ("nisa.activation(t, nl.add, t)", "op must be one of nl.copy"),
    ("nisa.activation(t, nl.exp, t, reduce_cmd=1.5)", "reduce_cmd must be one of nisa.reduce_cmd"),
    ("nisa.tensor_tensor(t, t, t, nl.add, engine=nisa.scalar_engine)", "vector or gpsimd engine"),
    ("nisa.activation(t, nl.exp, t, engine=nisa.vector_engine)", "runs on the scalar engine"),
    ("nisa.tensor_copy(t, t, engine=2)", "not on 2"),
    ("nisa.tensor_copy(t, nisa.tensor_copy(t, t))", "src is a tile"),
    ("nisa.tensor_copy(t, *(t, t))", "takes dst, src"),
    ("nisa.tensor_copy(t, **{'source': t})", "takes dst, src here, not source"),
    # Values.
    ("r = nl(1)", "nl cannot be called"),
    ("r = print.__self__", "no '.__self__'"),
    ("r = t.__class__", "no '.__class__'"),
    ("r = 'a'.format", "no '.format'"),
    ("r = [].__add__", "no '.__add__'"),
    ("r = 2 ** 100", "64 bits"),
    ("r = (-8) ** 0.5", "a root of a negative number"),
    ("r = 1 << 64", "a shift must be by 0 to 63"),
    ("r = 'a' * 100000", "at most 65536"),
    ("r = list(range(100000))", "at most 65536"),
    ("r = [0] * 40000 + [0] * 40000", "at most 65536"),
    ("while True:\n    pass", "statements and iterations"),
    ("for i, j in range(4):\n    pass", "2 values are needed"),
    ("for i in t:\n    pass", "a loop over a tile is not supported here"),
    ("for i in 4:\n    pass", "loops are over ranges"),
    ("class C:\n    pass\nr = len(C())  # here", "C object has no '.__len__'"),
    ("class C:\n    pass\nr = C()[0]  # here", "C object has no '.__getitem__'"),
    ("class C:\n    pass\nr = C()(0)  # here", "cannot be called"),
    ("r = nisa.register_alloc(1) // 2", "scalars are added, subtracted and multiplied"),
    ("r = nisa.scalar_load(t[0:1, 0:1])", "one integer"),
    ("raise ValueError('no')", "the kernel raises ValueError('no')"),
    ("t[0:128, 0:64] = 0", "an instruction writes a tile"),
    ("t[0] += 1", "nisa.tensor_tensor"),
    ("nisa.memset(t, nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf))", "value is not a tile"),
    ("r = nl.zeros((4,), nl.float32, buffer=nl.hbm)", "fill HBM"),
    ("r = nl.ds(1)", "takes start, size"),
    ("r = t.ap(5)", "pairs (stride, count)"),
    ("r = t.ap(((64, 128), (1,)))", "pairs (stride, count)"),
    ("r = {[1]: 2}", "cannot be a key"),
    ("r = {1: 2}[3]", "key 3 is not in the dictionary"),
    ("r = 1 is 1", "`is` is for None"),
    ("r = nl.load(t)", "nl.load takes a tensor in HBM"),
    ("nl.store(t, t)", "nl.store writes a tensor in HBM"),
    ("import os\nr = os.system  # here", "os.system is not supported here"),
    ("import subprocess\nr = subprocess.run  # here", "import subprocess is not supported here"),
    ("def f(a):\n    return f(a)  # here\nr = f(1)", "more than 40 deep"),
    ("def f(a, b=1):\n    return a\nr = f()  # here", "f needs a"),
    ("def f(a):\n    return a\nr = f(1, 2)  # here", "f takes 1 arguments, not 2"),
    ("def f(a):\n    return a\nr = f(a=1, b=2)  # here", "f has no parameter b"),
    ("def f(a):\n    return a\nr = f(1, a=2)  # here", "a is given twice"),
    ("@print\ndef f(a):  # here\n    return a", "the decorator @print is not supported here"),
    ("class C(print):\n    pass", "the base class print is not supported here"),
    ("class C:\n    a = 1\nr = C().b  # here", "C object has no '.b'"),
    ("r = t + t", "nisa.tensor_tensor"),
    ("if nl.ds(0, 1):\n    pass", "known before the kernel"),
    ("if t < 1:\n    pass", "op=nl.equal"),
    ("r = t[0:128:2, :]", "without a step here"),
    ("r = t[t]", "integers, slices"),
    ("r = t[0:128, 64:0]", "is empty"),
    ("r = t[0:128, 0:64, 0:1]", "3 indices"),
    ("r = t[0:128, -65]", "index -65 in dimension 1"),
    ("r = t[:, -65:]", "index -65:64 in dimension 1"),
    ("r = t[:, 3:-61]", "index 3:-61 in dimension 1 of 't' is empty"),
    ("r = x.shape[2]", "index 2 in a tuple"),
    ("r = 1 // 0", "division by zero"),
    ("import numpy as np\nr = np.finfo(nl.int32)  # here", "numpy.finfo(int32) is not supported"),
    ("import numpy as np\nr = np.iinfo(nl.int32).eps  # here", "numpy.iinfo has min, max here"),
    ("r = 9223372036854775807 + 1", "64 bits"),
    ("for i in range(0, 4, 0):\n    pass", "step of range"),
    ("for i in range(t):\n    pass", "an integer is needed"),
    ("if 0 > 1:\n    a = 1\nr = a  # here", "'a' has no value yet"),
    ("a, b = (1, 2, 3)", "2 values"),
    ("a, *b, c = (1,)", "3 values are needed"),
    ("i = [i for i in range(3)] and i  # here", "'i' has no value yet"),
    ("import functools\nr = functools.cache  # here", "functools.cache is not supported here"),
    ("import functools\nr = functools.reduce(max, [])  # here", "without a start"),
    ("import itertools\nr = itertools.product(range(999), range(999))  # here", "at most 65536"),
    ("r = nl.ndarray((128, 0), nl.float32, buffer=nl.sbuf)", "positive integers"),
    ("r = nl.ndarray((128,), nl.float32, buffer=nl.sbuf)", "(partitions, free, ...)"),
    ("z = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)", "'z' is in nl.shared_hbm"),
    ("nisa.memset(5, 0)", "dst is a tile"),
    ("nisa.memset(t, t)", "value is not a tile"),
    ("nisa.memset(t, (1, 2))", "value is a number"),
    ("nisa.memset(t, True)", "value is a number"),
    ("nisa.tensor_copy(t, 1)", "src is a tile"),
    ("nisa.tensor_scalar(t, t, nl.add, 1, reverse0=1)", "reverse0 is True or False"),
    ("nisa.tensor_scalar(t, t, nl.add, 1, op1=nl.add)", "given together"),
    ("nisa.tensor_reduce(t[:, 0:1], nl.add, t, axis=True)", "axis is an axis"),
    ("r = t[:, 0:32].ap(((64, 128), (1, 8)))", "whole tensor"),
    ("r = t.ap(((32, 128), (1, 8)))", "64 elements distant"),
    ("r = t.ap(((64, 128), (-1, 8)), offset=20)", "stride -1"),
    ("r = t.ap(((64, 129), (1, 8)))", "which has 8192"),
    ("r = x.ap(((64, 129), (1, 8)))", "which has 8192"),
]


def blamed(statement: str) -> int:
    lines = statement.split("\n")
    return MIDDLE + next((at for at, line in enumerate(lines) if line.endswith("# here")), 0)


@pytest.mark.parametrize(("statement", "reason"), REFUSED)
def test_refused_when_read(statement: str, reason: str) -> None:
    with pytest.raises(neuron.KernelError) as error:
        neuron.load(copied(statement))
    assert reason in error.value.reason
    line = blamed(statement)
    assert error.value.line == line
    assert str(error.value) == f"line {line}: {error.value.reason}"


@pytest.mark.parametrize(("statement", "reason"), REFUSED_ON_THE_WALK)
def test_refused_on_the_walk(statement: str, reason: str) -> None:
    read = neuron.load(copied(statement))
    # What is returned is looked at where it is returned.
    last = len(copied(statement).splitlines())
    line = last if "'z' is in" in reason else blamed(statement)
    for walk in (read.trace, read):
        with pytest.raises(neuron.KernelError) as error:
            walk(np.ones((128, 64), "float32"))
        assert reason in error.value.reason
        assert error.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "no function"),
        ("def f(:\n", 1, "not Python"),
        (GOOD + GOOD[GOOD.index("@nki") :].replace("kernel", "other"), 15, "kernel, other"),
        (GOOD.replace("import nki\n", ""), 6, "`import nki` is missing"),
        (GOOD.replace("import nki.isa as nisa", ""), 10, "'nisa' is not defined"),
        (GOOD.replace("import nki\n", "from neuronxcc import nki\n"), 7, "old dialect"),
        (GOOD.replace("@nki.jit", "@print"), 1, "no function with the decorator @nki.jit"),
        (GOOD.replace("(x)", "(x, *, flag)"), 7, "keyword-only parameters of a kernel are not"),
        (GOOD.replace("(x)", "(*x)"), 7, "plain parameters here"),
        (GOOD.replace("    return y\n", ""), 12, "end it with `return`"),
        (GOOD.replace("return y", "return"), 13, "end it with `return`"),
        (GOOD.replace("return y", "return (y, 1)"), 13, "whole tensors of nl.shared_hbm"),
        (GOOD.replace("return y", "return y[0:64]"), 13, "whole tensors of nl.shared_hbm"),
        (GOOD.replace("return y", "return t"), 13, "whole tensors of nl.shared_hbm"),
        ("x = " + "-" * 100_000 + "1", 1, ""),
        ("x = " + "(" * 150 + "1" + ")" * 150, 1, ""),
        ("\0", 1, "not Python"),
        (copied("r = 1" + " + 1" * 300), MIDDLE, "nested more than 100 deep"),
    ],
)
def test_refused_texts(text: str, line: int, reason: str) -> None:
    with pytest.raises(neuron.KernelError) as error:
        neuron.load(text).trace(((128, 64), "float32"))
    assert (error.value.line, reason in error.value.reason) == (line, True), error.value


def test_integers_tuples_and_branches() -> None:
    text = kernel(
        '''\
        """Doc."""
        rows, columns = x.shape
        assert rows == nl.tile_size.pmax and not columns != 6, "a message"
        y = nl.ndarray((rows, columns), x.dtype, buffer=nl.shared_hbm)
        tiles = (
            nl.ndarray((128, 2), x.dtype, buffer=nl.sbuf),
            nl.ndarray((128, 2), x.dtype, buffer=nl.sbuf),
        )
        total = 0
        for i in range(0, columns, 2):
            t = tiles[i // 2 % 2]
            nisa.dma_copy(dst=t, src=x[:, nl.ds(i, 2)])
            if i == 0 or total > 100:
                nisa.tensor_scalar(t, t, op0=nl.add, operand0=-1 if i > 0 else 10)
            elif i < min(3, columns):
                nisa.tensor_scalar(t, t, nl.add, 20.0)
            else:
                pass
            nisa.dma_copy(y[:, i : i + 2], t)
            total += 2
        return y
        '''
    )
    x = np.arange(768, dtype="float32").reshape(128, 6)
    np.testing.assert_array_equal(neuron.load(text)(x), x + np.array([10, 10, 20, 20, 0, 0], "f4"))
    names = [info.name for info in neuron.load(text).trace(x).buffers]
    assert names == ["x", "y", "tiles[0]", "tiles[1]"]


def test_inputs_given_once_or_at_the_call() -> None:
    spec = ((128, 64), "float32")
    assert len(neuron.load(GOOD, {"x": spec}).trace().steps) == 3
    with pytest.raises(ValueError, match="takes x: 1 inputs, not 0"):
        neuron.load(GOOD).check("trn1")
    with pytest.raises(ValueError, match="inputs names z"):
        neuron.load(GOOD, {"z": spec})
    with pytest.raises(ValueError, match="inputs names nothing; the kernel takes x"):
        neuron.load(GOOD, {})
    with pytest.raises(ValueError, match="the kernel is for"):
        neuron.load(GOOD, {"x": spec})(np.ones((64, 64), "float32"))
    with pytest.raises(TypeError, match="x: float64 is not a type"):
        neuron.load(GOOD)(np.ones((128, 64)))
    with pytest.raises(TypeError, match="numpy arrays, not list"):
        neuron.load(GOOD)([1.0])


def test_a_path_may_be_text(tmp_path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(GOOD)
    assert neuron.load(str(path)).source == GOOD
    with pytest.raises(FileNotFoundError, match="missing.py"):
        neuron.load(str(tmp_path / "missing.py"))


def test_no_text_does_anything_but_raise_a_kernel_error() -> None:
    """Texts with a piece dropped, doubled or exchanged are read or refused, nothing else."""
    rng = random.Random(7)
    column, row = ((128,), "float32"), ((128, 64), "float32")
    sources = {
        GOOD: [row],
        MATMUL: [((128, 256), "bfloat16"), ((256, 512), "bfloat16"), column],
        depthwise(1, 128, 16): [((1, 128, 16), "float32"), ((128, 3), "float32"), column],
    }
    pieces = [line for text in sources for line in text.split("\n")[FIRST - 1 :]]
    words = ["x", "t", "0", "1.5", "nl.add", "[", ")", ":", ",", "None", "'a'", "nl", "*", "for"]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(600):
        text, specs = rng.choice(list(sources.items()))
        lines = text.split("\n")
        at = rng.randrange(FIRST - 1, len(lines))
        kind = rng.randrange(4)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(pieces))
        else:
            tokens = lines[at].split(" ")
            tokens[rng.randrange(len(tokens))] = rng.choice(words)
            lines[at] = " ".join(tokens)
        try:
            neuron.load("\n".join(lines)).trace(*specs)
        except neuron.KernelError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 50, outcomes


@pytest.mark.parametrize(("base", "exponent"), [(0, 65), (1, 200), (-1, 99), (2, 62), (2, 0.5)])
def test_powers_that_fit(base: int, exponent: float) -> None:
    assert power(base, exponent) == base**exponent


@pytest.mark.parametrize(("base", "exponent"), [(2, 65), (-2, 65), (3, 10**9), (0, -1), (-2, 0.5)])
def test_powers_that_do_not(base: int, exponent: float) -> None:
    with pytest.raises(Refused):
        power(base, exponent)


def test_stars_in_lists_and_tuples() -> None:
    text = copied(
        "for v in [*(1.0, 2.0), 3.0]:\n    nisa.tensor_scalar(t, t, nl.add, v)\n"
        "for v in (4.0, *[5.0], *()):\n    nisa.tensor_scalar(t, t, nl.add, v)\n"
    )
    x = np.ones((128, 64), "float32")
    np.testing.assert_array_equal(neuron.load(text)(x), x + 15)
