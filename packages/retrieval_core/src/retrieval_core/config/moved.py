"""Settings that were renamed or removed.

A key of these tables is a setting, such as ``search.top_k``, or a whole section, which covers all settings in it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from retrieval_core.config.base import copy_tree, merge_into, value_at
from retrieval_core.config.kinds import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OTHER_SECTIONS = ("RETRIEVAL_CONFIG", "MODEL_CONFIG", "EXTERNAL_MODELS", "PERFORMANCE_CONFIG")
"""Tables in which :data:`OTHER_NAMES` may stand, too."""
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "retrievalK": "search.candidates",
        "retrieval_k": "search.candidates",
        "denseWeight": "search.dense_weight",
        "dense_weight": "search.dense_weight",
        "contextWindowSize": "context.window",
        "rerankerTopK": "reranker.candidates",
        "reranker_top_k": "reranker.candidates",
        "verify": "answer.verify",
        "verify_answers": "answer.verify",
        "cache_ttl": "cache.ttl_seconds",
        "cache_scope": "cache.semantic.scope",
        "enrichment_model": "transform.model",
        "batch_sizes.embedding": "embedder.openai.batch_size",
        "batch_sizes.reranking": "reranker.batch_size",
        "memory_limits.max_cache_size": "cache.max_size",
        "memory_limits.max_results_per_query": "limits.max_results",
    }
)
"""Names of the specification that mean the same as one of ours; :mod:`retrieval_core.compat.flags` has all of them."""
_MODES = "set search.mode to hybrid, vector or keyword"
_EMBEDDER = "set embedder.kind to openai, and base_url and model of embedder.openai"
OTHER_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("searchType", "search_type", "retrievalMode", "retriever"), _MODES),
        **dict.fromkeys(
            ("aiRerank", "ai_rerank"),
            "set reranker.kind, such as to late-interaction, or to none",
        ),
        "reranker_model": "set reranker.kind, and the model in its table, such as reranker.late_interaction.model",
        "fallback_reranker": "add cross-encoder to reranker.fallbacks, and set reranker.cross_encoder.model",
        "late_chunking": "set context.window, for instance to 5; 0 switches it off",
        "cache_enabled": "remove this name, or set cache.kind to none to switch caching off",
        "semantic_cache_threshold": "set cache.semantic.enabled to true, and cache.semantic.threshold",
        **dict.fromkeys(("embedding_model", "embedding_model_name"), _EMBEDDER),
        "generation_model": "set llm.kind to openai, and base_url and model of llm.openai",
        "ollama_config": "set base_url and model of embedder.openai and of llm.openai",
        "memory_limits.chunk_size_limit": "set chunking.max_tokens to at most this",
        "batch_sizes.synthesis": "an answer is always one request; remove this setting",
    }
)
"""Names of the specification that mean several of our settings, or some that depend on others."""
_PLACES = ("", *(f"{section}." for section in OTHER_SECTIONS))

MOVED: Mapping[str, str] = MappingProxyType(
    {
        **{f"{place}{old}": new for place in _PLACES for old, new in OTHER_NAMES.items()},
        **{f"{section}.timeouts": "timeouts" for section in OTHER_SECTIONS},
        "store.options": "store.custom",
        "embedder.options": "embedder.custom",
        "llm.options": "llm.custom",
        "reranker.options": "reranker.custom",
        "relevance_filter.options": "relevance_filter.custom",
        "pruner.options": "pruner.custom",
        "rewriter.options": "rewriter.custom",
        "transform.options": "transform.custom",
        "answer.options": "answer.custom",
        "cache.options": "cache.custom",
        "evaluation.options": "evaluation.custom",
        "embedder.model_folder": "embedder.local.model_folder",
        "reranker.prompt": "reranker.llm.prompt",
        "reranker.max_characters": "reranker.llm.max_characters",
        "reranker.strict_json": "reranker.llm.strict_json",
        "relevance_filter.relevance_prompt": "relevance_filter.llm.prompt",
        "relevance_filter.relevance_threshold": "relevance_filter.local.threshold",
        "rewriter.rewrite_prompt": "rewriter.llm.prompt",
        "cache.url": "cache.redis.url",
    }
)
"""The new name of a setting or section, by its old one. The old one works for one version, with a warning."""

GONE: Mapping[str, str] = MappingProxyType(
    {
        "store.busy_timeout": "a writer waits up to 30 seconds for another one; remove this setting",
        "embedder.threads": "texts are embedded on all processors, at most 8; remove this setting, or pass "
        "LocalEmbedder(threads=…) to open_index",
        "embedder.local.hub": "the default model is downloaded from one pinned commit; set the environment variable "
        "HF_ENDPOINT for a mirror, or embedder.local.model_folder for your own copy",
        "embedder.local.matryoshka_dimensions": "the dimensions are read from the model's folder; list them as "
        "matryoshka_dimensions in its config.json",
        **dict.fromkeys(
            (
                "embedder.fastembed.matryoshka_dimensions",
                "embedder.fastembed.query_prefix",
                "embedder.fastembed.passage_prefix",
                "embedder.fastembed.pooling",
                "embedder.fastembed.max_tokens",
            ),
            "models of fastembed are used as on their model cards; remove this setting, or download the model, and set "
            "embedder.kind to local and embedder.local.model_folder to its folder",
        ),
        "embedder.cohere.batch_size": "a request has 96 texts, Cohere's maximum; remove this setting",
        "analysis.character_ngrams": "parts of words are no longer indexed; remove this setting, or set "
        "analysis.language for stemming",
        "query.truncate_at": "long queries are always cut at code points; remove this setting",
        "vectors": "a chunk has one vector, of its title, headings and text; remove this setting, or set "
        "store.qdrant.vector to choose a vector in a Qdrant collection that another program filled",
        "transform.history_turns": "the last 3 turns are used; remove this setting, or pass fewer turns as the history "
        "of a query",
        "graph.extract": "triples are no longer extracted; remove this setting, or set graph.file to the extracted "
        "ones: the file next to the index, such as index.db.graph.jsonl",
        "graph.prompt": "triples are no longer extracted; remove this setting, or set graph.file to your own file of "
        "triples",
        **dict.fromkeys(
            ("reranker.local", "reranker.cross_encoder.batch_size", "reranker.late_interaction.batch_size"),
            "all kinds share one setting; set reranker.batch_size",
        ),
        "reranker.concurrency": "at most 4 requests run at a time; remove this setting",
        "relevance_filter.concurrency": "at most 8 requests run at a time; remove this setting",
        "relevance_filter.batch_size": "a request has one chunk; remove this setting",
        "pruner.provence": "the model and its revision are fixed; remove this table",
        "pruner.concurrency": "at most 4 calls run at a time; remove this setting",
        "cache.semantic.max_size": "the semantic cache keeps the 1,000 queries used last; remove this setting",
        **dict.fromkeys(
            ("retry.max_delay", "retry.exponential_base"),
            "each delay is twice as long as the one before, at most 10 seconds; remove this setting",
        ),
        "breaker.pause_seconds": "each pause is twice as long as the one before, at most 30 seconds; remove this "
        "setting, or set breaker.failures to 0 for no pauses",
        "indexing.words_first": "new files can always be searched by keyword first; remove this setting",
        "limits.max_chunk_tokens": "set chunking.max_tokens to at most this",
        "federation.max_results_per_query": "each index returns at most 100 results; set limits.max_results to fewer, "
        "or pass max_results_per_query to a query",
        **{f"{place}{name}": sentence for place in _PLACES for name, sentence in OTHER_MEANINGS.items()},
    }
)
"""Removed settings and sections, each with one sentence that ends with what to do. Using one is an error."""

SWITCHES: Mapping[str, str] = MappingProxyType(
    {"reranker": "", "relevance_filter": "", "cache": "memory", "evaluation": "auto"}
)
"""Sections that had a setting ``enabled`` beside ``kind``, with the kind that true stands for if none is set."""


def rename_moved(
    tree: Mapping[str, Any],
    source: str,
    problems: list[str],
    warnings: list[str],
) -> dict[str, Any]:
    """Return the settings of a source under their new names.

    Args:
        tree: The settings of the source. They are not changed.
        source: Name of the source, for warnings.
        problems: Receives a line for each removed setting, and for each that has its old and its new name.
        warnings: Receives a sentence for each old name.
    """
    result = copy_tree(tree)
    for old, sentence in _beginning_as(GONE, result):
        leaves = _leaves(_pop(result, old.split(".")), (old,))
        if paths := [path for path, value in leaves.items() if value != {}]:
            keys = (".".join(map(str, path)) for path in paths)  # a program may give names that are no text
            problems.append(f"{', '.join(keys)}: {sentence}")
    for old, new in _beginning_as(MOVED, result):
        for path, value in _leaves(_pop(result, old.split(".")), ()).items():
            before, now = ".".join((old, *map(str, path))), ".".join((new, *map(str, path)))
            if _put(result, (*new.split("."), *path), value):
                warnings.append(f"{source}: {before} is called {now} now; the old name works in this version only")
            else:
                problems.append(f"{before}: given by its new name {now} too; remove {before}")
    for section in SWITCHES:
        if value_at(result, f"{section}.enabled") is not None:
            advice = f"set {section}.kind, to none for false, and remove enabled"
            warnings.append(
                f"{source}: {section}.enabled is {section}.kind now; {advice}. It works in this version only"
            )
    return result


def lay_over(tree: dict[str, Any], source: Mapping[str, Any]) -> None:
    """Lay a stronger source over a tree; if it sets the kind of a section, ``enabled`` below it does not count."""
    for section in SWITCHES:
        if value_at(source, f"{section}.kind") is not None:
            _pop(tree, (section, "enabled"))
    merge_into(tree, source)


def replace_switches(tree: dict[str, Any], problems: list[str]) -> None:
    """Replace ``enabled`` beside ``kind`` by the kind that it means.

    Args:
        tree: All sources, which is changed.
        problems: Receives a line for each value that is neither true nor false.
    """
    for section, usual in SWITCHES.items():
        given = _pop(tree, (section, "enabled"))
        if given == {}:
            continue
        try:
            is_on = TypeAdapter(bool).validate_python(given)
        except ValidationError:
            problems.append(f"{section}.enabled: must be true or false; set {section}.kind, to none for false")
            continue
        if not is_on:
            merge_into(tree, {section: {"kind": NONE}})
        elif usual and value_at(tree, f"{section}.kind") is None:
            merge_into(tree, {section: {"kind": usual}})


def _beginning_as(table: Mapping[str, str], tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a table whose keys may be in a tree."""
    return [(key, value) for key, value in table.items() if key.partition(".")[0] in tree]


def gone(key: str) -> str | None:
    """Return the advice for a removed setting; ``None`` if the setting was not removed."""
    return next((sentence for old, sentence in GONE.items() if f"{key}.".startswith(f"{old}.")), None)


def new_name(key: str) -> str:
    """Return the new name of a setting, or its name if it was not renamed."""
    for old, new in MOVED.items():
        if f"{key}.".startswith(f"{old}."):
            return new + key.removeprefix(old)
    return key


def old_sections() -> frozenset[str]:
    """Return the sections that contained renamed or removed settings."""
    sections = {key.partition(".")[0] for key in (*MOVED, *GONE)}
    return frozenset(sections - OTHER_NAMES.keys() - OTHER_MEANINGS.keys())


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
        leaves |= {(*path, name): {}} if inner == {} else _leaves(inner, (*path, name))
    return leaves
