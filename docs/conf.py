"""How the documentation is built: from the pages here, the docstrings and docs/symbols.toml, without a network."""

import gc
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
# Modules are imported to read their docstrings; linear algebra needs no threads for that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Trees of nodes live as long as their page, and looking through them again and again finds nothing to free.
gc.freeze()
gc.set_threshold(500_000, 50, 100)

project = "GPC Triad"
author = "GPC Triad contributors"
copyright = author
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
version = release

extensions = [
    "atlas",
    "claim_pages",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "literal_docstrings",
    "mathtext_renderer",
    "methods",
    "modules",
    "vocabulary",
    "sphinx_gallery.gen_gallery",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
# ledger.md is the ledger as text for the repository, checked by `make ledger`; its page here is the atlas
# and api/generated may still hold the pages of modules of an earlier build
exclude_patterns = ["_build", "examples", "gallery", "ledger.md", "api/generated"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_default_options = {"members": True, "member-order": "bysource", "ignore-module-all": True}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "pictures",
    "within_subsection_order": "FileNameSortKey",
    "image_srcset": ["2x"],
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
}

html_theme = "furo"
html_title = f"GPC Triad {release}"
html_static_path = ["_static"]
html_css_files = ["triad.css"]
html_copy_source = False
html_math_renderer = "mathtext"
# The judge's terminal output is no Python; blocks without a language stay as they are.
highlight_language = "none"
pygments_style = "tango"
pygments_dark_style = "monokai"

# The witnesses share a vocabulary and no code: several have a class of one name, and annotations give no module.
suppress_warnings = ["ref.python"]


def _own_branch(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """The sidebar opens the branch of the page alone: all of the API on every page took most of the build."""
    if (whole := context.get("toctree")) is not None:
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Any) -> None:
    """Register what the theme's own handler is to find."""
    app.connect("html-page-context", _own_branch, priority=400)
