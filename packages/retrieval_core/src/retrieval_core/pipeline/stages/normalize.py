"""From what was asked to what is searched for."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from retrieval_core.errors import QueryValidationError
from retrieval_core.types import Query

if TYPE_CHECKING:
    from retrieval_core.config import QueryConfig


def normalize(query: str, settings: QueryConfig) -> Query:
    """Bring a question into its one normal form.

    Unicode is composed (NFC), every run of white space becomes one space, and the ends are stripped. What is longer
    than the configured ``max_length`` is then cut to exactly that many code points.

    Args:
        query: As it was asked.
        settings: The longest question in code points, and whether to compose Unicode.

    Raises:
        QueryValidationError: The query is no string, or nothing but white space.
    """
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the query must be text, got {type(query).__name__}"
        raise QueryValidationError(msg)
    text = " ".join((unicodedata.normalize("NFC", query) if settings.normalize_unicode else query).split())
    if not text:
        msg = "the query is empty; ask for something"
        raise QueryValidationError(msg, query)
    return Query(original=query, text=text[: settings.max_length], truncated=len(text) > settings.max_length)
