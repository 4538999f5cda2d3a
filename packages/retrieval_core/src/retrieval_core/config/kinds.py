"""Which kinds of adapters there are, and where the class of each is.

A kind is built in, or a package that is installed registers it as an entry point of the port's group. Both have the
same form, ``package.module:Class``, which may also be given in place of a kind. No class is imported before its kind is
chosen or its table is given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from retrieval_core.config.base import without_secrets
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

CUSTOM = "custom"
"""The table of a class that is given by its path, and the keyword arguments of a function that is."""
NONE = "none"


@dataclass(frozen=True, slots=True)
class Port:
    """All kinds of one port.

    Attributes:
        setting: The setting that names one of them.
        group: The group of entry points in which packages register further kinds.
        built_in: The classes of our own kinds, by kind; blank if there is nothing to make.
        services: Those of our own kinds that use a service, and so may be set by variables of the environment.
    """

    setting: str
    group: str
    built_in: Mapping[str, str] = field(repr=False)
    services: frozenset[str] = frozenset()

    @property
    def section(self) -> str:
        """The section of the settings that names a kind."""
        return self.setting.partition(".")[0]

    def kinds(self) -> tuple[str, ...]:
        """Return the names of all kinds: the built-in ones, then those of other packages."""
        return (*self.built_in, *(kind for kind in _registered(self.group) if kind not in self.built_in))

    def kind_of(self, table: str) -> str | None:
        """Return the kind that a table is for, such as ``cross-encoder`` for ``cross_encoder``; ``None`` if none is."""
        tables = {table_of(kind): kind for kind in self.built_in}
        if table not in tables:
            tables |= {table_of(kind): kind for kind in self.kinds()}
        return tables.get(table)

    def find(self, kind: str, beside: tuple[str, ...] = ()) -> Any:
        """Return the class of a kind, or the class or function at a path.

        Args:
            beside: Other names that there are, for the error.

        Raises:
            ConfigurationError: There is no such kind, or it cannot be imported.
        """
        path = self.built_in.get(kind) or ("" if ":" in kind else self._path_of(kind)) or kind
        module, colon, name = path.partition(":")
        if not colon:
            given = f"{without_secrets(repr(kind[:200])):.80}"  # a key may have been put in the wrong place
            names = ", ".join(dict.fromkeys((*self.kinds(), *beside)))
            msg = f'{self.setting}: {given} is none of {names}; for a custom class set it to "package.module:Class"'
            raise ConfigurationError(msg)
        try:
            return getattr(import_module(module), name)
        except Exception as error:  # a module of somebody else may raise anything
            reason = "" if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: "
            msg = without_secrets(f"{self.setting}: {path!r} cannot be imported ({reason}{error})")
            if isinstance(error, ModuleNotFoundError):
                msg += ". Install its package, or add its folder to PYTHONPATH"
            raise ConfigurationError(msg) from error

    def _path_of(self, kind: str) -> str:
        """Return the path of the class that a package registers as a kind; blank if none does.

        Raises:
            ConfigurationError: Several packages register different classes.
        """
        paths = _registered(self.group).get(kind, ())
        if len(paths) > 1:
            msg = f"{self.setting}: {kind!r} is registered by several packages, as {' and '.join(map(repr, paths))}; "
            msg += "set it to one of these paths, with its settings in the table custom"
            raise ConfigurationError(msg)
        return "".join(paths)

    def settings_of(self, kind: str) -> type[BaseModel] | None:
        """Return the class of the settings of a kind; ``None`` if it has none.

        Raises:
            ConfigurationError: As of :meth:`find`.
        """
        if self.built_in.get(kind) == "":
            return None
        return self.declared(self.find(kind), kind)

    def declared(self, maker: Any, kind: str) -> type[BaseModel] | None:
        """Return the class of the settings that an adapter's class declares; ``None`` if it declares none.

        Raises:
            ConfigurationError: It is no Pydantic model.
        """
        settings = getattr(maker, "Settings", None)
        if settings is None:
            return None
        from pydantic import BaseModel  # noqa: PLC0415 - whoever reads settings has imported it

        if isinstance(settings, type) and issubclass(settings, BaseModel):
            return settings
        msg = f"{self.setting}: Settings of {kind!r} must be a class that inherits from pydantic.BaseModel"
        raise ConfigurationError(msg)

    def needs_settings(self, kind: str) -> bool:
        """Return whether a kind may have required settings, or some that a variable of the environment sets.

        A path given in place of a kind has neither: its class is not imported while settings are loaded.
        """
        if kind in self.built_in or ":" in kind:
            return kind in self.services
        return kind in _registered(self.group)


def table_of(kind: str) -> str:
    """Return the name of a kind's table."""
    return CUSTOM if ":" in kind else kind.replace("-", "_")


@cache
def _registered(group: str) -> Mapping[str, tuple[str, ...]]:
    """Return the paths of the classes that packages register in a group of entry points, by kind."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - only a kind that is not ours needs it

    paths: dict[str, dict[str, None]] = {}
    for entry in entry_points(group=group):
        paths.setdefault(entry.name, {})[entry.value] = None
    return {kind: tuple(values) for kind, values in paths.items()}


def _port(setting: str, name: str, folder: str, services: str = "", /, **built_in: str) -> Port:
    places = {
        kind.replace("_", "-"): f"retrieval_core.adapters.{folder}{place}" if place else ""
        for kind, place in built_in.items()
    }
    return Port(setting, f"retrieval_core.{name}", MappingProxyType(places), frozenset(services.split()))


STORE = _port(
    "store.kind", "stores", "stores.", "pinecone postgres qdrant",
    sqlite="sqlite.store:SqliteStore", lancedb="lancedb.store:LanceDBStore", memory="memory:MemoryStore",
    pinecone="pinecone.store:PineconeStore", postgres="postgres.store:PostgresStore", qdrant="qdrant.store:QdrantStore",
)  # fmt: skip
EMBEDDER = _port(
    "embedder.kind", "embedders", "embedders.", "openai cohere",
    local="local:LocalEmbedder", fastembed="fastembed:FastembedEmbedder", openai="openai:OpenAIEmbedder",
    cohere="cohere:CohereEmbedder", none="",
)  # fmt: skip
LLM = _port("llm.kind", "llms", "llms.", "openai", openai="openai:OpenAILLM", none="")
RERANKER = _port(
    "reranker.kind", "rerankers", "rerankers.", "cohere",
    local="local:ExcerptReranker", llm="llm:LLMReranker", cohere="cohere:CohereReranker",
    cross_encoder="fastembed:FastembedCrossEncoder", late_interaction="fastembed:FastembedLateInteraction", none="",
)  # fmt: skip
RELEVANCE_FILTER = _port(
    "relevance_filter.kind", "relevance_filters", "relevance_filters.",
    llm="llm:LLMRelevanceFilter", local="cross_encoder:CrossEncoderRelevanceFilter", none="",
)  # fmt: skip
PRUNER = _port(
    "pruner.kind", "pruners", "pruners.",
    embedder="threshold:EmbedderPruner", local="threshold:CrossEncoderPruner", provence="provence:ProvencePruner",
    none="",
)  # fmt: skip
REWRITER = _port("rewriter.kind", "rewriters", "transformers.", llm="rewrite:LLMRewriter", none="")
TRANSFORMER = _port(
    "transform.use", "transformers", "transformers.",
    keywords="keywords:KeywordExpander", decompose="decompose:QueryDecomposer", hyde="hyde:HyDEGenerator", graph="",
)  # fmt: skip
EVALUATOR = _port(
    "evaluation.kind", "evaluators", "evaluators.",
    auto="", ragas="ragas:RagasEvaluator", local="local:LocalEvaluator", none="",
)  # fmt: skip
VERIFIER = _port("answer.verifier", "verifiers", "verifiers.", auto="llm:LLMVerifier", llm="llm:LLMVerifier")
CACHE = _port(
    "cache.kind", "caches", "caches.", "redis", memory="memory:MemoryCache", redis="redis:RedisCache", none=""
)
_BPE = "retrieval_core.adapters.token_counters:BpeTokenCounter"
TOKEN_COUNTER = Port(
    "context.token_counter",
    "retrieval_core.token_counters",
    MappingProxyType({"auto": "", "o200k_base": _BPE, "cl100k_base": _BPE}),
)
PORTS: Mapping[str, Port] = MappingProxyType(
    {
        port.section: port
        for port in (
            STORE, EMBEDDER, LLM, RERANKER, RELEVANCE_FILTER, PRUNER, REWRITER, TRANSFORMER, EVALUATOR, VERIFIER,
            CACHE, TOKEN_COUNTER,
        )
    }
)  # fmt: skip
"""All ports, by section."""
