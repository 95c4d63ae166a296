"""Errors in kernels, with their places."""

from __future__ import annotations

from dataclasses import dataclass


class Refused(ValueError):
    """A value or an operand that breaks a rule; a caller that knows the line makes a `KernelError`.

    - `rule`: the name of the rule.
    - `reason`: the error, and the way out.
    """

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason


class KernelError(ValueError):
    """A kernel that is not in the language, or that does something without a meaning.

    Attributes
    ----------
    line : int
        Line of the text, from 1.
    reason : str
        The error, and the way out.
    rule : str
        ``"language"``, or the name of a rule of the checker that is broken.
    """

    def __init__(self, line: int, reason: str, rule: str = "language") -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that one line breaks.

    Attributes
    ----------
    rule : str
        Name of the rule, see :data:`fuse_epilogue.neuron.checker.RULES`.
    line : int
        Line of the text, from 1.
    reason : str
        The first error.
    times : int
        How many of the unrolled instructions of this line break it.
    """

    rule: str
    line: int
    reason: str
    times: int = 1

    def __str__(self) -> str:
        """Say it in one line."""
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"line {self.line}: {self.reason} [{self.rule}]{times}"


class CheckError(ValueError):
    """A kernel that a machine would not run, or not run as meant.

    Attributes
    ----------
    violations : tuple[Violation, ...]
        Everything that is wrong, by line.
    """

    #: How many violations the message spells out.
    SHOWN = 20

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        lines = [str(violation) for violation in violations[: self.SHOWN]]
        if len(violations) > self.SHOWN:
            lines.append(f"and {len(violations) - self.SHOWN} more")
        super().__init__("\n".join(lines))
        self.violations = violations
