"""Collects the pictures that a tutorial shows, for sphinx-gallery.

A tutorial writes them into the folder that the environment variable ``TUTORIAL_PICTURES`` names;
after each of its blocks, those that are new are below that block.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from .rst import wide

#: Below the folder of everything that is built.
PICTURES = Path(__file__).resolve().parents[2] / "build" / "docs" / "pictures"

#: Images, and texts that are put into the page as they are.
TEXT = ".html"
SUFFIXES = (".svg", ".png", TEXT)


def collect(block: Any, block_vars: Any, gallery_conf: Any) -> str:
    """Move the pictures that a block has written to its page, and return their markup.

    - `block` (tuple): variables of the example; not needed.
    - `block_vars` (dict): has "image_path_iterator", the paths where the pictures of this example
      go.
    - `gallery_conf` (dict): has "src_dir", below which they are named.
    - Returns: in reStructuredText; empty without pictures.
    """
    from sphinx_gallery.scrapers import figure_rst

    PICTURES.mkdir(parents=True, exist_ok=True)
    written = [path for path in PICTURES.iterdir() if path.suffix in SUFFIXES]
    shown = []
    for picture in sorted(written, key=lambda path: path.stat().st_mtime_ns):
        if picture.suffix == TEXT:
            shown.append(raw_html(picture.read_text(encoding="utf-8")))
            picture.unlink()
            continue
        path = Path(next(block_vars["image_path_iterator"])).with_suffix(picture.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(picture, path)
        shown.append(wide(figure_rst([str(path)], gallery_conf["src_dir"])))
    return "".join(shown)


def raw_html(text: str) -> str:
    r"""Return markup that puts HTML into a page.

    Example
    -------
    >>> raw_html("<b>\n</b>")
    '.. raw:: html\n\n    <b>\n    </b>\n\n'
    """
    lines = "\n".join(f"    {line}" for line in text.rstrip().splitlines())
    return f".. raw:: html\n\n{lines}\n\n"
