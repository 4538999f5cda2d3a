"""How text becomes the terms that lexical search compares.

The same analysis serves indexing, searching and highlighting, and covers all languages:

- Words are runs of letters and digits. Case, accents and compatibility forms (ligatures, full-width letters) are folded
  away. A Snowball stemmer removes endings, by default the English one, which does not change words of other scripts.
  Other languages' stemmers see accents, which are folded away afterwards.
- An identifier counts as a whole and by its parts: ``user_id`` is ``user_id``, ``user`` and ``id``; ``IL6`` is ``il6``,
  ``il`` and ``6``; ``getName`` is ``getname``, ``get`` and ``name``. A compound with hyphens counts as its parts and
  joined: ``e-mail`` is ``e``, ``mail`` and ``email``.
- Scripts written without spaces, and Hangul, become overlapping pairs of characters; single Han characters are kept
  too, so that a question of one character finds its words.
- Everything is indexed. A question drops stop words, unless it has nothing else.
- On request, neighbouring words are terms too (``new_york``).

Measured against plain stemmed words, nDCG@10 of BM25: SciFact .699 (.686), financial questions .204 (.192), shopping
queries .710 (.705), Cranfield .359 (.362).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import chain, islice, pairwise
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast
from unicodedata import category, combining, normalize

import Stemmer  # pyright: ignore[reportMissingImports] - an extension module without type information

from retrieval_core.errors import InvalidParameterError, MissingExtraError
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

_HYPHENS = "\\-\u2010\u2011"
_IGNORABLE = "\u00ad\u200c\u200d"  # soft hyphen, zero-width non-joiner and joiner: inside words, but no part of them
_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
UNSPACED = (
    _HAN + "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
)
"""Characters of scripts without spaces between words, as ranges for a set in a regular expression."""
BY_CHARACTER = UNSPACED + "\uac00-\ud7a3\u1100-\u11ff"  # Hangul has spaces, and endings on its words
"""Characters that are compared one by one or in pairs, since their words are not known."""
IS_HAN = re.compile(f"[{_HAN}]")
UNHYPHENATED = re.compile(f"[^{_HYPHENS}]+")
_LOOSE_HYPHENS = re.compile(r"-(?:-+|(?!\w)|(?<!\w-))", re.ASCII)
_BLANKED = {point: " " for point in range(128) if not re.match(r"[\w-]", chr(point))}
"""Of ASCII, all that is neither a letter nor a digit, an underscore or a hyphen."""
PARTS = re.compile(r"_+|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[^\W\d_])|(?<=[^\W\d_])(?=\d)")
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

_ALIASES = {"porter": "english", "dutch_porter": "dutch"}
LISTED = frozenset(
    "danish dutch french german italian norwegian portuguese russian spanish swedish turkish".split()  # noqa: SIM905
)
"""Languages besides English whose stop words come with the extra ``languages``; most are the lists of Snowball."""
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
"""How many words an analyser remembers the terms of for indexing, and for queries: about 30 MB each when full."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """What words, their parts in one script and their characters look like."""

    word: re.Pattern[str]
    segment: re.Pattern[str]
    character: re.Pattern[str]


@cache
def patterns() -> Patterns:
    """Compile the patterns that need to know all combining marks, which :mod:`re` has no class for."""
    blocks = (*range(0x300, 0x1D00), *range(0x1DC0, 0x1E00), *range(0x3099, 0x309B), *range(0xA800, 0xAC00))
    marks = "".join(map(chr, (point for point in blocks if category(chr(point)) in {"Mn", "Mc"}))) + _IGNORABLE
    inside = rf"[\w{marks}]"
    return Patterns(
        word=re.compile(rf"\w{inside}*(?:[{_HYPHENS}]\w{inside}*)*"),
        segment=re.compile(rf"(?P<unspaced>[{BY_CHARACTER}][{BY_CHARACTER}{marks}]*)|[^{BY_CHARACTER}]+"),
        character=re.compile(f".[{marks}]*", re.DOTALL),
    )


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    if not text.isascii():
        return patterns().word.findall(text)
    # The same by fewer rules: what separates words becomes a blank, and so do hyphens that do not stand between words.
    return _LOOSE_HYPHENS.sub(" ", text).translate(_BLANKED).split()


def fold(text: str) -> str:
    """Return a word without case, accents and compatibility forms.

    Marks that make another letter rather than an accent stay: vowel signs, Thai tones, the voicing of kana.
    """
    if text.isascii():
        return text.lower()
    letters = (character for character in normalize("NFKD", text) if not _is_accent(character))
    return normalize("NFC", "".join(letters).casefold())


def lowered(text: str) -> str:
    """Return a word without case and compatibility forms; accents stay, for stemmers that know them."""
    if text.isascii():
        return text.lower()
    letters = (character for character in normalize("NFKC", text) if character not in _IGNORABLE)
    return normalize("NFC", "".join(letters).casefold())


def _is_accent(character: str) -> bool:
    # Classes 10 to 36 are the points of Hebrew, Arabic and Syriac, 1 and 200 upwards the accents of European scripts.
    kind = combining(character)
    return kind >= 200 or 10 <= kind <= 36 or kind == 1 or character in _IGNORABLE


def stop_words_of(language: str) -> frozenset[str]:
    """Return the stop words of a language, folded; none for a language that nobody has listed.

    Raises:
        MissingExtraError: The lists of languages other than English are not installed.
    """
    language = _ALIASES.get(language, language)
    if language == "english":
        return STOP_WORDS
    if language not in LISTED:
        return frozenset()
    try:
        lists = import_module("bm25s.stopwords")
    except ImportError as error:
        needed_for = f"the list of stop words for analysis.language = {language!r} (or set analysis.stop_words)"
        raise MissingExtraError("languages", needed_for) from error
    return folded_words(getattr(lists, f"STOPWORDS_{language.upper()}"))


def folded_words(entries: Iterable[str]) -> frozenset[str]:
    """Return the words of a list as the analysis sees them; of an entry with an apostrophe, each part."""
    return frozenset(fold(word) for entry in entries for word in patterns().word.findall(entry))


def id_of(language: str, stop_words: Collection[str] | None, word_ngrams: int, stemmer: str) -> str:
    """Return the id of an analysis: what is not said is as by default.

    Args:
        stop_words: The user's own; ``None`` for those of the language.
        stemmer: Version of Snowball. Before 3 it removes other endings of some words (``emergency``).
    """
    is_old = language != "none" and int(stemmer.partition(".")[0]) < 3
    parts = [f"unicode-snowball{'2' if is_old else ''}-{language}-1"]
    if stop_words is not None:
        digest = sha256(" ".join(sorted(stop_words)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        parts.append(f"stop_words={digest if stop_words else 'none'}")
    if word_ngrams != 1:
        parts.append(f"word_ngrams={word_ngrams}")
    return " ".join(parts)


def without_character_ngrams(analysis: str) -> str:
    """Return the id of an analysis of an older version of this library, less the parts of words that it indexed too.

    Its index contains all terms of the analysis of the returned id; nobody searches for the parts.
    """
    return analysis.partition(" character_ngrams=")[0]


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


class WordTerm(NamedTuple):
    """A term of one word, with offsets into the word."""

    term: str
    start: int
    end: int
    is_stop_word: bool = False
    indexed_only: bool = False


_Item = TypeVar("_Item")


class _Words(dict[str, tuple[_Item, ...]]):
    """What was found out about words; of a word that is not known yet, it is found out."""

    def __init__(self, analyze: Callable[[str], tuple[_Item, ...]]) -> None:
        self._analyze = analyze

    def __missing__(self, word: str) -> tuple[_Item, ...]:
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
        self._pieces = _Words(self._analyze)
        # Indexing looks up many words and needs only their terms.
        self._terms = _Words(lambda word: tuple([piece.term for piece in self._analyze(word)]))

    @property
    def id(self) -> str:
        """Names the rules; it changes whenever the same text would give other terms."""
        return self._id

    def terms(self, text: str) -> list[str]:
        """Return the terms to index a text by, in the order of the text, repeated as often as they occur.

        Terms of several words come last.
        """
        terms = [*chain.from_iterable(map(self._terms.__getitem__, words_of(text)))]
        if self._most_words > 1:
            terms += [run.text for run, _ in self._runs(text)]
        return terms

    def query_terms(self, text: str) -> list[str]:
        """Return the terms to search for, repeated as often as they occur: without stop words if there are others.

        Words come first, then terms of several words, which neither begin nor end with a stop word.
        """
        pieces = [piece for word in words_of(text) for piece in self._pieces[word] if not piece.indexed_only]
        terms = [piece.term for piece in pieces if not piece.is_stop_word]
        everything = not terms
        if everything:
            terms = [piece.term for piece in pieces]
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
        pieces = self._pieces[word.lower()]
        return pieces[0] if len(pieces) == 1 else None

    def spans(self, text: str) -> Iterator[Term]:
        """Yield the terms that a text is indexed by, with the characters that each was made from."""
        for match in patterns().word.finditer(text):
            offset = match.start()
            for piece in self._pieces[match.group()]:
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
            whole = [piece for piece in self._pieces[match.group()] if len(match.group()) == piece.end - piece.start]
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

    def _analyze(self, word: str) -> tuple[WordTerm, ...]:
        if word.isascii() and "-" not in word:  # most words
            return tuple(self._identifier(word, 0))
        pieces: list[WordTerm] = []
        parts = [*UNHYPHENATED.finditer(word)]
        for match in parts:
            if word.isascii():
                pieces += self._identifier(match.group(), match.start())
                continue
            for segment in patterns().segment.finditer(match.group()):
                offset = match.start() + segment.start()
                pieces += (_pairs if segment["unspaced"] else self._identifier)(segment.group(), offset)
        if 1 < len(parts) <= MOST_PARTS:
            pieces += self._stemmed("".join([match.group() for match in parts]), 0, len(word))
        return tuple(pieces)

    def _identifier(self, text: str, offset: int) -> list[WordTerm]:
        """Return the terms of an unbroken word, and of its parts if it has several."""
        if PARTS.search(text) is None:
            return self._stemmed(text, offset, offset + len(text))
        borders = [0, *(border for match in PARTS.finditer(text) for border in match.span()), len(text)]
        parts = [(start, end) for start, end in zip(borders[::2], borders[1::2], strict=True) if start < end]
        if not parts:
            return []
        start, end = parts[0][0], parts[-1][1]
        terms = self._stemmed(text[start:end], offset + start, offset + end)
        if 1 < len(parts) <= MOST_PARTS:
            for start, end in parts:
                terms += self._stemmed(text[start:end], offset + start, offset + end)
        return terms

    def _stemmed(self, text: str, start: int, end: int) -> list[WordTerm]:
        """Return the term of a word; folding may break it up, as it does with ``½``."""
        plain = lowered(text) if self._sees_accents else fold(text)
        terms: list[WordTerm] = []
        for word in (plain,) if plain.isalnum() else patterns().word.findall(plain):
            if not word.strip("_"):  # what folding leaves alone, as of ⑴_, which becomes (1)_
                continue
            if self._sees_accents:
                terms.append(WordTerm(fold(self._stem(word)), start, end, fold(word) in self._stop_words))
            else:
                terms.append(WordTerm(self._stem(word), start, end, word in self._stop_words))
        return terms

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
