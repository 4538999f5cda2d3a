"""The key of a result: one short name for everything that the result depends on, and the fingerprint in it.

The key is the SHA-256 of JSON with sorted keys, in which a filter is a list of its operator and its operands. Python's
own equality would not do: ``1``, ``1.0`` and ``True`` are equal to it, and a filter means something else by each. The
same inputs have the same key in every process.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from retrieval_core.ports import Versioned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from retrieval_core.config import RetrievalConfig
    from retrieval_core.pipeline.search_index import Parts
    from retrieval_core.types import JSON
    from retrieval_core.types.filters import Filter

SECTIONS = {
    *("query", "transform", "search", "reranker", "relevance_filter", "rewriter", "pruner", "format"),
    "evaluation",
}
"""The settings that change what is found."""
_FORMAT = "retrieval-core result 3"
_PARTITION = "retrieval-core questions 2"


def result_key(
    *,
    query: str,
    filters: Filter | None,
    parameters: Mapping[str, JSON],
    fingerprint: str,
    version: str | None,
    epoch: int,
) -> str:
    """Return the key of a result, 64 hexadecimal digits.

    The order of ``parameters`` does not count, and a tuple counts as a list. The order within a filter does count:
    ``Or((a, b))`` and ``Or((b, a))`` have two keys, which costs a second run and is never wrong.

    Args:
        query: As it is searched for.
        filters: All conditions of the run, those set by a server included.
        parameters: What else was asked for in this call, for instance the number of hits. What comes from plug-ins and
            users is frozen before (:func:`~retrieval_core.types.freeze`), since JSON takes ``1`` and ``"1"`` for the
            same name; not here, where it would take as long as the rest of the key.
        fingerprint: Names the configuration and the parts of the pipeline.
        version: Names the state of the index, ``None`` where the store cannot tell.
        epoch: How often this process declared its earlier results void.
    """
    return _hashed(_FORMAT, query, filters, parameters, fingerprint, version, epoch)


def partition_key(session: str | None, key_without_question: str) -> str:
    """Return what names everything that a result depends on but the question, 64 hexadecimal digits.

    Args:
        session: Whose questions are compared with each other; ``None`` where that makes no difference.
        key_without_question: The result's, made with an empty one.
    """
    return _hashed(_PARTITION, session, key_without_question)


def _hashed(*values: Any) -> str:
    return sha256(_ENCODER.encode(values).encode()).hexdigest()


def _written(condition: Filter) -> list[Any]:
    return [condition.operator, *[getattr(condition, name) for name in _operands(type(condition))]]


@cache
def _operands(kind: type[Filter]) -> tuple[str, ...]:
    """Names of what a filter consists of, which is what its equality looks at."""
    return tuple(field.name for field in fields(kind) if field.compare)


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
    custom = {name: getattr(getattr(config, name), "custom", None) for name in sorted(SECTIONS)}  # a dump hides it
    ids.append(f"{config.answer.abstain_below!r} {config.analysis.model_dump_json()}")  # of what judges the hits
    text = f"{config.model_dump_json(include=SECTIONS)}\n{to_json(custom)!r}\n{ids!r}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_written)
