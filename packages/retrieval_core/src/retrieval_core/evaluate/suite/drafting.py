"""Drafts of cases, from what an index holds or from questions that were asked: each with the text that it rests on."""

from __future__ import annotations

import json
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, cast

import yaml

from retrieval_core.errors import InvalidParameterError, UnreadableFileError, checked_count
from retrieval_core.evaluate.suite.cases import Case, name_of
from retrieval_core.evaluate.suite.judging import folded
from retrieval_core.evaluate.suite.targets import LAST, SuiteQuestion, confidence_of, is_unlikely
from retrieval_core.index.builders.backends import build_analyzer
from retrieval_core.ports import Catalog, ChunkRange, FetchRequest
from retrieval_core.text.excerpts import Excerpter
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from retrieval_core.evaluate.suite.targets import Target
    from retrieval_core.index.index import Index
    from retrieval_core.text.analysis import Analyzer
    from retrieval_core.types import Chunk

TO_CONFIRM = "drafted; look at it, and remove this line"
"""Why a drafted case is not run."""
LONGEST_SUPPORT = 300
FEWEST_WORDS = 8
"""That a passage has to have beside its heading, to be worth a question."""
FEWEST_WORDS_ASKED = 3
"""Of a question: a title of one word or two could mean any part of its document."""
_AT_ONCE = 50


async def draft_from_index(index: Index, count: int) -> list[Case]:
    """Return cases for the sections of an index's documents: each asks for a heading, and expects its document.

    A heading is taken where no other section has it, so that there is one document to expect; those that are questions
    come first, and titles of documents, which ask for little, last. Every document has its turn before one has its
    second, and where there are more documents than cases, those are taken that lie evenly among all.

    Args:
        count: The most cases, at least 1.

    Raises:
        InvalidParameterError: The store cannot list its documents, none has a heading to ask for, or ``count`` is less
            than 1.
        RetrievalError: The index cannot be read.
    """
    checked_count(count, "count")
    await index.adescribe()  # an index that is not there has no sources either
    store = index.store
    if not isinstance(store, Catalog):
        msg = "this store does not list its documents; draft from a log of questions instead"
        raise InvalidParameterError(msg)
    documents = [document for source in sorted(await store.sources()) for document in await store.documents_of(source)]
    by_document: list[list[Chunk]] = []
    for start in range(0, len(documents), _AT_ONCE):
        ranges = tuple(ChunkRange(document, 0, LAST) for document in documents[start : start + _AT_ONCE])
        fetched = await store.fetch(FetchRequest(ranges=ranges))
        held: dict[str, list[Chunk]] = {}
        for chunk in sorted(fetched.chunks.values(), key=lambda chunk: (chunk.document_id, chunk.chunk_index)):
            held.setdefault(chunk.document_id, []).append(chunk)
        by_document += held.values()
    firsts = [list(_first_of_each_section(chunks)) for chunks in by_document]
    seen = Counter(folded(chunk.section_path[-1]) for chunks in firsts for chunk in chunks)
    wanted = [
        sorted((c for c in chunks if seen[folded(c.section_path[-1])] == 1), key=lambda c: not _asks(c))
        for chunks in firsts
    ]
    below = [[chunk for chunk in chunks if not _is_title(chunk)] for chunks in wanted]
    titles = [[chunk for chunk in chunks if _is_title(chunk)] for chunks in wanted]
    chosen: list[Chunk] = []
    for turn in (*zip_longest(*below), *zip_longest(*titles)):
        chosen += _evenly([chunk for chunk in turn if chunk is not None], count - len(chosen))
    if not chosen:
        msg = "no document has a unique heading to ask for; draft from a log of questions instead"
        raise InvalidParameterError(msg)
    analyzer = build_analyzer(index.config.analysis)
    names: set[str] = set()
    return [_case_of(chunk, analyzer, names) for chunk in chosen]


async def draft_from_log(target: Target, questions: Iterable[str], count: int, analyzer: Analyzer) -> list[Case]:
    """Return cases for questions that were asked: each expects what comes first today, for somebody to confirm.

    A question that nothing is likely to bear on becomes one that should find nothing.

    Raises:
        RetrievalError: The index cannot be searched.
    """
    checked_count(count, "count")
    cases: list[Case] = []
    names: set[str] = set()
    for question in list(dict.fromkeys(questions))[:count]:
        result = await target.retrieve(SuiteQuestion(question, 10))
        fields: dict[str, Any] = {"name": name_of(question, names), "query": question, "skip": TO_CONFIRM}
        confidence = confidence_of(result)
        if not result.hits or is_unlikely(result):
            told = "nothing was found" if confidence is None else f"confidence {confidence:.2f}"
            cases.append(Case.model_validate({**fields, "finds_nothing": True, "note": f"Found today: {told}."}))
            continue
        first = result.hits[0].chunk
        expected = {"documents": [first.document_id]}
        cases.append(Case.model_validate({**fields, "expect": expected, "note": _support(first, question, analyzer)}))
    return cases


def read_log(path: Path) -> list[str]:
    """Read questions: one a line, or JSON lines with ``query`` or ``question``; each once.

    Raises:
        UnreadableFileError: The file cannot be read.
        InvalidParameterError: It holds no question.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise UnreadableFileError(str(path), f"it cannot be opened: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError(str(path), f"it is not UTF-8 at byte {error.start}") from error
    asked: dict[str, str] = {}
    for line in lines:
        question = valid_unicode(_question_in(line)).strip()
        if question:
            asked.setdefault(folded(question), question)
    if not asked:
        msg = f"{path.name!r} contains no question; it needs one a line, or JSON lines with 'query'"
        raise InvalidParameterError(msg)
    return list(asked.values())


def to_yaml(name: str, cases: Sequence[Case], index: str | None = None) -> str:
    """Return a suite as YAML that :func:`~retrieval_core.evaluate.suite.loading.read_suite` reads."""
    told: dict[str, Any] = {"name": name}
    if index is not None:
        told["index"] = index
    told["cases"] = [_fields(case) for case in cases]
    return yaml.safe_dump(told, allow_unicode=True, sort_keys=False, width=100)


def _fields(case: Case) -> dict[str, Any]:
    fields = case.model_dump(exclude_unset=True)
    expected = cast("dict[str, Any]", fields.get("expect") or {})
    for kind in ("documents", "chunks", "phrases"):
        if kind in expected and set(expected[kind].values()) == {1}:
            expected[kind] = list(expected[kind])
    return fields


def _question_in(line: str) -> str:
    if not line.lstrip().startswith("{"):
        return line
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    given = next((told[name] for name in ("query", "question") if isinstance(told.get(name), str)), "")
    return cast("str", given)


def _evenly(chunks: Sequence[Chunk], count: int) -> list[Chunk]:
    """Return so many of these at most, from the first one on in equal steps."""
    if len(chunks) <= count:
        return list(chunks)
    return [chunks[number * len(chunks) // count] for number in range(count)]


def _first_of_each_section(chunks: Sequence[Chunk]) -> Iterator[Chunk]:
    """Yield the first passage under each heading that says something beside it."""
    done: set[tuple[str, ...]] = set()
    for chunk in chunks:
        path = chunk.section_path
        if not path or path in done or len(_question_of(chunk).split()) < FEWEST_WORDS_ASKED:
            continue
        if len(chunk.text.split()) - len(path[-1].split()) >= FEWEST_WORDS:
            done.add(path)
            yield chunk


def _asks(chunk: Chunk) -> bool:
    return chunk.section_path[-1].rstrip().endswith("?")


def _is_title(chunk: Chunk) -> bool:
    return chunk.section_path[-1] in _title_of(chunk)


def _title_of(chunk: Chunk) -> str:
    return chunk.title or chunk.section_path[0]


def _question_of(chunk: Chunk) -> str:
    """Return a heading as a question: as it is where it asks, and behind the title of its document elsewhere."""
    heading = chunk.section_path[-1]
    title = _title_of(chunk)
    if _asks(chunk) or title in heading:
        return heading
    return title if heading in title else f"{title}: {heading}"


def _case_of(chunk: Chunk, analyzer: Analyzer, names: set[str]) -> Case:
    question = _question_of(chunk)
    return Case.model_validate(
        {
            "name": name_of(f"{chunk.document_id}: {chunk.section_path[-1]}", names),
            "query": question,
            "expect": {"documents": [chunk.document_id]},
            "skip": TO_CONFIRM,
            "note": _support(chunk, question, analyzer),
        }
    )


def _support(chunk: Chunk, question: str, analyzer: Analyzer) -> str:
    text = Excerpter(question, analyzer).excerpt(chunk.text, LONGEST_SUPPORT) or chunk.text[:LONGEST_SUPPORT]
    return f"{chunk.id} says: {' '.join(text.split())}"
