"""The indexes that one process serves, each under a name."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

from retrieval_core.errors import NotYetEmbeddedError, RetrievalError
from retrieval_core.ports import FetchRequest, SearchRequest
from retrieval_core_mcp.http.envelope import RequestError
from retrieval_core_mcp.tools.names import URL_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval_core import Index
    from retrieval_core.compat.service import SearchQuery
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.index.federated import FederatedIndex
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.run.observe import Observer
    from retrieval_core.types import Chunk, Hit
    from retrieval_core.types.filters import Filter
    from retrieval_core_mcp.http.answers import ValidationAnswer
    from retrieval_core_mcp.library import Library

_STORES = {"sqlite": "SQLite", "lancedb": "LanceDB", "memory": "Memory"}
_LONGEST_TITLE = 500
WARM_UP = "warm up"
_UNFIT = re.compile(r"[\s:]")
"""What the name of an index must not have to be asked with others: it then stands before ids, with a colon."""


@dataclass(frozen=True, slots=True)
class ServedIndex:
    """An index and what its answers say of it.

    Attributes:
        name: By which requests name it.
        library: Reads of it what a caller may see.
        base_url: What the addresses of documents without one of their own begin with.
        parts: Several that are asked as one; this is then the first of them, but for its name. Else none.
        federation: Asks these; ``None`` where one index is asked.
    """

    name: str
    index: Index
    library: Library
    base_url: str | None = None
    parts: tuple[ServedIndex, ...] = ()
    federation: QueryEngine | None = None

    @property
    def engine(self) -> QueryEngine:
        """What answers questions: the index, or several as one."""
        return self.federation or self.index

    @property
    def options(self) -> dict[str, Any]:
        """The options of each query that say which indexes are asked; none where it is one."""
        return {"indexes": [part.name for part in self.parts]} if self.parts else {}

    @property
    def embeds(self) -> bool:
        """Whether there are vectors in all that is asked."""
        return all(part.index.embedder is not None for part in self.parts or (self,))

    @property
    def configs(self) -> tuple[RetrievalConfig, ...]:
        """The settings of all that is asked."""
        return tuple(part.index.config for part in self.parts or (self,))

    def of(self, hit: Hit) -> ServedIndex:
        """Return the index that a hit is from."""
        return next((part for part in self.parts if part.name == hit.source_index), self)

    @property
    def store(self) -> str:
        """The store's name, for people."""
        kind = self.index.config.store.kind
        return _STORES.get(kind, "Index" if ":" in kind else kind.capitalize())

    @property
    def address(self) -> str:
        """Where the store is, without credentials and paths of this machine."""
        store = self.index.config.store
        settings: Any = getattr(store, store.kind, None)
        address = getattr(settings, "url", None) or getattr(settings, "host", None)
        if address is None:
            return f"urn:retrieval:{quote(self.name, safe='')}"
        parts = urlsplit(str(address))
        place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        return f"{parts.scheme}://{place}" if place else str(address)

    async def chunk(self, chunk_id: str, condition: Filter | None) -> Chunk:
        """Return a chunk.

        Raises:
            RequestError: There is none of that id that passes a condition.
            RetrievalError: The index cannot be read.
        """
        request = FetchRequest(chunk_ids=(chunk_id,), filter=condition)
        chunk = (await self.index.store.fetch(request)).chunks.get(chunk_id)
        if chunk is None:
            raise RequestError(404, f"Chunk {chunk_id} not found")
        return chunk

    async def count(self, condition: Filter) -> int:
        """Return how many chunks pass a condition.

        Raises:
            RequestError: The store cannot tell.
        """
        store = self.index.store
        if "count_chunks" not in store.capabilities:
            msg = f"the store of the index {self.name} cannot count the passages of a tenant"
            raise RequestError(501, msg)
        return await store.count_chunks(condition)

    async def unembedded(self, condition: Filter, dimension: int) -> int:
        """Return how many of some chunks have no vector yet: a search by vector says so, whatever it looks for.

        Raises:
            RetrievalError: The index cannot be read.
        """
        anywhere: Any = [1.0] + [0.0] * (dimension - 1)
        try:
            await self.index.store.search(SearchRequest(1, vector=anywhere, filter=condition))
        except NotYetEmbeddedError as error:
            return error.details["chunks"] - error.details["embedded"]
        return 0

    async def validate(self, chunk: Chunk) -> ValidationAnswer:
        """Hold a stored chunk against what was read, and look whether its file was changed since.

        Raises:
            RequestError: There is none of that id any more.
            RetrievalError: The index or the chunk's source cannot be read.
        """
        validation = await self.index.avalidate(chunk.id)
        if validation is None:
            raise RequestError(404, f"Chunk {chunk.id} not found")
        from retrieval_core.compat.service import ValidationResult  # noqa: PLC0415 - nobody waits for it at the start
        from retrieval_core_mcp.http.answers import ValidationAnswer  # noqa: PLC0415 - likewise

        told = ValidationResult.of(validation).model_dump()
        return ValidationAnswer(**told, file_changed=bool(await self.library.changed((chunk,))))

    async def problem(self) -> str | None:
        """Return why the index cannot be searched, ``None`` where it can."""
        try:
            await self.index.adescribe()
            if self.index.embedder is not None:
                await self.index.aretrieve(WARM_UP, top_k=1, mode="dense")
        except RetrievalError as error:
            return type(error).__name__
        return None

    def metadata(self, chunk: Chunk) -> dict[str, Any]:
        """Return where a chunk is from, as the contract's ``ChunkMetadata``."""
        told: dict[str, Any] = {"chunk_id": chunk.id, "url": self._url(chunk)}
        if "chunk_index" not in chunk.missing_fields:
            told["position"] = chunk.chunk_index
        if (timestamp := chunk.timestamp or _as_moment(chunk.metadata.get("timestamp"))) is not None:
            told["timestamp"] = utc(timestamp)
        if chunk.title is not None:
            told["document_title"] = chunk.title[:_LONGEST_TITLE]
        own_id = chunk.metadata.get("chunk_id")
        if isinstance(own_id, (int, str)) and not isinstance(own_id, bool):
            told["payload_chunk_id"] = own_id
        return told

    def _url(self, chunk: Chunk) -> str:
        for own in (*(chunk.metadata.get(name) for name in URL_FIELDS), chunk.source):
            if isinstance(own, str) and is_url(own):
                return own
        if self.base_url is not None:
            return urljoin(self.base_url, quote(chunk.document_id))
        return f"urn:retrieval:{quote(self.name, safe='')}:{quote(chunk.document_id, safe='')}"


def _as_moment(written: object) -> datetime | None:
    """Return the time that a field of another program says in ISO 8601; ``None`` if it says none."""
    if not isinstance(written, str):
        return None
    try:
        moment = datetime.fromisoformat(written)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def is_url(text: str) -> bool:
    """Whether a text is an absolute address of the web."""
    if not text[:8].lower().startswith(("http://", "https://")):  # most texts, in a fraction of the time
        return False
    if any(character.isspace() or ord(character) < 32 for character in text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def utc(moment: datetime) -> str:
    """Return a moment as ``YYYY-MM-DDTHH:MM:SSZ``; one without a time zone is taken to be in UTC."""
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return aware.replace(microsecond=0, tzinfo=None).isoformat() + "Z"  # strftime writes the year 922 with 3 digits


class ServedIndexes:
    """All indexes of a process; the first is asked where a request names none.

    Args:
        observer: Is told what happens to questions that several answer together.
    """

    def __init__(self, *indexes: ServedIndex, observer: Observer | None = None) -> None:
        self._by_name = {served.name: served for served in indexes}
        self._first = indexes[0]
        self._observer = observer
        self._opening = Lock()
        self._federation: FederatedIndex | None = None

    def __iter__(self) -> Iterator[ServedIndex]:
        return iter(self._by_name.values())

    def named(self, name: str | None) -> ServedIndex:
        """Return an index by its name.

        Raises:
            RequestError: There is none of that name.
        """
        served = self._first if name is None else self._by_name.get(name)
        if served is None:
            raise RequestError(404, f"Index {name} not found")
        return served

    async def for_query(self, query: SearchQuery) -> ServedIndex:
        """Return the index that a question names, or several as one, which are opened for that a second time.

        Raises:
            RequestError: There is none of a name, or both were named.
            RetrievalError: The indexes cannot be asked together.
        """
        if query.indexes is None:
            return self.named(query.index)
        parts = tuple(self.named(name) for name in dict.fromkeys(query.indexes))
        if query.index is not None:
            alone = self.named(query.index).name
            raise RequestError(400, f"set index or indexes, not both: index is {alone}")
        if len(parts) == 1:
            return parts[0]
        if unfit := [part.name for part in parts if _UNFIT.search(part.name)]:
            message = f"the index {unfit[0]} can't be searched with others: its name has white space or a colon"
            raise RequestError(400, message)
        name = ", ".join(part.name for part in parts)
        return replace(parts[0], name=name, parts=parts, federation=await asyncio.to_thread(self._open_federation))

    def _open_federation(self) -> FederatedIndex:
        from retrieval_core.index.open import open_indexes  # noqa: PLC0415 - for who asks several

        with self._opening:
            if self._federation is not None:
                return self._federation
            first = self._first.index
            files = {
                name: served.index.config.index for name, served in self._by_name.items() if not _UNFIT.search(name)
            }
            # With the embedder of the first one, whose model is loaded already.
            self._federation = open_indexes(
                files, config=first.config, embedder=first.embedder, observer=self._observer
            )
        return self._federation

    async def aclose(self) -> None:
        """Close all of them."""
        if self._federation is not None:
            await self._federation.aclose()
        for served in self:
            await served.index.aclose()
