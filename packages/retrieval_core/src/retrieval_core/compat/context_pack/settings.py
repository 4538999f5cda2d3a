"""The settings of a context pack under the specification's names, and how they are read from the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from retrieval_core.config import ContextConfig, RerankerConfig
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from pydantic_core import ErrorDetails

RERANK_PREFIX = "RERANK_"
"""Stands before the names of :class:`RerankConfig` in the environment."""
OPENAI_KEY = "OPENAI_API_KEY"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class RerankConfig(_Settings):
    """How a language model scores the candidates."""

    model: str = Field(default="gpt-4o", min_length=1)
    """As the server calls it."""
    max_candidates_to_rerank: int = Field(default=50, ge=1, le=1000)
    """So many of the best candidates are scored; the others are left out."""
    return_top_n: int = Field(default=15, ge=1, le=1000)
    """The most candidates that a context is made of, before their parents and neighbours."""
    max_text_chars_per_candidate: int = Field(default=1200, ge=4)
    """Longest part of a candidate that the model is shown, in code points."""
    strict_json_output: bool = True
    """Whether the provider is held to a JSON schema; some servers know none."""

    def as_reranker(self) -> RerankerConfig:
        """Return the same as settings of the library's reranking: the model's scores alone decide."""
        return RerankerConfig(
            kind="llm",
            candidates=self.max_candidates_to_rerank,
            weight=1.0,
            max_characters=self.max_text_chars_per_candidate,
            strict_json=self.strict_json_output,
        )


class RetrievalConfig(_Settings):
    """How a context is made: what is searched, scored and put around the hits, within how many tokens.

    Not :class:`retrieval_core.RetrievalConfig`, which has all settings of the library.
    """

    neighbor_same_page: int = Field(default=1, ge=0, le=100)
    """Chunks before and after a hit on the same page or under the same parent."""
    neighbor_cross_page: int = Field(default=2, ge=0, le=100)
    """How far before and after a hit chunks are taken from an adjacent page; none where there are no pages."""
    include_parents: bool = True
    """Whether the section or page around each hit is added."""
    final_max_tokens: int = Field(default=12_000, ge=1)
    """The budget: the context is never longer."""
    min_primary_hits_to_keep: int = Field(default=3, ge=0)
    """So many of the best hits are kept as long as one sentence of each fits, and shortened for it."""
    top_k_dense: int = Field(default=50, ge=1, le=1000)
    """Candidates of the search. The specification gives no number: 50 is what is reranked at most."""
    rerank: RerankConfig = RerankConfig()

    @classmethod
    def from_env(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Read the settings from the environment.

        A field's name there is its own in capitals, such as ``FINAL_MAX_TOKENS`` or ``TOP_K_DENSE``; those of
        :class:`RerankConfig` begin with ``RERANK_``, as in ``RERANK_MODEL``. Either case is accepted. What is not set,
        or blank, keeps its default.

        Args:
            environment: The environment of the process where it is not given.

        Raises:
            ConfigurationError: ``problems`` has a line for each variable that is wrong, beginning with its name.
        """
        tree: dict[str, Any] = {"rerank": {}}
        places = _places()
        given = os.environ if environment is None else environment
        for name, text in sorted(given.items(), reverse=True):  # so that capitals win
            if (path := places.get(name.upper())) is not None and text.strip():
                section = tree["rerank"] if path[0] == "rerank" else tree
                section[path[-1]] = text.strip()
        try:
            return cls.model_validate(tree)
        except ValidationError as error:
            problems = [_describe(detail) for detail in error.errors(include_url=False)]
        count = f"{len(problems)} problem{'s' * (len(problems) > 1)}"
        msg = f"the settings in the environment have {count}:\n  " + "\n  ".join(problems)
        raise ConfigurationError(msg, problems=problems)

    def as_context(self, base: ContextConfig | None = None) -> ContextConfig:
        """Return the same as settings of the library's contexts; those that are not named here are the base's."""
        return (base or ContextConfig()).model_copy(
            update={
                "max_tokens": self.final_max_tokens,
                "min_primaries": self.min_primary_hits_to_keep,
                "neighbor_same_page": self.neighbor_same_page,
                "neighbor_cross_page": self.neighbor_cross_page,
                "include_parents": self.include_parents,
                "window": 0,  # with a window these neighbours would not be used
            }
        )


def openai_key(environment: Mapping[str, str] | None = None) -> SecretStr | None:
    """Return OpenAI's key in the environment, under the name that OpenAI uses; ``None`` where there is none."""
    text = (os.environ if environment is None else environment).get(OPENAI_KEY, "").strip()
    return SecretStr(text) if text else None


def _places() -> dict[str, tuple[str, ...]]:
    """Return the names in the environment, each with the path of its setting."""
    own = {name.upper(): (name,) for name in RetrievalConfig.model_fields if name != "rerank"}
    return own | {f"{RERANK_PREFIX}{name.upper()}": ("rerank", name) for name in RerankConfig.model_fields}


def _describe(problem: ErrorDetails) -> str:
    path = tuple(str(part) for part in problem["loc"])
    name = next(name for name, place in _places().items() if place == path)
    return f"{name}: {problem['msg']}, got {problem['input']!r:.40}"
