"""Turn errors of the library into HTTP statuses and messages of the contract."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect

from retrieval_core import errors
from retrieval_core.config import without_credentials
from retrieval_core_mcp.explain import scrub
from retrieval_core_mcp.fitting import in_one_line
from retrieval_core_mcp.http.envelope import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core_mcp.http.indexes import ServedIndex

logger = logging.getLogger(__name__)

LONGEST_MESSAGE = 1_000
_MESSAGES = frozenset({"error", "decision", "reason"})
_ENTRIES = frozenset({"stages", "degraded", "fallbacks"})


def refused(  # noqa: PLR0911 - one for each kind
    error: Exception, served: ServedIndex | None, request_id: str
) -> RequestError:
    """Return how a request that failed is answered; what nobody expected is logged.

    Args:
        served: The index that was asked; ``None`` where the request did not get that far.
        request_id: For finding the error in the log.
    """
    match error:
        case RequestError():
            return error
        case ClientDisconnect():
            return RequestError(499, "the client has left")  # which nobody reads, and the metrics count
        case errors.QueryValidationError():
            return RequestError(400, "query_text cannot be empty")
        case errors.FilterError() | errors.InvalidParameterError():
            return RequestError(400, _said(error, served))
        case errors.DeadlineExceededError():
            return RequestError(503, "the request took longer than the service allows", headers={"retry-after": "1"})
        case errors.EmbeddingError() | errors.ModelNotFoundError() if served is not None:
            cause = error.__cause__
            return not_embedded(_said(cause if isinstance(cause, errors.RetrievalError) else error, served))
        case errors.ConfigurationError():
            logger.error("request %s: %s", request_id, error)
            return RequestError(501, f"the service is not set up for this: {_said(error, served)}")
        case errors.EmbedderMismatchError() if served is not None and error.indexed_with is None:
            return no_vectors(served)
        case errors.StoreError() | errors.SearchError() | errors.ServiceError() if served is not None:
            logger.warning("request %s: %s: %s", request_id, type(error).__name__, error)
            return RequestError(
                503,
                f"{served.store} service unavailable at {served.address}",
                _said(error, served),
                headers={"retry-after": "1"},
            )
        case _:
            logger.error("request %s failed", request_id, exc_info=error)
            return RequestError(500, f"Internal server error: {type(error).__name__} (request {request_id})")


def not_embedded(reason: str) -> RequestError:
    """Return how a request is answered whose question could not be embedded."""
    return RequestError(503, f"Failed to embed query: {reason}", headers={"retry-after": "1"})


def incomplete(reason: str, served: ServedIndex) -> RequestError:
    """Return how a search is answered that has no results, and of which a part failed."""
    return RequestError(503, f"The search failed: {shown(reason, served)}", headers={"retry-after": "1"})


def no_vectors(served: ServedIndex) -> RequestError:
    """Return how a search is answered in an index that has no vectors, and so no similarities."""
    name = next((part.name for part in served.parts if not part.embeds), served.name)
    return RequestError(400, f"the index {name} contains no vectors, so that nothing in it has a similarity score")


def _said(error: BaseException, served: ServedIndex | None) -> str:
    """Return an error's message, without what others than this library say in it, and without paths."""
    text = str(error) or type(error).__name__
    if isinstance(error, errors.MissingExtraError):  # the command that installs it names folders of this machine
        text = f"{error.needed_for} needs the extra {error.extra!r}, which is not installed"
    cause = error.__cause__
    while cause is not None:
        if not isinstance(cause, errors.RetrievalError) and (foreign := str(cause)):
            text = text.replace(foreign, type(cause).__name__)
        cause = cause.__cause__
    return shown(text, served)


def entry_shown(entry: Mapping[str, Any], served: ServedIndex) -> dict[str, Any]:
    """Return what a stage did, or was done without, with its messages as clients see them."""
    told = dict(entry)
    for name in _MESSAGES & told.keys():
        if isinstance(told[name], str):
            told[name] = shown(told[name], served)
    if told.get("failed"):
        told["failed"] = [entry_shown(each, served) for each in told["failed"]]
    return told


def result_shown(told: dict[str, Any], served: ServedIndex) -> dict[str, Any]:
    """Return a pack or an answer, in JSON, with the messages of its stages as clients see them."""
    return {
        name: [entry_shown(entry, served) for entry in value] if name in _ENTRIES else value
        for name, value in told.items()
    }


def shown(text: str, served: ServedIndex | None) -> str:
    """Return a message for a client: one line, without paths of this machine and without credentials."""
    text = without_credentials(text)
    for config in () if served is None else served.configs:
        text = scrub(text, config)
    return in_one_line(text, LONGEST_MESSAGE)
