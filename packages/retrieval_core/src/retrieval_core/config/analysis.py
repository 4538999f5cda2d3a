"""Settings of how text becomes the terms that are searched for."""

from __future__ import annotations

from pydantic import Field, field_validator

from retrieval_core.config.backends import Settings


class AnalysisConfig(Settings):
    """How text becomes terms. An index keeps what it was made with, and is opened with the same."""

    language: str = Field(default="english", pattern=r"^[a-z_]{1,32}$")
    """Whose stemmer removes endings: a language of Snowball, such as ``german``; ``porter`` for English by Porter's
    original rules; ``none`` for whole words."""
    stop_words: tuple[str, ...] | None = None
    """What questions drop, unless they have nothing else; those of the language where not set, ``[]`` for none."""
    word_ngrams: int = Field(default=1, ge=1, le=4)
    """Up to so many neighbouring words are one term, too."""
    character_ngrams: int = Field(default=0, ge=0, le=8)
    """The length, from 2, of the parts of words that are terms, too; 0 for none."""

    @field_validator("character_ngrams")
    @classmethod
    def _parts_are_shorter_than_words(cls, value: int) -> int:
        if value == 1:
            msg = "parts of one character are in every text; use 0 for none, or 2 to 8"
            raise ValueError(msg)
        return value
