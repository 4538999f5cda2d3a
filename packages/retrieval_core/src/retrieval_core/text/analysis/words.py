"""Words of any language: their positions in a text, their folded forms, and their parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from unicodedata import category, combining, normalize

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
