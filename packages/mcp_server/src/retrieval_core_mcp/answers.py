"""The tools' answers, as structured content and as text, both of bounded length."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from retrieval_core_mcp.fitting import (
    MARK,
    clean,
    fit_mapping,
    good_end,
    has_lone_surrogate,
    in_one_line,
    json_length,
    largest,
    shorten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from retrieval_core.types import Hit, RetrievalResult
    from retrieval_core_mcp.library import Entry

WORTHWHILE_PASSAGE = 500
"""The fewest characters of a cut passage: rather fewer results, each of which can be judged."""
SHORTEST_PASSAGE = 160
"""The fewest of the best passage, where the answer has no room for more."""
SHARED = 3
"""The number of passages that share an answer without room for two whole ones."""
LONGEST_NAME = 200
"""The most characters of titles, headings and sources."""
LONGEST_ECHO = 80
"""The most characters of a question that an answer repeats."""
MOST_REASONS = 4
FIELDS = frozenset({"id", "document_id", "chunk_index", "page", "section", "parent_id", "title", "source", "timestamp"})
"""Fields of every passage, besides its own metadata."""
LONGEST_FIELD_LIST = 5

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:\S+")  # two letters at least: a single one is a drive


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SearchHit(_Answer):
    """A passage that was found."""

    id: str = Field(description="Give it to the tool fetch to read the whole passage")
    title: str = Field(description="Its headings or source where the document has none; a filter does not see those")
    url: str = Field(description="The web address, or the path relative to the index; no field for filters")
    text: str = Field(description="The passage; […] stands where it was cut")
    score: float = Field(description="Orders the results of this search; not comparable between searches")
    citation: str
    source: str | None = None
    section: str | None = Field(
        default=None, description="Headings above the passage, outermost first, joined by >; a filter names one of them"
    )
    page: str | None = Field(default=None, description="A page, or a range as in 3-4; a filter names one page: 3")
    document_id: str | None = Field(default=None, description="Give it to the tool fetch to read the whole document")


class Notice(_Answer):
    """Something that did not work as configured, and was done without."""

    stage: str
    reason: str


class SearchAnswer(_Answer):
    """Passages, best first."""

    results: list[SearchHit]
    degraded: list[Notice] = Field(default=[], description="Empty when everything worked as configured")
    omitted: int = Field(default=0, description="Results that were found but left out to keep the answer short")
    note: str | None = Field(default=None, description="Why nothing was found, where that is known")


class FetchAnswer(_Answer):
    """A passage or a document, or the part of it that fits into one answer."""

    id: str
    title: str
    text: str
    url: str = Field(description="The web address, or the path relative to the index")
    metadata: dict[str, Any] = Field(description="Fields by which searches can be filtered")
    metadata_shortened: bool = False
    offset: int = Field(default=0, description="Where the text begins, in characters of the whole text")
    total_characters: int
    next_offset: int | None = Field(default=None, description="Where the next part begins; null at the end")


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer as structured content and as text."""

    structured: dict[str, Any]
    text: str

    def fits(self, limit: int) -> bool:
        """Whether the JSON of each form is shorter than the limit."""
        content = [{"type": "text", "text": self.text}]
        return json_length(self.structured) < limit and json_length(content) < limit


def search_answer(
    result: RetrievalResult, scrub: Callable[[str], str], limit: int, filters: Mapping[str, Any] | None = None
) -> ToolAnswer:
    """Return the answer to a search: the best passages whole as far as they fit, and the next one cut.

    Args:
        scrub: Removes paths from a reason.
        limit: Both forms stay below this many characters of JSON, at least 1,000.
        filters: The search's, as JSON, for the advice where nothing was found.
    """
    notices = [
        Notice(stage=in_one_line(one.stage, 20), reason=in_one_line(scrub(one.reason), limit // 20)).model_dump()
        for one in result.degraded[:MOST_REASONS]
    ]
    question = in_one_line(result.query, LONGEST_ECHO)
    note = in_one_line(scrub(str(result.metadata.get("note") or "")), limit // 5)
    extra = {"note": note} if note else {}
    # Hits whose id cannot be written, or is as long as an answer, could not be fetched either.
    hits = [hit for hit in result.hits if not has_lone_surrogate(hit.id) and json_length(hit.id) < limit // 4]
    shown = [_search_hit(hit, limit) for hit in hits]

    def attempt(sizes: Sequence[int]) -> ToolAnswer:
        passages = [{**hit, "text": shorten(hit["text"], size)} for hit, size in zip(shown, sizes, strict=False)]
        omitted = len(result.hits) - len(passages)
        text = _as_text(question, passages, notices, omitted, note or _advice(filters or {}))
        return ToolAnswer({"results": passages, "degraded": notices, "omitted": omitted, **extra}, text)

    return attempt(_share(lambda sizes: attempt(sizes).fits(limit), len(shown), limit))


def _share(fits: Callable[[list[int]], bool], passages: int, limit: int) -> list[int]:
    """Return the length of each passage that is shown, best first.

    As many as fit are whole, and the next one is cut. Where that would be one very long passage and little else, the
    first few share the room: each has :data:`WORTHWHILE_PASSAGE`, and the rest goes to the best.

    Args:
        fits: Whether an answer with passages of these lengths is short enough.
        limit: The length of a passage that is not cut.
    """

    def whole_fit(count: int) -> bool:
        return fits([limit] * count)

    whole = largest(whole_fit, 0, passages) or 0
    if whole == passages:
        return [limit] * whole
    sizes = [limit] * whole if whole > 1 else []
    room = 1 if sizes else min(SHARED, passages)

    def more_fit(count: int) -> bool:
        return fits([*sizes, *[WORTHWHILE_PASSAGE] * count])

    more = largest(more_fit, 0, room) or 0
    first = len(sizes)
    sizes += [WORTHWHILE_PASSAGE] * more
    if not sizes and fits([SHORTEST_PASSAGE]):
        sizes = [SHORTEST_PASSAGE]
    for at in range(first, len(sizes)):

        def longer_fits(size: int, at: int = at) -> bool:
            return fits([*sizes[:at], size, *sizes[at + 1 :]])

        sizes[at] = largest(longer_fits, sizes[at], limit) or sizes[at]
    return sizes


def fetch_answer(entry: Entry, offset: int, limit: int) -> ToolAnswer:
    """Return the text of an entry from an offset on, as much as fits, at least one character.

    Args:
        offset: In code points, less than the text's length, or 0.
        limit: Both forms stay below this many characters of JSON, at least 1,000.
    """
    text = clean(entry.text)
    metadata, shortened = fit_mapping(_present(entry.fields), limit // 5, LONGEST_NAME)

    def attempt(size: int) -> ToolAnswer:
        end = good_end(text, offset, size)
        answer = FetchAnswer(
            id=entry.id,
            title=in_one_line(entry.title or entry.source or entry.id, LONGEST_NAME),
            text=text[offset:end],
            url=_url(entry.source, entry.fields, entry.id),
            metadata=metadata,
            metadata_shortened=shortened,
            offset=offset,
            total_characters=len(text),
            next_offset=end if end < len(text) else None,
        )
        structured = answer.model_dump(mode="json")
        return ToolAnswer(structured, _part_as_text(answer))

    rest = max(1, len(text) - offset)
    return attempt(largest(lambda size: attempt(size).fits(limit), 1, min(rest, limit)) or 1)


def _search_hit(hit: Hit, limit: int) -> dict[str, Any]:
    """Return a hit with as much of its text as could fit."""
    from retrieval_core.pipeline.stages.excerpts import shown_text  # noqa: PLC0415 - the handshake does not wait for it
    from retrieval_core.types import format_citation  # noqa: PLC0415 - nor for this

    chunk = hit.chunk
    pages = chunk.page_span
    section = " > ".join(chunk.section_path)
    return SearchHit(
        id=chunk.id,
        title=in_one_line(chunk.title or section or chunk.source or chunk.id, LONGEST_NAME),
        url=_url(chunk.source, chunk.metadata, chunk.document_id),
        text=clean(shown_text(hit)[: limit + 1]),
        score=round(hit.score, 4),
        citation=shorten(format_citation(chunk), LONGEST_NAME),
        source=in_one_line(chunk.source, LONGEST_NAME) if chunk.source else None,
        section=in_one_line(section, LONGEST_NAME) or None,
        page=None if pages is None else "-".join(dict.fromkeys((str(pages.first), str(pages.last)))),
        document_id=chunk.document_id if _is_short(chunk.document_id) else None,
    ).model_dump(exclude_none=True)


def _as_text(
    question: str,
    passages: Sequence[Mapping[str, Any]],
    notices: Sequence[Mapping[str, str]],
    omitted: int,
    advice: str,
) -> str:
    """Return an answer's text: notes, and then the passages.

    Each passage begins with a line ``[1] <citation> (id: <id>)``, which no passage can forge.
    """
    from retrieval_core.types.escapes import escape_name, escape_text  # noqa: PLC0415 - the handshake does not wait

    lines: list[str] = []
    if passages:
        lines.append(f"{len(passages)} passage{'s' * (len(passages) > 1)} for: {question}")
    elif not omitted:
        lines.append(f"Nothing was found for: {question}\n{advice}")
    if omitted:
        lines.append(f"{omitted} more left out to keep this short. Ask a narrower question, filter, or fetch an id.")
    if cut := [hit for hit in passages if hit["text"].endswith(MARK)]:
        document = all(hit["id"].rpartition("#")[0] == hit.get("document_id") for hit in cut)
        whole = ", or the part before the last # for the whole document" if document else ""
        lines.append(f"{MARK.strip()} marks a cut: fetch the id for the whole passage{whole}.")
    lines += [f"Note: {notice['stage']}: {notice['reason']}" for notice in notices]
    lines += [
        f"[{rank}] {hit['citation']} (id: {escape_name(hit['id'])})\n{escape_text(hit['text'])}"
        for rank, hit in enumerate(passages, start=1)
    ]
    return "\n\n".join(lines)


def _advice(filters: Mapping[str, Any]) -> str:
    """Return the advice where nothing was found; a filter on a field that no passage has is no error."""
    if not filters:
        return "Try other words."
    own = [name for name in dict.fromkeys(_fields_of(filters)) if name not in FIELDS]
    if not own:
        return "Try other words, or without the filter; its values must be those of the documents, exactly."
    named = ", ".join(in_one_line(name, 60) for name in own[:LONGEST_FIELD_LIST])
    return (
        f"Try other words, or without the filter. It asks for {named}, which passages have only where their own "
        "metadata does, in this spelling (fetch an id to see its metadata). Every passage can be filtered by source, "
        "document_id, title, section, page and timestamp."
    )


def _fields_of(condition: object) -> Iterator[str]:
    """Yield the names of the fields in a valid filter."""
    if isinstance(condition, (list, tuple)):
        for part in cast("Sequence[object]", condition):
            yield from _fields_of(part)
    elif isinstance(condition, dict):
        for key, value in cast("dict[str, object]", condition).items():
            if key.startswith("$"):
                yield from _fields_of(value)
            else:
                yield key


def _part_as_text(answer: FetchAnswer) -> str:
    from retrieval_core.types.escapes import escape_name  # noqa: PLC0415 - the handshake does not wait for it

    heading = answer.title if answer.title == answer.id else f"{answer.title} (id: {escape_name(answer.id)})"
    if answer.next_offset is None and not answer.offset:
        return f"{heading}\n\n{answer.text}"
    end = answer.next_offset or answer.total_characters
    rest = "" if answer.next_offset is None else f" For the rest, fetch the same id with offset {end}."
    # Before the text, since nothing behind it could be told from it.
    return f"{heading}\n\nCharacters {answer.offset} to {end} of {answer.total_characters}.{rest}\n\n{answer.text}"


def _url(source: str | None, metadata: Mapping[str, Any], document_id: str) -> str:
    """Return the URL in the metadata or the source, else the source as a relative reference."""
    for given in (metadata.get("url"), source):
        if isinstance(given, str) and _URL.fullmatch(given) and _is_short(given):
            return given
    name = source or document_id
    return quote(clean(name)) if _is_short(name) else ""


def _is_short(name: str) -> bool:
    return len(name) <= LONGEST_NAME and not has_lone_surrogate(name)


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value and are not in the answer already."""
    left_out = {"id", "title", "parent_id"}
    return {key: value for key, value in fields.items() if key not in left_out and value not in (None, ())}
