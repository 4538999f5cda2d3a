"""Checking a citation against the index: its quotes are there, word for word, or what exactly is different."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from retrieval_core.ports import FetchRequest
from retrieval_core.prompting import shorten
from retrieval_core.types import CitationCheck, content_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from retrieval_core.filters import Filter
    from retrieval_core.ports import Fetched
    from retrieval_core.types import Citation, Span

_SHOWN = 60


def request_to_check(citations: Sequence[Citation], condition: Filter | None = None) -> FetchRequest:
    """Return the one request that reads what citations have to be compared with."""
    documents = dict.fromkeys(citation.document_id for citation in citations)
    chunks = (name for item in citations if any(quote.span is None for quote in item.quotes) for name in item.chunk_ids)
    return FetchRequest(chunk_ids=tuple(dict.fromkeys(chunks)), document_ids=tuple(documents), filter=condition)


def check_citation(citation: Citation, fetched: Fetched) -> CitationCheck:
    """Compare a citation with what is in the index now.

    A quote with a span must stand there in the document's text; one without must be in the text of one of its chunks.
    """
    return CitationCheck(citation, tuple(_differences(citation, fetched)))


def _differences(citation: Citation, fetched: Fetched) -> Iterator[str]:
    if not citation.quotes:
        yield "the citation quotes nothing"
    document = fetched.documents.get(citation.document_id)
    for number, quote in enumerate(citation.quotes, start=1):
        if content_hash(quote.text) != quote.content_hash:
            yield f"quote {number} was changed: its text does not have the hash that the citation gives"
        if quote.span is None:
            chunks = [fetched.chunks[name] for name in citation.chunk_ids if name in fetched.chunks]
            if not chunks:
                yield f"quote {number}: none of its chunks is in the index: {', '.join(citation.chunk_ids)}"
            elif not any(quote.text in chunk.text for chunk in chunks):
                yield f"quote {number}: {_excerpt(quote.text)} is not in the text of {', '.join(citation.chunk_ids)}"
        elif document is None:
            yield f"quote {number}: the document {citation.document_id!r} is not in the index"
        elif (difference := _difference(quote.text, quote.span, document.text)) is not None:
            yield f"quote {number}: {difference}"


def _difference(quoted: str, span: Span, text: str) -> str | None:
    start, end = span.start, span.end
    found = text[start:end]
    if 0 <= start <= end and found == quoted:
        return None
    elsewhere = text.find(quoted) if quoted else -1
    if elsewhere >= 0:
        return (
            f"it stands at {elsewhere} to {elsewhere + len(quoted)} of the document now, "
            f"and the citation says {start} to {end}"
        )
    if not 0 <= start < end <= len(text):
        return f"the document has {len(text)} characters, and the citation says {start} to {end}"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(quoted, found, strict=False)))
    return (
        f"from its character {same} on, the citation has {_excerpt(quoted[same:])} and the document "
        f"{_excerpt(found[same:])}"
    )


def _excerpt(text: str) -> str:
    return repr(shorten(text, _SHOWN))
