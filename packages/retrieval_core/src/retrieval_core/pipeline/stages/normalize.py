"""From what was asked to what is searched for."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from retrieval_core.errors import MissingExtraError, QueryValidationError
from retrieval_core.types import Query

if TYPE_CHECKING:
    from retrieval_core.config import QueryConfig


def normalize(query: str, settings: QueryConfig) -> Query:
    """Bring a question into its one normal form.

    Unicode is composed (NFC), every run of white space becomes one space, and the ends are stripped. What is longer
    than the configured ``max_length`` is then cut to exactly that many code points, or before the grapheme (what people
    see as one character) that would be torn.

    Args:
        query: As it was asked.
        settings: The longest question in code points, where to cut it, and whether to compose Unicode.

    Raises:
        QueryValidationError: The query is no string, or nothing but white space.
        MissingExtraError: Cutting at graphemes needs the extra ``graphemes``.
    """
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the query must be text, got {type(query).__name__}"
        raise QueryValidationError(msg)
    text = " ".join((unicodedata.normalize("NFC", query) if settings.normalize_unicode else query).split())
    if not text:
        msg = "the query is empty; ask for something"
        raise QueryValidationError(msg, query)
    if len(text) <= settings.max_length:
        return Query(original=query, text=text)
    end = settings.max_length
    if settings.truncate_at == "grapheme":
        end = _start_of_grapheme(text, end) or end
    return Query(original=query, text=text[:end], truncated=True)


def _start_of_grapheme(text: str, position: int) -> int:
    """Return where the grapheme begins that a position lies in; the position itself where one begins there."""
    try:
        import regex  # noqa: PLC0415 - an extra, for this alone
    except ImportError as error:
        raise MissingExtraError("graphemes", "cutting questions at graphemes") from error
    for grapheme in regex.finditer(r"\X", text):
        if grapheme.end() > position:
            return grapheme.start()
    return position
