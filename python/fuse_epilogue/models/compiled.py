"""A compiled model: called with arrays, profiled, saved."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, relax
from tvm.ir import Call
from tvm.support import cc
from tvm.target import Target

from ..transform import FunctionSchedule, schedules_of
from .arrays import ReadyInputs, as_argument, returner
from .report import FunctionReport, ModelReport
from .signature import Signature, with_sizes
from .sizes import function_name, label_of


class CompiledModel:
    """A model that is compiled for a processor or a GPU; :func:`fuse_epilogue.compile` makes one.

    Call it with an array for each input, of numpy, torch or any library with DLPack. Results are
    arrays of the library of the first argument. Contiguous arrays that begin at a multiple of 64
    bytes, as those of torch do, are read in place; others are copied.

    Attributes
    ----------
    signature : Signature
    report : ModelReport
    target : str
        The target it is compiled for, as JSON.
    sizes : tuple[dict[str, int], ...]
        Combinations of sizes that it has functions of their own for.

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
            Combinations of sizes that it has functions of their own for.
        """
        self.signature = signature
        self.report = report
        self.target = target
        self._module, self._library = module, library
        self.sizes = tuple(dict(each) for each in sizes)
        self._on_gpu = is_for_gpu(target)
        if not self._on_gpu or has_gpu():
            self._start()

    def _start(self) -> None:
        """Load the machine code into a virtual machine."""
        signature = self.signature
        self._loaded = self._module.jit() if hasattr(self._module, "jit") else self._module
        self._machine = self._virtual_machine()
        self._main = self._machine["main"]  # looking it up takes as long as calling it
        self._of_sizes = {
            tuple(sorted(each.items())): self._machine[function_name(each)] for each in self.sizes
        }
        self._ready = [
            (ReadyInputs(with_sizes(signature, each)), self._of_sizes[tuple(sorted(each.items()))])
            for each in self.sizes
        ] or [(ReadyInputs(with_sizes(signature, {})), self._main)]

    def _virtual_machine(self) -> relax.VirtualMachine:
        return relax.VirtualMachine(self._loaded, tvm.cuda() if self._on_gpu else tvm.cpu())

    @property
    def source(self) -> str:
        """Text of the kernels in CUDA; of a model for a processor, an empty string."""
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
        """Run the model; results are arrays of the library of another array.

        Parameters
        ----------
        inputs : Sequence
            As for a call.
        like
            An array of the library; None for numpy.

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
        for ready, main in () if self._on_gpu else self._ready:
            if ready.numpy(inputs) or ready.torch(inputs):
                results = main(*inputs)
                break
        else:
            arguments, sizes = self._checked(inputs)
            results = self._function(sizes)(*arguments)
        back = returner(like, self._on_gpu)
        if self.signature.is_tuple:
            return tuple(back(each) for each in results)
        return back(results)

    def _checked(self, inputs: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
        """Return any arrays as tensors that fit the signature, and the sizes that they have."""
        if self._on_gpu and not hasattr(self, "_machine"):
            raise RuntimeError(
                f"the model is compiled for {self.target}, and there is no such GPU here: save it "
                "and load it where there is one"
            )
        arguments = [as_argument(each, self._on_gpu) for each in inputs]
        sizes = self.signature.check(
            [tuple(each.shape) for each in arguments], [str(each.dtype) for each in arguments]
        )
        return arguments, sizes

    def _function(self, sizes: Mapping[str, int]) -> Any:
        """Return what computes the model for some sizes."""
        name = self._name(sizes)
        return self._main if name is None else self._of_sizes[name]

    def _name(self, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...] | None:
        for known in self.sizes:
            if all(sizes[name] == size for name, size in known.items()):
                return tuple(sorted(known.items()))
        return None

    def __reduce__(self) -> Any:
        """Refuse to be pickled or copied, as machine code cannot be."""
        raise TypeError(
            "a compiled model is neither pickled nor copied: save it, and load the file"
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
        arguments, sizes = self._checked(inputs)
        known = dict(self._name(sizes) or ())
        entry, label = function_name(known), label_of(known)
        runs = [self._seconds_by_name(entry, arguments) for _ in range(repeats + 1)]
        names = {each.name for each in self.report.functions}
        median = {name: statistics.median(run.get(name, 0.0) for run in runs[1:]) for name in names}
        self.report = self.report.with_measured(median, label)
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
        if self._library is None:
            if not cc.get_cc():  # TVM's own error is that None is not a path.
                raise RuntimeError("there is no C++ compiler, nor is CXX the path of one")
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


def has_gpu() -> bool:
    """Return whether this machine has a GPU that TVM can use."""
    return bool(tvm.cuda().exist)


def is_for_gpu(target: str) -> bool:
    """Return whether a target, as JSON, is a GPU."""
    return str(json.loads(target)["kind"]) == "cuda"


def report_of(
    mod: ir.IRModule, target: Target, threads: int, sizes: Sequence[Mapping[str, int]] = ()
) -> ModelReport:
    """Return the report of a module that :class:`ScheduleModule` has scheduled.

    - `sizes`: combinations of sizes that the module has functions for.
    """
    schedules = {each.name: each for each in schedules_of(mod) or ()}
    functions = []
    for known in (*sizes, {}):
        for name, calls in _calls_of(mod[function_name(known)]).items():
            if name in schedules:
                functions.append(_function_report(schedules[name], calls, label_of(known)))
    return ModelReport(tuple(functions), str(target), threads)


def _calls_of(func: Any) -> Counter[str]:
    """Return how many calls of each PrimFunc a Relax function has."""
    counts: Counter[str] = Counter()

    def visit(node: Any) -> None:
        if isinstance(node, Call) and getattr(node.op, "name", "") == "relax.call_tir":
            counts[str(node.args[0].name_hint)] += 1

    relax.analysis.post_order_visit(func, visit)
    return counts


def _function_report(schedule: FunctionSchedule, calls: int, sizes: str) -> FunctionReport:
    return FunctionReport(
        schedule.name,
        schedule.kind,
        schedule.fusion,
        calls,
        schedule.predicted_s * calls,
        None,
        schedule.why,
        schedule.trials,
        sizes,
        ways=schedule.ways,
    )
