"""Arrays of any library as arguments of compiled functions, and results as theirs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
import tvm_ffi

#: Compiled code loads and stores vectors of arrays that begin at a multiple of these bytes.
ALIGNMENT = 64


def as_argument(array: Any, on_gpu: bool = False) -> Any:
    """Return an array as a tensor that compiled code reads, in place if it can.

    An array that is not contiguous, or does not begin at a multiple of :data:`ALIGNMENT` bytes, is
    copied.

    - `array` (numpy.ndarray, torch.Tensor, tvm.runtime.Tensor or any object with ``__dlpack__``):
      in the memory of the processor, or for a GPU in either memory.
    - `on_gpu`: whether it is for a GPU: an array of the processor's memory is copied there.
    - Raises TypeError: `array` is not one of these, or is not in the memory of the processor.
    """
    if on_gpu:
        return _on_gpu(array)
    if isinstance(array, np.ndarray):
        return _from_numpy(array)
    if isinstance(array, tvm.runtime.Tensor):
        return array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _from_torch(array)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(
            f"arguments must be arrays of numpy, torch or another library with DLPack, not "
            f"{type(array).__name__}"
        )
    return _from_numpy(np.from_dlpack(array))


def _on_gpu(array: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor) and array.is_cuda:
        return tvm_ffi.from_dlpack(array.detach().resolve_conj().resolve_neg().contiguous())
    tensor = as_argument(array)
    return tensor if "cuda" in str(tensor.device) else tvm.runtime.tensor(tensor, tvm.cuda())


def _empty(shape: Sequence[int], dtype: str) -> Any:
    """Return a tensor without elements: libraries differ in its strides, which TVM compares."""
    return tvm.runtime.empty(tuple(shape), dtype)


def _from_numpy(array: np.ndarray) -> Any:
    if not array.size:
        return _empty(array.shape, str(array.dtype.newbyteorder("=")))
    if not array.flags.writeable or not array.flags.c_contiguous or array.ctypes.data % ALIGNMENT:
        return aligned_copy(array)
    if not array.dtype.isnative:
        return aligned_copy(array)
    return tvm_ffi.from_dlpack(array)


def aligned_copy(array: np.ndarray) -> Any:
    """Return a copy of an array as a tensor that begins at a multiple of :data:`ALIGNMENT`."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    copy = (
        memory[start : start + array.nbytes]
        .view(array.dtype.newbyteorder("="))
        .reshape(array.shape)
    )
    copy[...] = array
    return tvm_ffi.from_dlpack(copy)


def _from_torch(array: Any) -> Any:
    if array.is_quantized or array.layout is not sys.modules["torch"].strided:
        kind = "quantized" if array.is_quantized else f"of layout {array.layout}"
        raise TypeError(
            f"an argument is a tensor that is {kind}: a compiled model takes dense ones, "
            f"{'x.dequantize()' if array.is_quantized else 'x.to_dense()'}"
        )
    if array.device.type != "cpu":
        raise TypeError(
            f"an argument is on the device '{array.device}': a model compiled for a processor "
            "takes tensors in its memory, x.cpu()"
        )
    if not array.numel():
        return _empty(array.shape, str(array.dtype).removeprefix("torch."))
    if array.requires_grad:
        array = array.detach()
    if array.is_conj() or array.is_neg():
        array = array.resolve_conj().resolve_neg()
    if not array.is_contiguous():
        array = array.contiguous()
    if array.data_ptr() % ALIGNMENT:
        array = array.clone()  # torch's own memory is aligned
    return tvm_ffi.from_dlpack(array)


def _to_numpy(tensor: Any) -> np.ndarray:
    return np.from_dlpack(tensor)


def returner(array: Any, on_gpu: bool = False) -> Callable[[Any], Any]:
    """Return the function that makes arrays of the same library of results.

    - `array`: an argument of a call, as for :func:`as_argument`.
    - `on_gpu`: whether the results are on a GPU; for numpy they are copied from there.
    """
    if on_gpu and (array is None or isinstance(array, np.ndarray)):
        return _copied
    if isinstance(array, np.ndarray):
        return _to_numpy
    if isinstance(array, tvm.runtime.Tensor):
        return _same
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _to_torch
    if hasattr(array, "__array_namespace__"):
        found: Callable[[Any], Any] = array.__array_namespace__().from_dlpack
        return found
    return _to_numpy


def _to_torch(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    # TVM returns tensors of torch to a call with tensors of torch.
    return tensor if isinstance(tensor, torch.Tensor) else torch.from_dlpack(tensor)


def _copied(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.numpy())


def _same(tensor: Any) -> Any:
    return tensor


class ReadyInputs:
    """Recognises arrays that compiled code can read as they are: the common case, in about 1 us.

    - `types`: the shape and the type of each input. None are ready where a size has a name or is 0.
    """

    def __init__(self, types: Sequence[tuple[tuple[int | str, ...], str]]) -> None:
        """Prepare what arrays are compared with."""
        self._types = types
        self._fixed = all(isinstance(size, int) and size for shape, _ in types for size in shape)
        self._numpy = [(shape, np.dtype(dtype)) for shape, dtype in types if _in_numpy(dtype)]
        self._torch: list[tuple[Any, Any]] = []

    def numpy(self, inputs: Sequence[Any]) -> bool:
        """Return whether all inputs are arrays of numpy that fit and are aligned."""
        if not self._fixed or len(inputs) != len(self._numpy) or len(inputs) != len(self._types):
            return False
        for array, (shape, dtype) in zip(inputs, self._numpy, strict=True):
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return False
            # The flags of arrays that can be written, are aligned for their type and contiguous.
            if not (array.flags.carray and array.__array_interface__["data"][0] % ALIGNMENT == 0):
                return False
        return True

    def torch(self, inputs: Sequence[Any]) -> bool:
        """Return whether all inputs are tensors of torch that fit, aligned, without gradients."""
        torch = sys.modules.get("torch")
        if torch is None or not self._fixed or len(inputs) != len(self._types):
            return False
        if not self._torch:
            self._torch = [
                (torch.Size(shape), getattr(torch, dtype, None)) for shape, dtype in self._types
            ]
        for array, (shape, dtype) in zip(inputs, self._torch, strict=True):
            if not isinstance(array, torch.Tensor) or array.dtype is not dtype:
                return False
            if array.shape != shape or array.requires_grad or not array.is_contiguous():
                return False
            # The conjugate bit: what is in memory is not what the tensor says.
            if not array.is_cpu or array.data_ptr() % ALIGNMENT or array.is_conj():
                return False
        return True


def _in_numpy(dtype: str) -> bool:
    """Return whether numpy has a type itself; bfloat16, say, is a type of a package beside it."""
    try:
        np.dtype(dtype)
    except TypeError:
        return False
    return True
