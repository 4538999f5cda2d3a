"""Advice for assistants on errors, without paths of the server's machine."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from retrieval_core import errors
from retrieval_core_mcp.fitting import in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from retrieval_core.service.service_context import ServiceContext

logger = logging.getLogger(__name__)

IN_THE_LOG = "The server's log, on its standard error, has the details."
_NO_INDEX = (
    "There is no index yet. Make one on the machine where this server runs, with the command: retrieval index FOLDER "
    "(and --index FILE if the server was started with one). Then call again; the server need not be restarted."
)
_UNUSABLE = (
    "The index can't be used: it is damaged, or does not fit this server. Rebuild the index with: retrieval "
    f"index FOLDER. {IN_THE_LOG}"
)


def _sentence(error: Exception, _context: ServiceContext) -> str:
    return f"{error}."[:1].upper() + f"{error}."[1:]


def _message(error: Exception, context: ServiceContext) -> str:
    return context.message_of(error)


def _message_and_log(error: Exception, context: ServiceContext) -> str:
    return f"{context.message_of(error)}. {IN_THE_LOG}"


def _embedder(error: errors.EmbedderMismatchError, _context: ServiceContext) -> str:
    if error.indexed_with is None:
        return (
            "The index has no embeddings, so vector search is not possible. Call search again with mode lexical. To "
            "make that the default, start the server with --config lexical."
        )
    return (
        f"The index was made with the embedder {error.indexed_with}, and the server is set up for "
        f"{error.opened_with or 'none'}. Start the server with the other configuration, or rebuild the index."
    )


def _missing(error: errors.NotFoundError, _context: ServiceContext) -> str:
    name = in_one_line(error.name, 80)
    if error.what == "File":
        there_is = f"there is no file or folder {name} below the folders that may be indexed"
        return f"path: {there_is}. Name it relative to them."
    if error.reason:  # such as the lines that there are
        return _sentence(error, _context)
    return f"There is nothing with the id {name}. Take ids from results of the tool search, unchanged."


def _refusal(_error: Exception, context: ServiceContext) -> str:
    if context.tenant is not None:
        return "This caller sees only some of the documents, so it may not write. Ask who runs the server."
    return "The token of this caller lacks the scope write. Ask who runs the server for another one."


_ADVICE: tuple[tuple[type[Exception], str | Callable[[Any, ServiceContext], str], int], ...] = (
    (errors.IndexNotReadyError, _sentence, logging.DEBUG),
    (errors.IndexNotFoundError, _NO_INDEX, logging.DEBUG),
    (errors.EmbedderMismatchError, _embedder, logging.DEBUG),
    (errors.IndexBusyError, "Another program is writing to the index. Try again in a moment.", logging.DEBUG),
    (errors.DimensionMismatchError, _UNUSABLE, logging.ERROR),
    (errors.StoreError, _UNUSABLE, logging.ERROR),
    (errors.ModelNotFoundError, f"The embedding model can't be loaded. {IN_THE_LOG}", logging.ERROR),
    (errors.MissingExtraError, _message_and_log, logging.ERROR),
    (
        errors.DeadlineExceededError,
        "The search took too long. Try again, or request fewer results.",
        logging.DEBUG,
    ),
    (errors.NotFoundError, _missing, logging.DEBUG),
    (errors.NotPermittedError, _refusal, logging.DEBUG),
    (errors.RetrievalError, _message, logging.INFO),
)
"""The advice, and the level at which the error is logged. The first row of a type that an error has applies."""


def advice_on(error: Exception, context: ServiceContext) -> str:
    """Return advice on an error for an assistant. The log has the error itself."""
    for kind, advice, level in _ADVICE:
        if isinstance(error, kind):
            logger.log(level, "%s: %s", type(error).__name__, error)
            return advice if isinstance(advice, str) else advice(error, context)
    logger.error("a tool failed", exc_info=error)
    return f"Something went wrong inside the server. {IN_THE_LOG}"
