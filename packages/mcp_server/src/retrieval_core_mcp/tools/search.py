"""The tool ``search``: chunks that answer a query, all that were asked for, in an answer of bounded length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, computed_field

from retrieval_core.config.model import named_mode
from retrieval_core.service.emptiness import EMPTY, explain_emptiness
from retrieval_core.service.reading import find_shared_lines
from retrieval_core.service.searching import (
    LONGEST_QUERY,
    MOST_QUERIES,
    FurtherQuery,
    QueryKind,
    SearchIndexRequest,
    search,
)
from retrieval_core.service.service_context import SEVERAL, WHOLE, Range
from retrieval_core.types import Degradation
from retrieval_core.types.escapes import escape_heads
from retrieval_core.types.results import AS_DATA, NOT_HERE
from retrieval_core_mcp.fitting import LARGEST_ANSWER, MARK, clean, good_end, in_one_line
from retrieval_core_mcp.settings import MOST_RESULTS
from retrieval_core_mcp.tools.fit import Shrink
from retrieval_core_mcp.tools.names import (
    address_of,
    can_be_named,
    has_own_document,
    is_short,
    page_of,
    place_of,
    section_of,
    title_of,
    web_address,
)
from retrieval_core_mcp.tools.signals import do_not_follow, signs_in
from retrieval_core_mcp.tools.tool import AnswerPart, QueryArguments, Sized, ToolAnswer, ToolFailure
from retrieval_core_mcp.tools.wording import advice, degraded_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.text.sentences import Excerpter
    from retrieval_core.types import Chunk, Hit, RetrievalResult
    from retrieval_core_mcp.tools.tool import ToolCall

CUT_BEFORE = "[…]\n"
"""Marks that the beginning of a chunk was left out."""
_LEAST_NOTE = 410
Mode = Annotated[Literal["hybrid", "dense", "lexical"], BeforeValidator(named_mode)]
TopK = Annotated[int, Field(ge=1, le=MOST_RESULTS), WHOLE]


def _read_query(given: object) -> object:
    """Return a text with the kind before a colon as an object; without one it is a text as the query."""
    if not isinstance(given, str):
        return given
    kind, _, text = given.partition(":")
    kind, text = kind.strip().lower(), text.strip()
    return {"kind": kind, "text": text} if kind in get_args(QueryKind) and text else {"kind": "text", "text": given}


_Query = Annotated[FurtherQuery, BeforeValidator(_read_query), WithJsonSchema({"type": "string"})]


class SearchArguments(QueryArguments, Sized, SearchIndexRequest):
    """Arguments of the tool search."""

    query: Annotated[
        str,
        Field(
            min_length=1,
            max_length=LONGEST_QUERY,
            description="In plain language",
        ),
    ]
    queries: Annotated[
        tuple[_Query, ...] | None,
        Field(max_length=MOST_QUERIES, description="Other wordings; keywords: a b, or passage: a likely answer"),
        SEVERAL,
    ] = None
    detail: Annotated[
        Literal["paths", "excerpts", "full"], Field(description="full: whole passages; paths: no text")
    ] = "excerpts"
    top_k: Annotated[TopK | None, Field(description="Most results")] = None
    mode: Annotated[Mode | None, Field(description="lexical: keyword search; dense: vector search; hybrid: both")] = (
        None
    )
    cursor: Annotated[str | None, Field(max_length=100, description="Next page")] = None


@dataclass(frozen=True, slots=True)
class FoundHits:
    """A part of a search's results, and what is said of them.

    Attributes:
        result: All results so far, those before ``first`` too.
        first: How many were shown before.
        more: Whether there may be others after them.
        token: Identifies the search; the cursor of the next part begins with its position.
        excerpter: Cuts a chunk down to the sentences with words of the query.
        changed: IDs of chunks whose files were changed after they were indexed.
        shared: IDs of chunks whose lines don't tell them from others.
        why_empty: Why there are no results, if there are none.
    """

    result: RetrievalResult
    excerpter: Excerpter
    first: int = 0
    more: bool = False
    token: str = ""
    changed: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    why_empty: str = ""


async def find(context: ServiceContext, request: SearchArguments) -> FoundHits:
    """Search for one part of the results.

    Raises:
        ToolFailure: The cursor is of another search.
        RetrievalError: As :func:`retrieval_core.service.searching.search`.
    """
    from retrieval_core.text.sentences import Excerpter  # noqa: PLC0415 - the list of tools does not wait for it

    served, asked = context.index(request.index), request.top_k or MOST_RESULTS
    said = (
        served.name,
        request.query,
        request.queries,
        request.intent,
        request.mode,
        asked,
        request.filters,
    )  # not detail: a client may change it
    token = sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    first = _position(request.cursor, token)
    wanted = min(first + asked, MOST_RESULTS)
    # One more than is shown tells whether there are others.
    result = await search(context, request.model_copy(update={"top_k": min(wanted + 1, MOST_RESULTS)}))
    shown = [hit.chunk for hit in result.hits[first:wanted]]
    changed = await context.changed_since(request.index, shown)
    shared = await find_shared_lines(context, request.index, shown)
    if result.metadata.get("query_truncated"):
        longest = served.config.query.max_length
        cut = Degradation("query", f"only its first {longest:,} characters were searched for. Shorten it")
        result = replace(result, degraded=(cut, *result.degraded))
    more = len(result.hits) > wanted
    searched = str(result.metadata.get("query_normalized", result.query))
    excerpter = Excerpter(searched, await served.analyzer())
    why_empty = "" if result.hits else await explain_emptiness(context, request.index, request.filters)
    return FoundHits(
        replace(result, hits=result.hits[:wanted]), excerpter, first, more, token, changed, shared, why_empty
    )


@dataclass(frozen=True, slots=True)
class _Said:
    """Facts about a page of results, besides the fields of each result.

    Attributes:
        show: Returns the lines of the result at a position with a text. It remembers them, as many lengths are tried.
        ends: Where the next part begins after each.
        advice: What to do if nothing was found.
        detail: That of the call.
    """

    found: FoundHits
    show: Callable[[int, str], str]
    ends: Sequence[int]
    advice: str
    detail: str


class SearchHit(AnswerPart):
    """A result."""

    id: str = Field(description="ID of the document, # and a number, unless document_id is set")
    text: Annotated[str, Shrink()]
    score: float
    title: str | None = None
    section: str | None = None
    page: str | None = None
    lines: Range | None = None
    url: str | None = None
    document_id: str | None = None
    indexed: str | None = Field(default=None, description="Day of indexing")
    changed: bool | None = Field(default=None, description="Its file was changed after that")
    signs: list[str] | None = None


class SearchAnswer(ToolAnswer):
    """Results, best first."""

    results: Annotated[list[SearchHit], Shrink(least=1)]
    relevance: float | None = Field(default=None, description="Probability that they answer the query")
    degraded: list[str]
    note: str | None = None
    _said: _Said = PrivateAttr()

    @computed_field
    @property
    def next_cursor(self) -> str | None:
        """The cursor of the next part, if there is one."""
        shown, found, ends = len(self.results), self._said.found, self._said.ends
        end = ends[shown - 1] if shown else MOST_RESULTS
        is_last = shown == len(ends) and not found.more
        return None if is_last or end >= MOST_RESULTS else f"{end}-{found.token}"

    @classmethod
    def of(cls, response: FoundHits, call: ToolCall) -> Self:
        """Return the answer with every result whole. One whose ID can't be written is left out."""
        found, result = response, response.result
        shown = [
            (position, hit)
            for position, hit in enumerate(result.hits[found.first :], found.first + 1)
            if can_be_named(hit.id, call.limit)
        ]
        relevance = result.relevance
        notes = [*relevance.notes] if relevance is not None else []
        if not result.hits:  # then the first sentence has what is said of relevance
            notes = [*(note for note in notes if note != NOT_HERE), str(result.metadata.get("note") or "")]
        answer = cls.model_construct(
            results=[_entry(hit, found, call) for _, hit in shown],
            relevance=None if relevance is None or relevance.value is None else round(relevance.value, 2),
            degraded=degraded_lines(result.degraded, call.limit),
            note=in_one_line(" ".join(filter(None, notes)), max(call.limit // 5, _LEAST_NOTE)) or None,
        )
        answer._said = _Said(  # noqa: SLF001 - its own
            found,
            cache(partial(_show, found, [hit.chunk for _, hit in shown], call.request.detail)),
            [position for position, _ in shown],
            advice(call.request.filters or {}),
            call.request.detail,
        )
        return answer

    @property
    def readable(self) -> int:
        """No chunk is cut to show more of them if the call wants them whole."""
        return LARGEST_ANSWER if self._said.detail == "full" else super().readable

    def cut(self, text: str, size: int) -> str:
        """Return the part with words of the query or, if its lines are too long, the beginning."""
        marked = self._mark(text, size - len(MARK))
        return marked if len(marked) <= size else self._mark(text, size - len(MARK) - len(CUT_BEFORE))

    def _mark(self, text: str, size: int) -> str:
        """Return an excerpt with a mark on each side that was cut."""
        room = max(0, size)
        excerpt = self._said.found.excerpter.excerpt(text, room) or text[: good_end(text, 0, room)].rstrip()
        start = text.find(excerpt)
        before = CUT_BEFORE if text[:start].strip() else ""
        return before + excerpt + (MARK if text[start + len(excerpt) :].strip() else "")

    def render(self) -> str:
        """Return what is said of the search, and then the results.

        Each begins with a line ``[1] guide.md:12-18``, which no chunk can forge.
        """
        result, first, shown = self._said.found.result, self._said.found.first, self.results
        understood = _understood(result)
        lines: list[str] = []
        if shown:
            lines += filter(None, (None if first else self.note, understood, AS_DATA))
        elif first:
            lines.append("There are no more results.")
        elif not result.hits:
            is_whole = all(entry.stage == "filter" for entry in result.degraded)
            told = self._said.found.why_empty if is_whole else "The search was incomplete and has no results."
            advised = "" if told == EMPTY else self.note or self._said.advice
            lines += filter(None, (f"{told} {advised}".rstrip(), understood))
        if (cursor := self.next_cursor) is not None:
            lines.append(f"cursor: {cursor}")
        lines += [f"Note: {line}" for line in self.degraded if line != self.note]
        lines += [do_not_follow(f"[{rank}]", hit.signs) for rank, hit in enumerate(shown, first + 1) if hit.signs]
        lines += [self._said.show(at, hit.text) for at, hit in enumerate(shown)]
        return "\n".join(lines)


def _show(found: FoundHits, chunks: Sequence[Chunk], detail: str, at: int, text: str) -> str:
    """Return the lines of a result: its number and name, and below it the text unless only paths are wanted."""
    chunk = chunks[at]
    head = f"[{found.first + at + 1}] {place_of(chunk, text, shares_lines=chunk.id in found.shared)}"
    return head if detail == "paths" else f"\n{head}\n{escape_heads(text)}"


def _understood(result: RetrievalResult) -> str:
    from retrieval_core.pipeline.results import syntax_summary  # noqa: PLC0415 - the list of tools does not wait

    summary = syntax_summary(result)
    return f"Understood: {in_one_line(summary, _LEAST_NOTE)}" if summary else ""


def _entry(hit: Hit, found: FoundHits, call: ToolCall) -> SearchHit:
    from retrieval_core.pipeline.stages.format import shown_text  # noqa: PLC0415 - the list of tools does not wait

    chunk, as_json = hit.chunk, call.as_json
    text = clean(shown_text(hit)) if call.request.detail != "paths" else ""
    title, section = title_of(chunk) if chunk.title or as_json else None, section_of(chunk)
    url = web_address(chunk.source, chunk.metadata)
    if as_json:
        url = address_of(chunk.source, chunk.metadata, chunk.document_id, call.served.base_url)
    return SearchHit.model_construct(
        id=chunk.id,
        text=text,
        score=round(float(hit.score), 4),
        title=title if title != section or as_json else None,
        section=section,
        page=page_of(chunk.page_span),
        lines=chunk.lines,
        url=url,
        document_id=chunk.document_id if not has_own_document(chunk) and is_short(chunk.document_id) else None,
        indexed=None if chunk.timestamp is None else chunk.timestamp.date().isoformat(),
        changed=chunk.id in found.changed or None,
        signs=signs_in(text) or None,
    )


def _position(cursor: str | None, token: str) -> int:
    """Return where the next part begins.

    Raises:
        ToolFailure: The cursor is of another search, or none.
    """
    if cursor is None or not cursor.strip():
        return 0
    position, dash, of = cursor.partition("-")
    is_number = position.isascii() and position.isdigit()
    if not dash or of != token or not is_number or not 0 < int(position) < MOST_RESULTS:
        msg = "cursor: it belongs to another search. Leave it out, or repeat all arguments of the first call."
        raise ToolFailure(msg)
    return int(position)
