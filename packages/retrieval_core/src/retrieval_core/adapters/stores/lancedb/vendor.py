"""LanceDB's modules and Arrow's, which come with an extra, are slow to import and mostly untyped."""

from __future__ import annotations

from typing import Any, NamedTuple

from retrieval_core.errors import MissingExtraError


class LanceDB(NamedTuple):
    """LanceDB's modules."""

    connect: Any
    index: Any
    query: Any
    rerankers: Any


def lancedb() -> LanceDB:
    """Return LanceDB.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        from lancedb import connect, index, query, rerankers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError("lancedb", "The LanceDB store") from error
    return LanceDB(connect, index, query, rerankers)


def arrow() -> Any:
    """Return Arrow, which comes with LanceDB."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the extra

    return pa
