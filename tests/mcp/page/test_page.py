"""The page for people, driven in a real Chromium."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlsplit

import pytest

from support.browser import opened, service

if TYPE_CHECKING:
    from support.browser import Opened

DISTANCE = "how far away is the moon"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
VIEWS = ("answer", "context", "why", "compare", "index", "source")


def show(at: Opened, view: str) -> None:
    """Bring the page to one of its views, with a question asked."""
    at.ask(DISTANCE)
    if view == "index":
        at.page.click("[data-view=index]")
        at.page.wait_for_selector(".region-documents tbody tr td")
    elif view == "source":
        at.page.click(".hit h2 button >> nth=0")
        at.page.wait_for_selector("#source .passage.is-hit")
    else:
        at.page.click(f"#tab-{view}")
        at.page.wait_for_selector(
            {"answer": ".answer .chip", "context": ".budget", "why": ".reasons", "compare": ".pair"}.get(view, ".hit")
        )


def accept(dialog: Any) -> None:
    dialog.accept()


def test_a_question_shows_passages_with_its_words_marked(at_page: Opened) -> None:
    at_page.ask(DISTANCE)
    assert at_page.page.inner_text(".hit h2 button >> nth=0") == "The moon"
    assert {mark.lower() for mark in at_page.page.locator(".hit mark").all_inner_texts()} >= {"moon", "far"}
    assert "q=how+far+away" in at_page.page.url
    assert "token" not in at_page.page.url


def test_the_address_alone_shows_the_same(chromium: Any, reading: str) -> None:
    """With its question, its settings and its filter; the token is the reader's own."""
    address = reading.replace("/#", '/?q=lamp&mode=lexical&filters={"price":{"$lte":100}}#')
    with opened(chromium, address) as at:
        at.page.wait_for_selector(".hit")
        assert at.page.input_value("#question") == "lamp"
        assert "price at most 100" in at.page.inner_text(".filters")


def test_a_filter_of_a_field_that_there_is(at_page: Opened) -> None:
    at_page.ask("lamp chair table")
    at_page.page.click("summary:has-text('Filters')")
    at_page.page.select_option("[aria-label=Field]", "price")
    at_page.page.select_option("[aria-label=Condition]", label="at least")
    at_page.page.fill("[aria-label=Value]", "200")
    at_page.page.click("text=Add")
    at_page.page.wait_for_selector(".filters :text('price at least 200')")
    at_page.page.wait_for_selector(".hit")
    texts = at_page.page.locator(".hit .passage").all_inner_texts()
    assert texts
    assert all("table" in text for text in texts)


def test_a_passage_is_marked_in_its_document(at_page: Opened) -> None:
    show(at_page, "source")
    assert "384,400" in at_page.page.inner_text("#source .passage.is-hit") + at_page.page.inner_text("#source")
    at_page.page.click("#source summary:has-text('Details')")
    at_page.page.click("text=Compare with what was indexed")
    at_page.page.wait_for_selector("#source :text('Unchanged')")
    at_page.page.keyboard.press("Escape")
    assert at_page.page.is_hidden("text=Compare with what was indexed")
    at_page.page.keyboard.press("Escape")
    assert at_page.page.is_hidden("#source")


def test_why_a_passage_came_and_another_did_not(at_page: Opened) -> None:
    at_page.ask("which neighbour of the earth is the nearest")  # nothing else asks that, so it is in no cache
    at_page.page.click("#tab-why")
    at_page.page.click("summary:has-text('Timeline')")
    at_page.page.wait_for_selector(".stages")
    stages = at_page.page.locator(".stages tbody th").all_inner_texts()
    assert {"embed", "dense", "lexical", "fuse"} <= set(stages)
    at_page.page.fill("#expected", "notes/report.pdf#0")
    at_page.page.click("button:text('Explain')")
    at_page.page.wait_for_selector("#panel [role=status] p")
    at_page.page.fill("#expected", "no such passage")
    at_page.page.click("button:text('Explain')")
    at_page.page.wait_for_selector("#panel [role=status] .notice")
    at_page.errors.clear()  # the browser notes the 404


def test_the_outline_on_the_page_of_a_pdf_has_the_words_of_the_passage(at_page: Opened) -> None:
    at_page.ask("the tide follows the moon twice a day")
    at_page.page.click(".hit:has-text('report.pdf'):has-text('tide') h2 button")
    at_page.page.wait_for_selector("text=Show as text")  # once all pages are there, and none moves any more
    at_page.page.wait_for_function("document.querySelector('.pdf img').naturalWidth > 300")
    outline, picture = (at_page.page.locator(part).first.bounding_box() for part in (".pdf i", ".pdf img"))
    assert outline is not None
    assert picture is not None
    # The line stands 50 points from the left and 200 from the foot of a page of 400 by 300.
    assert (outline["x"] - picture["x"]) / picture["width"] == pytest.approx(50 / 400, abs=0.02)
    assert (outline["y"] + outline["height"] / 2 - picture["y"]) / picture["height"] == pytest.approx(
        96 / 300, abs=0.04
    )


def test_an_answer_comes_with_its_sources(at_page: Opened) -> None:
    show(at_page, "answer")
    at_page.page.wait_for_selector(".answer .chip")
    at_page.page.click(".answer .chip >> nth=0")
    at_page.page.wait_for_selector("#source .passage.is-hit")


def test_the_context_says_what_it_costs(at_page: Opened) -> None:
    show(at_page, "context")
    at_page.page.fill("#budget", "60")
    at_page.page.click("button:text('Apply')")
    at_page.page.wait_for_selector(":text('of 60 tokens')")


def test_two_ways_side_by_side_and_a_case_of_a_suite(at_page: Opened) -> None:
    show(at_page, "compare")
    assert len(at_page.page.locator(".pair section").all()) == 2
    at_page.page.check("[value='notes/moon.md']")
    with at_page.page.expect_download() as saved:
        at_page.page.click("text=Save >> nth=-1")
    suite = json.loads(Path(saved.value.path()).read_text("utf-8"))
    assert suite["cases"] == [{"name": DISTANCE, "query": DISTANCE, "expect": {"documents": ["notes/moon.md"]}}]


def test_files_are_added_and_removed_where_that_is_allowed(chromium: Any, folder: Path, tmp_path: Path) -> None:
    new = tmp_path / "mars.md"
    new.write_text("# Mars\n\nMars is red.\n", "utf-8")
    with service(folder, "--allow-writes") as url, opened(chromium, url) as at:
        at.page.click("[data-view=index]")
        at.page.wait_for_selector("#files", state="attached")
        at.page.set_input_files("#files", new)
        at.page.wait_for_selector(".region-documents tbody :text('mars.md')")
        at.page.on("dialog", accept)
        at.page.click("tr:has-text('mars.md') >> text=Remove")
        at.page.wait_for_selector("tr:has-text('mars.md')", state="detached")


def tab_to(page: Any, selector: str, key: str = "Tab") -> None:
    """Move the focus to an element, which shows that it has it."""
    for _ in range(40):
        page.keyboard.press(key)
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            return
    pytest.fail(f"{key} never leads to {selector}")


def test_the_keyboard_alone(at_page: Opened) -> None:
    """A question, a quote and its source, a card, why, a filter, the settings and the files."""
    page, press = at_page.page, at_page.page.keyboard.press
    focused = "(selector) => document.activeElement.matches(selector)"
    page.wait_for_function(focused, arg="#question")
    page.keyboard.type(DISTANCE)
    press("Enter")
    page.wait_for_selector(".answer .chip")
    tab_to(page, ".answer .chip")
    page.wait_for_selector(".cite:focus-within .tip >> visible=true")
    press("Enter")
    page.wait_for_selector("#source .passage.is-hit")
    press("Escape")
    page.wait_for_selector("#source", state="hidden")
    page.wait_for_function(focused, arg=".answer .chip")
    tab_to(page, ".hit h2 button")
    press("Enter")
    page.wait_for_selector("#source .passage.is-hit")
    press("Escape")
    page.wait_for_function(focused, arg=".hit h2 button")
    tab_to(page, "#tab-answer", "Shift+Tab")
    press("ArrowRight")
    page.wait_for_selector(".reasons")
    page.wait_for_function(focused, arg="#tab-why")
    tab_to(page, "#filters", "Shift+Tab")
    press("Enter")
    page.wait_for_selector("[aria-label=Field]")
    tab_to(page, "[aria-label=Field]")
    page.keyboard.type("title")
    tab_to(page, "[aria-label=Value]")
    page.keyboard.type("The moon")
    press("Enter")
    page.wait_for_selector(".filters :text('title contains The moon')")
    page.wait_for_selector(".reasons")
    tab_to(page, ".row [aria-label^=Remove]", "Shift+Tab")
    press("Enter")
    page.wait_for_selector(".row [aria-label^=Remove]", state="detached")
    tab_to(page, ".menu summary", "Shift+Tab")
    press("Enter")
    page.wait_for_selector("#mode >> visible=true")
    press("Escape")
    page.wait_for_function(focused, arg=".menu summary")
    tab_to(page, "[data-view=index]", "Shift+Tab")
    press("Enter")
    page.wait_for_selector(".region-documents tbody tr td")


def test_what_is_shown_stays_while_more_arrives(at_page: Opened) -> None:
    """Neither cards nor pictures are drawn anew, so they don't flicker and what is selected stays so."""
    page = at_page.page
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    page.route("**/v1/answer", hold)
    at_page.ask(DISTANCE)
    page.wait_for_selector(".hit")
    page.evaluate("document.querySelector('.hit').wasHere = true")
    assert page.locator(".cited >> visible=true").count() == 0
    held.pop().continue_()
    page.unroute("**/v1/answer")
    page.wait_for_selector(".cited >> visible=true")
    assert page.evaluate("document.querySelector('.hit').wasHere")
    page.route("**/v1/explain", hold)
    page.goto(f"{at_page.place}?q=how+often+does+the+tide+follow+the+moon&chunk=notes%2Freport.pdf%230")
    page.wait_for_selector("#source .pdf img")
    page.evaluate("document.querySelector('#source img').wasHere = true")
    for each in held:
        each.continue_()
    page.unroute("**/v1/explain")
    page.wait_for_selector(".hit")
    assert page.evaluate("document.querySelector('#source img').wasHere")
    page.click("text=Show as text")
    page.wait_for_selector("#source .passage.is-hit mark")


def test_the_state_of_indexing_is_read_again(at_page: Opened) -> None:
    """Until all chunks have vectors."""
    embedded = iter([1, 2])

    def tell(route: Any) -> None:
        index = {"name": "docs", "points_count": 2, "indexed_vectors_count": next(embedded, 2), "vector_size": 4}
        route.fulfill(json={"indexes": [index], "writable": False})

    at_page.page.clock.install()
    at_page.page.route("**/v1/indexes", tell)
    at_page.page.goto(at_page.place)
    at_page.page.wait_for_selector("#corpus:has-text('indexing: 50% embedded')")
    at_page.page.clock.fast_forward(6_000)
    at_page.page.wait_for_selector("#corpus:has-text('2 chunks'):not(:has-text('indexing'))")
    at_page.errors.clear()  # the browser notes that there is no such index


def test_indexing_that_never_ends_is_not_read_again_for_ever(at_page: Opened) -> None:
    """More and more rarely, until the page says how to go on."""
    index = {"name": "docs", "points_count": 2, "indexed_vectors_count": 1, "vector_size": 4}
    asked = 0

    def tell(route: Any) -> None:
        nonlocal asked
        asked += 1
        route.fulfill(json={"indexes": [index], "writable": False})

    page = at_page.page
    page.clock.install()
    page.route("**/v1/indexes", tell)
    page.goto(at_page.place)
    page.wait_for_selector("#corpus:has-text('indexing: 50% embedded')")
    for _ in range(15):
        if page.locator("#corpus:has-text('Reload the page')").count():
            break
        with page.expect_response("**/v1/indexes"):
            page.clock.run_for(300_000)
        page.evaluate("new Promise((resolve) => queueMicrotask(resolve))")
    page.wait_for_selector("#corpus:has-text('Reload the page')")
    before = asked
    page.clock.run_for(3_600_000)
    page.evaluate("new Promise((resolve) => queueMicrotask(resolve))")
    assert asked == before
    at_page.errors.clear()  # the browser notes that there is no such index


def test_a_citation_of_a_pdf_opens_the_page_with_its_words_outlined(at_page: Opened) -> None:
    """Only these: the text has to be asked for, and what is copied stays in sight."""
    page = at_page.page
    at_page.ask("the tide follows the moon twice a day")
    hit = page.locator(".hit:has-text('report.pdf'):has-text('tide')").first
    where = f"{at_page.place}?chunk={quote_plus(hit.get_attribute('data-chunk'))}"
    outline = page.locator("#source .pdf i").last
    page.goto(where)
    page.wait_for_selector("text=Show as text")
    whole = outline.bounding_box()
    assert not any("/v1/documents/" in url for url in at_page.requests)
    with page.expect_response("**/v1/documents/**") as asked:
        page.click("text=Show as text")
    page.wait_for_selector("#source .passage.is-hit")
    document = asked.value.json()
    start = document["offset"] + document["text"].index("moon")
    page.goto(f"{where}&at={start}-{start + 4}")
    page.wait_for_selector("text=Show as text")
    quote = outline.bounding_box()
    assert whole is not None
    assert quote is not None
    assert quote["width"] < whole["width"] / 3
    for label in ("Copy citation", "Copy link"):
        assert page.locator(f"#source header button:has-text('{label}')").is_visible()


OVERLAPS = """() => {
    const shown = [...document.querySelectorAll("main :is(button, input, select, a, summary), header :is(a, summary)")]
        .filter((each) => each.checkVisibility({ visibilityProperty: true }) && !each.closest(".tip, .is-short"))
        .map((each) => [each, each.getBoundingClientRect()])
        .filter(([, { width, height }]) => width > 1 && height > 1);
    const wrong = [];
    shown.forEach(([one, a], place) => {
        for (const [other, b] of shown.slice(place + 1)) {
            if (one.contains(other)) continue;
            const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
            const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
            if (wide > 1 && high > 1) wrong.push([one.textContent || one.id, other.textContent || other.id]);
        }
    });
    return wrong;
}"""


def test_zoomed_to_twice_the_size_everything_fits(chromium: Any, reading: str) -> None:
    """A window of 1280 by 900 pixels is one of 640 by 450 then."""
    half = {"width": WIDE["width"] // 2, "height": WIDE["height"] // 2}
    with opened(chromium, reading, viewport=half, device_scale_factor=2) as at:
        for view in VIEWS:
            at.page.goto(at.place)
            at.page.wait_for_selector("#question")
            show(at, view)
            assert at.page.evaluate("document.documentElement.scrollWidth") <= half["width"], view
            if view != "source":
                assert at.page.evaluate(OVERLAPS) == [], view


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_a_narrow_screen(chromium: Any, reading: str, view: str, scheme: str) -> None:
    with opened(chromium, reading, viewport=NARROW, color_scheme=scheme) as at:
        show(at, view)
        assert at.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        channels = at.page.evaluate(
            "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)"
        )
        assert (sum(channels) > 384) is (scheme == "light")


def test_what_documents_contain_stays_text(at_page: Opened) -> None:
    at_page.ask("what does the comet say")
    assert "<script>" in at_page.page.inner_text(".hits")
    at_page.page.click(".hit:has-text('comet') h2 button")
    at_page.page.wait_for_selector("#source .passage.is-hit")
    assert at_page.page.locator(":is(.hits, #source) :is(script, [onerror], form)").count() == 0
    assert at_page.page.title() != "taken"


def test_nothing_is_loaded_from_elsewhere(at_page: Opened) -> None:
    for view in VIEWS:
        show(at_page, view)
        at_page.page.goto(at_page.place)
        at_page.page.wait_for_selector("#question")
    host = urlsplit(at_page.url).netloc
    assert {urlsplit(address).netloc for address in at_page.requests if not address.startswith("blob:")} == {host}


def test_a_wrong_token_and_a_service_that_ended_are_told(chromium: Any, folder: Path) -> None:
    with service(folder) as url:
        with opened(chromium, url.partition("#")[0] + "#token=wrong") as at:
            at.page.wait_for_selector("h1:text('needs a token')")
            at.page.fill("#token", url.partition("=")[2])
            at.page.click("text=Continue")
            at.page.wait_for_selector("#question")
            at.errors.clear()  # the browser notes the 401
        held = chromium.new_context()
        page = held.new_page()
        page.goto(url)
        page.wait_for_selector("#question")
    page.fill("#question", "anyone there")
    page.press("#question", "Enter")
    page.wait_for_selector(".notice:has-text('cannot be reached')")
    held.close()


@pytest.mark.skipif("AXE" not in os.environ, reason="run with nox -s page, which gets axe-core")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(chromium: Any, reading: str, view: str, scheme: str) -> None:
    with opened(chromium, reading, viewport=WIDE, color_scheme=scheme, bypass_csp=True) as at:
        show(at, view)
        at.page.add_script_tag(path=os.environ["AXE"])
        told = at.page.evaluate("axe.run()")
        found = [(each["id"], each["impact"], [node["html"] for node in each["nodes"]]) for each in told["violations"]]
        assert [each for each in found if each[1] in {"serious", "critical"}] == []
