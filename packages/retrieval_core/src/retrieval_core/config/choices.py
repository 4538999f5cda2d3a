"""Settings that are for one choice of another setting, and do nothing as long as nothing was chosen there."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

CHOSEN_BY: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "embedder.openai": ("embedder.kind", "openai"),
        "llm.openai": ("llm.kind", "openai"),
        "store.lancedb": ("store.kind", "lancedb"),
        "store.pinecone": ("store.kind", "pinecone"),
        "reranker.cohere": ("reranker.kind", "cohere"),
        "reranker.cross_encoder": ("reranker.kind", "cross-encoder"),
        "reranker.late_interaction": ("reranker.kind", "late-interaction"),
        **{
            f"reranker.{name}": ("reranker.kind", "llm")
            for name in ("batch_size", "max_characters", "strict_json", "prompt")
        },
        "relevance_filter.relevance_prompt": ("relevance_filter.kind", "llm"),
        "relevance_filter.batch_size": ("relevance_filter.kind", "llm"),
        "relevance_filter.relevance_threshold": ("relevance_filter.kind", "local"),
        "rewriter.rewrite_prompt": ("rewriter.kind", "llm"),
        "graph.prompt": ("graph.extract", "true"),
        "cache.url": ("cache.kind", "redis"),
        **{f"cache.semantic.{name}": ("cache.semantic.enabled", "true") for name in ("threshold", "max_size", "scope")},
    }
)
"""By setting or section, the setting that decides whether it is used, and the choice that it is for."""
_CHOOSE_TOO: Mapping[str, str] = MappingProxyType({"reranker.kind": "reranker.fallbacks"})
"""Settings that may make the choice as well."""


def without_choice(tree: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each setting that does nothing, since what it is for was not chosen.

    Where another choice was made, it may be kept for a change of mind: a file has it, and the command line says
    otherwise.

    Args:
        tree: All that was set, by our names.
        names: By which other name a setting was given. Such a name may stand for several settings, of which one is
            enough.
    """
    given = dict.fromkeys(key for key, value in _leaves(tree) if value is not None and str(value).strip())
    idle: dict[str, tuple[str, str]] = {}
    for key in given:
        section = next((one for one in CHOSEN_BY if f"{key}.".startswith(f"{one}.")), None)
        if section is not None and given.keys().isdisjoint(_choosing(CHOSEN_BY[section][0])):
            idle[key] = CHOSEN_BY[section]
    at_work = {names[key] for key in names.keys() - idle.keys()}
    for key, (chooser, choice) in idle.items():
        if key in names and names[key] in at_work:
            continue
        name = f"{key} (given as {names[key]})" if key in names else key
        yield f"{name}: is for {chooser} = {choice}, and {chooser} is not set; set it to {choice}, or leave this out"


def _choosing(chooser: str) -> tuple[str, ...]:
    return (chooser, _CHOOSE_TOO[chooser]) if chooser in _CHOOSE_TOO else (chooser,)


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(cast("Mapping[str, Any]", value), f"{above}{name}.")
        else:
            yield f"{above}{name}", value
