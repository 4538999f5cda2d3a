"""The writing of a query: its identifiers, its language, and its words without those that say nothing."""

from __future__ import annotations

import re
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 8
"""Identifiers of a query that are looked up."""
LONGEST = 120
"""Code points of an identifier; longer words, such as pasted keys, are not looked up."""

_QUOTED = re.compile(rf"`([^`\n]{{2,{LONGEST}}})`")
_EDGES = "\"'`()[]{}<>,;:!?.*=#\u00ab\u00bb\u2018\u2019\u201c\u201d\u201e\u2026"
_CODE = re.compile(
    r"\w_\w"  # snake_case
    r"|[a-z][A-Z]"  # camelCase
    r"|^--?[^\W\d_]{2}"  # --option
    r"|^/\w"  # /path
    r"|\w[.:@]\w"  # dotted.name, host:port
    r"|[^\W\d_].*\d|\d.*[^\W\d_]"  # letters and digits: E0308, v9.4
    r"|^\d{4,}$"  # a long number
)
_PROSE = re.compile(
    r"(?:[^\W\d_]\.)+[^\W\d_]?"  # e.g, i.e, U.S
    r"|[a-z]+\.[A-Z][a-z]*"  # the blank after a full stop is missing
    r"|\d+(?:[.:]\d+)?-?(?:[^\W\d_]{1,3}|[^\W\d_]+s?)"  # 24h, 50MB, 3rd, 4-digit
    r"|\d+-\d+.*"  # ranges
    r"|\d\d?:\d\d(?::\d\d)?"  # times
)
_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)(?<![\w-])[A-Z][\w+#-]*\w")
_SIGNS = re.compile(r"[-_]+")
_FEW = 5
"""Up to so many code points, an identifier must stand by itself: ``9.4`` is not in ``19.45``."""
ENGLISH = "en"
_FUNCTION_WORDS = re.compile(
    "le|la|les|des|du|un|une|est|et|que|qui|quel|quelle|pour|dans|je|ne|pas|sur|avec|comment|pourquoi"
    "|der|das|und|ein|eine|einen|ist|wie|ich|nicht|mit|auf|wo|warum|welche|kann|wird|mein|meine"
    "|el|los|las|como|por|para|una|del|mi|se|il|che|di|per|come|posso|dove|nel|i|gli"
    "|het|een|hoe|ik|niet|waarom|mijn|voor|os|um|uma|da|onde|nie|jest|jak|moja|hur|jag|ett|hvordan|jeg|et"
)
"""Frequent words of other languages in the Latin script that are none of English. A query has one of them, or a letter
beyond ASCII, if it is in another language: what chardet says of a few ASCII letters is not enough."""
MOST_STOP_WORDS = 0.25
"""The part of English stop words from which on a text is English, whatever chardet says: *in*, *was* and *die* are
words of other languages too."""
_LATIN = "\u024f"
"""The last letter of the Latin scripts of Europe."""
_SAMPLE = 4000
_DETECTING = Lock()
"""For one thread at a time: if several load the detector's models at once, each of them takes 30 MB."""
_WORD = re.compile(r"[^\W\d_]+")
MAX_LENGTH = 1000
"""Longer questions, in code points, have to be equal: people's paraphrases are short."""

_ENGLISH = re.compile(
    r"(?i)(?<!\w)(?:the|what|how|why|when|where|which|who|does|did|is|are|were|should|can|do|my)(?!\w)"
)
_QUOTATION_MARKS = re.compile(
    "[\"`\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u2018\u201b\u300c-\u300f]|(?<!\\w)'|'(?!\\w)"
)
_STOPS = " \t\n?.\u2026\u3002\uff1f\uff0e"
_CALLS = "!\uff01"
_FRONTED = re.compile(
    r"((?:in|on|at|for|from|after|before|during|with|without|as|by|under|between|within|since)\s[^,]+),\s+"
    r"((?:what|which|who|when|where|why|how|is|are|do|does|did|can|should|may)\s.+)",
    re.DOTALL,
)
_REWRITTEN = tuple(
    (re.compile(rf"(?<![\w'-]){pattern}(?![\w'-])"), plain)
    for pattern, plain in (
        (r"can't|cannot", "can not"),
        (r"won't", "will not"),
        (r"(do|does|did|is|are|was|were|has|have|had|could|should|would)n't", r"\1 not"),
        (r"(what|who|where|when|why|how|that|there|it)'s", r"\1 is"),
        (r"([Ii]|you|we|they)'ve", r"\1 have"),
        (r"(you|we|they|what|who)'re", r"\1 are"),
        (r"([Ii]|you|we|they|it)'ll", r"\1 will"),
        (r"[Ii]'m", "i am"),
        (r"I", "i"),
        (r"which", "what"),
    )
)
_HOW = re.compile(r"how (?:do i|can i|i can|does one|can one|to)(?!\S)")
_THE = re.compile(r"(?<!\S)(?<!half )(?<!all )the (?=[^\W\d_]{2})(?!few(?!\w))")


def identifiers_in(query: str) -> tuple[str, ...]:
    """Return what a query writes like code, in its order and each once.

    These are words with an underscore, an inner capital, an inner dot or colon, letters beside digits, or leading
    hyphens, numbers of four digits and more, and text in backticks. Quantities such as ``50MB`` are prose.
    """
    quoted = [" ".join(found.split()) for found in _QUOTED.findall(query)]
    words = (_trimmed(word) for word in _QUOTED.sub(" ", query).split())
    found = (word for word in words if 1 < len(word) <= LONGEST and _CODE.search(word) and not _PROSE.fullmatch(word))
    return tuple(dict.fromkeys(each for each in (*quoted, *found) if any(map(str.isalnum, each))))[:MOST]


def names_in(query: str) -> tuple[str, ...]:
    """Return the words that a query in English writes with a capital although no sentence begins with them.

    These are mostly names: *Terraform*, *TOTP*, *German*. A query in which more than half of the words after the first
    are capitalised, as in a title, has none that can be told from others, and neither has one without a common word of
    English.
    """
    words = [word for word in _WORD.findall(query)[1:] if word != "I"]
    if _ENGLISH.search(query) is None or 2 * sum(word[0].isupper() for word in words) > len(words):
        return ()
    return tuple(dict.fromkeys(found[0] for found in _NAME.finditer(query)))


def absent_from(identifiers: Iterable[str], texts: Iterable[str]) -> tuple[str, ...]:
    """Return the identifiers that none of some texts contains; case, hyphens and underscores do not matter."""
    wanted = tuple(identifiers)
    if any(" " in each for each in wanted):
        texts = [" ".join(text.split()) for text in texts]
    folded = "\n".join(texts).casefold()  # no identifier has a line break
    missing = [each for each in wanted if not _is_in(each, folded)]
    if any(len(each) > _FEW for each in missing):
        squeezed = folded.replace("-", "").replace("_", "")
        missing = [each for each in missing if len(each) <= _FEW or _SIGNS.sub("", each.casefold()) not in squeezed]
    return tuple(missing)


def _is_in(identifier: str, text: str) -> bool:
    """Return whether a folded text contains an identifier that is not a part of a longer word or number."""
    plain = identifier.casefold().lstrip("-/")
    if re.fullmatch(r"v\d[\d.]*", plain):
        plain = plain[1:]
    is_number, ends_in_digit = plain[0].isdecimal(), plain[-1].isdecimal()
    start = text.find(plain)
    while start >= 0:
        before, after = text[max(0, start - 1) : start], text[start + len(plain) : start + len(plain) + 1]
        goes_on = before.isdecimal() or before == "." if is_number else before.isalnum()
        if not goes_on and not (ends_in_digit and after.isdecimal()):
            return True
        start = text.find(plain, start + 1)
    return False


def _trimmed(word: str) -> str:
    word = word.strip(_EDGES).rstrip("-/")
    for ending in ("'s", "\u2019s"):
        word = word.removesuffix(ending)
    return word.partition("=")[0]


def may_be_of_another_language(query: str, texts: Iterable[str]) -> bool:
    """Return whether :func:`is_of_another_language` has to be asked; this takes less than a millisecond.

    It does not for a query without words that show its language, nor if the query and one of the texts are English.
    """
    words = _words_of(query)
    if _english_share(words) > MOST_STOP_WORDS:
        return not any(_english_share(_words_of(text[:_SAMPLE])) > MOST_STOP_WORDS for text in texts)
    return _is_marked(words)


def is_of_another_language(query: str, texts: Iterable[str]) -> bool:
    """Return whether a query is clearly in another language than all of some texts.

    This takes milliseconds, the first time a tenth of a second, and keeps 30 MB of memory.

    Only English texts are recognised well enough: of others, a query is in another language if it is English.
    """
    samples = [text[:_SAMPLE] for text in texts]
    words = _words_of(query)
    if not words:
        return False
    sample = " ".join(samples)[:_SAMPLE]
    if 2 * sum(word[0] > _LATIN for word in words) > len(words):  # of a script of its own
        return not any(word[0] > _LATIN for word in _WORD.findall(sample)) and _language_of(sample) is not None
    is_english = _english_share(words) > MOST_STOP_WORDS
    if not is_english and not _is_marked(words):
        return False
    found = ENGLISH if is_english else _language_of(query)
    if found is None or any(_language_of(each) == found for each in samples):
        return False
    if is_english:  # the languages of single texts are kept, so that only the query is new
        return any(map(_language_of, samples)) and _language_of(query) == ENGLISH
    return _language_of(sample) == ENGLISH != found


def _words_of(query: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(query)]


def _is_marked(words: Sequence[str]) -> bool:
    return not "".join(words).isascii() or any(map(_FUNCTION_WORDS.fullmatch, words))


def _english_share(words: Sequence[str]) -> float:
    from retrieval_core.text.analysis import STOP_WORDS  # noqa: PLC0415 - loads the stemmer

    return sum(word in STOP_WORDS for word in words) / max(1, len(words))


@lru_cache(1024)
def _language_of(text: str) -> str | None:
    import chardet  # noqa: PLC0415 - few queries need it

    with _DETECTING:
        return chardet.detect(text.encode("utf-8", "replace"))["language"]


def plain_question(question: str) -> str:
    """Return a question without words that say nothing. Two questions ask the same if theirs are equal."""
    text = question.lstrip("\u00bf\u00a1").rstrip(_STOPS + _CALLS)
    if not text[-2:].isalpha():  # 5! is a number
        text = question.lstrip("\u00bf\u00a1").rstrip(_STOPS)
    if text[1:2].islower() or text[1:2].isspace():
        text = text[:1].lower() + text[1:]
    if len(question) > MAX_LENGTH or not _ENGLISH.search(text):
        return text
    spelled = " ".join(text.replace("\u2019", "'").replace("\u02bc", "'").split())
    if _QUOTATION_MARKS.search(spelled):
        return text
    if (fronted := _FRONTED.fullmatch(spelled)) is not None:
        spelled = f"{fronted[2]} {fronted[1]}"
    for pattern, plain in _REWRITTEN:
        spelled = pattern.sub(plain, spelled)
    return _THE.sub("", _HOW.sub("how to", spelled))
