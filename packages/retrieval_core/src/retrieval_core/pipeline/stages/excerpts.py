"""The parts of a hit that are shown, where sentences of it are left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrieval_core.text.sentences import OMISSION
from retrieval_core.types import Quote, Span

if TYPE_CHECKING:
    from retrieval_core.types import Chunk, Hit


def shown_text(hit: Hit) -> str:
    """Return a hit's text as it is shown: all of it, or its excerpts with a mark between two."""
    if not hit.excerpts:
        return hit.chunk.text
    return OMISSION.join(hit.chunk.text[part.start : part.end] for part in hit.excerpts)


def quotes_of(chunk: Chunk, excerpts: tuple[Span, ...], span: Span | None) -> tuple[Quote, ...]:
    """Return what is shown of a chunk as quotes, in order.

    Args:
        chunk: What is quoted.
        excerpts: The parts of its text; all of it where there are none.
        span: Where its text stands in the document; ``None`` where that is not known.
    """
    if not excerpts:
        return (Quote(chunk.text, span),)
    return tuple(
        Quote(
            chunk.text[part.start : part.end],
            None if span is None else Span(span.start + part.start, span.start + part.end),
        )
        for part in excerpts
    )
