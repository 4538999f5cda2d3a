"""Results show themselves in one line, which hostile text does not harm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core import Chunk, Document, FederatedIndex, Hit, RetrievalResult, Scores, open_index
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from retrieval_core import Index

HOSTILE = '<script>alert("x")</script> <img src=x onerror=alert(1)> & \u202egnp.exe \x1b[31m\x00 '
LONG = "The moon is far away. " * 500
MOST = 500
"""Characters of a line: a few fields of at most 60 characters."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """Yield an index with hostile names and texts."""
    with open_index(
        tmp_path / "index.db", embedder=FakeEmbedder(), token_counter=lambda text: len(text.split())
    ) as one:
        document = Document(
            f"a{HOSTILE}", f"{HOSTILE} {LONG}", title=HOSTILE, metadata={HOSTILE: HOSTILE, "long": LONG}
        )
        one.add_documents([document, Document("b", "The moon is 384,400 km away.", "b.txt")])
        yield one


def values(index: Index) -> dict[str, Any]:
    result = index.retrieve("how far away is the moon")
    pack, answer = index.context("how far away is the moon"), index.answer("how far away is the moon")
    first = next(hit for hit in result.hits if hit.chunk.document_id != "b")
    return {
        "RetrievalResult": result,
        "Hit": first,
        "Chunk": first.chunk,
        "Scores": first.scores,
        "Document": index.document(first.chunk.document_id),
        "DocumentInfo": next(iter(index.documents())),
        "ContextPack": pack,
        "ContextPassage": pack.passages[0],
        "Answer": answer,
        "Citation": pack.sources[0],
        "Index": index,
        "FederatedIndex": FederatedIndex({"one": index}),
    }


def test_each_value_is_a_short_line(index: Index) -> None:
    """The line names the type, is short whatever the text, and has no control character."""
    for name, value in values(index).items():
        for line in repr(value).split("\n"):
            assert len(line) <= MOST, line
            assert line.isprintable(), line
        assert repr(value).startswith(f"{name}(")


def test_a_result_lists_its_hits(index: Index) -> None:
    """The lines of a result have rank, ID, score, source and the first words of each hit."""
    lines = repr(index.retrieve("how far away is the moon", {"source": "b.txt"})).split("\n")
    assert lines[0].startswith("RetrievalResult(query='how far away is the moon', hits=1, ")
    assert re.fullmatch(
        r"  1\. Hit\(id='b#0', score=[-\d.]+, source='b\.txt', text='The moon is 384,400 km away\.'\)", lines[1]
    )


def test_a_result_without_a_query_is_shown() -> None:
    """Code that builds results need not have a query."""
    result = RetrievalResult("", (), "", {}, 1.0)
    assert repr(result) == "RetrievalResult(hits=0, latency_ms=1)"


def test_a_report_counts(tmp_path: Path) -> None:
    """The line of an indexing run has its counts, and names the files that failed."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("One text.")
    (tmp_path / "docs" / "broken.pdf").write_text("no PDF")
    with open_index(tmp_path / "index.db", config="lexical") as index:
        report = index.ingest(tmp_path / "docs")
    assert repr(report).startswith(
        "IndexReport(documents=1, chunks=1, added=1, updated=0, unchanged=0, removed=0, failed="
    )
    assert "broken.pdf" in repr(report)


def test_an_index_names_its_file_before_it_is_read(tmp_path: Path) -> None:
    """The line of an index reads nothing, so it also shows an index that does not exist."""
    with open_index(tmp_path / "new.db", config="lexical") as index:
        assert "new.db" in repr(index)
        assert not (tmp_path / "new.db").exists()


@given(st.text(), st.text())
def test_any_text_is_shown_in_one_line(name: str, text: str) -> None:
    """Whatever a chunk contains, it is shown in one line."""
    hit = Hit(Chunk(name, name, text, title=text, source=name, section_path=(text,)), 1.0, Scores())
    assert "\n" not in repr(hit)
