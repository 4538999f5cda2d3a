"""Drafted and imported cases."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite import IndexTarget, parse_suite
from retrieval_core.evaluate.suite.drafting import TO_CONFIRM, draft_from_index, draft_from_log, read_log, to_yaml
from retrieval_core.evaluate.suite.importing import import_cases
from retrieval_core.evaluate.suite.judging import folded
from retrieval_core.index.open import open_index
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.text.analysis import Analyzer
from retrieval_core.text.excerpts import OMISSION
from support.suites import small_index

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core.index.index import Index

GUIDE = """# Guide

## What is a tapir?

A tapir is a large animal with a short trunk that swims well.

## Overview

This part tells in a few words what all of the others tell.

## Feeding tapirs

They are given leaves, fruit and branches every morning and evening.
"""
OTHER = """# Trains

## Overview

This part tells in a few words what is told of trains below.

## Night trains to Vienna

They leave at nine from platform four, and have sleeping cars.
"""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    (tmp_path / "guide.md").write_text(GUIDE)
    (tmp_path / "trains.md").write_text(OTHER)
    config = load_config(overrides={"cache.enabled": False, "chunking.max_tokens": 40, "chunking.min_tokens": 5})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as opened:
        opened.ingest([tmp_path / "guide.md", tmp_path / "trains.md"])
        yield opened


def test_headings_become_questions_that_their_document_answers(index: Index) -> None:
    """Each in turn; what several sections are called is left out, and so is a title of one word."""
    cases = asyncio.run(draft_from_index(index, 40))
    assert [(case.query, list(case.expect.documents)) for case in cases] == [
        ("What is a tapir?", ["guide.md"]),
        ("Trains: Night trains to Vienna", ["trains.md"]),
        ("Guide: Feeding tapirs", ["guide.md"]),
    ]
    assert {case.skip for case in cases} == {TO_CONFIRM}


def test_every_drafted_case_rests_on_a_text_of_its_document(index: Index) -> None:
    for case in asyncio.run(draft_from_index(index, 40)):
        document = index.document(next(iter(case.expect.documents)))
        assert document is not None
        assert case.note is not None
        support = case.note.partition(" says: ")[2]
        for part in support.split(OMISSION.strip()):
            assert folded(part) in folded(document.text)


def test_titles_are_drafted_last(tmp_path: Path) -> None:
    """They ask for their document as nobody would, and are taken where there is nothing else."""
    beside = "It is told here at length, in more than eight words."
    (tmp_path / "a.md").write_text(f"# The title of one\n\n{beside}\n")
    (tmp_path / "b.md").write_text(f"# The title of two\n\n## Feeding and watering\n\n{beside}\n")
    config = load_config(overrides={"cache.enabled": False})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as index:
        index.ingest([tmp_path / "a.md", tmp_path / "b.md"])
        cases = asyncio.run(draft_from_index(index, 5))
    assert [case.query for case in cases] == ["The title of two: Feeding and watering", "The title of one"]


def test_no_more_are_drafted_than_asked_for(index: Index) -> None:
    assert len(asyncio.run(draft_from_index(index, 2))) == 2
    with pytest.raises(InvalidParameterError):
        asyncio.run(draft_from_index(index, 0))


def test_there_has_to_be_something_to_ask_for(tmp_path: Path) -> None:
    config = load_config(overrides={"cache.enabled": False})
    with open_index(tmp_path / "absent.db", config=config, embedder=FakeEmbedder()) as absent:
        with pytest.raises(IndexNotFoundError):
            asyncio.run(draft_from_index(absent, 40))
        (tmp_path / "plain.txt").write_text("A text without any heading, however long it may be.")
        absent.ingest(tmp_path / "plain.txt")
        with pytest.raises(InvalidParameterError, match="no document has a unique heading"):
            asyncio.run(draft_from_index(absent, 40))


def test_a_draft_can_be_read(index: Index) -> None:
    cases = asyncio.run(draft_from_index(index, 40))
    suite = parse_suite(to_yaml("drafted", cases, "index.db"))
    assert (suite.index, suite.cases) == ("index.db", cases)


def test_questions_of_a_log_expect_what_is_first_today(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text('stripes of a tapir calf\n\n{"query": "Kafka brokers"}\nStripes  of a TAPIR calf\n{broken\n')
    questions = read_log(log)
    assert questions == ["stripes of a tapir calf", "Kafka brokers"]
    with small_index(tmp_path, search__mode="dense") as index:
        cases = asyncio.run(draft_from_log(IndexTarget(index), questions, 10, Analyzer()))
    assert list(cases[0].expect.documents) == ["tapirs.md"]
    assert cases[0].note == "tapirs.md#1 says: A tapir calf has stripes and spots."
    assert cases[1].finds_nothing
    assert {case.skip for case in cases} == {TO_CONFIRM}


def test_any_log_makes_a_suite_that_can_be_read(tmp_path: Path) -> None:
    """Whatever was asked: texts without a visible letter, halves of characters, and long ones that begin alike."""
    log = tmp_path / "log.jsonl"
    asked = ["tapirs\u2028swim", "\u200b", "half \ud800", "x" * 200 + "1", "x" * 200 + "2", "a\0b"]
    lines = [json.dumps({"query": text}) for text in asked[1:]]
    log.write_text("\n".join([json.dumps({"query": asked[0]}, ensure_ascii=False), *lines]), encoding="utf-8")
    questions = read_log(log)
    assert questions == [*asked[:2], "half \ufffd", *asked[3:]]
    with small_index(tmp_path) as index:
        cases = asyncio.run(draft_from_log(IndexTarget(index), questions, 10, Analyzer()))
    assert parse_suite(to_yaml("drafted", cases)).cases == cases


def test_a_log_without_questions_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("\n{}\n")
    with pytest.raises(InvalidParameterError, match="contains no question"):
        read_log(log)
    with pytest.raises(UnreadableFileError):
        read_log(tmp_path / "absent.txt")


def test_tables_are_imported(tmp_path: Path) -> None:
    table = tmp_path / "questions.csv"
    table.write_text(
        'Question,expected_file,Rating\nhow?,a.md,5\n,b.md\nwhy?,\nhow?,a.md; b.md;a.md\n"two\nlines",c.md\n'
        "a\u2028b\x0cc,d.md\n",
        encoding="utf-8-sig",
    )  # fmt: skip
    imported = import_cases(table)
    assert [(case.name, case.query, list(case.expect.documents)) for case in imported.cases] == [
        ("how?", "how?", ["a.md"]),
        ("how? (2)", "how?", ["a.md", "b.md"]),
        ("two lines", "two\nlines", ["c.md"]),
        ("a b c", "a\u2028b\x0cc", ["d.md"]),
    ]
    assert imported.left_out == (
        "the column 'Rating': cases have nothing like it",
        "line 3: it has no question",
        "line 4: it has no expected file",
    )


def test_what_promptfoo_says_of_texts_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "promptfooconfig.yaml"
    file.write_text("""
prompts: [x]
tests:
  - vars: {query: 'what is a tapir?'}
    assert:
      - {type: icontains, value: trunk}
      - {type: contains-all, value: [large, animal]}
      - {type: llm-rubric, value: is polite}
  - vars: {question: 'who swims?'}
    assert: [{type: contains-any, value: [tapir, owl]}]
  - vars: {topic: owls}
  - vars: {query: 'and now?'}
    assert: [{type: latency, threshold: 5}]
  - vars: {query: 'who eats leaves?'}
    assert: [{type: contains, value: tapir}, {type: contains-any, value: [calf, owl]}, {type: [1], value: x}]
  - vars: {query: 'one alone?'}
    assert: {type: contains, value: owl}
  - vars: {query: 'no list?'}
    assert: 5
defaultTest: {assert: [{type: cost}]}
""")
    imported = import_cases(file)
    assert [(c.query, list(c.expect.phrases), c.expect.matches) for c in imported.cases] == [
        ("what is a tapir?", ["trunk", "large", "animal"], "all"),
        ("who swims?", ["tapir", "owl"], "any"),
        ("who eats leaves?", ["tapir"], "all"),
        ("one alone?", ["owl"], "all"),
    ]
    assert [line.split(":")[0] for line in imported.left_out] == [
        "defaultTest", "test 1", "test 3", "test 4", "test 4", "test 5", "test 5", "test 7", "test 7",
    ]  # fmt: skip
    assert "'llm-rubric' says nothing of what is retrieved" in imported.left_out[1]
    assert "'contains-any', since a case expects all of its texts or any of them" in imported.left_out[5]


def test_promptfoos_json_may_have_tabs(tmp_path: Path) -> None:
    file = tmp_path / "promptfoo.json"
    test = {"vars": {"query": "who?"}, "assert": [{"type": "contains", "value": "owl"}]}
    file.write_text(json.dumps({"tests": [test]}, indent="\t"))
    assert [case.query for case in import_cases(file).cases] == ["who?"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x,y\n1,2\n"),
        ("a.yaml", "- ["),
        ("a.yaml", "name: x"),
        ("a.txt", "x"),
        ("a.json", "7"),
        ("a.csv", ""),
        ("a.yaml", "tests: [2024-13-45]"),
        ("a.json", "{"),
        ("a.csv", 'question,file\n"' + "q" * 200_000 + '",x'),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidParameterError):
        import_cases(tmp_path / name)
    with pytest.raises(UnreadableFileError):
        import_cases(tmp_path / "absent.csv")
