"""The part of a manifest that all saved models have: versions and the signature."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import tvm

from .. import _version
from .signature import ArrayType, Signature

#: Other packages whose versions a model depends on, and the distributions they come from.
_DISTRIBUTIONS = {"tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


class SavedModelError(ValueError):
    """A file that is not a saved model of this version; the message says which, and why."""


def versions() -> dict[str, str]:
    """Return the versions that machine code and plans depend on, by package."""
    others = {name: importlib.metadata.version(each) for name, each in _DISTRIBUTIONS.items()}
    return {"fuse_epilogue": _version.VERSION, **others}


def signature_data(signature: Signature) -> dict[str, Any]:
    """Return a signature as JSON has it."""

    def arrays(types: tuple[ArrayType, ...]) -> list[Any]:
        return [[each.name, list(each.shape), each.dtype] for each in types]

    return {
        "inputs": arrays(signature.inputs),
        "outputs": arrays(signature.outputs),
        "is_tuple": signature.is_tuple,
    }


def signature_from(data: dict[str, Any]) -> Signature:
    """Return the signature that :func:`signature_data` has made data of."""

    def arrays(types: list[Any]) -> tuple[ArrayType, ...]:
        for _, shape, dtype in types:
            tvm.DataType(dtype)  # or an error
            if any(type(size) is not str and (type(size) is not int or size < 0) for size in shape):
                raise ValueError(f"{shape} is not a shape")
        return tuple(ArrayType(name, tuple(shape), dtype) for name, shape, dtype in types)

    if not isinstance(data["is_tuple"], bool):
        raise TypeError("is_tuple must be true or false")
    return Signature(arrays(data["inputs"]), arrays(data["outputs"]), data["is_tuple"])
