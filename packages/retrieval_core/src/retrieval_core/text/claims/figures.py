"""The figures of a text: numbers, dates, times and versions, in one form however they are written.

``1,000``, ``1 000``, ``1k`` and ``one thousand`` are ``1000``; ``3 May 2019``, ``May 3rd, 2019`` and ``2019-05-03`` are
``2019-05-03``; ``2 pm`` is ``14:00``. Words are read in English, digits in every script that has decimal ones. Numbers
of list items and citations are no figures, nor are digits that are part of a name: ``sha256``, ``GPT-4``.

A date also has its month and its year as figures, so that a complete date supports a text with only these. Every
pattern is bounded, so the work is linear in the text's length.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from retrieval_core.text.claims.units import CURRENCIES, same_quantity, unit_of
from retrieval_core.text.claims.words import MONTHS
from retrieval_core.types import Span

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "bn": 10**9}
_SMALL = {
    **{word: value for value, word in enumerate(_ONES.split())},
    **{word: 10 * value for value, word in enumerate(_TENS.split(), start=2)},
    "dozen": 12,
    "twice": 2,
}
_SIGNS = "½¼¾⅓⅔⅛⅜⅝⅞"
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}
_LATER = "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINALS = {word: value for value, word in enumerate(_LATER.split(), start=3)}
_SUFFIXES = {"k": 1000, "K": 1000, "M": 10**6, "B": 10**9, "bn": 10**9, "mn": 10**6, "m": 10**6}
_FEW_LETTERS = re.compile(r"[A-Za-z]{1,6}(?!\w)|[hdms]\d")
_ARTICLE = re.compile(r" an?(?= )")
_LONGEST_VALUE = 40
"""Digits of a number that is still computed with."""

_MARKERS = re.compile(
    r"\[\^?\d{1,3}(?:[ ]?[,;\u2013-][ ]?\d{1,3}){0,20}\]|^[^\S\n]{0,20}(?:[>#*]{1,6}[ ]){0,3}\d{1,3}[.)](?=\s)",
    re.MULTILINE,
)
_MONTH = "|".join(f"(?:{name.title()}|{name.upper()})" for name in MONTHS)
_SHORT = "|".join(name[:3].title() for name in MONTHS if name != "may") + "|Sept"
_WORD_NUMBER = "|".join(sorted((*_SMALL, *_SCALES), key=len, reverse=True)).replace("|bn", "")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its position.

    Attributes:
        values: Normalised values; the first is the whole, the others are the figures that it includes.
        span: Position in the text, with the unit.
        unit: The unit's usual sign, also ``"%"`` or a currency's; empty if none is known.
        number: The value to compute with; ``None`` for dates, times, versions and ordinals.
    """

    values: tuple[str, ...]
    span: Span
    unit: str = ""
    number: float | None = None

    @property
    def value(self) -> str:
        """The whole."""
        return self.values[0]

    def equals(self, other: Figure) -> bool:
        """Whether another figure says the same, in any unit; a date says its month and its year too."""
        if self.number is None or other.number is None:
            return self.value in other.values
        if "/" in self.value + other.value and "%" in {self.unit, other.unit}:
            return abs(_percent(self) - _percent(other)) < 0.5
        return same_quantity(self.number, self.unit, other.number, other.unit)


def missing_figures(claim: str, evidence: str) -> tuple[str, ...]:
    """Return the figures of a claim that an evidence does not have, in any form or unit."""
    known = figures_in(evidence)
    return tuple(figure.value for figure in figures_in(claim) if not any(figure.equals(other) for other in known))


def _percent(figure: Figure) -> float:
    number = figure.number or 0.0
    return number if figure.unit == "%" else 100 * number


def figures_of(text: str) -> frozenset[str]:
    """Return the normalised figures of a text; the parts of a date are separate figures.

    ``figures_of(claim) <= figures_of(evidence)`` is true if the evidence has all figures of a claim. To compare units
    too, use :func:`~retrieval_core.text.claims.missing_figures`.
    """
    return frozenset(value for figure in figures_in(text) for value in figure.values)


def figures_in(text: str) -> tuple[Figure, ...]:
    """Return the figures of a text in order, with their places."""
    plain = _MARKERS.sub(lambda match: " " * len(match[0]), _folded(text))
    return tuple(_figures(plain))


def _folded(text: str) -> str:
    """Return a text of the same length with the digits of all scripts, and the signs about them, in ASCII."""
    return text if text.isascii() else "".join([mark if mark.isascii() else _ascii(mark) for mark in text])


@cache
def _signs() -> dict[str, str]:
    return dict(zip("\u2212\u066b\u066c\uff0e\uff0c\uff05\u066a\uff1a\uff0d\u2019", "-.,.,%%:-'", strict=True))


def _ascii(mark: str) -> str:
    if mark.isdecimal():
        return str(unicodedata.decimal(mark))
    return " " if mark.isspace() else _signs().get(mark, mark)


@cache
def _pattern() -> re.Pattern[str]:
    month, tail = rf"(?:{_MONTH}|(?:{_SHORT})\b\.?)", r"(?:st|nd|rd|th)?"
    no_more = r"(?!\d|[.,:]\d)"
    return re.compile(
        rf"""
        (?<![\w.])(?P<y1>[12]\d{{3}})(?P<s1>[-/])(?P<m1>0[1-9]|1[0-2])(?:(?P=s1)(?P<d1>0[1-9]|[12]\d|3[01]))?
            (?!\d|[-/]\d)
      | (?<![\w.])(?P<a2>\d{{1,2}})(?P<s2>[/.-])(?P<b2>\d{{1,2}})(?P=s2)(?P<y2>[12]\d{{3}})(?!\d|[./-]\d)
      | (?<![\w.])(?P<d3>\d{{1,2}}){tail}[ ](?:of[ ])?(?P<m3>{month})(?!\w)(?:,?[ ](?P<y3>[12]\d{{3}}){no_more})?
      | (?<!\w)(?P<m4>{month})[ ](?:(?P<d4>\d{{1,2}}){tail}(?!\w|[.,:]\d|[ ]?%)(?:,?[ ](?P<y4>[12]\d{{3}}){no_more})?
            |,?(?:[ ]of)?[ ]?(?P<y5>[12]\d{{3}}){no_more})
      | (?:(?<![\w.:])|(?<=\dT))(?P<h6>[01]?\d|2[0-4])(?::(?P<n6>[0-5]\d)(?::(?P<z6>[0-5]\d))?(?!\d|:\d))?
            (?:[ ]?(?P<half>[AaPp])\.?[Mm](?!\w)\.?|(?<=:\d\d))
      | (?<![\w.])(?:[vV](?=\d))?(?P<version>\d{{1,9}}(?:\.\d{{1,9}}){{2,9}}
            (?:[-+.]?(?:rc|alpha|beta|dev|post)[.-]?\d{{0,9}})?)(?!\w)
      | (?<![\w.])[vV](?P<short>\d{{1,9}}(?:\.\d{{1,9}})?)(?!\w)
      | (?<![\w.])(?:(?P<mixed>\d{{1,6}})[ ]?)?(?P<part>[{_SIGNS}])(?!\w)
      | (?<![\w./-])(?P<above>\d{{1,2}})/(?P<under>[2-9]|10)(?=[ ]of(?!\w)|[ ](?:tea|table)spoon)
      | (?<![\w-])(?i:(?P<shares>an?|one|two|three|four|five|seven)[ -](?P<share>{"|".join(_PARTS)})s?)
            (?=[ ]of(?!\w)|[ ](?:tea|table)spoon|[ ](?:an?|the)(?!\w))
      | (?<![\w-])(?i:(?P<a_half>half))(?=[ ](?:of|an?|the)(?!\w)|-(?:hour|day|year))
      | (?<!\w)(?P<th>\d{{1,9}})(?:st|nd|rd|th)(?!\w)
      | (?<!\w)(?P<decade>[12]\d{{2}}0)'?s(?!\w)
      | (?P<sign>(?<![\w)\]%-])-|(?<!\w)[Mm]inus[ ])?
        (?:(?P<before>[$\u20ac\u00a3\u00a5]|(?<!\w)(?:USD|EUR|GBP)[ ]))?
        (?:(?<![\w.])|(?<=\d[hdms])|(?<=\d\.\.)|(?<=\.\.\.))
            (?P<digits>(?:[1-9]\d{{0,2}}(?P<sep>[,'_ ])\d{{3}}(?:(?P=sep)\d{{3}})*+(?!\d))|\d++)
            (?P<point>\.\d++)?(?P<power>[eE][+-]?\d{{1,3}}(?!\w))?
            (?:(?P<suffix>bn|mn|[kKMB]|(?(before)m|(?!)))(?![\w%])
                |[ -](?P<scale>hundred|thousand|million|billion|trillion|bn|dozen)(?!\w))?
      | (?<![\w-])(?i:(?P<words>(?:(?:an?|another)[ ](?=hundred|thousand|million|billion|trillion|dozen))?
            (?:{_WORD_NUMBER})(?:(?:[ ]|-|[ ]and[ ])(?:{_WORD_NUMBER})(?!\w))*+)(?!\w))
      | (?<![\w-])(?i:(?P<ordinal>{"|".join(_ORDINALS)}))(?!\w|[ ]of[ ])
        """,
        re.VERBOSE,
    )


def _figures(text: str) -> Iterator[Figure]:
    for match in _pattern().finditer(text):
        if match["words"]:
            yield from _in_words(match, text)
        elif match["digits"]:
            yield from _number(match, text)
        elif match["part"] or match["above"] or match["share"] or match["a_half"]:
            yield _fraction(match, text)
        elif values := _values_of(match, text):
            yield Figure(values, Span(*match.span()))


def _fraction(match: re.Match[str], text: str) -> Figure:
    """Return a part of a whole, as 1/3, or a number with one, as 2.5."""
    if match["part"]:
        above, under = Fraction(unicodedata.numeric(match["part"])).limit_denominator(8).as_integer_ratio()
        above += int(match["mixed"] or "0") * under
    elif match["above"]:
        above, under = int(match["above"]), int(match["under"])
    elif match["share"]:
        above, under = _SMALL.get(match["shares"].lower(), 1), _PARTS[match["share"].lower()]
    else:
        above, under = 1, 2
    behind = match.end()
    article = _ARTICLE.match(text, behind)
    start = article.end() if article else behind
    unit, length = unit_of(text[start : start + 24])
    number = above / under
    shown = f"{number:g}" if under in {2, 4, 8} and number > 1 else f"{above}/{under}"
    return Figure((shown,), Span(match.start(), start + length if length else behind), unit, number)


def _values_of(match: re.Match[str], text: str) -> tuple[str, ...]:
    """Return what is no number: a version, an ordinal, a decade, a time or a date; empty where it is none of these."""
    if version := match["version"] or match["short"]:
        return (version,)
    if match["th"]:
        return (f"#{_bare(match['th'])}",)
    if match["ordinal"]:
        return () if _is_fraction(text, match.start()) else (f"#{_ORDINALS[match['ordinal'].lower()]}",)
    if match["decade"]:
        return (match["decade"] + "s",)
    return (_time(match),) if match["h6"] else _date(match)


def _is_fraction(text: str, start: int) -> bool:
    return text[max(0, start - 6) : start].lower().endswith(("one ", "one-", "two ", "two-", " a "))


def _date(match: re.Match[str]) -> tuple[str, ...]:
    if match["y1"]:
        return _dated(match["y1"], int(match["m1"]), match["d1"])
    if match["y2"]:
        one, two = int(match["a2"]), int(match["b2"])
        if match["s2"] != "." and one <= 12 and two <= 12 and one != two:  # nobody can tell which is the month
            return (match[0], match["y2"])
        day, month = (two, one) if two > 12 else (one, two)
        return _dated(match["y2"], month, str(day)) if 1 <= month <= 12 and 1 <= day <= 31 else (match[0],)
    month = next(
        number
        for number, name in enumerate(MONTHS, start=1)
        if name.startswith((match["m3"] or match["m4"]).lower()[:3])
    )
    return _dated(match["y3"] or match["y4"] or match["y5"], month, match["d3"] or match["d4"])


def _dated(year: str | None, month: int, day: str | None) -> tuple[str, ...]:
    if day is None:
        return (f"{year}-{month:02}", f"{year}")
    in_year = f"--{month:02}-{int(day):02}"
    return (in_year,) if year is None else (f"{year}{in_year[1:]}", f"{year}-{month:02}", in_year, year)


def _time(match: re.Match[str]) -> str:
    hour, half = int(match["h6"]), (match["half"] or "").lower()
    if half and hour <= 12:
        hour = hour % 12 + (12 if half == "p" else 0)
    seconds = f":{match['z6']}" if match["z6"] and match["z6"] != "00" else ""
    return f"{hour:02}:{match['n6'] or '00'}{seconds}"


def _number(match: re.Match[str], text: str) -> Iterator[Figure]:
    if _is_in_name(text, match.start("digits")):
        return
    digits = match["digits"]
    point = match["point"] or ""
    whole = _bare("".join(mark for mark in digits if mark.isdigit()))
    following = text[match.end() : match.end() + 24]
    unit, end = _unit(match["before"], following)
    joined = not point and not match["sep"] and following[:1].isalpha() and not end
    if joined and not _FEW_LETTERS.match(following):  # the beginning of a name: 3scale2, 7zip_x
        return
    is_version = _is_version(text, match.start(), unit)
    if not is_version:
        point = point.rstrip("0").rstrip(".")
    sign = "-" if match["sign"] and (whole != "0" or point) else ""
    value, number = f"{sign}{whole}{point}", None
    if len(whole) + len(point) <= _LONGEST_VALUE:
        scale = _SUFFIXES.get(match["suffix"] or "", 1) * (_SCALES | {"dozen": 12}).get(match["scale"] or "", 1)
        if scale > 1:
            value = sign + _times(whole, point[1:], scale)
        if match["power"]:
            value += match["power"].lower()
        exact = is_version and point.endswith("0") and scale == 1 and not match["power"]  # 3.10 is not 3.1
        number = None if exact else float(value)
    elif match["suffix"] or match["scale"] or match["power"]:
        value = match[0]
    yield Figure((value + "%" if unit == "%" else value,), Span(match.start(), match.end() + end), unit, number)


def _is_in_name(text: str, start: int) -> bool:
    """Whether the digits that begin here are behind a hyphen and a name, as in GPT-4; mid-2019 is none."""
    if text[start - 1 : start] != "-":
        return False
    word = re.search(r"[^\W\d_]{1,24}-\Z", text[max(0, start - 25) : start])
    return word is not None and word[0] != word[0].lower()


def _times(whole: str, fraction: str, scale: int) -> str:
    """Return a decimal number times a scale, exactly."""
    product = int(whole + fraction) * scale
    if not fraction:
        return str(product)
    left, right = divmod(product, 10 ** len(fraction))
    rest = f"{right:0{len(fraction)}}".rstrip("0")
    return f"{left}.{rest}" if rest else str(left)


def _is_version(text: str, start: int, unit: str) -> bool:
    """Whether the number that begins here is behind a name or ``version``, so that 3.10 is not 3.1."""
    before = text[max(0, start - 24) : start].rstrip(" `*\"'")
    word = re.search(r"[A-Za-z.]{2,20}\Z", before)
    return not unit and word is not None and (word[0][0].isupper() or word[0].lower() in {"version", "release"})


def _in_words(match: re.Match[str], text: str) -> Iterator[Figure]:
    words = [word for word in re.split(r"[ -]+", match["words"].lower()) if word not in {"and", "a", "an", "another"}]
    behind, half = match.end(), False
    if text.startswith(" and a half", behind):
        behind, half = behind + len(" and a half"), True
    following = text[behind : behind + 24]
    negative = text[max(0, match.start() - 6) : match.start()].lower() == "minus "
    unit, end = unit_of(following)
    if words == ["one"] and not unit:  # often a pronoun
        return
    if words[0] in _SCALES and not match["words"].lower().startswith(("a ", "an ", "another ")):  # several thousand
        return
    found = list(_values(words))
    for value in found:
        sign = "-" if negative and (value or half) else ""
        shown = f"{sign}{value}.5" if half and value is found[-1] else f"{sign}{value}"
        whole = shown + "%" if unit == "%" else shown
        yield Figure((whole,), Span(match.start(), behind + end), unit, float(shown))


def _values(words: list[str]) -> Iterator[int]:
    """Yield the numbers that words make together: two hundred five is one, two three are two."""
    total, current, last = 0, 0, 0
    for word in words[:_LONGEST_VALUE]:
        if word in _SCALES:
            scale = _SCALES[word]
            if scale == 100:
                current = max(current, 1) * 100
            else:
                total, current = total + max(current, 1) * scale, 0
            last = scale
            continue
        value = _SMALL[word]
        if last and not (last >= 100 or (last >= 20 and 0 < value < 10)):
            yield total + current
            total, current = 0, 0
        current, last = current + value, max(value, 1)
    yield total + current


def _unit(before: str | None, following: str) -> tuple[str, int]:
    if before is not None:
        return CURRENCIES.get(before.strip(), before.strip()), 0
    return unit_of(following)


def _bare(digits: str) -> str:
    return digits.lstrip("0") or "0"
