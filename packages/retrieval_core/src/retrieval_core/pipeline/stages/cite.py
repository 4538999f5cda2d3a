"""Checking a citation against the index: its quotes are there, word for word, or what exactly is different."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from retrieval_core.ports import FetchRequest
from retrieval_core.text.prompting import shorten
from retrieval_core.text.quotes import find_quote
from retrieval_core.types import CitationCheck, content_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.ports import Fetched
    from retrieval_core.types import Chunk, Citation, Span
    from retrieval_core.types.filters import Filter

_SHOWN = 60


def request_to_check(citations: Sequence[Citation], condition: Filter | None = None) -> FetchRequest:
    """Return the one request that reads what citations have to be compared with."""
    documents = dict.fromkeys(citation.document_id for citation in citations)
    chunks = dict.fromkeys(name for citation in citations for name in citation.chunk_ids)
    return FetchRequest(chunk_ids=tuple(chunks), document_ids=tuple(documents), filter=condition)


def check_citation(citation: Citation, fetched: Fetched) -> CitationCheck:
    """Compare a citation with what is in the index now.

    What is compared are the quotes, and where they stand: one with a span must stand there in the document's text. One
    without, and any where no such document is kept, must be in the text of its chunks.
    """
    differences = tuple(_differences(citation, fetched))
    if not differences:
        return CitationCheck(citation)
    found = _words_of(citation, fetched)
    return CitationCheck(citation, differences, "not_found" if found is None else "equivalent", found or ())


def _words_of(citation: Citation, fetched: Fetched) -> tuple[str, ...] | None:
    """Return the words of each quote as they are in the index; ``None`` if those of one are not."""
    document = fetched.documents.get(citation.document_id)
    chunks = [chunk.text for chunk in _chunks_of(citation, fetched)]
    texts = ["".join(chunks), *chunks] if document is None else [document.text]
    words: list[str] = []
    for quote in citation.quotes:
        matches = ((text, find_quote(quote.text, text)) for text in texts)
        found = next((match.words_of(text) for text, match in matches if match is not None), None)
        if found is None:
            return None
        words.append(found)
    return tuple(words) or None


def _chunks_of(citation: Citation, fetched: Fetched) -> list[Chunk]:
    found = [fetched.chunks[name] for name in citation.chunk_ids if name in fetched.chunks]
    return [chunk for chunk in found if chunk.document_id == citation.document_id]


def _differences(citation: Citation, fetched: Fetched) -> Iterator[str]:
    if not citation.quotes:
        yield "the citation quotes nothing"
    document = fetched.documents.get(citation.document_id)
    for number, quote in enumerate(citation.quotes, start=1):
        if content_hash(quote.text) != quote.content_hash:
            yield f"quote {number} was changed: its text does not have the hash that the citation gives"
        if not quote.text.strip():
            yield f"quote {number} is empty"
        elif quote.span is not None and document is not None:
            if (difference := _difference(quote.text, quote.span, document.text)) is not None:
                yield f"quote {number}: {difference}"
        elif (difference := _difference_from_chunks(quote.text, citation, fetched)) is not None:
            yield f"quote {number}: {difference}"


def _difference_from_chunks(quoted: str, citation: Citation, fetched: Fetched) -> str | None:
    chunks = _chunks_of(citation, fetched)
    names = ", ".join(citation.chunk_ids)
    if not chunks:
        return f"neither the document {citation.document_id!r} nor a chunk of it is in the index: {names}"
    texts = [chunk.text for chunk in chunks if quoted in chunk.text]
    if any(match is not None and match.verdict == "exact" for match in (find_quote(quoted, text) for text in texts)):
        return None
    if not texts and quoted in "".join(chunk.text for chunk in chunks):
        return None
    return f"{_excerpt(quoted)} is not in the text of {names}"


def _difference(quoted: str, span: Span, text: str) -> str | None:
    start, end = span.start, span.end
    found = text[start:end]
    if 0 <= start <= end and found == quoted:
        return None
    elsewhere = text.find(quoted) if quoted else -1
    if elsewhere >= 0:
        return (
            f"it is now at {elsewhere} to {elsewhere + len(quoted)} of the document, "
            f"and the citation has {start} to {end}"
        )
    if not 0 <= start < end <= len(text):
        return f"the document has {len(text)} characters, and the citation has {start} to {end}"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(quoted, found, strict=False)))
    return (
        f"from its character {same} on, the citation has {_excerpt(quoted[same:])} and the document "
        f"{_excerpt(found[same:])}"
    )


def _excerpt(text: str) -> str:
    return repr(shorten(text, _SHOWN))
