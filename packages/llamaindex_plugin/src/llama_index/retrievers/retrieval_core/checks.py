"""Validation of arguments when they are given, before the first query."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast, get_args

from llama_index.core.retrievers import BaseRetriever

from llama_index.retrievers.retrieval_core.convert import ScoreKind
from retrieval_core.errors import IndexFormatError, InvalidParameterError
from retrieval_core.pipeline.options import MAX_TOP_K, checked_number

if TYPE_CHECKING:
    from pathlib import Path

    from llama_index.core.base.embeddings.base import BaseEmbedding

    from retrieval_core.ports import Embedder


def check_kind(value: object, name: str, kind: type, wanted: str) -> None:
    """Refuse an argument that is no object of a class. The message has its type alone, as the value may be a secret.

    Raises:
        InvalidParameterError: It is none.
    """
    if not isinstance(value, kind):
        msg = f"{name} must be {wanted}, got {_kind(value)}"
        raise InvalidParameterError(msg)


def check_pipeline(value: object) -> None:
    """Refuse what is not a pipeline; LlamaIndex's retrievers have methods of the same names with other arguments.

    Raises:
        InvalidParameterError: It is none.
    """
    if isinstance(value, (type, BaseRetriever)) or not (hasattr(value, "retrieve") and hasattr(value, "aretrieve")):
        msg = (
            f"pipeline must be a RetrievalPipeline, such as an index that open_index(…) gives, got {_kind(value)}; "
            "for an index file call RetrievalCoreRetriever.from_index_file, and for a VectorStoreIndex give "
            "adapters.from_index(index)"
        )
        raise InvalidParameterError(msg)


def one_top_k(top_k: int | None, similarity_top_k: int | None) -> int | None:
    """Return the number of nodes, which has two names.

    Raises:
        InvalidParameterError: Both are given, or it is outside its range.
    """
    if top_k is not None and similarity_top_k is not None:
        msg = f"similarity_top_k is another name of top_k; give one of them, got {similarity_top_k!r} and {top_k!r}"
        raise InvalidParameterError(msg)
    given = similarity_top_k if top_k is None else top_k
    return None if given is None else checked_number("top_k", given, MAX_TOP_K)


def one_embed_model(
    embed_model: BaseEmbedding | Embedder | None, embedder: BaseEmbedding | Embedder | None
) -> Embedder | None:
    """Return the embedder, whose argument has a former name.

    Raises:
        InvalidParameterError: Both are given, or it is no embedder.
    """
    from llama_index.retrievers.retrieval_core.adapters.embedder import as_embedder  # noqa: PLC0415 - it imports this

    if embed_model is not None and embedder is not None:
        msg = "embedder is the former name of embed_model; give one of them"
        raise InvalidParameterError(msg)
    if embed_model is None:
        return None if embedder is None else as_embedder(embedder, "embedder")
    return as_embedder(embed_model, "embed_model")


def check_node_settings(llm_metadata: Any, score: object) -> None:
    """Refuse settings of nodes that cannot be.

    Raises:
        InvalidParameterError: ``llm_metadata`` is no list of keys, or there is no such kind of score.
    """
    is_list = isinstance(llm_metadata, Sequence) and not isinstance(llm_metadata, str)
    if llm_metadata is not None and not (
        is_list and all(isinstance(key, str) for key in cast("Sequence[object]", llm_metadata))
    ):
        msg = f'llm_metadata must be a list of keys of the metadata, such as ["citation"], got {llm_metadata!r:.80}'
        raise InvalidParameterError(msg)
    if score not in get_args(ScoreKind):
        msg = f'score must be "raw" or "relevance", got {score!r:.80}'
        raise InvalidParameterError(msg)


def checked_share(value: object, name: str) -> float:
    """Return a number in [0, 1].

    Raises:
        InvalidParameterError: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        msg = f"{name} must be a number in [0, 1], got {value!r:.80}"
        raise InvalidParameterError(msg)
    return float(value)


def check_index_file(path: Path) -> None:
    """Refuse a path that is no index file.

    Raises:
        InvalidParameterError: It is a folder.
        IndexFormatError: It is a file of something else than SQLite.
    """
    try:
        if path.is_dir():
            msg = f"{path} is a folder; give the index file"
            raise InvalidParameterError(msg)
        if path.is_file() and not _is_sqlite(path):
            msg = f"{path} is not an index; give the index file that retrieval-core made"
            raise IndexFormatError(msg)
    except OSError:
        return  # the first query says why it cannot be read


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a value of type {type(value).__name__}"


def _is_sqlite(path: Path) -> bool:
    """Whether SQLite accepts a file; an empty one, or one that it cannot open now, counts as accepted."""
    # Only SQLite itself may open the file: closing it by other means would let go of all locks that this process has
    # on it (sqlite.org/howtocorrupt.html, 2.2). As an immutable file it is neither locked nor written to.
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_NOTADB
    return True
