"""Makes one PrimFunc of several operators of Relax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, relax, te, tirx, topi
from tvm.ir import Call, GenericConst, PrimType

from ...tir.affine import is_constant
from ...tir.build import with_fields
from ...tir.shapes import axis_groups
from ...tir.walk import handle, operator_name, variables
from .cleanup import FoldNoOps
from .constant_masks import ALL_TRUE, mask_element
from .rewriting import OPAQUE, is_tensor, known_shape, with_arguments
from .unflattened import UnflattenProducts


def operands(group: Sequence[Any]) -> list[Any]:
    """Return what bindings read of others, in the order in which it is read first.

    Constants are among them, except those whose elements are written out.

    - `group`: bindings to calls of operators, in order.
    """
    own = {handle(each.var) for each in group}
    found: dict[int, Any] = {}
    for each in group:
        for argument in each.value.args:
            other = is_tensor(argument) and handle(argument) not in own
            if other or (
                isinstance(argument, GenericConst) and not _is_written_out(each.value, argument)
            ):
                found.setdefault(handle(argument), argument)
    return list(found.values())


def _is_written_out(call: Any, constant: Any) -> bool:
    """Whether the elements of a constant are expressions in the function: numbers, and masks."""
    if constant.ty.ndim == 0:
        return True
    return call.op.name in _OF_MASKS and mask_element(constant) is not None


def one_function(group: Sequence[Any], results: Sequence[Any] = ()) -> Any:
    """Return a PrimFunc of the operands that computes some bindings.

    - `group`: bindings to calls of operators, in order.
    - `results`: the bindings that the function returns: the last one if there are none.
    - Returns: None if a shape is not known, or an operator has no PrimFunc. Between its operands
      and its results, the function has a parameter for each size with a name that is part of a
      shape, as in ``batch * 16``, but no whole dimension.
    """
    inputs = operands(group)
    if any(known_shape(each) is None for each in (*inputs, *(each.var for each in group))):
        return None
    passes = ir.transform.Sequential(
        [
            UnflattenProducts(),
            FoldNoOps(),
            relax.transform.LegalizeOps({**_OF_MASKS, "relax.reshape": _reshape}),
        ]
    )
    mod = passes(_module(group, inputs, results or group[-1:]))
    inner = mod["main"].without_attr("global_symbol").with_attr("Primitive", True)
    bindings = [each for block in inner.body.blocks for each in block.bindings]
    if any(operator_name(each.value) != "relax.call_tir" for each in bindings):
        return None
    if _has_constants(inner):
        return None
    return _fused(mod, inner)


def _has_constants(func: Any) -> bool:
    """Return whether a function reads a tensor that is not one of its operands."""
    found: list[Any] = []
    relax.analysis.post_order_visit(func, found.append)
    return any(isinstance(each, GenericConst) for each in found)


def call_of(
    group: Sequence[Any], results: Sequence[Any], func: Any, builder: Any, name: str
) -> list[Any]:
    """Return the bindings of the results of a group to the call of its function.

    - `func`: PrimFunc by :func:`one_function`. It is as it is wanted: FuseOps would join operators
      that its kernel lacks.
    - `builder` (tvm.relax.BlockBuilder): the function is added to it, by a name like `name`.
    """
    place = builder.add_func(func.with_attr("op_pattern", OPAQUE), name)
    types = [each.var.ty for each in results]
    inputs = operands(group)
    sizes = _sizes_of([*inputs, *(each.var for each in results)], func)
    call = relax.call_tir(place, [*inputs, *sizes], types if len(types) > 1 else types[0])
    if len(results) == 1:
        return [relax.VarBinding(results[0].var, call)]
    call = builder.normalize(call)
    var = relax.DataflowVar(name, call.ty)
    items = [builder.normalize(relax.TupleGetItem(var, n)) for n in range(len(results))]
    made = [relax.VarBinding(each.var, item) for each, item in zip(results, items, strict=True)]
    return [relax.VarBinding(var, call), *made]


def _sizes_of(tensors: Sequence[Any], func: Any) -> list[Any]:
    """Return the caller's names of the sizes that are parameters of a function."""
    buffers = [each for each in func.params if not isinstance(each.ty, PrimType)]
    table: dict[int, Any] = {}
    for buffer, tensor in zip(buffers, tensors, strict=True):
        for own, size in zip(buffer.shape, known_shape(tensor) or (), strict=True):
            pairs = zip(variables(own), variables(size), strict=True)
            table.update((handle(inner), outer) for inner, outer in pairs)
    return [table[handle(each)] for each in func.params if isinstance(each.ty, PrimType)]


def _with_sizes(func: Any, results: int) -> Any:
    """Return a function with parameters for sizes that no buffer has as a dimension."""
    sizes = [size for param in func.params for size in param.shape]
    whole = {handle(size) for size in sizes}
    found = {handle(var): var for size in sizes for var in variables(size)}
    missing = [var for key, var in found.items() if key not in whole]
    first = len(func.params) - results
    return with_fields(func, params=[*func.params[:first], *missing, *func.params[first:]])


def in_place_of(bindings: Sequence[Any], group: Sequence[Any], made: Sequence[Any]) -> list[Any]:
    """Return bindings with others in place of a group, before all that wait for it."""
    own = {handle(each.var) for each in group}
    waits = set(own)
    before, after = [], []
    for each in bindings:
        if handle(each.var) in own:
            continue
        if waits & {handle(var) for var in relax.analysis.free_vars(each.value)}:
            waits.add(handle(each.var))
            after.append(each)
        else:
            before.append(each)
    return [*before, *made, *after]


def _module(group: Sequence[Any], inputs: list[Any], results: Sequence[Any]) -> ir.IRModule:
    """Return a module whose function "main" computes some bindings of a group."""
    outputs = {handle(each.var) for each in results}
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{number}", each.ty) for number, each in enumerate(inputs)]
    table = {handle(each): param for each, param in zip(inputs, params, strict=True)}
    with builder.function("main", params):
        with builder.dataflow():
            for each in group:
                emit = builder.emit_output if handle(each.var) in outputs else builder.emit
                table[handle(each.var)] = emit(_of(each.value, table))
        found = [table[handle(each.var)] for each in results]
        builder.emit_func_output(found[0] if len(found) == 1 else relax.Tuple(found))
    return builder.get()


def _of(call: Any, table: dict[int, Any]) -> Any:
    """Return a call with its operands replaced."""

    def operand(each: Any) -> Any:
        if isinstance(each, GenericConst) and _is_written_out(call, each):
            return each
        return table.get(handle(each), each)

    return with_arguments(call, list(map(operand, call.args)))


def _fused(mod: ir.IRModule, inner: Any) -> Any:
    """Return the PrimFunc that TVM makes of a function of Relax."""
    functions = {var: func for var, func in mod.functions.items() if var.name_hint != "main"}
    builder = relax.BlockBuilder(ir.IRModule(functions))
    place = builder.add_func(inner, "attention")
    params = [relax.Var(str(param.name), param.ty) for param in inner.params]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(Call(place, params))
        builder.emit_func_output(result)
    done = relax.transform.FuseTIR()(builder.get())
    found = [func for func in done.functions.values() if isinstance(func, tirx.PrimFunc)]
    results = len(inner.ret_ty.fields) if isinstance(inner.ret_ty, relax.TupleType) else 1
    # TVM leaves out a parameter that nothing reads.
    if len(found) != 1 or len(found[0].params) != len(params) + results:
        return None
    if any(isinstance(each.ty, PrimType) for each in found[0].params):
        return None
    return _with_sizes(found[0], results)


def _where(builder: Any, call: Any) -> Any:
    """Legalize a choice; elements of constants that are known become part of the function."""
    if _element(call.args[0]) is ALL_TRUE:
        return relax.op.broadcast_to(call.args[1], list(call.ty.shape))
    return _by_elements(builder, call, tirx.Select)


def _add(builder: Any, call: Any) -> Any:
    """Legalize a sum, likewise."""
    return _by_elements(builder, call, lambda a, b: a + b)


def _by_elements(builder: Any, call: Any, of: Callable[..., Any]) -> Any:
    """Return the call of a function that computes each element of some operands' elements."""
    known = [_element(each) for each in call.args]
    tensors = [each for each, element in zip(call.args, known, strict=True) if element is None]

    def compute(*given: Any) -> Any:
        rest = iter(given)
        elements = [each if each is not None else _broadcast(next(rest)) for each in known]
        return te.compute(
            list(call.ty.shape), lambda *axes: of(*(each(*axes) for each in elements)), name
        )

    name = call.op.name.removeprefix("relax.")
    return builder.call_te(compute, *tensors, primfunc_name_hint=name)


#: Operators of which constant masks are operands, and how they are legalized.
_OF_MASKS = {"relax.where": _where, "relax.add": _add}


def _reshape(builder: Any, call: Any) -> Any:
    """Legalize a reshape by the groups of axes that it splits or joins.

    TVM numbers all elements and divides by sizes. No proof sees through that, and of symbolic sizes
    nothing simplifies it:

        y[b, i, h, d] = x[b, i, h * 64 + d]    and not    x[((b * n + i) * 8 + h) // (n * 8), ...]
    """
    before, after = list(call.args[0].ty.shape), list(call.ty.shape)
    groups = axis_groups(before, after)

    def reshape(source: Any) -> Any:
        if groups is None:
            return topi.reshape(source, after)
        return te.compute(after, lambda *axes: source(*_indices(groups, before, after, axes)))

    return builder.call_te(reshape, call.args[0], primfunc_name_hint="reshape")


def _indices(
    groups: list[tuple[range, range]], before: Sequence[Any], after: Sequence[Any], axes: Any
) -> list[Any]:
    """Return the indices of an element before a reshape, from those after it."""
    found: list[Any] = []
    for own, others in groups:
        number: Any = tirx.const(0, "int64")
        for axis in others:
            if not is_constant(after[axis], 1):
                number = number * after[axis] + axes[axis]
        found += _split(number, [before[axis] for axis in own])
    return found


def _split(number: Any, sizes: Sequence[Any]) -> list[Any]:
    """Return the indices of an element of some axes by its number."""
    found: list[Any] = []
    wide = [at for at, size in enumerate(sizes) if not is_constant(size, 1)]
    for at in reversed(range(len(sizes))):
        if at not in wide:
            found.append(tirx.const(0, "int64"))
        elif at == wide[0]:
            found.append(number)
        else:
            found.append(tirx.floormod(number, sizes[at]))
            number = tirx.floordiv(number, sizes[at])
    return found[::-1]


def _element(value: Any) -> Callable[..., Any] | None:
    """Return the element of a constant by axes of a result, None if it is read from memory."""
    if not isinstance(value, GenericConst):
        return None
    if value.ty.ndim > 0:
        return mask_element(value)
    number = tirx.const(value.value.numpy().item(), str(value.ty.dtype))
    return lambda *_axes: number


def _broadcast(tensor: Any) -> Callable[..., Any]:
    """Return the element of a tensor that is broadcast to more or longer axes."""

    def element(*axes: Any) -> Any:
        own = axes[len(axes) - len(tensor.shape) :]
        indices = [
            tirx.const(0, "int64") if is_constant(size, 1) else axis
            for size, axis in zip(tensor.shape, own, strict=True)
        ]
        return tensor(*indices)

    return element
