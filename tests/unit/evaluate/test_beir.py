"""Reading collections in BEIR's form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from retrieval_core.config import load_config
from retrieval_core.errors import InvalidParameterError, UnreadableFileError
from retrieval_core.evaluate.run import load_collection
from retrieval_core.index.open import open_index
from retrieval_core.testing.fakes import FakeEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DOCUMENTS = (
    {"_id": "d1", "title": "Wings", "text": "How wings carry.", "metadata": {"year": 1958}},
    {"_id": "Geneva Durben", "text": "Likes tapirs."},
    {"_id": "d3", "title": "", "text": ""},
)
QUERIES = ({"_id": "q1", "text": "wings?"}, {"_id": "q2", "text": "unjudged"}, {"_id": "q 3", "text": "tapirs?"})
JUDGEMENTS = "query-id\tcorpus-id\tscore\nq 3\tGeneva Durben\t2\nq1\td1\t1\nq1\td3\t0\n"


def write_collection(
    folder: Path,
    documents: Sequence[Any] = DOCUMENTS,
    queries: Sequence[Any] = QUERIES,
    judgements: str = JUDGEMENTS,
) -> Path:
    """Write a collection; lines that are text already are written as they stand."""
    for name, rows in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text(judgements, encoding="utf-8")
    return folder


def test_the_queries_are_those_with_a_judgement_in_the_order_of_their_file(tmp_path: Path) -> None:
    """A query that nobody judged cannot be right or wrong and is left out."""
    collection = load_collection(write_collection(tmp_path))
    assert list(collection.queries.items()) == [("q1", "wings?"), ("q 3", "tapirs?")]
    assert collection.judgements == {"q1": {"d1": 1, "d3": 0}, "q 3": {"Geneva Durben": 2}}
    assert collection.document_count == 3


def test_documents_carry_id_title_text_and_metadata(tmp_path: Path) -> None:
    """What the corpus says of a document is what is indexed of it."""
    first, second, _ = load_collection(write_collection(tmp_path)).documents()
    assert (first.id, first.title, first.text) == ("d1", "Wings", "How wings carry.")
    assert first.metadata == {"year": 1958}
    assert (second.id, second.title, second.metadata) == ("Geneva Durben", None, {})


def test_a_document_without_text_is_searched_by_its_title_and_one_without_either_is_kept(tmp_path: Path) -> None:
    """Both count as documents, and neither is an error."""
    documents = ({"_id": "d1", "title": "Just a title", "text": " "}, {"_id": "d2", "text": ""})
    collection = load_collection(write_collection(tmp_path, documents, QUERIES, "q1 0 d1 1\n"))
    first, second = collection.documents()
    assert (first.text, first.title) == ("Just a title", None)
    assert (second.text, second.title) == ("", None)


def test_metadata_of_the_corpus_can_be_filtered_on(tmp_path: Path) -> None:
    """A document's metadata are those of its passages."""
    documents = (*DOCUMENTS, {"_id": "d4", "text": "wings too", "metadata": {"year": 2001}})
    collection = load_collection(write_collection(tmp_path, documents))
    config = load_config(overrides={"store.kind": "memory"})
    with open_index(tmp_path / "index.db", config=config, embedder=FakeEmbedder()) as index:
        index.add_documents(collection.documents())
        found = index.retrieve("wings", {"year": {"$gt": 2000}})
    assert [hit.chunk.document_id for hit in found.hits] == ["d4"]


@pytest.mark.parametrize(
    "judgements",
    [
        "q1 0 d1 1\nq1 0 d3 0\n",
        "q1\t0\td1\t1\r\n\r\nq1\t0\td3\t0\r\n",
        "\ufeffq1\td1\t1\nq1\td3\t0",
        "query-id corpus-id score\nq1 d1 1\nq1 d3 0\nq1 d1 1\n",
    ],
)
def test_judgements_may_have_a_header_or_the_four_columns_of_trec(tmp_path: Path, judgements: str) -> None:
    """Tabs or spaces, Windows line ends, a byte order mark, empty lines and repeated judgements change nothing."""
    collection = load_collection(write_collection(tmp_path, judgements=judgements))
    assert collection.judgements == {"q1": {"d1": 1, "d3": 0}}


def test_other_judgements_can_be_given(tmp_path: Path) -> None:
    """Then the folder's own are not read."""
    (tmp_path / "mine.tsv").write_text("q2\td1\t1\n")
    collection = load_collection(write_collection(tmp_path, judgements="broken"), tmp_path / "mine.tsv")
    assert list(collection.queries) == ["q2"]


def test_first_takes_the_first_queries_and_all_documents(tmp_path: Path) -> None:
    """The corpus stays as it is, because fewer documents would make every query easier."""
    first = load_collection(write_collection(tmp_path)).first(1)
    assert (list(first.queries), list(first.judgements), first.document_count) == (["q1"], ["q1"], 3)
    with pytest.raises(InvalidParameterError, match="at least 1, got 0"):
        first.first(0)


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_a_missing_file_is_named_with_what_should_be_there(tmp_path: Path, name: str) -> None:
    """Someone who gave the wrong folder learns what a right one holds."""
    (write_collection(tmp_path) / name).unlink()
    with pytest.raises(UnreadableFileError, match="there is no such file; a collection is a folder with") as caught:
        load_collection(tmp_path)
    assert caught.value.path == str(tmp_path / name)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The reason is the operating system's."""
    (write_collection(tmp_path) / "queries.jsonl").unlink()
    (tmp_path / "queries.jsonl").mkdir()
    with pytest.raises(UnreadableFileError, match=r"queries\.jsonl: "):
        load_collection(tmp_path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "Invalid JSON"),
        ("[1]", "Input should be an object"),
        ({"text": "x"}, "_id: not set"),
        ({"_id": 7, "text": "x"}, "_id: Input should be a valid string, got 7"),
        ({"_id": " d", "text": "x"}, "_id: it must not begin or end with white space, got ' d'"),
        ({"_id": "", "text": "x"}, "_id: String should have at least 1 character"),
        ({"_id": "d"}, "text: not set"),
        ({"_id": "d", "text": "x", "title": 7}, "title: Input should be a valid string, got 7"),
        ({"_id": "d", "text": "x", "metadata": "y"}, "metadata: Input should be .*, got 'y'"),
        ('{"_id": "d", "text": "x", "metadata": {"n": NaN}}', "the metadata cannot be used: .*finite"),
        ({"_id": "d1", "text": "x"}, "the id 'd1' was there before"),
    ],
)
def test_a_broken_document_is_named_by_file_and_line(tmp_path: Path, row: Any, reason: str) -> None:
    """Empty lines count as lines, as they do in an editor."""
    with pytest.raises(UnreadableFileError, match=rf"corpus\.jsonl: line 3: .*{reason}"):
        load_collection(write_collection(tmp_path, (DOCUMENTS[0], "", row)))


def test_bytes_that_are_no_text_are_named_by_file_and_line(tmp_path: Path) -> None:
    """Files in another encoding are refused and never read as something else."""
    write_collection(tmp_path)
    (tmp_path / "qrels" / "test.tsv").write_bytes(b"q1\td1\t1\nq1\t\xff\t1\n")
    with pytest.raises(UnreadableFileError, match=r"test\.tsv: line 2: not UTF-8"):
        load_collection(tmp_path)
    (tmp_path / "corpus.jsonl").write_bytes(b'{"_id": "d\xff", "text": ""}')
    with pytest.raises(UnreadableFileError, match=r"corpus\.jsonl: line 1: .*"):
        load_collection(tmp_path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"_id": "q1", "text": "again"}, "the id 'q1' was there before"),
        ({"_id": "q2", "text": "\t"}, "the query 'q2' has an empty text"),
        ({"_id": "q2"}, "text: not set"),
    ],
)
def test_a_broken_query_is_named_by_file_and_line(tmp_path: Path, row: Any, reason: str) -> None:
    """What could not be asked is refused before anything is indexed."""
    with pytest.raises(UnreadableFileError, match=rf"queries\.jsonl: line 2: {reason}"):
        load_collection(write_collection(tmp_path, queries=(QUERIES[0], row)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("q1\td1", "expected query-id, corpus-id and score, .*got 'q1.td1'"),
        ("q 3 0 Geneva Durben 1", "separate ids that hold spaces with tabs"),
        ("q1\td1\tyes", "the grade must be a whole number, got 'yes'"),
        ("q9\td1\t1", r"there is no query 'q9'; add it to queries\.jsonl"),
        ("q1\td9\t1", r"there is no document 'd9'; add it to corpus\.jsonl"),
        ("q1\td1\t2", "already have the grade 1 and here get 2"),
    ],
)
def test_a_broken_judgement_is_named_by_file_and_line(tmp_path: Path, line: str, reason: str) -> None:
    """A judgement that cannot be used is never passed over."""
    with pytest.raises(UnreadableFileError, match=rf"test\.tsv: line 2: .*{reason}"):
        load_collection(write_collection(tmp_path, judgements=f"q1\td1\t1\n{line}\n"))


@pytest.mark.parametrize("judgements", ["", "query-id\tcorpus-id\tscore\n", "q1\td1\t0\n"])
def test_judgements_without_a_relevant_document_are_refused(tmp_path: Path, judgements: str) -> None:
    """Every measure would be 0 whatever was found."""
    with pytest.raises(UnreadableFileError, match="no document is judged relevant"):
        load_collection(write_collection(tmp_path, judgements=judgements))
