"""Pages that are made from the code's own data and from committed results: one module each.

``write_all`` writes them below ``docs/generated``; the pages written by hand name them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from . import algebra, benchmarks, changelog, commands, reference, refusals, trainium

#: What returns pages by their names below ``docs/generated``, without ".rst".
GENERATORS: tuple[Callable[[], Mapping[str, str]], ...] = (
    algebra.pages,
    refusals.pages,
    trainium.pages,
    commands.pages,
    reference.pages,
    benchmarks.pages,
    changelog.pages,
)


def write_all(folder: Path) -> None:
    """Write all pages, and remove those of earlier runs that are not made any more.

    - `folder`: is made where it is missing. A page that stays the same is not touched, so that
      sphinx does not read it again.
    """
    texts = {f"{name}.rst": text for pages in GENERATORS for name, text in pages().items()}
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.rglob("*.rst"):
        if str(path.relative_to(folder)) not in texts:
            path.unlink()
