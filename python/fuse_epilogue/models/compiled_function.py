"""A compiled function: called with arrays for its parameters, timed, saved."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from ..planner.plans import Plan
from ..tir.walk import handle, stored_to
from .arrays import as_argument, returner
from .compiled import export_library, has_gpu, is_for_gpu
from .report import ModelReport
from .signature import ArrayType, Signature
from .tir_main import read_early


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function, by what it does with them.

    - `signature`: all parameters as inputs, and as results those that a call may leave out: the
      last ones, if they are only written.
    - `written`: places of all that are written.
    - `scalars`: places of numbers.
    """

    signature: Signature
    written: tuple[int, ...]
    scalars: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of parameters that a call cannot leave out."""
        return len(self.signature.inputs) - len(self.signature.outputs)


def parameters_of(func: tirx.PrimFunc) -> Parameters:
    """Return what a function does with its parameters."""
    stored, early = stored_to(func.body), read_early(func)
    types, written, scalars = [], [], []
    for place, param in enumerate(func.params):
        shape = getattr(param.ty, "shape", None)
        if shape is None:
            scalars.append(place)
        elif handle(param) in stored:
            written.append(place)
        sizes = tuple(int(n) if isinstance(n, tirx.IntImm) else str(n) for n in shape or ())
        types.append(ArrayType(str(param.name), sizes, str(param.ty.dtype)))
    first = len(types)
    while first - 1 in written and handle(func.params[first - 1]) not in early:
        first -= 1
    results = tuple(types[first:])
    return Parameters(
        Signature(tuple(types), results, len(results) > 1), tuple(written), tuple(scalars)
    )


class CompiledFunction:
    """A function that is compiled for a processor or a GPU; `fuse_epilogue.compile` makes one.

    Call it with an array for each parameter, of numpy, torch or any library with DLPack, and it
    writes its results into those that are for results. Or leave these out, and it returns them.
    Contiguous arrays that begin at a multiple of 64 bytes, as those of torch do, are used in place;
    others are copied.

    Attributes
    ----------
    signature : Signature
        The parameters, and as results those that a call may leave out.
    report : ModelReport
        A table of this one function.
    target : str
        The target it is compiled for, as JSON.
    plan : fuse_epilogue.planner.Plan or None
        None if the planner does not know the function, or if it was loaded from a file.

    Example
    -------
    >>> import numpy as np
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> relu = fuse_epilogue.compile(workloads.matmul(4, 4, 4, activation="relu"))
    >>> a, b, bias = np.eye(4, dtype="float32"), np.ones((4, 4), "float32"), np.ones(4, "float32")
    >>> float(relu(a, b, bias).sum())
    32.0
    >>> y = np.empty((4, 4), "float32")
    >>> relu(a, b, bias, y)
    >>> float(y.sum())
    32.0
    """

    def __init__(
        self,
        module: Any,
        parameters: Parameters,
        report: ModelReport,
        target: str,
        plan: Plan | None = None,
        library: bytes | None = None,
    ) -> None:
        """Load the machine code; see :func:`fuse_epilogue.compile` and :func:`fuse_epilogue.load`.

        Parameters
        ----------
        module : tvm.runtime.Executable or tvm.runtime.Module
            Its "main" is the function.
        parameters : Parameters
        report, target, plan
            The attributes.
        library : bytes, optional
            The shared library that `module` was loaded from.
        """
        self.parameters = parameters
        self.signature = parameters.signature
        self.report = report
        self.target = target
        self.plan = plan
        self._module, self._library = module, library
        self._on_gpu = is_for_gpu(target)
        self._run = module["main"] if not self._on_gpu or has_gpu() else None

    def __getitem__(self, name: str) -> Any:
        """Return TVM's function of that name, "main", which takes tensors of TVM."""
        return self._module[name]

    def __call__(self, *arrays: Any) -> Any:
        """Run the function.

        Parameters
        ----------
        *arrays
            An array for each parameter, or for all but the results; a number where a parameter is
            one.

        Returns
        -------
        array or tuple of arrays or None
            The results that were left out, as arrays of the library of the first argument; elements
            that the function does not store hold anything. None if nothing was left out.

        Raises
        ------
        TypeError
            There are more or fewer arrays than parameters, or one is of another type or on another
            device.
        ValueError
            An array has another shape, or cannot be written.
        RuntimeError
            The function is for a GPU, and this machine has none.

        Example
        -------
        >>> import numpy as np
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> product = fuse_epilogue.compile(workloads.matmul(4, 4, 4))
        >>> a, bias = np.eye(4, dtype="float32"), np.ones(4, "float32")
        >>> product(a, a, bias).tolist()[0]
        [2.0, 1.0, 1.0, 1.0]
        """
        if self._run is None:
            raise RuntimeError(
                f"the function is compiled for {self.target}, and there is no such GPU here: save "
                "it and load it where there is one"
            )
        tensors = self._checked(arrays)
        left_out = tensors[len(arrays) :]
        self._run(*tensors)
        for place in self.parameters.written:
            if place < len(arrays):
                _copy_back(arrays[place], tensors[place])
        if not left_out:
            return None
        back = returner(arrays[0] if arrays else None, self._on_gpu)
        results = tuple(map(back, left_out))
        return results if self.signature.is_tuple else results[0]

    def _checked(self, arrays: Sequence[Any]) -> list[Any]:
        """Return an argument for each parameter, those that were left out as well."""
        types, count = self.signature.inputs, self.parameters.count
        if len(arrays) not in (count, len(types)):
            names = ", ".join(each.name for each in types)
            fewer = f", or the first {count} of them" if count < len(types) else ""
            raise TypeError(
                f"the function takes {len(types)} arrays ({names}){fewer}, not {len(arrays)}"
            )
        scalars = self.parameters.scalars
        tensors = [
            each if place in scalars else as_argument(each, self._on_gpu)
            for place, each in enumerate(arrays)
        ]
        kept = [place for place in range(len(arrays)) if place not in scalars]
        sizes = Signature(tuple(types[place] for place in kept), ()).check(
            [tuple(tensors[place].shape) for place in kept],
            [str(tensors[place].dtype) for place in kept],
        )
        for place in self.parameters.written:
            if place < len(arrays):
                _check_written(types[place], arrays[place], tensors[place])
        device = tvm.cuda() if self._on_gpu else tvm.cpu()
        for each in types[len(arrays) :]:
            tensors.append(tvm.runtime.empty(_shape(each, sizes), each.dtype, device))
        return tensors

    def profile(self, *arrays: Any, repeats: int = 11) -> ModelReport:
        """Measure the function, and return the report with its time, which is kept as well.

        It runs several times: an array that it updates in place is updated in each run.

        Parameters
        ----------
        *arrays
            As for a call.
        repeats : int
            Runs of which the median counts, after one that is not measured.

        Returns
        -------
        ModelReport

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As a call; or `repeats` is below 1.

        Example
        -------
        >>> import numpy as np
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> product = fuse_epilogue.compile(workloads.matmul(4, 4, 4))
        >>> zeros = np.zeros((4, 4), "float32")
        >>> product.profile(zeros, zeros, zeros[0], repeats=3).measured
        True
        """
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise ValueError(f"repeats must be an integer from 1, not {repeats!r}")
        self(*arrays)
        module = self._module.jit() if hasattr(self._module, "jit") else self._module
        device = tvm.cuda() if self._on_gpu else tvm.cpu()
        timed = module.time_evaluator("main", device, number=1, repeat=repeats)
        seconds = statistics.median(timed(*self._checked(arrays)).results)
        (function,) = self.report.functions
        self.report = self.report.with_measured({function.name: seconds})
        return self.report

    def export_library(self, path: str | Path) -> None:
        """Link the machine code as a shared library for TVM's runtime.

        Parameters
        ----------
        path : str or pathlib.Path
            Ends in ``.so``.

        Raises
        ------
        RuntimeError
            There is no C++ compiler, or it fails.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> fuse_epilogue.compile(workloads.matmul(4, 4, 4)).export_library("product.so")
        """
        export_library(self._module, self._library, path)

    def save(self, path: str | Path) -> None:
        """Save the function to one file, which :func:`fuse_epilogue.load` reads.

        Parameters
        ----------
        path : str or pathlib.Path
            If it ends in ``.so``, the file is also a shared library for TVM's runtime.

        Raises
        ------
        OSError
            The file cannot be written.
        RuntimeError
            There is no C++ compiler to link with.

        Example
        -------
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> product = fuse_epilogue.compile(workloads.matmul(4, 4, 4))
        >>> product.save("product.fe")
        >>> fuse_epilogue.load("product.fe").signature == product.signature
        True
        """
        from .saved import save

        save(self, path)

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied, as machine code cannot be."""
        raise TypeError(
            "a compiled function is neither pickled nor copied: save it, and load the file"
        )

    def __repr__(self) -> str:
        """Return the signature."""
        return f"<CompiledFunction {self.signature}>"


def _shape(result: ArrayType, sizes: Mapping[str, int]) -> tuple[int, ...]:
    unknown = [size for size in result.shape if isinstance(size, str) and size not in sizes]
    if unknown:
        raise TypeError(
            f"the size '{unknown[0]}' of '{result.name}' is not one of another parameter: pass an "
            "array for it"
        )
    return tuple(sizes[size] if isinstance(size, str) else size for size in result.shape)


def _check_written(expected: ArrayType, array: Any, tensor: Any) -> None:
    """Refuse an array that the function would write without anybody seeing it."""
    if isinstance(array, np.ndarray):
        if not array.flags.writeable:
            raise ValueError(f"'{expected.name}' is written, and this array is read-only: copy it")
        return
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.requires_grad:
            raise ValueError(
                f"'{expected.name}' is written, and this tensor requires a gradient: x.detach()"
            )
        return
    if not isinstance(array, tvm.runtime.Tensor) and (
        not hasattr(array, "__array_interface__")
        or array.__array_interface__["data"][0] != tensor.data_ptr()
    ):
        raise ValueError(
            f"'{expected.name}' is written: pass an array of numpy, torch or TVM, from which "
            "another library takes it without a copy"
        )


def _copy_back(array: Any, tensor: Any) -> None:
    """Write what a function has stored into a copy to the array it is of."""
    if isinstance(array, np.ndarray):
        if array.size and array.ctypes.data != tensor.data_ptr():
            array[...] = np.from_dlpack(tensor)
        return
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.numel() and array.data_ptr() != tensor.data_ptr():
            array.copy_(torch.from_dlpack(tensor))
