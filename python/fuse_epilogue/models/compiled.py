"""A compiled model: called with arrays, profiled, saved."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.support import cc

from .arrays import ReadyInputs, as_argument, returner
from .index_errors import with_index
from .report import ModelReport
from .signature import Signature, with_sizes
from .sizes import function_name, label_of


@dataclass(frozen=True)
class _Entry:
    """A function of the virtual machine that computes the model.

    - `sizes`: the sizes that it is for; empty if it is for all.
    - `ready`: recognises arrays that it can read as they are.
    """

    sizes: dict[str, int]
    run: Callable[..., Any]
    ready: ReadyInputs

    def is_for(self, sizes: Mapping[str, int]) -> bool:
        return all(sizes[name] == size for name, size in self.sizes.items())


class CompiledModel:
    """A model that is compiled for a processor or a GPU; :func:`fuse_epilogue.compile` makes one.

    Call it with an array for each input, of numpy, torch or any library with DLPack. Results are
    arrays of the library of the first argument. Contiguous arrays that begin at a multiple of 64
    bytes, as those of torch do, are read in place; others are copied. Calls from several threads
    run one after the other.

    Attributes
    ----------
    signature : Signature
    report : ModelReport
    target : str
        The target it is compiled for, as JSON.
    sizes : tuple[dict[str, int], ...]
        Combinations of sizes for which it has specialised functions.

    Example
    -------
    >>> import numpy as np
    >>> import tvm
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> func = workloads.matmul(4, 4, 4, activation="relu")
    >>> model = fuse_epilogue.compile(tvm.IRModule({"main": func}))
    >>> a, b, bias = np.eye(4, dtype="float32"), np.ones((4, 4), "float32"), np.ones(4, "float32")
    >>> float(model(a, b, bias).sum())
    32.0
    """

    def __init__(
        self,
        module: Any,
        signature: Signature,
        report: ModelReport,
        target: str,
        library: bytes | None = None,
        *,
        sizes: Sequence[Mapping[str, int]] = (),
    ) -> None:
        """Load the machine code; see :func:`fuse_epilogue.compile` and :func:`fuse_epilogue.load`.

        Parameters
        ----------
        module : tvm.runtime.Executable or tvm.runtime.Module
            Module of Relax's virtual machine.
        signature, report, target
            The attributes.
        library : bytes, optional
            The shared library that `module` was loaded from.
        sizes : Sequence[Mapping[str, int]]
            Combinations of sizes for which it has specialised functions.
        """
        self.signature = signature
        self.report = report
        self.target = target
        self._module, self._library = module, library
        self.sizes = tuple(dict(each) for each in sizes)
        self._on_gpu = is_for_gpu(target)
        #: Held while a virtual machine runs, whose registers belong to one call.
        self._running = threading.Lock()
        #: Those for chosen sizes come first; none where there is no such GPU.
        self._entries: list[_Entry] = []
        if not self._on_gpu or has_gpu():
            self._start()

    def _start(self) -> None:
        """Load the machine code into a virtual machine."""
        self._loaded = self._module.jit() if hasattr(self._module, "jit") else self._module
        machine = self._virtual_machine()
        self._entries = [
            # Looking a function up takes as long as calling it.
            _Entry(
                each, machine[function_name(each)], ReadyInputs(with_sizes(self.signature, each))
            )
            for each in (*self.sizes, {})
        ]

    def _virtual_machine(self) -> relax.VirtualMachine:
        return relax.VirtualMachine(self._loaded, tvm.cuda() if self._on_gpu else tvm.cpu())

    @property
    def source(self) -> str:
        """CUDA text of the kernels; empty for a model on a processor."""
        found: list[str] = []
        modules = [self._module.mod if hasattr(self._module, "mod") else self._module]
        while modules:
            module = modules.pop()
            modules += list(module.imports)
            if module.kind == "cuda":
                found.append(str(module.inspect_source()))
        return "\n".join(found)

    def __call__(self, *inputs: Any) -> Any:
        """Run the model.

        Parameters
        ----------
        *inputs
            An array for each input.

        Returns
        -------
        array or tuple of arrays
            Results in arrays of the library of the first input; of numpy if the model has no input.

        Raises
        ------
        TypeError
            There are more or fewer arrays than inputs, or one is of another type or on another
            device.
        ValueError
            An array has another shape.
        IndexError
            An index is outside of the array that it is for; nothing was read or written there.
        RuntimeError
            The model is for a GPU, and this machine has none.

        Example
        -------
        >>> import numpy as np
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(4, 4, 4)}))
        >>> a, bias = np.eye(4, dtype="float32"), np.ones(4, "float32")
        >>> model(a, a, bias).tolist()[0]
        [2.0, 1.0, 1.0, 1.0]
        """
        return self.called(inputs, inputs[0] if inputs else None)

    def called(self, inputs: Sequence[Any], like: Any) -> Any:
        """Run the model, and return results as arrays of the library that `like` is from.

        Parameters
        ----------
        inputs : Sequence
            As for a call.
        like
            An array; None for results of numpy.

        Returns
        -------
        array or tuple of arrays

        Example
        -------
        >>> import numpy as np
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(4, 4, 4)}))
        >>> a, bias = np.eye(4, dtype="float32"), np.ones(4, "float32")
        >>> type(model.called([a, a, bias], tvm.runtime.tensor(a))).__name__
        'Tensor'
        """
        arguments = inputs
        for entry in () if self._on_gpu else self._entries:
            if entry.ready.numpy(inputs) or entry.ready.torch(inputs):
                break
        else:
            entry, arguments = self._checked(inputs)
        try:
            with self._running:
                results = entry.run(*arguments)
        except IndexError as error:
            raise self._with_index(error, entry, arguments) from None
        back = returner(like, self._on_gpu)
        if self.signature.is_tuple:
            return tuple(back(each) for each in results)
        return back(results)

    def _with_index(self, error: IndexError, entry: _Entry, arguments: Sequence[Any]) -> IndexError:
        return with_index(error, self._virtual_machine(), function_name(entry.sizes), arguments)

    def _checked(self, inputs: Sequence[Any]) -> tuple[_Entry, list[Any]]:
        """Return the function for the sizes of any arrays, and these as tensors that fit it."""
        if not self._entries:
            raise RuntimeError(
                f"the model is compiled for {self.target}, and there is no such GPU here: save it "
                "and load it where there is one"
            )
        arguments = [as_argument(each, self._on_gpu) for each in inputs]
        sizes = self.signature.check(
            [tuple(each.shape) for each in arguments], [str(each.dtype) for each in arguments]
        )
        return next(entry for entry in self._entries if entry.is_for(sizes)), arguments

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied, as machine code cannot be."""
        raise TypeError(
            "a compiled model cannot be pickled or copied: save it to a file, and load that"
        )

    def __repr__(self) -> str:
        """Return the signature and how many functions it was compiled to."""
        return f"<CompiledModel {self.signature}, {len(self.report.functions)} functions>"

    def profile(self, *inputs: Any, repeats: int = 11) -> ModelReport:
        """Measure each function, and return the report with its times, which is kept as well.

        Parameters
        ----------
        *inputs
            As for a call.
        repeats : int
            Runs of which the median counts, after one that is not measured.

        Returns
        -------
        ModelReport

        Raises
        ------
        TypeError, ValueError, IndexError
            As a call; or `repeats` is below 1.

        Example
        -------
        >>> import numpy as np
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(4, 4, 4)}))
        >>> zeros = np.zeros((4, 4), "float32")
        >>> model.profile(zeros, zeros, zeros[0], repeats=3).measured
        True
        """
        if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
            raise ValueError(f"repeats must be an integer from 1, not {repeats!r}")
        entry, arguments = self._checked(inputs)
        name = function_name(entry.sizes)
        try:
            runs = [self._seconds_by_name(name, arguments) for _ in range(repeats + 1)]
        except IndexError as error:
            raise self._with_index(error, entry, arguments) from None
        names = {each.name for each in self.report.functions}
        median = {name: statistics.median(run.get(name, 0.0) for run in runs[1:]) for name in names}
        self.report = self.report.with_measured(median, label_of(entry.sizes))
        return self.report

    def _seconds_by_name(self, entry: str, arguments: list[Any]) -> dict[str, float]:
        """Return the seconds of the calls of each function in one run."""
        seconds: dict[str, float] = {}
        begin = 0.0

        def instrument(_func: Any, name: Any, before: Any, _result: Any, *_arguments: Any) -> None:
            nonlocal begin
            if self._on_gpu:
                tvm.cuda().sync()
            now = time.perf_counter()
            if before:
                begin = time.perf_counter()
            else:
                seconds[str(name)] = seconds.get(str(name), 0.0) + now - begin

        machine = self._virtual_machine()
        machine.set_instrument(instrument)
        machine[entry](*arguments)
        return seconds

    def export_library(self, path: str | Path) -> None:
        """Link the model's machine code as a shared library for TVM's runtime.

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
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(4, 4, 4)}))
        >>> model.export_library("model.so")
        """
        export_library(self._module, self._library, path)

    def save(self, path: str | Path) -> None:
        """Save the model to one file, which :func:`fuse_epilogue.load` reads.

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
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> model = fuse_epilogue.compile(tvm.IRModule({"main": workloads.matmul(4, 4, 4)}))
        >>> model.save("model.fe")
        >>> fuse_epilogue.load("model.fe").signature == model.signature
        True
        """
        from .saved import save

        save(self, path)


def export_library(module: Any, library: bytes | None, path: str | Path) -> None:
    """Link machine code as a shared library, or write the one that it was loaded from."""
    if library is not None:
        Path(path).write_bytes(library)
        return
    if not cc.get_cc():  # TVM's own error is that None is not a path.
        raise RuntimeError(
            "no C++ compiler was found: install g++ or clang++, or set CXX to the path of one"
        )
    module.export_library(str(path))


def has_gpu() -> bool:
    """Return whether this machine has a GPU that TVM can use."""
    return bool(tvm.cuda().exist)


def is_for_gpu(target: str) -> bool:
    """Return whether a target, as JSON, is a GPU."""
    return str(json.loads(target)["kind"]) == "cuda"
