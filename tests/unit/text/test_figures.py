"""Figures of texts."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.text.figures import figures_in, missing_figures
from support.examples import times

NOTHING: frozenset[str] = frozenset()


def values(text: str) -> set[str]:
    return {figure.value for figure in figures_in(text)}


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("1,000", {"1000"}),
        ("1 000", {"1000"}),
        ("1\u00a0000\u202f000", {"1000000"}),
        ("1_000 1'000", {"1000"}),
        ("one thousand", {"1000"}),
        ("1k", {"1000"}),
        ("2.5 million", {"2500000"}),
        ("$5bn", {"5000000000"}),
        ("two hundred, a million", {"200", "1000000"}),
        ("twenty-five", {"25"}),
        ("two three", {"2", "3"}),
        ("three replicas", {"3"}),
        ("one of them", NOTHING),
        ("one hour", {"1"}),
        ("several thousand people", NOTHING),
        ("10ms, 10 ms", {"10"}),
        ("50%, 50 percent, fifty per cent", {"50"}),
        ("-5 and \u22125", {"-5"}),
        ("5-10", {"5", "10"}),
        ("3.50, 3.5", {"3.50", "3.5"}),
        ("Python 3.10", {"3.10"}),
        ("version 3.10", {"3.10"}),
        ("1.2.3 and v1.2.3", {"1.2.3"}),
        ("1.2.3-rc1", {"1.2.3"}),
        ("v2", {"2"}),
        ("10.0.0.1.", {"10.0.0.1"}),
        ("3 May 2019", {"3", "2019"}),
        ("May 3rd, 2019", {"3", "2019"}),
        ("2019-05-03 2019/05/03", {"3", "5", "2019"}),
        ("25.12.2019", {"25.12.2019"}),
        ("they may 5", {"5"}),
        ("2 pm, 2:00 p.m., 14:00", {"14:00"}),
        ("12 am", {"00:00"}),
        ("9:30, 9:30 am", {"09:30"}),
        ("the 1990s", {"1990s"}),
        ("the third, the 3rd", {"3"}),
        ("2\u00bd", {"2.5"}),
        ("the first half", NOTHING),
        ("$5m", {"5000000"}),
        ("5 percentage points", {"5"}),
        ("one third", NOTHING),
        ("sha256, GPT-4, utf8, COVID-19, IL6", NOTHING),
        ("mid-2019", {"2019"}),
        ("--replicas=3 and port:8080", {"3", "8080"}),
        ("It is so [1], and [2, 3][4].", NOTHING),
        ("1. first\n2) second\n## 3. heading", NOTHING),
        ("It was 2019. Then", {"2019"}),
        ("\u0663\u066b\u0665", {"3.5"}),
        ("\uff14\uff15\uff05", {"45"}),
        ("007", {"7"}),
    ],
)
def test_figures_have_one_form(text: str, figures: set[str] | frozenset[str]) -> None:
    """However a figure is written, it is found in one form; what only looks like one is left out."""
    assert values(text) == figures


def test_figures_have_a_unit() -> None:
    """Behind them, or before if it is a currency."""
    text = "Wait \u0661\u0660 seconds, pay \u20ac5, take 3."
    assert [(one.value, one.unit) for one in figures_in(text)] == [("10", "second"), ("5", "\u20ac"), ("3", "")]


@pytest.mark.parametrize(
    ("claim", "evidence", "missing"),
    [
        ("1.5 hours", "90 minutes", ()),
        ("1100 g", "1.1 kg", ()),
        ("0.5 l", "500 ml", ()),
        ("90 s", "90 minutes", ("90",)),
        ("90 s", "90", ()),
        ("in 2019", "on 3 May 2019", ()),
        ("on 3 May 2019", "in May 2019", ("3",)),
        ("5%", "5", ()),
        ("1.2.3", "1.2.4", ("1.2.3",)),
        ("Python 3.1", "Python 3.10", ("3.1",)),
        ("5 kW", "5 W", ("5",)),
        ("5000 W", "5 kW", ()),
        ("$5", "$5m", ("5",)),
        ("3 percent", "3 percentage points", ("3",)),
        ("\u00bd hour", "30 minutes", ()),
        ("160 degrees Fahrenheit", "160 \u00b0C", ("160",)),
        ("on 3 May 2019", "on 2019-05-03", ()),
        ("on 3 May 2019", "on 3 March 2019", ("3",)),
    ],
)
def test_missing_figures(claim: str, evidence: str, missing: tuple[str, ...]) -> None:
    """A figure is there in another form or unit, and a part of a date in the date."""
    assert missing_figures(claim, evidence) == missing


@settings(max_examples=times(200), deadline=None)
@given(st.text(alphabet=st.sampled_from("0159.,:-/%[] \u0663\uff15kmsMay'thone$\n|`nt"), max_size=60))
def test_a_text_has_its_own_figures(text: str) -> None:
    """Whatever a text looks like, none of its figures is missing in itself."""
    assert missing_figures(text, text) == ()


@settings(max_examples=times(200), deadline=None)
@given(st.integers(0, 10**12), st.sampled_from(",_' \u00a0\u202f"))
def test_separators_change_nothing(number: int, separator: str) -> None:
    """A number is the same with and without thousands separators."""
    assert values(f"It has {number:,} parts.".replace(",", separator)) == {str(number)}


@settings(max_examples=times(200), deadline=None)
@given(st.dates(dt.date(1000, 1, 1), dt.date(2999, 12, 31)))
def test_dates_are_the_same_in_all_forms(date: dt.date) -> None:
    """A date in words and one in figures say the same."""
    forms = [f"{date.day} {date:%B} {date.year}", f"{date:%B} {date.day}, {date.year}", date.isoformat()]
    assert not any(missing_figures(one, other) for one in forms for other in forms)


@pytest.mark.parametrize(
    "unit", ["1 ", "1,", "1.", "[1,", "May ", "one ", "1:00", "1,000,", "a ", "#> ", "1 000 ", "-"]
)
def test_long_rows_of_figures(unit: str) -> None:
    """What repeats that which patterns look for is read to its end, and has no more figures than its length allows."""
    short, long = figures_in(unit * 100), figures_in(unit * 10_000)
    assert len(long) <= 110 * max(1, len(short))
