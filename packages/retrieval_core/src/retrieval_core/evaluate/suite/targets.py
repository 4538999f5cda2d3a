"""Targets of a suite: an index in this process, or a service over HTTP."""

from __future__ import annotations

import asyncio
import json
import platform
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from http.client import HTTPException
from importlib.metadata import version
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from retrieval_core.errors import (
    EmbeddingError,
    IndexNotFoundError,
    InvalidParameterError,
    MalformedAnswerError,
    SearchError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.evaluate.suite.results import Subject
from retrieval_core.index.settings import place_of
from retrieval_core.pipeline.lifecycle import Calls
from retrieval_core.pipeline.stages.embed import Questions as QueryEmbedder
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, Fetched, FetchRequest, SearchRequest
from retrieval_core.run.outcomes import value_of
from retrieval_core.types import Chunk, Hit, Query, Relevance, RetrievalResult, Scores

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from retrieval_core.errors import RetrievalError
    from retrieval_core.evaluate.suite.cases import Case
    from retrieval_core.index.index import Index
    from retrieval_core.ports import SourceState, Store
    from retrieval_core.types import SearchMode

LAST = 10**6
"""A number that no passage of a document has, or one that comes later."""
Lacking: TypeAlias = "Mapping[tuple[str, str], str | None]"
"""What an index does not hold, as (``document`` or ``chunk``; the id), with the id that may be meant."""
LARGEST_ANSWER = 50_000_000
SECONDS = 30.0
_AT_ONCE = 65_536
LEAST = 1e-12
"""A threshold that next to nothing is below, with which every result has its similarity."""


@dataclass(frozen=True, slots=True)
class SuiteQuestion:
    """A question with the options of its case.

    Attributes:
        similarities: Whether every passage found needs its similarity with the question, which by words alone it lacks.
    """

    text: str
    top_k: int
    mode: SearchMode | None = None
    score_threshold: float | None = None
    filter: Mapping[str, Any] | None = None
    history: Sequence[Mapping[str, str]] = field(default_factory=tuple[Any])
    similarities: bool = False


def question_of(case: Case, text: str) -> SuiteQuestion:
    """Return a wording of a case's question with the case's options."""
    return SuiteQuestion(
        text,
        case.top_k,
        case.mode,
        case.score_threshold,
        case.filter,
        tuple(turn.model_dump() for turn in case.history),
    )


class Target(Protocol):
    """An index or service that answers the queries of a suite."""

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        ...

    async def describe(self) -> Subject:
        """Return a description of the index or service.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def retrieve(self, question: SuiteQuestion) -> RetrievalResult:
        """Return what is found, with everything working as configured.

        Raises:
            RetrievalError: The query failed, or its result is degraded.
        """
        ...

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a chunk; ``None`` if there is none with that id.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def lacking(self, documents: Sequence[str], chunks: Sequence[str]) -> Lacking:
        """Return which of these are not there.

        Raises:
            RetrievalError: It cannot be read.
        """
        ...

    async def nearest(self, text: str) -> float | None:
        """Return the highest cosine similarity of any passage with a text, in [0, 1].

        It is 0 if there is no chunk, and ``None`` if there are no vectors.

        Raises:
            RetrievalError: It cannot be searched.
        """
        ...


class IndexTarget:
    """An index in this process; whoever made it closes it.

    Raises:
        InvalidParameterError: It keeps results, whose times would be the cache's and not those of searches.
    """

    def __init__(self, index: Index) -> None:
        if index.cache is not None:
            msg = "a suite is run without a cache of results; open the index with the setting cache.kind = none"
            raise InvalidParameterError(msg)
        self._index = index
        self._calls = Calls(index.config)

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return str(place_of(self._index.config))

    async def describe(self) -> Subject:
        """Return a description of the index or service."""
        info = await self._index.adescribe()
        states = sorted((state.source, state.content_hash, state.recipe) for state in (await self._sources()).values())
        corpus = sha256(json.dumps([info.chunks, states]).encode()).hexdigest() if states else None
        config = self._index.config
        return Subject(
            location=info.location,
            chunks=info.chunks,
            documents=info.documents,
            embedder=None if info.manifest is None else info.manifest.embedder_id,
            corpus=corpus,
            configuration=json.loads(config.model_dump_json(exclude_defaults=True, exclude={"index"})),
            versions=await asyncio.to_thread(versions),
        )

    async def retrieve(self, question: SuiteQuestion) -> RetrievalResult:
        """Return what is found."""
        threshold = question.score_threshold
        if threshold is None and question.similarities and self._index.embedder is not None:
            threshold = 0.0
        result = await self._index.aretrieve(
            question.text,
            question.filter,
            top_k=question.top_k,
            mode=question.mode,
            score_threshold=threshold,
            history=question.history or None,
        )
        check_complete(question, [(entry.stage, entry.reason) for entry in result.degraded])
        return result

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a passage."""
        return (await self._fetch(FetchRequest(chunk_ids=(chunk_id,)))).chunks.get(chunk_id)

    async def _fetch(self, request: FetchRequest) -> Fetched:
        return value_of(await fetch(self._calls.begin(), self._index.store, request))

    async def lacking(self, documents: Sequence[str], chunks: Sequence[str]) -> Lacking:
        """Return which of these are not there."""
        store = self._index.store
        run = self._calls.begin().on("store")
        absent = value_of(await run.call("fetch", documents_lacking, store, documents))
        known = list(await self._sources()) if absent else []
        meant = {name: _alike(name, known) for name in absent}
        held = await self._fetch(FetchRequest(chunk_ids=tuple(chunks))) if chunks else Fetched()
        lacking: dict[tuple[str, str], str | None] = {("document", name): other for name, other in meant.items()}
        return lacking | {("chunk", chunk): None for chunk in chunks if chunk not in held.chunks}

    async def _sources(self) -> Mapping[str, SourceState]:
        store = self._index.store
        if "sources" in store.capabilities:
            return value_of(await self._calls.begin().on("store").call("sources", store.sources))
        return {}

    async def nearest(self, text: str) -> float | None:
        """Return the highest similarity of any passage with a text."""
        embedder = self._index.embedder
        if embedder is None:
            return None
        run = self._calls.begin()
        vector = value_of(await QueryEmbedder(embedder).embed(run, Query(text, text)))
        request = SearchRequest(limit=1, vector=vector)
        found = value_of(await run.on("store").call("dense", self._index.store.search, request))
        return max(0.0, min(1.0, found[0].score)) if found else 0.0


def _alike(name: str, known: Sequence[str]) -> str | None:
    """Return the document whose path ends most like a name, in its last part at least."""

    def shared(other: str) -> int:
        pairs = zip(reversed(name.split("/")), reversed(other.split("/")), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    best = max(known, key=shared, default=None)
    return best if best is not None and shared(best) else None


async def documents_lacking(store: Store, documents: Sequence[str]) -> list[str]:
    """Return which of these documents have no chunk in a store; a document may also be named by the id of a chunk.

    Raises:
        RetrievalError: It cannot be read.
    """
    if not documents:
        return []
    fetched = await store.fetch(FetchRequest(chunk_ids=tuple(documents)))
    absent: list[str] = [document for document in documents if document not in fetched.chunks]
    for last in (0, LAST):  # the first passage alone, where it has the number 0, as those that this library makes
        if absent:
            ranges = tuple(ChunkRange(document, 0, last) for document in absent)
            fetched = await store.fetch(FetchRequest(ranges=ranges))
            held = {chunk.document_id for chunk in fetched.chunks.values()}
            absent = [document for document in absent if document not in held]
    return absent


def confidence_of(result: RetrievalResult) -> float | None:
    """Return the probability that a result's hits answer its query, in [0, 1]; see docs/confidence.md."""
    return None if result.relevance is None else result.relevance.value


def is_unlikely(result: RetrievalResult) -> bool:
    """Return whether a result's hits probably do not answer its query."""
    return result.relevance is not None and result.relevance.is_unlikely


def check_complete(question: SuiteQuestion, degraded: Sequence[tuple[str, str]]) -> None:
    """Refuse a result that was found without what is configured: its figures would be another configuration's.

    Raises:
        EmbeddingError: The question could not be embedded.
        SearchError: Something else did not work.
    """
    for stage, reason in degraded:
        msg = f"the question was answered without what is configured ({stage}: {reason})"
        if stage == "embed":
            raise EmbeddingError(msg, question.text)
        raise SearchError(msg, {"stage": stage})


def versions() -> dict[str, str]:
    """Return the versions of Python and of this library."""
    return {"python": platform.python_version(), "retrieval-core": version("retrieval-core")}


class ServiceTarget:
    """The index of a service over HTTP.

    Args:
        url: Such as ``http://127.0.0.1:8000``; what precedes ``/v1``.
        index: Its name, where the service has several.
        token: Sent as ``Authorization: Bearer``.
        seconds: How long one answer may take.

    Raises:
        InvalidParameterError: It is no address of the web, or has a user's name and password in it.
    """

    def __init__(
        self, url: str, *, index: str | None = None, token: str | None = None, seconds: float = SECONDS
    ) -> None:
        _check_address(url)
        self._url = url.rstrip("/")
        self._index = index
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._seconds = seconds
        self._opener = build_opener(_NoRedirects)

    @property
    def location(self) -> str:
        """Readable location, for messages."""
        return self._url

    async def describe(self) -> Subject:
        """Return a description of the index."""
        told = await self._call("GET", "/v1/indexes")
        with self._of_this_form():
            counts = {each["name"]: each["points_count"] for each in told["indexes"]}
        name = next(iter(counts), None) if self._index is None else self._index
        if name not in counts:
            msg = f"{self._url} has no index {name!r}; it has {', '.join(counts) or 'none'}"
            raise IndexNotFoundError(msg)
        return Subject(f"{self._url} ({name})", counts[name], versions=await asyncio.to_thread(versions))

    async def retrieve(self, question: SuiteQuestion) -> RetrievalResult:
        """Return the results in the index's ranking, not sorted by similarity as in the service's answer."""
        asked: dict[str, Any] = {
            "query_text": question.text,
            "top_k": question.top_k,
            "mode": question.mode,
            "similarity_threshold": question.score_threshold or (LEAST if question.similarities else 0.0),
            "filters": question.filter,
            "history": list(question.history) or None,
            "index": self._index,
            "explain": True,
        }
        started = time.perf_counter()
        told = await self._call("POST", "/v1/search", {k: v for k, v in asked.items() if v is not None})
        milliseconds = (time.perf_counter() - started) * 1000  # what a caller waits, the way there and back included
        with self._of_this_form():
            trace = told["trace"]
            texts = {result["metadata"]["chunk_id"]: result for result in told["results"]}
            hits = [_hit(known, texts[known["id"]]) for known in trace["hits"] if known["id"] in texts]
            return RetrievalResult(
                query=question.text,
                hits=tuple(hits),
                formatted_context="",
                metadata={},
                latency_ms=milliseconds,
                relevance=_relevance(told.get("relevance")),
            )

    async def fetch(self, chunk_id: str) -> Chunk | None:
        """Return a passage."""
        named = "" if self._index is None else f"?{urlencode({'index': self._index})}"
        try:
            told = await self._call("GET", f"/v1/chunks/{quote(chunk_id, safe='')}{named}")
        except IndexNotFoundError:
            return None
        with self._of_this_form():
            fields = told["fields"]
            return Chunk(fields["id"], fields["document_id"], told["text"])

    async def lacking(self, documents: Sequence[str], chunks: Sequence[str]) -> Lacking:
        """Return which of these are not there: documents without a passage, and passages."""
        absent = [("chunk", chunk) for chunk in chunks if await self.fetch(chunk) is None]
        for document in documents:
            asked: dict[str, Any] = {
                "query_text": document,
                "top_k": 1,
                "filters": {"document_id": {"$eq": document}},
                "allow_degraded": True,
            }
            if self._index is not None:
                asked["index"] = self._index
            found = await self._call("POST", "/v1/search", asked)
            with self._of_this_form():
                if not found["results"]:
                    absent.append(("document", document))
        return dict.fromkeys(absent)

    async def nearest(self, text: str) -> float | None:
        """Return the highest similarity of any passage with a text, which the service's own order has first."""
        asked: dict[str, Any] = {"query_text": text, "top_k": 1, "mode": "dense"}
        if self._index is not None:
            asked["index"] = self._index
        found = await self._call("POST", "/v1/search", asked)
        with self._of_this_form():
            return found["results"][0]["similarity_score"] if found["results"] else 0.0

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self._url + path, data=data, headers=self._headers, method=method)  # noqa: S310 - checked
        return await asyncio.to_thread(self._answer, request)

    def _answer(self, request: Request) -> dict[str, Any]:
        deadline = time.monotonic() + self._seconds
        text = bytearray()
        try:
            with self._opener.open(request, timeout=self._seconds) as answer:
                while (part := answer.read1(_AT_ONCE)) and len(text) < LARGEST_ANSWER:
                    text += part
                    if time.monotonic() > deadline:  # the timeout is that of a part, and there may be no end of them
                        raise self._too_slow()
        except HTTPError as error:
            with error:
                raise _refused(error.code, error.read(LARGEST_ANSWER), self._url) from error
        except TimeoutError as error:
            raise self._too_slow() from error
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None)
            if isinstance(reason, TimeoutError):
                raise self._too_slow() from error
            msg = f"the service at {self._url} cannot be reached: {reason or error}"
            raise ServiceConnectionError(msg, "service") from error
        try:
            return json.loads(text)
        except ValueError as error:
            msg = f"the service at {self._url} answered with something that is no JSON; is it retrieval-mcp --http?"
            raise MalformedAnswerError(msg, "service") from error

    @contextmanager
    def _of_this_form(self) -> Generator[None]:
        """Turn what is missing in an answer into an error that says so."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f"the service at {self._url} answered in another form than this version of it does"
            raise MalformedAnswerError(msg, "service") from error

    def _too_slow(self) -> ServiceTimeoutError:
        return ServiceTimeoutError(f"the service at {self._url} did not answer within {self._seconds:g} s", "service")


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the token would go along to wherever that leads."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        parts, is_address = None, False
    if parts is not None and "@" in parts.netloc:  # which every report would show
        msg = "the address of a service has no user and password in it; give a token in their place"
        raise InvalidParameterError(msg)
    if not is_address or not url.isprintable() or " " in url:
        msg = f"the address of a service begins with http:// or https:// and a host, got {url!r:.200}"
        raise InvalidParameterError(msg)


def _refused(status: int, text: bytes, url: str) -> RetrievalError:
    """Return the error that an answer other than 200 stands for."""
    try:
        told = "; ".join(json.loads(text)["errors"])
    except (ValueError, KeyError, TypeError):
        told = f"HTTP {status}"
    if told.startswith("Failed to embed query"):
        return EmbeddingError(told)
    if status == 404:
        return IndexNotFoundError(told)
    if status == 400:
        return InvalidParameterError(told)
    if "took longer" in told:
        return ServiceTimeoutError(told, "service", status=status)
    if status in {502, 503, 504}:
        return ServiceConnectionError(f"{url}: {told}", "service", status=status)
    return ServiceError(f"{url}: {told}", "service", status=status)


def _hit(known: Mapping[str, Any], result: Mapping[str, Any]) -> Hit:
    place = result["metadata"]
    timestamp = place.get("timestamp")
    chunk = Chunk(
        known["id"],
        known["document_id"],
        result["text"],
        chunk_index=known["chunk_index"],
        total_chunks=known["total_chunks"],
        title=place.get("document_title"),
        source=place["url"],
        timestamp=None if timestamp is None else datetime.fromisoformat(timestamp),
        embedding_model=known.get("embedding_model"),
    )
    return Hit(chunk, known["score"], Scores(**known["scores"]))


def _relevance(told: Mapping[str, Any] | None) -> Relevance | None:
    if told is None:
        return None
    unlikely, unknown, other = told["unlikely"], tuple(told["unknown"]), told["other_language"]
    return Relevance(told["value"], unlikely, unknown, other, told["explanation"])
