"""Kernels as people write them: NKI's dialect, with the Python around the instructions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuse_epilogue import neuron
from fuse_epilogue.neuron.costs import cycles
from fuse_epilogue.neuron.machine import MACHINES
from neuron_kernels import HEADER, copied, kernel

X = np.random.default_rng(5).integers(-8, 9, (128, 64)).astype("float32")


def run(middle: str) -> np.ndarray:
    result = neuron.load(copied(middle))(X)
    assert isinstance(result, np.ndarray)
    return result


# ---- Python --------------------------------------------------------------------------------------

#: A statement that changes `t`, and the factor that it is multiplied by.
FACTORS = [
    ("f = 3 if x.shape == (128, 64) else 4", 3),
    ("f: int = 2\nf **= 3", 8),
    ("f = 7 // 2 + 7 % 4 + int(9 / 3) + (1 << 3) + (6 & 3) + (4 | 1) + (5 ^ 1)", 28),
    ("a = b = 2\nf = a * b", 4),
    ("f = len([1, 2] + [3]) + sum((4, 5)) + max([6, 7]) + min(8, 9) + abs(-10)", 37),
    ("f = [it * 2 for it in range(5) if it % 2 == 1][1]", 6),
    ("f = {k: v for k, v in zip(('a', 'b'), (5, 6))}['b']", 6),
    ("i, v = 4, 2\nx_ = [i for i in range(9)] + [v for _, v in enumerate((7, 8))]\nf = i + v", 6),
    ("f = 2 if (n := len((1, 2, 3))) == 3 else 1\nf += n", 5),
    ("a, *b, c = range(5)\n(*d,), e = (1, 2), 3\nf = a + sum(b) + c + len(d) + e", 15),
    ("import itertools\nf = sum(i * j for i, j in itertools.product(range(3), (1, 2)))", 9),
    ("from itertools import chain\nf = len(chain((1,), [2, 3]))", 3),
    ("from functools import partial, reduce\nadd = partial(lambda a, b, c: a + b * c, c=2)\n"
     "f = reduce(add, (1, 2, 3), 0)", 12),
    ("f = len({1, 1, 2}) + sum(it for it in [1, 2])", 5),
    ("items = []\nfor i in range(4):\n    items.append(i)\nf = items[-1] + len(items[1:])", 6),
    ("items = [1, 2]\nitems[0] = 5\nitems.extend((3,))\nf = sum(items)", 10),
    ("f = 0\nfor i, v in enumerate((3, 4)):\n    f += i * v", 4),
    ("f = 0\nfor i in nl.affine_range(3):\n    f += i\nfor i in nl.sequential_range(1, 3):\n"
     "    f += i\nfor i in nl.static_range(2):\n    f += i", 7),
    ("f = 0\nwhile f < 5:\n    f += 2", 6),
    ("f = 0\nfor i in range(9):\n    if i == 2:\n        continue\n    if i == 4:\n"
     "        break\n    f += i", 4),
    ("f = 0\nfor i in range(2):\n    pass\nelse:\n    f = 5", 5),
    ("def twice(v, times=2):\n    return v * times\nf = twice(3) + twice(v=1, times=5)", 11),
    ("def total(*v, **named):\n    return sum(v) + named['z']\nf = total(1, *(2, 3), z=4)", 10),
    ("add = lambda a, b=2: a + b\nf = add(1) + add(1, 1)", 5),
    ("k = 3\ndef outer():\n    return k + 1\nf = outer()", 4),
    ("def f_(v):\n    for i in range(9):\n        if i == v:\n            return i\nf = f_(4)", 4),
    ("name = f'{3:>2}-{x.shape[1]}'\nf = len(name) + len(str(nl.float32))", 12),
    ("f = 2 if 'ab' in 'cabd' and 3 not in (1, 2) else 1", 2),
    ("f = 2 if None is None and x is not None and x != None else 1", 2),
    ("assert isinstance((), tuple) and not isinstance(1, (str, list)), f'{x.shape}'\nf = 1", 1),
    ("f = divmod(7, 2)[0] + round(2.6) + int('4')", 10),
    ("import math\nf = math.ceil(7 / 2) + math.gcd(12, 8)", 8),
    ("f = getattr(x, 'shape')[0] // 64 if hasattr(x, 'shape') else 0", 2),
    ("try:\n    f = 3\nexcept ValueError:\n    f = 4", 3),
    ("f = 4\nprint('nothing', f)", 4),
    ("import numpy as np\nf = 2 if np.finfo(nl.float32).max.item() > 3.4e38 else 1", 2),
    ("import numpy as np\nf = 2 if np.finfo(np.float32).min < np.finfo(nl.bfloat16).eps else 1", 2),
    ("import numpy as np\nf = np.iinfo(nl.int8).max // 16 - np.iinfo(np.uint8).min", 7),
    ("def early():\n    return 3\n    return nowhere\nf = early()", 3),
    ("f = 5\nfor i in range(3):\n    continue\n    nowhere(i)", 5),
]  # fmt: skip


@pytest.mark.parametrize(("python", "factor"), FACTORS)
def test_python_around_the_instructions(python: str, factor: int) -> None:
    result = run(f"{python}\nnisa.tensor_scalar(t, t, nl.multiply, f)")
    np.testing.assert_array_equal(result, X * factor)


CLASSES = (
    HEADER.replace("@nki.jit\n", "")
    + '''
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Optional

SIZE = 32
STEPS = tuple(range(0, 64, SIZE))


class Mode(Enum):
    ADD = auto()
    SCALE = auto()

    def op(self):
        return nl.add if self == Mode.ADD else nl.multiply


@dataclass
class Plan(nl.NKIObject):
    """What to do."""

    factor: float
    mode: Mode = Mode.SCALE
    parts: list = field(default_factory=list)

    def __post_init__(self):
        self.parts.append(self.factor)

    @property
    def value(self) -> float:
        return self.parts[0] + self.extra()

    @staticmethod
    def extra():
        return 1.0


class Base(nl.NKIObject):
    def __init__(self, size):
        self.size = size

    def area(self):
        return self.size * self.size


class Derived(Base):
    def __init__(self, size):
        super().__init__(size + 1)
        self.last: Optional[int] = None

    def area(self):
        self.last = super().area()
        return self.last

    def __len__(self):
        return self.size

    def __getitem__(self, at):
        return at + self.size

    def __call__(self, factor=2):
        return self.size * factor


def apply(tile, plan):
    """Do it in place."""
    nisa.tensor_scalar(tile, tile, plan.mode.op(), plan.value)


@nki.jit(mode="trace")
def kernel(x: nl.ndarray, factor: float = 2.0, mode: Optional[Mode] = None) -> nl.ndarray:
    """Several tiles in a list."""
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    plan = Plan(factor, mode=Mode.SCALE if mode is None else mode)
    tiles = []
    for start in STEPS:
        tile = nl.load(x[:, nl.ds(start, SIZE)])
        apply(tile, plan)
        tiles.append(tile)
    assert Derived(1).area() == 4, f"{Mode.ADD} {plan}"
    assert (len(Derived(1)), Derived(1)[5], Derived(1)(factor=4)) == (2, 7, 8)
    for start, tile in zip(STEPS, tiles):
        nl.store(y[:, start : start + SIZE], tile)
    return y
'''
)


def test_classes_defaults_and_helpers() -> None:
    read = neuron.load(CLASSES, {"x": ((128, 64), "float32")})
    np.testing.assert_array_equal(read(X), X * 3)
    np.testing.assert_array_equal(read(X, factor=4.0), X * 5)
    np.testing.assert_array_equal(read(X, 4.0), X * 5)
    np.testing.assert_array_equal(read(X, mode=neuron.Code("Mode.ADD")), X + 3)
    assert read.check().engines == {"dma": 4, "vector": 2}
    with pytest.raises(ValueError, match="takes x, factor, mode"):
        read(X, other=1)
    with pytest.raises(neuron.KernelError, match=r"Mode has no '.NONE'"):
        read(X, mode=neuron.Code("Mode.NONE"))
    with pytest.raises(TypeError, match="arrays, numbers and tuples"):
        read.check("trn2", object())


def test_lines_of_steps_are_those_of_the_kernel_that_calls() -> None:
    lines = CLASSES.splitlines()
    steps = neuron.load(CLASSES).trace(((128, 64), "float32")).steps
    called = {lines[step.line - 1].strip().split("(")[0] for step in steps}
    assert called == {"tile = nl.load", "nisa.tensor_scalar", "nl.store"}


def test_files_beside_the_kernel(tmp_path: Path) -> None:
    folder = tmp_path / "pack"
    (folder / "tools").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "constants.py").write_text("THREE = 3\n")
    (folder / "tools" / "__init__.py").write_text("from .scale import FACTOR\n")
    (folder / "tools" / "scale.py").write_text(
        "import nki.isa as nisa\nimport nki.language as nl\nimport not_there\n"
        "from ..constants import THREE\n\nFACTOR = THREE + 2\n\n\n"
        "def scale(tile, by):\n    nisa.tensor_scalar(tile, tile, nl.multiply, by)\n\n\n"
        "def broken(tile):\n    nisa.tensor_copy(tile, tile[:, 0:1])\n\n\n"
        "def absent():\n    return not_there.value\n"
    )
    text = copied("scale(t, FACTOR)").replace(
        "import nki\n", "import nki\nfrom .tools import FACTOR\nfrom .tools.scale import scale\n"
    )
    path = folder / "kernels.py"
    path.write_text(text)
    np.testing.assert_array_equal(neuron.load(path)(X), X * 5)
    absolute = text.replace("from .tools", "from pack.tools")
    np.testing.assert_array_equal(neuron.load(absolute, folders=[tmp_path])(X), X * 5)
    # Without the folder it is refused when it is used.
    with pytest.raises(
        neuron.KernelError, match=r"import pack\.tools\.[\w.]+ is not supported here"
    ):
        neuron.load(absolute)(X)
    for name, reason in (("broken", "nothing is broadcast"), ("absent", "import not_there is not")):
        call = f"{name}(t)" if name == "broken" else "absent()"
        path.write_text(
            text.replace("scale import scale", f"scale import {name}").replace(
                "scale(t, FACTOR)", call
            )
        )
        with pytest.raises(
            neuron.KernelError, match=rf"{reason}.*\(scale\.py, line \d+\)"
        ) as error:
            neuron.load(path)(X)
        assert error.value.line == 13


def test_one_of_several_kernels() -> None:
    text = copied("") + copied("nisa.memset(t, 1.0)").split("import nki.language as nl\n")[
        1
    ].replace("def kernel", "def ones")
    np.testing.assert_array_equal(neuron.load(text, kernel="ones")(X), np.ones_like(X))
    np.testing.assert_array_equal(neuron.load(text, kernel="kernel")(X), X)
    with pytest.raises(neuron.KernelError, match="name one with kernel=: kernel, ones"):
        neuron.load(text)
    with pytest.raises(neuron.KernelError, match="no function of the name twos"):
        neuron.load(text, kernel="twos")


# ---- Tensors -------------------------------------------------------------------------------------


def test_what_a_kernel_writes_to_an_argument_is_in_the_array_of_the_caller() -> None:
    text = kernel(
        """\
        t = nl.load(x)
        nisa.tensor_scalar(t, t, nl.add, 1.0)
        nl.store(out, t)
        nl.store(x[0:64, :], t[0:64, :])
        return out
        """,
        "x, out",
    )
    x, out = X.copy(), np.zeros_like(X)
    np.testing.assert_array_equal(neuron.load(text)(x, out), X + 1)
    np.testing.assert_array_equal(out, X + 1)
    np.testing.assert_array_equal(x[:64], X[:64] + 1)
    np.testing.assert_array_equal(x[64:], X[64:])
    checked = neuron.load(text).check("trn2", ((128, 64), "float32"), ((128, 64), "float32"))
    assert checked.stored_bytes == 3 * 64 * 64 * 4
    x.flags.writeable = False
    with pytest.raises(ValueError, match="x is written by the kernel, but the array is read-only"):
        neuron.load(text)(x, out)


#: What is stored to y, and what it is of X.
VIEWS = [
    ("t[...]", X),
    ("t[..., 3:5]", X[:, 3:5]),
    ("t[7, 2:4]", X[7:8, 2:4]),
    ("t[:, 5]", X[:, 5:6]),
    ("t[:, -3]", X[:, -3:-2]),
    ("t[-2:, :-60]", X[-2:, :-60]),
    ("t[:, -8:-1:3]", X[:, -8:-1:3]),
    ("t[(slice(0, 8), slice(2, 4))]", X[:8, 2:4]),
    ("t.reshape((128, 8, 8))[0:4]", X[:4]),
    ("t.reshape((128, 8, 8))[:, 3, :]", X.reshape(128, 8, 8)[:, 3]),
    ("t.reshape([128, 4, -1])[:, :, 2]", X.reshape(128, 4, 16)[:, :, 2]),
    ("x.reshape((64, 128))[1:3, :]", X.reshape(64, 128)[1:3]),
    ("t[:, 0:2].broadcast_to((128, 2))", X[:, :2]),
    ("t[:, 4:5].broadcast_to((128, 6))", np.repeat(X[:, 4:5], 6, axis=1)),
    ("t.ap([[64, 128], [2, 4]], 1)", X[:, 1:9:2]),
]


@pytest.mark.parametrize(("view", "expected"), VIEWS)
def test_views(view: str, expected: np.ndarray) -> None:
    text = kernel(
        f"t = nl.load(x)\ny = nl.ndarray({expected.shape}, nl.float32, buffer=nl.shared_hbm)\n"
        f"nisa.dma_copy(y, {view})\nreturn y\n"
    )
    np.testing.assert_array_equal(neuron.load(text)(X), expected)


def test_the_same_bytes_as_another_type() -> None:
    text = kernel(
        """\
        t = nl.load(x)
        y = nl.ndarray((128, 256), nl.uint8, buffer=nl.shared_hbm)
        z = nl.ndarray((128, 32), nl.float32, buffer=nl.shared_hbm)
        u = nl.ndarray((128, 128), nl.uint8, buffer=nl.sbuf)
        nisa.dma_copy(y, t.view(nl.uint8))
        nisa.tensor_copy(u, t.view(nl.uint8)[:, 0:128])
        nisa.dma_copy(z, u.view(nl.float32))
        return y, z
        """
    )
    y, z = neuron.load(text)(X)
    np.testing.assert_array_equal(y, X.view("uint8"))
    np.testing.assert_array_equal(z, X[:, :32])
    assert neuron.load(text).predict("trn2", ((128, 64), "float32")).latency_ms > 0


REFUSED_VIEWS = [
    ("t.reshape((64, 128))", "reshape keeps the 128 partitions"),
    ("t.reshape((128, 3))", "is not one of"),
    ("t[:, 0:64:2].reshape((128, 64))", "is not one of"),
    ("t.reshape((128, 2, 32))[:, :, 0:16].reshape((128, 32))", "with gaps"),
    ("t.broadcast_to((128, 5))", "is not broadcast"),
    ("t[0:1, :].broadcast_to((2, 64))", "partitions are not broadcast"),
    ("t[:, 0:64:2].view(nl.uint8)", "elements side by side"),
    ("t[:, 0:3].view(nl.uint8).view(nl.float32)[:, 0:4]", "0:4 in dimension 1"),
    ("t.view(4)", "view takes a type"),
    ("t.ap([[64, 128]], 0, scalar_offset=t[0:1, 0:1])", "an offset is an integer"),
    ("t.ap([[64, 128]], 0, scalar_offset=1)", "into a free dimension"),
]


@pytest.mark.parametrize(("view", "reason"), REFUSED_VIEWS)
def test_views_that_are_refused(view: str, reason: str) -> None:
    with pytest.raises(neuron.KernelError, match="line 11") as error:
        run(f"r_ = {view}")
    assert reason in error.value.reason


def gather(offset: str, source: str = "table.ap([[32, 4], [1, 32]], offset=0, {})") -> str:
    return kernel(
        f"""\
        y = nl.ndarray((4, 32), nl.float32, buffer=nl.shared_hbm)
        i = nl.ndarray((4, 1), nl.int32, buffer=nl.sbuf)
        t = nl.ndarray((4, 32), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(i, index)
        nisa.dma_copy(t, {source.format(offset)})
        nisa.dma_copy(y, t)
        return y
        """,
        "table, index",
    )


def test_rows_at_an_index() -> None:
    table = np.arange(40 * 32, dtype="float32").reshape(40, 32)
    index = np.array([[3], [0], [39], [3]], "int32")
    by_row = "table.ap([[32, 4], [1, 32]], offset=0, vector_offset=i, indirect_dim=0)"
    read = neuron.load(gather("", by_row))
    np.testing.assert_array_equal(read(table, index), table[index[:, 0]])
    assert read.check("trn2", table, index).instructions == {"dma_copy": 3}
    one = neuron.load(gather("scalar_offset=i[2:3, :], indirect_dim=0"))
    with pytest.raises(neuron.KernelError, match="elements 1248 to 1375 of 'table'"):
        one(table, index)
    index[2] = 5
    np.testing.assert_array_equal(one(table, index), table[5:9])
    with pytest.raises(neuron.KernelError, match="4 are needed"):
        neuron.load(gather("vector_offset=i[0:2, :]"))(table, index)


def test_scalars_say_rows() -> None:
    """Numbers that a kernel reads from data, what it computes of them, and a loop's variable."""
    text = kernel(
        """\
        y = nl.ndarray((4, 32), nl.float32, buffer=nl.shared_hbm)
        t = nl.ndarray((4, 32), nl.float32, buffer=nl.sbuf)
        i = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(i, index)
        first = nisa.scalar_load(i)
        nisa.scalar_store(i, -first + 2 * first)

        def copied(source, target):
            row = nl.ndarray((1, 32), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(row, table.ap([[32, 1], [1, 32]], scalar_offset=source))
            nisa.dma_copy(y.ap([[32, 1], [1, 32]], scalar_offset=target), row)

        nl.fori_loop(0, 2, lambda k: copied(first * 2 + k - 1, k))
        for k in nl.dynamic_range(2, 4):
            copied(k, k)
        nisa.dma_copy(last, i)
        return y
        """,
        "table, index, last",
    )
    table = np.arange(40 * 32, dtype="float32").reshape(40, 32)
    last = np.zeros((1, 1), "int32")
    read = neuron.load(text)
    index = np.array([[7]], "int32")
    np.testing.assert_array_equal(read(table, index, last), table[[13, 14, 2, 3]])
    assert last == 7
    assert read.check("trn2", table, index, last).instructions["dma_copy"] == 10
    index[0] = 2**30 + 1  # twice that is -2**31 + 2 in 32 bits
    with pytest.raises(neuron.KernelError, match="elements -68719476704 to"):
        read(table, index, last)


def test_columns_at_an_index_on_the_chip() -> None:
    text = kernel(
        """\
        y = nl.ndarray((128, 8), nl.float32, buffer=nl.shared_hbm)
        t, i = nl.load(x), nl.load(index)
        r = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
        for k in range(2):
            nisa.tensor_scalar(
                r.ap([[8, 128], [1, 4]], scalar_offset=i[0:1, k : k + 1], indirect_dim=1),
                t.ap([[64, 128], [2, 4]], scalar_offset=i[0:1, 2:3], indirect_dim=1),
                nl.multiply,
                2.0 + k,
            )
        nisa.dma_copy(y, r)
        return y
        """,
        "x, index",
    )
    read = neuron.load(text)
    index = np.array([[4, 0, 5]], "int32")
    part = X[:, 5:13:2]
    np.testing.assert_array_equal(read(X, index), np.concatenate([part * 3, part * 2], 1))
    assert read.check("trn2", X, index).engines == {"dma": 3, "vector": 2}
    placed = read.trace(X, index).steps[2]
    assert placed.op == "tensor_scalar" and cycles(placed, MACHINES["trn2"]) == 600
    index[0] = 4, 0, 58
    with pytest.raises(neuron.KernelError, match="elements 58 to 64 of a partition of 't'"):
        read(X, index)
    index[0] = 4, 4, 0
    with pytest.raises(neuron.KernelError, match=r"dma_copy reads r\[0, 0\]"):
        read(X, index)


def test_rows_written_at_an_index() -> None:
    text = kernel(
        """\
        i = nl.load(index)
        t = nl.load(rows)
        nisa.dma_copy(table.ap([[32, 4], [1, 32]], vector_offset=i, indirect_dim=0), t)
        return table
        """,
        "table, index, rows",
    )
    table = np.zeros((40, 32), "float32")
    rows = np.arange(128, dtype="float32").reshape(4, 32)
    neuron.load(text)(table, np.array([[7], [1], [39], [0]], "int32"), rows)
    np.testing.assert_array_equal(table[[7, 1, 39, 0]], rows)
    assert np.count_nonzero(table.any(axis=1)) == 4


# ---- Programs ------------------------------------------------------------------------------------

HALVES = kernel(
    """\
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    first = nl.program_id(0) * rows
    t = nl.load(x[nl.ds(first, rows), :])
    nl.store(y[nl.ds(first, rows), :], t)
    return y
    """
)


def test_two_programs_share_the_work() -> None:
    spec = {"x": ((128, 64), "float32")}
    two = neuron.load(HALVES, spec, programs=2)
    one = neuron.load(HALVES, spec)
    assert two.check().loaded_bytes * 2 == one.check().loaded_bytes
    assert two.predict().latency_ms < one.predict().latency_ms
    np.testing.assert_array_equal(two(X), X)
    # Each leaves the other's half to it: nobody writes the second one.
    alone = HALVES.replace("nl.program_id(0) * rows", "0")
    with pytest.raises(neuron.CheckError, match=r"y\[64, 0\] is returned, but was never written"):
        neuron.load(alone, spec, programs=2).check()
    with pytest.raises(ValueError, match="1 or 2 programs, not 3"):
        neuron.load(HALVES, programs=3)


def test_trn2_is_the_default() -> None:
    read = neuron.load(copied("nisa.activation(t, nl.exp, t, bias=1.0)"), {"x": X.__array__()})
    assert read.check().machine == "trn2"
    assert read.predict().machine.name == "trn2"
    with pytest.raises(neuron.CheckError, match="from trn2 on"):
        read.check("trn1")
