"""Judging the functions of one chunk of a long run."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tvm
from tvm import tirx

from generated.child import outcomes
from generated.state import Run

from . import cuda, neuron
from .data import arrays
from .spec import Function
from .text import build
from .verdicts import (
    DIFFERENT,
    EQUAL,
    ERROR,
    FAULT,
    REFUSED,
    UNDEFINED,
    Refused,
    Tally,
    Verdict,
)

#: What functions are scheduled for, by the name of the run's folder.
MACHINES: dict[str, ModuleType] = {"cuda": cuda, "neuron": neuron}


@dataclass(frozen=True)
class Scheduled:
    """A function, and what was made of it."""

    number: int
    function: Function
    way: str
    func: tirx.PrimFunc
    made: Any


def run_chunk(run: Run, start: int, stop: int, fatal: tuple[int, ...] = ()) -> dict[str, Any]:
    """Judge the functions of a range.

    - `run`: its folder is named after the machine.
    - `fatal`: functions that ended the process before: they are not tried again.
    - Returns: of JSON's types: counts, and what was wrong.
    """
    machine = MACHINES[run.folder.name]
    begun, tally = time.monotonic(), Tally()
    marker = run.folder / f"current-{os.getpid()}"
    several: list[Scheduled] = []
    for number in range(start, stop):
        function, way = machine.drawn(run.seed, number)
        marker.write_text(str(number))
        if number in fatal:
            tally.add(number, function, way, Verdict(ERROR, "the process died"))
            continue
        func = build(function)
        try:
            made = machine.scheduled(func, way, f"{run.seed}/{number}", function.kind)
        except Refused as why:
            tally.add(number, function, way, Verdict(REFUSED, str(why)))
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            tally.add(number, function, way, Verdict(ERROR, detail[-2000:]))
        else:
            several.append(Scheduled(number, function, way, func, made))
    marker.write_text(",".join(str(each.number) for each in several))
    for each, verdict in zip(several, judge(several, machine), strict=True):
        tally.add(each.number, each.function, each.way, verdict)
    marker.unlink(missing_ok=True)
    tally.seconds = time.monotonic() - begun
    return tally.to_json()


def judge(several: Sequence[Scheduled], machine: ModuleType) -> list[Verdict]:
    """Run scheduled functions, and compare with the unscheduled ones compiled for LLVM."""
    given = [arrays(each.function) for each in several]
    built = compiled([each.func for each in several])
    # In a process of its own, which may end with one of them.
    jobs = [functools.partial(_called, *each) for each in zip(built, given, strict=True)]
    wanted = list(outcomes(jobs))
    runner = machine.Runner([each.made for each in several])
    verdicts = []
    for at, (result, own) in enumerate(zip(wanted, given, strict=True)):
        if result.crash or not result.found:
            verdicts.append(Verdict(UNDEFINED, result.crash or "TVM does not compile it"))
            continue
        right = np.frombuffer(bytes.fromhex(result.found), own[-1].dtype).reshape(own[-1].shape)
        verdicts.append(_compared(right, lambda at=at, own=own: runner(at, own), machine))
    return verdicts


def _called(run: Any, given: Sequence[np.ndarray], _: Callable[[str], None]) -> str:
    """Return the bytes of the last array after a call, nothing where there is nothing to call."""
    if isinstance(run, Exception):
        return ""
    tensors = [tvm.runtime.tensor(array) for array in given]
    run(*tensors)
    return tensors[-1].numpy().tobytes().hex()


def compiled(funcs: Sequence[tirx.PrimFunc]) -> list[Any]:
    """Compile functions that are not scheduled for the CPU; an error stands for one that fails."""
    try:
        return compiled_together(funcs)
    except Exception as error:
        # TVM folds a division by 0 into an error of its own, behind a guard as well.
        return [error] if len(funcs) == 1 else [compiled([func])[0] for func in funcs]


def compiled_together(funcs: Sequence[tirx.PrimFunc]) -> list[Any]:
    """Compile functions for the CPU in one module."""
    named = {f"f{at}": func for at, func in enumerate(funcs)}
    mod = tvm.IRModule({n: func.with_attr("global_symbol", n) for n, func in named.items()})
    built = tvm.compile(mod, target={"kind": "llvm", "opt-level": 0})
    return [built[name] for name in named]


def _compared(right: np.ndarray, run: Callable[[], Any], machine: ModuleType) -> Verdict:
    try:
        found = np.asarray(run()).reshape(right.shape)
    except Refused as why:
        return Verdict(REFUSED, str(why))
    except machine.FAULTS as fault:
        return Verdict(FAULT, str(fault)[:2000])
    except Exception as error:
        return Verdict(ERROR, f"{type(error).__name__}: {error}"[-2000:])
    return verdict_of(right, found.astype(right.dtype), machine.SIGNED_ZEROS)


def verdict_of(right: np.ndarray, found: np.ndarray, signed_zeros: bool) -> Verdict:
    """Compare bit for bit; one NaN is as good as another, and perhaps one zero."""
    same = right.view(np.int32) == found.view(np.int32)
    if right.dtype == np.float32:
        same |= np.isnan(right) & np.isnan(found)
        same |= (right == found) & (not signed_zeros)
    if same.all():
        return Verdict(EQUAL)
    where = tuple(int(i) for i in np.argwhere(~same)[0])
    return Verdict(
        DIFFERENT, f"y{list(where)} is {found[where]}, not {right[where]}; {(~same).sum()} differ"
    )
