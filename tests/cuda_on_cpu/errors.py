"""What can be wrong with a kernel, or with asking for it."""

from __future__ import annotations


class UnsupportedCuda(Exception):
    """The text has something that this package cannot execute.

    - `constructs`: their names: an intrinsic, a type, ``inline PTX (cp.async)``.
    """

    def __init__(self, constructs: list[str], detail: str = "") -> None:
        self.constructs = tuple(constructs)
        names = ", ".join(constructs)
        text = f"cannot execute on the CPU: {names}"
        super().__init__(f"{text}\n{detail}" if detail else text)


class CudaFault(Exception):
    """The program did what it must not.

    - `kind`: "out-of-bounds", "misaligned", "race", "divergent barrier", "deadlock", "launch"
      (sizes that CUDA refuses), "trap" (with what the thread printed), "order" (the result depends
      on the order of threads), "arguments" (refused by TVM's host code), "timeout" or "crash".
    """

    def __init__(self, kind: str, message: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {message}")
