"""The page where something is down, too slow, empty, lost, huge or hostile."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core_mcp.browser import write_redirect
from support.browser import make_pdf, opened, service
from support.page_parts import ABANDONED, BEGUN
from support.processes import RETRIEVAL, with_our_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from support.browser import Opened

CONTEXT = '[context]\ntoken_counter = "o200k_base"\n'
FAKE = '[embedder]\nkind = "retrieval_core.testing.fakes:FakeEmbedder"\n'
TROUBLES = {
    "embedder": '[embedder]\nkind = "support.page_parts:dead_embedder"\n',
    "reranker": f'{FAKE}[reranker]\nkind = "support.page_parts:dead_reranker"\n',
    "deadline": '[embedder]\nkind = "support.page_parts:hanging_embedder"\n',
    "answer": f'{FAKE}[llm]\nkind = "support.page_parts:EndlessLLM"\n',
}
WORKS = {
    "answer": ".hit",
    "context": "pre:has-text('moon')",
    "why": ".reasons li",
    "compare": ".pair li",
}
"""What is to be seen in each view of a question."""
SAID = BEGUN.partition(" [")[0]
"""What an answer begins with, up to its first citation, whose quote is text of the page, too."""
QUESTION = "?q=how+far+away+is+the+moon"
WIDE = {"width": 2560, "height": 1300}
MANY = 3_000
LONG = "".join(("# Long\n\nquagga <script>document.title='taken'</script> \u202e", "x" * 10_000_000, " end\n"))
PERSIAN = "\u0645\u0627\u0647 \u0627\u0632 \u0632\u0645\u06cc\u0646 \u062f\u0648\u0631 \u0627\u0633\u062a."


@pytest.fixture(scope="session")
def troubled(folder: Path) -> Callable[..., Any]:
    """Return a function that serves the folder's index in some trouble."""

    def serve(trouble: str) -> Any:
        settings = "deadline_seconds = 0.1\n" if trouble == "deadline" else ""
        (folder / f"{trouble}.toml").write_text(settings + CONTEXT + TROUBLES[trouble])
        return service(folder, "--config", f"{trouble}.toml")

    return serve


def index(folder: Path, name: str, *paths: str) -> None:
    """Fill an index of its own."""
    command = [*RETRIEVAL, "index", *paths, "--config", "page.toml", "--index", name]
    subprocess.run(command, cwd=folder, env=with_our_modules(), check=True, capture_output=True)


@pytest.fixture(scope="session")
def odd(folder: Path) -> Generator[str]:
    """The address of a page over texts that are huge, right to left, or forged."""
    (folder / "odd").mkdir()
    (folder / "odd" / "long.md").write_text(LONG, "utf-8")
    (folder / "odd" / "moon-fa.md").write_text(f"# {PERSIAN}\n\n{PERSIAN} Moon 384,400 km.\n", "utf-8")
    (folder / "odd" / "forged.md").write_text(
        "# </h2></button><h1 onclick=alert(1)>Ask</h1>\n\nThe comet \u2067\u202eis forged\u202c.\n",
        "utf-8",
    )
    (folder / "odd" / "rows.csv").write_text(
        "name,price\n" + "".join(f"lamp {number},{number}\n" for number in range(MANY)), "utf-8"
    )
    index(folder, "odd.db", "odd")
    with service(folder, "--index", "odd.db") as url:
        yield url


def go(at: Opened, where: str) -> None:
    """Open one address of the page anew."""
    at.page.goto(at.place + where)
    at.page.wait_for_selector(":is(#question, #panel, tbody, .notice):visible")


def forget_failures(at: Opened) -> None:
    """Forget what the browser notes of answers that are errors, as those are."""
    at.errors[:] = [told for told in at.errors if "Failed to load resource" not in told]


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        ("embedder", "Keyword search only: the model is not there"),
        ("reranker", "Not reranked: fake-reranker: the reranker has no such model"),
        ("deadline", ""),
    ],
)
def test_what_is_down_is_told_in_every_view_and_the_rest_works(
    chromium: Any, troubled: Callable[..., Any], trouble: str, says: str
) -> None:
    with troubled(trouble) as url, opened(chromium, url) as at:
        for view, works in WORKS.items():
            go(at, f"{QUESTION}&tab={view}")
            at.page.wait_for_selector(f"#panel .notice:has-text('{says}') >> nth=0")
            if trouble != "deadline":  # whose time may be over before any words are found
                at.page.wait_for_selector(f"#panel {works} >> nth=0")
        go(at, f"{QUESTION}&chunk=notes%2Fmoon.md%230")
        at.page.wait_for_selector("#source .passage.is-hit:has-text('384,400')")
        at.page.click("[data-view=index]")
        at.page.wait_for_selector(".region-documents tbody :text('The moon')")
        forget_failures(at)


@pytest.mark.parametrize("state", ["empty", "none"])
def test_an_index_without_anything_is_told_in_every_view(chromium: Any, folder: Path, state: str) -> None:
    """Both where it was emptied and where there has been none."""
    if state == "empty":
        (folder / "gone").mkdir()
        (folder / "gone" / "note.md").write_text("Soon gone.\n")
        index(folder, "empty.db", "gone")
        (folder / "gone" / "note.md").unlink()
        index(folder, "empty.db", "gone")
    says = {"empty": "This index is empty", "none": "was not made yet"}[state]
    with service(folder, "--index", f"{state}.db") as url, opened(chromium, url) as at:
        at.page.wait_for_selector(f"main .notice:has-text('{says}')")
        for view in WORKS:
            go(at, f"{QUESTION}&tab={view}")
            at.page.wait_for_selector(f"main .region-notice .notice:has-text('{says}')")
            at.page.wait_for_selector("#panel :is(.quiet, .notice, .budget, .reasons) >> visible=true")
        go(at, f"{QUESTION}&chunk=notes%2Fmoon.md%230")
        at.page.wait_for_selector("#source .notice")
        go(at, "?view=index")
        at.page.wait_for_selector(f"main .notice:has-text('{says}')")
        forget_failures(at)


def test_a_lost_connection_is_told_in_every_view_and_can_be_tried_again(at_page: Opened) -> None:
    at_page.page.context.set_offline(True)
    at_page.page.fill("#question", "anyone there")
    at_page.page.press("#question", "Enter")
    lost = ".notice:has-text('cannot be reached')"
    for view in WORKS:
        at_page.page.click(f"#tab-{view}")
        at_page.page.wait_for_selector(f"#panel {lost}")
    at_page.page.click("[data-view=index]")
    at_page.page.wait_for_selector(f"main {lost}")
    at_page.page.evaluate(
        "history.pushState(null, '', '?chunk=notes%2Fmoon.md%230'); dispatchEvent(new Event('changed'))"
    )
    at_page.page.wait_for_selector(f"#source {lost}")
    at_page.page.context.set_offline(False)
    at_page.page.click("#source >> text=Try again")
    at_page.page.wait_for_selector("#source .passage.is-hit")
    at_page.page.keyboard.press("Escape")
    at_page.ask("how far away is the moon")
    at_page.page.wait_for_selector(".hit")
    forget_failures(at_page)


def test_the_same_question_can_be_asked_again(at_page: Opened) -> None:
    at_page.page.context.set_offline(True)
    at_page.ask("is there air on the moon")
    at_page.page.wait_for_selector("#panel .notice")
    at_page.page.context.set_offline(False)
    at_page.page.click("button.main")
    at_page.page.wait_for_selector(".hit")
    forget_failures(at_page)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="waits at a pipe")
def test_an_answer_that_is_stopped_keeps_its_text_and_ends_the_work(
    chromium: Any, folder: Path, troubled: Callable[..., Any]
) -> None:
    pipe = folder / ABANDONED
    os.mkfifo(pipe)
    with troubled("answer") as url, opened(chromium, url) as at:
        go(at, f"{QUESTION}&tab=answer")
        at.page.wait_for_selector(f".answer:has-text('{SAID}')")
        assert at.page.locator(".answer .chip").count() > 0
        at.page.click("text=Stop")
        assert pipe.read_text() == "abandoned"  # which the language model writes once nobody waits for it
        at.page.wait_for_selector("#panel :text('Stopped')")
        assert BEGUN in at.page.inner_text(".answer")
        assert at.page.locator("text=Stop >> visible=true").count() == 1  # that it was, no button any more
        at.page.click("#tab-answer")
        at.page.wait_for_selector(".hit")


def test_an_answer_whose_connection_is_lost_says_so_and_keeps_its_text(
    chromium: Any, troubled: Callable[..., Any]
) -> None:
    with ExitStack() as running, opened(chromium, running.enter_context(troubled("answer"))) as at:
        go(at, f"{QUESTION}&tab=answer")
        at.page.wait_for_selector(f".answer:has-text('{SAID}')")
        running.close()
        at.page.wait_for_selector("#panel .notice:has-text('connection was lost')")
        assert BEGUN in at.page.inner_text(".answer")
        forget_failures(at)


def test_a_line_of_ten_megabytes_is_read_in_parts(chromium: Any, odd: str) -> None:
    with opened(chromium, odd) as at:
        go(at, "?q=quagga&mode=lexical")
        at.page.click(".hit:has-text('quagga') h2 button")
        at.page.wait_for_selector("#source .passage.is-hit")
        at.page.click("#source >> text=Read on")
        at.page.wait_for_selector("#source .passage >> nth=12")
        assert len(at.page.inner_text("#source")) < 100_000
        assert at.page.title() != "taken"
        assert at.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_texts_from_right_to_left_begin_at_the_right(chromium: Any, odd: str) -> None:
    with opened(chromium, odd) as at:
        go(at, f"?mode=lexical&q={quote(PERSIAN)}")
        hit = at.page.locator(".hit:has-text('384,400') .passage")
        assert hit.evaluate("each => [each.dir, getComputedStyle(each).unicodeBidi]") == ["auto", "plaintext"]
        starts = hit.evaluate(
            "each => { const range = document.createRange(); "
            "range.selectNodeContents(document.createTreeWalker(each, NodeFilter.SHOW_TEXT).nextNode());"
            " return innerWidth - range.getClientRects()[0].right < range.getClientRects()[0].left; }"
        )
        assert starts
        at.page.click(".hit:has-text('384,400') h2 button")
        at.page.wait_for_selector("#source .passage.is-hit")


def test_forged_headings_stay_the_text_of_one_button(chromium: Any, odd: str) -> None:
    """Nor does an override of the direction reach beyond the title that has it."""
    with opened(chromium, odd) as at:
        go(at, "?q=forged+comet&mode=lexical")
        at.page.click(".hit:has-text('forged') h2 button")
        at.page.wait_for_selector("#source .passage.is-hit")
        assert at.page.locator("h1, [onclick]").count() == 0
        assert at.page.locator(".hit h2").count() == at.page.locator(".hit").count()
        assert "<h1 onclick" in at.page.inner_text(".hits")
        assert at.page.locator(".hit:has-text('forged') h2 bdi").count() == 1


def test_long_lists_come_in_parts_and_a_name_finds_a_document(chromium: Any, odd: str) -> None:
    with opened(chromium, odd) as at:
        at.page.click("[data-view=index]")
        rows = at.page.locator(".region-documents tbody tr")
        at.page.wait_for_selector("h2:has-text('3,003')")
        assert rows.count() == 100
        at.page.click("text=More")
        at.page.wait_for_selector(".region-documents tbody tr >> nth=199")
        assert rows.count() == 200
        at.page.fill('[aria-label="Words of a document\'s name or title"]', "MOON-fa")
        at.page.click("text=Find")
        at.page.wait_for_selector("h2:has-text('Documents 1')")
        assert rows.count() == 1
        at.page.fill('[aria-label="Words of a document\'s name or title"]', "no such name")
        at.page.keyboard.press("Enter")
        at.page.wait_for_selector("text=No document has these words in its name or title")


@pytest.mark.parametrize("view", [*WORKS, "index", "source"])
def test_nothing_is_wider_than_a_very_wide_screen_or_a_narrow_one(chromium: Any, odd: str, view: str) -> None:
    where = {"index": "?view=index", "source": "?q=quagga&chunk=odd%2Flong.md%230"}.get(view, f"?q=quagga&tab={view}")
    for width in (390, WIDE["width"]):
        with opened(chromium, odd, viewport={**WIDE, "width": width}) as at:
            go(at, where)
            at.page.wait_for_load_state("networkidle")
            assert at.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_person_finds_out_what_a_file_says_now_and_what_became_of_a_page(chromium: Any, folder: Path) -> None:
    """Some of the tasks that the guide names, as somebody does them who knows names of files alone."""
    (folder / "task").mkdir()
    note = folder / "task" / "tide.md"
    note.write_text("# Tide\n\nThe tide comes twice a day.\n")
    (folder / "task" / "lamps.csv").write_text("name,price\nlamp,20\nchair,80\n")
    index(folder, "task.db", "task")
    with service(folder, "--index", "task.db") as url, opened(chromium, url) as at:
        at.page.goto(at.place + '?q=lamp+chair&filters={"price":{"$lte":50}}')
        at.page.wait_for_selector(".hit:has-text('price: 20')")
        at.page.click(".hit h2 button")
        at.page.click("#source summary:has-text('Details')")
        at.page.wait_for_selector("#source .facts :text('price')")
        go(at, "?q=how+often+comes+the+tide&tab=why")
        at.page.fill("#expected", "LAMPS")
        at.page.click("button:text('Explain')")
        at.page.click("#panel [role=status] li button >> nth=0")  # each row is a document
        at.page.click("#panel [role=status] p:has-text('nearest to the query') button")
        at.page.wait_for_selector("#source .passage.is-hit:has-text('lamp')")
        at.page.keyboard.press("Escape")
        go(at, "?q=how+often+comes+the+tide")
        at.page.click(".hit:has-text('twice') h2 button")
        at.page.click("#source summary:has-text('Details')")
        at.page.click("text=Compare with what was indexed")
        at.page.wait_for_selector("#source :text('Unchanged')")
        note.write_text("# Tide\n\nThe tide comes once a day.\n")
        at.page.click("text=Compare with what was indexed")
        at.page.wait_for_selector("#source :text('changed since it was indexed')")
        forget_failures(at)


def test_what_the_page_may_is_as_little_as_it_needs(at_page: Opened) -> None:
    """And all of its files are small."""
    sizes = [at_page.page.request.get(at_page.place).body()]
    for name in at_page.page.evaluate("performance.getEntriesByType('resource').map(each => each.name)"):
        if "/page/" not in name:
            continue
        answer = at_page.page.request.get(name)
        sizes.append(answer.body())
        headers = answer.headers
        assert "require-trusted-types-for 'script'" in headers["content-security-policy"]
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert (headers["referrer-policy"], headers["x-content-type-options"]) == ("no-referrer", "nosniff")
    assert len(sizes) > 10
    assert sum(map(len, sizes)) < 130_000
    thrown = at_page.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>'; } catch (error) { return error.name; } }"
    )
    assert thrown == "TypeError"
    at_page.errors.clear()  # the browser notes what it forbade


def test_the_file_that_a_browser_is_given_leads_to_the_page(chromium: Any, reading: str, tmp_path: Path) -> None:
    file = write_redirect(tmp_path, reading)
    with opened(chromium, file.as_uri()) as at:
        at.page.wait_for_selector("#question")
        assert at.page.url == reading.partition("#")[0]


def test_a_pdf_that_is_gone_is_shown_as_text_with_the_reason_in_view(chromium: Any, folder: Path) -> None:
    (folder / "lost").mkdir()
    make_pdf(folder / "lost" / "tides.pdf", ["The tide follows the moon twice a day."])
    index(folder, "lost.db", "lost")
    (folder / "lost" / "tides.pdf").unlink()
    with service(folder, "--index", "lost.db") as url, opened(chromium, url) as at:
        at.ask("what follows the moon")
        at.page.click(".answer .chip >> nth=0")
        at.page.wait_for_selector("#source .is-quote")
        told = at.page.locator("#source header :text('put it back, or index it again')")
        assert told.is_visible()
        forget_failures(at)
