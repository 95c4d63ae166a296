"""Fusion in the search spaces of TVM's MetaSchedule and dlight, and measuring on many machines.

- :func:`tune` searches and keeps every measurement; a run that was stopped goes on.
- :func:`space` is TVM's default search space with fused and unfused reductions in it, for
  ``tune_tir`` and ``tune_relax`` too; :class:`FuseReductionEpilogue` is its rule,
  :func:`decompose_fused` its postprocessor. :class:`FuseBest` is the strategy that searches it
  with few trials.
- :class:`DlightFuse` has the rules of dlight schedule fused functions.
- :class:`Cluster` is TVM's own RPC tracker with servers on this machine, :func:`rpc_runner`
  measures on those of other machines. TVM's RPC trusts its network: see
  :mod:`fuse_epilogue.tune.rpc`.
"""

from __future__ import annotations

from .._rpc import ServersGone, rpc_runner
from .bench import LeftOut, Trial
from .build import local_builder
from .dlight import DlightFuse
from .postproc import decompose_fused, with_decompose_fused
from .records import measured, open_database
from .rpc import Cluster
from .rule import FuseReductionEpilogue, absorb, space
from .session import tune
from .strategy import FuseBest

__all__ = [
    "Cluster",
    "DlightFuse",
    "FuseBest",
    "FuseReductionEpilogue",
    "LeftOut",
    "ServersGone",
    "Trial",
    "absorb",
    "decompose_fused",
    "local_builder",
    "measured",
    "open_database",
    "rpc_runner",
    "space",
    "tune",
    "with_decompose_fused",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
