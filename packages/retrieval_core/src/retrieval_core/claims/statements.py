"""A text taken apart into what can be compared: words with their ends, figures, names, and what is denied."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retrieval_core.analysis import STOP_WORDS
from retrieval_core.claims.figures import Figure, figures_in
from retrieval_core.claims.words import AFTER_NOT, NEGATORS, opposites, stem

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCOPE = 5
"""Words behind a negator that it denies, at most."""

_TOKEN = re.compile(
    r"--?[A-Za-z][\w-]{0,60}(?<![-_])|[^\W_](?:[\w'\u2019]|[.:/@-](?=\w)){0,80}|[./~]?/[\w./-]{1,80}|"
    r"(?P<mark>[,;:.!?()|\u2013\u2014])"
)
_COMMAND = re.compile(r"`([^`\n]{1,200} [^`\n]{1,200})`")
_FENCED = re.compile(r"^[^\S\n]{0,8}```[^\n`]{0,40}\n([^`]{1,4000})```", re.MULTILINE)
_CODE = re.compile(r"[a-z][A-Z]|[A-Z]{2}|_|\w[./:@]\w|^-|^[./~]?/|[^\W\d_]-?\d|\d-?[^\W\d_]")
_QUIET = (STOP_WORDS - NEGATORS - {"before", "after", "above", "below", "under", "over", "more", "most", "won"}) | {
    "may", "also", "still", "yet", "according", "would", "could", "shall", "might", "must", "there", "within", "around",
    "about", "per", "them", "else", "get", "gets", "got", "us", "upon", "already", "even", "i.e", "e.g",
    "etc", "ever", "always", "usually",
}  # fmt: skip
_ENDS_SCOPE = frozenset({"because", "since", "when", "if", "while", "although", "until", "than", "as", "but"})
_ABBREVIATIONS = frozenset({"i.e", "e.g", "a.m", "p.m", "u.s"})
_SWITCHES = frozenset({"switch", "turn", "power", "be", "is"})
_NO_NAMES = frozenset(
    {
        "I",
        "A",
        "The",
        "An",
        "In",
        "It",
        "He",
        "She",
        "They",
        "We",
        "You",
        "This",
        "That",
        "There",
        "Every",
        "Each",
        "All",
    }
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text.

    Attributes:
        concept: Its stem; of words that have an opposite, the name of both.
        side: 1, or -1 where it is denied or the other one of two opposites; 1 again where both.
        typed: As it is written.
        start: Where it begins.
        is_name: Whether it is written as a name or as code.
        is_quiet: Whether it says nothing by itself.
        base: Its stem; of code, itself in lower case.
        is_denied: Whether a negator stands before it.
        head: The concept that this negator denies first.
    """

    concept: str
    side: int
    typed: str
    start: int
    is_name: bool = False
    is_quiet: bool = False
    base: str = ""
    is_denied: bool = False
    head: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A text, taken apart.

    Attributes:
        words: In order; without those that are part of a figure.
        figures: In order.
        names: Neighbouring words that are names, each as one text.
        sides: Which sides of a concept the text takes.
        denies: The concepts that a negator stands before.
        code: What stands between backticks and has several words, with one space between these.
        forms: What a word of another text can be found by: stems, concepts, and words as they are typed.
    """

    text: str
    words: tuple[Word, ...]
    figures: tuple[Figure, ...]
    names: tuple[str, ...]
    sides: dict[str, set[int]] = field(hash=False)
    denies: frozenset[str] = frozenset()
    code: tuple[str, ...] = ()
    forms: frozenset[str] = frozenset()

    @property
    def content(self) -> tuple[Word, ...]:
        """The words that say something."""
        return tuple(word for word in self.words if not word.is_quiet)


def statement_of(text: str) -> Statement:
    """Take a text apart, in time linear in its length."""
    figures = figures_in(text)
    reading = _Reading(text, figures)
    for match in _TOKEN.finditer(text):
        reading.take(match)
    sides: dict[str, set[int]] = {}
    for word in reading.words:
        if not word.is_quiet:
            sides.setdefault(word.concept, set()).add(word.side)
    return Statement(
        text,
        tuple(reading.words),
        figures,
        tuple(" ".join(word.typed for word in name) for name in reading.names),
        sides,
        frozenset(word.concept for word in reading.words if word.is_denied),
        tuple(_commands(text)),
        frozenset(form for word in reading.words for form in (word.concept, word.base, word.typed.lower())),
    )


def _commands(text: str) -> Iterator[str]:
    """Yield what stands between backticks and in the lines of fenced blocks, and has several words."""
    for match in _COMMAND.finditer(text):
        yield " ".join(match[1].split())
    for match in _FENCED.finditer(text):
        for line in match[1].splitlines():
            if len(words := line.split()) > 1:
                yield " ".join(words)


class _Reading:
    """Takes the words and marks of a text one after the other."""

    def __init__(self, text: str, figures: tuple[Figure, ...]) -> None:
        self.words: list[Word] = []
        self.names: list[list[Word]] = []
        self._text = text
        self._figures = bytearray(len(text) + 1)
        for figure in figures:
            length = figure.span.end - figure.span.start
            self._figures[figure.span.start : figure.span.end] = b"\x01" * length
        self._begins = True  # a sentence, so that a capital letter tells nothing
        self._denied = 0  # words that a negator still denies
        self._behind_negator = False
        self._head = ""  # the first word that the negator denies
        self._name_end = -2

    def take(self, match: re.Match[str]) -> None:
        if match["mark"]:
            self._begins = match["mark"] in ".!?:|"
            self._denied = 0
            return
        typed = match[0].replace("\u2019", "'").removesuffix("'s").rstrip("'")
        lower = typed.lower()
        if self._figures[match.start()]:
            self._begins = False
        elif lower in NEGATORS or lower.endswith("n't"):
            self._denied, self._behind_negator, self._begins = _SCOPE, True, False
            self._head = ""
        elif not self._is_bound(lower):
            if lower in _ENDS_SCOPE:
                self._denied = 0
            self._add(typed, lower, match)
            self._begins = False

    def _is_bound(self, lower: str) -> bool:
        """Whether a word belongs to the negator before it: not only, no more than, no longer."""
        behind, self._behind_negator = self._behind_negator, False
        if behind and lower in AFTER_NOT:
            self._denied = 0
            return lower not in {"only", "just", "merely"}
        return behind and lower == "longer"

    def _add(self, typed: str, lower: str, match: re.Match[str]) -> None:
        is_code = _CODE.search(typed) is not None and lower not in _ABBREVIATIONS
        is_name = is_code or self._is_name(typed, lower, match.end())
        base = stem(lower)
        concept, side = (lower if is_code else base, 1) if is_name else opposites().get(base, (base, 1))
        quiet = lower in _QUIET and not is_name
        if lower in {"on", "off"}:
            quiet = not any(near.base in _SWITCHES for near in self.words[-3:])
        denied = self._denied > 0 and not quiet
        self._denied -= denied
        if denied and not self._head:
            self._head = concept
        word = Word(
            concept,
            -side if denied else side,
            typed,
            match.start(),
            is_name,
            quiet,
            base,
            denied,
            self._head if denied else "",
        )
        self.words.append(word)
        if not is_name:
            return
        if self.names and self._name_end + 1 == match.start() and not is_code:
            self.names[-1].append(word)
        else:
            self.names.append([word])
        self._name_end = match.end()

    def _is_name(self, typed: str, lower: str, end: int) -> bool:
        if not typed[0].isupper() or typed in _NO_NAMES or lower in STOP_WORDS:
            return False
        following = self._text[end : end + 2]
        return not self._begins or (following[:1] == " " and following[1:].isupper())
