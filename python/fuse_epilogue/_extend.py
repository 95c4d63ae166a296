"""Adding to TVM what this package has for it, each part of which is loaded on first use."""

from __future__ import annotations

import importlib
from typing import Any


def extend_tvm() -> None:
    """Add the primitives to TVM's schedule, and the pipeline to Relax."""
    from tvm.relax import pipeline

    from ._core import register_rewriting

    for primitive in ("schedule", "cascade"):
        importlib.import_module(f".{primitive}", __package__)
    # Before any trace is read: a process with this package replays rewritings from JSON.
    register_rewriting(_rewritten)
    # tvm.compile(mod, relax_pipeline="fuse_epilogue") needs nothing but `import tvm`.
    pipeline.PIPELINE_MAP.setdefault("fuse_epilogue", _pipeline)


def _pipeline(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - a pass of TVM
    """Return the pipeline for whole models: :func:`fuse_epilogue.models.model_pipeline`."""
    return importlib.import_module(".models", __package__).model_pipeline(*args, **options)


def _rewritten(func: Any, block: Any, name: str) -> Any:  # noqa: ANN401 - a pair, or why not
    """Rewrite a function: :func:`fuse_epilogue.kernels.steps.rewritten`."""
    steps = importlib.import_module(".kernels.steps", __package__)
    return steps.rewritten(func, block, str(name))
