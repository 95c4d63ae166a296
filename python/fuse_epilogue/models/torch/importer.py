"""Imports exported programs of torch into Relax, and compares what each operator became.

TVM's importer takes some operators for others: what it makes of an operator must have the shape and
the type that torch says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tvm import ir, prim, relax

from ..import_refusal import ImportRefusal
from .constants import constant_converters, with_tensors_only
from .symbols import ImporterWithSizes

#: Types that values are converted between without another meaning.
_GROUPS = (
    ("float16", "bfloat16", "float32", "float64"),
    ("int8", "uint8", "int16", "int32", "int64"),
    ("bool",),
)

Converter = Callable[[Any, Any], Any]


class _Importer(ImporterWithSizes):
    """An importer whose constants do not share the memory of a module's parameters."""

    def _convert_pytorch_tensor_to_tvm(self, tensor_value: Any) -> Any:
        return super()._convert_pytorch_tensor_to_tvm(tensor_value.detach().clone())


def relax_module(exported: Any, converters: dict[str, Converter]) -> ir.IRModule:
    """Return an exported program as a module of Relax.

    - `exported` (torch.export.ExportedProgram): in core operators.
    - `converters`: by the names of operators, functions of a node and the importer that return what
      the node becomes; for those that TVM's importer does not know, or not rightly.
    - Raises ImportRefusal: an operator is not known.
    - Raises ValueError: an operator becomes something of another shape or type than in torch.
    """
    exported = with_tensors_only(exported)
    importer = _Importer()
    known = {name: _of_node(convert) for name, convert in importer.convert_map.items()}
    known |= converters
    known |= {name: _with_sizes_as_tensors(known[name]) for name in _ARITHMETIC}
    known |= constant_converters(exported, known)
    _refuse_unknown(exported, known)
    checked = {name: _checked(convert, importer) for name, convert in known.items()}
    return importer.from_exported_program(exported, False, True, False, checked)


def _refuse_unknown(exported: Any, known: Collection[str]) -> None:
    """Refuse operators that have no converter, by their names and with the reason."""
    reasons: dict[str, str] = {}
    for node in exported.graph.nodes:
        if node.op == "call_function" and node.target.__name__ not in known:
            is_operator = hasattr(node.target, "tags")
            name = str(node.target).removesuffix(".default")
            name = name if is_operator else str(node.target.__name__)
            reasons.setdefault(name, f"{name}{_reason(node)}")
    if reasons:
        names = ", ".join(reasons.values())
        raise ImportRefusal(
            f"Relax cannot import the exported program: not supported: {names}",
            "; compute that outside of the model: "
            'torch.compile(model, backend="fuse_epilogue") leaves such graphs to torch',
        )


def _reason(node: Any) -> str:
    """Return why there is no operator like it in Relax, as far as that can be said."""
    import torch

    name = node.target.__name__ if not hasattr(node.target, "tags") else str(node.target)
    for beginning, hint in _HINTS.items():
        if name.startswith(beginning):
            return f" ({hint})"
    values = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    tags = getattr(node.target, "tags", ())
    if any(each.dtype.is_complex for each in tensors):
        return " (complex numbers)"
    if torch.Tag.nondeterministic_seeded in tags:
        return " (random numbers)"
    if torch.Tag.dynamic_output_shape in tags or torch.Tag.data_dependent_output in tags:
        return " (its size depends on data)"
    return ""


#: Operators that torch has for a tensor and a size too.
_ARITHMETIC = ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor")
#: By the beginning of an operator's name, how a model does without it.
_HINTS = {
    "aten._transformer_encoder_layer_fwd": "torch.backends.mha.set_fastpath_enabled(False) "
    "has it written out",
    "transformers.grouped_mm": "a model of transformers needs none with "
    "experts_implementation='batched_mm'",
}


def _of_node(convert: Callable[[Any], Any]) -> Converter:
    return lambda node, _importer: convert(node)


def _with_sizes_as_tensors(convert: Converter) -> Converter:
    """Return a converter of an operator on tensors, one of which may be a size that has a name."""

    def run(node: Any, importer: Any) -> Any:
        import torch

        emit, env = importer.block_builder.emit, importer.env
        operands = node.all_input_nodes
        sizes = {x: env[x] for x in operands if isinstance(x.meta.get("val"), torch.SymInt)}
        for each, size in sizes.items():
            number = emit(relax.op.shape_to_tensor(relax.ShapeExpr([size])))
            dtype = str(node.meta["val"].dtype).removeprefix("torch.")
            env[each] = emit(relax.op.reshape(relax.op.astype(number, dtype), []))
        result = convert(node, importer)
        env.update(sizes)
        return result

    return run


def _checked(convert: Converter, importer: ImporterWithSizes) -> Callable[..., Any]:
    def run(node: Any, _importer: Any = None) -> Any:
        import torch

        expected = node.meta.get("val")
        size = importer.sizes.of(expected) if isinstance(expected, torch.SymInt) else None
        return _as_in_torch(node, convert(node, importer), importer) if size is None else size

    return run


def _as_in_torch(node: Any, value: Any, importer: ImporterWithSizes) -> Any:
    """Return a value of the type that a node has in torch; raise an error if it is another."""
    import torch

    expected, emit = node.meta.get("val"), importer.block_builder.emit
    if not isinstance(expected, torch.Tensor) or not isinstance(value, relax.Expr):
        return value
    if isinstance(value, relax.Call):
        value = emit(value)
    found = value.ty
    if not isinstance(found, relax.TensorType):
        return value
    if found.shape is not None and not _same_shape(found.shape, expected.shape):
        sizes = [int(size) if isinstance(size, prim.IntImm) else str(size) for size in found.shape]
        raise ValueError(
            f"{node.target} is imported with the shape {tuple(sizes)} instead of "
            f"{tuple(expected.shape)}: not supported"
        )
    value = _of_known_size(value, expected.shape, importer)
    wanted = str(expected.dtype).removeprefix("torch.")
    dtype = str(found.dtype.dtype)
    if dtype == wanted:
        return value
    if not any(dtype in group and wanted in group for group in _GROUPS):
        raise ValueError(
            f"{node.target} is imported with the type {dtype} instead of {wanted}: not supported"
        )
    return emit(relax.op.astype(value, wanted))


def _of_known_size(value: Any, expected: Any, importer: ImporterWithSizes) -> Any:
    """Return a value of the shape that torch knows, where Relax knows none or finds another.

    Relax does not know the range of a size, and gives up where two sizes are equal for a reason
    that it does not find.
    """
    found = value.ty.shape
    if found is not None and all(isinstance(size, prim.IntImm) for size in found):
        return value
    sizes = importer.sizes.shape(expected)
    if sizes is None or (
        found is not None and all(map(importer.sizes.are_equal, list(found), sizes))
    ):
        return value
    return importer.block_builder.match_cast(value, relax.TensorType(sizes, str(value.ty.dtype)))


def _same_shape(found: Any, expected: Any) -> bool:
    """Return whether all dimensions known to both have equal sizes."""
    sizes = list(found)
    if len(sizes) != len(expected):
        return False
    return all(
        not (isinstance(size, prim.IntImm) and isinstance(other, int)) or int(size) == other
        for size, other in zip(sizes, expected, strict=True)
    )
