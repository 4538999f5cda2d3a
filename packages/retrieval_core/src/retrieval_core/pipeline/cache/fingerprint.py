"""The fingerprint of a pipeline: what its results depend on apart from the question and the index."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from pydantic_core import to_json

from retrieval_core.ports import Versioned

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.search_index import Parts

SECTIONS = {
    *("query", "transform", "vectors", "search", "reranker", "relevance_filter", "rewriter", "pruner", "format"),
    "evaluation",
}
"""The settings that change what is found."""


def fingerprint_of(parts: Parts, config: RetrievalConfig) -> str | None:
    """Return a digest of the settings and of the identities of all plug-ins but transformers, which each query chooses.

    Returns:
        ``None`` where a plug-in does not say who it is: then two results cannot be known to be the same.
    """
    ids = [None if part is None else getattr(part, "id", "") for part in parts.plugged_in]
    ids += parts.sources.retrievers
    # A versioned store names itself in each of its versions.
    ids.append(None if isinstance(parts.store, Versioned) else getattr(parts.store, "id", ""))
    if "" in ids:
        return None
    options = {name: getattr(getattr(config, name), "options", None) for name in sorted(SECTIONS)}
    text = f"{config.model_dump_json(include=SECTIONS)}\n{to_json(options)!r}\n{ids!r}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
