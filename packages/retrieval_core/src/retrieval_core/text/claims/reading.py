"""A sentence as the words that say something, in order: each with its kind, and whether it is denied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from retrieval_core.text.analysis import STOP_WORDS
from retrieval_core.text.claims.figures import Figure, figures_in
from retrieval_core.text.claims.words import (
    CONDITIONS,
    DAYS,
    LIMITS,
    MODALS,
    MONTHS,
    NEGATORS,
    PERIODS,
    PRONOUNS,
    Word,
    words_in,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = Literal["word", "limit", "modal", "pronoun", "name", "figure", "date", "period"]
_JOINING = frozenset({"and", "but", "as", "because", "since", "whereas", "although"})
_ARTICLES = frozenset({"a", "an", "the", "of", "each", "its", "their", "his", "her", "in"})
COMMA, JOINED, APART = 1, 2, 3
"""What stands before a word: a comma; a conjunction; a conjunction behind a comma, a semicolon or the like."""
_ENGLISH = STOP_WORDS - {"a", "am", "an", "do", "he", "i", "in", "is", "me", "no", "on", "so", "was"}
"""Words of English alone, mostly."""


@dataclass(frozen=True, slots=True)
class Token:
    """A content word.

    Attributes:
        form: The form for comparisons.
        typed: The form in the text.
        is_denied: Whether a negator precedes it.
        is_condition: Whether it makes what follows conditional, or is all that a negator behind a conjunction denies.
        is_attribute: Whether it is a plain word behind an article or the like, and so may describe the next one.
        border: The border before it, from 0 (nothing) to 3 (another clause).
        end: Position of its end.
    """

    kind: Kind
    form: str
    typed: str
    start: int
    end: int
    border: int = 0
    is_denied: bool = False
    is_condition: bool = False
    is_attribute: bool = False
    figure: Figure | None = None


class Reading(NamedTuple):
    """A sentence, read.

    Attributes:
        tokens: Its words that say something.
        by_pronoun: Whether it begins with a pronoun.
        is_english: Whether it has words of English that say nothing; elsewhere nothing may be left out.
    """

    tokens: tuple[Token, ...]
    by_pronoun: bool
    is_english: bool


def read(text: str) -> Reading:
    """Read a sentence."""
    words = tuple(words_in(text))
    lower = [word.typed.lower() for word in words if not word.is_mark]
    tokens = tuple(_tokens(text, words, figures_in(text)))
    return Reading(tokens, bool(lower) and lower[0] in PRONOUNS, not _ENGLISH.isdisjoint(lower))


class _Reader:
    """Turns words and figures, in order, into tokens."""

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self._border = 0
        self._negator = ""  # that still denies something
        self._before = ""  # the word before
        self._joined = False  # whether the word before is a conjunction or a comma
        self._is_bare = False  # whether the negator stands behind one, as in "but not on Sundays"

    def take_figure(self, figure: Figure, text: str) -> None:
        typed = text[figure.span.start : figure.span.end].strip()
        self._add(Token("figure", figure.value, typed, figure.span.start, figure.span.end, figure=figure))

    def take_word(self, word: Word) -> None:
        lower = word.typed.lower()
        joined, self._joined = self._joined, False
        if word.is_mark:
            if word.form in ",;:()|\u2013\u2014":
                self._end_clause()
                self._border = max(self._border, APART if word.form in ";:|" else COMMA)
                self._joined = word.form == ","
        elif lower == "but" and self._before == "nothing":  # only
            self._negator = ""
            self._add(replace(_token(next(words_in("only")), "only"), typed=word.typed, start=word.start, end=word.end))
        elif lower in _JOINING:
            self._end_clause()
            self._border = APART if self._border else max(self._border, JOINED)
            self._joined = True
        elif lower in NEGATORS or lower.endswith("n't"):
            stem = "can" if lower == "can't" else lower.removesuffix("n't").removesuffix("not")
            if modal := MODALS.get(stem):
                self._add(Token("modal", modal, word.typed, word.start, word.end))
            self._negator, self._is_bare = word.typed, joined
        elif lower in PRONOUNS or not word.is_quiet:
            token = _token(word, lower)
            self._add(replace(token, is_attribute=token.kind == "word" and self._before in _ARTICLES))
        self._before = lower

    def _add(self, token: Token) -> None:
        token = replace(token, border=self._border)
        self._border = 0
        if self._negator and token.kind not in {"modal", "pronoun"}:
            token = replace(token, is_denied=True, is_condition=token.is_condition or self._is_bare)
            self._negator = ""
        self.tokens.append(token)

    def _end_clause(self) -> None:
        if self._negator and self.tokens:  # visitors do not, ...
            self.tokens[-1] = replace(self.tokens[-1], is_denied=True)
        self._negator = ""


def _token(word: Word, lower: str) -> Token:
    kind: Kind = "name" if word.is_name else "word"
    form = word.form
    is_month = lower in MONTHS and word.typed[0].isupper() and (lower != "may" or word.is_name)
    if lower in PRONOUNS:
        kind = "pronoun"
    elif lower in DAYS or is_month:
        kind = "date"
    elif (period := PERIODS.get(lower.rstrip("'")) or PERIODS.get(lower.rstrip("'s"))) and not word.is_name:
        kind, form = "period", period
    elif lower in MODALS:
        kind, form = "modal", MODALS[lower]
    elif lower in LIMITS and not word.is_name:
        kind = "limit"
    return Token(kind, form, word.typed, word.start, word.end, is_condition=kind == "limit" and lower in CONDITIONS)


def _tokens(text: str, words: Sequence[Word], figures: Sequence[Figure]) -> list[Token]:
    """Return the words of a text that say something; the negators among them deny the next one."""
    reader = _Reader()
    left = list(reversed(figures))
    for word in words:
        while left and left[-1].span.end <= word.start:
            reader.take_figure(left.pop(), text)
        if not left or word.end <= left[-1].span.start:
            reader.take_word(word)
    for figure in reversed(left):
        reader.take_figure(figure, text)
    reader.take_word(Word(",", ",", len(text), len(text), is_mark=True))
    return reader.tokens
