"""Pages of the results, by file: a title, a few sentences, and what shows the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import judged, predicted, timed

Data = Mapping[str, Any]


@dataclass(frozen=True)
class ResultPage:
    """The text and the tables of a page.

    - `about`: in reStructuredText: what was compared, and how it is to be read. No figures.
    - `show`: yields the parts of the page.
    """

    title: str
    about: str
    show: Callable[[Data], Iterable[str]]


#: By the name of the file in ``benchmarks/results``, without ".json".
SHOWN = {
    "conv1d_cpu": ResultPage(
        "Depthwise conv1d on a CPU",
        """
The schedules of :func:`fuse_epilogue.schedules.apply` beside other libraries, and beside the bound
of each layer: the longer one of *memcpy*, measured in the same run, of the bytes that the layer has
to move, and of *arithmetic*, the least time of its vector instructions. They are counted (a product
with its addition as one, a division as one, no loads and shuffles) and divided by the instructions
that begin in a clock, by the clock of the processor's profile and by the threads. Results of 32 MiB
or more are stored around the caches and can be faster than a ``memcpy``. Layers are images ×
channels × columns × taps; *cold* data were not in a cache.
""",
        timed.convolutions,
    ),
    "conv1d_streams": ResultPage(
        "Streams and gradients of depthwise conv1d",
        """
One step of many streams beside torch and torch.compile, and beside a ``memcpy`` of the bytes that
it reads and writes, which it should exceed by a tenth at most; and the gradients of x, weight and
bias beside torch's autograd, of whose time they should take 0.8 at most. What bounds a step is its
arithmetic, not its bytes: states of three columns are taken to pieces and put together again in
registers, and SiLU takes more instructions than the taps. Without an activation a step of
``float32`` is as fast as the ``memcpy``; types of 16 bits halve the bytes, and none of the
arithmetic. Shapes are images × channels × columns × taps.
""",
        timed.streams,
    ),
    "cuda_registers": ResultPage(
        "Registers on CUDA",
        """
Registers of a thread as the planner predicts them, and as nvcc gives them to the same kernels: the
plans of some functions, and points drawn from all that are feasible. Nothing ran on a GPU for this.
*Within each*: the rank correlation within a function, its median.
""",
        predicted.registers,
    ),
    "fusion": ResultPage(
        "What fusing gains",
        """
The same loops unfused, with the epilogue placed by hand (TVM's ``reverse_compute_at`` and
``reverse_compute_inline``, where they accept it), and fused by ``fuse_reduction_epilogue``. Above 1
ours is faster.
""",
        timed.fusions,
    ),
    "fuzz": ResultPage(
        "Generated programs",
        """
Generated reductions with epilogues, and what became of each: *accepted-different* is a program that
computes something else after the call, the only verdict that must never be. *tvm* is TVM's own
primitive on those programs that it can be called for.
""",
        judged.generated,
    ),
    "tvm_tests": ResultPage(
        "TVM's own tests",
        """
The tests of schedules, MetaSchedule, dlight and FuseTIR from TVM's sources, run with this package's
entry point hidden and with it loaded. Tests differ only where they demand what TVM's own
``fuse_reduction_epilogue`` does wrong; those are listed with the reason.
""",
        judged.tests_of_tvm,
    ),
    "fuzz_cascades": ResultPage(
        "Generated cascades",
        """
Generated chains of reductions that read each other's results by rows, and what became of each:
*accepted and different* must never be.
""",
        judged.cascades,
    ),
    "fuzz_certificates": ResultPage(
        "Changed certificates",
        """
Certificates of right fusions with one field changed at random, and the function after changed with
it where the field says what a block stores. What :func:`fuse_epilogue.verify.check` accepts must
compute what the function before computes: *accepted and different* must never be.
""",
        judged.certificates,
    ),
    "mutants": ResultPage(
        "Faults put into the package",
        """
Whether the quick tests notice faults: checks of the library switched off, wrong rows of tables, and
mutants of Python drawn from those of cosmic-ray. Each fault is judged by the tests that execute its
lines. *Killed*: a test failed.
""",
        judged.faults,
    ),
    "fuzz_cuda": ResultPage(
        "Guarded functions for CUDA",
        """
Functions whose operands are defined under a guard only, scheduled for CUDA by rules and by plans,
and executed by the CPU next to memory that cannot be read. *Equal* is bit for bit what the
unscheduled function computes; *different* and *fault* must never be. *Undefined*: the unscheduled
function does not compile, or dies, in TVM itself.
""",
        judged.guarded,
    ),
    "fuzz_neuron": ResultPage(
        "Guarded functions for Trainium",
        """
The same functions scheduled for Trainium and run by this package's interpreter of NKI, which checks
every access. A function for which no kernel can be emitted is *refused*, with its reason.
""",
        judged.guarded,
    ),
    "neuron_public": ResultPage(
        "NKI kernels that others wrote",
        """
Functions with ``@nki.jit`` in AWS's public repositories, loaded and checked with shapes that their
documentation allows. *Checks*: for at least one choice of arguments they obey the rules; what they
compute was not compared.
""",
        judged.public_kernels,
    ),
    "fuzz_modules": ResultPage(
        "Random modules",
        """
Random modules of Relax, valid by construction, through
:class:`fuse_epilogue.transform.FuseReductionEpilogue` under both numerics. The results are compared
with those without the pass, with NumPy and with ONNX Runtime: *different* and *crashed* are of
modules that are right without the pass, and must never be.
""",
        judged.modules,
    ),
    "fuzz_schedules": ResultPage(
        "Generated functions for LLVM",
        """
Products, reductions of rows and depthwise convolutions, most with operands that are defined under a
guard only. Each is scheduled for LLVM by its plan, by points drawn from the planner's space and by
rules, and executed next to memory that cannot be read. *Same* is bit for bit what the unscheduled
function computes, up to the sign of a zero; *different*, *died* and *error* must never be.
*Not-compiled*: TVM does not compile the unscheduled function.
""",
        judged.planned,
    ),
    "models": ResultPage(
        "Whole models",
        """
Models of PyTorch with random weights, compiled by :func:`fuse_epilogue.compile`, beside PyTorch
without and with its compiler, and ONNX Runtime: in turns, a process for each. *Difference* is the
largest of any of them from PyTorch, as a part of the largest result. Below 1 ours is faster.
""",
        timed.peers,
    ),
    "conv_layers": ResultPage(
        "Convolutions of networks, one by one",
        """
The convolutions of ResNet-50, MobileNetV2 and ConvNeXt-T, each followed by ReLU, on one thread:
those of :func:`fuse_epilogue.compile`, without the conversions of layouts at the ends of a model;
oneDNN's, on packed weights; and ONNX Runtime's node alone, by its profiler. *Difference* is the
largest of any of them from PyTorch, as a part of the largest result. Below 1 ours is faster.
""",
        timed.peers,
    ),
    "quantised": ResultPage(
        "Products and convolutions of 8-bit integers",
        """
Layers with constant weights on one thread: sums of 32 bits, the same requantised to 8 bits, and
inputs in ``float32`` that are quantised at each call. ONNX Runtime's nodes are timed by its own
profiler. *Difference* is the largest from NumPy for sums and from ONNX Runtime otherwise. Where
both sides are signed, ONNX Runtime has no kernel with the processor's instructions. Below 1 ours is
faster.
""",
        timed.peers,
    ),
    "cascades": ResultPage(
        "Attention, softmax and layer norms",
        """
Kernels of ``float32`` beside torch's functions and ONNX Runtime's operators, whose
attention is also written out as products and a softmax. Attention is heads × queries × size, with
two numbers of heads if keys are grouped. Each party is a process, timed by the clock in turns.
Below 1 ours is faster.
""",
        timed.cascades,
    ),
    "operators": ResultPage(
        "Operators on odd sizes",
        """
Single operators of Relax on small and odd sizes, on one thread, as they are scheduled in a model,
beside the loops that TVM's default pipeline gives the same function: processor time of the function
alone. A call by itself takes 0.1 us. *Difference* is from TVM's, as a part of the largest result.
""",
        timed.peers,
    ),
    "kinds": ResultPage(
        "Predictions of kernels",
        """
Ways to compute single functions on one thread, predicted and timed: of products and convolutions,
plans that are predicted to be the fastest and others up to 4 times slower; of other functions, the
kernel with vectors of each length. *Chosen / best*: time of the way that is predicted to be the
fastest over that of the fastest by the clock, TVM's own loops among them. *Chosen / unfused*: over
that of the same operators, each scheduled by itself.
""",
        predicted.kinds,
    ),
    "model_fusion": ResultPage(
        "Epilogues of whole models",
        """
Models before and after :class:`fuse_epilogue.transform.FuseReductionEpilogue`, otherwise compiled
in the same way. *By chance*: the ratio of the model before to a copy of it, which is what the clock
can tell apart. Above 1 the fused model is faster.
""",
        timed.models,
    ),
    "neuron_ladder": ResultPage(
        "Trainium: the ladder",
        """
The seven kernels of a published study of depthwise conv1d on trn1, written as seven schedules of
this package, and its own kernels for the same layer, with a bias: by its rule, for any data and for
finite data, and one written by hand. Everything predicted is the latency model's. *Least of five*
is the least that the busiest of engines and DMA needs, among five ways to divide the work of all
tiles alike, at the documented costs and without any overhead, with DMA at the rates that its guide
says long transfers sustain: 272 GB/s on trn1, 368 GB/s on trn2. Kernels that do not treat all tiles
alike can be faster: on trn2 in ``float32`` the one by hand is, and it is faster than the rule's.
Step 4 is not explained: which sums the compiler of that run merged was not published.
The planner's results for this layer are on the page :doc:`planning`.
""",
        predicted.ladder,
    ),
    "neuron_published": ResultPage(
        "Trainium: published latencies",
        """
Every published latency of a kernel whose structure is known, beside the latency model's prediction
for a kernel of this project with the same structure. The model has one set of constants for each
machine, each from a document, and none is fitted to a kernel; the *range* is what the documents
leave open (:attr:`fuse_epilogue.neuron.prediction.Prediction.range_ms`). The products are of
4096 x 8192 by 8192 x 8192. The first kernel of the tutorial of 2024 and the first one of the search
of 2025 have the same text: no single number is near both latencies. The prediction is that of the
current guide; the upper end of the range takes short transfers as the older documents have them,
which fits the tutorial of 2024.
""",
        predicted.published,
    ),
    "neuron_planned": ResultPage(
        "Trainium: planned kernels",
        """
What the latency model predicts for the kernels of :func:`fuse_epilogue.plan`, beside floors and
beside AWS's public kernels under the same model. A *floor* is the least that one unit needs for
what no kernel can leave out: all bytes once at the rate of long transfers or of HBM, the columns of
all products, an exponential for each score, at one element in a cycle. Reaching the memories,
transpositions, filling and draining come on top of it. Most public kernels do not do quite the
same: the table says what they do besides.
""",
        predicted.planned,
    ),
    "pass_time": ResultPage(
        "Time of the pass",
        """
What :class:`fuse_epilogue.transform.FuseReductionEpilogue` takes for whole models of many
functions, beside TVM's own ``FuseTIR``, on whose result it works. *Pass again* is a second run,
which finds nothing to do.
""",
        timed.pass_time,
    ),
    "planning": ResultPage(
        "Time of planning",
        """
What :func:`fuse_epilogue.plan` takes for one function, as processor time, and how large the space
of its schedules is. *Evaluated* are the points whose cost was computed; for Trainium, those of
which a kernel was made and predicted. Where the search was *in full*, the others were ruled out;
elsewhere some were left out, and the explanation of a plan says what is known of them. The last
table has predictions of the latency model for the layer of :doc:`neuron_ladder`: a plan beside the
schedule of ``schedules.neuron.DepthwiseConv1d``.
""",
        predicted.planning,
    ),
    "planner": ResultPage(
        "The planner against the clock",
        """
Predicted costs beside measured times, for workloads outside of the calibration. *Within each*:
the rank correlation within a workload, its median. *Within 5 %*: for how many workloads the
choice is that close to the best point that was measured; *loss* is how much slower it is.
*Without* a term: by the cost without it.
""",
        predicted.plans,
    ),
    "planner_znver5": ResultPage(
        "The planner against the clock, on a Zen 5",
        """
As :doc:`planner`, with an earlier version and on another processor. The shortest time of each point
counted there, and not its share of a turn.
""",
        predicted.plans,
    ),
    "primitive": ResultPage(
        "Time of the call",
        """
The time of one call of the primitive in modules of many layers, beside TVM's own; *method* is the
call from Python, with its report.
""",
        timed.primitive,
    ),
    "tune": ResultPage(
        "Tuning with fusion in the space",
        """
MetaSchedule on the same tasks, twice, with as many trials and the same seed: in TVM's default space
(*without*), and in that space with the rule of :func:`fuse_epilogue.tune.space`, which offers every
reduction fused and as it is. The best of both searches are compiled again and timed in turns.
*Gain*: how many times faster the best with the rule is than the best without, 1 where both are the
*same schedule*; its mean is the geometric one. The last column is how many times faster the best
fused schedule of both searches is than their best unfused one.
""",
        timed.tuned,
    ),
}
