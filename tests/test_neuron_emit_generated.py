"""Generated schedules of generated workloads become kernels that are checked, executed and right.

What a schedule is made of, and which refusals it may meet, is in ``neuron_schedules``; the
workloads, their data and what is right are in ``neuron_workloads``.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm_ffi import structural_equal

from fuse_epilogue.neuron.emit import REFUSALS, EmitError, emit
from neuron_schedules import KINDS, drawn
from oracles import compile_together
from tiers import one_in
from workload_runs import call

# With sanitizers this would take long, and hardly any of it is the library's own code.
pytestmark = pytest.mark.slow

CHUNK = 40
CHUNKS = 16
#: So many of the programs of a chunk at least: 512 of 640 in all.
ACCEPTED = 32
#: One program in so many is also executed on normals, infinities and NaN, beside LLVM.
SHARE = 8


@pytest.mark.parametrize("chunk", one_in(5, range(CHUNKS)))
def test_generated_schedules_become_right_kernels(chunk):
    programs = {n: drawn(n) for n in range(chunk * CHUNK, (chunk + 1) * CHUNK)}
    accepted = {}
    for number, d in programs.items():
        what = f"program {number}, {d}"
        before = d.sch.mod
        try:
            kernel = emit(d.sch)
        except EmitError as error:
            assert error.code in d.risks, f"{what}: refused unexpectedly: {error}"
            assert REFUSALS[error.code] in str(error), f"{what}: {error}"
            continue
        finally:
            assert structural_equal(before, d.sch.mod), f"{what}: the schedule has changed"
        accepted[number] = kernel
        for machine in ("trn1", "trn2"):
            try:
                kernel.check(machine)
            except ValueError as error:
                raise AssertionError(f"{what}, {machine}: {error}\n{kernel.source}") from None
        inputs = d.workload.inputs("exact")
        with np.errstate(all="ignore"):
            y = kernel(*inputs.values())
        d.workload.judge(y, inputs, "exact", f"{what}\n{kernel.source}\n")
    assert len(accepted) >= ACCEPTED, f"{len(accepted)} of {CHUNK} schedules became kernels"

    share = [n for n in accepted if n % SHARE == chunk % SHARE and not programs[n].workload.rounds]
    built = compile_together({f"f{n}": programs[n].workload.func for n in share}, opt_level=0)
    for number in share:
        workload = programs[number].workload
        for kind in ("normal", "nasty"):
            inputs = workload.inputs(kind)
            with np.errstate(all="ignore"):
                y = accepted[number](*inputs.values())
            garbage = {"y": np.full_like(y, -1e4)}
            other = call(built[f"f{number}"], {**inputs, **garbage})
            # Both within the bound around the exact value, so that they differ by twice of it.
            workload.judge(y, inputs, kind, f"program {number}, {programs[number]}, {kind}")
            workload.judge(other, inputs, kind, f"program {number}, {kind}, by LLVM")


def test_a_number_always_gives_the_same_schedule_and_the_same_kernel():
    for number in range(1, 1 + len(KINDS)):
        one, two = drawn(number), drawn(number)
        assert str(one) == str(two)
        assert structural_equal(one.sch.mod, two.sch.mod)
        assert _outcome(one) == _outcome(two)


def _outcome(d):
    try:
        return emit(d.sch).source
    except EmitError as error:
        return str(error)


def test_what_is_generated_is_varied():
    """All kinds, types, steps and forms occur; a schedule whose every attempt failed would not."""
    programs = [drawn(number) for number in range(120)]
    steps = " ".join(str(d) for d in programs)
    assert {d.kind for d in programs} == set(KINDS)
    wanted = [
        *("float32", "bfloat16", "float16", "relu", "silu", "relax_depthwise_conv1d"),
        *("stride=2", "dilation=2", "transpose_a=True", "transpose_b=True", "op='max'"),
        *("bias fused", "fused after", "zeros apart", "padding inlined", "products in loop"),
        *("padding in loop", "tiles", "columns", "b stays", "on gpsimd", "no marks", "inlined"),
        *("x_trn.sbuf in loop", "y_trn.psum in loop", "padding in HBM", "split 130 by 128"),
    ]
    missing = [each for each in wanted if each not in steps]
    assert not missing, missing


def test_the_judge_notices_what_is_wrong():
    """One element off by one, a NaN, or rounding in the wrong type."""
    d = drawn(1)
    inputs = d.workload.inputs("exact")
    y = np.asarray(emit(d.sch)(*inputs.values()))
    d.workload.judge(y, inputs, "exact", "right")
    for value in (y.flat[-1] + 1, np.nan):
        wrong = y.copy()
        wrong.flat[-1] = value
        with pytest.raises(AssertionError, match="elements are wrong"):
            d.workload.judge(wrong, inputs, "exact", "wrong")
    with pytest.raises(AssertionError, match="type"):
        d.workload.judge(y.astype("float64"), inputs, "exact", "wrong type")
