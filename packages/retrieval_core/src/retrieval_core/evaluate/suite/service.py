"""A service over HTTP as what a suite is run on; see docs/http.md."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import contextmanager
from datetime import datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from retrieval_core.errors import (
    EmbeddingError,
    IndexNotFoundError,
    InvalidParameterError,
    MalformedAnswerError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from retrieval_core.evaluate.suite.results import Subject
from retrieval_core.evaluate.suite.targets import versions
from retrieval_core.types import Chunk, Hit, Relevance, RetrievalResult, Scores

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from retrieval_core.errors import RetrievalError
    from retrieval_core.evaluate.suite.targets import Lacking, SuiteQuestion

LARGEST_ANSWER = 50_000_000
SECONDS = 30.0
_AT_ONCE = 65_536
LEAST = 1e-12
"""A threshold that next to nothing is below, with which every result has its similarity."""


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
