"""The documentation site: ``make docs`` builds it into ``build/docs``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sphinx.application import Sphinx  # noqa: E402

import fuse_epilogue  # noqa: E402
import generate  # noqa: E402
from generate import references  # noqa: E402
from generate.pictures import PICTURES  # noqa: E402

project = "fuse_epilogue"
release = version = fuse_epilogue.__version__
html_title = f"{project} {release}"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["generate", "Thumbs.db", "tutorials/GALLERY_HEADER.rst"]
rst_prolog = """
.. |br| raw:: html

    <br>
"""
# Single backticks of docstrings name parameters and objects of the module: code, without a link.
default_role = "code"
highlight_language = "python"
templates_path: list[str] = []

# --- The reference --------------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say more than the annotations
autodoc_default_options = {"show-inheritance": False}
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Every name in a docstring exists: see generate/references.py.
nitpicky = True

# --- Tutorials ------------------------------------------------------------------------------------

os.environ["TUTORIAL_PICTURES"] = str(PICTURES)
sphinx_gallery_conf = {
    "examples_dirs": "../tutorials",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/\d\d_",
    "ignore_pattern": r"^(?!\d\d_)",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("generate.pictures.collect",),
    "capture_repr": (),
    "reset_modules": (),
    "abort_on_example_error": True,
    "copyfile_regex": "",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10**6,
    "write_computation_times": False,
    "backreferences_dir": None,
    "remove_config_comments": True,
}

# --- HTML -----------------------------------------------------------------------------------------

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {"sidebar_hide_name": False, "navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    """Write the generated pages before any page is read."""
    generate.write_all(HERE / "generated")
    PICTURES.mkdir(parents=True, exist_ok=True)
    app.connect("missing-reference", references.missing)
    app.connect("viewcode-follow-imported", references.without_source)
