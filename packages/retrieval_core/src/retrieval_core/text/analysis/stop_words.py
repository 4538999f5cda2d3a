"""Words that say nothing about the subject of a question."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from retrieval_core.errors import MissingExtraError
from retrieval_core.text.analysis.words import fold, patterns

if TYPE_CHECKING:
    from collections.abc import Iterable

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
