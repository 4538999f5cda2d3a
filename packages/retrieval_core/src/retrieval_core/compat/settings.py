"""Settings under names of the environment that many programs use, such as ``TOP_K``: those of a pipeline over reviews.

Only :meth:`RetrievalSettings.load` reads them. All settings also have ``RETRIEVAL_…`` names, see
:mod:`retrieval_core.config`, which override the names here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    SettingsConfigDict,
)

from retrieval_core.config import ENVIRONMENT_PREFIX, RetrievalConfig, load_config, without_secrets
from retrieval_core.config.base import problems_of, refusal
from retrieval_core.config.loading import from_environment
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self

PRESET = "ecommerce-cloud"
DEFAULT_FILE = Path(".env")
"""Read where it is there. A file that is named must be there, this one too."""
KEYS = {
    "openai_api_key": ("embedder.openai.api_key", "llm.openai.api_key"),
    "pinecone_api_key": ("store.pinecone.api_key",),
    "pinecone_index_name": ("store.pinecone.index_name",),
    "pinecone_namespace": ("store.pinecone.namespace",),
    "top_k": ("search.top_k",),
    "fetch_k": ("search.fetch_k",),
    "lambda_mult": ("search.lambda_mult",),
    "score_threshold": ("search.score_threshold",),
    "max_query_length": ("query.max_length",),
    "compression_enabled": ("relevance_filter.kind",),
    "max_rewrite_attempts": ("rewriter.max_attempts",),
    "rewrite_threshold": ("rewriter.relevance_threshold",),
    "cache_enabled": ("cache.kind",),
    "cache_ttl_seconds": ("cache.ttl_seconds",),
    "max_retries": ("retry.max_retries",),
    "enable_evaluation": ("evaluation.kind",),
}
"""Which settings of :class:`~retrieval_core.config.RetrievalConfig` each one stands for."""

SWITCHED_ON = {"compression_enabled": "llm", "cache_enabled": "memory", "enable_evaluation": "auto"}
"""The kinds that are used if a switch is on; otherwise it is ``none``."""
CREDENTIALS = ("openai_api_key", "pinecone_api_key", "pinecone_index_name", "pinecone_namespace")
"""Those that say where a pipeline works, and not how."""


_SECRETS = ("openai_api_key", "pinecone_api_key")


class RetrievalSettings(BaseSettings):
    """A pipeline with Pinecone and OpenAI, set from the environment.

    A field's name in the environment is its own in capitals, ``TOP_K``; either case is accepted. Arguments win over the
    environment, and it wins over the file ``.env``. A name whose value is blank counts as not set.

    ``RetrievalSettings()`` reads the environment of the process, and ``RetrievalSettings(_env_file=…)`` another file,
    which must be there; :meth:`load` also reads another environment.

    Raises:
        ConfigurationError: ``missing_keys`` has the names of exactly the variables that are missing, and ``problems`` a
            line for each thing that is wrong. No line holds a secret.
    """

    model_config = SettingsConfigDict(
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    openai_api_key: SecretStr = Field(min_length=1)
    pinecone_api_key: SecretStr = Field(min_length=1)
    pinecone_index_name: str = "ecommerce-products"
    pinecone_namespace: str = "phone-reviews"
    top_k: int = Field(default=4, ge=1, le=1000)
    fetch_k: int = Field(default=20, ge=1, le=10_000)
    lambda_mult: float = Field(default=0.7, ge=0, le=1)
    score_threshold: float = Field(default=0.6, ge=0, le=1)
    max_query_length: int = Field(default=512, ge=1)
    compression_enabled: bool = True
    max_rewrite_attempts: int = Field(default=2, ge=0, le=10)
    rewrite_threshold: float = Field(default=0.5, ge=0, le=1)
    cache_enabled: bool = True
    cache_ttl_seconds: int = Field(default=300, gt=0)
    max_retries: int = Field(default=3, ge=0, le=20)
    enable_evaluation: bool = False

    _prefixed: dict[str, str] = PrivateAttr(default_factory=dict)
    """Variables of the environment and the file whose names begin with ``RETRIEVAL_``."""

    def __init__(
        self,
        *,
        _environment: Mapping[str, str] | None = None,
        _env_file: str | Path | None = DEFAULT_FILE,
        **values: Any,
    ) -> None:
        kind = type(self)
        _check_names(kind, values)
        _check_file(_env_file)
        environment = EnvSettingsSource(kind)
        environment.env_vars = _set_names(os.environ if _environment is None else _environment)
        try:
            file = DotEnvSettingsSource(kind, env_file=_env_file)
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{_env_file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
            raise ConfigurationError(msg) from error
        file.env_vars = _set_names(file.env_vars)
        problems: list[str] = []
        try:
            super().__init__(_build_sources=((InitSettingsSource(kind, values), environment, file), values))
        except ValidationError as error:
            problems = problems_of(error, name=str.upper, secrets=_SECRETS)
        if problems:  # raised here, so that no traceback leads to what was given
            raise _refused(problems)
        if "fetch_k" in self.model_fields_set and self.fetch_k < self.top_k:
            line = f"FETCH_K: {self.fetch_k} passages are too few to choose TOP_K, {self.top_k}, of them; leave it out"
            raise ConfigurationError(line, problems=[line])
        for source in (file, environment):
            prefixed = ((name, text) for name, text in source.env_vars.items() if _has_prefix(name))
            self._prefixed.update((name, text) for name, text in prefixed if text is not None)

    @property
    def prefixed(self) -> Mapping[str, str]:
        """Variables of the environment and the file whose names begin with ``RETRIEVAL_``."""
        return self._prefixed

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None, env_file: str | Path | None = DEFAULT_FILE) -> Self:
        """Read the settings.

        Args:
            environment: Environment variables. Default: those of the process.
            env_file: A file with lines like ``TOP_K=5``, in UTF-8, relative to the current folder. Default: ``.env``,
                if it exists; ``None`` for none.

        Raises:
            ConfigurationError: See :class:`RetrievalSettings`; or the file that was named is not there, or it cannot be
                read.
        """
        return cls(_environment=environment, _env_file=env_file)

    def to_config(self) -> RetrievalConfig:
        """Return the preset ``ecommerce-cloud`` with these values; what ``RETRIEVAL_…`` names set wins over them.

        Raises:
            ConfigurationError: A ``RETRIEVAL_…`` name is wrong.
        """
        elsewhere = from_environment(self._prefixed, [])  # what is wrong is told below
        # Left out, it follows top_k, which may be more than its default.
        left_out: set[str] = set() if "fetch_k" in self.model_fields_set else {"fetch_k"}
        given = {name: getattr(self, name) for name in KEYS}
        given |= {name: kind if given[name] else "none" for name, kind in SWITCHED_ON.items()}
        values = {key: given[name] for name, keys in KEYS.items() if name not in left_out for key in keys}
        overrides = {key: value for key, value in values.items() if not _is_set(elsewhere, key)}
        return load_config(PRESET, overrides, self._prefixed)


def _check_names(kind: type[RetrievalSettings], values: Mapping[str, Any]) -> None:
    problems: list[str] = []
    for name in values.keys() - kind.model_fields.keys():
        near = get_close_matches(name, [*kind.model_fields, "_env_file", "_environment"], n=1)
        problems.append(f"{without_secrets(name)}: unknown setting" + (f"; did you mean {near[0]}?" if near else ""))
    if problems:
        raise ConfigurationError("\n".join(sorted(problems)), problems=sorted(problems))


def _check_file(env_file: str | Path | None) -> None:
    """Refuse a file that is not there, which the reader of such files would pass over."""
    if env_file is None or env_file is DEFAULT_FILE:
        return
    path = Path(os.path.expanduser(env_file))  # noqa: PTH111 - pathlib's fails where there is no such user
    if not path.exists() or path.is_dir():
        msg = f"{env_file} is not there, or is no file; name a file with lines like TOP_K=5, or env_file=None for none"
        raise ConfigurationError(msg)


def _set_names(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the names that have a value, in lower case, as sources of settings have them."""
    return {name.lower(): text for name, text in variables.items() if text is not None and text.strip()}


def _has_prefix(name: str) -> bool:
    return name.upper().startswith(ENVIRONMENT_PREFIX)


def _is_set(tree: Any, key: str) -> bool:
    section, _, rest = key.partition(".")
    if not isinstance(tree, Mapping) or section not in tree:
        return False
    return not rest or _is_set(tree[section], rest)


def _refused(problems: list[str]) -> ConfigurationError:
    missing = [line.partition(":")[0] for line in problems if line.endswith(": not set")]
    advice = f"\nSet {', '.join(missing)} in the environment or in the file .env." if missing else ""
    return refusal("the settings in the environment have", problems, missing, advice=advice)
