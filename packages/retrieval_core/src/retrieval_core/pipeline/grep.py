"""Search the indexed text for a pattern, line by line."""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

from retrieval_core.errors import DeadlineExceededError, InvalidParameterError, UnsupportedError
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.run.outcomes import value_of
from retrieval_core.types.documents import first_line_of
from retrieval_core.types.filters import Glob, Text, matches
from retrieval_core.types.grep import GrepDocument, GrepLine, GrepOutput, GrepResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from retrieval_core.ports import Store
    from retrieval_core.run.runner import Run
    from retrieval_core.text.patterns import LinePattern
    from retrieval_core.types import Chunk, Document
    from retrieval_core.types.filters import Filter

SECONDS = 0.8
"""How long one call searches, so that it ends within a second."""
MOST_LINES = 1_000
"""Matching lines, or documents, of a page."""
MOST_CONTEXT = 20
"""Lines around each match."""
LONGEST_LINE = 300
"""Characters of a line that are shown."""
BETWEEN = "\n\n"
"""What joins the chunks of a document without its text."""
_SLICE = 64 * 1024
"""Bytes that are searched at a time, at least; then it is checked whether the time is over."""
_FEWEST, _MOST = 8, 256
"""Documents that are read at a time: few at first, since they may fill the page."""


@dataclass(frozen=True, slots=True)
class GrepPlan:
    """What to search for, and what to return.

    Attributes:
        path: Glob, or a part of a path, of the documents to search; ``None`` for all.
        condition: Chunks that do not pass are treated as absent.
        context: Lines around each match.
        limit: Most matching lines of a page, or documents if no lines are returned.
    """

    pattern: LinePattern
    path: str | None = None
    condition: Filter | None = None
    output: GrepOutput = "lines"
    context: int = 0
    limit: int = 100
    cursor: str | None = None


class _Position(NamedTuple):
    """The last line that a page has searched.

    Attributes:
        line: As the result numbers it; ``None`` if all of the document was searched.
    """

    document_id: str
    line: int | None

    @classmethod
    def read(cls, cursor: str) -> _Position:
        text, _, line = cursor.strip().rpartition(".")
        try:
            name = urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
            return cls(name, int(line) or None)
        except (ValueError, binascii.Error) as error:
            msg = f"the cursor {cursor!r:.80} is not one of grep; pass the one of the previous page, or none"
            raise InvalidParameterError(msg) from error

    def write(self) -> str:
        return f"{urlsafe_b64encode(self.document_id.encode()).rstrip(b'=').decode()}.{self.line or 0}"


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a document that may be searched.

    Attributes:
        start: Where it begins in the document's text, in code points.
        line: The number of its first line in the document's text, from 1.
    """

    start: int
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class _Searched:
    """The text of a document as far as it may be searched.

    Attributes:
        text: The whole text, to count lines in.
        chunks: Those that pass the filter, if there is one.
    """

    id: str
    source: str | None
    text: str
    parts: Sequence[_Part]
    chunks: Sequence[Chunk] = ()


@dataclass(slots=True)
class _Hits:
    """The matches of a document.

    Attributes:
        lines: The lines to show, by their start in the document's text.
        count: Number of matching lines.
    """

    document: _Searched
    lines: dict[int, GrepLine] = field(default_factory=dict[int, GrepLine])
    count: int = 0


def cursor_after(document_id: str, line: int | None) -> str:
    """Return the cursor of what comes after a line, or after a document.

    Args:
        line: As the result numbers it; ``None`` for the whole document.
    """
    return _Position(document_id, line).write()


def checked_output(output: object) -> GrepOutput:
    """Return what is to be returned of each document.

    Raises:
        InvalidParameterError: It is none of ``lines``, ``files`` and ``counts``.
    """
    if output in get_args(GrepOutput):
        return cast("GrepOutput", output)
    msg = f"output must be one of {', '.join(get_args(GrepOutput))}, got {output!r:.80}"
    raise InvalidParameterError(msg)


def checked_range(number: object, name: str, least: int, most: int) -> int:
    """Return a number of things.

    Raises:
        InvalidParameterError: It is no whole number of this range.
    """
    if isinstance(number, int) and not isinstance(number, bool) and least <= number <= most:
        return number
    msg = f"{name} must be a whole number between {least} and {most}, got {number!r:.80}"
    raise InvalidParameterError(msg)


async def grep(run: Run, start_search: Callable[[], Run], store: Store, plan: GrepPlan) -> GrepResult:
    """Return one page of the lines that match a pattern.

    At least one document is searched, however long that takes.

    Args:
        run: Lists the documents, and reads the first ones and what is said of the lines that were found.
        start_search: Returns the run whose deadline ends the search; the result then says so. It is called once the
            documents are listed: if that were slow, each page would search one document only.

    Raises:
        InvalidParameterError: The cursor is not one of this function.
        UnsupportedError: The store can't list its documents.
        DeadlineExceededError: The deadline of ``run`` is over.
        StoreError: The index can't be read.
    """
    start = None if plan.cursor is None else _Position.read(plan.cursor)
    if start is not None and start.line is not None:
        above = await _lines_above(run, store, start.document_id, plan.condition)
        start = start._replace(line=max(0, start.line - above))
    ids = await asyncio.to_thread(_select, await _candidates(run, store, plan), plan.path, start)
    searching = start_search()
    page = _Page(plan, start, lambda: searching.is_over)
    size, at = _FEWEST, 0
    while at < len(ids) and not page.is_done:
        try:
            documents = await _read(searching if at else run, store, ids[at : at + size], plan.condition)
        except DeadlineExceededError:
            if not at or not searching.is_over:
                raise
            page.timed_out = True
            break
        await asyncio.to_thread(page.search, documents)
        at, size = at + size, min(_MOST, size * 2)
    last = page.last
    if last is None or not page.is_done or (last.line is None and last.document_id == ids[-1]):
        last = None  # everything was searched
    elif last.line is not None:
        last = last._replace(line=last.line + await _lines_above(run, store, last.document_id, plan.condition))
    found = await _placed(run, store, page.found, plan.condition) if plan.output == "lines" else page.found
    return GrepResult(
        tuple(map(page.shown, found)), None if last is None else last.write(), page.timed_out and last is not None
    )


async def _candidates(run: Run, store: Store, plan: GrepPlan) -> Sequence[str]:
    """Return the IDs of the documents that may have a match."""
    run = run.on("store")
    if "documents_with" in store.capabilities:
        return value_of(await run.call("grep", store.documents_with, plan.pattern.clauses, plan.condition))
    if "document_ids" in store.capabilities:
        return value_of(await run.call("grep", store.document_ids))
    msg = f"grep reads all documents, and {store.location} can't list them. Use search instead"
    raise UnsupportedError(msg)


def _select(document_ids: Iterable[str], path: str | None, start: _Position | None) -> list[str]:
    """Return the IDs of the documents at a path and after a cursor, in order."""
    ids = sorted(document_ids)
    if start is not None:
        ids = ids[(bisect_right if start.line is None else bisect_left)(ids, start.document_id) :]
    if not path:
        return ids
    path = path.replace("\\", "/").removeprefix("./").removeprefix("**/").lstrip("/")
    if "*" not in path and "?" not in path:
        return list(filter(Text("", path).test, ids))
    glob = Glob("", f"*/{path}")  # it may begin at any folder, and rows are in their file
    return [name for name in ids if glob.test([f"/{name}", f"/{name.rpartition('#')[0]}"])]


async def _read(run: Run, store: Store, ids: Sequence[str], condition: Filter | None) -> list[_Searched]:
    """Return the texts of documents as far as they may be searched, in the order of their IDs."""
    names = tuple(ids)
    ranges = () if condition is None else tuple(map(ChunkRange.whole, names))
    found = value_of(await fetch(run, store, FetchRequest(document_ids=names, ranges=ranges, filter=condition)))
    chunks = list(found.chunks.values())
    if condition is None and (
        missing := tuple(ChunkRange.whole(name) for name in names if name not in found.documents)
    ):
        more = value_of(await fetch(run, store, FetchRequest(ranges=missing)))
        chunks = list(more.chunks.values())
    of_document = _by_document(chunks)
    read = (_searched(name, found.documents.get(name), of_document.get(name, ()), condition) for name in names)
    return [document for document in read if document is not None]


def _searched(
    name: str, document: Document | None, chunks: Sequence[Chunk], condition: Filter | None
) -> _Searched | None:
    """Return what may be searched of a document; ``None`` if that is nothing.

    With a filter, these are the chunks that pass. If all of them do, and the document itself, it is the whole
    text.
    """
    if document is None:
        if not chunks:
            return None
        text = BETWEEN.join(chunk.text for chunk in chunks)
        return _Searched(name, chunks[0].source, text, [_Part(0, 1, text)])
    parts = [_Part(0, 1, document.text)]
    if condition is not None and not _is_whole(document, chunks, condition):
        parts = list(_visible_parts(document.text, chunks))
    return _Searched(name, document.source, document.text, parts, chunks) if parts else None


def _is_whole(document: Document, chunks: Sequence[Chunk], condition: Filter) -> bool:
    moment = document.timestamp.isoformat() if document.timestamp else None
    own = {"source": document.source, "timestamp": moment, **document.metadata}
    return bool(chunks) and len(chunks) == chunks[0].total_chunks and matches(condition, own)


def _visible_parts(text: str, chunks: Iterable[Chunk]) -> Iterator[_Part]:
    """Yield the parts of a text that chunks cover. Parts with only white space between them are one."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((chunk.span.start, chunk.span.end) for chunk in chunks if chunk.span is not None):
        if spans and not text[spans[-1][1] : start].strip():
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((start, end))
    line, counted = 1, 0
    for start, end in spans:
        line, counted = line + text.count("\n", counted, start), start
        yield _Part(start, line, text[start:end])


class _Page:
    """The page that is being filled.

    Args:
        start: Where the previous page ended.
        is_over: Whether the time is over.
    """

    def __init__(self, plan: GrepPlan, start: _Position | None, is_over: Callable[[], bool]) -> None:
        self._plan = plan
        self._start = start
        self._is_over = is_over
        self._left = plan.limit
        self.found: list[_Hits] = []
        self.last: _Position | None = None
        self.timed_out = False

    @property
    def is_done(self) -> bool:
        """Whether no more is to be searched for this page."""
        return self._left <= 0 or self.timed_out

    def search(self, documents: Iterable[_Searched]) -> None:
        """Search documents until the page is full or the time is over."""
        for document in documents:
            if self.is_done:
                return
            if self._plan.output == "lines":
                self._search_lines(document)
            else:
                self._search_document(document)

    def shown(self, hits: _Hits) -> GrepDocument:
        """Return the matches of a document as they are asked for."""
        document = hits.document
        count = hits.count if self._plan.output == "counts" else None
        return GrepDocument(document.id, document.source, tuple(line for _, line in sorted(hits.lines.items())), count)

    def _search_document(self, document: _Searched) -> None:
        """Add a document that has matches. The first one is searched to its end, so that each page goes on."""
        hits = _Hits(document)
        for part in document.parts:
            for found in _matching_lines(self._plan.pattern.regex, _Encoded(part)):
                if self._is_over() and self.last is not None:
                    self.timed_out = True
                    return
                hits.count += found is not None
                if hits.count and self._plan.output == "files":
                    break
        if hits.count:
            self.found.append(hits)
            self._left -= 1
        self.last = _Position(document.id, None)
        self.timed_out = self._is_over() and not self.is_done

    def _search_lines(self, document: _Searched) -> None:
        """Add the matching lines of a document, with those around them."""
        hits = _Hits(document)
        begin = self._start.line if self._start is not None and self._start.document_id == document.id else None
        for part in document.parts:
            encoded = _Encoded(part)
            for found in _matching_lines(self._plan.pattern.regex, encoded, begin or 0):
                number = encoded.line if found is None else found.number
                if found is not None:
                    for line in encoded.around(found, self._plan.context):
                        shown, at = line.as_shown(encoded.data, is_match=line is found), encoded.place_of(line)
                        if line is found or at not in hits.lines:
                            hits.lines[at] = shown
                    self._left -= 1
                self.last = _Position(document.id, number)
                if self._left <= 0 or self._is_over():
                    self.timed_out = self._left > 0
                    if hits.lines:
                        self.found.append(hits)
                    return
        self.last = _Position(document.id, None)
        if hits.lines:
            self.found.append(hits)


class _Found(NamedTuple):
    """A line in the bytes of a text, and its first match.

    Attributes:
        number: Of the line, from 1.
        match: Start and end of the match.
    """

    number: int
    start: int
    end: int
    match: tuple[int, int]

    def as_shown(self, data: bytes, *, is_match: bool) -> GrepLine:
        text = data[self.start : self.end].decode()
        if len(text) > LONGEST_LINE:
            at = len(data[self.start : self.match[0]].decode()) if is_match else 0
            length = len(data[self.match[0] : self.match[1]].decode()) if is_match else 0
            first = max(0, min(at - max(0, LONGEST_LINE - length) // 2, len(text) - LONGEST_LINE))
            last = first + LONGEST_LINE
            text = "…" * (first > 0) + text[first:last] + "…" * (last < len(text))
        return GrepLine(self.number, text, is_match)


class _Encoded:
    """The bytes of a part, which are searched.

    Attributes:
        line: The number of the last line that was searched.
    """

    def __init__(self, part: _Part) -> None:
        self.part = part
        self.data = part.text.replace("\r\n", "\n").encode()
        self.end = len(self.data) - self.data.endswith(b"\n")
        self.line = part.line
        self._is_ascii = part.text.isascii()

    def place_of(self, line: _Found) -> int:
        """Return where a line begins in the document's text, in code points."""
        before = line.start if self._is_ascii else len(self.data[: line.start].decode())
        return self.part.start + before

    def around(self, found: _Found, context: int) -> list[_Found]:
        """Return a line with those around it."""
        lines = [found]
        for _ in range(context):
            first = lines[0]
            if first.start == 0:
                break
            start = self.data.rfind(b"\n", 0, first.start - 1) + 1
            lines.insert(0, _Found(first.number - 1, start, first.start - 1, (start, start)))
        for _ in range(context):
            last = lines[-1]
            if last.end >= self.end:
                break
            lines.append(self.line_at(last.end + 1, last.number + 1))
        return lines

    def line_at(self, start: int, number: int) -> _Found:
        """Return the line that begins at a position."""
        end = self.data.find(b"\n", start, self.end)
        return _Found(number, start, self.end if end < 0 else end, (start, start))


def _matching_lines(regex: Any, encoded: _Encoded, last_searched: int = 0) -> Iterator[_Found | None]:
    """Yield the lines that match, in order, and ``None`` after each slice; both are occasions to stop.

    Args:
        last_searched: Lines up to this number are skipped, so that each page gets further than the one before.
    """
    data, total = encoded.data, encoded.end
    number, at = encoded.part.line, 0
    while number <= last_searched:
        at = data.find(b"\n", at, total) + 1
        if not at:
            return
        number += 1
    counted = at
    if not data:
        return
    while at <= total:
        stop = data.find(b"\n", min(at + _SLICE, total), total)
        stop = total if stop < 0 else stop
        while at <= stop and (match := regex.search(data, at, stop)) is not None:
            first, last = match.span()
            start = data.rfind(b"\n", at, first) + 1 or at
            end = data.find(b"\n", first, stop)
            end = stop if end < 0 else end
            number, counted = number + data.count(b"\n", counted, start), start
            yield _Found(number, start, end, (first, min(last, end)))
            at = end + 1
        at = stop + 1
        encoded.line = number = number + data.count(b"\n", counted, stop)
        counted = stop
        yield None


async def _placed(run: Run, store: Store, found: Sequence[_Hits], condition: Filter | None) -> Sequence[_Hits]:
    """Return matches with the numbers that their lines have in the file, and with pages."""
    if condition is None:
        first = await _chunks(run, store, [ChunkRange(hits.document.id, 0, 0) for hits in found])
        paged = [name for name, chunks in first.items() if chunks[0].page_span is not None]
        first.update(await _chunks(run, store, list(map(ChunkRange.whole, paged))))
        for hits in found:
            hits.document = replace(hits.document, chunks=first.get(hits.document.id, ()))
    for hits in found:
        _place(hits)
    return found


async def _chunks(run: Run, store: Store, ranges: Sequence[ChunkRange]) -> dict[str, list[Chunk]]:
    """Return chunks in order, by the ID of their document."""
    if not ranges:
        return {}
    found = value_of(await fetch(run, store, FetchRequest(ranges=tuple(ranges))))
    return _by_document(found.chunks.values())


def _by_document(chunks: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    of_document: dict[str, list[Chunk]] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk.chunk_index):
        of_document.setdefault(chunk.document_id, []).append(chunk)
    return of_document


async def _lines_above(run: Run, store: Store, document_id: str, condition: Filter | None) -> int:
    """Return how many lines of its file are above the text of a document, such as those of front matter."""
    document, *_ = await _read(run, store, (document_id,), condition) or (None,)
    if document is None:
        return 0
    chunks = document.chunks
    if condition is None:
        chunks = (await _chunks(run, store, [ChunkRange(document_id, 0, 0)])).get(document_id, ())
    return (first_line_of(document.text, chunks) or 1) - 1


def _place(hits: _Hits) -> None:
    text, chunks = hits.document.text, hits.document.chunks
    above = (first_line_of(text, chunks) or 1) - 1
    spans = [(chunk.span.start, chunk.page_span) for chunk in chunks if chunk.span is not None]
    pages = [span for _, span in spans] if any(span for _, span in spans) else []
    starts = [start for start, _ in spans]
    for at, line in hits.lines.items():
        place = max(0, bisect_right(starts, at + len(line.text) - len(line.text.lstrip())) - 1) if pages else 0
        hits.lines[at] = replace(line, number=line.number + above, page_span=pages[place] if pages else None)
