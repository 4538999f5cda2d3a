"""The result cache in Redis or Valkey, shared by all processes that use the same namespace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from secrets import token_bytes
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, cast
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary
from zlib import crc32

from pydantic import (
    ConfigDict,
    PlainSerializer,
    PlainValidator,
    SecretStr,
    TypeAdapter,
)
from pydantic_core import PydanticSerializationError

from retrieval_core import types
from retrieval_core.config.base import AdapterSettings
from retrieval_core.errors import (
    ConfigurationError,
    InvalidParameterError,
    MissingExtraError,
    ServiceConnectionError,
    ServiceError,
    ServiceTimeoutError,
    checked_count,
)
from retrieval_core.ports import ResultCache
from retrieval_core.types import RetrievalResult

if TYPE_CHECKING:
    from typing import Self

    from retrieval_core.adapters.parts import AdapterParts

_FORMAT = 2
_SCHEMA_BYTES = 12
_HEADER_BYTES = _SCHEMA_BYTES + 4
_QUICK_BYTES = 200_000
_TOKEN_BYTES = 16
_MOST_MISSED = 10_000
"""The most missed keys that are remembered."""
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_QUICK_CHARACTERS = 100_000
_MOST_CONNECTIONS = 1000


def encode(result: RetrievalResult) -> bytes:
    """Return a result as bytes; time zones are kept by their offset from UTC.

    Raises:
        InvalidParameterError: The result holds something else than :mod:`retrieval_core.types` says.
    """
    try:
        data = _adapter().dump_json((result,), warnings="error")
    except (PydanticSerializationError, TypeError, ValueError) as error:
        msg = f"the result cannot be written as JSON: {error}; make it of what retrieval_core.types names"
        raise InvalidParameterError(msg) from error
    return schema() + crc32(data).to_bytes(4, "big") + data


def decode(data: bytes) -> RetrievalResult | None:
    """Return the result that the bytes were made of, ``None`` where they are of another version or damaged."""
    if data[:_SCHEMA_BYTES] != schema():
        return None
    payload = data[_HEADER_BYTES:]
    if crc32(payload).to_bytes(4, "big") != data[_SCHEMA_BYTES:_HEADER_BYTES]:
        return None
    try:
        return _adapter().validate_json(payload, strict=True)[0]
    except (OverflowError, TypeError, ValueError):
        return None


def is_quickly_decoded(data: bytes) -> bool:
    """Whether decoding takes no longer than an event loop may be kept."""
    return len(data) <= _QUICK_BYTES


@cache
def schema() -> bytes:
    """Return what the bytes of this version begin with."""
    records = [kind for _, kind in sorted(vars(types).items()) if is_dataclass(kind)]
    described = [(kind, [(field.name, str(field.type)) for field in fields(kind)]) for kind in records]
    return sha256(repr((_FORMAT, described)).encode()).digest()[:_SCHEMA_BYTES]


@cache
def _adapter() -> TypeAdapter[tuple[RetrievalResult]]:
    moment = Annotated[datetime, PlainValidator(datetime.fromisoformat), PlainSerializer(datetime.isoformat)]
    return _adapter_with(moment, Mapping, Mapping[str, Any])


def _adapter_with(datetime: Any, Mapping: Any, Metadata: Any) -> TypeAdapter[tuple[RetrievalResult]]:  # noqa: ARG001, N803
    # pydantic finds the types that are imported for type checkers only among the arguments of this function.
    return TypeAdapter(tuple[RetrievalResult], config=ConfigDict(ser_json_inf_nan="constants"))


class _Pipeline(Protocol):
    def get(self, name: str) -> object: ...
    def getrange(self, key: str, start: int, end: int) -> object: ...
    def set(self, name: str, value: bytes, *, px: int | None = None, nx: bool = False) -> object: ...
    def delete(self, name: str) -> object: ...
    def incrby(self, name: str, amount: int) -> object: ...
    def pexpire(self, name: str, time: int) -> object: ...
    async def execute(self, *, raise_on_error: bool) -> list[Any]: ...
    async def reset(self) -> None: ...


class _Client(Protocol):
    def pipeline(self, transaction: bool) -> _Pipeline: ...
    async def aclose(self) -> None: ...


class RedisSettings(AdapterSettings):
    """A Redis or Valkey server, which several processes may share."""

    required: ClassVar[dict[str, str]] = {"url": "redis://localhost:6379/0"}

    url: SecretStr | None = None
    """``redis://host:port/db``, with user and password if the server needs them."""


class RedisCache(ResultCache):
    """Keeps results in a Redis or Valkey server; a :class:`~retrieval_core.ports.ResultCache`.

    The server expires results. Each call is one round trip; only the first ``set()`` of a process, and the first
    after a ``clear()`` by another one, may take two. Values that do not decode, or come from another version of the
    library, count as absent. Connections belong to an event loop: close the cache on each one that used it. There is no
    time limit but the caller's; ``socket_timeout`` in the URL sets one, in seconds.

    The first call loads the client in a thread, about half a second once in a process; :meth:`load` does so beforehand.

    ``clear()`` writes a new random token to one key: a value counts only while it begins with the current token. So
    clearing takes the same time for any number of results, scans no keys, and works at once for all processes. The
    token is not part of the keys, so that both can be read in one round trip; it is no counter, because a server that
    lost the counter would bring cleared results back.

    Args:
        url: ``redis://host:port/database``, ``rediss://`` for TLS or ``unix:///path``, with user and password where
            there are any; characters with a meaning in URLs must be percent-encoded.
        ttl_seconds: How long a result is kept, to the millisecond; at least 0.001.
        namespace: The prefix of the keys: 1 to 100 letters, digits and ``_.:-``. Caches of one namespace share.
        max_value_bytes: A larger result is neither kept nor read; at least 1.

    Raises:
        ConfigurationError: The URL is not one of those.
        InvalidParameterError: Another argument is out of its range.
    """

    Settings = RedisSettings

    def __init__(
        self,
        url: SecretStr,
        *,
        ttl_seconds: float = 300,
        namespace: str = "retrieval",
        max_value_bytes: int = 4_000_000,
    ) -> None:
        if not ttl_seconds >= 0.001:
            msg = f"ttl_seconds must be at least 0.001, got {ttl_seconds}"
            raise InvalidParameterError(msg)
        if not _NAMESPACE.fullmatch(namespace):
            msg = f"namespace must be 1 to 100 letters, digits and _.:-, got {namespace!r:.120}"
            raise InvalidParameterError(msg)
        self._url = url
        self._place, self._password = _parts(url)
        self._milliseconds = round(ttl_seconds * 1000)
        self._namespace = namespace
        self._token_key = f"{namespace}:token"
        self._most_bytes = checked_count(max_value_bytes, "max_value_bytes") + _TOKEN_BYTES
        self._token: bytes | None = None
        self._missed: dict[str, bytes | None] = {}
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[_Client]] = WeakKeyDictionary()

    @classmethod
    def from_settings(cls, settings: RedisSettings, parts: AdapterParts) -> Self:
        """Make it from its settings, connecting to nothing.

        Raises:
            ConfigurationError: The URL is missing, or is not that of a Redis server.
        """
        if settings.url is None:
            msg = "cache.redis.url: needed for the kind 'redis', for instance redis://localhost:6379/0"
            raise ConfigurationError(msg, missing_keys=("cache.redis.url",))
        return cls(settings.url, ttl_seconds=parts.section.ttl_seconds)

    async def probe(self) -> str:
        """Look up a key, and name the server."""
        await super().probe()
        return f"{self!r} answers"

    def __repr__(self) -> str:
        return f"RedisCache({self._place}, namespace={self._namespace!r})"

    @property
    def is_loaded(self) -> bool:
        """Whether the client is loaded for the running event loop."""
        client = self._clients.get(asyncio.get_running_loop())
        return client is not None and client.done()

    async def load(self) -> None:
        """Load the client for the running event loop; nothing is sent. It raises as the first call does otherwise."""
        await self._client()

    async def _get(self, key: str) -> RetrievalResult | None:
        """Return the result of a key, ``None`` where it is absent or expired.

        Raises:
            MissingExtraError: ``redis`` is not installed.
            ConfigurationError: The URL has a parameter that the client does not know.
            ServiceConnectionError: The server cannot be reached.
            ServiceTimeoutError: It did not answer in the URL's ``socket_timeout``.
            ServiceError: It refuses.
        """
        pipeline = await self._pipeline()
        pipeline.get(self._token_key)
        # A value that is too large was put there by somebody else; no more of it than shows that is read.
        pipeline.getrange(self._key(key), 0, self._most_bytes)
        token, value = await self._execute(pipeline)
        if token is None:
            self._remember(key, None)
            return None
        if len(token) != _TOKEN_BYTES:
            return None
        self._token = token
        if not value.startswith(token) or len(value) > self._most_bytes:
            self._remember(key, token)
            return None
        self._missed.pop(key, None)
        data = value[_TOKEN_BYTES:]
        return decode(data) if is_quickly_decoded(data) else await asyncio.to_thread(decode, data)

    async def _set(self, key: str, result: RetrievalResult) -> None:
        """Store a result, replacing the key's former one. One that is too large is not kept.

        Raises:
            InvalidParameterError: The result holds a value of a type that :mod:`retrieval_core.types` does not name.
            RetrievalError: As ``get()``.
        """
        is_quick = len(result.formatted_context) <= _QUICK_CHARACTERS
        data = encode(result) if is_quick else await asyncio.to_thread(encode, result)
        if key in self._missed:
            # What was searched for before somebody cleared the cache may be stale: under the old token nobody reads it.
            await self._write(key, data, self._missed.pop(key) or token_bytes(_TOKEN_BYTES))
            return
        token = await self._write(key, data, self._token or token_bytes(_TOKEN_BYTES))
        if token is not None:
            await self._write(key, data, token)

    def _remember(self, key: str, token: bytes | None) -> None:
        """Note the token that a key was first missed under, with which its result is then written."""
        self._missed.setdefault(key, token)
        while len(self._missed) > _MOST_MISSED:
            del self._missed[next(iter(self._missed))]

    async def _clear(self) -> None:
        """Remove all results of the namespace, for all processes that share it.

        Raises:
            RetrievalError: As ``get()``.
        """
        token = token_bytes(_TOKEN_BYTES)
        pipeline = await self._pipeline()
        pipeline.set(self._token_key, token)
        await self._execute(pipeline)
        self._token = token

    async def count(self, key: str, by: int = 1, *, seconds: float) -> int:
        """Add to a number that all processes share, and return it.

        Args:
            key: Names the number; one that is not there is 0.
            by: May be negative, or 0.
            seconds: The number is forgotten this long after the last call.

        Raises:
            RetrievalError: As ``get()``.
        """
        name = f"{self._namespace}:count:{sha256(key.encode()).hexdigest()}"
        pipeline = await self._pipeline()
        pipeline.incrby(name, by)
        pipeline.pexpire(name, round(seconds * 1000))
        count, _ = await self._execute(pipeline)
        return count

    async def aclose(self) -> None:
        """Close the connections of the running event loop. Closing twice is fine; another call connects again."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is None:
            return
        if client.done():
            await client.result().aclose()
        else:
            client.cancel()  # it has no connection yet

    async def _write(self, key: str, data: bytes, token: bytes) -> bytes | None:
        """Write a value under a token, and return the current token where that is another one."""
        pipeline = await self._pipeline()
        pipeline.set(self._token_key, token, nx=True)
        pipeline.get(self._token_key)
        if len(token) + len(data) > self._most_bytes:
            pipeline.delete(self._key(key))
        else:
            pipeline.set(self._key(key), token + data, px=self._milliseconds)
        _, self._token, _ = await self._execute(pipeline)
        return None if self._token == token else self._token

    def _key(self, key: str) -> str:
        """Return the server's key: hashed, so that it has one length and holds no text of a user."""
        return f"{self._namespace}:result:{sha256(key.encode()).hexdigest()}"

    async def _pipeline(self) -> _Pipeline:
        return (await self._client()).pipeline(transaction=False)

    async def _client(self) -> _Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for gone in [other for other in self._clients if other.is_closed()]:
                del self._clients[gone]
            # The import reads files for half a second.
            client = self._clients[loop] = asyncio.create_task(asyncio.to_thread(self._make_client))
            client.add_done_callback(partial(self._forget_if_failed, loop))
        return client.result() if client.done() else await asyncio.shield(client)

    def _forget_if_failed(self, loop: asyncio.AbstractEventLoop, client: asyncio.Task[_Client]) -> None:
        """Let the next call try again; reading the exception also keeps asyncio from logging it."""
        if (client.cancelled() or client.exception() is not None) and self._clients.get(loop) is client:
            del self._clients[loop]

    def _make_client(self) -> _Client:
        try:
            redis: Any = import_module("redis.asyncio")
            connection: Any = import_module("redis.asyncio.connection")
            retry: Any = import_module("redis.asyncio.retry")
            backoff: Any = import_module("redis.backoff")
        except ImportError as error:
            raise MissingExtraError("redis", "The Redis cache") from error
        ours: dict[str, Any] = {
            "protocol": 2,  # all that is needed, and understood by every server
            "retry": retry.Retry(backoff.NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "decode_responses": False,
            "driver_info": None,  # to tell the server, the client would read its own package's files at each connect
        }
        defaults = {"socket_timeout": None, "socket_connect_timeout": None, "max_connections": _MOST_CONNECTIONS}
        try:
            pool = redis.ConnectionPool(**{**defaults, **connection.parse_url(self._url.get_secret_value()), **ours})
            pool.connection_class(**pool.connection_kwargs)  # refuses unknown parameters of the URL; opens nothing
        except (TypeError, ValueError):  # its message may hold a part of the URL
            msg = (
                f"the cache's URL for {self._place} has a parameter that the redis client does not know or cannot read"
            )
            raise ConfigurationError(msg, problems=("cache.redis.url: unknown or malformed parameter",)) from None
        return cast("_Client", redis.Redis.from_pool(pool))

    async def _execute(self, pipeline: _Pipeline) -> list[Any]:
        from redis import exceptions  # noqa: PLC0415 - loaded with the client

        try:
            # Otherwise the client would put the command into the error's text, the result to be kept included.
            replies = await pipeline.execute(raise_on_error=False)
        except (exceptions.RedisError, OSError) as error:
            # The client calls what goes wrong while it connects a lost connection, also where that is the password.
            refusal = error.__cause__ if isinstance(error.__cause__, exceptions.RedisError) else error
        else:
            refusal = next((reply for reply in replies if isinstance(reply, Exception)), None)
            if refusal is None:
                return replies
        finally:
            await pipeline.reset()
        text = str(refusal)
        if self._password and self._password in text:  # a server that does not know AUTH quotes it
            raise self._mapped(refusal, "") from None
        raise self._mapped(refusal, text) from refusal

    def _mapped(self, error: Exception, text: str) -> ServiceError:
        from redis import exceptions  # noqa: PLC0415 - loaded with the client

        def message(what: str) -> str:
            return f"Redis at {self._place} {what}: {text or type(error).__name__}"

        match error:
            case exceptions.AuthenticationError() | exceptions.AuthorizationError():
                return ServiceError(message("refuses the user or the password"), "redis", status=401)
            case exceptions.NoPermissionError():
                return ServiceError(message("does not permit the command to the user"), "redis", status=403)
            case exceptions.TimeoutError():
                return ServiceTimeoutError(message("did not answer in time"), "redis")
            case exceptions.ConnectionError() | OSError():
                return ServiceConnectionError(message("cannot be reached"), "redis")
            case _:
                return ServiceError(message("failed"), "redis")


def _parts(url: SecretStr) -> tuple[str, str | None]:
    """Return a URL's host, port and path, for people, and its password."""
    try:
        parts = urlsplit(url.get_secret_value())
        host, port = parts.hostname or "localhost", parts.port
        in_query = parse_qs(parts.query).get("password", [None])[0]
        password = unquote(parts.password) if parts.password else in_query
        usual = parts.scheme in {"redis", "rediss"} and re.fullmatch(r"/?[0-9]*", parts.path)
        if (usual or (parts.scheme == "unix" and parts.path)) and not parts.fragment:
            return (unquote(parts.path) if parts.scheme == "unix" else f"{host}:{port or 6379}{parts.path}"), password
    except ValueError:
        pass  # its message may hold a part of the password
    msg = (
        "the cache's URL must be redis://user:password@host:port/database, rediss:// likewise, or unix:///path; "
        "characters such as / # ? @ in user or password must be percent-encoded"
    )
    raise ConfigurationError(msg, problems=("cache.redis.url: not the URL of a Redis server",))
