"""The system's Chromium, in which reports are opened."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

# without a network nothing is to be looked for, and nothing is to be asked
_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
              "--disable-sync", "--no-first-run"]  # fmt: skip


@dataclass
class Opened:
    """A page that has been opened, and what it complained about or asked for."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium; playwright's own download is not needed."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on PATH to open reports in: make browser installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path):
    """Opens HTML text, and waits until its charts are drawn."""

    def opened(html: str) -> Opened:
        path = tmp_path / "page.html"
        path.write_text(html)
        found = Opened(browser.new_page())

        def complain(dialog: Dialog) -> None:
            found.complaints.append(dialog.message)
            dialog.dismiss()

        found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("dialog", complain)
        found.page.goto(path.as_uri())
        found.page.wait_for_function("!document.querySelector('.chart:not([data-drawn])')")
        found.requests = [url for url in found.requests if url != path.as_uri() and not url.startswith("data:")]
        return found

    return opened
