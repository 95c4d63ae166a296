"""A function that is planned: prepared once, for all kinds of problems that it may be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import s_tir, tirx

from ...rewrites.epilogue import Epilogue, find_epilogue
from ...rewrites.prepare import prepare


@dataclass(frozen=True)
class Request:
    """A function, and what all finders of problems read of it.

    Attributes
    ----------
    func : tvm.tirx.PrimFunc
        Not scheduled.
    """

    func: tirx.PrimFunc

    @staticmethod
    def of(given: tirx.PrimFunc | Request) -> Request:
        """Return the request for a function; a request is returned as it is."""
        return given if isinstance(given, Request) else Request(given)

    @cached_property
    def _prepared(self) -> tuple[s_tir.Schedule, Any] | None:
        return prepare(self.func)

    def prepared(self) -> tuple[s_tir.Schedule, Any] | None:
        """Return a schedule of the function, prepared, and its reduction; the caller owns it.

        Returns
        -------
        tuple[tvm.s_tir.Schedule, SBlockRV] or None
            As :func:`fuse_epilogue.rewrites.prepare.prepare`.
        """
        made = self._prepared
        return None if made is None else (made[0].copy(), made[1])

    def scheduled(self) -> tuple[s_tir.Schedule, Any]:
        """Return what :meth:`prepared` does, of a function for which a problem was found."""
        made = self.prepared()
        assert made is not None, "it was when the problem was found"
        return made

    @cached_property
    def epilogue(self) -> Epilogue | None:
        """The work after the reduction, None where it is not known: see :func:`find_epilogue`."""
        # Of a copy: what it looks for would be steps of the trace.
        made = self.prepared()
        return None if made is None else find_epilogue(*made)
