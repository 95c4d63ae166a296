"""The error for models that cannot be imported."""

from __future__ import annotations


class ImportRefusal(ValueError):
    """A model that cannot be imported; the message names the model, the reason and a way out.

    Attributes
    ----------
    reason : str
        The message without the way out, for callers that have one of their own.
    """

    def __init__(self, reason: str, way_out: str = "") -> None:
        super().__init__(reason + way_out)
        self.reason = reason
