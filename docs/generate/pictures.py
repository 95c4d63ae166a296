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

#: What an image of sphinx may be.
SUFFIXES = (".svg", ".png")


def collect(block: Any, block_vars: Any, gallery_conf: Any) -> str:
    """Move the pictures that a block has written to its page, and return their markup.

    Parameters
    ----------
    block : tuple
        Variables of the example; not needed.
    block_vars : dict
        Has "image_path_iterator", the paths where the pictures of this example go.
    gallery_conf : dict
        Has "src_dir", below which they are named.

    Returns
    -------
    str
        In reStructuredText; empty without pictures.
    """
    from sphinx_gallery.scrapers import figure_rst

    PICTURES.mkdir(parents=True, exist_ok=True)
    written = [path for path in PICTURES.iterdir() if path.suffix in SUFFIXES]
    moved = []
    for picture in sorted(written, key=lambda path: path.stat().st_mtime_ns):
        path = Path(next(block_vars["image_path_iterator"])).with_suffix(picture.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(picture, path)
        moved.append(str(path))
    return "".join(wide(figure_rst([path], gallery_conf["src_dir"])) for path in moved)
