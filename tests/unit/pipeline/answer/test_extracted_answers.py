"""What holds for answers of quotes, whatever the passages say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from retrieval_core.pipeline.answer.extract import candidates, choose, compose
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Span, content_hash
from retrieval_core.types.escapes import unescape_text
from support.examples import times
from support.quoted_packs import quoting, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core.types import ContextPack

ANALYZER = Analyzer()
FENCE = "- item of the moon list\n> ```\n"
QUOTED_FENCE = quoting({"d0": FENCE}, ("d0", [Span(0, len(FENCE))])), {"d0": FENCE}
SAID = "The moon is far away from every sea. "
FRAGMENTS = (
    *(
        "It is round! ",
        "Why is the moon round? ",
        "no end",
        "One.\n\n",
        "e.g. this. ",
        "月は遠い。",
        "\n",
        "\n\n",
        "  ",
    ),
    *("# Head\n\n", "## Sub\n", "### Only", "Title\n===\n", "---\nkey: value\n---\n", "- item of the moon list\n"),
    *("- two moons. and parts\n", "1. first\n", "To do this:\n\n", "They are: ", "| moon | b |\n", "|---|---|\n"),
    *("| far moons | 2. Three |\n", "```\nmoon code. More\n\nend\n```\n", "```\n", "~~~\n", "```yaml\nmoon: 1\n"),
    *(
        "    ```\n    deep moon\n\n    ```\n",
        "1. ```\n",
        "`````\n",
        "<!-- page 2 -->\n",
        "<!--",
        "<pre>\n",
        "> a quoted moon\n",
    ),
    *(
        "> ```\n",
        "> [!NOTE]\n",
        "!!! note\n",
        "[1]: https://moon.example\n",
        "[a moon](b) ",
        "![moon](c.png)\n",
        "[2]",
        SAID,
    ),
    *("\t", "\r\n", "\x00", "`", "moon" * 150, "far moon " * 90),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join) | st.text(max_size=80)
QUERIES = st.sampled_from(("How far is the moon?", "moon", "", "the", "月", "```")) | st.text(max_size=30)


@st.composite
def packs(draw: st.DrawFn, *, apart: bool = False) -> tuple[ContextPack, dict[str, str]]:
    """Draw documents, and passages that quote any stretches of them, some without a place, and not apart some twice."""
    documents = {f"d{number}": text for number, text in enumerate(draw(st.lists(TEXTS, min_size=1, max_size=3)))}
    passages: list[tuple[str, list[Span | str]]] = []
    names = st.lists(st.sampled_from(sorted(documents)), min_size=1, max_size=4, unique=apart)
    for name in draw(names):
        size = len(documents[name])
        stretches: list[Span | str] = [Span(0, size)]
        if draw(st.booleans()):
            edges = sorted(draw(st.lists(st.integers(0, size), min_size=2, max_size=4)))
            stretches = [Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)]
        if draw(st.booleans()):
            stretches = [documents[name]]
        passages.append((name, stretches))
    return quoting(documents, *passages), documents


@settings(max_examples=times(400), deadline=None)
@given(drawn=packs(), query=QUERIES, data=st.data())
def test_every_quote_is_the_documents_and_the_answers(
    drawn: tuple[ContextPack, dict[str, str]], query: str, data: st.DataObject
) -> None:
    """Quotes are in the document at their span, with their hash; the answer has only their words, and their markers."""
    pack, documents = drawn
    found = candidates(pack, ANALYZER, query)
    scores = data.draw(st.none() | st.lists(st.floats(0, 1), min_size=len(found), max_size=len(found)))
    chosen = choose(found, scores)
    text, sentences = compose(chosen)
    assert (text, sentences) == compose(choose(candidates(pack, ANALYZER, query), scores))
    assert bool(found) == bool(chosen) == bool(sentences) == bool(text)
    end = 0
    for sentence in sentences:
        assert not text[end : sentence.span.start].strip()
        assert text[sentence.span.start : sentence.span.end] == sentence.text
        end = sentence.span.end
        (attribution,) = sentence.attributions
        assert attribution.citation is not None
        assert attribution.marker is not None
        assert attribution.marker.end == sentence.span.end
        assert text[attribution.marker.start : attribution.marker.end] == f"[{attribution.number}]"
        source = pack.passages[attribution.number - 1].citation
        assert attribution.citation.document_id == source.document_id
        rest = text[sentence.span.start : attribution.marker.start]
        for quote in attribution.citation.quotes:
            assert quote.content_hash == content_hash(quote.text)
            assert quote.text.strip()
            assert any(quote.text in whole.text for whole in source.quotes)
            assert quote.span is None or documents[source.document_id][quote.span.start : quote.span.end] == quote.text
        quoted = " ".join(quote.text for quote in attribution.citation.quotes)
        assert set(re.findall(r"\w+", unescape_text(rest))) <= set(re.findall(r"\w+", quoted))
    assert end == len(text)


INTRODUCED = "> [!NOTE]\nTo do this:\n\n1. first\n"
"""An introduction inside a quotation, above a list outside it."""


@settings(max_examples=times(200), deadline=None)
@example(drawn=(whole(INTRODUCED), {}), query="the")
@example(drawn=(whole(INTRODUCED), {}), query="How do I do this first?")
@given(drawn=packs(apart=True), query=QUERIES)
def test_nothing_is_quoted_twice(drawn: tuple[ContextPack, dict[str, str]], query: str) -> None:
    """No two quotes overlap where no passages do."""
    _, sentences = compose(choose(candidates(drawn[0], ANALYZER, query)))
    places: list[tuple[str, int]] = []
    for sentence in sentences:
        for citation in (attribution.citation for attribution in sentence.attributions):
            assert citation is not None
            for quote in citation.quotes:
                if quote.span is not None:
                    places += [(citation.document_id, at) for at in range(quote.span.start, quote.span.end)]
    assert len(places) == len(set(places))


@settings(max_examples=times(200), deadline=None)
@given(before=TEXTS, after=TEXTS, query=QUERIES)
def test_a_pack_that_says_something_gives_an_answer(before: str, after: str, query: str) -> None:
    """A sentence of words is enough, wherever it stands."""
    text = f"{before}\n\n{SAID}\n\n{after}"
    found = candidates(quoting({"d": text}, ("d", [Span(0, len(text))])), ANALYZER, query)
    assert compose(choose(found))[0]


@settings(max_examples=times(300), deadline=None)
@example(drawn=QUOTED_FENCE, query="How far is the moon?")
@example(drawn=(whole("    ```\n    deep moon\n\n    ```\n1. ```\n"), {}), query="How far is the moon?")
@given(drawn=packs(), query=QUERIES)
def test_markers_are_no_code(drawn: tuple[ContextPack, dict[str, str]], query: str) -> None:
    """Where the answer is shown as Markdown, every marker is a part of its text: no block swallows it."""
    found = [candidate for candidate in candidates(drawn[0], ANALYZER, query) if candidate.kind != "rest"]
    text, sentences = compose(choose(found))
    code = list(_code(text))
    for attribution in (attribution for sentence in sentences for attribution in sentence.attributions):
        assert attribution.marker is not None
        line = text.count("\n", 0, attribution.marker.start)
        assert not any(first <= line < last for first, last in code)


def test_a_quoted_fence_without_an_end_has_its_marker_behind_it() -> None:
    text = "> ```\n> a quoted moon"
    found = candidates(quoting({"d": text}, ("d", [Span(0, len(text))])), ANALYZER, "How far is the moon?")
    assert compose(choose(found))[0] == "```\na quoted moon\n```\n\n[1]"


def _code(text: str) -> Iterator[tuple[int, int]]:
    """Yield the lines of a Markdown text that are shown as they are."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in {"fence", "code_block", "html_block"} and token.map is not None:
            yield token.map[0], token.map[1]
