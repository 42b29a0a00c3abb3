"""The documentation as a site, built as `make docs` does."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import npukit

ROOT = Path(__file__).resolve().parent.parent


class _Page(HTMLParser):
    """What a page names and leads to, and what a browser would load for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.names.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("index", "search", "next", "prev", "canonical"):
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def test_site(tmp_path: Path) -> None:
    """It has a page for each document, the whole public API with what its functions raise, and no dead link."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr

    pages = {path.relative_to(tmp_path).as_posix(): _Page(path) for path in tmp_path.rglob("*.html")}
    documents = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert documents <= pages.keys() and len(documents) > 35

    for name, page in pages.items():
        folder = (tmp_path / name).parent
        for target in page.loaded:
            assert not re.match(r"(https?:)?//", target), f"{name} loads {target}"
            assert (folder / unquote(re.sub(r"[?#].*", "", target))).exists(), f"{name} loads {target}"
        for target in page.links:
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            found = (folder / unquote(path)).resolve() if path else tmp_path / name
            assert found.exists(), f"{name} leads to {target}"
            if found.suffix == ".html" and not name.startswith(("genindex", "search", "_modules")):
                assert unquote(anchor) in pages[found.relative_to(tmp_path).as_posix()].names, f"{name}: {target}"

    names = pages["api/npukit.html"].names | pages["api/isa.html"].names
    for name in set(npukit.__all__) - {"__version__", "PRESETS"}:
        assert {f"npukit.{name}", f"npukit.isa.config.{name}"} & names, name
    assert "Raises" in (tmp_path / "api" / "npukit.html").read_text(encoding="utf-8")
