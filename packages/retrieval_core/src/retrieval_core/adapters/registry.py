"""Which kinds there are of what may be plugged in, where each is declared, and how it is made from its settings.

Each adapter declares itself beside its class, as ``ADAPTER``; the tables at the end say where. Nothing of one is
imported before its kind is chosen. A kind of your own is ``"package.module:name"``, which names such a declaration, or
anything that can be called with its options.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import ValidationError

from retrieval_core.config.addresses import without_secrets
from retrieval_core.config.problems import problems_of, refusal
from retrieval_core.errors import ConfigurationError
from retrieval_core.ports.checks import ABILITIES, missing_abilities

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import BaseModel

    from retrieval_core import ports
    from retrieval_core.text.analysis import Analyzer

T = TypeVar("T")


def local_cross_encoder(batch_size: int | None = None) -> ports.Reranker:
    """Return the cross-encoder of this machine, not yet loaded.

    Args:
        batch_size: Passages of one call; ``None`` for its own number.
    """
    from retrieval_core.adapters.rerankers.local import BATCH_SIZE, LocalCrossEncoder  # noqa: PLC0415

    return LocalCrossEncoder(batch_size=batch_size or BATCH_SIZE)


@dataclass(frozen=True, slots=True)
class AdapterParts:
    """What an adapter may be made of beside its own settings.

    Attributes:
        llm: The language model.
        embedder: The index's embedder.
        cross_encoder: Makes the one of this machine, which several stages may share.
        location: The file or folder of the index, for a store.
        analyzer: How text becomes terms, for a store; how words do, for a reranker.
        vectors: Names of the further vectors of chunks, for a store.
    """

    llm: ports.LLM | None = None
    embedder: ports.Embedder | None = None
    cross_encoder: Callable[[], ports.Reranker] = local_cross_encoder
    location: Path = Path()
    analyzer: Analyzer | None = None

    @property
    def model(self) -> ports.LLM:
        """The language model, for an adapter that is not made without one."""
        return cast("ports.LLM", self.llm)

    @property
    def of_store(self) -> dict[str, Any]:
        """What a store knows of embedder and text, as keyword arguments."""
        id_, dimension = (None, None) if self.embedder is None else (self.embedder.id, self.embedder.dimension)
        return {"embedder_id": id_, "dimension": dimension, "analyzer": self.analyzer}


@dataclass(frozen=True, slots=True)
class Adapter:
    """How one kind is made.

    Attributes:
        build: Makes it, loading nothing, of its settings and of what it may share. The settings are the section of the
            configuration that names the kind, or what ``settings`` makes of its options.
        settings: For a kind of your own: its options as a model, with their defaults; those that are wrong or unknown
            are refused with their names.
        asks_llm: Whether it asks the language model; it is left out where there is none.
        probe: What ``retrieval doctor`` asks of it, at little cost, and says of it then; the same as of the other kinds
            where it is not given.
    """

    build: Callable[[Any, AdapterParts], object]
    settings: type[BaseModel] | None = None
    asks_llm: bool = False
    probe: Callable[[Any], Awaitable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Kinds(Generic[T]):
    """All kinds of one port.

    Attributes:
        key: The setting that names one of them.
        places: By the name of a kind, the module that declares it; blank where there is nothing to make.
        abilities: What each must have, so that a wrong one is told at once.
    """

    key: str
    places: Mapping[str, str]
    abilities: tuple[str, ...]

    @property
    def section(self) -> str:
        """The section of the settings that names one of them."""
        return self.key.partition(".")[0]

    def named(self, kind: str, beside: tuple[str, ...] = ()) -> Adapter | Callable[..., object]:
        """Return what a kind is made by: its declaration, or a callable of the user's own.

        Args:
            beside: Other names that there are, for the error.

        Raises:
            ConfigurationError: There is no such kind, or it cannot be imported.
        """
        if kind in self.places:
            module, _, name = self.places[kind].partition(":")
            return getattr(import_module(f"retrieval_core.adapters.{module}"), name or "ADAPTER")
        module, colon, name = kind.partition(":")
        if not colon:
            given = without_secrets(repr(kind))  # a key may have been put in the wrong place
            names = ", ".join(dict.fromkeys((*self.places, *beside)))
            msg = f'{self.key}: {given} is none of {names}; for a custom factory set it to "package.module:factory"'
            raise ConfigurationError(msg)
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            msg = without_secrets(f"{self.key}: {kind!r} cannot be imported ({error})")
            raise ConfigurationError(msg) from error

    def make(
        self, kind: str, section: Any, parts: AdapterParts, beside: tuple[str, ...] = (), **given: Any
    ) -> T | None:
        """Return what a kind stands for, not yet loaded; ``None`` for nothing, and where its language model is missing.

        Args:
            section: The settings that name the kind.
            parts: What it may be made of as well.
            beside: See :meth:`named`.
            given: Further arguments for a callable of the user's own.

        Raises:
            ConfigurationError: There is no such kind, or it cannot be made so, or lacks something.
        """
        if self.places.get(kind) == "":
            return None
        maker = self.named(kind, beside)
        if isinstance(maker, Adapter) and maker.asks_llm and parts.llm is None:
            return None
        options: dict[str, Any] = getattr(section, "options", {})
        if kind in self.places:
            return cast("T", cast("Adapter", maker).build(section, parts))
        if isinstance(maker, Adapter):
            made = maker.build(self._checked(maker.settings, options) if maker.settings else options, parts)
        else:
            made = self._called(kind, maker, {**given, **options})
        if missing := missing_abilities(made, self.abilities):
            what = type(made).__name__  # and not what it shows of itself, which may hold the options
            msg = f"{self.key}: {kind!r} made an object of the type {what}, which has no {', '.join(missing)}; "
            msg += "see retrieval_core.ports"
            raise ConfigurationError(msg)
        return cast("T", made)

    def _checked(self, model: type[BaseModel], options: Mapping[str, Any]) -> BaseModel:
        """Return options as their model; any of them may be a secret, so an error shows none of their values."""
        try:
            return model.model_validate(options)
        except ValidationError as error:
            lines = problems_of(
                error,
                name=lambda key: f"{self.section}.options.{key}",
                meant=lambda path: get_close_matches(str(path[-1]), model.model_fields, n=1),
                secrets=None,
            )
        raise refusal("the options of a part have", lines)

    def _called(self, kind: str, factory: Callable[..., object], options: dict[str, Any]) -> object:
        try:
            with suppress(ValueError):  # functions written in C need not tell what they take
                signature(factory).bind(**options)
        except TypeError as error:
            given = ", ".join(options) or "no arguments"
            msg = without_secrets(f"{self.key}: {kind!r} cannot be called with {given} ({error})")
            raise ConfigurationError(msg) from None
        return factory(**options)


def _kinds(**places: str) -> Mapping[str, str]:
    return MappingProxyType({name.replace("_", "-"): place for name, place in places.items()})


STORES: Kinds[ports.CataloguedStore] = Kinds(
    "store.kind",
    _kinds(
        sqlite="stores.sqlite.store",
        lancedb="stores.lancedb.store",
        memory="stores.memory",
        pinecone="stores.pinecone.store",
        qdrant="stores.qdrant.store",
    ),
    ("describe", "upsert", "delete", "search", "fetch", "aclose", "sources", "documents_of"),
)
EMBEDDERS: Kinds[ports.Embedder] = Kinds(
    "embedder.kind",
    _kinds(
        local="embedders.local",
        fastembed="embedders.fastembed",
        openai="embedders.openai",
        cohere="embedders.cohere",
        none="",
    ),
    ABILITIES["embedder"],
)
LLMS: Kinds[ports.LLM] = Kinds("llm.kind", _kinds(openai="llms.openai", none=""), ABILITIES["llm"])
RERANKERS: Kinds[ports.Reranker] = Kinds(
    "reranker.kind",
    _kinds(
        local="rerankers.local",
        llm="rerankers.llm",
        cohere="rerankers.cohere",
        cross_encoder="rerankers.fastembed:CROSS_ENCODER",
        late_interaction="rerankers.fastembed:LATE_INTERACTION",
        none="",
    ),
    ABILITIES["reranker"],
)
RELEVANCE_FILTERS: Kinds[ports.RelevanceFilter] = Kinds(
    "relevance_filter.kind",
    _kinds(llm="relevance_filters.llm", local="relevance_filters.cross_encoder", none=""),
    ("id", "batch_size", "judge"),
)
PRUNERS: Kinds[ports.Pruner] = Kinds(
    "pruner.kind",
    _kinds(embedder="pruners.embedder", local="pruners.cross_encoder", provence="pruners.provence", none=""),
    ("id", "batch_size", "keep"),
)
REWRITERS: Kinds[ports.Rewriter] = Kinds(
    "rewriter.kind", _kinds(llm="transformers.rewrite", none=""), ("id", "rewrite")
)
TRANSFORMERS: Kinds[ports.QueryTransformer] = Kinds(
    "transform.use",
    _kinds(keywords="transformers.keywords", decompose="transformers.decompose", hyde="transformers.hyde", graph=""),
    ("id", "transform"),
)
EVALUATORS: Kinds[ports.Evaluator] = Kinds(
    "evaluation.kind", dict.fromkeys(("auto", "ragas", "local"), "evaluators"), ("id", "evaluate")
)
VERIFIERS: Kinds[ports.Verifier] = Kinds(
    "answer.verifier", _kinds(auto="verifiers.llm", llm="verifiers.llm"), ("id", "batch_size", "verify")
)
CACHES: Kinds[ports.ResultCache] = Kinds(
    "cache.kind", _kinds(memory="caches.memory", redis="caches.redis"), ("get", "set", "clear", "aclose")
)
TOKEN_COUNTERS: Kinds[ports.TokenCounter] = Kinds(
    "context.token_counter",
    MappingProxyType({"auto": "", **dict.fromkeys(("o200k_base", "cl100k_base"), "token_counters")}),
    ABILITIES["token_counter"],
)
