"""A kernel as one object: its text, running it, checking it, timing it."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checker import Resources, check
from .isa import COLLECTIVES
from .language import parse
from .language.program import Program
from .machine import Machine
from .machine import machine as find_machine
from .specs import named_spec
from .trace import Trace
from .walk import Setting, Spec

if TYPE_CHECKING:
    from .prediction import Prediction


class Kernel:
    """A kernel in NKI; it is called with numpy arrays, as a function.

    Parameters
    ----------
    source, inputs, kernel, folders, programs
        As of :func:`load`.

    Attributes
    ----------
    source : str
        Its text.
    name : str
        The function's name.
    parameters : tuple[str, ...]
        The names of what it takes.
    inputs : Mapping[str, Any]
        Shapes and types of tensors, and other values; empty if they are not known before a call.
    programs : int
        How many programs share its work.

    Example
    -------
    >>> from fuse_epilogue import neuron, schedules, workloads
    >>> kernel = neuron.emit(schedules.apply(workloads.matmul(128, 256, 512), "trn1"))
    >>> kernel.inputs["a"].shape
    (128, 512)
    """

    def __init__(
        self,
        source: str | Path,
        inputs: Mapping[str, Any] | None = None,
        kernel: str | None = None,
        folders: Sequence[str | Path] = (),
        programs: int = 1,
    ) -> None:
        text = parse(source, kernel, folders)
        self.source = source if isinstance(source, str) else source.read_text(encoding="utf-8")
        self.name = text.name
        self.parameters = text.parameters
        if programs not in (1, 2):
            raise ValueError(f"a kernel is shared by 1 or 2 programs, not {programs}")
        self.programs = programs
        self._optional = text.optional
        self.inputs: dict[str, Any] = {}
        if inputs is not None:
            needed = set(text.parameters) - text.optional
            if not needed <= set(inputs) <= set(text.parameters):
                names, given = ", ".join(text.parameters), ", ".join(inputs) or "nothing"
                raise ValueError(f"inputs names {given}; the kernel takes {names}")
            self.inputs = {
                name: named_spec(name, inputs[name]) for name in text.parameters if name in inputs
            }
        self._program = Program(text)
        # Only the last one: the trace of a large kernel takes much memory.
        self._traced: tuple[tuple[Any, ...], Trace] | None = None

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Execute the kernel on numpy.

        Parameters
        ----------
        *arrays : numpy.ndarray, int, float, bool, tuple, str or None
            The inputs, in the order of the parameters.
        **named : numpy.ndarray, int, float, bool, tuple, str or None
            Inputs by the name of the parameter.

        Returns
        -------
        numpy.ndarray or tuple[numpy.ndarray, ...]
            The results of the kernel.

        Raises
        ------
        KernelError
            The kernel does something undefined, such as reading memory that was never written.
        TypeError, ValueError
            Other inputs than the kernel takes, or a read-only array that it writes to.

        Notes
        -----
        Arrays may have any layout and byte order; an array without dimensions is one of shape (1,),
        which is how kernels take such tensors. An array that the kernel writes to changes, as a
        tensor on the machine does. A walk has limits, see
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
            if not isinstance(array, (np.ndarray, int, float, bool, tuple, str, type(None))):
                raise TypeError(f"a kernel takes numpy arrays, not {type(array).__name__}")
        given = dict(zip(self.parameters, arrays, strict=False)) | named
        data = {name: value for name, value in given.items() if isinstance(value, np.ndarray)}
        outputs = self._program.execute(
            self._values(arrays, named), data, Setting(programs=self.programs)
        )
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def __str__(self) -> str:
        """Return the text of the kernel."""
        return self.source

    def __repr__(self) -> str:
        """Return its name and its inputs."""
        inputs = ", ".join(
            f"{name}: {self.inputs[name][1]}{list(self.inputs[name][0])}"
            if isinstance(self.inputs.get(name), Spec)
            else name
            for name in self.parameters
        )
        return f"<Kernel {self.name}({inputs})>"

    def _repr_html_(self) -> str:
        """Return its name and its text, for notebooks."""
        return f"<code>{html.escape(repr(self))}</code><pre>{html.escape(self.source)}</pre>"

    def check(self, machine: str | Machine = "trn2", *inputs: Any) -> Resources:
        """Check every rule of a machine, for all instructions with the loops unrolled.

        Parameters
        ----------
        machine : str or Machine
            ``"trn1"``, ``"trn2"`` or ``"trn3"``.
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
        target = find_machine(machine)
        return check(lambda: self._traces(target, inputs), target)

    def predict(self, machine: str | Machine = "trn2", *inputs: Any) -> Prediction:
        """Predict how long the kernel takes; nothing is measured.

        Parameters
        ----------
        machine : str or Machine
            ``"trn1"``, ``"trn2"`` or ``"trn3"``.
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

        target = find_machine(machine)
        traces = self._traces(target, inputs)
        for step in (step for trace in traces for step in trace.steps):
            if step.op in COLLECTIVES:
                raise ValueError(f"line {step.line}: no cost is known for {step.op}")
        return max((predict(it, target) for it in traces), key=lambda it: it.latency_ms)

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
        return self._trace(Setting(programs=self.programs), inputs, {})

    def _traces(self, target: Machine, inputs: tuple[Any, ...]) -> list[Trace]:
        """Return the instructions of each program on a machine."""
        generation = int(target.core[-1])
        return [
            self._trace(Setting(generation, at, self.programs), inputs, {})
            for at in range(self.programs)
        ]

    def _trace(self, setting: Setting, inputs: tuple[Any, ...], named: dict[str, Any]) -> Trace:
        values = self._values(inputs, named)
        key = (setting, *values.items())
        if self._traced is None or self._traced[0] != key:
            self._traced = (key, self._program.record(values, setting))
        return self._traced[1]

    def _values(self, given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return shape and type of each tensor, and the values of the other parameters."""
        if not given and not named and self.inputs:
            return dict(self.inputs)
        if len(given) > len(self.parameters) or not set(named) <= set(self.parameters):
            raise ValueError(f"{self.name} takes {', '.join(self.parameters)}")
        values = dict(zip(self.parameters, given, strict=False))
        for name, value in named.items():
            if name in values:
                raise ValueError(f"{name} is given twice")
            values[name] = value
        values = {name: named_spec(name, value) for name, value in values.items()}
        for name, known in self.inputs.items():
            if isinstance(known, Spec) and values.setdefault(name, known) != known:
                raise ValueError(f"{name} is {values[name]}, the kernel is for {known}")
            values.setdefault(name, known)
        if not set(self.parameters) - self._optional <= set(values):
            raise ValueError(
                f"{self.name} takes {', '.join(self.parameters)}: {len(self.parameters)} inputs, "
                f"not {len(values)}; shapes can be given once by load(source, inputs=...)"
            )
        return values


def load(
    source: str | Path,
    inputs: Mapping[str, Any] | None = None,
    *,
    kernel: str | None = None,
    folders: Sequence[str | Path] = (),
    programs: int = 1,
) -> Kernel:
    """Read a kernel written by hand.

    Parameters
    ----------
    source : str or Path
        The text of a kernel file, or its path; one line that ends in ``.py`` is a path. It is
        parsed and interpreted, never executed by Python.
    inputs : Mapping[str, Any], optional
        Shape and type of each tensor, and the values of other parameters, to check and predict
        without arrays. `Code` is an expression in the names of the file, such as ``Mode.FAST``.
    kernel : str, optional
        Which function, if the file has several with the decorator ``@nki.jit``.
    folders : Sequence[str or Path]
        Where files are looked up that it imports; those beside a path are found without.
    programs : int
        How many programs share the work, 1 or 2: the cores of a logical NeuronCore, which see each
        other's tensors in ``nl.shared_hbm``.

    Returns
    -------
    Kernel
        The kernel.

    Raises
    ------
    KernelError
        The text is not a kernel, with the line and the reason.
    OSError
        There is no such file.
    ValueError
        `inputs` lacks a parameter or names another one, or there are neither one nor two programs.

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
    if isinstance(source, str) and source.endswith(".py") and "\n" not in source:
        source = Path(source)
    return Kernel(source, inputs, kernel, folders, programs)
