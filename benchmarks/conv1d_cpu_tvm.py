"""What runs under TVM in `conv1d_cpu.py`: ours, the function as it is, MetaSchedule, memcpy."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm
from conv1d_cpu_cases import Arrays, Case
from conv1d_cpu_peers import Missing, Version
from tvm.script import tirx as T

from fuse_epilogue import schedules, workloads

OURS, MEMCPY, CALL = "ours", "memcpy", "call"
UNSCHEDULED, TUNED = "TVM unscheduled", "TVM MetaSchedule"

TRIALS = 32


def use_threads_of_pool(count: int) -> None:
    """Have TVM run parallel loops with fewer threads than its pool has, or with all."""
    tvm.get_global_func("runtime.config_threadpool")(1, count)
    have = int(tvm.get_global_func("runtime.NumThreads")())
    if have != count:
        raise SystemExit(f"TVM runs {have} threads, not {count}")


def workload(case: Case) -> tvm.tirx.PrimFunc:
    """Return the convolution, not scheduled."""
    return workloads.depthwise_conv1d(case.n, case.c, case.w, case.f, **case.options)


def memcpy(case: Case, threads: int) -> tvm.tirx.PrimFunc:
    """Return a function that has each thread copy its part of x to y by the C library's memcpy.

    Its parameters are those of the convolution: calling it from Python costs as much.
    """
    n, c, w, f = case.n, case.c, case.w, case.f
    dtype, bias_dtype = case.dtype, case.bias_dtype
    rows = n * c // threads
    if rows * threads != n * c:
        raise SystemExit(f"{case.label}: {threads} threads cannot share {n * c} rows evenly")
    size = case.nbytes // threads

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((n, c, w), dtype),
        weight: T.Buffer((c, f), dtype),
        bias: T.Buffer((c,), bias_dtype),
        y: T.Buffer((n, c, w), dtype),
    ):
        for i in T.parallel(threads):
            T.evaluate(
                T.call_extern(
                    "handle",
                    "memcpy",
                    T.address_of(y[i * rows // c, i * rows % c, 0]),
                    T.address_of(x[i * rows // c, i * rows % c, 0]),
                    T.uint64(size),
                )
            )

    return main


def nothing(case: Case) -> tvm.tirx.PrimFunc:
    """Return a function with the parameters of the convolution that does nothing."""
    n, c, w, f = case.n, case.c, case.w, case.f
    dtype, bias_dtype = case.dtype, case.bias_dtype

    @T.prim_func(s_tir=True)
    def main(
        x: T.Buffer((n, c, w), dtype),
        weight: T.Buffer((c, f), dtype),
        bias: T.Buffer((c,), bias_dtype),
        y: T.Buffer((n, c, w), dtype),
    ):
        T.evaluate(0)

    return main


def tune(case: Case, target: tvm.target.Target, records: Path) -> None:
    """Let MetaSchedule search, and keep what it finds in a folder of `records`."""
    from tvm.s_tir import meta_schedule

    folder = folder_of(case, target, records)
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory() as unfinished:
        meta_schedule.tune_tir(
            workload(case),
            target,
            unfinished,
            max_trials_global=TRIALS,
            num_trials_per_iter=TRIALS,
            seed=1,
        )
        shutil.copytree(unfinished, folder)


def tuned(case: Case, target: tvm.target.Target, records: Path) -> tvm.IRModule:
    """Return the best that MetaSchedule has found in `tune`."""
    try:
        from tvm.s_tir import meta_schedule
    except ImportError as error:
        raise Missing(f"MetaSchedule needs the extra 'bench': {error}") from None
    folder = folder_of(case, target, records)
    if not folder.is_dir():
        raise Missing("MetaSchedule: not tuned")
    database = meta_schedule.database.JSONDatabase(work_dir=str(folder))
    sch = meta_schedule.tir_integration.compile_tir(database, workload(case), target)
    if sch is None:
        raise Missing(f"MetaSchedule has found no schedule in {TRIALS} trials")
    return sch.mod


def folder_of(case: Case, target: tvm.target.Target, records: Path) -> Path:
    """Return where the records of a case and a number of threads are."""
    return records / f"{case.key}-{target.attrs['num-cores']}"


def tvm_makers(
    case: Case, arrays: Arrays, target: tvm.target.Target, threads: int, records: Path | None
) -> dict[str, Callable[[], Version]]:
    """Return what makes each of TVM's versions; all run on the same arrays."""
    device = tvm.cpu()
    # Copies: the compiled code asks for an alignment that numpy does not promise.
    inputs = [tvm.runtime.tensor(arrays[name], device) for name in ("x", "weight", "bias")]
    garbage = (arrays["x"] * 0 + 77).astype(case.dtype)
    y = tvm.runtime.tensor(garbage, device)

    def of(function: Any) -> Version:
        with tvm.transform.PassContext(opt_level=3):
            main = tvm.compile(function, target=target)["main"]

        def result() -> Any:
            y.copyfrom(garbage)
            main(*inputs, y)
            return y.numpy()

        return Version(lambda: main(*inputs, y), result)

    makers = {
        CALL: lambda: of(nothing(case)),
        MEMCPY: lambda: of(memcpy(case, threads)),
        OURS: lambda: of(schedules.apply(workload(case), target)),
        UNSCHEDULED: lambda: of(workload(case)),
    }
    if records is not None:
        makers[TUNED] = lambda: of(tuned(case, target, records))
    return makers
