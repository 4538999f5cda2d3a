"""What the page does beyond asking: files are dropped on it, several indexes are asked, runs and sources are shown."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from support.browser import make_pdf, opened, service
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from support.browser import Opened

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
TICKET = "# Ticket 71\n\nThe customer has waited nine days for the refund.\n"
DROP = """(files) => {
    const given = new DataTransfer();
    for (const [name, text] of files) given.items.add(new File([text], name));
    document.querySelector(".drop").dispatchEvent(new DragEvent("drop", { dataTransfer: given, cancelable: true }));
}"""


@pytest.fixture(scope="module")
def writing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a page that writes, to an index of its own."""
    own = tmp_path_factory.mktemp("writing")
    (own / "page.toml").write_bytes((folder / "page.toml").read_bytes())
    with service(own, "--allow-writes") as url:
        yield url


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Generator[str]:
    """The address of a page of two indexes."""
    own = tmp_path_factory.mktemp("several")
    (own / "page.toml").write_bytes((folder / "page.toml").read_bytes())
    for name, text in (("manual", "# Refunds\n\nA refund is paid within five days.\n"), ("tickets", TICKET)):
        (own / name).mkdir()
        (own / name / "refund.md").write_text(text, "utf-8")
        command = [*RETRIEVAL, "index", ".", "--config", "../page.toml"]
        subprocess.run(command, cwd=own / name, env=with_our_modules(), check=True, capture_output=True)
    places = [f"--index={name}={own / name / '.retrieval' / 'index.db'}" for name in ("manual", "tickets")]
    with service(own, *places) as url:
        yield url


def fits(at: Opened) -> None:
    """Check that a view is no wider than its screen, and that axe, where it is there, finds nothing serious in it."""
    assert at.page.evaluate("document.documentElement.scrollWidth") <= at.page.viewport_size["width"]
    if "AXE" in os.environ:
        at.page.add_script_tag(path=os.environ["AXE"])
        told = at.page.evaluate("axe.run()")["violations"]
        found = [(each["id"], each["impact"], [node["html"] for node in each["nodes"]]) for each in told]
        assert [each for each in found if each[1] in {"serious", "critical"}] == []


def test_files_of_several_kinds_are_dropped_and_indexed(chromium: Any, writing: str, tmp_path: Path) -> None:
    make_pdf(tmp_path / "tides.pdf", ["The first page greets.", "The tide follows the moon twice a day."])
    with opened(chromium, writing) as at:
        at.page.click("text=The index")
        at.page.wait_for_selector(".drop")
        (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
        at.page.set_input_files("#files", [tmp_path / "tides.pdf", tmp_path / "broken.pdf"])
        at.page.wait_for_selector(".uploads li:has-text('tides.pdf'):has-text('indexed, 1 passage')")
        at.page.wait_for_selector(".uploads .is-failed:has-text('broken.pdf'):has-text('damaged or incomplete')")
        at.page.evaluate(DROP, [["mars.md", "# Mars\n\nMars is red.\n"], ["photo.jpg", "x"]])
        at.page.wait_for_selector(".uploads li:has-text('mars.md'):has-text('indexed')")
        at.page.wait_for_selector(".uploads .is-failed:has-text('photo.jpg'):has-text('cannot be read')")
        at.page.wait_for_selector("tbody :text('uploads/tides.pdf')")
        at.errors.clear()  # the browser notes that there was no index at first
        assert at.page.locator(".uploads progress").count() == 0
        at.page.click("text=Ask")
        at.ask("how often does the tide follow the moon")
        at.page.click(".hit:has-text('tides.pdf') h2 button >> nth=0")
        at.page.wait_for_selector("#source .pdf img")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_what_became_of_files_fits_and_is_told_to_everybody(
    chromium: Any, writing: str, tmp_path: Path, size: dict[str, int], scheme: str
) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nOf the sea.\n", "utf-8")
    (tmp_path / f"a {'very ' * 20}long name.pdf").write_bytes(b"no PDF")
    with opened(chromium, writing, viewport=size, color_scheme=scheme, bypass_csp=True) as at:
        at.page.click("text=The index")
        at.page.focus(".drop button")  # which the keyboard reaches
        at.page.set_input_files("#files", sorted(tmp_path.iterdir()))
        at.page.wait_for_selector(".uploads .is-failed")
        at.page.wait_for_function("document.getElementById('status').textContent.includes('1 failed')")
        at.page.wait_for_selector("tbody :text('uploads/notes.md')")
        fits(at)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_several_indexes_are_asked_at_once(chromium: Any, several: str, size: dict[str, int], scheme: str) -> None:
    with opened(chromium, several, viewport=size, color_scheme=scheme, bypass_csp=True) as at:
        at.page.wait_for_selector("summary:text('Index: manual')")
        at.ask("how long does a refund take")
        at.page.wait_for_selector(".hit")
        assert at.page.locator(".hit").count() == 1
        at.page.focus(".which summary")
        at.page.keyboard.press("Enter")
        at.page.keyboard.press("Tab")
        at.page.keyboard.press("Tab")
        at.page.keyboard.press("Space")
        at.page.wait_for_selector("summary:text('All indexes')")
        at.page.wait_for_selector(".hit >> nth=1")
        assert "indexes=manual+tickets" in at.page.url
        fits(at)
        at.page.click(".which summary")
        at.page.click(".hit:has-text('in tickets') h2 button")
        at.page.wait_for_selector("#source .passage.is-hit:has-text('nine days')")
        assert at.page.locator(".hit.is-open").count() == 1
        at.page.click("text=Compare with the document")
        at.page.wait_for_selector("#source :text('Unchanged')")
        at.page.keyboard.press("Escape")
        for tab, wanted in (
            ("context", ".budget"),
            ("compare", ".pair"),
            ("why", ".stages"),
            ("answer", ".sources li"),
        ):
            at.page.click(f"#tab-{tab}")
            at.page.wait_for_selector(wanted)
        at.page.click(".sources li button >> nth=0")
        at.page.wait_for_selector("#source .passage.is-hit")
        at.page.keyboard.press("Escape")
        at.page.click("text=The index")
        at.page.select_option("[aria-label=Index]", "tickets")
        at.page.click("tbody button:has-text('Ticket 71')")
        at.page.wait_for_selector("#source:has-text('nine days')")
