"""The audit log: a line for each request, without queries and results."""

from __future__ import annotations

import json
import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator, MutableMapping

    from retrieval_core_mcp.http.envelope import Call

logger = logging.getLogger(__name__)


@contextmanager
def audit_log(place: str | None) -> Generator[None]:
    """Write the audit log to a file, or with ``-`` to standard error, as long as the context is open.

    It has a line of JSON for each request, written by its own thread. A file that is moved away is opened anew.

    Args:
        place: ``None`` for no log.

    Raises:
        OSError: The file cannot be written.
    """
    if place is None:
        yield
        return
    handler = logging.StreamHandler() if place == "-" else WatchedFileHandler(place, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    lines: SimpleQueue[logging.LogRecord] = SimpleQueue()
    writer = QueueListener(lines, handler)
    to_writer = QueueHandler(lines)
    logger.addHandler(to_writer)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    writer.start()
    try:
        yield
    finally:
        writer.stop()
        logger.removeHandler(to_writer)
        logger.setLevel(logging.NOTSET)
        handler.close()


def note(scope: MutableMapping[str, Any], call: Call) -> None:
    """Write down a request that has ended.

    The path is that of the route, which contains no ids. A request of MCP has its method, and the name of a tool. The
    status is missing if the client left before there was one.
    """
    if not logger.isEnabledFor(logging.INFO):
        return
    state: dict[str, Any] = scope.get("state", {})
    told = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "request_id": call.request_id,
        "caller": None if call.token is None else call.token.name,
        "tenant": call.tenant,
        "method": scope["method"],
        "route": getattr(scope.get("route"), "path", None),
        "mcp": state.get("mcp"),
        "index": ", ".join(each.name for each in call.served) or state.get("index"),
        "status": call.status,
        "milliseconds": round((time.monotonic() - call.arrived) * 1000, 1),
    }
    logger.info(json.dumps({name: value for name, value in told.items() if value is not None}))
