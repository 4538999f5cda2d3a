from __future__ import annotations

from dataclasses import replace

import pytest

from retrieval_core.pipeline.context import check_citation, request_to_check
from retrieval_core.ports import Fetched, FetchRequest
from retrieval_core.types import Chunk, Citation, Document, Quote, Span
from retrieval_core.types.filters import Eq

TEXT = "Roll back with care. Then sync again."
QUOTE = Quote("Roll back with care.", Span(0, 20))
CITATION = Citation(1, "d", ("d#0",), (QUOTE,))


def differences(text: str | None, *quotes: Quote, chunks: tuple[Chunk, ...] = ()) -> tuple[str, ...]:
    documents = {} if text is None else {"d": Document("d", text, "d.md", "hash")}
    fetched = Fetched({chunk.id: chunk for chunk in chunks}, documents=documents)
    check = check_citation(replace(CITATION, quotes=quotes), fetched)
    assert check.matches == (not check.differences)
    return check.differences


def test_a_citation_that_is_right() -> None:
    """Every quote stands where the citation says."""
    assert differences(TEXT, QUOTE, Quote("sync", Span(26, 30))) == ()


@pytest.mark.parametrize(
    ("text", "quote", "difference"),
    [
        (None, QUOTE, "quote 1: neither the document 'd' nor a chunk of it is in the index: d#0"),
        (
            "Now: " + TEXT,
            QUOTE,
            "quote 1: it is now at 5 to 25 of the document, and the citation has 0 to 20",
        ),
        (
            "Roll back with cares, always.",
            QUOTE,
            "quote 1: from its character 19 on, the citation has '.' and the document 's'",
        ),
        ("Roll.", QUOTE, "quote 1: the document has 5 characters, and the citation has 0 to 20"),
        (
            TEXT,
            replace(QUOTE, span=Span(-20, 20)),
            "quote 1: it is now at 0 to 20 of the document, and the citation has -20 to 20",
        ),
        (
            TEXT,
            replace(QUOTE, span=Span(0, 37)),
            "quote 1: it is now at 0 to 20 of the document, and the citation has 0 to 37",
        ),
    ],
    ids=["gone", "moved", "changed", "shorter", "negative", "too long"],
)
def test_what_exactly_differs(text: str | None, quote: Quote, difference: str) -> None:
    """Each way in which a quote can be wrong is told in its own words."""
    assert differences(text, quote) == (difference,)


def test_a_quote_that_was_changed() -> None:
    """A text that does not have the citation's hash is told, beside where it differs."""
    forged = Quote("Roll back with haste.", Span(0, 21), QUOTE.content_hash)
    assert differences(TEXT, QUOTE, forged) == (
        "quote 2 was changed: its text does not have the hash that the citation gives",
        "quote 2: from its character 15 on, the citation has 'haste.' and the document 'care. '",
    )


def test_a_quote_without_a_place_is_looked_for_in_its_chunks() -> None:
    """It must stand in the text of one of them."""
    quote = Quote("with care")
    chunk = Chunk("d#0", "d", TEXT)
    assert differences(None, quote, chunks=(chunk,)) == ()
    assert differences(None, quote) == ("quote 1: neither the document 'd' nor a chunk of it is in the index: d#0",)
    assert differences(None, Quote("with haste"), chunks=(chunk,)) == (
        "quote 1: 'with haste' is not in the text of d#0",
    )


def test_a_citation_without_quotes() -> None:
    """It says nothing that could be right."""
    assert differences(TEXT) == ("the citation quotes nothing",)


def test_one_request_reads_what_all_citations_need() -> None:
    """Each document and each chunk once."""
    placeless = Citation(2, "e", ("e#0", "e#1"), (Quote("Text"),))
    condition = Eq("brand", "Acme")
    assert request_to_check([CITATION, placeless, CITATION, placeless], condition) == FetchRequest(
        chunk_ids=(*CITATION.chunk_ids, "e#0", "e#1"), document_ids=("d", "e"), filter=condition
    )


def test_a_chunk_of_another_document_proves_nothing() -> None:
    """The id of a chunk may be given to another document's; a quote with a place counts by its chunks where need be."""
    quoted = Citation(1, "d", ("c",), (Quote("Text."),))
    assert check_citation(quoted, Fetched(chunks={"c": Chunk("c", "d", "Text. More.")})).matches
    assert not check_citation(quoted, Fetched(chunks={"c": Chunk("c", "e", "Text. More.")})).matches
    placed = Citation(1, "d", ("c",), (Quote("Text.", Span(5, 10)),))
    assert check_citation(placed, Fetched(chunks={"c": Chunk("c", "d", "Text.", span=Span(5, 10))})).matches


def test_an_empty_quote_matches_nothing() -> None:
    for quote in (Quote(""), Quote("", Span(9, 9)), Quote("  ")):
        assert not check_citation(Citation(1, "d", ("c",), (quote,)), Fetched()).matches
