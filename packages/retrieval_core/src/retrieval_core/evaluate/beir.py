"""Test collections in BEIR's format: documents, queries and relevance judgements.

::

    corpus.jsonl      {"_id": "d1", "title": "…", "text": "…", "metadata": {…}}   title and metadata may be absent
    queries.jsonl     {"_id": "q1", "text": "…"}
    qrels/test.tsv    query-id  corpus-id  score                                  a header, then one judgement a line

Judgements may also be a TREC file, ``query-id iteration corpus-id grade`` without a header. Columns are separated by
tabs; where a line has none, by white space.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from retrieval_core.errors import InvalidParameterError, UnreadableFileError, checked_count
from retrieval_core.types import Document, FrozenDict, content_hash

if TYPE_CHECKING:
    from collections.abc import Collection as SizedIterable
    from collections.abc import Generator, Iterator, Mapping
    from typing import BinaryIO

_HEADER = ("query-id", "corpus-id", "score")


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection; the corpus stays on disk.

    Attributes:
        corpus: The file of the documents.
        queries: Text by query id, in the order of their file; only those with a judgement.
        judgements: Grades by query id and document id; 0 and less is irrelevant, and more is better.
    """

    corpus: Path
    document_count: int
    queries: Mapping[str, str]
    judgements: Mapping[str, Mapping[str, int]]

    def documents(self) -> Iterator[Document]:
        """Read the documents from the corpus, one at a time; a document without text has its title as text.

        Raises:
            UnreadableFileError: The file cannot be read, or a line is broken.
        """
        for number, row in _rows(self.corpus):
            yield _document(self.corpus, number, row)

    def first(self, limit: int) -> Collection:
        """Return the collection with the first ``limit`` queries, and all documents.

        Raises:
            InvalidParameterError: ``limit`` is less than 1.
        """
        queries = FrozenDict(islice(self.queries.items(), checked_count(limit, "limit")))
        judgements = FrozenDict({query_id: self.judgements[query_id] for query_id in queries})
        return Collection(self.corpus, self.document_count, queries, judgements)


def load_collection(folder: str | Path, qrels: str | Path | None = None) -> Collection:
    """Read a collection and check it as a whole, before anything is indexed.

    Args:
        folder: Holds ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/test.tsv``.
        qrels: Other judgements than ``qrels/test.tsv``.

    Raises:
        UnreadableFileError: A file is missing, a line is broken, an id occurs twice, or a judgement names an unknown
            query or document. The message has the file and the line.
    """
    folder = Path(folder)
    corpus = folder / "corpus.jsonl"
    document_ids: set[str] = set()
    for number, row in _rows(corpus):
        document_ids.add(_unused(corpus, number, _document(corpus, number, row).id, document_ids))
    queries_file = folder / "queries.jsonl"
    texts = _read_queries(queries_file)
    qrels_file = Path(qrels) if qrels is not None else folder / "qrels" / "test.tsv"
    judgements = _read_judgements(qrels_file, texts, document_ids)
    queries = {query_id: text for query_id, text in texts.items() if query_id in judgements}
    return Collection(
        corpus,
        len(document_ids),
        FrozenDict(queries),
        FrozenDict({query_id: FrozenDict(judgements[query_id]) for query_id in queries}),
    )


def _document(file: Path, number: int, row: Mapping[str, Any]) -> Document:
    text, title = _text(file, number, row, "text"), _text(file, number, row, "title", default="")
    if not text.strip():
        text, title = title, ""
    try:
        return Document(
            id=_id(file, number, row),
            text=text,
            source=file.name,
            content_hash=content_hash(text),
            title=title or None,
            metadata=_metadata(file, number, row),
        )
    except InvalidParameterError as error:
        _refuse(file, number, f"the metadata cannot be used: {error}")


def _metadata(file: Path, number: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = row.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        _refuse(file, number, f"'metadata' must be a JSON object, got {metadata!r:.80}")
    return metadata or {}  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys


def _read_queries(file: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for number, row in _rows(file):
        query_id = _unused(file, number, _id(file, number, row), texts)
        texts[query_id] = _text(file, number, row, "text")
        if not texts[query_id].strip():
            _refuse(file, number, f"the query {query_id!r} has an empty text; give it one or leave it out")
    return texts


def _read_judgements(
    file: Path, queries: SizedIterable[str], documents: SizedIterable[str]
) -> dict[str, dict[str, int]]:
    judgements: dict[str, dict[str, int]] = {}
    for number, line in _lines(file):
        columns = _columns(file, number, line)
        if number == 1 and columns == _HEADER:
            continue
        query_id, document_id, written = columns
        grade = _grade(file, number, written)
        if query_id not in queries:
            _refuse(file, number, f"there is no query {query_id!r}; add it to queries.jsonl or leave the judgement out")
        if document_id not in documents:
            _refuse(
                file, number, f"there is no document {document_id!r}; add it to corpus.jsonl or leave the judgement out"
            )
        known = judgements.setdefault(query_id, {})
        if known.setdefault(document_id, grade) != grade:
            _refuse(
                file,
                number,
                f"query {query_id!r} and document {document_id!r} already have the grade {known[document_id]} and here "
                f"get {grade}; keep one of the two lines",
            )
    if not any(grade > 0 for grades in judgements.values() for grade in grades.values()):
        raise UnreadableFileError(str(file), "no document is judged relevant (a grade of 1 or more) to any query")
    return judgements


def _columns(file: Path, number: int, line: bytes) -> tuple[str, str, str]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        _refuse(file, number, "not UTF-8 text; convert the file to UTF-8")
    columns = [column.strip() for column in text.split("\t")] if "\t" in text else text.split()
    if len(columns) not in {3, 4}:
        form = "query-id, corpus-id and score, or query-id, iteration, corpus-id and grade"
        _refuse(file, number, f"expected {form}, got {text!r:.80}; separate ids that hold spaces with tabs")
    return columns[0], columns[-2], columns[-1]


def _grade(file: Path, number: int, written: str) -> int:
    try:
        return int(written)
    except ValueError:
        _refuse(file, number, f"the grade must be a whole number, got {written!r:.80}")


def _rows(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the JSON objects of a file with their line numbers, without empty lines."""
    for number, line in _lines(file):
        try:
            row = json.loads(line)
        except ValueError as error:  # broken JSON, and bytes that are no UTF-8
            _refuse(file, number, f"not valid JSON ({error}); each line must be one JSON object, in UTF-8")
        if not isinstance(row, dict):
            _refuse(file, number, f"each line must be one JSON object, got {row!r:.80}")
        yield number, row  # pyright: ignore[reportUnknownVariableType] - JSON objects have text keys


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with _opened(file) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield number, line


@contextmanager
def _opened(file: Path) -> Generator[BinaryIO]:
    try:
        with file.open("rb") as stream:
            yield stream
    except FileNotFoundError as error:
        hint = "a collection is a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv"
        raise UnreadableFileError(str(file), f"there is no such file; {hint}") from error
    except OSError as error:
        raise UnreadableFileError(str(file), error.strerror or type(error).__name__) from error


def _id(file: Path, number: int, row: Mapping[str, Any]) -> str:
    identifier = _text(file, number, row, "_id")
    if not identifier or identifier != identifier.strip():
        _refuse(file, number, f"'_id' must not be empty or begin or end with white space, got {identifier!r:.80}")
    return identifier


def _text(file: Path, number: int, row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key)
    value = default if value is None else value
    if not isinstance(value, str):
        found = "and it is missing" if value is None else f"got {value!r:.80}"
        _refuse(file, number, f"{key!r} must be text, {found}")
    return value


def _unused(file: Path, number: int, identifier: str, taken: SizedIterable[str]) -> str:
    if identifier in taken:
        _refuse(file, number, f"the id {identifier!r} was there before; ids must be unique")
    return identifier


def _refuse(file: Path, number: int, reason: str) -> NoReturn:
    raise UnreadableFileError(str(file), f"line {number}: {reason}")
