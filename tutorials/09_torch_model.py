"""
From eager to compiled
======================

``fuse_epilogue.compile`` takes a model as PyTorch has it, fuses each of its functions, gives each a
kernel for this machine's processor, and returns something to call with arrays. This tutorial takes
a block of a transformer from PyTorch's eager mode through that call, checks it, reads its report,
measures it beside PyTorch, and saves it. The last section does the same from within PyTorch:
``torch.compile(model, backend="fuse_epilogue")``.

Without PyTorch the same network is written in Relax, TVM's language of whole models, and everything
but the last section is as it would be.
"""

# %%
# The model
# ---------
# Tokens in, probabilities out: a normalisation, two layers with a GELU between them, a residual, a
# mean over the tokens, and a classifier.

import importlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

import fuse_epilogue
from fuse_epilogue.models import import_model

try:
    from pictures import bars, show
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = lambda *_, **__: None

torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None

# TVM takes half of the processors by itself. It reads this when it first starts threads.
os.environ["TVM_NUM_THREADS"] = "1"

TOKENS, WIDTH, HIDDEN, CLASSES = 64, 128, 512, 10
x = np.random.default_rng(0).standard_normal((TOKENS, WIDTH)).astype("float32")

if torch is not None:

    class Block(torch.nn.Module):
        """A part of a transformer with a classifier after it."""

        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(WIDTH)
            self.up = torch.nn.Linear(WIDTH, HIDDEN)
            self.down = torch.nn.Linear(HIDDEN, WIDTH)
            self.classes = torch.nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """Return a probability for each class."""
            y = self.down(torch.nn.functional.gelu(self.up(self.norm(x)))) + x
            return torch.softmax(self.classes(y.mean(0, keepdim=True)), -1)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    eager = Block().eval()  # dropout and batch norm depend on the mode: compile asks for this one
    tokens = torch.from_numpy(x)
    imported = import_model(eager, (tokens,))
else:
    print("PyTorch is not installed: this is the same network, written in Relax.")

    class Block(nn.Module):
        """A part of a transformer with a classifier after it."""

        def __init__(self) -> None:
            self.norm = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, HIDDEN)
            self.down = nn.Linear(HIDDEN, WIDTH)
            self.classes = nn.Linear(WIDTH, CLASSES)

        def main(self, x: nn.Tensor) -> nn.Tensor:
            """Relax calls this once, to record it."""
            y = self.down(nn.op.gelu(self.up(self.norm(x)))) + x
            mean = nn.op.wrap_nested(relax.op.mean(y._expr, 0, keepdims=True), "mean")
            return nn.op.softmax(self.classes(mean), axis=-1)

    written, parameters = Block().export_tvm({"main": {"x": nn.spec.Tensor(x.shape, "float32")}})
    rng = np.random.default_rng(1)
    weights = {
        name: (rng.standard_normal(each.shape) / 16).astype("float32") for name, each in parameters
    }
    imported = relax.transform.BindParams("main", weights)(written)

# %%
# Compile it
# ----------
# One call: with a module of PyTorch, arguments to export it with; with an ONNX model, its path. The
# target is this machine's processor. Weights become constants, packed as the kernels read them.

if torch is not None:
    model = fuse_epilogue.compile(eager, example_inputs=(tokens,), threads=1)
else:
    model = fuse_epilogue.compile(imported, threads=1)
print(model.signature)

# %%
# Results are arrays of the library that the arguments are of: tensors for tensors, read in place.
# They are right up to rounding, for sums of floats are added up in another order. The reference is
# PyTorch, or the model as TVM compiles it by itself.

by_tvm = tvm.compile(imported, "llvm", relax_pipeline=relax.get_pipeline("default_build"))
machine = relax.VirtualMachine(by_tvm, tvm.cpu())
argument = tvm.runtime.tensor(x)


def unscheduled() -> Any:
    """Run the model as TVM compiles it."""
    return machine["main"](argument)


expected = unscheduled().numpy()
if torch is not None:
    with torch.inference_mode():
        expected = eager(tokens).numpy()
error = np.abs(model(x) - expected).max() / np.abs(expected).max()
print(f"largest difference: {error:.1e} of the largest result")
assert error < 1e-5

# %%
# What became of it
# -----------------
# The report has a row for each function of the model: the kind of its kernel, what became of the
# work that follows its reduction, and the time that the cost model predicts. ``profile`` adds what
# a run takes on this machine. In a notebook both are tables; ``to_html()`` is a page.

report = model.profile(x)
print(report)
times = {each.name: {each.kind: each.measured_s * 1e6} for each in report.functions}
show("torch_functions", bars("microseconds in each function, measured", times, "us"))

# %%
# The GELU is a tail of the first layer, the residual one of the second: neither is a pass over
# memory of its own. A function of kind ``default`` would keep the loops that TVM gives it, and the
# report would say why.

fused = [each.name for each in report.functions if each.fusion != "none"]
print("with an epilogue:", ", ".join(fused))
assert report.measured and any("gelu" in name or "erf" in name for name in fused)

# %%
# How fast it is
# --------------
# In turns, on one thread, the median of some rounds. These are times of the machine that made this
# page, and of a small model; ``benchmarks/models.py`` compares larger ones.


def milliseconds(ways: dict[str, Callable[[], Any]], rounds: int = 7) -> dict[str, float]:
    """Measure each way in turns."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, run in ways.items():
            begin = time.perf_counter()
            for _ in range(5):
                run()
            if number:  # the first one warms up
                samples[name].append((time.perf_counter() - begin) / 5)
    return {name: statistics.median(each) * 1e3 for name, each in samples.items()}


ways: dict[str, Callable[[], Any]] = {
    "TVM's default": unscheduled,
    "fuse_epilogue": lambda: model(x),
}
if torch is not None:

    def in_eager_mode() -> Any:
        """Run the model as PyTorch does."""
        with torch.inference_mode():
            return eager(tokens)

    ways["torch, eager"] = in_eager_mode
taken = milliseconds(ways)
for name, each in taken.items():
    print(f"{name:16} {each:8.3f} ms")
chart = {name: {"": each} for name, each in taken.items()}
show("torch_times", bars("milliseconds of a run, measured on this machine", chart, "ms"))

# %%
# Keep it
# -------
# A saved model is one file, which ``fuse_epilogue.load`` reads: machine code, signature and report.
# With a ``database`` compiling itself is quick: what was compiled before is found there, by the
# model with its weights, the target and versions. On the command line the same are ``fuse-epilogue
# compile model.onnx -o model.so``, ``run`` and ``profile``.

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder, "block.so"))
    loaded = fuse_epilogue.load(Path(folder, "block.so"))
    assert np.array_equal(loaded(x), model(x))
    for when in ("first", "again"):
        scheduled: list[int] = []
        fuse_epilogue.compile(
            imported,
            threads=1,
            database=Path(folder, "database"),
            on_progress=lambda done, _, scheduled=scheduled: scheduled.append(done),
        )
        print(f"{when}: {len(scheduled)} functions scheduled")

# %%
# From within PyTorch
# -------------------
# ``torch.compile`` finds the backend by its name. Breaks of the graph, guards and compiling again
# for other arguments are PyTorch's business; what Relax cannot represent PyTorch runs itself, and a
# warning says what it was. For inference only: without gradients.

if torch is not None:
    compiled = torch.compile(eager, backend="fuse_epilogue")
    with torch.inference_mode():
        difference = (compiled(tokens) - eager(tokens)).abs().max()
    print(f"largest difference: {difference:.1e}")
    assert difference < 1e-5

# %%
# In one sentence: the same results, from kernels that were made for this model.

assert scheduled == [] and np.allclose(model(x), expected, rtol=0, atol=1e-5)
