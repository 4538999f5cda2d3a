"""How the adapters of services over HTTP fail, cancel and keep their keys, alike for each."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import SecretStr

from retrieval_core.errors import (
    ConfigurationError,
    MalformedAnswerError,
    MissingExtraError,
    RetrievalError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
)
from support.cohere_service import CohereService
from support.openai_service import OpenAIService
from support.wire_server import (
    BrokenJSON,
    ClosedMidBody,
    EmptyBody,
    Hang,
    PausedMidBody,
    ResetMidBody,
    Status,
    WireServer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from support.wire_server import Fault

KEY = "sk-test-of-no-value"


@dataclass(frozen=True)
class Vendor:
    """An adapter, what it is called with, and the service that it calls."""

    package: str
    variable: str
    make: Callable[..., Any]
    call: Callable[[Any, str], Coroutine[Any, Any, Any]]
    service: Callable[[], Any]
    path: str = ""
    """Of the API, below the server's address."""
    extra: str = ""
    """The extra that installs the package, if it has another name."""

    @property
    def name(self) -> str:
        """The vendor in errors, which is also the extra."""
        return self.extra or self.package


def _openai(**settings: Any) -> Any:
    from retrieval_core.adapters.embedders.openai import OpenAIEmbedder

    return OpenAIEmbedder(**settings)


def _cohere(**settings: Any) -> Any:
    from retrieval_core.adapters.embedders.cohere import CohereEmbedder

    return CohereEmbedder(**settings)


def _reranker(**settings: Any) -> Any:
    from retrieval_core.adapters.rerankers.cohere import CohereReranker

    return CohereReranker(**settings)


def _embed(embedder: Any, text: str) -> Coroutine[Any, Any, Any]:
    return embedder.embed_query(text)


def _score(reranker: Any, text: str) -> Coroutine[Any, Any, Any]:
    return reranker.score(text, ["a passage"])


VENDORS = [
    pytest.param(Vendor("openai", "OPENAI_API_KEY", _openai, _embed, OpenAIService, "/v1"), id="openai embedder"),
    pytest.param(Vendor("cohere", "CO_API_KEY", _cohere, _embed, CohereService), id="cohere embedder"),
    pytest.param(Vendor("cohere", "CO_API_KEY", _reranker, _score, CohereService), id="cohere reranker"),
]


@pytest.fixture(params=VENDORS)
def vendor(request: pytest.FixtureRequest) -> Vendor:
    pytest.importorskip(request.param.package, reason="the extra is not installed")
    return request.param


@pytest.fixture
def service(vendor: Vendor) -> Any:
    service = vendor.service()
    service.key = KEY
    return service


@pytest.fixture
def server(service: Any) -> Iterator[WireServer]:
    with WireServer(service) as running:
        yield running


@pytest.fixture
def adapter(vendor: Vendor, server: WireServer) -> Any:
    return vendor.make(api_key=SecretStr(KEY), base_url=server.url + vendor.path)


def run(vendor: Vendor, adapter: Any, text: str = "a") -> None:
    async def main() -> None:
        try:
            await vendor.call(adapter, text)
        finally:
            await adapter.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fault", "kind", "words", "retried"),
    [
        (ResetMidBody(), ServiceConnectionError, "connection", True),
        (ClosedMidBody(), ServiceConnectionError, "connection", True),
        (Status(503, body=b"<html>down</html>"), ServiceError, "503: <html>down</html>", True),
        (Status(408), ServiceTimeoutError, "408", True),
        (Status(401), ServiceError, "401.*key", False),
        (Status(403), ServiceError, "403.*key", False),
        (Status(404, body={"message": "nothing here"}), ServiceError, "404: nothing here.*base URL", False),
        (Status(409), ServiceError, "409", None),
        (Status(422, body=b""), ServiceError, "no reason given", False),
        (BrokenJSON(), MalformedAnswerError, "not JSON", True),
        (EmptyBody(), MalformedAnswerError, "not JSON", True),
    ],
)
def test_each_fault_is_one_attempt_and_one_error(
    vendor: Vendor,
    server: WireServer,
    adapter: Any,
    fault: Fault,
    *,
    kind: type[RetrievalError],
    words: str,
    retried: bool,
) -> None:
    """Every way to fail has its error, and is met once: trying again is for the pipeline to decide."""
    server.fail(fault)
    with pytest.raises(kind, match=words) as raised:
        run(vendor, adapter)
    assert type(raised.value) is kind
    assert server.count() == 1
    assert isinstance(raised.value, ServiceError)
    assert raised.value.service == vendor.name
    assert retried is None or raised.value.can_be_retried is retried
    assert raised.value.status == (fault.code if isinstance(fault, Status) else None)


def test_a_refused_connection_is_a_connection_error(vendor: Vendor, server: WireServer, adapter: Any) -> None:
    """A server that is not there is named, and found again once it is."""
    server.refuse()
    with pytest.raises(ServiceConnectionError, match=r"127\.0\.0\.1") as raised:
        run(vendor, adapter)
    assert raised.value.can_be_retried
    server.accept()
    run(vendor, adapter)
    assert server.count() == 1


@pytest.mark.parametrize("status", [429, 503])
def test_seconds_to_wait_are_read(vendor: Vendor, server: WireServer, adapter: Any, status: int) -> None:
    """What a service asks for reaches the error that the pipeline waits by, and the SDK does not wait itself."""
    server.fail(Status(status, retry_after=7))
    with pytest.raises(ServiceError) as raised:
        run(vendor, adapter)
    assert raised.value.retry_after == 7
    assert server.count() == 1


@pytest.mark.parametrize("key", ["co-a b", "co-a\r\nb", "co-ключ"])
def test_a_key_that_no_header_can_hold_is_refused(vendor: Vendor, key: str) -> None:
    """Sent as it is, it would come back in the error of the HTTP library."""
    with pytest.raises(ConfigurationError) as raised:
        vendor.make(api_key=key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("key", [None, "", " \n", SecretStr("")])
def test_a_missing_key_is_named(vendor: Vendor, key: str | SecretStr | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key and without a server of one's own there is nobody to ask; the environment is not looked at."""
    monkeypatch.setenv(vendor.variable, KEY)
    with pytest.raises(ConfigurationError, match=vendor.variable) as raised:
        vendor.make(api_key=key)
    assert raised.value.missing_keys == (vendor.variable,)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://host", "http://", "http://user:word@host", "http://h/?a=b", "http://h:x"]
)
def test_addresses_that_are_none_are_refused(vendor: Vendor, url: str) -> None:
    """An address needs a scheme and a host, and holds no password, which would show."""
    with pytest.raises(ConfigurationError, match="base_url") as raised:
        vendor.make(base_url=url)
    assert "word" not in str(raised.value).replace("password", "")


def test_a_server_of_ones_own_needs_no_key(
    vendor: Vendor, server: WireServer, service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the environment is not sent to a server that it was not given for."""
    monkeypatch.setenv(vendor.variable, KEY)
    service.key = None
    run(vendor, vendor.make(base_url=server.url + vendor.path))
    assert KEY not in json.dumps(server.requests[0].headers)


def test_a_server_that_wants_a_key_is_not_sent_that_of_the_environment(
    vendor: Vendor, server: WireServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the variable isn't read, and which setting is."""
    monkeypatch.setenv(vendor.variable, KEY)
    said = f"Set api_key. The environment variable {vendor.variable} isn't read if base_url is set."
    with pytest.raises(RetrievalError, match=re.escape(said)):
        run(vendor, vendor.make(base_url=server.url + vendor.path))


def test_a_missing_sdk_is_named(vendor: Vendor, adapter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error holds the line that installs it."""
    monkeypatch.setitem(sys.modules, vendor.package, None)
    with pytest.raises(MissingExtraError, match=rf"\[{vendor.name}\]"):
        run(vendor, adapter)


@pytest.mark.parametrize("fault", [Hang(), PausedMidBody()])
def test_cancelling_reaches_the_server(vendor: Vendor, server: WireServer, adapter: Any, fault: Fault) -> None:
    """A call that is cancelled closes its connection, and the next one works."""

    async def main() -> None:
        server.fail(fault)
        call = asyncio.create_task(vendor.call(adapter, "a"))
        await server.until(lambda: server.count() == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.until(lambda: server.disconnected == 1)
        await vendor.call(adapter, "b")
        await adapter.aclose()

    asyncio.run(main())


def test_the_key_is_shown_nowhere(vendor: Vendor, server: WireServer) -> None:
    """A server that repeats the key it was given does not make it show: not in the message, nor in what caused it."""
    secret = "a-very-secret-key"
    adapter: Any = vendor.make(api_key=SecretStr(secret), base_url=server.url + vendor.path)
    with pytest.raises(ServiceError) as raised:
        run(vendor, adapter)
    assert raised.value.status == 401
    shown = [*traceback.format_exception(raised.value), repr(raised.value), str(raised.value), repr(adapter)]
    held: list[Any] = [adapter, *cast("dict[str, Any]", adapter.__dict__).values()]
    shown += [repr(getattr(part, "__dict__", None)) for part in held]
    assert not any(secret in text for text in shown)
    assert "[secret]" in str(raised.value)


def test_a_server_that_stays_silent_is_a_timeout(
    vendor: Vendor, server: WireServer, adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no deadline ends a call, the client's own great patience does."""
    monkeypatch.setattr(f"retrieval_core.adapters.vendors.{vendor.name}._SILENCE_SECONDS", 0.01)
    server.fail_always(Hang())
    with pytest.raises(ServiceTimeoutError):
        run(vendor, adapter)


def test_an_adapter_outlives_its_event_loop(vendor: Vendor, server: WireServer, adapter: Any) -> None:
    """It may be used from one loop after another, and after it was closed; closing again is fine."""
    for _ in range(3):
        run(vendor, adapter)
    asyncio.run(adapter.aclose())
    assert server.count() == 3
