"""A kernel as one object: its text, running it, checking it, timing it."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .checker import Resources, check
from .interpreter import Program
from .language import parse
from .limits import MOST_DIMS
from .machine import Machine
from .trace import ITEMSIZE, Trace
from .values import dtype_of
from .walk import Spec

if TYPE_CHECKING:
    from .prediction import Prediction


class Kernel:
    """A kernel in NKI; it is called with numpy arrays, as a function.

    Attributes
    ----------
    source : str
        Its text.
    name : str
        The function's name.
    parameters : tuple[str, ...]
        The names of the tensors it takes.
    inputs : Mapping[str, tuple[tuple[int, ...], str]]
        Their shapes and types, empty if they are not known before a call.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> kernel = neuron.emit(schedules.apply(workloads.matmul(128, 256, 512), "trn1"))
    >>> kernel.inputs["a"]
    ((128, 512), 'float32')
    """

    def __init__(self, source: str, inputs: Mapping[str, Spec] | None = None) -> None:
        text = parse(source)
        self.source = source
        self.name = text.name
        self.parameters = text.parameters
        self.inputs: dict[str, Spec] = {}
        if inputs is not None:
            if set(inputs) != set(text.parameters):
                names = ", ".join(text.parameters)
                raise ValueError(f"inputs names {', '.join(inputs)}; the kernel takes {names}")
            self.inputs = {name: _spec(inputs[name]) for name in text.parameters}
        self._program = Program(text)
        # Only the last one: the trace of a large kernel takes much memory.
        self._traced: tuple[tuple[Spec, ...], Trace] | None = None

    def __call__(self, *arrays: np.ndarray) -> Any:
        """Execute the kernel on numpy.

        Parameters
        ----------
        *arrays : numpy.ndarray
            The inputs, in the order of the parameters.

        Returns
        -------
        numpy.ndarray or tuple[numpy.ndarray, ...]
            The results of the kernel.

        Raises
        ------
        KernelError
            The kernel does something undefined, such as reading memory that was never written.
        TypeError, ValueError
            Other inputs than the kernel takes.

        Notes
        -----
        Arrays may have any layout and byte order; an array without dimensions is one of shape (1,),
        which is how kernels take such tensors. A walk has limits, see
        :mod:`fuse_epilogue.neuron.limits`.

        Example
        -------
        >>> import numpy as np
        >>> from fuse_epilogue import neuron, schedules, workloads
        >>> kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
        >>> kernel(np.ones((128, 64), "float32"))[0]
        np.float32(64.0)
        """
        for array in arrays:
            if not isinstance(array, np.ndarray):
                raise TypeError(f"a kernel takes numpy arrays, not {type(array).__name__}")
        outputs = self._program.execute(arrays, self._specs(arrays))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __str__(self) -> str:
        """Return the text of the kernel."""
        return self.source

    def __repr__(self) -> str:
        """Return its name and its inputs."""
        inputs = ", ".join(
            f"{name}: {self.inputs[name][1]}{list(self.inputs[name][0])}" if self.inputs else name
            for name in self.parameters
        )
        return f"<Kernel {self.name}({inputs})>"

    def _repr_html_(self) -> str:
        """Return its name and its text, for notebooks."""
        return f"<code>{html.escape(repr(self))}</code><pre>{html.escape(self.source)}</pre>"

    def check(self, machine: str | Machine = "trn1", *inputs: Any) -> Resources:
        """Check every rule of a machine, for all instructions with the loops unrolled.

        Parameters
        ----------
        machine : str or Machine
            ``"trn1"`` or ``"trn2"``.
        *inputs : numpy.ndarray or tuple
            Arrays, or (shape, type) pairs; needed if the kernel was loaded without.

        Returns
        -------
        Resources
            The resources that the kernel needs.

        Raises
        ------
        CheckError
            Everything that is wrong, with lines.
        TypeError
            An input is neither an array nor such a pair.
        ValueError
            There is no machine of that name, or the inputs are missing or others than it takes.

        Example
        -------
        >>> from fuse_epilogue import neuron, schedules, workloads
        >>> kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
        >>> needed = kernel.check("trn1")
        >>> needed.loaded_bytes, needed.stored_bytes  # 128 * 64 and 128 numbers of float32
        (32768, 512)
        """
        return check(lambda: self.trace(*inputs), machine)

    def predict(self, machine: str | Machine = "trn1", *inputs: Any) -> Prediction:
        """Predict how long the kernel takes; nothing is measured.

        Parameters
        ----------
        machine : str or Machine
            ``"trn1"`` or ``"trn2"``.
        *inputs : numpy.ndarray or tuple
            As in `check`.

        Returns
        -------
        Prediction
            Its ``latency_ms`` is the time in milliseconds; printed, it says what bounds the kernel.

        Raises
        ------
        KernelError
            As of :meth:`trace`; the rules of the machine are not looked at, see :meth:`check`.
        TypeError, ValueError
            As of :meth:`check`.

        Example
        -------
        >>> from fuse_epilogue import neuron, schedules, workloads
        >>> kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
        >>> predicted = kernel.predict("trn1")
        >>> predicted.hbm_read, predicted.latency_ms > 0
        (32768, True)
        """
        from .model import predict

        return predict(self.trace(*inputs), machine)

    def trace(self, *inputs: Any) -> Trace:
        """Return the instructions, with the loops unrolled.

        Parameters
        ----------
        *inputs : numpy.ndarray or tuple
            As in `check`.

        Returns
        -------
        Trace
            Its `steps` are the instructions in program order, its `buffers` what they work on.

        Raises
        ------
        KernelError
            An index out of bounds, operands that do not fit together, and the like.
        TypeError, ValueError
            Other inputs than the kernel takes.

        Example
        -------
        >>> from fuse_epilogue import neuron, schedules, workloads
        >>> kernel = neuron.emit(schedules.apply(workloads.row_reduce(128, 64), "trn1"))
        >>> [step.op for step in kernel.trace().steps][0]
        'dma_copy'
        """
        specs = self._specs(inputs)
        if self._traced is None or self._traced[0] != specs:
            self._traced = (specs, self._program.record(specs))
        return self._traced[1]

    def _specs(self, inputs: tuple[Any, ...]) -> tuple[Spec, ...]:
        if not inputs and self.inputs:
            return tuple(self.inputs.values())
        if len(inputs) != len(self.parameters):
            raise ValueError(
                f"{self.name} takes {', '.join(self.parameters)}: {len(self.parameters)} inputs, "
                f"not {len(inputs)}; shapes can be given once by load(source, inputs=...)"
            )
        specs = tuple(_spec(each) for each in inputs)
        for name, spec in zip(self.parameters, specs, strict=True):
            if self.inputs and spec != self.inputs[name]:
                raise ValueError(f"{name} is {spec}, the kernel is for {self.inputs[name]}")
        return specs


def load(source: str, inputs: Mapping[str, Spec] | None = None) -> Kernel:
    """Read a kernel written by hand.

    Parameters
    ----------
    source : str
        The text of a kernel file. It is parsed and interpreted, never executed by Python.
    inputs : Mapping[str, tuple[tuple[int, ...], str]], optional
        Shape and type of each parameter, to check and predict without arrays.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    KernelError
        The text is not a kernel, with the line and the reason.

    Example
    -------
    >>> from fuse_epilogue import neuron
    >>> text = '''
    ... import nki
    ... import nki.isa as nisa
    ... import nki.language as nl
    ...
    ...
    ... @nki.jit
    ... def copied(x):
    ...     y = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    ...     tile = nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf)
    ...     nisa.dma_copy(tile, x)
    ...     nisa.dma_copy(y, tile)
    ...     return y
    ... '''
    >>> kernel = neuron.load(text, {"x": ((128, 512), "float32")})
    >>> kernel.check("trn1").loaded_bytes
    262144
    """
    return Kernel(source, inputs)


def _spec(value: Any) -> Spec:
    """Return the shape and the type of an array, or of a pair that says them."""
    if isinstance(value, np.ndarray):
        shape, name = value.shape, dtype_of(value)
    else:
        shape, dtype = value
        name = str(dtype)
        if name not in ITEMSIZE:
            raise TypeError(f"{name} is not a type of kernels: {', '.join(ITEMSIZE)}")
        shape = tuple(int(n) for n in shape)
    if min(shape, default=1) < 1:
        raise ValueError(f"{shape} is not the shape of a tensor")
    if len(shape) > MOST_DIMS:
        raise ValueError(f"an input has {len(shape)} dimensions, at most {MOST_DIMS}")
    # Tensors of kernels have a dimension: one that has none becomes one of a single element.
    return shape or (1,), name
