"""The page with addresses that somebody wrote by hand, tokens that are refused, and answers with doubts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from support.browser import opened

if TYPE_CHECKING:
    from support.browser import Opened

QUESTION = "?q=how+far+away+is+the+moon"
TABS = ("answer", "context", "why", "compare")


def forget_refusals(at: Opened) -> None:
    """Forget the browser's own lines about answers with an error."""
    at.errors[:] = [line for line in at.errors if "Failed to load resource" not in line]


def asked_for_answers(at: Opened) -> int:
    """Return how often an answer was requested."""
    return sum(url.endswith("/v1/answer") for url in at.requests)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("filters", ["{broken", "null", "%5B"])
def test_a_broken_filter_is_named_in_every_tab(at_page: Opened, tab: str, filters: str) -> None:
    """Nothing is searched for, and one click leaves the filter out."""
    at_page.page.goto(f"{at_page.place}{QUESTION}&tab={tab}&filters={filters}")
    at_page.page.wait_for_selector("#panel .notice:has-text('not valid JSON')")
    at_page.page.click(".filters button:has-text('Remove the filter')")
    at_page.page.wait_for_selector("#panel:not(:has-text('not valid JSON'))")
    assert "filters" not in at_page.page.url


@pytest.mark.parametrize("name", ["toString", "__proto__", "constructor", "hasOwnProperty", "nonsense"])
def test_an_unknown_tab_shows_the_passages(at_page: Opened, name: str) -> None:
    """Also one of a name that every object has, as tab, as other way and in a filter."""
    at_page.page.goto(f"{at_page.place}{QUESTION}&tab={name}")
    at_page.page.wait_for_selector(".hit")
    assert at_page.page.get_attribute("[aria-selected=true]", "id") == "tab-answer"
    at_page.page.goto(f"{at_page.place}{QUESTION}&tab=compare&other={name}&mode={name}")
    at_page.page.wait_for_selector("#panel :is(.notice, .pair) >> visible=true")
    assert "native code" not in at_page.page.inner_text("main")
    at_page.page.goto(f'{at_page.place}{QUESTION}&filters={{"{name}":{{"{name}":1}}}}')
    at_page.page.wait_for_selector("#panel :is(.notice, .quiet:not(:has-text('Searching'))) >> visible=true")
    assert "native code" not in at_page.page.inner_text("main")
    forget_refusals(at_page)


def test_contains_finds_words_in_texts(at_page: Opened) -> None:
    """Of a field with texts it means a part of the text, not an item of a list."""
    at_page.page.goto(f"{at_page.place}?q=name+and+price")
    at_page.page.wait_for_selector(".hit")
    at_page.page.click(".filters summary")
    at_page.page.select_option("[aria-label=Field]", "source")
    at_page.page.select_option("[aria-label=Condition]", label="contains")
    at_page.page.fill("[aria-label=Value]", "prices")
    at_page.page.click(".row button:has-text('Add')")
    at_page.page.wait_for_selector(".row:has-text('source contains prices')")
    at_page.page.wait_for_selector(".hit:has-text('chair')")
    assert "moon.md" not in at_page.page.inner_text("#panel")


@pytest.mark.parametrize(
    "view", [*(f"{QUESTION}&tab={tab}" for tab in TABS), "?view=index", f"{QUESTION}&doc=notes/moon.md"]
)
def test_a_token_that_becomes_invalid_is_asked_for_in_every_view(chromium: Any, reading: str, view: str) -> None:
    """The right one then shows what was to be shown."""
    with opened(chromium, reading) as at:
        at.page.wait_for_selector("#question")
        token = at.page.evaluate("sessionStorage.getItem('retrieval-token')")
        at.page.evaluate("sessionStorage.setItem('retrieval-token', 'changed')")
        # As a link does that was clicked: the page itself is not loaded again.
        at.page.evaluate("view => { history.pushState(null, '', view); dispatchEvent(new Event('changed')); }", view)
        at.page.wait_for_selector("h1:has-text('needs a token')")
        at.page.wait_for_selector(".notice:has-text('not accepted')")
        at.page.fill("#token", "wrong")
        at.page.press("#token", "Enter")
        at.page.wait_for_selector(".notice:has-text('not accepted')")
        at.page.fill("#token", token)
        at.page.press("#token", "Enter")
        at.page.wait_for_selector(
            "#library" if "view=index" in view else "#panel :is(.hit, .answer:has-text('moon'), pre, .reasons, .pair)"
        )
        if "doc=" in view:
            at.page.wait_for_selector("#source:has-text('384,400')")
        forget_refusals(at)


def test_an_answer_is_requested_once(at_page: Opened) -> None:
    """It stays while tabs change, and is asked for again on request only."""
    at_page.page.goto(f"{at_page.place}{QUESTION}&tab=answer")
    at_page.page.wait_for_selector(".trust")
    told = at_page.page.inner_text(".answer")
    before = asked_for_answers(at_page)
    for tab in ("why", "answer", "why", "answer"):
        at_page.page.click(f"#tab-{tab}")
        at_page.page.wait_for_selector({"answer": ".trust", "why": ".reasons"}[tab])
    assert asked_for_answers(at_page) == before == 1
    assert at_page.page.inner_text(".answer") == told
    with at_page.page.expect_request("**/v1/answer"):
        at_page.page.click("button.main")
    at_page.page.wait_for_selector(".answer .chip")


def events(answer: dict[str, Any]) -> str:
    """Return the stream of an answer."""
    told: tuple[dict[str, Any], ...] = (
        {"type": "retrieval_done", "passages": []},
        {"type": "answer_chunk", "content": answer["text"]},
        {"type": "done", "answer": answer},
    )
    return "".join(f"data: {json.dumps(event)}\n\n" for event in told)


def test_doubts_about_an_answer_are_shown(at_page: Opened) -> None:
    """Each sentence without support, one that a passage contradicts, the confidence and the note."""
    first, second, third = "The moon is near [1].", "It has air [2].", "It is round."
    text = f"{first} {second} {third}"
    citation = {"number": 1, "document_id": "d", "chunk_ids": ["d#0"], "quotes": []}
    at = len(first) + 1

    def sentence(words: str, start: int, **more: Any) -> dict[str, Any]:
        return {"text": words, "span": [start, start + len(words)], "needs_source": False, "attributions": [], **more}

    answer = {
        "text": text,
        "kind": "written",
        "sources": [citation],
        "confidence": {"value": 0.42, "retrieval": 0.9, "support": 0.5, "explanation": "one of two is supported"},
        "note": "a note of the service",
        "sentences": [
            sentence(
                first,
                0,
                attributions=[{"number": 1, "marker": [17, 20], "citation": citation, "problem": None}],
                check={"sentence": 0, "verdict": "contradicted", "passage": 1, "quote": None, "reason": ""},
            ),
            sentence(
                second,
                at,
                needs_source=True,
                attributions=[{"number": 2, "marker": [at + 11, at + 14], "citation": None, "problem": "unsupported"}],
            ),
            sentence(third, at + len(second) + 1, needs_source=True),
        ],
    }

    def fulfill(route: Any) -> None:
        route.fulfill(content_type="text/event-stream", body=events(answer))

    at_page.page.route("**/v1/answer", fulfill)
    at_page.page.goto(f"{at_page.place}{QUESTION}&tab=answer")
    at_page.page.wait_for_selector(".confidence:has-text('confidence medium')")
    shown = at_page.page.inner_text("#panel")
    assert at_page.page.text_content(".trust .tip") == "one of two is supported"
    assert "a note of the service" in shown
    problems = at_page.page.locator(".doubt + .tip .problem").all_text_contents()
    assert problems == ["A source contradicts this sentence.", *["No source supports this sentence."] * 2]
    doubted = at_page.page.locator(".answer .doubt").all_text_contents()
    assert all(words.partition(" [")[0] in " ".join(doubted) for words in (first, second, third))
    assert at_page.page.inner_text(".answer .none") == "[2]"
