"""A compiled model: called with arrays, profiled, saved."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, relax
from tvm.ir import Call
from tvm.target import Target

from ..transform import schedules_of
from .arrays import ReadyInputs, as_argument, returner
from .report import FunctionReport, ModelReport
from .signature import Signature


class CompiledModel:
    """A model that is compiled for a processor; :func:`fuse_epilogue.compile` makes one.

    Call it with an array for each input, of numpy, torch or any library with DLPack. Results are
    arrays of the library of the first argument. Contiguous arrays that begin at a multiple of 64
    bytes, as those of torch do, are read in place; others are copied.

    Attributes
    ----------
    signature : Signature
    report : ModelReport
    target : str
        The target it is compiled for, as JSON.

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
    ) -> None:
        """Load the machine code; see :func:`fuse_epilogue.compile` and :func:`fuse_epilogue.load`.

        Parameters
        ----------
        module : tvm.runtime.Executable or tvm.runtime.Module
            Of Relax's virtual machine.
        signature, report, target
            The attributes.
        library : bytes, optional
            The shared library that `module` was loaded from.
        """
        self.signature = signature
        self.report = report
        self.target = target
        self._module, self._library = module, library
        self._loaded = module.jit() if hasattr(module, "jit") else module
        self._machine = relax.VirtualMachine(self._loaded, tvm.cpu())
        self._main = self._machine["main"]  # looking it up takes as long as calling it
        self._ready = ReadyInputs([(each.shape, each.dtype) for each in signature.inputs])

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
        if self._ready.numpy(inputs) or self._ready.torch(inputs):
            results = self._main(*inputs)
        else:
            results = self._main(*self._checked(inputs))
        back = returner(inputs[0] if inputs else None)
        if self.signature.is_tuple:
            return tuple(back(each) for each in results)
        return back(results)

    def _checked(self, inputs: Sequence[Any]) -> list[Any]:
        """Return any arrays as tensors that fit the signature."""
        arguments = [as_argument(each) for each in inputs]
        self.signature.check(
            [tuple(each.shape) for each in arguments], [str(each.dtype) for each in arguments]
        )
        return arguments

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
        TypeError, ValueError
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
        arguments = self._checked(inputs)
        runs = [self._seconds_by_name(arguments) for _ in range(repeats + 1)]
        names = {each.name for each in self.report.functions}
        median = {name: statistics.median(run.get(name, 0.0) for run in runs[1:]) for name in names}
        self.report = self.report.with_measured(median)
        return self.report

    def _seconds_by_name(self, arguments: list[Any]) -> dict[str, float]:
        """Return the seconds of the calls of each function in one run."""
        seconds: dict[str, float] = {}
        begin = 0.0

        def instrument(_func: Any, name: Any, before: Any, _result: Any, *_arguments: Any) -> None:
            nonlocal begin
            now = time.perf_counter()
            if before:
                begin = time.perf_counter()
            else:
                seconds[str(name)] = seconds.get(str(name), 0.0) + now - begin

        machine = relax.VirtualMachine(self._loaded, tvm.cpu())
        machine.set_instrument(instrument)
        machine["main"](*arguments)
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
        if self._library is None:
            self._module.export_library(str(path))
        else:
            Path(path).write_bytes(self._library)

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


def report_of(mod: ir.IRModule, target: Target, threads: int) -> ModelReport:
    """Return the report of a module that :class:`ScheduleModule` has scheduled."""
    counts: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, Call) and getattr(node.op, "name", "") == "relax.call_tir":
            counts[str(node.args[0].name_hint)] += 1

    relax.analysis.post_order_visit(mod["main"], visit)
    schedules = {each.name: each for each in schedules_of(mod) or ()}
    functions = tuple(
        FunctionReport(
            name,
            schedules[name].kind,
            schedules[name].fusion,
            count,
            schedules[name].predicted_s * count,
            None,
            schedules[name].why,
        )
        for name, count in counts.items()
        if name in schedules
    )
    return ModelReport(functions, str(target), threads)
