"""The hits as one text for a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from retrieval_core.filters import chunk_fields, lookup
from retrieval_core.stages.excerpts import shown_text
from retrieval_core.templates import DEFAULT_TEMPLATE, parse_template
from retrieval_core.types import format_citation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from retrieval_core.types import JSON, Hit

    _Piece: TypeAlias = tuple[str, str | None, Callable[[Hit, int], str] | None]
    """Text that stands as it is, the name of the field after it, and how it is written where that is not looked up."""

ABSENT = "N/A"


@dataclass(frozen=True, slots=True)
class FormattedContext:
    """The text, how many hits are in it, and whether the length limit cut something off."""

    text: str
    document_count: int
    truncated: bool


def format_context(
    hits: Sequence[Hit],
    *,
    template: str = DEFAULT_TEMPLATE,
    delimiter: str = "\n\n---\n\n",
    include_scores: bool = False,
    max_length: int | None = None,
) -> FormattedContext:
    """Write the hits as one text; of a hit with excerpts these alone, with ``[…]`` between two.

    Values are put in as they are and never read as a template themselves.

    Args:
        template: Text with fields in braces: ``rank`` (from 1), ``text``, ``citation``, ``score`` and everything that
            filters see of a chunk, with a dotted path for nested metadata. What a chunk lacks is written ``N/A``.
        delimiter: Stands between two hits.
        include_scores: Whether a line with the hit's score precedes it.
        max_length: In code points; the text is cut there. ``None`` for no limit.

    Raises:
        ConfigurationError: The template is not well formed.
    """
    pieces = _pieces_of(template)
    texts = [_format_hit(hit, rank, pieces, include_scores=include_scores) for rank, hit in enumerate(hits, start=1)]
    text = delimiter.join(texts)
    if max_length is None or len(text) <= max_length:
        return FormattedContext(text, len(texts), truncated=False)
    begun, position = 0, 0
    for piece in texts:
        begun += position < max_length
        position += len(piece) + len(delimiter)
    return FormattedContext(text[:max_length], begun, truncated=True)


@lru_cache(maxsize=64)
def _pieces_of(template: str) -> tuple[_Piece, ...]:
    return tuple((literal, name, _OWN_FIELDS.get(name or "")) for literal, name in parse_template(template))


def _format_hit(hit: Hit, rank: int, pieces: Sequence[_Piece], *, include_scores: bool) -> str:
    fields: Mapping[str, JSON] | None = None
    parts = [f"Score: {hit.score:.4f}\n"] if include_scores else []
    for literal, name, own in pieces:
        parts.append(literal)
        if own is not None:
            parts.append(own(hit, rank))
        elif name is not None:
            if fields is None:
                fields = chunk_fields(hit.chunk)
            parts.append(_as_text(lookup(fields, name)))
    return "".join(parts)


_OWN_FIELDS: dict[str, Callable[[Hit, int], str]] = {
    "rank": lambda _, rank: str(rank),
    "score": lambda hit, _: f"{hit.score:.4f}",
    "text": lambda hit, _: shown_text(hit),
    "citation": lambda hit, _: format_citation(hit.chunk),
}
"""What a template may name beside a chunk's fields; it wins over metadata of the same name."""


def _as_text(value: JSON) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_as_text(item) for item in value) or ABSENT
    if value is None:
        return ABSENT
    return str(value)
