"""Check fusions independently: certificates, oracles, symbolic equivalence.

Nothing here shares code with the library that does the fusing.

- :func:`check` proves the claims of a certificate again, of an epilogue or of a cascade.
- :func:`equivalent` compares two functions, on data and for unknowns.
- :func:`compile_function` makes a function executable in Python, statement by statement.
"""

from .check import CertificateError, Verdict, check
from .compare import Comparison, NotEquivalent
from .equivalent import Equivalence, equivalent
from .evaluate import EvaluationError, Program, UnsupportedError, compile_function
from .unknowns import Symbolic, prove

__all__ = [
    "CertificateError",
    "Comparison",
    "Equivalence",
    "EvaluationError",
    "NotEquivalent",
    "Program",
    "Symbolic",
    "UnsupportedError",
    "Verdict",
    "check",
    "compile_function",
    "equivalent",
    "prove",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
