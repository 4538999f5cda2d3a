"""Sections of the configuration that choose an adapter: its kind, what all kinds share, and a table for each kind."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Literal, Self, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from retrieval_core.config import kinds
from retrieval_core.config.base import FROM_A_DUMP, HIDDEN, NOT_SHOWN, Settings, without_secrets
from retrieval_core.config.kinds import CUSTOM, NONE, Port, table_of
from retrieval_core.config.moved import rename_moved, replace_switches
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning

PROMPTS = ("keywords", "decompose", "hyde", "history")
"""What of ``transform`` has instructions of its own."""


def _hidden(values: dict[str, Any]) -> dict[str, Any]:
    return {without_secrets(name): HIDDEN for name in values}


class UndeclaredTable(BaseModel):
    """The table ``custom``, or that of a package's class without ``Settings``: any of its values may be a secret."""

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="after")
    def _is_no_dump(self) -> Self:
        if any(value == HIDDEN for value in (self.__pydantic_extra__ or {}).values()):
            raise ValueError(FROM_A_DUMP)
        return self

    def __repr_args__(self) -> list[tuple[str, Any]]:
        """Return nothing that ``repr`` may show."""
        return []

    @model_serializer
    def _without_values(self) -> dict[str, Any]:
        return _hidden(self.__pydantic_extra__ or {})


class PortConfig(Settings):
    """A section that chooses a kind of adapter. Each kind can have a table in it, whose settings the adapter declares.

    All tables are validated, and only that of the chosen kind is used. The table of a kind is an attribute, such as
    ``config.store.qdrant``. If it is not set, it has the defaults.
    """

    model_config = ConfigDict(extra="allow")

    port: ClassVar[Port]
    chosen_in: ClassVar[tuple[str, ...]] = ("kind",)
    """The settings that name kinds."""

    @property
    def custom(self) -> dict[str, Any]:
        """The settings of a custom class, or the keyword arguments of a custom function."""
        return dict(self.tables.get(CUSTOM, ()))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are used, in their order."""
        given = (getattr(self, setting) for setting in self.chosen_in)
        return tuple(kind for value in given for kind in ((value,) if isinstance(value, str) else value))

    @property
    def tables(self) -> Mapping[str, BaseModel]:
        """The tables that were given, by name."""
        return cast("dict[str, BaseModel]", self.__pydantic_extra__ or {})

    def settings_of(self, kind: str) -> BaseModel | None:
        """Return the settings of a kind: its table, or the defaults; ``None`` if it has no settings.

        Raises:
            ConfigurationError: There is no such kind.
        """
        given = self.tables.get(table_of(kind))
        if given is not None:
            return given
        settings = self.port.settings_of(kind)
        return None if settings is None else _defaults(settings)

    @model_validator(mode="wrap")
    @classmethod
    def _read_tables(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        problems: list[InitErrorDetails] = []
        values = cls._with_new_names(cast("Mapping[str, Any]", data), problems)
        section: Self | None = None
        try:
            section = handler({name: value for name, value in values.items() if name in cls.model_fields})
        except ValidationError as error:
            problems += _lines(error)
        tables: dict[str, BaseModel] = {}
        for name in values.keys() - cls.model_fields.keys():
            try:
                tables[name] = cls._table(name, values[name])
            except ValidationError as error:
                problems += _lines(error, name)
        if section is not None:
            for kind in section.kinds:  # of another package, whose settings may be required
                name = table_of(kind)
                if kind not in cls.port.built_in and name not in values and cls.port.needs_settings(kind):
                    try:
                        tables[name] = cls._table(name, {})
                    except ValidationError as error:
                        problems += _lines(error, name)
        if section is None or problems:
            raise ValidationError.from_exception_data(cls.__name__, problems, hide_input=True)
        cast("dict[str, Any]", section.__pydantic_extra__).update(tables)
        section.model_fields_set.update(tables)
        return section

    @classmethod
    def _with_new_names(cls, values: Mapping[str, Any], problems: list[InitErrorDetails]) -> Mapping[str, Any]:
        """Return the values under their new names."""
        if values.keys() <= cls.model_fields.keys():
            return values
        gone, renamed = list[str](), list[str]()
        tree = rename_moved({cls.port.section: values}, cls.__name__, gone, renamed)
        replace_switches(tree, gone)
        problems += [InitErrorDetails(type=_problem("value_error", line), input=NOT_SHOWN) for line in gone]
        for warning in renamed:
            warnings.warn(without_secrets(warning), SettingRenamedWarning, stacklevel=4)
        return cast("dict[str, Any]", tree.get(cls.port.section, {}))

    @classmethod
    def _table(cls, name: str, value: Any) -> BaseModel:
        """Return a table as the settings of its adapter.

        Raises:
            ValidationError: No adapter has this table, or it is wrong.
        """
        if name == CUSTOM:
            return _read_foreign(UndeclaredTable, value)
        kind = cls.port.kind_of(name)
        try:
            settings = None if kind is None else cls.port.settings_of(kind)
        except ConfigurationError as error:
            raise _refused("value_error", str(error).removeprefix(f"{cls.port.setting}: ")) from error
        if kind is not None and kind not in cls.port.built_in:
            return _read_foreign(settings or UndeclaredTable, value)
        if settings is None and kind is not None:
            raise _refused("value_error", f"the kind {kind!r} has no settings; remove this table")
        if settings is None:
            raise _refused("extra_forbidden", "Extra inputs are not permitted")
        return settings.model_validate(value)

    def __getattr__(self, name: str) -> Any:
        """Return the defaults of a table that was not given."""
        try:
            return super().__getattr__(name)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        except AttributeError:
            kind = None if name.startswith("_") else self.port.kind_of(name)
            settings = None if kind is None else self.settings_of(kind)
            if settings is None:
                raise
            return settings


@cache
def _defaults(settings: type[BaseModel]) -> BaseModel:
    return settings()


def _read_foreign(settings: type[BaseModel], value: Any) -> BaseModel:
    """Return a table as the settings of another package; any of it may be a secret, so an error shows no values."""
    try:
        return settings.model_validate(value)
    except ValidationError as error:
        lines = [
            InitErrorDetails(type=line["type"], loc=line.get("loc", ()), input=NOT_SHOWN) for line in _lines(error)
        ]
    except Exception as error:
        raise _refused("value_error", f"it cannot be read ({type(error).__name__}: {error})") from error
    raise ValidationError.from_exception_data("table", lines, hide_input=True)


def _problem(kind: Any, message: str) -> PydanticCustomError:
    return PydanticCustomError(kind, "{message}", {"message": message})


def _refused(kind: str, message: str) -> ValidationError:
    problem = InitErrorDetails(type=_problem(kind, message), input=NOT_SHOWN)
    return ValidationError.from_exception_data("table", [problem], hide_input=True)


def _lines(error: ValidationError, *above: str) -> list[InitErrorDetails]:
    """Return the problems of an error, to be raised again together with others.

    Args:
        above: The table that they are in.
    """
    return [
        InitErrorDetails(
            type=_problem(detail["type"], detail["msg"]),
            loc=(*above, *detail["loc"]),
            input=detail["input"],
        )
        for detail in error.errors(include_url=False)
    ]


class StoreConfig(PortConfig):
    """The store that keeps the index."""

    port: ClassVar[Port] = kinds.STORE

    kind: str = "sqlite"
    """``sqlite`` (one file), ``lancedb`` (a folder, for large collections), ``memory`` (gone with the process),
    ``postgres``, ``pinecone``, ``qdrant`` or ``"package.module:Class"``."""


class EmbedderConfig(PortConfig):
    """The embedder, which turns text into vectors."""

    port: ClassVar[Port] = kinds.EMBEDDER

    kind: str = "local"
    """``local`` (on this machine: bge-small-en-v1.5 or a model in a folder), ``fastembed`` (other open models),
    ``openai``, ``cohere``, ``none`` (keyword search only) or ``"package.module:Class"``."""


class LLMConfig(PortConfig):
    """The language model. Without one, stages that need it are absent."""

    port: ClassVar[Port] = kinds.LLM

    kind: str = "none"
    """``none``, ``openai`` or ``"package.module:Class"``."""


class RerankerConfig(PortConfig):
    """Rerank the best hits with a model that reads query and chunk together."""

    port: ClassVar[Port] = kinds.RERANKER
    chosen_in: ClassVar[tuple[str, ...]] = ("kind", "fallbacks")

    kind: str = "none"
    """``none``, ``local`` (a cross-encoder on this machine), ``llm``, ``cohere``, ``cross-encoder`` and
    ``late-interaction`` (both with ``fastembed``) or ``"package.module:Class"``."""
    fallbacks: tuple[str, ...] = ()
    """Kinds to try in this order if it fails. If all fail, the hits keep their ranks."""
    candidates: int = Field(default=30, ge=1, le=1000)
    """Number of hits that are reranked."""
    weight: float = Field(default=0.3, ge=0, le=1)
    """Weight of the reranker's ranks, from 0 to 1; those of the search have the rest. With 1 only its scores count."""
    batch_size: int | None = Field(default=None, ge=1, le=1000)
    """Chunks scored in one call. Default: 10 for ``llm``, 32 for the models of this machine."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind and its fallbacks; none of them for the kind ``none``."""
        return () if self.kind == NONE else super().kinds


class RelevanceFilterConfig(PortConfig):
    """Drop chunks that are not relevant to the query."""

    port: ClassVar[Port] = kinds.RELEVANCE_FILTER

    kind: str = "none"
    """``none``, ``llm``, ``local`` (a cross-encoder on this machine) or ``"package.module:Class"``."""


class PrunerConfig(PortConfig):
    """Keep only the sentences of each chunk that are relevant to the query."""

    port: ClassVar[Port] = kinds.PRUNER

    kind: str = "none"
    """``none``, ``embedder`` (the index's own), ``local`` (a cross-encoder on this machine), ``provence`` or
    ``"package.module:Class"``."""
    threshold: float | None = Field(default=None, ge=-1, le=1)
    """Lowest score of a sentence that is kept, on the kind's own scale. Each kind has a default; that of
    ``embedder`` is for the default embedder only."""


class RewriterConfig(PortConfig):
    """Rewrite the query and search again if the results are not relevant enough."""

    port: ClassVar[Port] = kinds.REWRITER

    kind: str = "none"
    """``none``, ``llm`` or ``"package.module:Class"``."""
    max_attempts: int = Field(default=2, ge=0, le=10)
    """Further searches after the first one."""
    relevance_threshold: float = Field(default=0.5, ge=0, le=1)
    """Lowest relevance of results at which the query is not rewritten."""


class TransformConfig(PortConfig):
    """Transform queries before the search: add keywords, sub-questions or a hypothetical answer."""

    port: ClassVar[Port] = kinds.TRANSFORMER
    chosen_in: ClassVar[tuple[str, ...]] = ("use",)

    use: tuple[str, ...] = ()
    """Default transformers of each query: ``keywords``, ``decompose``, ``hyde`` (these need an LLM), ``graph`` (needs a
    graph), or ``"package.module:Class"``."""
    history: Literal["auto", "llm", "heuristic", "none"] = "auto"
    """How a follow-up question becomes a complete one. ``auto`` is ``llm`` if a language model is configured, otherwise
    ``heuristic``."""
    model: str | None = None
    """The language model for transformers, at the same provider. Default: the model of ``llm``."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Instructions in place of the built-in ones, for ``keywords``, ``decompose``, ``hyde`` and ``history``."""

    @field_validator("use")
    @classmethod
    def _names_are_told_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) < len(value):
            msg = f"each name can be given once, got {', '.join(value)}"
            raise ValueError(msg)
        return value

    @field_validator("prompts")
    @classmethod
    def _prompts_are_known(cls, value: dict[str, str]) -> dict[str, str]:
        if unknown := sorted(value.keys() - set(PROMPTS)):
            msg = f"there are no instructions for {', '.join(unknown)}; there are for {', '.join(PROMPTS)}"
            raise ValueError(msg)
        if blank := sorted(name for name, prompt in value.items() if not prompt.strip()):
            msg = f"the instructions for {', '.join(blank)} are blank; leave them out for the built-in ones"
            raise ValueError(msg)
        return value


class AnswerConfig(PortConfig):
    """Answer questions from the results: written by a language model if one is configured, otherwise quoted."""

    port: ClassVar[Port] = kinds.VERIFIER
    chosen_in: ClassVar[tuple[str, ...]] = ("verifier",)

    prompt: str | None = None
    """Instructions to the language model in place of the built-in ones."""

    @field_validator("prompt")
    @classmethod
    def _prompt_says_something(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            msg = "it is blank; leave it out for the built-in instructions"
            raise ValueError(msg)
        return value

    max_tokens: int | None = Field(default=None, ge=1)
    """Maximum length of an answer in the model's tokens. Default: the provider's limit."""
    abstain_below: float = Field(default=0.15, ge=0, le=1)
    """Abstain if the probability that the chunks answer the question is lower. A question with an identifier that no
    chunk contains is not answered either. 0 means always answer."""
    without_documents: bool = True
    """Whether the language model gives a general answer, marked as such, when no index can be searched."""
    verify: bool = False
    """Whether each sentence of a written answer is verified against the chunks."""
    verifier: str = "auto"
    """``auto`` and ``llm`` ask the language model. ``"package.module:Class"`` names your own verifier."""

    @field_validator("verifier")
    @classmethod
    def _verifier_is_not_local(cls, value: str) -> str:
        if value == "local":
            msg = "the local verifier was removed; remove this setting, or name your own verifier"
            raise ValueError(msg)
        return value


class SemanticCacheConfig(Settings):
    """Reuse the cached result of a query with the same meaning in other words."""

    enabled: bool = False
    """Whether the cache also finds queries with the same meaning. It needs an embedder."""
    threshold: float = Field(default=0.98, ge=0, le=1)
    """Lowest cosine similarity of two queries that can be the same. Their numbers and names must agree too."""
    scope: Literal["global", "session"] = "global"
    """``session`` compares a query only with those of the same ``session_id``."""


class CacheConfig(PortConfig):
    """Cache results for queries that are repeated."""

    port: ClassVar[Port] = kinds.CACHE

    kind: str = "memory"
    """``memory``, ``redis`` (shared by several processes), ``none`` (nothing is cached) or
    ``"package.module:Class"``."""
    ttl_seconds: float = Field(default=300, gt=0)
    """Seconds until a result expires."""
    max_size: int = Field(default=1000, ge=1)
    """Maximum number of results in memory. The least recently used are dropped first."""
    embeddings: int = Field(default=1000, ge=0)
    """Maximum number of embedded queries in memory. 0 means none."""
    reranks: int = Field(default=1000, ge=0)
    """Maximum number of reranker calls whose scores are kept in memory. 0 means none."""
    semantic: SemanticCacheConfig = SemanticCacheConfig()
    """Reuse of cached results for queries with the same meaning in other words."""

    @property
    def is_on(self) -> bool:
        """Whether anything is cached."""
        return self.kind != NONE


class EvaluationConfig(PortConfig):
    """Quality scores, computed for each query."""

    port: ClassVar[Port] = kinds.EVALUATOR

    kind: str = "none"
    """``none``, ``ragas`` (needs an LLM), ``local`` (an estimate without one), ``auto`` (``ragas`` if an LLM is
    configured, otherwise ``local``) or ``"package.module:Class"``."""
