"""From text to terms, and back to where they stand."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Protocol, cast

import Stemmer  # pyright: ignore[reportMissingImports] - an extension module without type information

from retrieval_core.errors import InvalidParameterError
from retrieval_core.text.analysis.identity import id_of
from retrieval_core.text.analysis.stop_words import folded_words, stop_words_of
from retrieval_core.text.analysis.words import (
    IS_HAN,
    PARTS,
    UNHYPHENATED,
    fold,
    lowered,
    patterns,
    words_of,
)
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

NO_STEMMING = "none"
"""The language of texts whose words are taken as they are."""
MOST_WORDS = 4
"""The longest run of neighbouring words that can be one term."""
MOST_NEIGHBOURS = 128
"""Words of a question that are looked at for compounds, from its beginning."""
LONGEST_TERM = 255
"""A term is cut after this many characters."""
MOST_PARTS = 8
"""A word of more parts is a checksum or the like; its parts would find only each other."""
CACHED_WORDS = 100_000
"""How many words an analyser remembers the terms of, about 30 MB when full."""


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
    """

    parts: tuple[str, str]
    joined: str


@dataclass(frozen=True, slots=True)
class WordTerm:
    """A term of one word, with offsets into the word."""

    term: str
    start: int
    end: int
    is_stop_word: bool = False
    indexed_only: bool = False


@dataclass(frozen=True, slots=True)
class _Word:
    """What is remembered of a word: its terms for each purpose."""

    pieces: tuple[WordTerm, ...]
    indexed: tuple[str, ...]
    searched: tuple[str, ...]
    content: tuple[str, ...]


_INDEXED: Callable[[_Word], tuple[str, ...]] = attrgetter("indexed")


class _Words(dict[str, _Word]):
    """What is known of words; of one that is not known yet, it is found out."""

    def __init__(self, analyze: Callable[[str], _Word]) -> None:
        self._analyze = analyze

    def __missing__(self, word: str) -> _Word:
        known = self._analyze(word)
        if len(self) >= CACHED_WORDS:
            self.clear()
        if len(word) <= LONGEST_TERM:
            self[word] = known
        return known


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - PyStemmer's name


class Analyzer:
    """Turns text into terms. One instance may serve several threads.

    Args:
        language: Language of the stemmer that removes endings: one of PyStemmer's, such as ``"german"``, ``"porter"``
            for Porter's original one for English, or ``"none"``.
        stop_words: Words that queries drop, unless they contain no others; case and accents do not matter. ``None``
            means those of the language: built in for English, from the extra ``languages`` for :data:`LISTED`, and
            none for others.
        word_ngrams: Up to so many neighbouring words, with only white space between, are one term too; 1 to 4.

    Raises:
        InvalidParameterError: The language is unknown, or a number out of its range.
        MissingExtraError: The extra with the language's stop words is not installed.
    """

    def __init__(
        self,
        language: str = "english",
        *,
        stop_words: Collection[str] | None = None,
        word_ngrams: int = 1,
    ) -> None:
        _check_settings(language, stop_words, word_ngrams)
        own = None if stop_words is None else folded_words(stop_words)
        self._id = id_of(language, own, word_ngrams, _stemmer_version())
        self._stop_words = stop_words_of(language) if own is None else own
        self._most_words = word_ngrams
        self._stemmer = None if language == NO_STEMMING else _stemmer(language)
        self._sees_accents = language not in {"english", "porter", NO_STEMMING}
        self._lock = Lock()  # a stemmer keeps state while it works
        self._words = _Words(self._analyze)

    @property
    def id(self) -> str:
        """Names the rules; it changes whenever the same text would give other terms."""
        return self._id

    def terms(self, text: str) -> list[str]:
        """Return the terms to index a text by, in the order of the text, repeated as often as they occur.

        Terms of several words come last.
        """
        terms = [*chain.from_iterable(map(_INDEXED, self._split(text)))]
        if self._most_words > 1:
            terms += [run.text for run, _ in self._runs(text)]
        return terms

    def query_terms(self, text: str) -> list[str]:
        """Return the terms to search for, repeated as often as they occur: without stop words if there are others.

        Words come first, then terms of several words, which neither begin nor end with a stop word.
        """
        words = self._split(text)
        terms = [term for word in words for term in word.content]
        everything = not terms
        if everything:
            terms = [term for word in words for term in word.searched]
        if self._most_words > 1:
            terms += [run.text for run, is_content in self._runs(text) if everything or is_content]
        return terms

    def open_compounds(self, text: str) -> Iterator[OpenCompound]:
        """Yield each two words of letters with nothing but white space between, ``log in`` too but not ``in log``."""
        words = islice(patterns().word.finditer(text), MOST_NEIGHBOURS)
        for first, second in pairwise(words):
            if not text[first.end() : second.start()].isspace():
                continue
            parts = self._plain(first.group()), self._plain(second.group())
            joined = self._plain(first.group() + second.group())
            if parts[0] and parts[1] and joined and not parts[0].is_stop_word:
                yield OpenCompound((parts[0].term, parts[1].term), joined.term)

    def _plain(self, word: str) -> WordTerm | None:
        """Return the one term of a word of at least two letters, if it is such a word."""
        if len(word) < 2 or not word.isalpha():
            return None
        pieces = self._words[word.lower()].pieces
        return pieces[0] if len(pieces) == 1 else None

    def spans(self, text: str) -> Iterator[Term]:
        """Yield the terms that a text is indexed by, with the characters that each was made from."""
        for match in patterns().word.finditer(text):
            offset = match.start()
            for piece in self._words[match.group()].pieces:
                yield Term(piece.term, Span(offset + piece.start, offset + piece.end))
        if self._most_words > 1:
            yield from (run for run, _ in self._runs(text))

    def highlight_spans(self, query: str, text: str) -> tuple[Span, ...]:
        """Return where a text holds what a question asks for, in order, without overlaps."""
        wanted = {*self.query_terms(query), *(compound.joined for compound in self.open_compounds(query))}
        found = [term.span for term in self.spans(text) if term.text in wanted]
        merged: list[Span] = []
        for span in sorted(found, key=lambda span: (span.start, span.end)):
            if merged and span.start <= merged[-1].end:
                merged[-1] = Span(merged[-1].start, max(span.end, merged[-1].end))
            else:
                merged.append(span)
        return tuple(merged)

    def _runs(self, text: str) -> Iterator[tuple[Term, bool]]:
        """Yield neighbouring words of one term each as one term, and whether no stop word begins or ends it."""
        run: deque[tuple[WordTerm, int]] = deque(maxlen=self._most_words)
        end = 0
        for match in patterns().word.finditer(text):
            whole = [
                piece for piece in self._words[match.group()].pieces if len(match.group()) == piece.end - piece.start
            ]
            if len(whole) != 1 or not text[end : match.start()].isspace():
                run.clear()
            if len(whole) == 1:
                run.append((whole[0], match.start()))
            end = match.end()
            for count in range(2, len(run) + 1):
                words = list(run)[-count:]
                name = "_".join(piece.term for piece, _ in words)
                is_content = not words[0][0].is_stop_word and not words[-1][0].is_stop_word
                yield Term(name, Span(words[0][1], end)), is_content

    def _split(self, text: str) -> list[_Word]:
        return list(map(self._words.__getitem__, words_of(text)))

    def _analyze(self, word: str) -> _Word:
        pieces = tuple(self._pieces(word))
        searched = [piece for piece in pieces if not piece.indexed_only]
        return _Word(
            pieces,
            indexed=tuple(piece.term for piece in pieces),
            searched=tuple(piece.term for piece in searched),
            content=tuple(piece.term for piece in searched if not piece.is_stop_word),
        )

    def _pieces(self, word: str) -> Iterator[WordTerm]:
        if word.isascii() and word.isalpha() and (word.islower() or word.istitle()):  # most words: one term, no parts
            yield from self._terms(word, 0, len(word))
            return
        count = 0
        for match in UNHYPHENATED.finditer(word):
            count += 1
            for segment in patterns().segment.finditer(match.group()):
                offset = match.start() + segment.start()
                if segment["unspaced"]:
                    yield from _pairs(segment.group(), offset)
                else:
                    yield from self._identifier(segment.group(), offset)
        if 1 < count <= MOST_PARTS:
            yield from self._terms("".join(UNHYPHENATED.findall(word)), 0, len(word))

    def _identifier(self, text: str, offset: int) -> Iterator[WordTerm]:
        """Yield an unbroken word, and its parts if it has several."""
        borders = [0, *(border for match in PARTS.finditer(text) for border in match.span()), len(text)]
        parts = [(start, end) for start, end in zip(borders[::2], borders[1::2], strict=True) if start < end]
        if not parts:
            return
        start, end = parts[0][0], parts[-1][1]
        yield from self._terms(text[start:end], offset + start, offset + end)
        if 1 < len(parts) <= MOST_PARTS:
            for start, end in parts:
                yield from self._terms(text[start:end], offset + start, offset + end)

    def _terms(self, text: str, start: int, end: int) -> Iterator[WordTerm]:
        """Yield the term of a word; folding may break it up, as it does with ``½``."""
        plain = lowered(text) if self._sees_accents else fold(text)
        for word in (plain,) if plain.isalnum() else patterns().word.findall(plain):
            if not word.strip("_"):  # what folding leaves alone, as of ⑴_, which becomes (1)_
                continue
            if self._sees_accents:
                yield WordTerm(fold(self._stem(word)), start, end, fold(word) in self._stop_words)
            else:
                yield WordTerm(self._stem(word), start, end, word in self._stop_words)

    def _stem(self, word: str) -> str:
        word = word[:LONGEST_TERM]
        if self._stemmer is None:
            return word
        with self._lock:
            return self._stemmer.stemWord(word) or word  # Porter's leaves nothing of "s"


def _pairs(text: str, offset: int) -> Iterator[WordTerm]:
    """Yield overlapping pairs of characters, and single Han characters for questions that consist of one."""
    characters = [match.span() for match in patterns().character.finditer(text)]
    alone = len(characters) == 1
    for start, end in characters:
        if alone or IS_HAN.match(text, start):
            yield WordTerm(fold(text[start:end]), offset + start, offset + end, indexed_only=not alone)
    for (start, _), (_, end) in pairwise(characters):
        yield WordTerm(fold(text[start:end]), offset + start, offset + end)


def _check_settings(language: str, stop_words: Iterable[str] | None, word_ngrams: int) -> None:
    known = {NO_STEMMING, *cast("list[str]", Stemmer.algorithms())}  # pyright: ignore[reportUnknownMemberType]
    if language not in known:
        msg = f"language must be one of {', '.join(sorted(known))}, got {language!r:.80}"
        raise InvalidParameterError(msg)
    if isinstance(stop_words, str):
        msg = f"stop_words must be several words, got the text {stop_words!r:.80}"
        raise InvalidParameterError(msg)
    if not 1 <= word_ngrams <= MOST_WORDS:
        msg = f"word_ngrams must be from 1 to {MOST_WORDS}, got {word_ngrams}"
        raise InvalidParameterError(msg)


def _stemmer_version() -> str:
    return cast("str", Stemmer.version())  # pyright: ignore[reportUnknownMemberType]


def _stemmer(language: str) -> _Stemmer:
    return cast("_Stemmer", Stemmer.Stemmer(language, 0))  # pyright: ignore[reportUnknownMemberType]
