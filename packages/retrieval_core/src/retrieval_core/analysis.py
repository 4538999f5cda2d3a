"""How text becomes the terms that lexical search compares.

The same analysis serves indexing, searching and highlighting, and covers all languages:

- Words are runs of letters and digits. Case, accents and compatibility forms (ligatures, full-width letters) are folded
  away. English endings are removed by Snowball's English stemmer, which leaves words of other scripts alone.
- An identifier counts as a whole and by its parts: ``user_id`` is ``user_id``, ``user`` and ``id``; ``IL6`` is ``il6``,
  ``il`` and ``6``; ``getName`` is ``getname``, ``get`` and ``name``. A compound with hyphens counts by its words and
  joined: ``e-mail`` is ``e``, ``mail`` and ``email``.
- Scripts written without spaces, and Hangul, become overlapping pairs of characters; single Han characters are kept
  too, so that a question of one character finds its words.
- Everything is indexed. A question drops English stop words, unless it has nothing else.

Measured against plain stemmed words, nDCG@10 of BM25: SciFact .699 (.686), financial questions .204 (.192), shopping
queries .710 (.705), Cranfield .359 (.362).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast
from unicodedata import category, combining, normalize

import Stemmer  # pyright: ignore[reportMissingImports] - an extension module without type information

from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENGLISH = (
    "a about above after again against ain all am an and any are aren as at be because been before being below "
    "between both but by can couldn did didn do does doesn doing don down during each few for from further had "
    "hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its "
    "itself just ll me mightn more most mustn my myself needn no nor not now of off on once only or other our "
    "ours ourselves out over own re s same shan she should shouldn so some such t than that the their theirs them "
    "themselves then there these they this those through to too under until up ve very was wasn we were weren "
    "what when where which while who whom why will with won wouldn you your yours yourself yourselves"
)
STOP_WORDS = frozenset(_ENGLISH.split())
"""English words that say nothing about the subject of a question (NLTK's list, but single letters name vitamins)."""

MOST_NEIGHBOURS = 128
"""Words of a question that are looked at for compounds, from its beginning."""
LONGEST_TERM = 255
"""A term is cut after this many characters."""
MOST_PARTS = 8
"""A word of more parts is a checksum or the like; its parts would find only each other."""
CACHED_WORDS = 100_000
"""How many words an analyser remembers the terms of, about 30 MB when full."""

_HYPHENS = "\\-\u2010\u2011"
_IGNORABLE = "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner: inside words, but no part of them
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = (
    _HAN + "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\uac00-\ud7a3\u1100-\u11ff"  # Hangul
)
_IS_HAN = re.compile(f"[{_HAN}]")
_UNHYPHENATED = re.compile(f"[^{_HYPHENS}]+")
_PARTS = re.compile(r"_+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)")


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
class _Piece:
    """A term of one word, with offsets into the word."""

    term: str
    start: int
    end: int
    is_stop_word: bool = False
    indexed_only: bool = False


@dataclass(frozen=True, slots=True)
class _Word:
    """What is remembered of a word: its terms for each purpose."""

    pieces: tuple[_Piece, ...]
    indexed: tuple[str, ...]
    searched: tuple[str, ...]
    content: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Patterns:
    word: re.Pattern[str]
    segment: re.Pattern[str]
    character: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Compile the patterns that need to know all combining marks, which :mod:`re` has no class for."""
    blocks = (*range(0x300, 0x1D00), *range(0x1DC0, 0x1E00), *range(0x3099, 0x309B), *range(0xA800, 0xAC00))
    marks = "".join(map(chr, (point for point in blocks if category(chr(point)) in {"Mn", "Mc"}))) + _IGNORABLE
    inside = rf"[\w{marks}]"
    return _Patterns(
        word=re.compile(rf"\w{inside}*(?:[{_HYPHENS}]\w{inside}*)*"),
        segment=re.compile(rf"(?P<unspaced>[{_UNSPACED}][{_UNSPACED}{marks}]*)|[^{_UNSPACED}]+"),
        character=re.compile(f".[{marks}]*", re.DOTALL),
    )


def fold(text: str) -> str:
    """Return a word without case, accents and compatibility forms.

    Marks that make another letter rather than an accent stay: vowel signs, Thai tones, the voicing of kana.
    """
    if text.isascii():
        return text.lower()
    letters = (character for character in normalize("NFKD", text) if not _is_accent(character))
    return normalize("NFC", "".join(letters).casefold())


def _is_accent(character: str) -> bool:
    # Classes 10 to 36 are the points of Hebrew, Arabic and Syriac, 1 and 200 upwards the accents of European scripts.
    kind = combining(character)
    return kind >= 200 or 10 <= kind <= 36 or kind == 1 or character in _IGNORABLE


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - PyStemmer's name


class Analyzer:
    """Turns text into terms. One instance may serve several threads."""

    id = "unicode-snowball-english-1"
    """Names the rules; it changes whenever the same text would give other terms."""

    def __init__(self) -> None:
        self._stemmer = cast("_Stemmer", Stemmer.Stemmer("english", 0))  # pyright: ignore[reportUnknownMemberType]
        self._lock = Lock()  # a stemmer keeps state while it works
        self._words: dict[str, _Word] = {}

    def terms(self, text: str) -> list[str]:
        """Return the terms to index a text by, in the order of the text, repeated as often as they occur."""
        return [term for word in self._split(text) for term in word.indexed]

    def query_terms(self, text: str) -> list[str]:
        """Return the terms to search for, repeated as often as they occur: without stop words if there are others."""
        words = self._split(text)
        content = [term for word in words for term in word.content]
        return content or [term for word in words for term in word.searched]

    def open_compounds(self, text: str) -> Iterator[OpenCompound]:
        """Yield each two words of letters with nothing but white space between, ``log in`` too but not ``in log``."""
        words = islice(_patterns().word.finditer(text), MOST_NEIGHBOURS)
        for first, second in pairwise(words):
            if not text[first.end() : second.start()].isspace():
                continue
            parts = self._plain(first.group()), self._plain(second.group())
            joined = self._plain(first.group() + second.group())
            if parts[0] and parts[1] and joined and not parts[0].is_stop_word:
                yield OpenCompound((parts[0].term, parts[1].term), joined.term, Span(first.start(), second.end()))

    def _plain(self, word: str) -> _Piece | None:
        """Return the one term of a word of at least two letters, if it is such a word."""
        if len(word) < 2 or not word.isalpha():
            return None
        pieces = self._word(word.lower()).pieces
        return pieces[0] if len(pieces) == 1 else None

    def spans(self, text: str) -> Iterator[Term]:
        """Yield the terms that a text is indexed by, with the characters that each was made from."""
        for match in _patterns().word.finditer(text):
            offset = match.start()
            for piece in self._word(match.group()).pieces:
                yield Term(piece.term, Span(offset + piece.start, offset + piece.end))

    def highlight_spans(self, query: str, text: str) -> tuple[Span, ...]:
        """Return where a text holds what a question asks for, in order, without overlaps."""
        wanted = {*self.query_terms(query), *(compound.joined for compound in self.open_compounds(query))}
        found = sorted((term.span.start, term.span.end) for term in self.spans(text) if term.text in wanted)
        merged: list[Span] = []
        for start, end in found:
            if merged and start <= merged[-1].end:
                merged[-1] = Span(merged[-1].start, max(end, merged[-1].end))
            else:
                merged.append(Span(start, end))
        return tuple(merged)

    def _split(self, text: str) -> list[_Word]:
        return list(map(self._word, _patterns().word.findall(text)))

    def _word(self, word: str) -> _Word:
        known = self._words.get(word)
        if known is None:
            known = self._analyze(word)
            if len(self._words) >= CACHED_WORDS:
                self._words.clear()
            if len(word) <= LONGEST_TERM:
                self._words[word] = known
        return known

    def _analyze(self, word: str) -> _Word:
        pieces = tuple(self._pieces(word))
        searched = [piece for piece in pieces if not piece.indexed_only]
        return _Word(
            pieces,
            indexed=tuple(piece.term for piece in pieces),
            searched=tuple(piece.term for piece in searched),
            content=tuple(piece.term for piece in searched if not piece.is_stop_word),
        )

    def _pieces(self, word: str) -> Iterator[_Piece]:
        if word.isascii() and word.isalpha() and (word.islower() or word.istitle()):  # most words: one term, no parts
            yield from self._terms(word, 0, len(word))
            return
        count = 0
        for match in _UNHYPHENATED.finditer(word):
            count += 1
            for segment in _patterns().segment.finditer(match.group()):
                offset = match.start() + segment.start()
                if segment["unspaced"]:
                    yield from _pairs(segment.group(), offset)
                else:
                    yield from self._identifier(segment.group(), offset)
        if 1 < count <= MOST_PARTS:
            yield from self._terms("".join(_UNHYPHENATED.findall(word)), 0, len(word))

    def _identifier(self, text: str, offset: int) -> Iterator[_Piece]:
        """Yield an unbroken word, and its parts if it has several."""
        borders = [0, *(border for match in _PARTS.finditer(text) for border in match.span()), len(text)]
        parts = [(start, end) for start, end in zip(borders[::2], borders[1::2], strict=True) if start < end]
        if not parts:
            return
        start, end = parts[0][0], parts[-1][1]
        yield from self._terms(text[start:end], offset + start, offset + end)
        if 1 < len(parts) <= MOST_PARTS:
            for start, end in parts:
                yield from self._terms(text[start:end], offset + start, offset + end)

    def _terms(self, text: str, start: int, end: int) -> Iterator[_Piece]:
        """Yield the term of a word; folding may break it up, as it does with ``½``."""
        folded = fold(text)
        for word in (folded,) if folded.isalnum() else _patterns().word.findall(folded):
            with self._lock:
                stem = self._stemmer.stemWord(word[:LONGEST_TERM])
            yield _Piece(stem, start, end, word in STOP_WORDS)


def _pairs(text: str, offset: int) -> Iterator[_Piece]:
    """Yield overlapping pairs of characters, and single Han characters for questions that consist of one."""
    characters = [match.span() for match in _patterns().character.finditer(text)]
    alone = len(characters) == 1
    for start, end in characters:
        if alone or _IS_HAN.match(text, start):
            yield _Piece(fold(text[start:end]), offset + start, offset + end, indexed_only=not alone)
    for (start, _), (_, end) in pairwise(characters):
        yield _Piece(fold(text[start:end]), offset + start, offset + end)


def highlight_spans(query: str, text: str) -> tuple[Span, ...]:
    """Return where a text holds what a question asks for, by the default analysis: :meth:`Analyzer.highlight_spans`."""
    return _default().highlight_spans(query, text)


@cache
def _default() -> Analyzer:
    return Analyzer()
