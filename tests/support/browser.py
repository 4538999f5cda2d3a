"""The page of a service in a real browser."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.processes import MCP, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

PATIENCE = 30_000
"""Milliseconds until something that does not come fails a test."""
_PAGE = re.compile(r"The page is at (?P<url>http://\S+)\n")


class Opened:
    """A service whose page is open in a browser.

    Attributes:
        page: Playwright's.
        url: Of the page, with its token.
        requests: Addresses that the browser asked for.
    """

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", self._asked)
        page.on("pageerror", self._broke)
        page.on("console", self._told)

    def _asked(self, request: Any) -> None:
        self.requests.append(request.url)

    def _broke(self, error: Any) -> None:
        self.errors.append(str(error))

    def _told(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    @property
    def place(self) -> str:
        """The address without the token."""
        return self.url.partition("#")[0]

    def ask(self, question: str) -> None:
        """Ask, and wait for what is found."""
        self.page.fill("#question", question)
        self.page.press("#question", "Enter")
        self.page.wait_for_selector("#panel :is(.hit, .quiet, .notice) >> visible=true")


@contextmanager
def service(folder: Path, *options: str) -> Generator[str]:
    """Start ``retrieval-mcp open`` in a folder, and give the address of its page."""
    command = [*MCP, "open", "--no-browser", "--config", "page.toml", *options]
    child = subprocess.Popen(command, cwd=folder, env=with_our_modules(), stderr=subprocess.PIPE, text=True)
    with child as process:
        assert process.stderr is not None
        said: list[str] = []
        try:
            for line in process.stderr:
                said.append(line)
                if (found := _PAGE.fullmatch(line)) is not None:
                    break
            else:
                raise AssertionError("".join(said))
            yield found["url"]
        finally:
            process.kill()


def make_pdf(file: Path, pages: Sequence[str]) -> None:
    """Write a PDF with a line on each page."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(str(file), pagesize=(400, 300))
    for text in pages:
        canvas.drawString(50, 200, text)
        canvas.showPage()
    canvas.save()


@contextmanager
def opened(chromium: Any, url: str, **context: Any) -> Generator[Opened]:
    """Open a page in a browser of its own; what went wrong in it fails the test."""
    with chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **context}) as held:
        given = Opened(held.new_page(), url)
        given.page.set_default_timeout(PATIENCE)
        given.page.goto(url)
        given.page.wait_for_selector("#question, #token, h1")
        yield given
        assert not given.errors, given.errors
