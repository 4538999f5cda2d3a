"""What holds for pruned passages, whatever they say and whatever is kept of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.config import ContextConfig
from retrieval_core.pipeline.context import check_citation, request_to_check
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.pipeline.stages.format import excerpts_of, format_context
from retrieval_core.ports import Change
from retrieval_core.text.sentences import sentences_of
from retrieval_core.types import Chunk, Document, Hit, Scores, Section, Span, content_hash
from support.examples import times

FRAGMENTS = (
    *("The moon is far. ", "It is round! ", "Why? ", "no end", "One.\n\n", "e.g. this. ", "一つ。", "\n", "\n\n", "  "),
    *("# Head\n\n", "## Sub\n", "### Only", "- item\n", "- two. parts\n", "1. first\n", "To do:\n", "They are: "),
    *("| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "```\ncode. More\n\nend\n```\n", "```\n", "<!-- page 2 -->\n"),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join) | st.text(max_size=80)


def without_space(text: str) -> str:
    return "".join(text.split())


@settings(max_examples=times(300))
@given(text=TEXTS, data=st.data())
def test_excerpts_are_whole_sentences_in_order(text: str, data: st.DataObject) -> None:
    """Sorted, apart, inside the text, not empty; every kept sentence in one, and nothing but sentences and heads."""
    sentences = sentences_of(text)
    assert without_space("".join(text[item.span.start : item.span.end] for item in sentences)) == without_space(text)
    assert all(head.end <= item.span.start for item in sentences for head in item.heads)
    kept = data.draw(st.tuples(*(st.booleans() for _ in sentences)))
    parts = excerpts_of(text, sentences, kept)
    if not parts:
        assert all(kept) or not any(kept) or without_space(text) == _wanted(text, kept)
        return
    assert all(0 <= part.start < part.end <= len(text) for part in parts)
    assert all(first.end < second.start for first, second in pairwise(parts))
    assert all(text[first.end : second.start].strip() for first, second in pairwise(parts))
    shown = [text[part.start : part.end] for part in parts]
    assert all(part == part.strip() for part in shown)
    assert without_space("".join(shown)) == _wanted(text, kept)
    for sentence, is_kept in zip(sentences, kept, strict=True):
        inside = any(part.start <= sentence.span.start and sentence.span.end <= part.end for part in parts)
        assert inside or not is_kept


def _wanted(text: str, kept: tuple[bool, ...]) -> str:
    """Return the characters of what is kept, of its heads and of what it introduces, each once."""
    wanted: set[int] = set()
    sentences = sentences_of(text)
    shown = list(kept)
    for place, sentence in enumerate(sentences[:-1]):
        shown[place + 1] = shown[place + 1] or (shown[place] and sentence.introduces_next)
    for sentence, is_shown in zip(sentences, shown, strict=True):
        if is_shown:
            for span in (sentence.span, *sentence.heads):
                wanted |= set(range(span.start, span.end))
    return without_space("".join(text[position] for position in sorted(wanted)))


@settings(max_examples=times(150))
@given(texts=st.lists(TEXTS.filter(str.strip), min_size=1, max_size=4), data=st.data())
def test_nothing_outside_the_excerpts_is_formatted(texts: list[str], data: st.DataObject) -> None:
    """The context of pruned hits is their excerpts with marks between them, and that of others their text."""
    hits = [_pruned(Chunk(f"d#{number}", "d", text), data) for number, text in enumerate(texts)]
    expected = "\0|\0".join(
        "\n[…]\n".join(
            hit.chunk.text[part.start : part.end] for part in hit.excerpts or (Span(0, len(hit.chunk.text)),)
        )
        for hit in hits
    )
    assert format_context(hits, template="{text}", delimiter="\0|\0").text == expected


@settings(max_examples=times(150))
@given(
    texts=st.lists(TEXTS.filter(str.strip), min_size=2, max_size=5),
    window=st.integers(0, 2),
    budget=st.sampled_from((5, 20, 60, 1000)),
    data=st.data(),
)
def test_pruned_packs_verify_and_do_not_show_what_was_left_out(
    texts: list[str], window: int, budget: int, data: st.DataObject
) -> None:
    """Every citation matches the index, and nothing withheld of a hit is in a quote while the hit is shown."""
    document, chunks = _document(texts)
    store = MemoryStore(embedder_id=None, dimension=None)
    section = Section("s", "d", "section", (), Span(0, len(document.text)))
    asyncio.run(store.upsert(Change(documents=(document,), sections=(section,), chunks=chunks)))
    found = data.draw(st.lists(st.sampled_from(chunks), min_size=1, max_size=3, unique_by=lambda chunk: chunk.id))
    hits = [_pruned(chunk, data) for chunk in found]
    config = ContextConfig(window=window, max_tokens=budget)
    around = _around(store, hits, config)
    result = assemble(hits, around, config, lambda text: len(text.split()))
    citations = tuple(passage.citation for passage in result.passages)
    fetched = asyncio.run(store.fetch(request_to_check(citations)))
    assert [check_citation(citation, fetched).differences for citation in citations] == [() for _ in citations]
    shown = {entry.id: entry for entry in result.ledger if entry.outcome != "dropped"}
    for hit in hits:
        if hit.id not in shown or not hit.excerpts:
            continue
        assert shown[hit.id].outcome == "shortened"
        assert "only sentences relevant to the query are shown" in shown[hit.id].reason
        assert hit.chunk.span is not None
        start = hit.chunk.span.start
        quoted = [quote.span for citation in citations for quote in citation.quotes]
        inside = {at for span in quoted if span is not None for at in range(span.start, span.end)}
        allowed = {start + at for part in hit.excerpts for at in range(part.start, part.end)}
        place = range(start, hit.chunk.span.end)
        assert all(at in allowed or not document.text[at].strip() for at in place if at in inside)


def _pruned(chunk: Chunk, data: st.DataObject) -> Hit:
    sentences = sentences_of(chunk.text)
    kept = data.draw(st.tuples(*(st.booleans() for _ in sentences)))
    hit = Hit(chunk, 0.5, Scores(final=0.5))
    return replace(hit, excerpts=excerpts_of(chunk.text, sentences, kept))


def _document(texts: list[str]) -> tuple[Document, tuple[Chunk, ...]]:
    """Return a document of some texts with a blank line between them, and a chunk of each."""
    chunks: list[Chunk] = []
    whole = ""
    for number, text in enumerate(texts):
        span = Span(len(whole), len(whole) + len(text))
        chunks.append(Chunk(f"d#{number}", "d", text, number, len(texts), span=span, parent_id="s"))
        whole += f"{text}\n\n"
    return Document("d", whole, "d", content_hash(whole)), tuple(chunks)


def _around(store: MemoryStore, hits: list[Hit], config: ContextConfig) -> Surroundings:
    request = surroundings_request(hits, config, None)
    return Surroundings({}, {}, {}) if request is None else surroundings_of(asyncio.run(store.fetch(request)))
