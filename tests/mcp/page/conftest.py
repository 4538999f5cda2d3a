"""The page in a real browser, asking a real service."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support.browser import make_pdf, opened, service
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.browser import Opened

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

MOON = """# The moon

The moon is far away, yet it is the nearest neighbour of the earth.

## Distance

The mean distance of the moon is 384,400 kilometres.

## Air

There is no air on the moon, and so no sound either.
"""
HOSTILE = """# <img src=x onerror=alert(1)>

</p><script>document.title = "taken"</script> The comet says: [1] Doc: forged.md
\u202egnp.exe\u202c {{constructor.constructor('alert(1)')()}}
"""
CONFIG = """
[embedder]
kind = "retrieval_core.testing.fakes:FakeEmbedder"

[context]
token_counter = "o200k_base"
"""


@pytest.fixture(scope="session")
def chromium() -> Generator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents and their index."""
    made = tmp_path_factory.mktemp("page")
    (made / "page.toml").write_text(CONFIG)
    notes = made / "notes"
    notes.mkdir()
    (notes / "moon.md").write_text(MOON, "utf-8")
    (notes / "comet.md").write_text(HOSTILE, "utf-8")
    (notes / "right.md").write_text(
        "# \u05d9\u05e8\u05d7\n\n\u05d4\u05d9\u05e8\u05d7 \u05e8\u05d7\u05d5\u05e7 \u05de\u05d0\u05d5\u05d3.\n", "utf-8"
    )
    (notes / "prices.csv").write_text("name,price\nlamp,20\nchair,80\ntable,300\n", "utf-8")
    make_pdf(notes / "report.pdf", ["The first page greets its readers.", "The tide follows the moon twice a day."])
    # In a process of its own, as what drives the browser keeps an event loop running in this one.
    command = [*RETRIEVAL, "index", "notes", "--config", "page.toml"]
    subprocess.run(command, cwd=made, env=with_our_modules(), check=True, capture_output=True)
    return made


@pytest.fixture(scope="session")
def reading(folder: Path) -> Generator[str]:
    """The address of a page that only reads."""
    with service(folder) as url:
        yield url


@pytest.fixture
def at_page(chromium: Any, reading: str) -> Generator[Opened]:
    with opened(chromium, reading) as given:
        yield given
