"""Settings under names of the environment that many programs use, such as ``TOP_K``: those of a pipeline over reviews.

Only :meth:`RetrievalSettings.load` reads them. All settings also have ``RETRIEVAL_…`` names, see
:mod:`retrieval_core.config`, which override the names here.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, SecretStr, ValidationError
from pydantic_settings import BaseSettings, DotEnvSettingsSource, InitSettingsSource, SettingsConfigDict

from retrieval_core.config import ENVIRONMENT_PREFIX, RetrievalConfig, load_config
from retrieval_core.config.base import problems_of, refusal, value_at
from retrieval_core.config.loading import from_environment
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

PRESET = "ecommerce-cloud"
DEFAULT_FILE = Path(".env")
"""Read if it exists. A file that is named must exist, this one too."""
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
"""The settings of :class:`~retrieval_core.config.RetrievalConfig` that each field stands for."""
SWITCHED_ON = {"compression_enabled": "llm", "cache_enabled": "memory", "enable_evaluation": "auto"}
"""The kinds that are used if a switch is on; otherwise it is ``none``."""
CREDENTIALS = ("openai_api_key", "pinecone_api_key", "pinecone_index_name", "pinecone_namespace")
"""The fields that say where a pipeline works, and not how."""


class RetrievalSettings(BaseSettings):
    """A pipeline with Pinecone and OpenAI, set from the environment.

    A field's name in the environment is its own in capitals, ``TOP_K``; either case is accepted. Arguments override the
    environment, and it overrides the file ``.env``. A blank value is ignored.

    ``RetrievalSettings()`` reads the environment of the process, and ``RetrievalSettings(_env_file=…)`` another file,
    which must exist; :meth:`load` also reads another environment.

    Raises:
        ConfigurationError: ``missing_keys`` has the names of exactly the variables that are missing, and ``problems`` a
            line for each thing that is wrong. No line contains a secret.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

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

    def __init__(
        self,
        *,
        _environment: Mapping[str, str] | None = None,
        _env_file: str | Path | None = DEFAULT_FILE,
        **values: Any,
    ) -> None:
        kind = type(self)
        environment = os.environ if _environment is None else _environment
        variables = {
            name.lower(): text
            for name, text in (*_read(_env_file).items(), *environment.items())
            if text is not None and text.strip()
        }
        given = {name: variables[name] for name in kind.model_fields if name in variables} | values
        problems: list[str] = []
        try:
            super().__init__(_build_sources=((InitSettingsSource(kind, given),), given))
        except ValidationError as error:
            problems = problems_of(error, name=_variable, meant=_meant, secrets=CREDENTIALS[:2])
        if problems:  # raised here, so that no traceback leads to what was given
            missing = [line.partition(":")[0] for line in problems if line.endswith(": not set")]
            advice = f"\nSet {', '.join(missing)} in the environment or in the file .env." if missing else ""
            raise refusal("the settings in the environment have", problems, missing, advice=advice)
        if "fetch_k" in self.model_fields_set and self.fetch_k < self.top_k:
            line = f"FETCH_K: {self.fetch_k} chunks are too few to choose TOP_K, {self.top_k}, of them; leave it out"
            raise ConfigurationError(line, problems=[line])
        prefix = ENVIRONMENT_PREFIX.lower()
        self._prefixed.update((name, text) for name, text in variables.items() if name.startswith(prefix))

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
            ConfigurationError: As :class:`RetrievalSettings`; or the named file doesn't exist, or can't be read.
        """
        return cls(_environment=environment, _env_file=env_file)

    def to_config(self) -> RetrievalConfig:
        """Return the preset ``ecommerce-cloud`` with these values; ``RETRIEVAL_…`` names override them.

        Raises:
            ConfigurationError: A ``RETRIEVAL_…`` name is wrong.
        """
        elsewhere = from_environment(self._prefixed, [])  # load_config reports its problems
        given = {name: getattr(self, name) for name in KEYS}
        given |= {name: kind if given[name] else "none" for name, kind in SWITCHED_ON.items()}
        if "fetch_k" not in self.model_fields_set:
            del given["fetch_k"]  # it follows top_k, which may be more than its default
        values = {key: value for name, value in given.items() for key in KEYS[name]}
        overrides = {key: value for key, value in values.items() if value_at(elsewhere, key) is None}
        return load_config(PRESET, overrides, self._prefixed)


def _read(env_file: str | Path | None) -> Mapping[str, str | None]:
    """Return the variables of a file."""
    if env_file is None:
        return {}
    path = Path(os.path.expanduser(env_file))  # noqa: PTH111 - pathlib's fails if there is no such user
    if not path.exists() or path.is_dir():
        if env_file is DEFAULT_FILE:
            return {}
        msg = f"{env_file} is not there, or is no file; name a file with lines like TOP_K=5, or env_file=None for none"
        raise ConfigurationError(msg)
    try:
        return DotEnvSettingsSource(RetrievalSettings, env_file=path, env_file_encoding="utf-8").env_vars
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{env_file} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        raise ConfigurationError(msg) from error


def _variable(name: str) -> str:
    """Return the variable of a setting; an unknown argument as it was given."""
    return name.upper() if name in KEYS else name


def _meant(path: tuple[int | str, ...]) -> list[str]:
    return get_close_matches(str(path[-1]), [*KEYS, "_env_file", "_environment"], n=1)
