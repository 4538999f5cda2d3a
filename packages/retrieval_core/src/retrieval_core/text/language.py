"""Whether a query is in another language than the documents, told by chardet and by the stop words of English."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import chardet

from retrieval_core.text.analysis.stop_words import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

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
"""The part of English stop words from which on a query is English, whatever chardet says: *in*, *was* and *die* are
words of other languages too. """
_LATIN = "\u024f"
"""The last letter of the Latin scripts of Europe."""
_SAMPLE = 4000
_WORD = re.compile(r"[^\W\d_]+")


def is_of_another_language(query: str, texts: Iterable[str]) -> bool:
    """Return whether a query is clearly in another language than all of some texts.

    Only English texts are recognised well enough: of others, a query is in another language if it is English.
    """
    each = list(texts)
    texts = " ".join(each)[:_SAMPLE]
    language = _language_of(texts)
    words = [word.casefold() for word in _WORD.findall(query)]
    if language is None or not words:
        return False
    if 2 * sum(word[0] > _LATIN for word in words) > len(words):  # of a script of its own
        return not any(word[0] > _LATIN for word in _WORD.findall(texts))
    english = sum(word in STOP_WORDS for word in words) / len(words)
    found = _language_of(query)
    if any(_language_of(text[:_SAMPLE]) == found for text in each):
        return False
    if language != ENGLISH:
        return found == ENGLISH and english > MOST_STOP_WORDS
    is_marked = not "".join(words).isascii() or any(map(_FUNCTION_WORDS.fullmatch, words))
    return is_marked and found not in {None, ENGLISH} and english <= MOST_STOP_WORDS


def _language_of(text: str) -> str | None:
    return chardet.detect(text.encode("utf-8", "replace"))["language"]
