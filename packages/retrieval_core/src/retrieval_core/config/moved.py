"""Settings that have another name now, or are no settings any more.

A key of these tables is a setting, such as ``search.top_k``, or a whole section, which covers all settings in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

MOVED: Mapping[str, str] = MappingProxyType({})
"""The new name of a setting or section, by its old one. The old one works for one version, with a warning."""

GONE: Mapping[str, str] = MappingProxyType(
    {
        "cache.semantic.max_size": "the semantic cache keeps the 1,000 queries used last; leave it out",
        "graph.extract": "triples are not extracted any more; set graph.file to a file of triples, such as "
        "INDEX.graph.jsonl, the extracted one next to the index",
        "vectors": "a chunk has one vector, of title, headings and text; remove it, or choose the vector of a "
        "collection of another program with store.qdrant.vector",
        "graph.prompt": "triples are not extracted any more; set graph.file to your own file of triples",
        "analysis.character_ngrams": "parts of words are not indexed any more; set analysis.language for stemming, or "
        "analysis.word_ngrams",
        "query.truncate_at": "queries are always cut at code points; remove it",
        "breaker.pause_seconds": "the pause is always 30 seconds; remove it, or set breaker.failures to 0",
        "federation.max_results_per_query": "the maximum for each index is 100; set limits.max_results, or give "
        "max_results_per_query to a query",
        "embedder.local.hub": "the model is downloaded from one pinned commit; set HF_ENDPOINT for a mirror, or "
        "embedder.model_folder for your own copy",
        "embedder.local.matryoshka_dimensions": "list them in the config.json beside the model",
        **dict.fromkeys(
            (
                "embedder.fastembed.matryoshka_dimensions",
                "embedder.fastembed.query_prefix",
                "embedder.fastembed.passage_prefix",
                "embedder.fastembed.pooling",
                "embedder.fastembed.max_tokens",
            ),
            "models of fastembed are used as on their model cards; for other values download the model, and set "
            "embedder.kind to local and embedder.model_folder to its folder",
        ),
        "embedder.cohere.batch_size": "requests have 96 texts, which is Cohere's maximum; remove it",
        "reranker.local": "set reranker.batch_size, which is for every kind",
        "reranker.cross_encoder.batch_size": "set reranker.batch_size, which is for every kind",
        "reranker.late_interaction.batch_size": "set reranker.batch_size, which is for every kind",
        "reranker.concurrency": "at most 4 requests are made at a time; remove it",
        "relevance_filter.concurrency": "at most 8 requests are made at a time; remove it",
        "relevance_filter.batch_size": "a request has one chunk; remove it",
        "pruner.concurrency": "at most 4 calls are made at a time; remove it",
        "transform.history_turns": "the last 3 turns are used; remove it, or give fewer turns of history to the query",
    }
)
"""What to use instead of a setting or section that is gone: one sentence. Giving it is an error."""


def rename_moved(tree: Mapping[str, Any], source: str, problems: list[str], warnings: list[str]) -> dict[str, Any]:
    """Return a source of settings by today's names.

    Args:
        tree: The settings of the source; they are not changed.
        source: Name of the source, for warnings.
        problems: Receives a line for each setting that is gone, or given by its old and its new name.
        warnings: Receives a sentence for each old name.
    """
    result = _copy(tree)
    for old, sentence in GONE.items():
        if paths := _leaves(_pop(result, old.split(".")), (old,)):
            problems.append(f"{', '.join(map('.'.join, paths))}: {sentence}")
    for old, new in MOVED.items():
        for path, value in _leaves(_pop(result, old.split(".")), ()).items():
            before, now = ".".join((old, *path)), ".".join((new, *path))
            if _put(result, (*new.split("."), *path), value):
                warnings.append(f"{source}: {before} is called {now} now; the old name works in this version only")
            else:
                problems.append(f"{before}: given by its new name {now} too; remove {before}")
    return result


def gone(key: str) -> str | None:
    """Return what to use instead of a setting, or ``None`` if it is not gone."""
    return next((sentence for old, sentence in GONE.items() if f"{key}.".startswith(f"{old}.")), None)


def new_name(key: str) -> str:
    """Return today's name of a setting."""
    for old, new in MOVED.items():
        if f"{key}.".startswith(f"{old}."):
            return new + key.removeprefix(old)
    return key


def old_sections() -> frozenset[str]:
    """Return the sections that a setting of these tables is in."""
    return frozenset(key.partition(".")[0] for key in (*MOVED, *GONE))


def _pop(tree: dict[str, Any], path: Sequence[str]) -> Any:
    """Remove a setting or section, and tables that become empty, and return it; an empty table if it is not there."""
    name, *rest = path
    inner = tree.get(name)
    if not rest:
        return tree.pop(name, {})
    value: Any = _pop(cast("dict[str, Any]", inner), rest) if isinstance(inner, dict) else {}
    if inner == {}:
        del tree[name]
    return value


def _put(tree: dict[str, Any], path: Sequence[str], value: Any) -> bool:
    """Add a setting; return false if it is there already, or if its section is not a table."""
    name, *rest = path
    if rest:
        inner = tree.setdefault(name, {})
        return isinstance(inner, dict) and _put(cast("dict[str, Any]", inner), rest, value)
    is_new = name not in tree
    tree.setdefault(name, value)
    return is_new


def _leaves(value: Any, path: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """Return the settings in a section by their paths, or the one setting that a value is."""
    if not isinstance(value, dict):
        return {path: value}
    leaves: dict[tuple[str, ...], Any] = {}
    for name, inner in cast("dict[str, Any]", value).items():
        leaves |= _leaves(inner, (*path, name))
    return leaves


def _copy(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _copy(cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
        for name, value in tree.items()
    }
