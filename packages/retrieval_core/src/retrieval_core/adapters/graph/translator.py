"""The query transformer that adds the chunks a knowledge graph leads to, and the files that a graph is read from."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from retrieval_core.adapters.graph.knowledge import MOST_BYTES, RELATION, KnowledgeGraph, key_of, mentions, read_lines
from retrieval_core.errors import ConfigurationError, InvalidParameterError
from retrieval_core.ports import Candidate, ChunkRange, FetchRequest, Linked, QueryTransformer, Transformed, Variant
from retrieval_core.run.caching import Lazy
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.adapters.graph.knowledge import Fact, Facts
    from retrieval_core.ports import QueryContext, Side, Store
    from retrieval_core.types import Chunk

    Stamp = tuple[int, int, int]
    """Inode, size and time of the last change."""


class GraphFiles:
    """The graph of one or several files of :mod:`~retrieval_core.adapters.graph.knowledge`, one JSON object a line.

    Args:
        paths: The files.
    """

    def __init__(self, *paths: str | Path) -> None:
        self._paths = tuple(map(Path, paths))
        self._lock = Lock()
        self._stamps: tuple[Stamp, ...] | None = None
        self._graph: Lazy[KnowledgeGraph] = Lazy(self._read)

    def get(self) -> KnowledgeGraph:
        """Return the graph of the files, reading them again if one has changed. Blocks.

        Several threads share one reading. A change while they are read is found by the next call.

        Raises:
            ConfigurationError: A file is missing, unreadable, or holds a line that is no triple.
        """
        stamps = tuple(map(_stamp_of, self._paths))
        with self._lock:
            if stamps != self._stamps:
                self._stamps, self._graph = stamps, Lazy(self._read)
            graph = self._graph
        return graph.get()

    async def probe(self) -> str:
        """Read the files, and count what they contain.

        Raises:
            ConfigurationError: As of :meth:`get`.
        """
        graph = await asyncio.to_thread(self.get)
        return f"{len(graph.entities):,} entities and {len(graph.relations):,} relations"

    def _read(self) -> KnowledgeGraph:
        return KnowledgeGraph(triple for path in self._paths for triple in read_lines(_read_file(path), path))


def _stamp_of(path: Path) -> Stamp:
    """Return a file's stamp, which differs if the file changes."""
    try:
        state = path.stat()
    except FileNotFoundError as error:
        msg = f"graph.file: there is no file {path}. Set it to a file of triples, one JSON object a line"
        raise ConfigurationError(msg) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    return state.st_ino, state.st_size, state.st_mtime_ns


def _read_file(path: Path) -> bytes:
    """Return a file's content, at most :data:`MOST_BYTES` and one more."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"graph.file: {path} cannot be read ({error.strerror or type(error).__name__})")


MOST_LINKED = 50
"""The most chunks that one question leads to."""
MOST_DOCUMENTS = 10
"""The most documents whose chunks are read, where triples name a document and no chunk."""
MOST_CHUNKS = 100
"""The most chunks of one such document, the first ones."""
MOST_NAMES = 8
"""The most names that are searched for, where triples name neither."""
_SHOWN = 3


class GraphQueryTranslator(QueryTransformer):
    """Find chunks through a knowledge graph; a :class:`~retrieval_core.ports.QueryTransformer`.

    The entities in the query are found by comparing words. A fact whose triple names a chunk leads to that chunk. A
    fact whose triple names a document leads to the chunks of that document that contain both entities. If there are
    none, it leads to those with one entity, and otherwise to the first chunk. If the triple names neither, the names
    of the entities are added to the keyword search.

    A chunk scores as its best fact (see :data:`~retrieval_core.adapters.graph.knowledge.ALL`). Equal scores are ordered
    by chunk id.

    Args:
        source: A graph; or the file or files that it is read from, at the first question and when they change.
        store: The index that is searched, to find the chunks of documents; stays the caller's to close. Without it, the
            names of such triples are searched for.
        weight: Weight of the chunks and the names if the best fact has a relation of the query
            (:data:`~retrieval_core.adapters.graph.knowledge.RELATION`); the query itself has 1. It is proportionally
            lower for a lower score: a third if the query names only one entity of a fact.

    Raises:
        InvalidParameterError: The weight is not above 0.
    """

    def __init__(
        self, source: KnowledgeGraph | GraphFiles | str | Path, store: Store | None = None, *, weight: float = 0.5
    ) -> None:
        if not 0 < weight < float("inf"):
            msg = f"weight must be a number above 0, got {weight}"
            raise InvalidParameterError(msg)
        self._source = source if isinstance(source, (KnowledgeGraph, GraphFiles)) else GraphFiles(source)
        self._store = store
        self._weight = weight
        self._digest = source.digest if isinstance(source, KnowledgeGraph) else "not-read-yet"
        self._pool = ThreadPool("retrieval-graph", threads=2)

    @property
    def id(self) -> str:
        """Names the method and the content of the graph when it was last read; :meth:`version` reads it."""
        place = "" if self._store is None else "+documents"
        return f"graph-links-2{place} weight={self._weight:g}@{self._digest[:16]}"

    async def version(self) -> str:
        """Return the digest of the graph's current content; cheap while the files have not changed.

        Raises:
            ConfigurationError: A file is missing or holds something else than triples.
        """
        return (await self.graph()).digest

    async def graph(self) -> KnowledgeGraph:
        """Return the current graph.

        Raises:
            ConfigurationError: A file is missing or holds something else than triples.
        """
        graph = await self._pool.run(self._graph)
        self._digest = graph.digest
        return graph

    async def facts(self, query: str) -> Facts:
        """Return the graph's facts that bear on a question.

        Raises:
            ConfigurationError: As of :meth:`graph`.
        """
        return await self._pool.run((await self.graph()).facts, query)

    async def _transform(self, query: str, context: QueryContext) -> Transformed:  # noqa: ARG002 - has no use for it
        """Return the chunks and names that the graph leads to.

        Raises:
            ConfigurationError: As of :meth:`graph`.
            StoreError: The index cannot be read.
        """
        facts = await self.facts(query)
        if not facts.entities:
            return Transformed(reason="the question names no entity of the graph")
        chunks = await self._chunks_of(facts)
        return await self._pool.run(self._transformed, facts, chunks)

    async def aclose(self) -> None:
        """End the threads. Closing twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Do what :meth:`aclose` does, blocking."""
        self._pool.close()

    def _graph(self) -> KnowledgeGraph:
        return self._source if isinstance(self._source, KnowledgeGraph) else self._source.get()

    async def _chunks_of(self, facts: Facts) -> Mapping[str, Sequence[Chunk]]:
        """Return the chunks of the best facts' documents, by document id."""
        if self._store is None:
            return {}
        wanted = dict.fromkeys(
            fact.triple.document_id
            for fact in facts.facts
            if fact.triple.chunk_id is None and fact.triple.document_id is not None
        )
        ranges = tuple(ChunkRange(document, 0, MOST_CHUNKS - 1) for document in list(wanted)[:MOST_DOCUMENTS])
        if not ranges:
            return {}
        fetched = await self._store.fetch(FetchRequest(ranges=ranges))
        found: dict[str, list[Chunk]] = {}
        for chunk in sorted(fetched.chunks.values(), key=lambda chunk: (chunk.chunk_index, chunk.id)):
            found.setdefault(chunk.document_id, []).append(chunk)
        return found

    def _transformed(self, facts: Facts, chunks: Mapping[str, Sequence[Chunk]]) -> Transformed:
        keys = {chunk.id: key_of(chunk.indexed_text) for several in chunks.values() for chunk in several}
        scores: dict[str, float] = {}
        leading: list[Fact] = []
        lending: list[Fact] = []
        for fact in facts.facts:
            ids = _linked_to(fact, chunks, keys)
            for chunk_id in ids:
                scores.setdefault(chunk_id, fact.score)  # the best facts come first
            if ids:
                leading.append(fact)
            elif fact.triple.chunk_id is None and (self._store is None or fact.triple.document_id is None):
                lending.append(fact)
        candidates = sorted(
            (Candidate(chunk_id, score) for chunk_id, score in scores.items()),
            key=lambda candidate: (-candidate.score, candidate.chunk_id),
        )[:MOST_LINKED]
        linked = (Linked("graph", _shown(leading), tuple(candidates), self._weighed(leading)),) if candidates else ()
        names = _names(lending)
        words: frozenset[Side] = frozenset({"lexical"})
        variants = (Variant("graph", names, words, weight=self._weighed(lending)),) if names else ()
        reason = f"the question names {', '.join(facts.entities)}; {len(facts.facts)} facts, {len(candidates)} chunks"
        return Transformed(variants=variants, linked=linked, reason=reason)

    def _weighed(self, facts: Sequence[Fact]) -> float:
        """Return the weight of facts, best first, beside the question's 1."""
        return self._weight * min(1.0, facts[0].score / RELATION)


def _linked_to(fact: Fact, chunks: Mapping[str, Sequence[Chunk]], keys: Mapping[str, str]) -> tuple[str, ...]:
    """Return the chunks that a fact leads to.

    Args:
        chunks: Of documents, in their order.
        keys: The :func:`key_of` each chunk's text, by its id.
    """
    triple = fact.triple
    if triple.chunk_id is not None:
        return (triple.chunk_id,)
    of_document = chunks.get(triple.document_id or "", ())
    ends = key_of(triple.subject), key_of(triple.object)
    named = {chunk.id: sum(mentions(keys[chunk.id], end) for end in ends) for chunk in of_document}
    most = max(named.values(), default=0)
    return tuple(chunk_id for chunk_id, count in named.items() if count == most) if most else tuple(named)[:1]


def _shown(facts: Sequence[Fact]) -> str:
    shown = dict.fromkeys(str(fact.triple) for fact in facts[:_SHOWN])
    return "; ".join(shown) + (" …" if len(facts) > _SHOWN else "")


def _names(facts: Iterable[Fact]) -> str:
    """Return the names of facts' entities, each once."""
    names: dict[str, str] = {}
    for fact in facts:
        for name in (fact.triple.subject, fact.triple.object):
            names.setdefault(key_of(name), " ".join(name.split()))
    return " ".join(list(names.values())[:MOST_NAMES])
