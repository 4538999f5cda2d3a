"""Packs of passages that quote documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.types import Citation, ContextPack, ContextPassage, Quote, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def quoting(documents: Mapping[str, str], *passages: tuple[str, Sequence[Span | str]], query: str = "") -> ContextPack:
    """Return a pack with a passage for each document's name and stretches of it; a text is quoted without a place."""
    made: list[ContextPassage] = []
    for number, (name, stretches) in enumerate(passages, start=1):
        quotes = tuple(
            Quote(stretch) if isinstance(stretch, str) else Quote(documents[name][stretch.start : stretch.end], stretch)
            for stretch in stretches
        )
        text = "\n[…]\n".join(quote.text for quote in quotes)
        citation = Citation(number, name, (f"{name}#{number}",), quotes)
        made.append(ContextPassage(f"{name}#{number}", "primary", text, citation, (), f"{name}#{number}", len(text)))
    return ContextPack(query, tuple(made), "", (), 0, 1000)


def whole(*texts: str) -> ContextPack:
    """Return a pack of documents, each quoted as a whole."""
    documents = {f"d{number}": text for number, text in enumerate(texts, start=1)}
    return quoting(documents, *((name, [Span(0, len(text))]) for name, text in documents.items()))
