"""The documentation as a site: `make docs` builds it with Sphinx, without a network, in build/site."""

import re
from datetime import UTC, datetime
from pathlib import Path

from sphinx.application import Sphinx

from npukit import __version__

project = "npukit"
author = "the npukit developers"
release = version = __version__
copyright = f"{datetime.now(UTC):%Y}, {author}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # documents that a program writes may skip a level
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
html_theme = "furo"
html_title = f"npukit {__version__}"
html_show_sphinx = False
html_copy_source = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse for files

_DOCUMENTS = Path(__file__).parent
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)(?:#[^)\s]*)?\)")


def _outside(app: Sphinx, name: str, source: list[str]) -> None:
    """The site has no page for folders and documents of the repository outside of docs/: their links become text.
    Links to files of code stay: these are copied."""

    def text(link: re.Match[str]) -> str:
        target = (_DOCUMENTS / name).parent / link[2]
        return link[1] if target.is_dir() or target.suffix == ".md" else link[0]

    source[0] = _LINK.sub(text, source[0])


def _docstring(app: Sphinx, what: str, name: str, item: object, options: object, lines: list[str]) -> None:
    """Docstrings mark code with one backtick, as Markdown does, and mean stars and bars as such."""
    for number, line in enumerate(lines):
        parts = line.split("`")
        if "``" in line or len(parts) % 2 == 0:
            continue
        parts[::2] = [part.replace("*", r"\*").replace("|", r"\|") for part in parts[::2]]
        lines[number] = "``".join(parts)


def setup(app: Sphinx) -> None:
    """What Sphinx calls."""
    app.connect("source-read", _outside)
    app.connect("autodoc-process-docstring", _docstring)
