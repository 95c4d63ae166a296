"""The emitter's parts: names and text of kernels, sums of variables, ranges, layouts."""

from __future__ import annotations

import ast
import functools
import keyword
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tvm
from tvm.s_tir import Schedule

from fuse_epilogue import workloads
from fuse_epilogue.neuron import EmitError
from fuse_epilogue.neuron.emit import emit
from fuse_epilogue.neuron.emit.areas import Areas
from fuse_epilogue.neuron.emit.layout import Layout, layout_of
from fuse_epilogue.neuron.emit.linear import Linear
from fuse_epilogue.neuron.emit.names import Names
from fuse_epilogue.neuron.emit.program import Axis, Tensor
from fuse_epilogue.neuron.emit.text import WIDTH, Text
from neuron_golden_schedules import KERNELS, emitted
from neuron_schedules import drawn

# ---- Kernels ---------------------------------------------------------------------------------


@pytest.mark.full
def test_a_fresh_process_emits_the_same_text():
    program = (
        "from neuron_golden_schedules import KERNELS, emitted\n"
        "print(*(emitted(name)[1].source for name in KERNELS), sep='')"
    )
    here = pathlib.Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join(emitted(name)[1].source for name in KERNELS) + "\n"


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 9, 14, 20, 26])
def test_text_is_narrow_python_with_a_comment_for_each_block(number):
    sch = drawn(number).sch
    source = emit(sch).source
    ast.parse(source)
    assert source.isascii()
    assert source.endswith("\n")
    assert "\t" not in source
    long = [line for line in source.splitlines() if len(line) > WIDTH or line != line.rstrip()]
    assert not long
    blocks = {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_sblock("root"))}
    comments = {line.strip()[2:] for line in source.splitlines() if line.strip().startswith("# ")}
    assert comments == blocks


@pytest.mark.parametrize("name", KERNELS)
def test_docstring_says_shapes_and_types(name):
    func, kernel = emitted(name)
    tree = ast.parse(kernel.source).body[-1]
    said = " ".join(ast.get_docstring(tree).split())
    params = [(p.name, [int(n) for n in p.ty.shape], str(p.dtype)) for p in func.params]
    one = [f"{name}[{', '.join(map(str, shape))}] {dtype}" for name, shape, dtype in params]
    assert said == f"{', '.join(one[:-1])} -> {one[-1]}."
    assert kernel.name == name
    assert dict(kernel.inputs) == {n: (tuple(s), d) for n, s, d in params[:-1]}


def test_names_that_python_or_kernels_use():
    """Names of buffers, loops and blocks that are keywords, modules, or alike in Python."""
    text = """
@T.prim_func(s_tir=True)
def main(nl: T.Buffer((64, 32), "float32"), nisa: T.Buffer((64,), "float32"),
         range_: T.Buffer((64, 32), "float32")):
    lambda_ = T.sblock_alloc_buffer((64, 32), "float32", scope="trn.sbuf")
    a_b = T.sblock_alloc_buffer((64,), "float32", scope="trn.sbuf")
    a__b = T.sblock_alloc_buffer((64, 32), "float32", scope="trn.sbuf")
    for i, j in T.grid(64, 32):
        with T.sblock("for"):
            vi, vj = T.axis.remap("SS", [i, j])
            lambda_[vi, vj] = nl[vi, vj]
    for i in range(64):
        with T.sblock("in"):
            vi = T.axis.remap("S", [i])
            a_b[vi] = nisa[vi]
    for nki in T.serial(64, annotations={"nki_dim": "P"}):
        for min in T.serial(32, annotations={"nki_dim": "F"}):
            with T.sblock("return"):
                vi, vj = T.axis.remap("SS", [nki, min])
                a__b[vi, vj] = lambda_[vi, vj] + a_b[vi]
    for i, j in T.grid(64, 32):
        with T.sblock("is"):
            vi, vj = T.axis.remap("SS", [i, j])
            range_[vi, vj] = a__b[vi, vj]
"""
    kernel = emit(tvm.script.from_source(text))
    x = np.arange(64 * 32, dtype="float32").reshape(64, 32)
    y = np.arange(64, dtype="float32")
    np.testing.assert_array_equal(kernel(x, y), x + y[:, None])
    assert kernel.parameters == ("nl_2", "nisa_2")


UNMARKED = """
@T.prim_func(s_tir=True)
def main(x: T.Buffer(SHAPE, "float32"), y: T.Buffer(SHAPE, "float32")):
    t = T.sblock_alloc_buffer(SHAPE, "float32", scope="trn.sbuf")
    r = T.sblock_alloc_buffer(SHAPE, "float32", scope="trn.sbuf")
    for LOOPS:
        with T.sblock("load"):
            AXES
            t[INDEX] = x[INDEX]
    for LOOPS:
        with T.sblock("double"):
            AXES
            r[INDEX] = t[INDEX] * T.float32(2)
    for LOOPS:
        with T.sblock("store"):
            AXES
            y[INDEX] = r[INDEX]
"""


def unmarked(*shape: int) -> str:
    """A program without marks, of loops as long as the shape."""
    loops, axes = "ijk"[: len(shape)], [f"v{name}" for name in "ijk"[: len(shape)]]
    words = {
        "SHAPE": str(shape),
        "LOOPS": f"{', '.join(loops)} in T.grid({', '.join(map(str, shape))})",
        "AXES": f'{", ".join(axes)} = T.axis.remap("{"S" * len(shape)}", [{", ".join(loops)}])',
        "INDEX": ", ".join(axes),
    }
    text = UNMARKED
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def test_a_single_loop_that_is_too_long_runs_in_one_partition():
    x = np.arange(300, dtype="float32")
    np.testing.assert_array_equal(emit(tvm.script.from_source(unmarked(300)))(x), x * 2)


def test_of_several_loops_one_has_to_fit_the_partitions():
    x = np.arange(300 * 100, dtype="float32").reshape(300, 100)
    np.testing.assert_array_equal(emit(tvm.script.from_source(unmarked(300, 100)))(x), x * 2)
    with pytest.raises(EmitError, match="none of its loops can run over at most 128 partitions"):
        emit(tvm.script.from_source(unmarked(300, 200)))


def test_names_are_given_once():
    names = Names()
    given = [names.unique(name) for name in ("x", "x", "x_2", "for", "nl", "1st", "a b", "é", "")]
    assert len(set(given)) == len(given)
    for each in given:
        assert each.isidentifier()
        assert not keyword.iskeyword(each)
    other = names.copy()
    assert other.unique("new") == names.unique("new")


def test_a_name_of_the_kernel_and_of_a_module():
    sch = drawn(2).sch
    assert emit(sch, name="other").name == "other"
    assert emit(sch.mod).source == emit(sch).source == emit(sch.mod["main"]).source


@pytest.mark.parametrize("thing", [None, 3, "x", np.zeros(3), [1]])
def test_something_else_than_a_function(thing):
    with pytest.raises(TypeError, match=type(thing).__name__):
        emit(thing)


def test_a_module_of_two_functions():
    func = workloads.elementwise(4, 4)
    with pytest.raises(TypeError, match="2 functions"):
        emit(tvm.IRModule({"a": func, "b": func.with_attr("global_symbol", "b")}))


def test_a_single_iteration_counts_partitions_too():
    """One channel, one row, one term: nothing of the marks is left in TIR's indices."""
    sch = Schedule(workloads.elementwise(1, 8, activation="relu", bias=False))
    block = sch.get_sblock("relu")
    i, j = sch.get_loops(block)
    sch.annotate(i, "nki_dim", "P")
    sch.annotate(j, "nki_dim", "F")
    sch.cache_read(block, 0, "trn.sbuf")
    sch.cache_write(block, 0, "trn.sbuf")
    kernel = emit(sch)
    x = np.arange(-4, 4, dtype="float32")[None]
    np.testing.assert_array_equal(kernel(x), np.maximum(x, 0))
    assert "(1, 8)" in kernel.source


# ---- Sums of variables -----------------------------------------------------------------------

RANGES = {"i": (0, 7), "j": (0, 3), "k": (-2, 5)}


def _value(linear, at):
    return linear.constant + sum(factor * at[name] for name, factor in linear.terms.items())


def test_linear_arithmetic_on_random_values():
    rng = np.random.default_rng(2)
    for _ in range(200):
        (a, a0), (b, b0) = ((rng.integers(-4, 5, 3), int(rng.integers(-9, 10))) for _ in "ab")
        one, two = (
            Linear({n: int(f) for n, f in zip("ijk", fs, strict=True) if f}, c)
            for fs, c in ((a, a0), (b, b0))
        )
        at = {n: int(rng.integers(low, high + 1)) for n, (low, high) in RANGES.items()}
        value = functools.partial(_value, at=at)
        factor = int(rng.integers(-3, 4))
        assert value(one + two) == value(one) + value(two)
        assert value(one - two) == value(one) - value(two)
        assert value(one * factor) == value(one) * factor
        assert value(one + 3) == value(one) + 3
        assert eval(str(one), {}, at) == value(one)
        assert one.put("i", two).of("i") == one.of("i") * two.of("i")
        assert value(one.put("i", two)) == value(one) + one.of("i") * (value(two) - at["i"])
        assert value(one.without("i")) == value(one) - one.of("i") * at["i"]
        low, high = one.bounds(RANGES)
        assert low <= value(one) <= high
        assert 0 not in (one + two).terms.values()
        assert (one == two) == (one - two == Linear())


@pytest.mark.parametrize(
    ("linear", "text"),
    [
        (Linear(), "0"),
        (Linear({}, -3), "-3"),
        (Linear({"i": 1}), "i"),
        (Linear({"i": 4, "j": 1}, 2), "i * 4 + j + 2"),
        (Linear({"i": -1}, 7), "7 - i"),
        (Linear({"i": -2}), "-i * 2"),
        (Linear({"i": -2, "j": 1}, -1), "j - i * 2 - 1"),
        (Linear({"i // 2": 3}), "(i // 2) * 3"),
    ],
)
def test_how_sums_are_written(linear, text):
    assert str(linear) == text


def test_linear_is_hashed_by_value():
    assert hash(Linear({"i": 1, "j": 2})) == hash(Linear({"j": 2, "i": 1}))
    assert Linear({}, 3).fixed == 3
    assert Linear({"i": 1}).fixed is None


# ---- Ranges ----------------------------------------------------------------------------------


def _areas():
    """Partitions p of 8 and columns w of 20; i and j are loops outside."""
    axes = [Axis("p", 8, "P"), Axis("w", 20, "F")]
    ranges = {"p": (0, 7), "w": (0, 19), "i": (0, 5), "j": (0, 3)}
    text = Text()
    return Areas("block", axes, "p", ranges, Names(), text), text


@pytest.mark.parametrize(
    "conditions",
    [
        (Linear({"w": 1}, -1),),
        (Linear({"w": -1}, 18),),
        (Linear({"w": 3}, -7), Linear({"w": -2}, 29)),
        (Linear({"w": 1, "i": 1}, -2), Linear({"w": -1, "i": -1}, 20)),
        (Linear({"w": -3, "i": 7}, 5),),
        (Linear({"w": 2, "i": -5}, -3),),
        (Linear({"p": -1, "i": -8}, 36), Linear({"w": 1, "j": -4}, 0)),
        (Linear({"i": 1, "j": -2}, 0),),
        (Linear({"i": -1}, 0), Linear({"w": -4}, 50)),
        (Linear({"w": -1, "i": 5}, -10),),
        (Linear({"w": -1}, -1),),
        (Linear({"i": 1}, -6),),
    ],
)
def test_ranges_are_where_the_conditions_hold(conditions):
    """Written as Python and evaluated for every i and j, beside trying all p and w."""
    areas, text = _areas()
    place = areas.place(conditions)
    for i in range(6):
        for j in range(4):
            at = {"i": i, "j": j}
            wanted = {
                (p, w)
                for p in range(8)
                for w in range(20)
                if all(_value(each, {**at, "p": p, "w": w}) >= 0 for each in conditions)
            }
            if place is None:
                assert not wanted
                continue
            scope = {**at, "min": min, "max": max}
            for line in text.lines:
                exec(line, {}, scope)
            found = set()
            if all(eval(guard, {}, scope) for guard in place.guards):
                ends = [eval(str(end), {}, scope) for n in "pw" for end in place.area.box[n]]
                assert ends[0] < ends[1], "an empty range needs a guard"
                assert ends[2] < ends[3], "an empty range needs a guard"
                found = {(p, w) for p in range(*ends[:2]) for w in range(*ends[2:])}
            assert found == wanted


def test_what_always_or_never_holds():
    areas, text = _areas()
    place = areas.place((Linear({"w": 1}), Linear({"i": 1})))
    assert place.guards == ()
    assert [end.fixed for end in place.area.box["w"]] == [0, 20]
    assert areas.place((Linear({"w": -1}, -1),)) is None
    assert text.lines == []


# ---- Layouts ---------------------------------------------------------------------------------

PLACES = {"c": (0, 3), "p": (0, 127), "q": (0, 95), "f": (0, 2), "n": (0, 511), "s": (0, 26)}


@pytest.mark.parametrize(
    ("shape", "dim", "index", "axis", "layout", "placed"),
    [
        ((512, 3), 0, Linear({"c": 128, "p": 1}), ("p", 128), (128, 4, 3), ("p", "c", "f")),
        ((512, 3), 0, Linear({"p": 4, "c": 1}), ("p", 128), (128, 4, 3), ("p", "c", "f")),
        ((96, 3), 0, Linear({"q": 1}), ("q", 96), (96, 3), ("q", "f")),
        # 27 partitions must not start at 27.
        ((108, 3), 0, Linear({"c": 27, "s": 1}), ("s", 27), (27, 4, 3), ("s", "c", "f")),
        ((500, 1), 0, Linear({"c": 128, "p": 1}), ("p", 128), (128, 4), ("p", "c")),
    ],
    ids=["tiles", "every 4th", "whole", "start", "ragged"],
)
def test_layouts(shape, dim, index, axis, layout, placed):
    tensor = Tensor("t", "sbuf", shape, "float32")
    found = layout_of(tensor, dim, index, Axis(*axis, "P"), PLACES)
    assert found.shape(tensor) == layout
    where = found.index(tensor, (index, Linear({"f": 1})), PLACES)
    assert where == tuple(Linear({name: 1}) for name in placed)


def test_a_row_lies_in_one_partition():
    tensor = Tensor("t", "sbuf", (512,), "float32")
    row = Layout(None, 1, 1, 1)
    assert row.shape(tensor) == (1, 512)
    assert row.index(tensor, (Linear({"n": 1}),), PLACES) == (Linear(), Linear({"n": 1}))


def test_what_no_layout_has():
    tensor = Tensor("t", "sbuf", (512, 3), "float32")
    axis = Axis("p", 128, "P")
    backwards = Linear({"p": -1}, 127)
    assert layout_of(tensor, 0, backwards, axis, PLACES) is None
    overlapping = Linear({"c": 64, "p": 1})
    assert layout_of(tensor, 0, overlapping, axis, PLACES) is None
    tiles = layout_of(tensor, 0, Linear({"c": 128, "p": 1}), axis, PLACES)
    assert tiles.index(tensor, (Linear({"p": 4, "c": 1}), Linear({"f": 1})), PLACES) is None
