"""A model for Trainium: kernels in NKI, the order of their calls, weights, and predicted times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm

from ...neuron.kernel import Kernel
from ...neuron.values import numpy_dtype
from ..arrays import as_argument, returner
from ..report import FunctionReport, ModelReport
from ..signature import Signature
from .functions import HOST
from .graph import Graph, Step, as_numpy


class NeuronPackage:
    """A model for Trainium; :func:`fuse_epilogue.compile` makes one.

    Call it with an array for each input, of numpy, torch or any library with DLPack: the kernels
    run on the interpreter, and what no kernel computes runs on this processor. On a machine with
    Trainium the files that :meth:`save` writes are called from torch-xla or JAX.

    Attributes
    ----------
    signature : Signature
    report : ModelReport
        Functions without a kernel are of kind "host", with the reason. Times are predicted by
        :meth:`fuse_epilogue.neuron.Kernel.predict`, without what it takes to start a kernel.
    machine : str
        "trn1", "trn2" or "trn3".
    graph : Graph
        Arrays and the order of calls.
    kernels : Mapping[str, Kernel]
        By the name of a function.

    Example
    -------
    >>> import numpy as np
    >>> import tvm
    >>> import fuse_epilogue
    >>> from fuse_epilogue import workloads
    >>> func = workloads.matmul(4, 4, 4, activation="relu")
    >>> package = fuse_epilogue.compile(tvm.IRModule({"main": func}), "trn2")
    >>> a, b, bias = np.eye(4, dtype="float32"), np.ones((4, 4), "float32"), np.ones(4, "float32")
    >>> float(package(a, b, bias).sum())
    32.0
    """

    def __init__(
        self,
        signature: Signature,
        report: ModelReport,
        machine: str,
        graph: Graph,
        kernels: Mapping[str, Kernel],
    ) -> None:
        """Keep everything; see :func:`fuse_epilogue.compile`."""
        self.signature, self.report, self.machine = signature, report, machine
        self.graph, self.kernels = graph, dict(kernels)
        self._host: dict[str, Callable[..., Any]] = {}

    @property
    def predicted_ms(self) -> float:
        """Milliseconds that the kernels of one run are predicted to take, one after the other."""
        return self.report.total_s * 1e3

    @property
    def range_ms(self) -> tuple[float, float]:
        """The least and the most milliseconds that they take; around `predicted_ms`."""
        least, most = self.report.range_s
        return least * 1e3, most * 1e3

    @property
    def not_on_trainium(self) -> tuple[FunctionReport, ...]:
        """The functions without a kernel."""
        return tuple(each for each in self.report.functions if each.kind == HOST)

    def __call__(self, *inputs: Any) -> Any:
        """Run the model on the interpreter.

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
        TypeError, ValueError
            As for :class:`CompiledModel`.
        fuse_epilogue.neuron.KernelError
            A kernel does something undefined.

        Example
        -------
        >>> import numpy as np
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> mod = tvm.IRModule({"main": workloads.matmul(4, 4, 4)})
        >>> package = fuse_epilogue.compile(mod, "trn2")
        >>> a, bias = np.eye(4, dtype="float32"), np.ones(4, "float32")
        >>> package(a, a, bias).tolist()[0]
        [2.0, 1.0, 1.0, 1.0]
        """
        arrays = [_as_array(each) for each in inputs]
        shapes = [each.shape for each in arrays]
        self.signature.check(shapes, [str(each.dtype) for each in arrays])
        graph = self.graph
        values: dict[str, np.ndarray] = dict(graph.weights)
        values.update(zip(graph.inputs, arrays, strict=True))
        for step in graph.steps:
            values.update(zip(step.outputs, self._outputs(step, values), strict=True))
        results = tuple(np.array(values[name]) for name in graph.results)
        if inputs and not isinstance(inputs[0], np.ndarray):
            results = tuple(map(returner(inputs[0]), map(tvm.runtime.tensor, results)))
        return results if self.signature.is_tuple else results[0]

    def _outputs(self, step: Step, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        arrays = [values[name] for name in step.inputs]
        shapes = [self.graph.shape(name) for name in step.outputs]
        if not step.function:
            return [arrays[0].reshape(shapes[0])]
        if step.function in self.kernels:
            found = self.kernels[step.function](
                *(_narrow(each) if each.dtype == "int64" else each for each in arrays)
            )
            outputs = list(found) if isinstance(found, tuple) else [found]
        else:
            outputs = self._on_host(step, arrays)
        return [output.reshape(shape) for output, shape in zip(outputs, shapes, strict=True)]

    def _on_host(self, step: Step, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """Return what a function computes that has no kernel."""
        name = step.function
        if name not in self._host:
            func = self.graph.functions[name].with_attr("global_symbol", "main")
            built = tvm.compile(tvm.IRModule({"main": func}), target="llvm")
            self._host[name] = built["main"]
        outputs = [
            tvm.runtime.tensor(
                np.zeros(self.graph.shape(each), numpy_dtype(self.graph.arrays[each].dtype))
            )
            for each in step.outputs
        ]
        self._host[name](*map(tvm.runtime.tensor, arrays), *outputs)
        return [as_numpy(output) for output in outputs]

    def __repr__(self) -> str:
        """Return the signature, how many kernels there are, and the predicted time."""
        return (
            f"<NeuronPackage {self.signature} for {self.machine}, {len(self.kernels)} kernels, "
            f"predicted {self.predicted_ms:.4f} ms>"
        )

    def save(self, folder: str | Path) -> None:
        """Write the package to a folder, which :func:`fuse_epilogue.load` reads.

        Parameters
        ----------
        folder : str or pathlib.Path
            A new folder: ``kernels`` has a file for each kernel, ``weights.npz`` the weights,
            ``manifest.json`` the calls, ``glue_torch.py`` and ``glue_jax.py`` the functions that
            call the kernels from torch-xla and JAX, ``report.html`` the report, and ``host`` in TIR
            what has no kernel.

        Raises
        ------
        FileExistsError
            There is something already.
        OSError
            The folder cannot be written.

        Example
        -------
        >>> import tvm
        >>> import fuse_epilogue
        >>> from fuse_epilogue import workloads
        >>> mod = tvm.IRModule({"main": workloads.matmul(4, 4, 4)})
        >>> package = fuse_epilogue.compile(mod, "trn2")
        >>> package.save("model_trn2")
        >>> fuse_epilogue.load("model_trn2").signature == package.signature
        True
        """
        from .saved import save

        save(self, Path(folder))


def _narrow(places: np.ndarray) -> np.ndarray:
    """Return places in a table as int32: kernels have no int64."""
    narrow = places.astype("int32")
    if not np.array_equal(narrow, places):
        raise ValueError(
            "a kernel takes indices of a table as int32, and one of these does not fit"
        )
    return narrow


def _as_array(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else as_numpy(as_argument(array))
