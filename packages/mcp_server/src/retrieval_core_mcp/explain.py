"""Error messages for assistants, with advice, and without paths of the server's machine."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from retrieval_core import errors

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig

logger = logging.getLogger(__name__)

NO_INDEX = (
    "There is no index yet. Make one on the machine where this server runs, with the command: retrieval index FOLDER "
    "(and --index FILE where the server was started with one). Then ask again; the server need not be restarted."
)
IN_THE_LOG = "The server's log, on its standard error, has the details."

_PATH = re.compile(r"(?:file:|\b[A-Za-z]:)?[\\/]{1,3}(?:[\w.~ -]*[\w.~-][\\/])*[\w.~-]*|~[\\/][\w.~\\/-]*")


def scrub(text: str, config: RetrievalConfig) -> str:
    """Return a message without file-system paths."""
    folder = getattr(config.embedder.tables.get("local"), "model_folder", None)
    for place in (config.index, folder):
        if place is not None:
            for form in {str(Path(place).absolute()), str(place)}:
                text = text.replace(form, "the index" if place == config.index else "the model's folder")
    return _PATH.sub(_hidden, text)


def _hidden(found: re.Match[str]) -> str:
    # A lone slash, or one word behind it, is more often "and/or" than a place.
    return "…" if len(re.findall(r"[\\/]+", found[0])) > 1 else found[0]


def explain(error: Exception, config: RetrievalConfig) -> str:  # noqa: PLR0911 - one for each kind
    """Return the message for an error; unexpected ones are logged."""
    match error:
        case errors.IndexNotReadyError():
            return f"{error}."[:1].upper() + f"{error}."[1:]
        case errors.IndexNotFoundError():
            return NO_INDEX
        case errors.EmbedderMismatchError():
            return (
                f"The index was made with the embedder {error.indexed_with or 'none'}, and the server is set up for "
                f"{error.opened_with or 'none'}. Start the server with the other configuration, or make the index anew."
            )
        case errors.IndexBusyError():
            return "Another program is writing to the index. Ask again in a moment."
        case errors.DimensionMismatchError() | errors.StoreError() | errors.ModelNotFoundError():
            logger.error("%s: %s", type(error).__name__, error)
            advice = "Make the index anew with: retrieval index FOLDER"
            if isinstance(error, errors.ModelNotFoundError):
                return f"The embedding model cannot be loaded. {IN_THE_LOG}"
            return f"The index cannot be used: it is damaged, or does not fit this server. {advice}. {IN_THE_LOG}"
        case errors.MissingExtraError():  # the command that installs it names folders of this machine
            logger.error("%s", error)
            return f"{error.needed_for} needs the extra {error.extra!r}, which is not installed. {IN_THE_LOG}"
        case errors.DeadlineExceededError():
            return "The search took too long. Ask again, or for fewer results."
        case errors.RetrievalError():
            logger.info("%s: %s", type(error).__name__, error)
            return scrub(str(error), config)
        case _:
            logger.error("a tool failed", exc_info=error)
            return f"Something went wrong inside the server. {IN_THE_LOG}"
