"""Validation of components when they are given, before the first query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping

ABILITIES: Mapping[str, tuple[str, ...]] = {
    "embedder": ("id", "dimension", "embed_query", "embed_texts"),
    "store": ("describe", "search", "fetch"),
    "llm": ("id", "complete", "stream"),
    "reranker": ("id", "batch_size", "score"),
    "token_counter": ("__call__",),
    "observer": ("query", "span", "answered"),
}
"""The attributes and methods that a component must have, by its role."""
_ADVICE = {
    "embedder": "LangChain embeddings: retrieval_core.compat.models.adapt_embedder(embeddings)",
    "store": "see retrieval_core.ports.Store; a built-in store is chosen by store.kind in the configuration",
    "llm": "LangChain chat model: retrieval_core.compat.models.adapt_llm(chat_model)",
    "reranker": "see retrieval_core.ports.Reranker",
    "token_counter": "give a function that returns the number of tokens of a text",
    "observer": "see retrieval_core.run.observe",
}


def check_components(**given: object) -> None:
    """Refuse components that lack an attribute or a method; ``None`` is no component.

    Args:
        given: Components by role, a key of :data:`ABILITIES`; ``reranker`` may be a sequence.

    Raises:
        InvalidParameterError: One is a class, or lacks something. The message has its type only, as a value may be a
            secret.
    """
    for role, component in given.items():
        if role == "reranker" and isinstance(component, Sequence) and not isinstance(component, str):
            parts = tuple(cast("Sequence[object]", component))
        else:
            parts = () if component is None else (component,)
        for part in parts:
            if isinstance(part, type) or missing_abilities(part, ABILITIES[role]):
                raise InvalidParameterError(_refusal(role, part))


def missing_abilities(component: object, abilities: Sequence[str]) -> list[str]:
    """Return the attributes that an object lacks; properties of its class are not evaluated, as they may be slow."""
    known = {name for kind in type(component).__mro__ for name in vars(kind)}
    return [name for name in abilities if name not in known and not hasattr(component, name)]


def _refusal(role: str, part: object) -> str:
    kind: type = part if isinstance(part, type) else type(part)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    abilities = ABILITIES[role]
    if role == "token_counter":
        needed = "must be callable"
    else:
        needed = f"must be an object with {', '.join(abilities[:-1])} and {abilities[-1]}"
    if kind is part:
        return f"{role} {needed}, got the class {name}. Give an instance of it; {_ADVICE[role]}"
    missing = missing_abilities(part, abilities)
    lacking = "" if role == "token_counter" else f", which has no {', '.join(missing)}"
    return f"{role} {needed}, got a value of type {name}{lacking}. To fix it: {_ADVICE[role]}"
