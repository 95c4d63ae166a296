"""What the tests of the command line share: files that hold functions, and running a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm.script import tirx as T

from fuse_epilogue import cli, workloads


def saved(path: Path, **funcs: Any) -> str:
    path.write_text(tvm.ir.save_json(tvm.IRModule(funcs)))
    return str(path)


@pytest.fixture
def product(tmp_path: Path) -> str:
    """A file with one function that the planner knows."""
    return saved(tmp_path / "product.json", main=workloads.matmul(16, 16, 16, activation="relu"))


def run(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command."""
    try:
        code = cli.main(arguments)
    except SystemExit as ended:  # the parser's
        code = ended.code
    return code, *capsys.readouterr()


@T.prim_func(private=True, s_tir=True)
def sum_of_part(x: T.Buffer((8, 8), "float32"), y: T.Buffer((4,), "float32")):
    """Rows are reduced, and half of the sums are used: an epilogue that cannot be fused."""
    sums = T.sblock_alloc_buffer((8,))
    for i, k in T.grid(8, 8):
        with T.sblock("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                sums[vi] = T.float32(0)
            sums[vi] = sums[vi] + x[vi, vk]
    for i in T.serial(4):
        with T.sblock("half"):
            vi = T.axis.spatial(4, i)
            y[vi] = sums[vi] * T.float32(2)
