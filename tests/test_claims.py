"""Figures, names and negations of texts, and what of a claim an evidence lacks."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval_core.claims import differences, figures_in, figures_of, missing_figures, rules_id, statement_of
from retrieval_core.testing.embedder_kit import HOSTILE_TEXTS

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


@pytest.mark.parametrize(
    ("claim", "evidence", "where", "what"),
    [
        ("It opened in 1898.", "It opened in 1989.", "other_figures", (("1898", "1989"),)),
        ("Wait 30 seconds.", "Wait 60 seconds.", "other_figures", (("30 seconds", "60 seconds"),)),
        (
            "It was built by Ines Marrow.",
            "It was built by Pieter Haan.",
            "other_names",
            (("Ines Marrow", "Pieter Haan"),),
        ),
        ("See King Harald there.", "See King Edric there.", "other_names", (("Harald", "Edric"),)),
        ("Set `MAX_SIZE` here.", "Set `MAX_BYTES` here.", "other_names", (("MAX_SIZE", "MAX_BYTES"),)),
        ("Run `acl add USER`.", "Run `acl grant USER`.", "other_names", (("acl add USER", "acl grant USER"),)),
        ("It is closed on Monday.", "It is closed on Friday.", "other_words", (("Monday", "Friday"),)),
        ("The frame is made of carbon.", "The frame is made of steel.", "other_words", (("carbon", "steel"),)),
        ("The cache is enabled.", "The cache is disabled.", "opposites", (("enabled", "disabled"),)),
        ("The link is safe.", "The link is unsafe.", "opposites", (("safe", "unsafe"),)),
        ("Redirects are followed.", "Redirects are not followed.", "denied", ("followed",)),
        ("Redirects aren't followed.", "Redirects are followed.", "denied", ("followed",)),
        ("Windows is still supported.", "Windows is no longer supported.", "denied", ("supported",)),
        ("It runs once per week.", "It runs once per day.", "other_words", (("per week", "per day"), ("week", "day"))),
        ("All of it is sold.", "Half of it is sold.", "other_words", (("All", "Half"),)),
        ("They won 1-2.", "They won 2-1.", "other_figures", (("1-2", "2-1"),)),
        ("Use a ratio of 1:3.", "Use a ratio of 3:1.", "other_figures", (("1:3", "3:1"),)),
        ("It was 10 of 7 people.", "It was 7 of 10 people.", "other_figures", (("10 of 7", "7 of 10"),)),
        ("It has 10^2 rows.", "It has 2^10 rows.", "other_figures", (("10^2", "2^10"),)),
        ("A12 has 8 ports.", "A12 has 4 ports and B12 has 8 ports.", "other_figures", (("8", "4"),)),
        ("In 2019 it was 7%.", "In 2019 it was 5% and in 2020 7%.", "other_figures", (("2019", "2020"), ("7%", "5%"))),
        ("North had 44 in 2022.", "north; 2022 41; 2023 44", "other_figures", (("44", "41"), ("2022", "2023"))),
        ("Germany won in 2014.", "France won in 2014.", "other_names", (("Germany", "France"),)),
        ("Smoking cures cancer.", "Smoking causes cancer.", "opposites", (("cures", "causes"),)),
        ("Solvana acquired Nordlicht.", "Nordlicht acquired Solvana.", "swapped", ("Solvana", "Nordlicht")),
        ("It moved from Bremen to Kiel.", "It moved from Kiel to Bremen.", "swapped", ("Bremen", "Kiel")),
    ],
)
def test_what_contradicts(claim: str, evidence: str, where: str, what: object) -> None:
    """Each kind of contradiction is told, with the claim's word before the evidence's."""
    found = differences(claim, evidence)
    assert getattr(found, where) == what
    assert found.contradict


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        ("Solvana was acquired by Nordlicht.", "Nordlicht acquired Solvana."),
        ("In summer the lake rises.", "The lake rises in summer."),
        ("Do not store it in the fridge.", "It should never be stored in the fridge."),
        ("The cache is not enabled.", "The cache is disabled."),
        ("It keeps no more than ten revisions.", "It keeps ten revisions."),
        ("Not only readers write.", "Readers write."),
        ("Ordering across partitions is not guaranteed.", "Ordering is guaranteed, but not across partitions."),
        ("Logs are disabled by default.", "Logs are not enabled by default."),
        ("It is not sold in Peru.", "It is sold in Chile and Bolivia, but not in Peru."),
        ("B12 has 8 ports.", "A12 has 4 ports and B12 has 8 ports."),
        ("The bridge has 4 lanes.", "The bridge is 412 m long and has four lanes."),
        ("It runs daily.", "It runs once a day."),
        ("Switch it on.", "Turn on the switch on Sundays."),
    ],
)
def test_what_does_not_contradict(claim: str, evidence: str) -> None:
    """The same said in another order, or with another negation, is no contradiction."""
    assert not differences(claim, evidence).contradict


def test_a_name_of_the_context_is_not_missing() -> None:
    """Evidence that says "it" is understood by the text it is from."""
    claim, evidence = "The Vela 3 weighs 2 kg.", "It weighs 2 kg."
    assert differences(claim, evidence).missing_names == ("Vela",)
    assert differences(claim, evidence, f"This is the Vela 3. {evidence}").missing_names == ()


@pytest.mark.parametrize(
    ("claim", "evidence", "strange"),
    [
        ("Ducks eat insects and small mammals.", "Ducks eat insects, seeds and small fish.", ("mammals",)),
        ("Nests are raided by foxes and bears.", "Nests are raided by foxes and rats.", ("bears",)),
        ("Redis keeps sessions in memory.", "Postgres keeps sessions in memory.", ("Redis",)),
        ("Only clerks have a key.", "Clerks have a key.", ("Only",)),
        ("Clerks have a key.", "Only clerks have a key.", ()),
        ("Passengers buy tickets before they board.", "Tickets must be bought before boarding.", ()),
        ("Ducks eat fish.", "Ducks eat insects, seeds and small fish.", ()),
    ],
)
def test_strange_words(claim: str, evidence: str, strange: tuple[str, ...]) -> None:
    """In what is else the evidence's wording, a word that it lacks is a fact that was altered or added."""
    assert differences(claim, evidence).strange_words == strange


def test_covered() -> None:
    """The part of the words that is there is 1 for the same text, and 0 where nothing is said or shared."""
    assert differences("Bake the bread.", "Bake the bread.").covered == 1
    assert differences("Bake the bread.", "Saturn has rings.").covered == 0
    assert differences("", "Saturn has rings.").covered == 0
    assert differences("Bake bread in 3 ovens.", "Bake bread.").covered == pytest.approx(0.5)


def test_rules_have_a_name() -> None:
    """The digest of the rules goes into ids, and stays what it is."""
    assert rules_id() == rules_id()
    json.dumps(rules_id())


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_texts(text: str) -> None:
    """Nothing breaks the reading of a text."""
    statement = statement_of(text)
    assert all(0 <= figure.span.start < figure.span.end <= len(text) for figure in statement.figures)
    differences(text[:2000], text[:2000], text)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("0159.,:-/%[] \u0663\uff15kmsMay'thone$\n|`nt"), max_size=60))
def test_a_text_has_its_own_figures(text: str) -> None:
    """Whatever a text looks like, none of its figures is missing in itself, and all spans are inside and in order."""
    assert missing_figures(text, text) == ()
    found = figures_in(text)
    ends = [place for figure in found for place in (figure.span.start, figure.span.end)]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
    assert not differences(text, text).missing_names


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**12), st.sampled_from(",_' \u00a0\u202f"))
def test_separators_change_nothing(number: int, separator: str) -> None:
    """A number is the same with and without thousands separators."""
    assert figures_of(f"It has {number:,} parts.".replace(",", separator)) == {str(number)}


@settings(max_examples=200, deadline=None)
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
