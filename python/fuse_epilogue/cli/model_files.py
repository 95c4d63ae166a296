"""Whole models and their inputs in files: what ``compile``, ``run`` and ``profile`` share."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import ir, relax

from .._progress import Progress
from ..neuron.machine import MACHINES
from . import inputs, output, targets

if TYPE_CHECKING:
    from ..models import CompiledModel, NeuronPackage, Signature
    from ..models.signature import ArrayType


class Refused(Exception):
    """A model that cannot be compiled, or a call of one that fails; the message says why."""


def compiled(given: argparse.Namespace) -> CompiledModel:
    """Return the model that a command line names, compiled.

    - Raises InputError: there is no such file or target, or it is not what its name says.
    - Raises Refused: the model cannot be compiled.
    """
    from ..models import DatabaseError, compiling

    named = targets.target(given.target)
    try:
        target = compiling.processor(named, given.threads)
    except ValueError as error:
        raise output.InputError(f"--target '{given.target}': {error}") from error
    mod = _imported(given.input, given.run_python, loops=target.kind.name == "llvm")
    mod = _with_sizes(mod, dict(given.size))
    bar = functools.partial(Progress().show, Path(given.input).name)
    try:
        return compiling.compile_imported(
            mod,
            target,
            compiling.Options(
                given.threads,
                sizes=_several(given.sizes),
                measure=given.measure,
                on_progress=bar,
                database=given.database,
                winograd=given.winograd,
            ),
        )
    except (DatabaseError, NotADirectoryError) as error:
        raise output.InputError(f"--database: {error}") from error
    except ValueError as error:
        raise Refused(f"'{given.input}': {error}") from error


def package(given: argparse.Namespace) -> NeuronPackage:
    """Return the model that a command line names as a package for its Trainium machine.

    - Raises InputError: there is no such file, or an option is for processors and GPUs.
    - Raises Refused: the model has no package.
    """
    from ..models.neuron.compiling import package_of

    for option in ("sizes", "measure", "database", "threads", "winograd"):
        if getattr(given, option):
            raise output.InputError(
                f"--{option} is not for models on Trainium: leave it out for {given.target}"
            )
    mod = _imported(given.input, given.run_python, loops=False)
    mod = _with_sizes(mod, dict(given.size))
    bar = functools.partial(Progress().show, Path(given.input).name)
    try:
        return package_of(mod, MACHINES[given.target], on_progress=bar)
    except ValueError as error:
        raise Refused(f"'{given.input}': {error}") from error


def _several(sizes: list[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]] | None:
    found: dict[str, tuple[int, ...]] = {}
    for name, values in sizes:
        found[name] = (*found.get(name, ()), *values)
    return found or None


def loaded(given: argparse.Namespace) -> CompiledModel:
    """Return the model that a command line names: as it was saved, or compiled.

    - Raises InputError, Refused: as :func:`compiled`; or it is not a saved model, or one of another
      version.
    """
    from ..models import SavedModelError, load

    path = Path(given.input)
    if given.input == inputs.STDIN or path.suffix in inputs.READERS or not path.is_file():
        return compiled(given)
    for option, value in (
        ("--size", given.size),
        ("--sizes", given.sizes),
        ("--measure", given.measure),
        ("--threads", given.threads),
        ("--winograd", given.winograd),
    ):
        if value:
            raise output.InputError(f"{option} is for a model to compile: '{path}' is compiled")
    try:
        model: CompiledModel = load(path)
        return model
    except SavedModelError as error:
        raise output.InputError(str(error)) from error


def _imported(path: str, run_python: bool, loops: bool) -> ir.IRModule:
    from ..models import ImportRefusal, import_model

    # What is not an ONNX model, or cannot be opened, is as for other commands.
    try:
        if Path(path).suffix == ".onnx" and Path(path).is_file():
            return import_model(path, loops=loops)
        return import_model(inputs.read(path, run_python), loops=loops)
    except ImportRefusal as error:
        if "cannot be read" in str(error) or "needs the package" in str(error):
            raise output.InputError(str(error)) from error
        raise Refused(str(error)) from error
    except output.InputError:
        raise
    except ValueError as error:
        raise Refused(f"'{path}': {error}") from error


def _with_sizes(mod: ir.IRModule, sizes: dict[str, int]) -> ir.IRModule:
    if not sizes:
        return mod
    from ..models.signature import signature_of

    named = signature_of(mod).names
    for name in sizes:
        if name not in named:
            raise output.InputError(
                f"--size {name}: no size of the inputs has this name, only "
                f"{', '.join(named) or 'numbers'}"
            )
    return relax.transform.BindSymbolicVars(sizes, "main")(mod)


def arrays(given: argparse.Namespace, signature: Signature) -> list[np.ndarray]:
    """Return the inputs that a command line gives a model.

    - Raises InputError: a file is missing or does not hold an array, or the model takes other
      arrays.
    """
    if not given.arrays:
        return _random(signature, given.seed)
    found: dict[str, np.ndarray] = {}
    names = [each.name for each in signature.inputs]
    for text in given.arrays:
        name, equals, path = text.partition("=")
        if not equals or name not in names:
            if equals and not Path(text).exists():
                raise output.InputError(
                    f"--input {text}: the model has no input '{name}', only {', '.join(names)}"
                )
            name, path = next((each for each in names if each not in found), ""), text
        if not name or name in found:
            raise output.InputError(
                f"--input {text}: the model takes {len(names)} arrays ({', '.join(names)}), each "
                "once"
            )
        found[name] = _array(path)
    missing = [name for name in names if name not in found]
    if missing:
        raise output.InputError(f"--input is missing for {', '.join(missing)}")
    ordered = [found[name] for name in names]
    try:
        signature.check([each.shape for each in ordered], [str(each.dtype) for each in ordered])
    except (TypeError, ValueError) as error:
        raise output.InputError(f"--input: {error}") from error
    return ordered


@contextlib.contextmanager
def named_indices() -> Iterator[None]:
    """Raise InputError where a call of a model finds an index outside of its array."""
    try:
        yield
    except IndexError as error:
        raise output.InputError(f"--input: {error}") from error


def _array(path: str) -> np.ndarray:
    try:
        made = np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise output.InputError(f"--input '{path}': no file of that name") from error
    except (OSError, ValueError, EOFError) as error:
        raise output.InputError(f"--input '{path}' is not an array in .npy: {error}") from error
    if not isinstance(made, np.ndarray):
        raise output.InputError(f"--input '{path}' holds several arrays: save each as .npy")
    return made


def _random(signature: Signature, seed: int) -> list[np.ndarray]:
    named = signature.names
    if named:
        raise output.InputError(
            f"the size {named[0]} of the inputs may be any number: give it one with --size "
            f"{named[0]}=N when compiling, or arrays with --input"
        )
    rng = np.random.default_rng(seed)
    return [_drawn(rng, each) for each in signature.inputs]


def _drawn(rng: np.random.Generator, array: ArrayType) -> np.ndarray:
    """Return normal numbers; for integers 0 and 1, which are indices of any table."""
    shape = [int(size) for size in array.shape]
    try:
        dtype = np.dtype(array.dtype)
    except TypeError as error:
        raise output.InputError(
            f"random numbers of type {array.dtype} are not known: give arrays with --input"
        ) from error
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def signature_data(signature: Signature) -> dict[str, Any]:
    """Return what a model takes and returns as JSON has it."""

    def listed(types: Sequence[ArrayType]) -> list[Any]:
        return [{**asdict(each), "shape": list(each.shape)} for each in types]

    return {"inputs": listed(signature.inputs), "outputs": listed(signature.outputs)}
