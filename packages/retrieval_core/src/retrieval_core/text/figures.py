"""The figures of a text in one form, however they are written: numbers with their units, times and versions.

``1,000``, ``1 000``, ``1k`` and ``one thousand`` are ``1000``; ``2 pm`` is ``14:00``; ``2019-05-03`` is ``3 May 2019``;
90 minutes are 1.5 hours. Words are read in English, digits in every script that has decimal ones. Numbers of list items
and citations are no figures, nor are digits that are part of a name, such as ``sha256`` and ``GPT-4``. The work is
linear in the text's length.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from math import isclose
from typing import TYPE_CHECKING

from retrieval_core.text.analysis import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ONES = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen"
    "|eighteen|nineteen"
)
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_VALUES = {
    **{word: n for n, word in enumerate(_ONES.split("|"))},
    **{word: 10 * n for n, word in enumerate(_TENS.split("|"), 2)},
}
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_ZEROS = {"hundred": 2, "thousand": 3, "k": 3, "million": 6, "M": 6, "m": 6, "billion": 9, "bn": 9, "trillion": 12}
_SCALE = "hundred|thousand|million|billion|trillion"
_KINDS: tuple[dict[str, float], ...] = (
    {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "millisecond": 1e-3, "s": 1, "sec": 1, "second": 1, "min": 60}
    | {"minute": 60, "h": 3600, "hr": 3600, "hour": 3600, "day": 86_400, "week": 604_800},
    {"mm": 1e-3, "cm": 1e-2, "m": 1, "metre": 1, "meter": 1, "km": 1e3, "kilometre": 1e3, "kilometer": 1e3}
    | {"inch": 0.0254, "ft": 0.3048, "foot": 0.3048, "feet": 0.3048, "mile": 1609.344},
    {"µg": 1e-6, "mcg": 1e-6, "mg": 1e-3, "g": 1, "gram": 1, "kg": 1e3, "kilogram": 1e3, "tonne": 1e6},
    {"ml": 1e-3, "mL": 1e-3, "cl": 1e-2, "l": 1, "L": 1, "litre": 1, "liter": 1},
    {"byte": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    {"mW": 1e-3, "W": 1, "watt": 1, "kW": 1e3, "MW": 1e6, "GW": 1e9},
    *(
        dict.fromkeys(names.split("|"), 1.0)
        for names in (
            *("%|percent|per cent", "percentage", "$|USD|dollar", "€|EUR|euro", "£|GBP|pound", "¥|JPY|yen"),
            *("°C|degrees celsius", "°F|degrees fahrenheit", "month", "year", *_MONTHS),
        )
    ),
)
"""Units of one kind, with the factor that turns one into another. A month is the unit of its days."""
_UNITS = {name: (kind, factor) for kind, units in enumerate(_KINDS) for name, factor in units.items()}
_CLOCK = re.compile(r"\d{1,2}(?::\d\d)?")
_ORDINALS = frozenset({"st", "nd", "rd", "th"})
_SIGNS = str.maketrans({"\u2212": "-", "\u066b": ".", "\u066c": ",", "\u2019": "'", "½": ".5", "¼": ".25", "¾": ".75"})
_MARKER = re.compile(
    r"\[\^?\d{1,3}(?:[ ]?[,;\u2013-][ ]?\d{1,3}){0,20}\]|^[^\S\n]{0,20}(?:[>#*]{1,6}[ ]){0,3}\d{1,3}[.)](?=\s)",
    re.MULTILINE,
)
_DATE = re.compile(r"(?<![\w.-])(\d{4})-(0[1-9]|1[0-2])-(\d\d)(?![\w-])")
_WORDS = re.compile(
    rf"(?<![\w-])(?:(?:{_TENS})(?:[ -](?:{_ONES}))?|an?(?=[ ](?:{_SCALE})\b)"
    rf"|one(?=[ -](?:{_SCALE}|second|minute|hour|day|week|month|year)\b)|(?!one\b)(?:{_ONES}))(?!\w)",
    re.IGNORECASE,
)
_FIGURE = re.compile(
    rf"""
    (?P<money>[$€£¥]|\b(?:USD|EUR|GBP)[ ])?
    (?P<sign>(?<![\w)\]%-])-)?
    (?<![\w.])(?<![A-Z]-)[vV]?
    (?P<number>(?:[1-9]\d{{0,2}}(?:[,'_ ]\d{{3}})+(?!\d)|\d+|(?=\.\d))(?:[.:]\d+)*)
    (?:[ ]?(?P<half>[AaPp])\.?[Mm]\b)?
    (?:(?:(?P<suffix>bn|k|M)|[ -](?P<scale>{_SCALE}))(?!\w))?
    (?P<unit>[ -]?(?:[%$€£¥]|°[ ]?[CF]|per[ ]cent|degrees[ ][CcFf]\w{{1,9}}|[^\W\d_]+)(?![\w/]))?
    """,
    re.VERBOSE,
)
_WORD = re.compile(r"[^\W\d_]{2,60}")
_TOKEN = re.compile(
    r"--?[A-Za-z][\w-]{0,60}(?<![-_])|[^\W_](?:[\w'\u2019]|[.:/@-](?=\w)){0,80}|[./~]?/[\w./-]{1,80}|[:.!?|]"
)
"""Words, code, and the marks that begin a sentence."""
_CODE = re.compile(r"[a-z][A-Z]|[A-Z]{2}|_|\w[./:@]\w|^-|^[./~]?/|[^\W\d_]-?\d|\d-?[^\W\d_]")
_ABBREVIATION = re.compile(r"(?i:dr|mr|mrs|ms|prof|st|i\.e|e\.g|a\.m|p\.m|u\.s)")
_COMMAND = re.compile(r"`([^`\n]{1,200} [^`\n]{1,200})`")
_SUBJECT = re.compile(
    r"['’]s\b|\s(?:is|was|has|had|will|can|could|may|might|must|does|did|became)\b"  # noqa: RUF001
)
"""What stands behind a single subject, which may be a name that no passage has."""
_NO_NAMES = STOP_WORDS | {"also", "still", "yet", "even", "every", "already", "i", "may", "must", "unless", "until"}
"""Words that are no names at the start of a sentence either."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes:
        value: As all writings of it have it: ``1000``, ``14:00``.
        number: To compute with; ``None`` for times, versions and decades.
        unit: As it is written; empty if it is not known.
    """

    value: str
    number: float | None = None
    unit: str = ""

    def equals(self, other: Figure) -> bool:
        """Return whether another figure says the same, in any unit; one without a unit may have each."""
        if self.number is None or other.number is None or not (self.unit or other.unit):
            return self.value == other.value
        if not self.unit or not other.unit:
            return self.number == other.number
        (kind, factor), (other_kind, other_factor) = _UNITS[self.unit], _UNITS[other.unit]
        return kind == other_kind and isclose(self.number * factor, other.number * other_factor)

    def scaled(self, zeros: int) -> Figure:
        """Return the figure that a table means which leaves out so many zeros."""
        if self.number is None:
            return self
        number = self.number * 10**zeros
        return Figure(f"{number:.15g}", number, self.unit)


def missing_figures(claim: str, evidence: str) -> tuple[str, ...]:
    """Return the figures of a claim that an evidence does not have, in any form or unit."""
    known = figures_in(evidence)
    return tuple(figure.value for figure in figures_in(claim) if not any(figure.equals(other) for other in known))


def figures_in(text: str) -> tuple[Figure, ...]:
    """Return the figures of a text, in order."""
    plain = _DATE.sub(_in_words, _MARKER.sub(" ", _folded(text)))
    plain = _WORDS.sub(_in_digits, plain)
    return tuple(figure for match in _FIGURE.finditer(plain) if (figure := _figure(match)) is not None)


def _folded(text: str) -> str:
    """Return a text with the digits of all scripts, and the signs about them, in ASCII."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text.translate(_SIGNS)).replace("\u03bc", "\u00b5")
    return "".join([str(unicodedata.decimal(mark)) if mark.isdecimal() else mark for mark in text])


def _in_words(match: re.Match[str]) -> str:
    """Return a date such as 2019-05-03 as 03 May 2019."""
    return f"{match[3]} {_MONTHS[int(match[2]) - 1]} {match[1]}"


def _in_digits(match: re.Match[str]) -> str:
    """Return words for a number in digits; with a zero before them they join no group of three digits."""
    return f"0{sum(_VALUES.get(word.lower(), 1) for word in re.split('[ -]', match[0]))}"


def _figure(match: re.Match[str]) -> Figure | None:
    """Return a figure, or ``None`` for digits that are the beginning of a name."""
    number, unit = re.sub("[,'_ ]", "", match["number"]), match["unit"] or ""
    if match["half"] and _CLOCK.fullmatch(number):
        hour, _, rest = number.partition(":")
        return Figure(f"{int(hour) % 12 + 12 * (match['half'] in 'Pp'):02}:{rest or '00'}")
    if ":" in number or number.count(".") > 1:
        return Figure(f"0{number}" if number[1:2] == ":" else number)
    is_glued, money = unit[:1].isalpha(), (match["money"] or "").strip()
    scale, name = match["suffix"] or match["scale"] or "", unit.strip(" -")
    whole, point, fraction = number.partition(".")
    if is_glued and money and name == "m":
        scale, is_glued = "m", False
    elif is_glued and name == "s" and len(whole) == len("1990"):
        return Figure(f"{whole}s")
    known = _unit_of(name)
    follows = match.string[match.end() : match.end() + 1]
    if follows.isalpha() or (is_glued and not known and name not in _ORDINALS):
        return None
    value = ("-" if match["sign"] else "") + (whole.lstrip("0") or "0") + point + fraction
    figure = Figure(value, float(value), money or known)
    return figure.scaled(_ZEROS[scale]) if scale else figure


def is_unit(word: str) -> bool:
    """Return whether a word is a unit, or a month, which is one of days."""
    return bool(_unit_of(word))


def _unit_of(name: str) -> str:
    forms = (name.replace(" ", ""), name.lower(), name.lower().removesuffix("s"))
    return next((form for form in forms if form in _UNITS), "")


class Writing:
    """How words are written in some texts, which tells names from words that only begin a sentence."""

    def __init__(self, texts: Iterable[str]) -> None:
        found = {match[0] for text in texts for match in _WORD.finditer(text)}
        self._ordinary = {word for word in found if word[0].islower()}
        self._capitalised = {word.lower() for word in found if word[0].isupper()} - self._ordinary

    def names_of(self, sentence: str) -> Iterator[str]:
        """Yield words with a capital letter, words of code, and code of several words.

        The first word counts where the next has a capital letter too, where the texts have it with a capital letter
        alone, or where they do not have it and it is the subject. Takes time in proportion to the sentence.
        """
        begins, is_first, before = True, True, ""
        for match in _TOKEN.finditer(sentence):
            if match[0] in ":.!?|":
                begins = begins or match[0] != "." or _ABBREVIATION.fullmatch(before) is None
                continue
            word = match[0].replace("\u2019", "'").removesuffix("'s").rstrip("'")
            if not _is_of_a_figure(word, sentence[max(0, match.start() - 2) : match.start()]):
                end = match.start() + len(word)
                if _is_name(word, sentence[end : end + 2], begins=begins) or (
                    is_first and self._begins(word, sentence, end)
                ):
                    yield word
                is_first = False
            begins, before = False, word
        yield from (" ".join(match[1].split()) for match in _COMMAND.finditer(sentence))

    def _begins(self, word: str, sentence: str, end: int) -> bool:
        if not word[0].isupper() or word.lower() in self._ordinary or word.lower() in _NO_NAMES:
            return False
        return word.lower() in self._capitalised or _SUBJECT.match(sentence, end) is not None


def _is_of_a_figure(word: str, before: str) -> bool:
    if word[0].isdecimal():
        return bool(figures_in(word))
    return is_unit(word) and before.rstrip()[-1:].isdecimal()


def _is_name(word: str, following: str, *, begins: bool) -> bool:
    if _CODE.search(word) is not None:
        return _ABBREVIATION.fullmatch(word) is None
    if not word[0].isupper() or word.lower() in _NO_NAMES:
        return False
    return not begins or (following[:1] == " " and following[1:].isupper())
