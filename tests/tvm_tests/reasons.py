"""The tests of TVM that have another outcome with the extension, and why that is right."""

from __future__ import annotations

REASONS: dict[str, str] = {}
