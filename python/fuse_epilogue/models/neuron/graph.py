"""A model as calls of functions on named arrays: what a package for Trainium is made of.

Relax's passes lower the model, as for processors; nothing is planned in memory, and no function is
scheduled yet.

    t0 = fused_matmul_add(x, w0, w1)
    t1, t2 = split(t0)
    t3 = view of t1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.ir import Call, GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.target import Target

from ...kernels.trainium.tiles import FLOATS
from ...neuron.values import numpy_dtype
from ...tir.walk import handle, operator_name
from ..derived_sizes import with_sizes_computed
from ..graph.rewriting import graph_pass, rewritten
from ..import_refusal import ImportRefusal
from ..pipeline import function_passes, graph_passes
from ..signature import ArrayType, signature_of
from .shapes import KnownShapes


@dataclass(frozen=True)
class Step:
    """A call of a function, or a view.

    - `function`: name of the function; empty for a view, which has the elements of its one input in
      another shape.
    - `inputs`, `outputs`: names of arrays, in the order of the function's parameters.
    """

    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """A model as steps.

    - `inputs`, `results`: names of the arrays that the model takes and returns.
    - `arrays`: all arrays, by name.
    - `weights`: the constants among them.
    - `steps`: in the order in which they run.
    - `functions`: by name: inputs first, then results; not scheduled.
    """

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    arrays: Mapping[str, ArrayType]
    weights: Mapping[str, np.ndarray]
    steps: tuple[Step, ...]
    functions: Mapping[str, Any]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an array; its sizes are numbers."""
        return tuple(int(size) for size in self.arrays[name].shape)


def graph_of(mod: ir.IRModule) -> Graph:
    """Return a model as steps.

    - `mod`: as :func:`.importing.import_model` returns it.
    - Raises ImportRefusal: a size has a name, or the model does something besides calling functions
      on arrays.
    """
    names = signature_of(mod).names
    if names:
        raise ImportRefusal(
            f"the inputs have sizes that may differ from call to call ({', '.join(names)}): for "
            "Trainium sizes are numbers, import the model with numbers"
        )
    return _Reader(_lowered(with_sizes_computed(mod))).graph()


def _lowered(mod: ir.IRModule) -> ir.IRModule:
    transform = relax.transform
    passes = [
        *graph_passes(channels_last=False),
        SlicesOfTakes(),
        KnownShapes(),
        MasksAsNumbers(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
    ]
    for each in function_passes():
        if each.info.name == "FuseOps":
            # A view costs nothing; in a function, it would hide what its elements are.
            passes.append(transform.RewriteDataflowReshape())
        passes.append(each)
    with Target("llvm"):
        return ir.transform.Sequential(passes)(mod)


# ---- Elements of constant places ----------------------------------------------------------------


@graph_pass
def SlicesOfTakes(mod: ir.IRModule) -> ir.IRModule:
    """Slice where ``take`` has one constant index: a slice is fused, and is a transfer."""
    return rewritten(mod, _Slicer)


@mutator
class _Slicer(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a slice for a take of one element of an axis."""
        call = super().visit_call_(call)
        if operator_name(call) != "relax.take":
            return call
        data, index = call.args
        if not isinstance(index, GenericConst) or index.value.numpy().ndim:
            return call
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % int(data.ty.ndim)
        if call.attrs.axis is None and int(data.ty.ndim) != 1:
            return call
        place, size = int(index.value.numpy()), int(data.ty.shape[axis])
        place += size if place < 0 else 0
        if not 0 <= place < size:
            return call
        return self.builder_.call_te(_element, data, axis, place, primfunc_name_hint="element")


def _element(data: Any, axis: int, place: int) -> Any:
    """Return an array without an axis, at one place of it."""
    shape = [size for number, size in enumerate(data.shape) if number != axis]
    return te.compute(
        shape, lambda *index: data[(*index[:axis], place, *index[axis:])], name="element"
    )


# ---- Constant masks -----------------------------------------------------------------------------


@graph_pass
def MasksAsNumbers(mod: ir.IRModule) -> ir.IRModule:
    """Choose by numbers where ``where`` has a constant mask: engines load no bools."""
    return rewritten(mod, _Masker)


@mutator
class _Masker(PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        """Return a choice by 1 and 0 for one by a constant of bools."""
        call = super().visit_call_(call)
        if operator_name(call) != "relax.where" or not isinstance(call.args[0], GenericConst):
            return call
        dtype, mask = str(call.ty.dtype), call.args[0].value.numpy()
        if dtype not in FLOATS or str(mask.dtype) != "bool":
            return call
        numbers = relax.const(mask.astype(numpy_dtype(dtype)), dtype)
        shape = [int(size) for size in call.ty.shape]
        values = [_as_number(each, shape) for each in call.args[1:]]
        return self.builder_.call_te(_chosen, numbers, *values, shape, primfunc_name_hint="where")


def _as_number(value: Any, shape: list[int]) -> Any:
    """Return the number of a constant without axes; anything else as it is.

    Kernels have no infinite constants: they load a row of them.
    """
    if not isinstance(value, GenericConst) or value.value.numpy().ndim:
        return value
    number, dtype = value.value.numpy(), str(value.ty.dtype)
    if not np.isfinite(number):
        return relax.const(np.full(shape[-1:], number), dtype)
    return tirx.const(float(number), dtype)


def _chosen(mask: Any, inside: Any, outside: Any, shape: list[int]) -> Any:
    """Return one array where a mask is not 0 and another one elsewhere; all are broadcast."""

    def at(data: Any, index: tuple[Any, ...]) -> Any:
        if not isinstance(data, te.Tensor):
            return data
        own = index[len(index) - len(data.shape) :]
        pairs = zip(own, data.shape, strict=True)
        return data(*(0 if int(size) == 1 else place for place, size in pairs))

    def element(*index: Any) -> Any:
        chosen = at(mask, index) != tirx.const(0, mask.dtype)
        return tirx.Select(chosen, at(inside, index), at(outside, index))

    return te.compute(shape, element, name="where")


# ---- Reading ------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, mod: ir.IRModule) -> None:
        self.mod, self.main = mod, mod["main"]
        self.arrays: dict[str, ArrayType] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.steps: list[Step] = []
        self.values: dict[int, Any] = {}
        self._constants: dict[tuple[Any, ...], str] = {}

    def graph(self) -> Graph:
        """Read everything."""
        inputs = tuple(self._input(param) for param in self.main.params)
        for block in self.main.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise _refusal(type(binding).__name__)
                self.values[handle(binding.var)] = self._value(binding.value)
        results = self._value(self.main.body.body)
        functions = {
            str(var.name_hint): func
            for var, func in self.mod.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        return Graph(
            inputs,
            tuple(results) if isinstance(results, list) else (results,),
            self.arrays,
            self.weights,
            tuple(self.steps),
            functions,
        )

    def _input(self, param: Any) -> str:
        name = self._new(_unused(str(param.name), self.arrays), param.ty)
        self.values[handle(param)] = name
        return name

    def _value(self, value: Any) -> Any:
        """Return the name of an array, or a list of names for a tuple."""
        if isinstance(value, relax.Var):
            return self.values[handle(value)]
        if isinstance(value, GenericConst):
            return self._constant(value)
        if isinstance(value, relax.Tuple):
            return [self._value(each) for each in value.fields]
        if isinstance(value, relax.TupleGetItem):
            return self._value(value.tuple_value)[int(value.index)]
        name = getattr(getattr(value, "op", None), "name", type(value).__name__)
        if isinstance(value, Call) and name == "relax.call_tir":
            return self._call(value)
        if isinstance(value, Call) and name == "relax.reshape":
            return self._step("", (self._value(value.args[0]),), [value.ty])[0]
        raise _refusal(name)

    def _call(self, call: Any) -> Any:
        inputs = tuple(self._value(each) for each in call.args[1].fields)
        result = call.ty_args[0]
        is_tuple = isinstance(result, relax.TupleType)
        fields = list(result.fields) if is_tuple else [result]
        outputs = self._step(str(call.args[0].name_hint), inputs, fields)
        return outputs if is_tuple else outputs[0]

    def _step(self, function: str, inputs: tuple[str, ...], types: Iterable[Any]) -> list[str]:
        outputs = []
        for each in types:
            outputs.append(self._new(_unused("t0", self.arrays), each))
        self.steps.append(Step(function, inputs, tuple(outputs)))
        return outputs

    def _new(self, name: str, type_: Any) -> str:
        shape = tuple(int(size) for size in type_.shape)
        self.arrays[name] = ArrayType(name, shape, str(type_.dtype))
        return name

    def _constant(self, constant: Any) -> str:
        """Return the name of a weight; equal ones are one."""
        data = as_numpy(constant.value)
        key = data.shape, str(constant.ty.dtype), data.tobytes()
        if key not in self._constants:
            name = _unused("w0", self.arrays)
            self.arrays[name] = ArrayType(name, data.shape, str(constant.ty.dtype))
            self.weights[name] = data
            self._constants[key] = name
        return self._constants[key]


def as_numpy(tensor: Any) -> np.ndarray:
    """Return a tensor of TVM as an array, of a type of `ml_dtypes` where numpy has none."""
    array = np.asarray(tensor.numpy())
    wanted = numpy_dtype(str(tensor.dtype))
    return array if array.dtype == wanted else array.view(wanted)


def _unused(wanted: str, taken: Mapping[str, Any]) -> str:
    """Return a name for an array: the wanted one, or that with the next number."""
    stem = wanted.rstrip("0123456789") or "x"
    stem = "".join(char if char.isalnum() else "_" for char in stem)
    stem = stem if stem.isidentifier() else f"x_{stem}"
    if wanted.isidentifier() and wanted not in taken:
        return wanted
    number = 0
    while f"{stem}{number}" in taken:
        number += 1
    return f"{stem}{number}"


def _refusal(what: str) -> ImportRefusal:
    return ImportRefusal(
        f"the model uses {what} between its functions: a package for Trainium has calls of "
        "functions on arrays only"
    )
