"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for `command_line`

project = "fedprice"
author = "The fedprice maintainers"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]  # pages may begin their sections below the second level

html_theme = "pydata_sphinx_theme"
html_title = "fedprice"
html_static_path: list[str] = []
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "show_toc_level": 2}

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings name types where they help
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_attr_annotations = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True  # one block per command, however its output arrived

# What lies outside this directory is shown on the site by a page that includes it.
_OUTSIDE = {
    r"\]\(\.\./benchmarks/([a-z_]+)\.md": r"](/benchmarks/\1.md",
    r"\]\(\.\./CONTRIBUTING\.md": r"](/contributing.md",
    r"\]\(\.\./SECURITY\.md": r"](/security.md",
    r"\]\(\.\./CHANGELOG\.md": r"](/changes.md",
    r"\[([^\]]*)\]\(\.\./examples[^)]*\)": r"`examples/`",
}


def _read(_app: Any, page: str, content: list[str]) -> None:
    """Point links to files outside this directory to the pages that include them."""
    for old, new in _OUTSIDE.items():
        content[0] = re.sub(old, new, content[0])
    if page == "commands":
        from command_line import command_reference

        content[0] += command_reference()


def setup(app: Any) -> None:
    """Let Sphinx call `_read`."""
    app.connect("source-read", _read)
