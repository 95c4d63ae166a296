"""Imports models into Relax: from torch, ONNX, and TVM's own modules."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, relax, tirx

from .._interrupts import raise_interrupt
from .import_refusal import ImportRefusal
from .tir_main import with_relax_main
from .torch import operators
from .torch.sizes import dimension_names


def import_model(
    model: Any,
    example_inputs: Sequence[Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    loops: bool = True,
) -> ir.IRModule:
    """Return a model as a module of Relax whose function "main" is the model.

    Parameters
    ----------
    model : tvm.tirx.PrimFunc, tvm.ir.IRModule, ExportedProgram, torch.nn.Module, ModelProto or path
        A path is that of an ONNX model. Weights become constants of the module.
    example_inputs : Sequence, optional
        Arguments that a torch module is exported with; for torch modules only.
    dynamic_shapes : optional
        As ``torch.export.export`` takes it; for torch modules only.
    loops : bool
        Whether a recurrent layer becomes a function with a loop over its steps, for processors.
        Otherwise those of torch are written out step by step, and those of ONNX are refused.

    Returns
    -------
    tvm.ir.IRModule
        If sizes of the inputs are known only as multiples of names, such as ``32*d``, the last
        parameter of "main" is the shape of these names.

    Raises
    ------
    TypeError
        `model` is not one of these.
    ImportRefusal
        The model uses something that Relax cannot represent, `example_inputs` is missing or
        superfluous, or a package is missing.

    Example
    -------
    >>> from fuse_epilogue import workloads
    >>> from fuse_epilogue.models import import_model
    >>> mod = import_model(workloads.matmul(8, 8, 8))
    >>> [param.name for param in mod["main"].params]
    ['a', 'b', 'bias']
    """
    if _is_torch(model, "nn.Module"):
        return _from_torch(model, example_inputs, dynamic_shapes, loops)
    for name, value in (("example_inputs", example_inputs), ("dynamic_shapes", dynamic_shapes)):
        if value is not None:
            raise ImportRefusal(
                f"{name} is for torch modules: leave it out for {type(model).__name__}"
            )
    if isinstance(model, tirx.PrimFunc):
        return with_relax_main(tvm.IRModule({"main": model}))
    if isinstance(model, ir.IRModule):
        return _from_module(model)
    if _is_torch(model, "export.ExportedProgram"):
        return _from_exported(model, loops)
    if isinstance(model, str | os.PathLike):
        return _from_onnx(_read_onnx(Path(model)), f"'{os.fspath(model)}'", loops)
    if _is_onnx(model):
        return _from_onnx(model, f"the ONNX model '{model.graph.name}'", loops)
    raise TypeError(
        "model must be a PrimFunc, an IRModule, a torch ExportedProgram, a torch module, an ONNX "
        f"model or the path of one, not {type(model).__name__}"
    )


def _is_torch(model: Any, name: str) -> bool:
    """Return whether an object is of a class of torch, without importing torch for others."""
    import sys

    found: Any = sys.modules.get("torch")
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)


def _is_onnx(model: Any) -> bool:
    return type(model).__name__ == "ModelProto" and hasattr(model, "graph")


def _from_module(mod: ir.IRModule) -> ir.IRModule:
    relax_functions = [
        var.name_hint for var, func in mod.functions.items() if isinstance(func, relax.Function)
    ]
    if "main" in relax_functions:
        return _with_bound_params(mod)
    if relax_functions:
        raise ImportRefusal(
            f"the module's Relax functions are {', '.join(relax_functions)}: name the model 'main'"
        )
    return with_relax_main(mod)


def _with_bound_params(mod: ir.IRModule) -> ir.IRModule:
    """Return a module with the weights that a frontend keeps beside it bound as constants."""
    if "params" not in (mod["main"].attrs or {}):
        return mod
    bare, params = relax.frontend.detach_params(mod)
    func = bare["main"]
    count = int((func.attrs or {}).get("num_input", len(func.params)))
    names = [param.name for param in func.params[count:]]
    bound = dict(zip(names, params["main"], strict=True))
    return relax.transform.BindParams("main", bound)(bare)


def _from_torch(
    module: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any, loops: bool
) -> ir.IRModule:
    import torch

    name = type(module).__name__
    if example_inputs is None:
        raise ImportRefusal(
            f"the torch module {name} needs example_inputs=(x, ...) to be exported with"
        )
    if not isinstance(example_inputs, tuple | list):
        raise ImportRefusal(
            "example_inputs must be a tuple of arguments, such as (x,), not "
            f"{type(example_inputs).__name__}"
        )
    if module.training:
        raise ImportRefusal(
            f"the torch module {name} is in training mode, which dropout and batch norm depend on: "
            f"call {name}.eval() first"
        )
    try:
        with torch.no_grad():
            exported = torch.export.export(
                module, _without_repeats(example_inputs), dynamic_shapes=dynamic_shapes
            )
    except Exception as error:
        way_out = ""
        if "data-dependent" in str(error):
            way_out = (
                '; torch.compile(model, backend="fuse_epilogue") leaves such branches to torch'
            )
        if "Constraints violated" in str(error):
            way_out = "; say with torch.export.Dim(name, min=..., max=...) which sizes there are"
        if "in output, which is not a known type" in str(error):
            way_out = "; return tensors, for a model of transformers with config.use_cache = False"
        if "Unsupported input type <class 'numpy.ndarray'>" in str(error):
            way_out = "; example_inputs are tensors of torch: torch.from_numpy(x)"
        raise _refusal(f"torch.export cannot export {name}", error, way_out) from error
    mod = _from_exported(exported, loops)
    names = dimension_names(exported, dynamic_shapes)
    return relax.transform.BindSymbolicVars(names, "main")(mod) if names else mod


def _without_repeats(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments in which no tensor is there twice.

    torch.export takes arguments that are one tensor for one argument, whatever a call passes.
    """
    import torch

    seen: set[int] = set()

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or id(value) not in seen:
            seen.add(id(value))
            return value
        return value.clone()

    made: tuple[Any, ...] = torch.utils._pytree.tree_map(own, tuple(inputs))
    return made


def _from_exported(exported: Any, loops: bool) -> ir.IRModule:
    import torch

    from .torch.importer import relax_module

    try:
        with torch.no_grad(), warnings.catch_warnings():
            # torch warns of its own class where it copies a program, and its user can do nothing.
            warnings.filterwarnings("ignore", ".*LeafSpec", FutureWarning)
            core = operators.decomposed(exported, loops)
            _refuse_changes(core)
            return relax_module(core, operators.converters())
    except ImportRefusal:
        raise
    except Exception as error:
        raise _refusal("Relax cannot import the exported program", error) from error


def _refuse_changes(exported: Any) -> None:
    """Refuse an exported program that changes inputs or buffers: its model would return them."""
    signature = exported.graph_signature
    changed = {**signature.buffers_to_mutate, **signature.user_inputs_to_mutate}
    if changed:
        names = ", ".join(f"'{name}'" for name in changed.values())
        raise ImportRefusal(
            f"the exported program changes {names} in place: a compiled model only returns "
            "results; return the new value instead"
        )


def _read_onnx(path: Path) -> Any:
    if path.is_dir():
        raise ImportRefusal(
            f"'{path}' is a folder: name an ONNX file in it; fuse_epilogue.load reads a package "
            "for Trainium"
        )
    if path.suffix in (".fe", ".so") and path.is_file():
        raise ImportRefusal(f"'{path}' is named as a compiled model: fuse_epilogue.load reads it")
    try:
        import onnx
    except ImportError as error:
        raise ImportRefusal(f"'{path}' needs the package onnx: pip install onnx") from error
    if not path.is_file():
        raise ImportRefusal(f"'{path}': no file of that name")
    try:
        return onnx.load(str(path))
    except Exception as error:
        raise _refusal(f"'{path}' cannot be read as ONNX", error) from error


def _from_onnx(model: Any, what: str, loops: bool) -> ir.IRModule:
    from .onnx.importer import relax_module

    try:
        return relax_module(model, loops)
    except Exception as error:
        raise _refusal(f"Relax cannot import {what}", error) from error


def _refusal(what: str, error: Exception, way_out: str = "") -> ImportRefusal:
    """Return a refusal with the reason that a frontend gives, without its backtrace."""
    raise_interrupt(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "nsupported" in line or "not supported" in line]
    if lines and lines[0].startswith("Constraints violated"):
        # Which of them is said afterwards, in a list.
        reasons += [line.lstrip("- ") for line in lines if line.startswith("- ")]
    # Backtraces of TVM's C++ come before the message, explanations of torch after it.
    is_backtrace = bool(lines) and lines[0].startswith("Traceback")
    reason = (reasons or (lines[-1:] if is_backtrace else lines) or ["no message"])[0]
    if isinstance(error, KeyError):
        reason = f"{reason} is not known to the importer"
    return ImportRefusal(f"{what}: {reason} ({type(error).__name__})", way_out)
