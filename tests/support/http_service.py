"""The service over HTTP as an application in this process, asked without a network."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import httpx2

from retrieval_core import Document, open_index
from retrieval_core.config import EmbedderConfig, RetrievalConfig
from retrieval_core.run.observe import Metrics
from retrieval_core.service.served import ServedIndex, ServedIndexes
from retrieval_core_mcp import ServerSettings, create_server
from retrieval_core_mcp.http.admission import Admission
from retrieval_core_mcp.http.app import create_app
from retrieval_core_mcp.http.openapi import document
from retrieval_core_mcp.http.settings import HttpSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from retrieval_core import Index
    from retrieval_core.run.clock import Clock
    from retrieval_core_mcp.http.gate import Gate

    Served = Callable[..., None]
    """Runs a test against a service."""

__all__ = [
    "DOCUMENTS", "FAKE", "PLACE", "HttpSettings", "Served", "Service", "bearer", "document", "hashed", "opened",
    "running", "serving",
]  # fmt: skip

PLACE = "http://127.0.0.1:8000"
DOCUMENTS = (
    Document(
        "moon.md",
        "The moon is 384,400 km away from the earth. It has no air.",
        source="notes/moon.md",
        content_hash="",
        title="The moon",
        timestamp=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        metadata={"url": "https://docs.example.com/moon", "kind": "rock"},
    ),
    Document(
        "sun #1.md", "The sun is eight light minutes away.", source="notes/sun.md", content_hash="", title="T" * 600
    ),
    Document("sea.md", "The sea is deep and has many ships.", source="notes/sea.md", content_hash=""),
)
FAKE = EmbedderConfig(kind="retrieval_core.testing.fakes:FakeEmbedder")


def hashed(token: str, tenant: str | None = None) -> str:
    """Return a token as the settings have it."""
    return f"sha256:{sha256(token.encode()).hexdigest()}" + (f":{tenant}" if tenant else "")


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


class Service:
    """An application and a client of it.

    Attributes:
        admission: Knows which requests are worked on.
        indexes: All that are served.
    """

    def __init__(
        self, indexes: Mapping[str, Index], *, allow_writes: bool = False, clock: Clock | None = None, **settings: Any
    ) -> None:
        self.settings = HttpSettings(**settings)
        self.admission = Admission(self.settings.max_requests, self.settings.max_sessions)
        first = next(iter(indexes.values()))
        own = ServerSettings(
            retrieval=first.config, http=self.settings, allow_writes=allow_writes, tools=("all",), structured=True
        )
        served = [_served(name, index, self.settings.base_url) for name, index in indexes.items()]
        self.indexes = ServedIndexes(*served)
        mcp = create_server(own, self.indexes)
        self.app: Gate = create_app(
            self.indexes, self.settings, Metrics(), mcp, self.admission, allow_writes=allow_writes, clock=clock
        )
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=PLACE)

    async def ask(self, method: str, path: str, token: str | None = None, **request: Any) -> httpx2.Response:
        """Send a request, and return the whole answer."""
        headers = {**bearer(token), **request.pop("headers", {})}
        return await self.client.request(method, path, headers=headers, **request)


def _served(name: str, index: Index, base_url: str | None) -> ServedIndex:
    def give(**_: object) -> Index:
        return index

    served = ServedIndex(name, index.config, base_url=base_url, open_index=give)
    served.open()
    return served


@asynccontextmanager
async def serving(indexes: Mapping[str, Index], **settings: Any) -> AsyncGenerator[Service]:
    """Serve indexes, which are closed at the end; the settings are those of the service."""
    service = Service(indexes, **settings)
    async with running(service.app), service.client:
        yield service


@asynccontextmanager
async def running(app: Gate) -> AsyncGenerator[None]:
    """Start an application and end it, as a server does."""
    inbound: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    outbound: asyncio.Queue[Any] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, inbound.get, outbound.put))
    inbound.put_nowait({"type": "lifespan.startup"})
    started = await outbound.get()
    assert started["type"] == "lifespan.startup.complete", started
    try:
        yield
    finally:
        inbound.put_nowait({"type": "lifespan.shutdown"})
        ended = await outbound.get()
        await task
        assert ended["type"] == "lifespan.shutdown.complete", ended


def opened(path: Any, *, parts: Mapping[str, Any] | None = None, **settings: Any) -> Index:
    """Open an index with the fake embedder, as the service does; ``parts`` are what ``open_index`` takes besides."""
    search = RetrievalConfig().search.model_copy(update={"on_unscored": "keep"})
    given: dict[str, Any] = {"embedder": FAKE, "search": search, "raise_on_error": True, **settings}
    return open_index(config=RetrievalConfig(index=str(path), **given), **(parts or {}))
