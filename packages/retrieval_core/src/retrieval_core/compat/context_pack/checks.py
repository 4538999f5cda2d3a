"""What is checked of the values that come from elsewhere: lists of chunks, candidates and their metadata."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.expand import as_hits
from retrieval_core.types import Chunk, Hit, PageSpan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from retrieval_core.ports import LLM


def checked_chunks(all_chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """Return chunks by id, in their order; one that is given twice is there once.

    Raises:
        InvalidParameterError: Something else is among them, or two different chunks have the same id.
    """
    chunks: dict[str, Chunk] = {}
    for chunk in _items("all_chunks", all_chunks):
        if not isinstance(chunk, Chunk):
            msg = f"all_chunks must hold retrieval_core.Chunk objects, got {type(chunk).__name__}: {chunk!r:.80}"
            raise InvalidParameterError(msg)
        if chunks.setdefault(chunk.id, chunk) != chunk:
            msg = f"all_chunks holds two different chunks with the id {chunk.id!r:.80}; every chunk needs its own"
            raise InvalidParameterError(msg)
    return chunks


def checked_candidates(candidates: Sequence[Chunk | Hit]) -> tuple[Hit, ...]:
    """Return candidates as hits, in their order, each once; their scores are those of their ranks, falling from 1.

    Raises:
        InvalidParameterError: Something else is among them.
    """
    chunks: dict[str, Chunk] = {}
    for candidate in _items("candidates", candidates):
        if isinstance(candidate, Hit):
            chunks.setdefault(candidate.id, candidate.chunk)
        elif isinstance(candidate, Chunk):
            chunks.setdefault(candidate.id, candidate)
        else:
            msg = f"candidates must be chunks or hits, got {type(candidate).__name__}: {candidate!r:.80}"
            raise InvalidParameterError(msg)
    return as_hits(chunks.values(), (1 / rank for rank in range(1, len(chunks) + 1)))


def checked_llm(llm: object) -> LLM:
    """Return a language model.

    Raises:
        InvalidParameterError: It lacks what one must have.
    """
    if hasattr(llm, "complete") and hasattr(llm, "id"):
        return cast("LLM", llm)
    msg = f"a language model has id and complete(), see retrieval_core.ports.LLM; got a {type(llm).__name__}"
    raise InvalidParameterError(msg)


def checked_metadata(candidate_metadata: Mapping[str, Mapping[str, Any]] | None) -> dict[str, dict[str, Any]]:
    """Return what is known of candidates by their id; ``None`` is the same as nothing.

    Raises:
        InvalidParameterError: It is no mapping of ids to mappings, or a score is no finite number.
    """
    if candidate_metadata is None:
        return {}
    if not isinstance(candidate_metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = type(candidate_metadata).__name__
        msg = f"candidate_metadata maps chunk ids to mappings, got {kind}: {candidate_metadata!r:.80}"
        raise InvalidParameterError(msg)
    known: dict[str, dict[str, Any]] = {}
    for name, fields in cast("Mapping[object, object]", candidate_metadata).items():
        if not isinstance(name, str) or not isinstance(fields, Mapping):
            msg = f"candidate_metadata maps chunk ids to mappings, got {name!r:.80}: {fields!r:.80}"
            raise InvalidParameterError(msg)
        known[name] = dict(cast("Mapping[str, Any]", fields))
        score = known[name].get("score")
        if score is not None and not is_finite_number(score):
            _refuse(name, "score", score, "a finite number")
    return known


def completed(chunk: Chunk, fields: Mapping[str, Any]) -> Chunk:
    """Return a chunk with what it lacks of title, source, pages and headings taken from a candidate's metadata.

    Raises:
        InvalidParameterError: A field that is needed has a value of another kind.
    """
    found: dict[str, Any] = {}
    for name in ("title", "source"):
        if getattr(chunk, name) is None and (value := fields.get(name)) is not None:
            found[name] = value if isinstance(value, str) else _refuse(chunk.id, name, value, "text")
    if chunk.page_span is None and (page := fields.get("page")) is not None:
        found["page_span"] = _pages(chunk.id, page)
    if not chunk.section_path and (path := fields.get("section_path")):
        found["section_path"] = _path(chunk.id, path)
    return replace(chunk, **found) if found else chunk


def _pages(name: str, page: object) -> PageSpan:
    match page:
        case int(number) if type(number) is int and number >= 1:
            return PageSpan(number, number)
        case [int(first), int(last)] if type(first) is type(last) is int and 1 <= first <= last:
            return PageSpan(first, last)
        case _:
            return _refuse(name, "page", page, "a page number from 1, or the first and the last one")


def _path(name: str, path: object) -> tuple[str, ...]:
    if isinstance(path, str):
        return (path,)
    parts = cast("list[object]", path) if isinstance(path, (list, tuple)) else ()
    headings = tuple(part for part in parts if isinstance(part, str))
    if not parts or len(headings) < len(parts):
        _refuse(name, "section_path", cast("object", path), "a list of headings, outermost first")
    return headings


_LARGEST = sys.float_info.max


def is_finite_number(value: object) -> bool:
    """Whether a value is a number that can be compared with others; booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _refuse(name: str, field: str, value: object, expected: str) -> NoReturn:
    msg = f"candidate_metadata of {name!r:.80}: {field} must be {expected}, got {value!r:.80}"
    raise InvalidParameterError(msg)


def _items(name: str, given: object) -> Iterable[object]:
    if isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)):
        return cast("Iterable[object]", given)
    msg = f"{name} must be a list, got {given!r:.80}"
    raise InvalidParameterError(msg)
