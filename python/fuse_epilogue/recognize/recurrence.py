"""Layers of recurrent networks: functions that compute a cell for one step after the other.

    h, c = h0, c0
    for t along the sequence:
        y[t], c' = cell(x[t], h, c, weights)
        h, c = y[t], c'

A layer does not compute the products of the inputs: ``x`` is one product for all steps. Each cell
is written here once, as expressions of TE; a function is a layer if it equals the function that is
written for its cell and its sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, te, tirx, topi
from tvm.ir import prim

from ..tir.affine import as_constant
from ..tir.build import in_root, renamed, sequence
from ..tir.walk import handle, substitute

#: Attribute of a layer: the name of its cell, and "reverse" if it begins at the end.
ATTR = "fuse_epilogue.recurrence"


@dataclass(frozen=True)
class Cell:
    """Computation of one step.

    - `gates`: number of values of the input for each element of the state.
    - `states`: number of states; the first one is the result of the step.
    - `weights`: shape of each weight, in letters: "g" all gates, "z" all but the last one, "h" the
      state.
    - `step` (Callable): takes the input of the step, the states and the weights, returns the new
      states.
    """

    gates: int
    states: int
    weights: tuple[str, ...]
    step: Callable[[Any, Sequence[Any], Sequence[Any]], list[Any]]


def _product(name: str, state: Any, weight: Any, add: Callable[[Any, Any], Any]) -> Any:
    """Return the products of a state with the rows of a weight, and what is added to each."""
    batch, size = state.shape
    k = te.reduce_axis((0, size), "k")
    shape = (batch, weight.shape[0])
    sums = te.compute(shape, lambda b, g: te.sum(state[b, k] * weight[g, k], axis=k), f"{name}_sum")
    return te.compute(shape, lambda b, g: sums[b, g] + add(b, g), name)


def _lstm(x: Any, states: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Gates of the input, to forget, of the cell, of the output, as torch orders them."""
    h, c = states
    size = h.shape[1]
    gate = _product("gates", h, weights[0], lambda b, g: x[b, g])
    cell = te.compute(
        h.shape,
        lambda b, j: (
            te.sigmoid(gate[b, j + size]) * c[b, j]
            + te.sigmoid(gate[b, j]) * te.tanh(gate[b, j + 2 * size])
        ),
        "cell",
    )
    out = te.compute(
        h.shape, lambda b, j: te.sigmoid(gate[b, j + 3 * size]) * te.tanh(cell[b, j]), "out"
    )
    return [out, cell]


def _gru(x: Any, states: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """Gates to reset, to update, and the new value; the product of the last one is reset."""
    [h], (weight, bias) = states, weights
    size = h.shape[1]
    gate = _product("gates", h, weight, lambda _, g: bias[g])

    def element(b: Any, j: Any) -> Any:
        reset = te.sigmoid(gate[b, j] + x[b, j])
        update = te.sigmoid(gate[b, j + size] + x[b, j + size])
        new = te.tanh(x[b, j + 2 * size] + gate[b, j + 2 * size] * reset)
        return (h[b, j] - new) * update + new

    return [te.compute(h.shape, element, "out")]


def _gru_of_reset_state(x: Any, states: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
    """As a GRU, but the state is reset before the last product: ONNX's default."""
    [h], (weight, last) = states, weights
    size = h.shape[1]
    gate = _product("gates", h, weight, lambda b, g: x[b, g])
    reset = te.compute(h.shape, lambda b, j: te.sigmoid(gate[b, j]) * h[b, j], "reset")
    new = _product("new", reset, last, lambda b, j: x[b, j + 2 * size])

    def element(b: Any, j: Any) -> Any:
        value = te.tanh(new[b, j])
        return (h[b, j] - value) * te.sigmoid(gate[b, j + size]) + value

    return [te.compute(h.shape, element, "out")]


def _simple(activation: Callable[[Any], Any]) -> Callable[..., list[Any]]:
    def step(x: Any, states: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        [h], [weight] = states, weights
        total = _product("total", h, weight, lambda b, g: x[b, g])
        return [activation(total)]

    return step


#: The cells by their names.
CELLS: dict[str, Cell] = {
    "lstm": Cell(4, 2, ("gh",), _lstm),
    "gru": Cell(3, 1, ("gh", "g"), _gru),
    "gru of reset state": Cell(3, 1, ("zh", "hh"), _gru_of_reset_state),
    "rnn tanh": Cell(1, 1, ("gh",), _simple(topi.tanh)),
    "rnn relu": Cell(1, 1, ("gh",), _simple(topi.nn.relu)),
}


@dataclass(frozen=True)
class Layer:
    """A layer, by its sizes.

    - `steps`, `batch` (int or Expr)
    - `size`: elements of a state.
    - `reverse`: whether the last step comes first.
    """

    cell: str
    steps: Any
    batch: Any
    size: int
    dtype: str = "float32"
    reverse: bool = False

    @property
    def _table(self) -> Cell:
        return CELLS[self.cell]

    def weight_shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the weights."""
        gates = self._table.gates
        sizes = {"g": gates * self.size, "z": (gates - 1) * self.size, "h": self.size}
        return [tuple(sizes[letter] for letter in each) for each in self._table.weights]

    def weight_places(self) -> range:
        """Return the indices of the weights among the parameters, of a step and of all steps."""
        begin = 1 + self._table.states
        return range(begin, begin + len(self._table.weights))

    def step(self) -> tirx.PrimFunc:
        """Return the function of one step: input, states and weights, then the new states."""
        cell = self._table

        def given(shape: tuple[Any, ...], name: str) -> Any:
            return te.placeholder(shape, self.dtype, name)

        x = given((self.batch, cell.gates * self.size), "x")
        states = [given((self.batch, self.size), f"state{n}") for n in range(cell.states)]
        weights = [given(shape, f"weight{n}") for n, shape in enumerate(self.weight_shapes())]
        made = cell.step(x, states, weights)
        return te.create_prim_func([x, *states, *weights, *made], "int64")

    def function(self, step: tirx.PrimFunc | None = None) -> tirx.PrimFunc:
        """Return the function of all steps.

        Its parameters are the inputs of all steps, the first states and the weights, then the
        results of all steps and the last states.

        - `step`: function of one step, with a schedule: weights may be packed.
        """
        step = self.step() if step is None else step
        count, number = self._table.states, len(self._table.weights)
        own, size = list(step.params), [self.batch, self.size]

        def buffer(shape: Sequence[Any], name: str) -> Any:
            return tirx.decl_buffer(list(map(_index, shape)), self.dtype, name)

        gates = self._table.gates * self.size
        x, y = buffer([self.steps, self.batch, gates], "x"), buffer([self.steps, *size], "y")
        first = [buffer(size, f"first{n}") for n in range(count)]
        last = [buffer(size, f"last{n}") for n in range(count)]
        weights = own[1 + count : 1 + count + number]
        # The result of a step is where it is wanted; other states come from a buffer.
        made = [buffer(size, f"new{n}") for n in range(1, count)]
        t = tirx.Var("t", "int64")
        at = _index(self.steps) - 1 - t if self.reverse else t
        of_step = buffer([self.batch, gates], "x_t"), buffer(size, "y_t")
        table = dict(zip(map(handle, own[: 1 + count]), [of_step[0], *last], strict=True))
        table |= zip(map(handle, own[1 + count + number :]), [of_step[1], *made], strict=True)
        body = substitute(step.body, table)
        if hasattr(body, "block"):
            body = s_tir.SBlockRealize([], True, renamed(body.block, "step"))
        parts = [
            *(_declared(part, whole, at) for part, whole in zip(of_step, (x, y), strict=True)),
            *(_named(each) for each in made),
            body,
            *map(_copy, [of_step[1], *made], last),
        ]
        loop = tirx.For(t, _index(0), _index(self.steps), tirx.ForKind.SERIAL, sequence(parts))
        whole = in_root(sequence([*map(_copy, first, last), loop]), made)
        func = tirx.PrimFunc([x, *first, *weights, y, *last], whole)
        name = f"{self.cell} reverse" if self.reverse else self.cell
        return func.with_attrs({ATTR: name, "tirx.noalias": True})


def _index(value: Any) -> Any:
    return prim.IntImm("int64", value) if isinstance(value, int) else value


def _declared(part: Any, whole: Any, at: Any) -> Any:
    """Return the statement that makes a buffer of the elements of one step."""
    place = tirx.BufferLoad(whole, [at, *[_index(0)] * len(part.shape)])
    return tirx.DeclBuffer(part, data=tirx.address_of(place))


def _named(buffer: Any) -> Any:
    """Return a statement by which a loop names a buffer, so that TVM leaves its memory alone."""
    view = tirx.decl_buffer(buffer.shape, str(buffer.dtype), buffer.name, data=buffer.data)
    return tirx.DeclBuffer(view, data=buffer.data)


def _copy(source: Any, target: Any) -> Any:
    """Return loops that copy a buffer."""
    axes = [tirx.Var(name, "int64") for name, _ in zip("bj", source.shape, strict=True)]
    body: Any = tirx.BufferStore(target, tirx.BufferLoad(source, axes), axes)
    for var, size in reversed(list(zip(axes, source.shape, strict=True))):
        body = tirx.For(var, _index(0), size, tirx.ForKind.SERIAL, body)
    return body


def read_layer(func: tirx.PrimFunc) -> Layer | None:
    """Return a function as a layer, None if it is not what is written for its cell."""
    name = (func.attrs or {}).get(ATTR)
    if name is None:
        return None
    cell = str(name).removesuffix(" reverse")
    count = CELLS[cell].states if cell in CELLS else len(func.params)
    if count + 1 >= len(func.params):
        return None
    x, state = func.params[0], func.params[1]
    steps, batch, size = (as_constant(each) for each in (*x.shape[:2], state.shape[1]))
    layer = Layer(cell, steps, batch, size, str(x.dtype), cell != str(name))
    bare = tirx.PrimFunc(func.params, func.body, func.ret_type)
    written = layer.function()
    other = tirx.PrimFunc(written.params, written.body, written.ret_type)
    return layer if tvm_ffi.structural_equal(bare, other, map_free_vars=True) else None
