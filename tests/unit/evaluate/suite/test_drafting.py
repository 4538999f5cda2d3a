"""Drafted and imported cases."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import IndexNotFoundError, InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.suite import IndexTarget, parse_suite
from retrieval_core.evaluate.suite.drafting import TO_CONFIRM, draft_from_index, draft_from_log, read_log, to_yaml
from retrieval_core.evaluate.suite.importing import import_cases
from retrieval_core.evaluate.suite.judging import folded
from retrieval_core.index.open import open_index
from retrieval_core.pipeline.stages.excerpts import OMISSION
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.text.analysis import Analyzer
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
        with pytest.raises(InvalidParameterError, match="no document has a heading"):
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


def test_a_log_without_questions_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("\n{}\n")
    with pytest.raises(InvalidParameterError, match="holds no question"):
        read_log(log)
    with pytest.raises(UnreadableFileError):
        read_log(tmp_path / "absent.txt")


def test_tables_are_imported(tmp_path: Path) -> None:
    table = tmp_path / "questions.csv"
    table.write_text(
        'Question,expected_file\nhow?,a.md\n,b.md\nwhy?,\nhow?,a.md; b.md;a.md\n"two\nlines",c.md\n',
        encoding="utf-8-sig",
    )  # fmt: skip
    imported = import_cases(table)
    assert [(case.name, case.query, list(case.expect.documents)) for case in imported.cases] == [
        ("how?", "how?", ["a.md"]),
        ("how? (2)", "how?", ["a.md", "b.md"]),
        ("two lines", "two\nlines", ["c.md"]),
    ]
    assert imported.left_out == ("line 3: it has no question", "line 4: it has no expected file")


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
""")
    imported = import_cases(file)
    assert [(c.query, list(c.expect.phrases), c.expect.matches) for c in imported.cases] == [
        ("what is a tapir?", ["trunk", "large", "animal"], "all"),
        ("who swims?", ["tapir", "owl"], "any"),
    ]
    assert [line.split(":")[0] for line in imported.left_out] == ["test 1", "test 3", "test 4", "test 4"]
    assert "'llm-rubric' says nothing of what is retrieved" in imported.left_out[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "x,y\n1,2\n"), ("a.yaml", "- ["), ("a.yaml", "name: x"), ("a.txt", "x"), ("a.json", "7"), ("a.csv", "")],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidParameterError):
        import_cases(tmp_path / name)
    with pytest.raises(UnreadableFileError):
        import_cases(tmp_path / "absent.csv")
