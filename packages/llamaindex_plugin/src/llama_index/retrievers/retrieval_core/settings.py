"""The settings of a pipeline, with single settings as keyword arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from typing import Any

from llama_index.core.bridge.pydantic import BaseModel

from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.settings import load_index_config


def load_settings(
    config: RetrievalConfig | str | Path | None,
    overrides: Mapping[str, Any],
    function: Callable[..., Any],
    *,
    index: str | Path | None = None,
) -> RetrievalConfig:
    """Return settings with the overrides of a call, such as ``search__candidates=50``.

    Args:
        config: Settings, the name of a preset, or a TOML file.
        overrides: Single settings with ``__`` for the dot; they win over ``config``.
        function: Takes the overrides. Errors suggest its other keywords.
        index: The file whose settings are used if there is no ``config``.

    Raises:
        ConfigurationError: A setting is wrong; ``problems`` has one line for each, beginning with its keyword.
    """
    changes = {key.replace("__", "."): value for key, value in overrides.items()}
    try:
        if isinstance(config, RetrievalConfig):
            return _merged(config, changes) if changes else config
        if config is None and index is not None:
            return load_index_config(index or None, overrides=changes)
        return load_config(config, changes)
    except ConfigurationError as error:
        if not error.problems:
            raise
        keywords = [name for name, of in signature(function).parameters.items() if of.kind is of.KEYWORD_ONLY]
        problems = [_as_keyword(problem, overrides, keywords) for problem in error.problems]
        heading, _, _ = str(error).partition("\n")
        raise ConfigurationError("\n  ".join([heading, *problems]), error.missing_keys, problems) from None


def _as_keyword(problem: str, given: Iterable[str], keywords: Iterable[str]) -> str:
    """Return a problem with a setting; for an unknown keyword, with the keyword that was probably meant.

    The configuration suggests only its own settings, with dots between section and name.
    """
    key, _, rest = problem.partition(": ")
    if key not in given or not rest.startswith("unknown setting"):
        return problem
    meant = [name for name in keywords if key.endswith(f"_{name}")] or get_close_matches(key, keywords, n=1)
    if meant:
        return f"{key}: unknown setting; did you mean {meant[0]}?"
    return f"{key}: {rest.replace('.', '__')}"


def _merged(config: RetrievalConfig, changes: Mapping[str, Any]) -> RetrievalConfig:
    tree: dict[str, Any] = {}
    for name, value in config:
        # One level deep, so that an override of a whole table is laid over it and does not take its place.
        if isinstance(value, BaseModel):
            tree |= {f"{name}.{key}": item for key, item in value.model_dump().items()}
            tree |= {f"{name}.{key}": item for key, item in value if key == "custom"}  # a dump does not show them
        else:
            tree[name] = value
    return load_config(overrides=tree | dict(changes))
