"""The specification's names of settings, and the settings that they mean.

Only :mod:`retrieval_core.compat` reads them, with :func:`load_flags`. They can be at the top level or in one of the
sections of :data:`OTHER_SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from retrieval_core.config import ChunkingConfig, RetrievalConfig, without_secrets
from retrieval_core.config.base import copy_tree, nested_tree, refusal, shown, value_at
from retrieval_core.config.kinds import RERANKER
from retrieval_core.config.loading import Layer, load_over, read_toml
from retrieval_core.config.moved import OTHER_NAMES, OTHER_SECTIONS
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SAME: Mapping[str, str] = MappingProxyType(
    {
        **OTHER_NAMES,
        "ollama_config.enrichment_model": "transform.model",
        "timeouts.embedding": "timeouts.embedding",
        "timeouts.retrieval": "timeouts.retrieval",
        "timeouts.reranking": "timeouts.reranking",
        "timeouts.synthesis": "timeouts.synthesis",
    }
)
"""Names that mean the same as one of ours."""

_MODES = {
    mode: {"search.mode": meant}
    for mode, meant in {
        "fts": "lexical", "bm25": "lexical", "lexical": "lexical", "dense": "dense", "hybrid": "hybrid"
    }.items()
}  # fmt: skip
CHOICES: Mapping[str, Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "searchType": _MODES,
        "search_type": _MODES,
        "retrievalMode": _MODES,
        "retriever": {**_MODES, "multivector": {}},
    }
)
"""Names whose values have names of their own; case does not matter."""

OLLAMA = "http://localhost:11434"
"""Where Ollama listens unless it is told otherwise."""
_OLLAMAS_PORT = ":11434"
_OLLAMAS_NAMES = {
    "qwen/qwen3-embedding-0.6b": "qwen3-embedding:0.6b",
    "qwen/qwen3-embedding-4b": "qwen3-embedding:4b",
    "qwen/qwen3-embedding-8b": "qwen3-embedding:8b",
}
"""What Ollama's library calls models that have another name on the hub, https://ollama.com/library/qwen3-embedding."""
_DIMENSIONS = {"qwen3-embedding:0.6b": 1024, "qwen3-embedding:4b": 2560, "qwen3-embedding:8b": 4096}
"""From the models' cards, for instance https://huggingface.co/Qwen/Qwen3-Embedding-0.6B."""


@dataclass(slots=True)
class _Source:
    """One source: what it says in our names, what in others, and what the sources below it say."""

    own: Mapping[str, Any]
    below: Mapping[str, Any]
    given: dict[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self, key: str) -> Any:
        """Return what a setting of ours is as far as is known; ``None`` where it is not."""
        own = value_at(self.own, key)
        return value_at(self.below, key) if own is None else own


def load_flags(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RetrievalConfig:
    """Load settings by the specification's names or ours, from a file or preset, arguments and the environment.

    Args:
        file: A TOML file, or the name of a preset.
        overrides: Settings that override the file: a tree, or dotted keys such as ``{"ollama_config.host": "…"}``.
        environment: Variables such as ``os.environ``, with names ``RETRIEVAL_…``. Default: none are read.

    Raises:
        ConfigurationError: A setting is wrong. ``problems`` has one line for each, which begins with its name.
    """
    known, problems = RetrievalConfig.model_fields, list[str]()
    below, names = translated({} if file is None else read_toml(file), {}, known, problems)
    given, names_given = translated(nested_tree(overrides or {}), below, known, problems)
    names |= names_given
    layers = [] if file is None else [Layer(str(file), below)]
    try:
        config = load_over(layers, None, given, environment or {})
    except ConfigurationError as error:
        for problem in error.problems:
            key, colon, rest = problem.partition(":")
            if key in names:
                problems.append(f"{key} (given as {names[key]}){colon}{rest}")
            elif rest == " unknown setting" and "." not in key:
                problems.append(_unknown(key, key, [name.partition(".")[0] for name in other_names()]))
            else:
                problems.append(problem)
    else:
        if not problems:
            return config.with_provenance(None)
    problems = [without_secrets(problem) for problem in problems]
    raise refusal("the configuration has", problems, origin="" if file is None else f" (read from {file})")


def translated(
    tree: Mapping[str, Any], below: Mapping[str, Any], known: Mapping[str, Any], problems: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a source with all names ours, and for each setting that was given by another name, that name.

    Where a source has a setting by our own name too, that counts. Where two other names give it, they have to agree.

    Args:
        tree: What the source says; it stays as it is.
        below: What the sources say that it overrides, by our names.
        known: Our own names at the top level, which are never taken for others.
        problems: Where everything that is wrong is added, one line each, beginning with its name.
    """
    own = {name: value for name, value in tree.items() if name in known or not _is_other(name)}
    others = {name: value for name, value in tree.items() if name not in own}
    source = _Source(own, below)
    names: dict[str, str] = {}
    for name, alias, value in _flattened(others, problems):
        if alias in source.given and _differ(source.given[alias], value):
            problems.append(f"{name}: given twice, as {shown(source.given[alias])} and as {shown(value)}")
            continue
        source.given[alias] = value
        names[alias] = name
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for alias, value in source.given.items():
        try:
            meant = _meaning(alias, value, source)
        except ValueError as error:
            problems.append(f"{names[alias]}: {error}, got {shown(value)}")
            continue
        for key, one in meant.items():
            if key in settings and _differ(settings[key], one):
                problems.append(
                    f"{names[alias]}: says that {key} is {shown(one)}, but {origins[key]} says {shown(settings[key])}"
                )
            elif value_at(own, key) is None or (one == "none" and key in _SWITCHED):
                settings[key], origins[key] = one, names[alias]
    result = copy_tree(own)
    for key, value in settings.items():
        _put(result, key, value)
    return result, origins


_SWITCHED = frozenset({"reranker.kind", "cache.kind"})
"""Kinds that a name switches off, whichever is chosen."""


def other_names() -> tuple[str, ...]:
    """Return all names that are understood besides ours, those within a table with its name and a dot before them."""
    return tuple(sorted({*SAME, *CHOICES, *_RULES}))


def _is_other(name: str) -> bool:
    return name in OTHER_SECTIONS or name in {alias.partition(".")[0] for alias in other_names()}


def _flattened(others: Mapping[str, Any], problems: list[str], section: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield each name as it was written, what it is without its section, and its value."""
    for name, value in others.items():
        if name in OTHER_SECTIONS and not section:
            if isinstance(value, Mapping):
                yield from _flattened(cast("Mapping[str, Any]", value), problems, f"{name}.")
            else:
                problems.append(f"{name}: is a table, got {shown(value)}")
            continue
        inner = tuple(alias for alias in other_names() if alias.startswith(f"{name}."))
        if name in other_names():
            yield section + name, name, value
        elif inner and isinstance(value, Mapping):
            for key, one in cast("Mapping[str, Any]", value).items():
                if f"{name}.{key}" in inner:
                    yield f"{section}{name}.{key}", f"{name}.{key}", one
                else:
                    problems.append(
                        _unknown(f"{section}{name}.{key}", key, [alias.partition(".")[2] for alias in inner])
                    )
        elif inner:
            problems.append(f"{section}{name}: is a table, got {shown(value)}")
        else:
            problems.append(_unknown(f"{section}{name}", name, [alias.partition(".")[0] for alias in other_names()]))


def _unknown(written: str, name: str, known: list[str]) -> str:
    near = get_close_matches(str(name), known, n=1)
    return f"{written}: unknown setting" + (f"; did you mean {near[0]}?" if near else "")


def _meaning(alias: str, value: Any, source: _Source) -> Mapping[str, Any]:
    """Return the settings that a name stands for.

    Raises:
        ValueError: It does not allow this value.
    """
    if alias in SAME:
        return {SAME[alias]: value}
    if alias in CHOICES:
        choices = CHOICES[alias]
        if str(value).lower() not in choices:
            msg = f"must be {', '.join(list(choices)[:-1])} or {list(choices)[-1]}"
            raise ValueError(msg)
        return choices[str(value).lower()]
    return _RULES[alias](value, source)


def _ai_rerank(value: Any, source: _Source) -> dict[str, Any]:
    """With no reranker chosen, the specification's are: ColBERT, and a cross-encoder where that fails."""
    if not _flag(value):
        return {"reranker.kind": "none"}
    if source("reranker.kind") not in (None, "none"):
        return {}
    return {"reranker.kind": "late-interaction", "reranker.fallbacks": ["cross-encoder"]}


def _cache_enabled(value: Any, source: _Source) -> dict[str, Any]:
    if not _flag(value):
        return {"cache.kind": "none"}
    return {} if source("cache.kind") not in (None, "none") else {"cache.kind": "memory"}


def _reranker_model(value: Any, source: _Source) -> dict[str, Any]:
    """The model of the reranker that is chosen; where none is, of ColBERT's kind, as the specification's is."""
    kind = source("reranker.kind")
    if kind in (None, "none"):
        return {"reranker.kind": "late-interaction", "reranker.late_interaction.model": value}
    section = str(kind).replace("-", "_")
    settings = RERANKER.settings_of(str(kind)) if kind in RERANKER.kinds() else None
    if settings is None or "model" not in settings.model_fields:
        msg = f"names the model of a reranker, and reranker.kind is {kind!r}, which has no name for one"
        raise ValueError(msg)
    return {f"reranker.{section}.model": value}


_RERANKERS = frozenset({"reranker_model", "aiRerank", "ai_rerank"})
"""Names that choose a reranker."""


def _fallback_reranker(value: Any, source: _Source) -> dict[str, Any]:
    """The model of the cross-encoder, which stands in for the reranker unless other ones were chosen for that."""
    settings = {"reranker.cross_encoder.model": value}
    chosen = source("reranker.fallbacks")
    is_chosen = source("reranker.kind") not in (None, "none") or not source.given.keys().isdisjoint(_RERANKERS)
    if chosen is None and not is_chosen:
        return settings | {"reranker.kind": "cross-encoder"}
    if chosen is not None and "cross-encoder" not in chosen and source("reranker.kind") != "cross-encoder":
        msg = "names the model of a cross-encoder, and reranker.fallbacks has no 'cross-encoder'"
        raise ValueError(msg)
    return settings if chosen is not None else settings | {"reranker.fallbacks": ["cross-encoder"]}


def _late_chunking(_value: Any, source: _Source) -> dict[str, Any]:
    enabled = _flag(source.given.get("late_chunking.enabled", True))
    # Five is the specification's own window.
    return {"context.window": source.given.get("late_chunking.window_size", 5) if enabled else 0}


def _semantic(value: Any, _source: _Source) -> dict[str, Any]:
    return {"cache.semantic.threshold": value, "cache.semantic.enabled": True}


def _embedding_model(value: Any, source: _Source) -> dict[str, Any]:
    if not isinstance(value, str):
        msg = "must be the name of a model"
        raise ValueError(msg)  # noqa: TRY004 - a problem of the configuration, as every other
    settings = _at_ollama("embedder", source)
    address = str(settings.get("embedder.openai.base_url") or source("embedder.openai.base_url") or "")
    name = value
    if "ollama_config.host" in source.given or _OLLAMAS_PORT in address:
        name = _OLLAMAS_NAMES.get(name.lower(), name)
    settings["embedder.openai.model"] = name
    known = _OLLAMAS_NAMES.get(name.lower(), name).lower()
    return settings | ({"embedder.openai.dimension": _DIMENSIONS[known]} if known in _DIMENSIONS else {})


def _generation_model(value: Any, source: _Source) -> dict[str, Any]:
    return {**_at_ollama("llm", source), "llm.openai.model": value}


def _at_ollama(part: str, source: _Source) -> dict[str, Any]:
    """Return where a model is that is named without saying where: at Ollama, unless a server was chosen already."""
    if source(f"{part}.kind") == "openai":
        return {}
    return {f"{part}.kind": "openai", f"{part}.openai.base_url": _address(source)}


def _host(value: Any, source: _Source) -> dict[str, Any]:
    """The address counts for the models named here, and for those that are at a server of one's own already."""
    named = {
        "embedder": source.given.keys() & {"embedding_model", "embedding_model_name", "ollama_config.embedding_model"},
        "llm": source.given.keys() & {"generation_model", "ollama_config.generation_model"},
    }
    if not isinstance(value, str):
        msg = "must be an address such as http://localhost:11434"
        raise ValueError(msg)  # noqa: TRY004 - a problem of the configuration, as every other
    return {
        f"{part}.openai.base_url": _address(source)
        for part, names in named.items()
        if names or source(f"{part}.openai.base_url")
    }


def _address(source: _Source) -> str:
    host = str(source.given.get("ollama_config.host") or OLLAMA).rstrip("/")
    return host if host.endswith("/v1") else f"{host}/v1"


def _batches_of_synthesis(value: Any, _source: _Source) -> dict[str, Any]:
    if str(value) != "1":
        msg = "must be 1, as a question has one answer, which is written in one request"
        raise ValueError(msg)
    return {}


def _chunk_size_limit(value: Any, source: _Source) -> dict[str, Any]:
    """Chunks have at most so many tokens; a longer ``chunking.max_tokens`` contradicts it."""
    try:
        limit = TypeAdapter(Annotated[int, Field(ge=16)]).validate_python(value)
        longest = int(source("chunking.max_tokens") or 0)
    except ValueError as error:
        msg = "must be a number of tokens, at least 16"
        raise ValueError(msg) from error
    if longest > limit:
        msg = f"chunking.max_tokens is {longest}, which is more"
        raise ValueError(msg)
    return {} if longest or limit >= ChunkingConfig().max_tokens else {"chunking.max_tokens": limit}


_RULES: Mapping[str, Callable[[Any, _Source], dict[str, Any]]] = {
    "cache_enabled": _cache_enabled,
    "aiRerank": _ai_rerank,
    "ai_rerank": _ai_rerank,
    "reranker_model": _reranker_model,
    "fallback_reranker": _fallback_reranker,
    "late_chunking.enabled": _late_chunking,
    "late_chunking.window_size": _late_chunking,
    "semantic_cache_threshold": _semantic,
    "embedding_model": _embedding_model,
    "embedding_model_name": _embedding_model,
    "ollama_config.embedding_model": _embedding_model,
    "generation_model": _generation_model,
    "ollama_config.generation_model": _generation_model,
    "ollama_config.host": _host,
    "batch_sizes.synthesis": _batches_of_synthesis,
    "memory_limits.chunk_size_limit": _chunk_size_limit,
}
"""Names that stand for several settings, or for some that depend on others."""


def _flag(value: Any) -> bool:
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError as error:
        msg = "must be true or false"
        raise ValueError(msg) from error


def _differ(one: Any, other: Any) -> bool:
    """Whether two values differ; from the command line they come as text."""
    return one != other and str(one).lower() != str(other).lower()


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        inner: Any = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            return  # something else has the section's name, which is told elsewhere
        tree = cast("dict[str, Any]", inner)
    tree[last] = value
