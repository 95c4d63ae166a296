"""The certificate checker: every claim is proved again, from the functions alone."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from .._arguments import prim_func
from .._printed import Printed
from ..cascade_certificate import CascadeCertificate
from ..certificate import Certificate
from .cascades.checker import check_cascade
from .certificate.claim_defined import check_defined
from .certificate.claim_domains import check_loops, check_variables
from .certificate.claim_order import check_order, check_placement
from .certificate.claim_structure import check_regions, check_structure
from .certificate.claim_values import check_values
from .certificate.forms import check_forms
from .certificate.subject import CertificateError, Subject, demand
from .evaluation.scalars import UnsupportedError, WorkLimit

__all__ = ["CertificateError", "Verdict", "check"]

#: What is proved of every fusion, in the order of the proofs.
CLAIMS = (
    "only the blocks of the fusion changed",
    "every instance of each block runs once, and the indices map one to one",
    "the reduction and its tails compute the same values",
    "nothing is evaluated where the function before did not evaluate it, or it is always defined",
    "floats are reordered only as the numerics allow, and no accumulator is narrowed",
    "every other access to the buffers sees the same values",
)


@dataclass(frozen=True, repr=False)
class Verdict(Printed):
    """The claims of a certificate that :func:`check` has proved.

    Attributes
    ----------
    reduction : str
        Name of the reduction block; of a cascade, that of its first reduction.
    epilogues : tuple[str, ...]
        Names of the fused epilogues; of a cascade, those of the reductions that follow.
    numerics : str
        "exact" or "reassociate": whether floats are equal bit for bit, or as real numbers.
    claims : tuple[str, ...]
        One sentence for each claim.
    """

    reduction: str
    epilogues: tuple[str, ...]
    numerics: str
    claims: tuple[str, ...]

    def __str__(self) -> str:
        """Return a line for the fusion and one for each claim."""
        names = ", ".join(f"'{name}'" for name in self.epilogues)
        lines = [f"proved: '{self.reduction}' with {names}, numerics {self.numerics}"]
        return "\n".join([*lines, *(f"  - {claim}" for claim in self.claims)])


def check(
    before: tirx.PrimFunc | s_tir.Schedule,
    after: tirx.PrimFunc | s_tir.Schedule,
    certificate: Certificate | CascadeCertificate,
    *,
    timeout: float = 5.0,
) -> Verdict:
    """Prove the claims of a certificate again.

    The certificate is not trusted: it only lists the claims to prove. For an epilogue:

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
    - every other access to these buffers sees the same values as before;
    - buffers that are gone are mentioned nowhere, the others are written in full, and each is
      allocated once.

    Where the call reassociates, floats are real numbers in these proofs: equal means equal over
    the reals. Rounding, infinities and NaN may come out differently. Adding C to the start of a
    maximum, say, is right for every number; but where the start is -inf and an element of C is
    inf, ``-inf + inf`` makes a NaN of an element that was inf before. For ``"exact"``, every
    floating operation of the reduction is the same as before, for all values.

    For a cascade:

    - the terms are those of the program, with the elementwise blocks between in their places;
    - correcting a state is the same as computing it at the new result, by normal forms over the
      field of rational functions, where the exponential of a sum is a product and a cast opaque;
    - quotients are at most 1, and no term overflows at a result that is not final;
    - the loop computes the states as the laws say and in that order, and each tail its result;
    - loads, divisions and the like are evaluated where they were before;
    - nothing else changed, and nothing is read before it is finished.

    Parameters
    ----------
    before, after : tvm.tirx.PrimFunc or tvm.s_tir.Schedule
        The functions, ``sch.mod["main"]`` before and after the call; a schedule means the function
        that it works on. These very objects: the
        certificate speaks of their variables and buffers, which are compared by identity. A copy
        of one, printed and parsed again, or loaded from a file, has other buffers under the same
        names, and is refused however equal it looks.
    certificate : fuse_epilogue.Certificate or fuse_epilogue.CascadeCertificate
        The record of the call.
    timeout : float
        Seconds for each question that needs z3; a cascade has none.

    Returns
    -------
    Verdict
        The claims, all of which are proved; printed, it lists them.

    Raises
    ------
    TypeError
        `before` or `after` is neither a PrimFunc nor a Schedule, or `certificate` is none of the
        two certificates.
    CertificateError
        Naming the claim that does not hold, cannot be proved, or is not of its form. Without z3
        some true claims cannot be proved.

    Example
    -------
    >>> import tvm
    >>> from fuse_epilogue import verify, workloads
    >>> sch = tvm.s_tir.Schedule(workloads.matmul(4, 4, 2))
    >>> before = sch.mod["main"]
    >>> report = sch.fuse_reduction_epilogue("matmul")
    >>> print(verify.check(before, sch.mod["main"], report.certificate))
    proved: 'matmul' with 'bias', numerics reassociate
    ...
    """
    before, after = prim_func("before", before), prim_func("after", after)
    if not isinstance(certificate, Certificate | CascadeCertificate):
        raise TypeError(
            "certificate must be a Certificate or a CascadeCertificate, not "
            f"{type(certificate).__name__}: the call that fuses returns a report with one, "
            "report.certificate"
        )
    check_forms(certificate)
    demand(certificate.numerics in ("exact", "reassociate"), "numerics", "unknown")
    if isinstance(certificate, CascadeCertificate):
        demand(len(certificate.stages) > 0, "stages", "there are none")
        claims = check_cascade(before, after, certificate)
        first, *others = (stage.name for stage in certificate.stages)
        return Verdict(first, tuple(others), certificate.numerics, claims)
    try:
        _check_fusion(before, after, certificate, timeout)
    except UnsupportedError as error:
        raise CertificateError("after", f"it cannot be proved: {error}") from error
    epilogues = tuple(each.name for each in certificate.epilogues)
    return Verdict(certificate.reduction, epilogues, certificate.numerics, CLAIMS)


def _check_fusion(
    before: tirx.PrimFunc, after: tirx.PrimFunc, certificate: Certificate, timeout: float
) -> None:
    """Prove the claims about a reduction and its epilogues."""
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
