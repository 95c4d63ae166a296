"""Print what the latency model predicts for planned kernels beside floors and AWS's public kernels.

    python benchmarks/neuron_planned.py                       prints the table
    python benchmarks/neuron_planned.py --library FOLDER      with AWS's kernels
    python benchmarks/neuron_planned.py --library FOLDER --write    renews the committed file

FOLDER is a checkout of github.com/aws-neuron/nki-library: its kernels are loaded from there and
predicted by the same model. They are no part of this repository. Nothing here was measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from provenance import provenance

import fuse_epilogue
from fuse_epilogue import __version__, neuron
from fuse_epilogue.neuron.machine import MACHINES
from fuse_epilogue.workloads import matmul
from planned_functions import attention, layer_norm, rms_norm, softmax

RESULTS = Path(__file__).resolve().parent / "results" / "neuron_planned.json"
#: Where the sources of AWS's library are in its repository.
SOURCES = "src/nkilib_src"
CORE = f"{SOURCES}/nkilib/core"

#: Calls a norm of the library, which takes tensors of its caller, as a kernel of its own.
NORM = """\
import nki
import nki.language as nl

from nkilib.core.subkernels.{name} import {name}


@nki.jit
def norm({parameters}):
    batch, length, size = x.shape
    y = nl.ndarray((128, batch * length, size // 128), x.dtype, buffer=nl.shared_hbm)
    {name}(x, gamma, y{rest})
    return y
"""


@dataclass(frozen=True)
class Floor:
    """What a function needs of a machine at least, whatever the kernel is.

    Attributes
    ----------
    moved : int
        Bytes from and to HBM, each once.
    columns : int
        Columns of moving operands of the tensor engine, times the passes of their type.
    exponentials : int
        Elements of a partition whose exponential the scalar engine computes.
    """

    moved: int
    columns: int = 0
    exponentials: int = 0

    def on(self, machine: str) -> tuple[float, str]:
        """Return milliseconds, and what takes them: an engine, or "dma"."""
        core = MACHINES[machine]
        rate = min(core.dma_gb_per_s, core.hbm_gb_per_s) * 1e9
        seconds = {
            "dma": self.moved / rate,
            "tensor": self.columns / (core.clock_ghz["tensor"] * 1e9),
            "scalar": self.exponentials / (core.clock_ghz["scalar"] * 1e9),
        }
        name = max(seconds, key=seconds.__getitem__)
        return 1e3 * seconds[name], name


@dataclass(frozen=True)
class Case:
    """A function that is planned, and a public kernel for the same, if there is one.

    Attributes
    ----------
    what : str
    machine : str
    make : Callable[[], tvm.tirx.PrimFunc]
    floor : Floor
    options : dict[str, Any]
        Options of the plan.
    public : str
        Name of AWS's kernel, with what it does otherwise; empty if there is none.
    load : Callable[[Path], neuron.Kernel] or None
        Loads it from a checkout of the library.
    """

    what: str
    machine: str
    make: Callable[[], Any]
    floor: Floor
    options: dict[str, Any] = field(default_factory=dict)
    public: str = ""
    load: Callable[[Path], neuron.Kernel] | None = None


def _public_attention(heads: int, length: int, size: int, library: Path) -> neuron.Kernel:
    """Return attention_cte for queries and keys as they are in memory: rows of features."""
    shape = (heads, length, size), "bfloat16"
    inputs = {"q": shape, "k": shape, "v": shape, "causal_mask": False, "tp_q": True, "tp_k": True}
    path = library / CORE / "attention" / "attention_cte.py"
    return neuron.load(path, inputs, folders=[library / SOURCES], kernel="attention_cte")


def _public_norm(name: str, batch: int, length: int, size: int, library: Path) -> neuron.Kernel:
    """Return a norm of the library for token generation."""
    more = ["beta"] if name == "layernorm_tkg" else []
    text = NORM.format(
        name=name,
        parameters=", ".join(["x", "gamma", *more]),
        rest="".join(f", {each}={each}" for each in more),
    )
    row = (1, size), "float16"
    inputs = {"x": ((batch, length, size), "float16"), **dict.fromkeys(["gamma", *more], row)}
    return neuron.load(text, inputs, folders=[library / SOURCES])


def _public_quantising_norm(rows: int, columns: int, library: Path) -> neuron.Kernel:
    """Return the RMS norm that quantises its rows to 8 bits."""
    inputs = {
        "hidden": ((1, rows, columns), "bfloat16"),
        "ln_w": ((1, columns), "bfloat16"),
        "kargs": neuron.Code("RmsNormQuantKernelArgs()"),
    }
    path = library / CORE / "rmsnorm" / "rmsnorm_quant.py"
    return neuron.load(path, inputs, folders=[library / SOURCES], kernel="rmsnorm_quant_kernel")


def _product(m: int, n: int, k: int, machine: str) -> Case:
    """Return a product of matrices in bfloat16, the left one with rows of k."""
    return Case(
        f"product {m} x {n} x {k}, bfloat16",
        machine,
        partial(matmul, m, n, k, dtype="bfloat16", bias=False),
        Floor(2 * (m * k + k * n + m * n), m * n * k // 128**2),
    )


def _attention(heads: int, length: int, size: int, **options: bool) -> Case:
    """Return attention in bfloat16 on trn2."""
    passes = 1 if options else 4
    tiles = heads * length // 128
    return Case(
        f"attention, {heads} heads of {length} x {size}, bfloat16",
        "trn2",
        partial(attention, heads, length, size),
        Floor(
            2 * 4 * heads * length * size,
            tiles * (length + length // 128 * size * passes),
            tiles * length,
        ),
        options,
        "attention_cte, which rounds shares to 16 bits",
        partial(_public_attention, heads, length, size),
    )


def _norm(kind: str, batch: int, length: int, size: int) -> Case:
    """Return a norm in float16, at a shape of the library's own tests."""
    rows, layer = batch * length, kind == "layer norm"
    name = "layernorm_tkg" if layer else "rmsnorm_tkg"
    return Case(
        f"{kind} of {rows} x {size}, float16",
        "trn2",
        partial(layer_norm if layer else rms_norm, rows, size, "float16"),
        Floor(2 * size * (2 * rows + 1 + layer)),
        {},
        f"{name}, which leaves its result transposed",
        partial(_public_norm, name, batch, length, size),
    )


CASES = (
    *(_product(n, n, n, machine) for machine in ("trn1", "trn2") for n in (1024, 4096)),
    _attention(8, 2048, 128),
    _attention(8, 2048, 128, round_shares=True),
    Case(
        "RMS norm of 2048 x 2048, bfloat16",
        "trn2",
        partial(rms_norm, 2048, 2048, "bfloat16"),
        Floor(2 * 2048 * (2 * 2048 + 1)),
        {},
        "rmsnorm_quant, which quantises rows to 8 bits as well",
        partial(_public_quantising_norm, 2048, 2048),
    ),
    *(
        _norm(kind, *shape)
        for kind in ("RMS norm", "layer norm")
        for shape in ((1, 1, 8192), (1, 8, 8192), (128, 1, 8192), (128, 5, 3072))
    ),
    Case(
        "layer norm of 2048 x 2048, float16",
        "trn2",
        partial(layer_norm, 2048, 2048, "float16"),
        Floor(2 * 2048 * (2 * 2048 + 2)),
    ),
    *(
        Case(
            f"softmax of {rows} x {columns}, float32",
            machine,
            partial(softmax, rows, columns),
            Floor(8 * rows * columns, 0, rows * columns // 128),
        )
        for machine in ("trn1", "trn2")
        for rows, columns in ((2048, 2048), (4096, 1024))
    ),
)


def _predicted(kernel: neuron.Kernel, machine: str) -> dict[str, Any]:
    found = kernel.predict(machine)
    return {
        "predicted_ms": round(found.latency_ms, 4),
        "range_ms": [round(ms, 4) for ms in found.range_ms],
    }


def row(case: Case, library: Path | None) -> dict[str, Any]:
    """Return the figures of a case."""
    func = case.make()
    plan = fuse_epilogue.plan(func, case.machine, **case.options)
    kernel = neuron.emit(plan.apply(func))
    kernel.check(case.machine)
    least, what = case.floor.on(case.machine)
    made: dict[str, Any] = {
        "what": case.what,
        "machine": case.machine,
        "options": case.options,
        **_predicted(kernel, case.machine),
        "floor_ms": round(least, 6),
        "floor_of": what,
        "public": None,
    }
    if case.load is not None and library is not None:
        public = _predicted(case.load(library), case.machine)
        made["public"] = {"kernel": case.public, **public}
    return made


def show(found: dict[str, Any]) -> None:
    """Print a row."""
    options = "".join(f", {name}" for name in found["options"])
    ms, public = found["predicted_ms"], found["public"]
    text = f"{found['what'] + options:58} {found['machine']} {ms:8.4f} ms"
    text += f" {ms / found['floor_ms']:5.2f} of the floor ({found['floor_of']})"
    if public is not None:
        text += f", {ms / public['predicted_ms']:.2f} of {public['kernel']}"
    print(text, flush=True)


def _commit(library: Path) -> str:
    command = ["git", "-C", str(library), "rev-parse", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Print, and write if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--library", type=Path, metavar="FOLDER", help="checkout of nki-library")
    parser.add_argument("--write", action="store_true", help="renew the file; takes --library")
    given = parser.parse_args()
    if given.write and given.library is None:
        parser.error("--write takes --library: the file has both")
    rows = []
    for case in CASES:
        rows.append(row(case, given.library))
        show(rows[-1])
    if given.write:
        found = {
            "benchmark": "neuron_planned",
            "what": "predictions of the latency model; nothing was measured",
            "version": __version__,
            **provenance("neuron_planned"),
            "library": {"aws-neuron/nki-library": _commit(given.library)},
            "kernels": rows,
        }
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
