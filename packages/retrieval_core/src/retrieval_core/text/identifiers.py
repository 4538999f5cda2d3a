"""Identifiers, codes and numbers of a query: words that a document writes exactly so, or does not contain."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_SIGNS = re.compile(r"[-_]+")
_FEW = 5
"""Up to so many code points, an identifier must stand by itself: ``9.4`` is not in ``19.45``."""


def identifiers_in(query: str) -> tuple[str, ...]:
    """Return what a query writes like code, in its order and each once.

    These are words with an underscore, an inner capital, an inner dot or colon, letters beside digits, or leading
    hyphens, numbers of four digits and more, and text in backticks. Quantities such as ``50MB`` are prose.
    """
    quoted = [" ".join(found.split()) for found in _QUOTED.findall(query)]
    words = (_trimmed(word) for word in _QUOTED.sub(" ", query).split())
    found = (word for word in words if 1 < len(word) <= LONGEST and _CODE.search(word) and not _PROSE.fullmatch(word))
    return tuple(dict.fromkeys(each for each in (*quoted, *found) if any(map(str.isalnum, each))))[:MOST]


def absent_from(identifiers: Iterable[str], texts: Iterable[str]) -> tuple[str, ...]:
    """Return the identifiers that none of some texts contains; case, hyphens and underscores do not matter."""
    folded = [" ".join(text.split()).casefold() for text in texts]
    squeezed = [_SIGNS.sub("", text) for text in folded]
    return tuple(
        each
        for each in identifiers
        if not any(map(_pattern_of(each).search, folded))
        and not any(_SIGNS.sub("", each.casefold()) in text for text in squeezed if len(each) > _FEW)
    )


def _pattern_of(identifier: str) -> re.Pattern[str]:
    plain = identifier.casefold().lstrip("-/")
    if re.fullmatch(r"v\d[\d.]*", plain):
        plain = plain[1:]
    before = r"(?<![\d.])v?" if plain[0].isdecimal() else r"(?<![^\W_])"
    return re.compile(before + re.escape(plain) + (r"(?!\d)" if plain[-1].isdecimal() else ""))


def _trimmed(word: str) -> str:
    word = word.strip(_EDGES).rstrip("-/")
    for ending in ("'s", "\u2019s"):
        word = word.removesuffix(ending)
    return word.partition("=")[0]
