"""The specification's names of settings, and the settings that they mean.

Only :mod:`retrieval_core.compat` reads them, with :func:`load_flags`. They can be at the top level or in one of the
sections of :data:`~retrieval_core.config.moved.OTHER_SECTIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from pydantic import TypeAdapter, ValidationError

from retrieval_core.config import ChunkingConfig, RetrievalConfig, without_secrets
from retrieval_core.config.base import merge_into, nested_tree, refusal, shown, value_at
from retrieval_core.config.kinds import NONE, RERANKER, table_of
from retrieval_core.config.loading import Layer, load_over, read_toml
from retrieval_core.config.moved import OTHER_NAMES, OTHER_SECTIONS
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

OLLAMA = "http://localhost:11434"
"""The default address of Ollama."""
_QWEN = re.compile(r"(?i)(?:qwen/)?qwen3-embedding[-:](0\.6b|4b|8b)")
"""The hub's names of these models, and Ollama's, https://ollama.com/library/qwen3-embedding."""
_DIMENSIONS = {"0.6b": 1024, "4b": 2560, "8b": 4096}
"""From the models' cards, for instance https://huggingface.co/Qwen/Qwen3-Embedding-0.6B."""
_MODES = {"fts": "lexical", "bm25": "lexical", "lexical": "lexical", "dense": "dense", "hybrid": "hybrid"}
_SWITCHED = frozenset({"reranker.kind", "cache.kind"})
"""Kinds that a name can switch off, whichever is chosen."""


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
            else:
                is_unknown = rest == " unknown setting" and "." not in key
                problems.append(_unknown(key, key) if is_unknown else problem)
    else:
        if not problems:
            return config.with_provenance(None)
    problems = [without_secrets(problem) for problem in problems]
    raise refusal("the configuration has", problems, origin="" if file is None else f" (read from {file})")


def translated(
    tree: Mapping[str, Any], below: Mapping[str, Any], known: Mapping[str, Any], problems: list[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a source with all names ours, and for each setting that was given by another name, that name.

    If a source has a setting by our own name too, that counts. If two other names give it, they must agree.

    Args:
        tree: The source. It is not changed.
        below: The sources that it overrides, by our names.
        known: Our own names at the top level, which are never taken for others.
        problems: Receives a line for everything that is wrong, beginning with its name.
    """
    others = {*OTHER_SECTIONS, *(alias.partition(".")[0] for alias in other_names())} - known.keys()
    own = {name: value for name, value in tree.items() if name not in others}
    given: dict[str, tuple[str, Any]] = {}
    for written, alias, value in _read({name: value for name, value in tree.items() if name in others}, problems):
        _, before = given.setdefault(alias, (written, value))
        if _differ(before, value):
            problems.append(f"{written}: given twice, as {shown(before)} and as {shown(value)}")
    source = _Source(own, below, {alias: value for alias, (_, value) in given.items()})
    settings: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for alias, (written, value) in given.items():
        try:
            meant = _MEANINGS[alias](value, source)
        except ValueError as error:
            problems.append(f"{written}: {error}, got {shown(value)}")
            continue
        for key, one in meant.items():
            if _differ(settings.get(key, one), one):
                said = f"{origins[key]} says {shown(settings[key])}"
                problems.append(f"{written}: says that {key} is {shown(one)}, but {said}")
            elif value_at(own, key) is None or (one == NONE and key in _SWITCHED):
                settings[key], origins[key] = one, written
    result = nested_tree(settings)
    merge_into(result, own)
    merge_into(result, nested_tree({key: settings[key] for key in _SWITCHED & settings.keys()}))
    return result, origins


def other_names() -> tuple[str, ...]:
    """Return all names that are understood besides ours, those within a table with its name and a dot before them."""
    return tuple(sorted(_MEANINGS))


def _read(
    tree: Mapping[str, Any], problems: list[str], section: str = "", table: str = ""
) -> Iterator[tuple[str, str, Any]]:
    """Yield each name as it was written, the same without its section, and its value."""
    tables = {alias.partition(".")[0] for alias in other_names() if "." in alias}
    for name, value in tree.items():
        alias = f"{table}{name}"
        written = f"{section}{alias}"
        inner = (f"{name}.", "") if written in OTHER_SECTIONS else (section, f"{name}.")
        if alias in _MEANINGS:
            yield written, alias, value
        elif table or not (name in tables or written in OTHER_SECTIONS):
            problems.append(_unknown(written, name, table))
        elif isinstance(value, Mapping):
            yield from _read(cast("Mapping[str, Any]", value), problems, *inner)
        else:
            problems.append(f"{written}: is a table, got {shown(value)}")


def _unknown(written: str, name: str, table: str = "") -> str:
    known = {alias.removeprefix(table).partition(".")[0] for alias in other_names() if alias.startswith(table)}
    near = get_close_matches(str(name), sorted(known), n=1)
    return f"{written}: unknown setting" + (f"; did you mean {near[0]}?" if near else "")


@dataclass(frozen=True, slots=True)
class _Source:
    """One source: its settings by our names, those of the sources that it overrides, and the other names in it."""

    own: Mapping[str, Any]
    below: Mapping[str, Any]
    given: Mapping[str, Any]

    def __call__(self, key: str) -> Any:
        """Return a setting of ours, as far as it is known; ``None`` if it is not."""
        own = value_at(self.own, key)
        return value_at(self.below, key) if own is None else own

    def has(self, section: str) -> bool:
        """Return whether a kind is chosen in a section."""
        return self(f"{section}.kind") not in (None, NONE)


def _same(key: str) -> Callable[[Any, _Source], Mapping[str, Any]]:
    return lambda value, _: {key: value}


def _mode(value: Any, _source: _Source) -> dict[str, Any]:
    if str(value).lower() not in _MODES:
        *first, last = _MODES
        msg = f"must be {', '.join(first)} or {last}"
        raise ValueError(msg)
    return {"search.mode": _MODES[str(value).lower()]}


def _retriever(value: Any, source: _Source) -> dict[str, Any]:
    """A chunk has one vector, of its title, headings and text, which is what ``multivector`` asks for."""
    return {} if str(value).lower() == "multivector" else _mode(value, source)


def _ai_rerank(value: Any, source: _Source) -> dict[str, Any]:
    """With no reranker chosen, the specification's are: ColBERT, and a cross-encoder if that fails."""
    if not _flag(value):
        return {"reranker.kind": NONE}
    if source.has("reranker"):
        return {}
    return {"reranker.kind": "late-interaction", "reranker.fallbacks": ["cross-encoder"]}


def _cache_enabled(value: Any, source: _Source) -> dict[str, Any]:
    if not _flag(value):
        return {"cache.kind": NONE}
    return {} if source.has("cache") else {"cache.kind": "memory"}


def _reranker_model(value: Any, source: _Source) -> dict[str, Any]:
    """The model of the chosen reranker; without one, of ColBERT's kind, as the specification's is."""
    if not source.has("reranker"):
        return {"reranker.kind": "late-interaction", "reranker.late_interaction.model": value}
    kind = str(source("reranker.kind"))
    settings = RERANKER.settings_of(kind) if kind in RERANKER.kinds() else None
    if settings is None or "model" not in settings.model_fields:
        msg = f"names the model of a reranker, and reranker.kind is {kind!r}, which has no name for one"
        raise ValueError(msg)
    return {f"reranker.{table_of(kind)}.model": value}


def _fallback_reranker(value: Any, source: _Source) -> dict[str, Any]:
    """The model of the cross-encoder, which is the fallback of the reranker unless other fallbacks are chosen."""
    settings = {"reranker.cross_encoder.model": value}
    fallbacks = source("reranker.fallbacks")
    if fallbacks is None:
        is_chosen = source.has("reranker") or not {"reranker_model", "aiRerank", "ai_rerank"}.isdisjoint(source.given)
        role = {"reranker.fallbacks": ["cross-encoder"]} if is_chosen else {"reranker.kind": "cross-encoder"}
        return settings | role
    if "cross-encoder" not in (*fallbacks, source("reranker.kind")):
        msg = "names the model of a cross-encoder, and reranker.fallbacks has no 'cross-encoder'"
        raise ValueError(msg)
    return settings


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
    settings = _at_ollama("embedder", source) | {"embedder.openai.model": value}
    address = str(settings.get("embedder.openai.base_url") or source("embedder.openai.base_url"))
    if known := _QWEN.fullmatch(value):
        size = known[1].lower()
        settings["embedder.openai.dimension"] = _DIMENSIONS[size]
        if "ollama_config.host" in source.given or ":11434" in address:
            settings["embedder.openai.model"] = f"qwen3-embedding:{size}"
    return settings


def _generation_model(value: Any, source: _Source) -> dict[str, Any]:
    return {**_at_ollama("llm", source), "llm.openai.model": value}


def _at_ollama(section: str, source: _Source) -> dict[str, Any]:
    """Return where a model is that is named without an address: at Ollama, unless a server was chosen already."""
    if source(f"{section}.kind") == "openai":
        return {}
    return {f"{section}.kind": "openai", f"{section}.openai.base_url": _address(source)}


def _host(value: Any, source: _Source) -> dict[str, Any]:
    """The address is that of the models named here, and of those that are at your own server already."""
    named = {
        "embedder": source.given.keys() & {"embedding_model", "embedding_model_name", "ollama_config.embedding_model"},
        "llm": source.given.keys() & {"generation_model", "ollama_config.generation_model"},
    }
    if not isinstance(value, str):
        msg = "must be an address such as http://localhost:11434"
        raise ValueError(msg)  # noqa: TRY004 - a problem of the configuration, as every other
    return {
        f"{section}.openai.base_url": _address(source)
        for section, names in named.items()
        if names or source(f"{section}.openai.base_url")
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
    """The most tokens of a chunk. A longer ``chunking.max_tokens`` contradicts it."""
    longest = source("chunking.max_tokens")
    if not str(value).isdecimal() or int(value) < 16:
        msg = "must be a number of tokens, at least 16"
        raise ValueError(msg)
    if longest is not None and int(longest) > int(value):
        msg = f"chunking.max_tokens is {longest}, which is more"
        raise ValueError(msg)
    is_less = longest is None and int(value) < ChunkingConfig().max_tokens
    return {"chunking.max_tokens": int(value)} if is_less else {}


_MEANINGS: Mapping[str, Callable[[Any, _Source], Mapping[str, Any]]] = {
    **{name: _same(key) for name, key in OTHER_NAMES.items()},
    **{key: _same(key) for key in map("timeouts.{}".format, ("embedding", "retrieval", "reranking", "synthesis"))},
    "ollama_config.enrichment_model": _same("transform.model"),
    **dict.fromkeys(("searchType", "search_type", "retrievalMode"), _mode),
    "retriever": _retriever,
    "cache_enabled": _cache_enabled,
    **dict.fromkeys(("aiRerank", "ai_rerank"), _ai_rerank),
    "reranker_model": _reranker_model,
    "fallback_reranker": _fallback_reranker,
    **dict.fromkeys(("late_chunking.enabled", "late_chunking.window_size"), _late_chunking),
    "semantic_cache_threshold": _semantic,
    **dict.fromkeys(("embedding_model", "embedding_model_name", "ollama_config.embedding_model"), _embedding_model),
    **dict.fromkeys(("generation_model", "ollama_config.generation_model"), _generation_model),
    "ollama_config.host": _host,
    "batch_sizes.synthesis": _batches_of_synthesis,
    "memory_limits.chunk_size_limit": _chunk_size_limit,
}
"""The settings that each name stands for, some of which depend on other settings of its source."""


def _differ(one: Any, other: Any) -> bool:
    """Return whether two values differ; from the command line they come as text."""
    return str(one).lower() != str(other).lower()


def _flag(value: Any) -> bool:
    try:
        return TypeAdapter(bool).validate_python(value)
    except ValidationError as error:
        msg = "must be true or false"
        raise ValueError(msg) from error
