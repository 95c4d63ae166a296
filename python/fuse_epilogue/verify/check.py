"""The certificate checker: every claim is proved again, from the functions alone."""

from __future__ import annotations

from tvm import tirx

from .._arguments import prim_func
from ..certificate import Certificate
from .claim_defined import check_defined
from .claim_domains import check_loops, check_variables
from .claim_order import check_order, check_placement
from .claim_structure import check_regions, check_structure
from .claim_values import check_values
from .scalars import WorkLimit
from .subject import CertificateError, Subject, demand

__all__ = ["CertificateError", "check"]


def check(
    before: tirx.PrimFunc, after: tirx.PrimFunc, certificate: Certificate, *, timeout: float = 5.0
) -> None:
    """Prove the claims of a certificate again.

    Nothing in the certificate is believed; it only says what to prove:

    - the blocks exist, and nothing but them changed (their skeletons are structurally equal);
    - loops run every instance of each block once, and h takes elements one to one onto the domain
      of each epilogue (by enumeration where extents are constant and small, else by TVM's
      analyzer with the inverse that the certificate gives);
    - the updates combine with the monoids, F and H satisfy F(x + t) = F(x) + H(t), init is F of
      init, the tails store what the epilogues compute (by normal forms of terms, and z3);
    - whatever T.init, an update or a tail evaluates is evaluated before as well, under no stronger
      condition, or is defined for all operands (loads, divisions, shifts, conversions of floats,
      calls, and arithmetic that LLVM takes not to wrap around);
    - the accumulator is not narrowed, and floats are reordered only where the certificate says so;
    - whoever else accesses these buffers sees the same as before;
    - buffers that are gone are mentioned nowhere, the others are written in full, and each is
      allocated once.

    Where the call reassociates, floats are real numbers in these proofs: equal means equal over
    the reals. Rounding, infinities and NaN may come out differently. Adding C to the start of a
    maximum, say, is right for every number; but where the start is -inf and an element of C is
    inf, ``-inf + inf`` makes a NaN of an element that was inf before. For ``"exact"``, every
    floating operation of the reduction is the same as before, for all values.

    Parameters
    ----------
    before, after : tvm.tirx.PrimFunc
        The functions, ``sch.mod["main"]`` before and after the call. These very objects: the
        certificate speaks of their variables and buffers, which are compared by identity. A copy
        of one, printed and parsed again, or loaded from a file, has other buffers under the same
        names, and is refused however equal it looks.
    certificate : fuse_epilogue.Certificate
        The record of the call.
    timeout : float
        Seconds for each question that needs z3.

    Raises
    ------
    TypeError
        `before` or `after` is no PrimFunc, or `certificate` no Certificate.
    CertificateError
        Naming the claim that does not hold, or cannot be proved. Without z3 some true claims
        cannot be.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import verify, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(4, 4, 2))
    >>> before = sch.mod["main"]
    >>> report = sch.fuse_reduction_epilogue("matmul")
    >>> verify.check(before, sch.mod["main"], report.certificate)
    """
    prim_func("before", before)
    prim_func("after", after)
    if not isinstance(certificate, Certificate):
        raise TypeError(
            f"certificate must be a Certificate, not {type(certificate).__name__}: the call that "
            "fuses returns a report with one, report.certificate"
        )
    demand(certificate.numerics in ("exact", "reassociate"), "numerics", "unknown")
    subject = Subject(before, after, certificate)
    check_structure(subject)
    check_variables(subject)
    check_loops(subject)
    try:
        values = check_values(subject, timeout)
        check_defined(values)
    except (WorkLimit, RecursionError) as error:
        reason = f"the blocks are too large to prove what they compute: {error}"
        raise CertificateError("after", reason) from error
    check_order(subject)
    check_placement(subject)
    check_regions(subject)
