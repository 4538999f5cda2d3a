"""Errors as the statuses and messages of the contract."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from pydantic import SecretStr
from starlette.requests import ClientDisconnect

from retrieval_core import errors
from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from retrieval_core.service.served import ServedIndex
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core_mcp.http.envelope import Call

logger = logging.getLogger(__name__)

NO_VECTORS = "the index {index} contains no vectors, so that nothing in it has a similarity score"
NOT_SET_UP = 501
_PROBLEMS: tuple[tuple[tuple[type[Exception], ...], int, tuple[str, ...]], ...] = (
    ((ClientDisconnect,), 499, ("the client has left",)),  # which nobody reads, and the metrics count
    ((errors.QueryValidationError,), 400, ("query_text cannot be empty",)),
    ((errors.FilterError, errors.InvalidParameterError), 400, ("{message}",)),
    ((errors.NotFoundError,), 404, ("{message}",)),
    ((errors.NotPermittedError,), 403, ("{message}",)),
    ((errors.DeadlineExceededError,), 503, ("the request took longer than the service allows",)),
    ((errors.EmbeddingError, errors.ModelNotFoundError), 503, ("Failed to embed query: {message}",)),
    ((errors.ConfigurationError,), NOT_SET_UP, ("the service is not set up for this: {message}",)),
    (
        (errors.StoreError, errors.SearchError, errors.ServiceError),
        503,
        ("{store} service unavailable at {address}", "{message}"),
    ),
)
"""Statuses and messages by the kind of error; the first row that fits is taken."""
_STORES = {"sqlite": "SQLite", "lancedb": "LanceDB", "memory": "Memory", "postgres": "PostgreSQL"}


def refused(error: BaseException, call: Call, context: ServiceContext | None = None) -> RequestError:
    """Return the answer to a request that failed, and log what nobody expected.

    Args:
        context: Makes messages fit for callers; ``None`` before the request has one.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, errors.EmbedderMismatchError) and error.indexed_with is None:
        return RequestError(400, NO_VECTORS.format(index=", ".join(each.name for each in call.served)))
    row = next((row for row in _PROBLEMS if isinstance(error, row[0])), None)
    if row is None or (context is None and not isinstance(error, ClientDisconnect)):
        logger.error("request %s failed", call.request_id, exc_info=error)
        return RequestError(500, f"Internal server error: {type(error).__name__} (request {call.request_id})")
    _, status, messages = row
    if status >= 500:
        level = logging.ERROR if status == NOT_SET_UP else logging.WARNING
        logger.log(level, "request %s: %s: %s", call.request_id, type(error).__name__, error)
    words = {
        "message": _message_of(error, context),
        "store": store_name(call.served[0]) if call.served else "Index",
        "address": store_address(call.served[0]) if call.served else "urn:retrieval",
    }
    headers = {"retry-after": "1"} if status == 503 else None
    return RequestError(status, *(message.format(**words) for message in messages), headers=headers)


def _message_of(error: BaseException, context: ServiceContext | None) -> str:
    if context is None:
        return type(error).__name__
    if isinstance(error, errors.NotFoundError) and error.what == "Page":
        return f"there is no page to show: {context.redact(error.reason or '')}"
    cause = error.__cause__
    is_embedding = isinstance(error, errors.EmbeddingError)
    return context.message_of(cause if is_embedding and isinstance(cause, errors.RetrievalError) else error)


def store_name(served: ServedIndex) -> str:
    """Return the name of an index's store, for people."""
    kind = served.config.store.kind
    return _STORES.get(kind, "Index" if ":" in kind else kind.capitalize())


def store_address(served: ServedIndex) -> str:
    """Return where the store of an index is, without credentials and paths of this machine."""
    store = served.config.store
    settings = getattr(store, store.kind, None)
    address = getattr(settings, "url", None) or getattr(settings, "host", None)
    if address is None or isinstance(address, SecretStr):  # an address with a password is not for callers
        return f"urn:retrieval:{quote(served.name, safe='')}"
    parts = urlsplit(str(address))
    place = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    return f"{parts.scheme}://{place}" if place else str(address)
