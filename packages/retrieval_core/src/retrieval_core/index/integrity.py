"""Comparing an index with its originals: the texts that it keeps, and the files that they were read from."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

from retrieval_core.errors import InvalidParameterError, UnreadableFileError, checked_count
from retrieval_core.ingest.comparison import compare_chunks, compare_fields
from retrieval_core.ingest.reading import document_hash
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, Fetched, FetchRequest, StoredDamage
from retrieval_core.run.outcomes import Failed, is_damage, value_of
from retrieval_core.run.retry import can_help
from retrieval_core.types import ChunkValidation, Document, IntegrityReport, SourceDifference
from retrieval_core.types.documents import first_line_of
from retrieval_core.types.integrity import difference

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from retrieval_core.ingest.ingester import Ingester
    from retrieval_core.ports import SourceState
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk, Section

DOCUMENTS_PER_FETCH = 32
CHUNKS_PER_FETCH = 500


@dataclass(slots=True)
class _Tally:
    """What was found so far."""

    documents: int = 0
    stored: int = 0
    compared: int = 0
    unverifiable: int = 0
    mismatches: list[ChunkValidation] = field(default_factory=list["ChunkValidation"])
    differences: list[SourceDifference] = field(default_factory=list[SourceDifference])
    absent: list[str] = field(default_factory=list[str])
    damage: StoredDamage = field(default_factory=StoredDamage)
    told: set[str] = field(default_factory=set[str])

    def add(self, results: Sequence[ChunkValidation], problems: Mapping[str, Sequence[str]] | None = None) -> None:
        """Count the results of one document, with further problems of its chunks by their ids."""
        self.documents += 1
        results = [self.completed(result, (problems or {}).get(result.chunk_id, ())) for result in results]
        self.compared += sum(bool(result.stored_text) and result.original_text is not None for result in results)
        self.unverifiable += sum(result.verdict == "unverifiable" for result in results)
        self.mismatches += [result for result in results if result.verdict == "mismatch"]

    def add_rest(self, chunks: Iterable[Chunk]) -> None:
        """Count damaged chunks that are of no document that was compared."""
        rest = [ChunkValidation(each.id, each.document_id, each.source, each.text, None) for each in chunks]
        self.stored += len(rest)
        self.mismatches += [self.completed(result) for result in rest]

    def completed(self, result: ChunkValidation, problems: Sequence[str] = ()) -> ChunkValidation:
        """Return a result with all that is known to be wrong with the chunk."""
        damage = self.damage.chunks.get(result.chunk_id)
        self.told.add(result.chunk_id)
        told = (*problems, *(damage.problems if damage is not None else ()))
        return replace(result, problems=(*result.problems, *told)) if told else result

    def differs(self, source: str | None, name: str | None, problem: str, stored: str = "", original: str = "") -> None:
        """Note a document that is not what its file says, with both texts where these are known."""
        parted = difference(stored, original) if stored != original else None
        self.differences.append(SourceDifference(source, name, problem, parted))


@dataclass(slots=True)
class _File:
    """A file of the index, and those of its documents that are looked at.

    Attributes:
        state: Of the file when it was indexed.
        names: Of the documents.
        held: The hash of each document of the file that the index has.
        is_whole: Whether documents are looked for that are in the file and not in the index.
        without_text: The chunks of documents whose text is not kept.
        unproven: Documents whose hash is not that of what is kept of them, such as those with pages.
    """

    state: SourceState
    names: Sequence[str]
    held: Mapping[str, str]
    is_whole: bool
    without_text: dict[str, list[Chunk]] = field(default_factory=dict[str, "list[Chunk]"])
    unproven: dict[str, Document] = field(default_factory=dict[str, Document])

    @property
    def lacks_some(self) -> bool:
        """Whether the index has not as many of its documents as there were."""
        return len(self.held) != self.state.documents

    @property
    def is_open(self) -> bool:
        """Whether the index alone cannot tell that all is well."""
        return self.lacks_some or bool(self.without_text or self.unproven)


class IntegrityCheck:
    """Compares an index with its originals, and changes nothing.

    Args:
        ingester: Of the index; it finds and reads files.
        begin: Begins the run of a call to the store.
    """

    def __init__(self, ingester: Ingester, begin: Callable[[], Run]) -> None:
        self._ingester = ingester
        self._store = ingester.store
        self._begin = begin

    async def validate(self, chunk_id: str) -> ChunkValidation | None:
        """Compare one chunk; see :meth:`retrieval_core.Index.avalidate`."""
        named = await self._fetch(FetchRequest(chunk_ids=(chunk_id,), section_ids=(chunk_id,)))
        chunk = named.chunks.get(chunk_id)
        if chunk is None:
            section = named.sections.get(chunk_id)
            return None if section is None else await self._validate_section(chunk_id, section)
        name, source, text = chunk.document_id, chunk.source, None
        fetched = await self._fetch(_whole((name,)))
        if (document := fetched.documents.get(name)) is not None:
            text, source = document.text, document.source
        elif (state := (await self._sources()).get(source or "")) is not None:
            again, _ = await self._read_again(state)
            text = again[name].text if name in again else None
        # A store that another program filled may not know which chunks a document has; this one is there in any case.
        chunks = {**fetched.chunks, chunk_id: chunk}
        results = await asyncio.to_thread(compare_chunks, name, source, text, list(chunks.values()))
        tally = _Tally(damage=await self._damage((name,)))
        # A part of the text that no chunk holds may bear the name of the chunk behind it.
        found = next((result for result in reversed(results) if result.chunk_id == chunk_id), None)
        return found and tally.completed(found)

    async def _validate_section(self, section_id: str, section: Section) -> ChunkValidation | None:
        """Return the first chunk of a section that is damaged; a valid result for the section if none is."""
        name = section.document_id
        fetched = await self._fetch(_whole((name,)))
        document = fetched.documents.get(name)
        if document is None:
            return None
        chunks, (start, end) = list(fetched.chunks.values()), (section.span.start, section.span.end)
        inside = {each.id for each in chunks if each.span and each.span.start < end and start < each.span.end}
        results = await asyncio.to_thread(compare_chunks, name, document.source, document.text, chunks)
        tally = _Tally(damage=await self._damage((name,)))
        compared = (tally.completed(result) for result in results if result.chunk_id in inside)
        text = document.text[start:end]
        whole = ChunkValidation(section_id, name, document.source, text, text)
        return next((result for result in compared if not result.validation_passed), whole)

    async def run(self, *, sample: int | None, seed: int, document_ids: Iterable[str]) -> IntegrityReport:
        """Compare all documents, or some; see :meth:`retrieval_core.Index.acheck_integrity`."""
        started = time.perf_counter()
        states = await self._sources()
        held = {source: await self._documents_of(source) for source in sorted(states)}
        chosen: list[tuple[str, str]] = [(source, name) for source, names in held.items() for name in names]
        added = tuple(dict.fromkeys(document_ids).keys() - {name for _, name in chosen})
        if sample is not None:
            chosen = Random(seed).sample(chosen, min(checked_count(sample, "sample"), len(chosen)))  # noqa: S311
        names: dict[str, list[str]] = {source: [] for source in held if sample is None}
        for source, name in chosen:
            names.setdefault(source, []).append(name)
        looked_at = None if sample is None else [*(name for _, name in chosen), *added]
        tally = _Tally(damage=await self._damage(looked_at))
        for source, of_source in names.items():
            await self._check_source(_File(states[source], of_source, held[source], sample is None), tally)
        await self._check_added(added, tally)
        await self._check_rest({name: source for source, named in held.items() for name in named}, tally)
        if sample is None:
            info = value_of(await self._begin().on("store").call("describe", self._store.describe))
            tally.unverifiable += max(0, info.chunks - tally.stored)
        return IntegrityReport(
            documents=tally.documents,
            chunks=tally.compared,
            mismatches=tuple(tally.mismatches),
            differences=tuple(tally.differences),
            unverifiable=tally.unverifiable,
            absent_sources=tuple(tally.absent),
            repaired=(),
            seconds=time.perf_counter() - started,
            unsealed=tally.damage.unsealed,
        )

    async def repairable(self, report: IntegrityReport) -> tuple[list[Path], set[str]]:
        """Return the files that can be read again where something differs, and the ids of the documents that do."""
        found = (*report.mismatches, *report.differences)
        known = await self._sources()
        there = known.keys() - set(report.absent_sources)
        sources = sorted({each.source for each in found if each.source in there})
        names = {each.document_id for each in found if each.source in there and each.document_id is not None}
        files = [(await self._ingester.file_of(known[source])).path for source in sources]
        unlisted = sorted({each.source for each in found if each.source is not None and each.source not in known})
        paths = [await self._ingester.find_file(source) for source in unlisted]
        return [*files, *(path for path in paths if path is not None)], names

    async def _check_added(self, names: Sequence[str], tally: _Tally) -> None:
        """Compare documents that came from no file with the texts that are kept of them."""
        async for name, document, chunks in self._stored(names, None, tally):
            if document is None and not chunks:
                msg = f"the index has no document {name!r:.200}"
                raise InvalidParameterError(msg)
            source, text = (document.source, document.text) if document is not None else (None, None)
            tally.add(await asyncio.to_thread(compare_chunks, name, source, text, chunks))

    async def _check_rest(self, source_of: Mapping[str, str], tally: _Tally) -> None:
        """Tell of all other damage that the store has found."""
        rest = sorted(tally.damage.chunks.keys() - tally.told)
        for start in range(0, len(rest), CHUNKS_PER_FETCH):
            await self._add_rest(rest[start : start + CHUNKS_PER_FETCH], tally)
        for name, damage in tally.damage.documents.items():
            for problem in damage.problems:
                tally.differs(source_of.get(name), name, f"of its record, {problem.removeprefix('its ')}")
        for problem in tally.damage.problems:
            tally.differs(None, None, problem)
        for source in tally.damage.unlisted:
            is_there = await self._ingester.find_file(source) is not None
            repair = "a repair reads it again" if is_there else "it is not there; remove its documents, or put it back"
            tally.differs(source, None, f"the file is missing from the index's list of files: {repair}")

    async def _add_rest(self, names: Sequence[str], tally: _Tally) -> None:
        """Tell of damaged chunks: of all at once, or if a record cannot be read, one by one."""
        outcome = await fetch(self._begin(), self._store, FetchRequest(chunk_ids=tuple(names)))
        if not (isinstance(outcome, Failed) and is_damage(outcome.error) and not can_help(outcome.error)):
            tally.add_rest(value_of(outcome).chunks.values())
        elif len(names) == 1:
            name = tally.damage.chunks[names[0]].document_id
            if name in {each.document_id for each in tally.differences}:
                return  # it was told when its document was read
            tally.differs(None, name, f"the chunk {names[0]!r} cannot be read: {outcome.error}")
        else:
            for name in names:
                await self._add_rest((name,), tally)

    async def _damage(self, document_ids: Sequence[str] | None) -> StoredDamage:
        """Return the damage that the store finds by its checksums; none if it has no checksums."""
        if "find_damage" not in self._store.capabilities:
            return StoredDamage()
        outcome = await self._begin().on("store").call("find_damage", self._store.find_damage, document_ids)
        if isinstance(outcome, Failed) and is_damage(outcome.error) and not can_help(outcome.error):
            return StoredDamage(problems=(f"checksums cannot be compared: {outcome.error}",))
        return value_of(outcome)

    async def _check_source(self, file: _File, tally: _Tally) -> None:
        """Compare documents of one file with the texts that are kept of them, and with the file where it is needed.

        It is where it was edited since, where documents are missing, where no text is kept, and where the text that is
        cannot be proved by its hash.
        """
        state = file.state
        async for name, document, chunks in self._stored(file.names, state.source, tally):
            if document is None:
                file.without_text[name] = chunks
                continue
            compared = await asyncio.to_thread(compare_chunks, name, state.source, document.text, chunks)
            tally.add(compared, compare_fields(document, chunks))
            if not await asyncio.to_thread(_is_proved, document, chunks, state.recipe):
                file.unproven[name] = document
        now = await self._ingester.hash_of(state)
        is_edited = now is not None and now != state.content_hash
        again: Mapping[str, Document] = {}
        failure: str | None = "the file is not there"
        if now is None:
            tally.absent.append(state.source)
        elif is_edited or file.is_open:
            again, failure = await self._read_again(state)
        for name, chunks in file.without_text.items():
            text = again[name].text if name in again else None
            tally.add(await asyncio.to_thread(compare_chunks, name, state.source, text, chunks))
        if again:
            await self._check_file(file, again, tally, is_edited=is_edited)
        elif is_edited:
            tally.differs(state.source, None, f"it was edited after it was indexed, and cannot be compared: {failure}")
        elif file.lacks_some:
            problem = f"the index has {len(file.held)} of its {state.documents} documents: {failure}"
            tally.differs(state.source, None, problem)

    async def _check_file(self, file: _File, again: Mapping[str, Document], tally: _Tally, *, is_edited: bool) -> None:
        """Say where documents part from what their file says now; their hashes tell which of them do."""
        source, held = file.state.source, file.held
        changed: list[str] = []
        for name in file.names:
            if name not in again:
                tally.differs(source, name, "its file does not hold it any more")
            elif again[name].content_hash != held[name]:
                changed.append(name)
            elif name in file.unproven:
                _check_kept(file.unproven[name], again[name], tally)
        async for name, document, _ in self._stored(changed, source, _Tally()):
            problem = "its file was edited after it was indexed" if is_edited else "its hash is not that of its file"
            stored = again[name].text if document is None else document.text
            if stored == again[name].text:
                problem += ", with the same text"
            tally.differs(source, name, problem, stored, again[name].text)
        for name in sorted(again.keys() - held.keys()) if file.is_whole else ():
            tally.differs(source, name, "the index lacks it", original=again[name].text)

    async def _stored(
        self, names: Sequence[str], source: str | None, tally: _Tally
    ) -> AsyncIterator[tuple[str, Document | None, list[Chunk]]]:
        """Yield documents with all their chunks; what is read is counted, and what cannot be is noted."""
        for start in range(0, len(names), DOCUMENTS_PER_FETCH):
            batch = tuple(names[start : start + DOCUMENTS_PER_FETCH])
            async for some, fetched in self._readable(batch, source, tally):
                chunks: dict[str, list[Chunk]] = {name: [] for name in some}
                for chunk in fetched.chunks.values():
                    chunks[chunk.document_id].append(chunk)
                tally.stored += len(fetched.chunks)
                for name in some:
                    yield name, fetched.documents.get(name), chunks[name]

    async def _readable(
        self, names: Sequence[str], source: str | None, tally: _Tally
    ) -> AsyncIterator[tuple[Sequence[str], Fetched]]:
        """Yield what the store has of documents: of all at once, or where a record is damaged, one by one."""
        outcome = await fetch(self._begin(), self._store, _whole(names))
        if not (isinstance(outcome, Failed) and is_damage(outcome.error) and not can_help(outcome.error)):
            yield names, value_of(outcome)
        elif len(names) == 1:
            tally.documents += 1
            tally.differs(source, names[0], f"what is stored of it cannot be read: {outcome.error}")
        else:
            for name in names:
                async for one in self._readable((name,), source, tally):
                    yield one

    async def _read_again(self, state: SourceState) -> tuple[Mapping[str, Document], str | None]:
        """Return the documents of a file as it is now; none, and why, where it cannot be read as it was then."""
        try:
            again = await self._ingester.read_again(state)
        except UnreadableFileError as error:
            return {}, error.reason
        return (again, None) if again is not None else ({}, "another version of this library has read it")

    async def _sources(self) -> Mapping[str, SourceState]:
        return value_of(await self._begin().on("store").call("sources", self._store.sources))

    async def _documents_of(self, source: str) -> Mapping[str, str]:
        return value_of(await self._begin().on("store").call("sources", self._store.documents_of, source))

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return value_of(await fetch(self._begin(), self._store, request))


def _whole(names: Sequence[str]) -> FetchRequest:
    """Return a request for documents with all their chunks."""
    return FetchRequest(document_ids=tuple(names), ranges=tuple(map(ChunkRange.whole, names)))


def _is_proved(document: Document, chunks: Sequence[Chunk], recipe: str) -> bool:
    """Whether a document's hash is that of what is kept of it; where it has pages, which are not, it never is."""
    first_line = first_line_of(document.text, chunks)
    expected = document_hash(recipe, document.text, document.title, (), document.metadata, first_line=first_line)
    return expected == document.content_hash


def _check_kept(kept: Document, again: Document, tally: _Tally) -> None:
    """Note what the index keeps of a document whose file has not changed, and the file does not say."""
    if kept.text != again.text:
        problem = "the text that the index keeps of it is not that of its file, which has not changed"
        tally.differs(kept.source, kept.id, problem, kept.text, again.text)
    elif (kept.title, kept.metadata) != (again.title, again.metadata):
        tally.differs(kept.source, kept.id, "title or metadata that the index keeps of it are not those of its file")
