"""Faults in a line of a database that TVM could not read; some would end the process."""

from __future__ import annotations

from typing import Any

#: The one attribute that TVM writes as null, by the kind of the step: no value to pad with.
_NULL = {"TransformLayout": 2}


def workload_fault(line: Any) -> str:  # noqa: ANN401 - any JSON
    """Return why TVM could not read a workload, as far as its shape goes; empty if it could."""
    return "" if _is(line, str, str) else "it is not a pair of a hash and a module"


def record_fault(line: Any, workloads: int) -> str:  # noqa: ANN401 - any JSON
    """Return why TVM could not read a record, or would die of it; empty if it could.

    - `line`: content of the line.
    - `workloads`: how many workloads there are to name.
    """
    if not _is(line, int, list):
        return "it is not a pair of a workload's number and a measurement"
    workload, measurement = line
    if not 0 <= workload < workloads:
        return f"it is of workload {workload}, of those from 0 on there are {workloads}"
    if len(measurement) != 4:
        return "its measurement has not four parts: a trace, times, a target and arguments"
    trace, times, target, arguments = measurement
    if not _is(trace, list, list) or not all(_is(i, str, list, list, list) for i in trace[0]):
        return "its trace is not made of steps and decisions"
    if any(None in inputs for _, inputs, _, _ in trace[0]):
        return "a step of its trace is of nothing"
    for kind, _, attributes, _ in trace[0]:
        if _has_null([a for place, a in enumerate(attributes) if place != _NULL.get(kind)]):
            return f"the step {kind} of its trace has null for an attribute"
    for decision in trace[1]:
        if not _is(decision, int, (int, list)) or not 0 <= decision[0] < len(trace[0]):
            return "a decision of its trace is of no step"
        if isinstance(decision[1], list) and not _all(decision[1], int):
            return "a decision of its trace is not a list of numbers"
    if times is not None and not _all(times, (int, float)):
        return "its times are not numbers"
    if target is not None and not isinstance(target, (dict, str)):
        return "its target is not valid"
    if arguments is not None and not (
        _all(arguments, list) and all(_is(a, str, str, list) and _all(a[2], int) for a in arguments)
    ):
        return "its arguments are not tensors"
    return ""


def _has_null(value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether there is a null anywhere in a value of JSON, however deep."""
    left = [value]
    while left:
        each = left.pop()
        if each is None:
            return True
        if isinstance(each, (dict, list)):
            left += each.values() if isinstance(each, dict) else each
    return False


def _is(value: Any, *kinds: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value of JSON is a list of elements of these kinds."""
    if not isinstance(value, list) or len(value) != len(kinds):
        return False
    return all(_all([each], kind) for each, kind in zip(value, kinds, strict=True))


def _all(value: Any, kind: Any) -> bool:  # noqa: ANN401 - any JSON
    """Return whether a value of JSON is a list, its elements of a kind; a bool is not a number."""
    return isinstance(value, list) and all(
        isinstance(each, kind) and not isinstance(each, bool) for each in value
    )
