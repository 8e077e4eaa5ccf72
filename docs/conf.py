"""How the site is built: ``make docs``. The sources are the Markdown files as they are, README and results included, so
the folder of the sources is the repository's, and links between files are the same here and there."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "isvi"
author = "The isvi developers"
copyright = "The isvi developers, Apache License 2.0"
version = release = version_of("isvi")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "site_math",
    "site_reference",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "benchmarks/results/*.md",
    "reproduce/results/RESULTS.md",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
source_suffix = {".md": "markdown"}
nitpicky = False

myst_enable_extensions = ["dollarmath", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": False}
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
add_module_names = False
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "isvi"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_extra"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#7fb8ea", "color-brand-content": "#7fb8ea"},
}
# What a block prints is not for copying.
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
