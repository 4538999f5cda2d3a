"""Factories of the user's own, named in a configuration, and what their products must have."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from inspect import signature
from typing import Any

from retrieval_core.config.addresses import without_secrets
from retrieval_core.errors import ConfigurationError

EMBEDDER_ABILITIES = ("id", "dimension", "embed_query", "embed_texts")
STORE_ABILITIES = ("describe", "upsert", "delete", "search", "fetch", "aclose", "sources", "documents_of")
LLM_ABILITIES = ("id", "complete", "stream")
RERANKER_ABILITIES = ("id", "batch_size", "score")
RELEVANCE_FILTER_ABILITIES = ("id", "batch_size", "judge")
PRUNER_ABILITIES = ("id", "batch_size", "keep")
REWRITER_ABILITIES = ("id", "rewrite")
TRANSFORMER_ABILITIES = ("id", "transform")
EVALUATOR_ABILITIES = ("id", "evaluate")
VERIFIER_ABILITIES = ("id", "batch_size", "verify")
CACHE_ABILITIES = ("get", "set", "clear", "aclose")
"""What a factory's product must have, so that a wrong one is told at once."""


def call_factory(
    key: str, name: str, options: dict[str, Any], built_in: tuple[str, ...], abilities: tuple[str, ...]
) -> object:
    """Return what a factory of the user's own makes.

    Args:
        key: The setting that names it, for errors.
        name: ``"package.module:factory"``.
        options: Keyword arguments for it.
        built_in: The other values that the setting may have.
        abilities: What its product must have.

    Raises:
        ConfigurationError: It cannot be imported or called so, or its product lacks something.
    """
    module_name, colon, attribute = name.partition(":")
    if not colon:
        given = without_secrets(repr(name))  # a key may have been put in the wrong place
        msg = f'{key}: {given} is none of {", ".join(built_in)}; a factory of your own is "package.module:factory"'
        raise ConfigurationError(msg)
    try:
        factory = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        msg = without_secrets(f"{key}: {name!r} cannot be imported ({error})")
        raise ConfigurationError(msg) from error
    try:
        with suppress(ValueError):  # functions written in C need not tell what they take
            signature(factory).bind(**options)
    except TypeError as error:
        given = ", ".join(options) or "no arguments"
        msg = without_secrets(f"{key}: {name!r} cannot be called with {given} ({error})")
        raise ConfigurationError(msg) from None
    made = factory(**options)
    if missing := [ability for ability in abilities if not hasattr(made, ability)]:
        kind = type(made).__name__  # and not what it shows of itself, which may hold the options
        msg = f"{key}: {name!r} made an object of the type {kind}, which has no {', '.join(missing)}; "
        msg += "see retrieval_core.ports"
        raise ConfigurationError(msg)
    return made
