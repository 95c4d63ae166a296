"""
A whole model
=============

A model has too many reductions to fuse by hand. ``FuseReductionEpilogue`` is a pass: it finds every
reduction of a module, looks at what follows it, decides, fuses, and writes a report. This tutorial
takes a small network from Relax (TVM's language of whole models) through that pass, reads the
report, compares what comes out bit for bit, and then has one layer tuned, with fusion as one of the
things that the tuner may choose.

PyTorch is not needed. Where it is installed, the last section takes a model from there.
"""

# %%
# The model
# ---------
# A convolution with bias and ReLU, a pooling with a limit, a layer with bias and GELU, one with
# bias and a residual, a softmax. ``relax.frontend.nn`` writes it down much as PyTorch would.

import importlib.util
import os
import tempfile
import time

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.s_tir import meta_schedule as ms

from fuse_epilogue import schedules, tune
from fuse_epilogue.transform import FuseReductionEpilogue, report_of

try:
    from pictures import bars, show, side_by_side
except ImportError:  # the tutorial alone, without its folder: no drawings
    bars = show = side_by_side = lambda *_, **__: None

# TVM takes half of the processors by itself. It reads this when it first starts threads.
THREADS = min(2, os.cpu_count() or 1)
os.environ["TVM_NUM_THREADS"] = str(THREADS)

CHANNELS, SIZE, CLASSES = 16, 32, 64


class Model(nn.Module):
    """Pictures in, probabilities out."""

    def __init__(self) -> None:
        self.conv = nn.Conv2D(3, CHANNELS, 3, padding=1, bias=True)
        self.up = nn.Linear(CHANNELS * SIZE * SIZE // 4, CLASSES, bias=True)
        self.mix = nn.Linear(CLASSES, CLASSES, bias=True)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Relax calls this once, to record it."""
        x = nn.op.relu(self.conv(x))
        pooled = relax.op.clip(relax.op.nn.max_pool2d(x._expr, [2, 2], [2, 2]), 0, 6)
        x = nn.op.reshape(nn.op.wrap_nested(pooled, "pooled"), [x.shape[0], -1])
        x = nn.op.gelu(self.up(x))
        return nn.op.softmax(self.mix(x) + x, axis=-1)


spec = nn.spec.Tensor((4, 3, SIZE, SIZE), "float32")
model, parameters = Model().export_tvm({"forward": {"x": spec}})

# %%
# Four passes of TVM make functions of TIR of it: ``LegalizeOps`` one for each operator,
# ``FuseOps`` and ``FuseTIR`` one for each group of operators. In such a function the operators are
# still loop nests, one after the other, with a buffer between them: that is where the pass comes
# in.

lower = [
    relax.transform.LegalizeOps(),
    relax.transform.AnnotateTIROpPattern(),
    relax.transform.FuseOps(),
    relax.transform.FuseTIR(),
]
before = tvm.ir.transform.Sequential(lower)(model)
after = FuseReductionEpilogue()(before)

# %%
# The report
# ----------
# The module carries it as an attribute, through further passes and through JSON.

report = report_of(after)
print(report)

# %%
# How to read it: a line for the module, then the functions that have reductions, and for each
# reduction what it absorbed, what runs after it, and why. ``[...]`` are the codes of tutorial 02: a
# softmax reads its maximum and its sum once for each element of a row, so those are not fused.
#
# The report is data, too. The fusion saves intermediates, which are written once and read at least
# once:

saved = {each.name: {"": each.bytes_saved / 1024} for each in report.functions if each.fused}
for name, values in saved.items():
    print(f"{name:40} {values['']:8.1f} KiB")
assert report.fused >= 4 and report.found > report.fused
assert report.bytes_saved == sum(each.bytes_saved for each in report.functions)
show("model_saved", bars("KiB of intermediates that are gone", saved, "KiB"))

# %%
# One of the functions, before and after. ``numerics="exact"`` is the default of the pass:
# nothing of a float is absorbed, the work after a sum runs on each finished row, where LLVM makes
# vectors of it.

name = next(name for name in saved if "conv2d" in name)
print(next(each for each in report.functions if each.name == name))
# Its own part of the report is an attribute of the function: not in the picture.
pair = before[name], after[name].without_attr("fuse_epilogue.fused")
show("model_function", side_by_side(*(func.script(int_dtype="int64") for func in pair)))

# %%
# The same result
# ---------------
# Both modules, compiled by TVM for this machine. Exact means exact: every bit is equal.

target = tvm.target.Target(schedules.host(THREADS))
rng = np.random.default_rng(0)


def parameter(var: relax.Var) -> np.ndarray:
    """Return normals for a parameter: weights of the size that a training begins with."""
    shape = [int(size) for size in var.ty.shape]
    scale = 1 if var is before["forward"].params[0] else np.prod(shape[1:] or [1]) ** -0.5
    return (scale * rng.standard_normal(shape)).astype("float32")


arrays = [parameter(var) for var in before["forward"].params]


class Built:
    """A module, compiled and ready to be called."""

    def __init__(self, mod: tvm.IRModule) -> None:
        self.machine = relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
        self.arguments = [tvm.runtime.tensor(array) for array in arrays]

    def __call__(self) -> np.ndarray:
        """Return the probabilities."""
        return self.machine["forward"](*self.arguments).numpy()

    def milliseconds(self) -> float:
        """Return the best of a few calls."""
        best = float("inf")
        for _ in range(20):
            begin = time.perf_counter()
            self()
            best = min(best, time.perf_counter() - begin)
        return best * 1e3


unfused, fused = Built(before), Built(after)
probabilities = unfused()
assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
print("every bit is equal:", fused().tobytes() == probabilities.tobytes())
assert fused().tobytes() == probabilities.tobytes()
print("on this machine, now:")
print(f"{unfused.milliseconds():.3f} ms unfused, {fused.milliseconds():.3f} ms fused")

# %%
# The time says little here. These functions are compiled as they were lowered, one loop after
# the other, and nearly all of it goes into products that are not tiled: that is what schedules are
# for, and tuning.
#
# Choices
# -------
# ``numerics="reassociate"`` lets sums start from their biases (tutorial 03), ``policy`` says who
# decides. ``"never"`` only reports. ``"planner"``, the default, fuses where intermediates are
# saved; with a ``target`` it asks the planner of tutorial 07 where that knows the function.

never = FuseReductionEpilogue(policy="never")(before)
print(str(report_of(never)).splitlines()[0])
loose = FuseReductionEpilogue(numerics="reassociate")(before)
reductions = [each for func in report_of(loose).functions for each in func.reductions]
started = [each.absorbed for each in reductions if each.absorbed]
print("sums that start from something:", started)
assert report_of(never).fused == 0 and not any(f.fused for f in report_of(never).functions)
assert started and np.allclose(Built(loose)(), probabilities, atol=1e-5)

# %%
# A second run finds nothing left to do and returns the same module:

assert FuseReductionEpilogue()(after).same_as(after)

# %%
# Tuning
# ------
# TVM's MetaSchedule tries schedules and measures them. ``tune.tune`` gives it one choice more, for
# every reduction that can absorb an epilogue: to fuse, or not to. Here is the layer with the GELU
# as it was before the pass: what is fused is the tuner's business now. Each measurement is in the
# database as soon as it is made, and the same call goes on where it was stopped.
#
# How it searches is ``tune.FuseBest``, the default, around TVM's evolutionary search: of each batch
# at least one trial goes to the best schedule that was measured unfused, as it is, but fused. Here
# TVM's part is small. A few random samples are a demonstration; hundreds, and a model that learns
# from them, are usual. (Most of the time is gone before the first: MetaSchedule imports all tensor
# intrinsics of TVM.)

TRIALS, BATCH = 8, 4
layer = next(each.name for each in report.functions if each.name.endswith("add1_gelu"))
missing = [p for p in ("cloudpickle", "psutil") if importlib.util.find_spec(p) is None]
measured: dict[str, dict[str, float]] = {}
if missing:
    print("Nothing is tuned: MetaSchedule needs more. pip install", *missing)
    tuned = after
else:
    inner = ms.search_strategy.EvolutionarySearch(
        population_size=64, init_min_unmeasured=TRIALS, genetic_num_iters=0
    )
    search = tune.FuseBest(inner)
    # The default cost model, "xgb", needs the package xgboost.
    options = {"trials": TRIALS, "batch": BATCH, "strategy": search, "cost_model": "random"}
    mixed = tvm.IRModule(after.functions, after.attrs, after.global_infos)
    mixed.update_func(mixed.get_global_var(layer), before[layer])
    with tempfile.TemporaryDirectory() as folder:
        database = tune.tune(before[layer], target, folder, seed=1, **options)
        for place, record in enumerate(database.get_all_tuning_records(), 1):  # best first
            way = "fused" if "fuse_reduction_epilogue" in str(record.trace) else "unfused"
            seconds = np.mean([float(one) for one in record.run_secs])
            measured[f"{place}. {way}"] = {way: 1e6 * seconds}
        with target, database:
            tuned = relax.transform.MetaScheduleApplyDatabase()(mixed)
    assert tuned[layer].attrs["tirx.is_scheduled"]
    for name, ways in measured.items():
        print(f"{name:12}", *(f"{time_of:8.2f} us" for time_of in ways.values()))
    assert {way for ways in measured.values() for way in ways} == {"fused", "unfused"}
    title = "microseconds of a call, measured on this machine"
    show("model_trials", bars(title, measured, "us"))

# %%
# With so few trials it is luck which of them is best, fused or not. The model takes the best record
# of the database, and computes what it did before, up to rounding: a tuned schedule may add up in
# another order.

error = abs(Built(tuned)() - probabilities).max()
print(f"largest difference of a probability: {error:.1e}")
assert error < 1e-6

# %%
# From PyTorch
# ------------
# ``torch.export`` gives a model that Relax reads. The rest is as above.

if importlib.util.find_spec("torch") is None:
    print("PyTorch is not installed. Where it is:")
    print("    exported = torch.export.export(module, (x,))")
    print("    mod = from_exported_program(exported)  # of tvm.relax.frontend.torch")
    print("    mod = tvm.ir.transform.Sequential([*lower, FuseReductionEpilogue()])(mod)")
else:
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    module = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    with torch.no_grad():
        exported = torch.export.export(module, (torch.randn(4, 64),))
        imported = from_exported_program(exported)
    imported = tvm.ir.transform.Sequential([*lower, FuseReductionEpilogue()])(imported)
    print(report_of(imported))
    assert report_of(imported).fused == 2

# %%
# In one sentence: what the pass has fused of this model, and that it is the same model.

print(str(report).splitlines()[0])
assert report.fused == 4 and fused().tobytes() == probabilities.tobytes()
