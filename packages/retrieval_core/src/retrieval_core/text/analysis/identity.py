"""The name of an analysis, which an index keeps: two analyses of one name give the same terms."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_ID = re.compile(
    r"unicode-snowball(?P<stemmer>2?)-(?P<language>[a-z_]+)-1(?: stop_words=(?P<stop_words>none|[0-9a-f]{16}))?"
    r"(?: word_ngrams=(?P<word_ngrams>[0-9]+))?(?P<character_ngrams> character_ngrams=[0-9]+)?"
)


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
    found = _ID.fullmatch(analysis)
    return analysis.removesuffix(found["character_ngrams"] or "") if found else analysis


def settings_to_change(given: str, wanted: str) -> tuple[str, ...]:
    """Return what to set to get from one analysis to another, as lines of a configuration file; nothing if unknown.

    Args:
        given: Id of the analysis as it is configured.
        wanted: Id of the analysis that an index was built with.
    """
    now, then = _ID.fullmatch(given), _ID.fullmatch(wanted)
    if now is None or then is None or now["stemmer"] != then["stemmer"]:
        return ()
    lines = {
        "language": f'analysis.language = "{then["language"]}"',
        "stop_words": _stop_words(then["stop_words"]),
        "word_ngrams": f"analysis.word_ngrams = {then['word_ngrams'] or 1}",
    }
    return tuple(line for name, line in lines.items() if now[name] != then[name])


def _stop_words(value: str | None) -> str:
    if value is None:
        return "analysis.stop_words unset"
    return "analysis.stop_words = []" if value == "none" else f"analysis.stop_words to the list of digest {value}"
