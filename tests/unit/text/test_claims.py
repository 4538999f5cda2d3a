"""Figures, names and negations of texts, and whether a sentence says what a claim says."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS
from retrieval_core.text.claims import Difference, compare, figures_in, figures_of, missing_figures, read
from support.examples import times

NOTHING: frozenset[str] = frozenset()
MAY_THIRD = frozenset({"2019-05-03", "2019-05", "--05-03", "2019"})


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
        ("two hundred and fifty thousand", {"250000"}),
        ("twenty-five", {"25"}),
        ("two three", {"2", "3"}),
        ("four and a half hours", {"4.5"}),
        ("three replicas", {"3"}),
        ("a dozen eggs", {"12"}),
        ("twice", {"2"}),
        ("one of them", NOTHING),
        ("one hour", {"1"}),
        ("several thousand people", NOTHING),
        ("10ms, 10 ms", {"10"}),
        ("1h30m", {"1", "30"}),
        ("50%, 50 percent, fifty per cent", {"50%"}),
        ("-5 and \u22125 and minus 5 and minus five", {"-5"}),
        ("5-10", {"5", "10"}),
        ("3.50, 3.5", {"3.5"}),
        ("Python 3.10", {"3.10"}),
        ("version 3.10", {"3.10"}),
        ("1.2.3 and v1.2.3", {"1.2.3"}),
        ("1.2.3-rc1", {"1.2.3-rc1"}),
        ("v2", {"2"}),
        ("10.0.0.1.", {"10.0.0.1"}),
        ("1e-5", {"1e-5"}),
        ("3 May 2019", MAY_THIRD),
        ("May 3rd, 2019", MAY_THIRD),
        ("the 3rd of May 2019", MAY_THIRD),
        ("2019-05-03 2019/05/03", MAY_THIRD),
        ("May 2019", {"2019-05", "2019"}),
        ("25/12/2019 12/25/2019 25.12.2019", {"2019-12-25", "2019-12", "--12-25", "2019"}),
        ("03/05/2019", {"03/05/2019", "2019"}),
        ("they may 5", {"5"}),
        ("2 pm, 2:00 p.m., 14:00", {"14:00"}),
        ("12 am", {"00:00"}),
        ("2019-05-03T10:30:00Z", MAY_THIRD | {"10:30"}),
        ("the 1990s", {"1990s"}),
        ("the third, the 3rd", {"#3"}),
        ("one third of, \u2153 of", {"1/3"}),
        ("2\u00bd and 2 1/2 of", {"2.5", "2", "1/2"}),
        ("two thirds of, 2/3 of", {"2/3"}),
        ("half an hour", {"1/2"}),
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
        ("\uff14\uff15\uff05", {"45%"}),
        ("007", {"7"}),
    ],
)
def test_figures_have_one_form(text: str, figures: set[str] | frozenset[str]) -> None:
    """However a figure is written, it is found in one form; what only looks like one is left out."""
    assert figures_of(text) == figures


def test_figures_know_their_place_and_unit() -> None:
    """A figure's span holds its unit."""
    text = "Wait \u0661\u0660 seconds, pay \u20ac5."
    assert [(text[one.span.start : one.span.end], one.unit) for one in figures_in(text)] == [
        ("\u0661\u0660 seconds", "s"),
        ("\u20ac5", "\u20ac"),
    ]


@pytest.mark.parametrize(
    ("claim", "evidence", "missing"),
    [
        ("1.5 hours", "90 minutes", ()),
        ("1100 g", "1.1 kg", ()),
        ("0.5 l", "500 ml", ()),
        ("90 s", "90 minutes", ("90",)),
        ("90 s", "90", ()),
        ("in 2019", "on 3 May 2019", ()),
        ("on 3 May 2019", "in May 2019", ("2019-05-03",)),
        ("5%", "5", ()),
        ("1.2.3", "1.2.4", ("1.2.3",)),
        ("Python 3.1", "Python 3.10", ("3.1",)),
        ("5 kW", "5 W", ("5",)),
        ("5000 W", "5 kW", ()),
        ("100 yuan", "100 yen", ("100",)),
        ("$5", "$5m", ("5",)),
        ("3 percent", "3 percentage points", ("3%",)),
        ("120 kilometres", "120 square kilometres", ("120",)),
        ("120 km\u00b2", "120 square kilometres", ()),
        ("half an hour", "30 minutes", ()),
        ("50% of them", "half of them", ()),
        ("one third of them", "two thirds of them", ("1/3",)),
    ],
)
def test_missing_figures(claim: str, evidence: str, missing: tuple[str, ...]) -> None:
    """A figure is there in another form or unit, and a part of a date in the date."""
    assert missing_figures(claim, evidence) == missing


def found(claim: str, sentence: str, context: str = "") -> str:
    """Return how a sentence compares: same, neither, or the claim's words before the sentence's."""
    result = compare(read(claim), read(sentence), read(context).tokens)
    if isinstance(result, Difference):
        return f"not {result.claim}" if result.is_denial else f"{result.claim} / {result.sentence}"
    return result or "neither"


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("Visitors must carry a valid passport.", "Visitors must carry a valid passport and pay a fee of 12 euros."),
        ("Visitors must pay a fee of 12 euros.", "Visitors must carry a valid passport and pay a fee of 12 euros."),
        ("The handle is red.", "The lid is blue, but the handle is red."),
        ("The telescope had a lens of 3 m.", "The telescope, built in Vienna, had a lens of 3 m."),
        ("The fund charges a fee of 2%.", "The fund charges an annual fee of two per cent."),
        ("The dough rests for 1.5 hours.", "The dough rests for 90 minutes at room temperature."),
        ("It opens in May 2019.", "It opens on 3 May 2019."),
        ("The lid doesn't close.", "The lid does not close."),
        ("Users may delete files.", "Users can delete files."),
        ("Backups are not stored.", "The backups, however, aren't stored."),
        ("Windows 7 is not supported.", "Windows 7 is no longer supported."),
        ("The pump uses only water.", "The pump uses nothing but water."),
        ("The rival is Jonas Berg.", "The rival is Captain Jonas Berg."),
        ("Das Ger\u00e4t ist nicht wasserdicht.", "Das Ger\u00e4t ist nicht wasserdicht."),
    ],
)
def test_what_says_the_same(claim: str, sentence: str) -> None:
    """All words in their order, whatever harmless ones the sentence has besides, and figures in any form."""
    assert found(claim, sentence) == "same"


@pytest.mark.parametrize(
    ("claim", "sentence", "difference"),
    [
        ("The bridge opened in 1898.", "The bridge opened in 1989.", "1898 / 1989"),
        ("Wait 30 seconds at the door.", "Wait 60 seconds at the door.", "30 seconds / 60 seconds"),
        ("The batter rests for 20 hours.", "The batter rests for 20 minutes.", "20 hours / 20 minutes"),
        ("It costs 400 euros a month.", "It costs 400 euros a year.", "month / year"),
        ("The museum closes on Monday.", "The museum closes on Friday.", "Monday / Friday"),
        ("It was built by Ines Marrow.", "It was built by Pieter Haan.", "Ines Marrow / Pieter Haan"),
        ("Residents may not cross without a pass.", "Residents may cross without a pass.", "not cross"),
        ("Redirects aren't followed here.", "Redirects are followed here.", "not followed"),
        ("Passwords are stored in plain text.", "Passwords are long and are not stored in plain text.", "not stored"),
        ("The lock is open.", "The lock is never open, so ring.", "not open"),
        ("Dogs may enter the house.", "Dogs may enter the garden but not the house.", "not house"),
    ],
)
def test_what_differs_exactly(claim: str, sentence: str, difference: str) -> None:
    """One figure, unit, date, name or negation is another one, and everything else is in its place."""
    assert found(claim, sentence) == difference


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        ("A12 is 8 m long.", "A12 is 4 m high and B12 is 8 m long."),
        ("Tickets are refunded.", "Tickets are refunded only if the concert is cancelled."),
        ("Tickets are refunded.", "If the concert is cancelled, tickets are refunded."),
        ("Shops are open daily.", "Shops are open daily, but not on Sundays."),
        ("The drug causes nausea.", "The drug may cause nausea."),
        ("The drug is safe.", "The drug is safe above the age of 12."),
        ("Nordlicht acquired Solvana.", "Nordlicht was acquired by Solvana."),
        ("You should drink.", "You should not smoke and drink."),
        ("Users can delete files.", "Not all users can delete files."),
        ("All seats are sold.", "Nearly all seats are sold."),
        ("The bridge was closed in 2019.", "It is not true that the bridge was closed in 2019."),
        ("The firm opens a shop.", "The firm plans to open a shop."),
        ("The firm sold cars in 2012.", "The firm stopped selling cars in 2012."),
        ("The museum is free for students.", "The museum is free for children and students pay 4 euros."),
        ("Coffee is not served.", "Coffee is not served after 5 pm."),
        ("Coffee is served.", "Coffee is not served after 5 pm."),
        ("The pump uses water.", "The pump uses nothing but water."),
        ("The pump does not use water.", "The pump uses nothing but water."),
        ("The X3 weighs 2 kg.", "The X1 weighs 2 kg."),
        ("In 2018 they sold 5 cars.", "In 2019 they sold 5 cars."),
        ("If it is not red, push the door.", "If it is red, push the door."),
        ("Leeds beat Fulham 2-0.", "Leeds beat Fulham 3-1."),
        ("Otters eat large eels.", "Large eels eat otters."),
        ("The red lamp is on.", "The blue lamp is on."),
        ("Das Ger\u00e4t ist wasserdicht.", "Das Ger\u00e4t ist nicht wasserdicht."),
        ("Yes.", "Yes."),
        ("", "Saturn has rings."),
        ("Saturn has rings.", ""),
    ],
)
def test_what_is_neither(claim: str, sentence: str) -> None:
    """Conditions, limits, other subjects, other orders, several differences: nothing can be said exactly."""
    assert found(claim, sentence) == "neither"


def test_a_pronoun_stands_for_the_subject_before() -> None:
    """Only what the context has may be said in the place of a pronoun."""
    assert found("The Vela 3 weighs 2 kg.", "It weighs 2 kg.", "The Vela 3 is new.") == "same"
    assert found("The Vela 3 weighs 2 kg.", "It weighs 3 kg.", "The Vela 3 is new.") == "2 kg / 3 kg"
    assert found("The Vela 3 weighs 2 kg.", "It weighs 2 kg.", "The Orion is new.") == "neither"


def test_long_texts_are_neither() -> None:
    """What would take long to compare is not compared, rather than in part."""
    words = "the " + " ".join(f"word{number}" for number in range(100))
    assert found(words, words) == "same"
    assert found(f"{words} more", f"{words} more") == "neither"


def test_words_that_repeat_without_end() -> None:
    """What is the same is found at once, whatever else might be left out; the search for the rest has an end."""
    words = ", the ".join(["the pump"] * 90)
    assert found(words, f"{words} the.") == "same"
    for between in (" and ", ", the ", " of the "):
        assert found(" and ".join(["pump"] * 50) + " valve", between.join(["the pump"] * 100)) == "neither"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts(text: str) -> None:
    """Nothing breaks the reading of a text."""
    reading = read(text)
    assert all(0 <= token.start < token.end <= len(text) for token in reading.tokens)
    assert compare(reading, reading, reading.tokens) in {"same", None}


@settings(max_examples=times(200), deadline=None)
@given(st.text(alphabet=st.sampled_from("0159.,:-/%[] \u0663\uff15kmsMay'thone$\n|`nt"), max_size=60))
def test_a_text_has_its_own_figures(text: str) -> None:
    """Whatever a text looks like, none of its figures is missing in itself, and all spans are inside and in order."""
    assert missing_figures(text, text) == ()
    found = figures_in(text)
    ends = [place for figure in found for place in (figure.span.start, figure.span.end)]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)


@settings(max_examples=times(200), deadline=None)
@given(st.integers(0, 10**12), st.sampled_from(",_' \u00a0\u202f"))
def test_separators_change_nothing(number: int, separator: str) -> None:
    """A number is the same with and without thousands separators."""
    assert figures_of(f"It has {number:,} parts.".replace(",", separator)) == {str(number)}


@settings(max_examples=times(200), deadline=None)
@given(st.dates(dt.date(1000, 1, 1), dt.date(2999, 12, 31)))
def test_dates_are_the_same_in_all_forms(date: dt.date) -> None:
    """A date in words and one in figures have the same figures."""
    forms = [f"{date.day} {date:%B} {date.year}", f"{date:%B} {date.day}, {date.year}", date.isoformat()]
    assert len({figures_of(form) for form in forms}) == 1


@pytest.mark.parametrize(
    "unit", ["1 ", "1,", "1.", "[1,", "May ", "one ", "1:00", "1,000,", "a ", "#> ", "1 000 ", "-"]
)
def test_long_rows_of_figures(unit: str) -> None:
    """What repeats that which patterns look for is read to its end, and has no more figures than its length allows."""
    short, long = figures_in(unit * 100), figures_in(unit * 10_000)
    assert len(long) <= 110 * max(1, len(short))
