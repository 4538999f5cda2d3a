"""What an analysis finds in a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retrieval_core.types import Span


@dataclass(frozen=True, slots=True)
class Term:
    """A term and where it stands.

    Attributes:
        span: The characters of the analysed text that it was made from; terms of one word may overlap.
    """

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class OpenCompound:
    """Two neighbouring words that others may write as one.

    Attributes:
        parts: The terms of the words.
        joined: The term of both written as one.
        span: The characters of both in the analysed text.
    """

    parts: tuple[str, str]
    joined: str
    span: Span


@dataclass(frozen=True, slots=True)
class WordTerm:
    """A term of one word, with offsets into the word."""

    term: str
    start: int
    end: int
    is_stop_word: bool = False
    indexed_only: bool = False
