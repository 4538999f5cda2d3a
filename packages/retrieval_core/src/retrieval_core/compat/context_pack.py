"""The fifth specification file's names: context packs, for an index or for a plain list of chunks.

::

    from retrieval_core.compat.context_pack import RetrievalConfig, retrieve

    config = RetrievalConfig.from_env()
    result = retrieve("What is the main topic?", {"doc_id": "doc_1"}, config, all_chunks=[], llm_config=None)
    print(result.citations, result.context_pack)

:meth:`retrieval_core.Index.context` does the same with the settings of the whole library. Each part also works by
itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from retrieval_core.adapters.registry import build_llm
from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.adapters.token_counters import counter_of_embedder
from retrieval_core.compat.models import adapt_llm
from retrieval_core.config import BreakerConfig, LLMConfig, RerankerConfig, RetryConfig, load_config
from retrieval_core.config import ContextConfig as LibraryContext
from retrieval_core.config import RetrievalConfig as LibraryConfig
from retrieval_core.config.base import problems_of, refusal
from retrieval_core.errors import (
    InvalidParameterError,
    MissingExtraError,
    ModelNotFoundError,
)
from retrieval_core.index.open import open_index
from retrieval_core.pipeline.context import NOTHING, make_context, pack_of
from retrieval_core.pipeline.lifecycle import Calls, Closing
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.expand import as_hits, expand, surroundings_in
from retrieval_core.pipeline.stages.rerank import RerankCache, rerank
from retrieval_core.pipeline.stages.transform import normalize
from retrieval_core.ports import TokenCounter
from retrieval_core.ports.plugin import as_optional
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.outcomes import raise_faults, value_of
from retrieval_core.run.sync import SyncBridge
from retrieval_core.types import (
    Chunk,
    ContextPack,
    Degradation,
    Evidence,
    Hit,
    LedgerEntry,
    PageSpan,
    RetrievalResult,
    Scores,
    format_citation,
)
from retrieval_core.types.filters import And, Filter, MetadataFilter, Not, Or, chunk_fields, matches
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from retrieval_core.adapters.llms.openai import OpenAILLM, OpenAILLMSettings
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline.stages.expand import Surroundings
    from retrieval_core.pipeline.stages.state import JudgedHits
    from retrieval_core.ports import LLM
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None
    Model: TypeAlias = "OpenAILLMSettings | LLMConfig | LLM | OpenAIReranker | None"

__all__ = [
    "ContextPack", "DefaultContextAssembler", "OpenAIReranker", "RerankConfig", "RerankResult", "RetrievalConfig",
    "aretrieve", "expand_neighbors", "format_citation", "retrieve",
]  # fmt: skip
logger = logging.getLogger("retrieval_core")

ALIASES = {"doc_id": "document_id"}
"""Fields that filters may name as the specification does."""
RERANK_SHARE = 0.9
"""The part of the time that is left after the search by which reranking has to be done."""
CACHED_CALLS = 1000
"""The most requests whose scores a reranker keeps."""


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


class RetrievalConfig(_Settings):
    """How a context is made: what is searched, scored and put around the hits, within how many tokens.

    Not :class:`retrieval_core.RetrievalConfig`, which has all settings of the library.
    """

    neighbor_same_page: int = Field(default=1, ge=0, le=100)
    """Chunks before and after a hit on the same page or under the same parent."""
    neighbor_cross_page: int = Field(default=2, ge=0, le=100)
    """Chunks before and after a hit from adjacent pages; none if the document has no pages."""
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
        """Read the settings from an environment, by default that of the process.

        A variable is the field's name in capitals, such as ``FINAL_MAX_TOKENS``. Those of :class:`RerankConfig` begin
        with ``RERANK_``. Either case is accepted. Missing or blank variables keep their defaults.

        Raises:
            ConfigurationError: ``problems`` has a line for each variable that is wrong, beginning with its name.
        """
        variables = os.environ if environment is None else environment
        # Sorted so that capitals, which come last, win.
        given = {name.upper(): text.strip() for name, text in sorted(variables.items(), reverse=True) if text.strip()}
        own = {name: given[name.upper()] for name in cls.model_fields if name != "rerank" and name.upper() in given}
        names = {name: f"RERANK_{name.upper()}" for name in RerankConfig.model_fields}
        of_rerank = {field: given[name] for field, name in names.items() if name in given}
        try:
            return cls.model_validate({**own, "rerank": of_rerank})
        except ValidationError as error:
            told = problems_of(error, name=lambda key: key.replace(".", "_").upper())
        raise refusal("the settings in the environment have", told)

    def to_context(self, base: LibraryContext | None = None) -> LibraryContext:
        """Return the same as settings of the library's contexts; those that are not named here are the base's."""
        return (base or LibraryContext()).model_copy(
            update={
                "max_tokens": self.final_max_tokens,
                "min_primaries": self.min_primary_hits_to_keep,
                "neighbor_same_page": self.neighbor_same_page,
                "neighbor_cross_page": self.neighbor_cross_page,
                "include_parents": self.include_parents,
                "window": 0,  # with a window these neighbours would not be used
            }
        )


@dataclass(frozen=True, slots=True)
class RerankResult:
    """A reranker's verdict on one candidate.

    Attributes:
        relevance_score: From 0 (unrelated) over 40 (tangential) and 70 (a partial answer) to 100 (answers directly).
        answerability: Whether the candidate contains the answer.
        key_evidence: The words behind the score; empty if there are none.
        key_evidence_is_quoted: Whether the candidate contains these words literally, except for white space.

    Raises:
        InvalidParameterError: The id is no text, or the score no number from 0 to 100.
    """

    chunk_id: str
    relevance_score: float
    answerability: bool = False
    key_evidence: str = ""
    key_evidence_is_quoted: bool = False

    def __post_init__(self) -> None:
        _check("chunk_id", self.chunk_id, str)
        score: Any = self.relevance_score
        if not isinstance(score, (int, float)) or isinstance(score, bool) or not 0 <= score <= 100:
            msg = f"relevance_score of {self.chunk_id!r:.80} must be a number from 0 to 100, got {score!r:.40}"
            raise InvalidParameterError(msg)


def expand_neighbors(chunk: Chunk, all_chunks: Iterable[Chunk], config: RetrievalConfig | None = None) -> list[Chunk]:
    """Return a chunk with those beside it, in the document's order.

    These are the chunks at most ``neighbor_same_page`` positions away on the same page or under the same parent; and
    those at most ``neighbor_cross_page`` positions away on an adjacent page. Chunks that are parents of others are none
    of them.

    Args:
        chunk: The hit. It may be missing among the others.
        all_chunks: Chunks of any documents, with their positions in ``chunk_index``.
        config: Settings. Default: those of :class:`RetrievalConfig`.

    Raises:
        InvalidParameterError: An argument is not of its kind, or two different chunks have the same id.
    """
    settings = _checked_config(config).to_context().model_copy(update={"include_parents": False})
    _check("chunk", chunk, Chunk)
    items = expand(as_hits((chunk,), (1.0,)), surroundings_in(_by_id(all_chunks).values()), settings)
    return sorted((item.chunk for item in items), key=lambda found: (found.chunk_index, found.id))


class DefaultContextAssembler:
    """Build a context pack from reranked candidates, without a store.

    Args:
        token_counter: Counts the tokens of a text. Default: the local embedder's tokenizer.
    """

    def __init__(self, token_counter: Callable[[str], int] | None = None) -> None:
        self._token_counter = as_optional(token_counter, TokenCounter, "token_counter")

    def assemble(  # noqa: PLR0917 - the specification's arguments
        self,
        query: str,
        reranked: Sequence[RerankResult],
        cfg: RetrievalConfig | None,
        doc_id: str | None,
        candidate_metadata: Mapping[str, Mapping[str, Any]] | None,
        all_chunks: Iterable[Chunk],
    ) -> ContextPack:
        """Return the best candidates with their parents and neighbours, within the budget.

        Blocks while the tokens are counted, so do not call it on an event loop.

        Args:
            query: The question.
            reranked: The scores of the candidates; equal scores keep their order. The ``rerank.return_top_n`` best of
                the given chunks become primaries. The better score of a duplicate counts.
            cfg: Settings. Default: those of :class:`RetrievalConfig`.
            doc_id: The only document that passages may come from, neighbours too; ``None`` for any.
            candidate_metadata: Metadata of candidates from the first stage, by chunk id. ``score`` goes to
                ``trace["pinecone_candidates"]``. ``title``, ``source``, ``page`` (a number, or the first and the
                last one) and ``section_path`` are fallbacks for a chunk without them. Other keys are ignored.
            all_chunks: The chunks with their texts. A chunk whose id is another one's ``parent_id`` is its parent.

        Raises:
            QueryValidationError: The query is empty or no text.
            InvalidParameterError: An argument is not of its kind, or two different chunks have the same id.
            ConfigurationError: Nothing is there that counts tokens.
        """
        started = time.perf_counter()
        normalize(query, LibraryConfig().query)  # raises where it is no question
        cfg = _checked_config(cfg)
        settings = cfg.to_context()
        known = _checked_metadata(candidate_metadata)
        ranked = _best_first(reranked)
        chunks = {name: _completed(chunk, known.get(name)) for name, chunk in _by_id(all_chunks).items()}
        allowed = {name: chunk for name, chunk in chunks.items() if doc_id is None or chunk.document_id == doc_id}
        hits = tuple([_hit(one, allowed[one.chunk_id], known) for one in ranked if one.chunk_id in allowed])
        shown = hits[: cfg.rerank.return_top_n]
        if self._token_counter is None:  # it keeps what it loads, so it is made once
            self._token_counter = counter_of_embedder(None)
        pack = pack_of(
            RetrievalResult(query, hits, "", {}, 0.0),
            assemble(shown, surroundings_in(allowed.values()), settings, self._token_counter),
            shown=len(shown),
            degraded=(),
            max_tokens=settings.max_tokens,
            stages=(),
            latency_ms=(time.perf_counter() - started) * 1000,
        )
        absent = [_absent(one.chunk_id, chunks, doc_id) for one in ranked if one.chunk_id not in allowed]
        trace = {
            **pack.trace,
            "pinecone_candidates": _candidates(ranked, known),
            "rerank_results": tuple(map(asdict, ranked)),
        }
        return replace(pack, ledger=(*pack.ledger, *absent), trace=trace)


class OpenAIReranker(Closing):
    """Score candidates with a language model, by :class:`~retrieval_core.adapters.rerankers.llm.LLMReranker`.

    Requests are retried after transient failures, with exponential backoff. Scores are cached in memory by query, ids
    and contents of the candidates.

    Args:
        config: Model, numbers and lengths. Default: those of :class:`RerankConfig`.
        llm: A language model instead of OpenAI's ``config.model``. You close it yourself.
        api_key: OpenAI's API key. Default: the environment variable ``OPENAI_API_KEY``, unless ``base_url`` is given.
        base_url: Address of another server with the same API, for instance ``http://localhost:11434/v1``.
        retry: Number and delays of retries.
        deadline_seconds: Time budget of a call in seconds; ``None`` for none.
        clock: Measures durations and the deadline. Default: the system's clock.

    Raises:
        ConfigurationError: There is neither a model to ask, nor a key, nor a base URL.
        InvalidParameterError: The settings are of another kind, or the model is none.
    """

    def __init__(
        self,
        config: RerankConfig | None = None,
        llm: LLM | None = None,
        api_key: SecretStr | str | None = None,
        base_url: str | None = None,
        *,
        retry: RetryConfig | None = None,
        deadline_seconds: float | None = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.config = RerankConfig() if config is None else config
        _check("config", self.config, RerankConfig)
        llm = None if llm is None else adapt_llm(llm, self.config.model)
        owned = _openai_llm(self.config.model, api_key, base_url) if llm is None else None
        calls = LibraryConfig(retry=retry or RetryConfig(), breaker=_NO_BREAKER, deadline_seconds=deadline_seconds)
        self._calls = Calls(calls, clock, () if owned is None else (owned,))
        self._settings = RerankerConfig(kind="llm", candidates=self.config.max_candidates_to_rerank, weight=1.0)
        self._reranker = LLMReranker(
            llm or cast("LLM", owned),
            max_characters=self.config.max_text_chars_per_candidate,
            strict_json=self.config.strict_json_output,
        )
        self._cache = RerankCache(CACHED_CALLS, (clock or SystemClock()).now)

    def rerank(self, query: str, candidates: Sequence[Chunk | Hit]) -> list[RerankResult]:
        """Score candidates; the same as :meth:`arerank`, from synchronous code."""
        return self._calls.sync.run(self.arerank(query, candidates))

    async def arerank(self, query: str, candidates: Sequence[Chunk | Hit]) -> list[RerankResult]:
        """Score candidates by how well they answer a question.

        Args:
            query: The question.
            candidates: Best first, each once; those beyond ``max_candidates_to_rerank`` are not scored.

        Returns:
            One result for each candidate that was scored, by descending score; equal scores keep the candidates' order.

        Raises:
            QueryValidationError: The query is empty or no text.
            InvalidParameterError: A candidate is neither a chunk nor a hit.
            ServiceError: The model failed, or gave no usable answer; subclasses say more.
            ConfigurationError: Something needed is not installed.
        """
        text = normalize(query, self._calls.config.query).text
        chunks: dict[str, Chunk] = {}
        for candidate in _items("candidates", candidates, Chunk, Hit):
            chunk = candidate.chunk if isinstance(candidate, Hit) else candidate
            chunks.setdefault(chunk.id, chunk)
        hits = as_hits(chunks.values(), (1 / rank for rank in range(1, len(chunks) + 1)))
        reranked = await self.rerank_hits(self._calls.begin(), text, hits[: self._settings.candidates])
        if reranked.failures:
            value_of(reranked.failures[-1])
        for entry in reranked.degraded:
            logger.warning("%s: %s", entry.stage, entry.reason)
        return [_as_result(hit) for hit in reranked.hits]

    async def rerank_hits(self, run: Run, query: str, hits: Sequence[Hit]) -> JudgedHits:
        """Put hits into the model's order, as one stage of a run with others; what fails leaves them as they are."""
        return await rerank(run, (self._reranker,), query, hits, self._settings, cache=self._cache)

    @property
    def sync(self) -> SyncBridge:
        """Runs its coroutines from synchronous code."""
        return self._calls.sync

    async def aclose(self) -> None:
        """Close what it opened. Closing twice is fine."""
        await self._calls.aclose()

    def close(self) -> None:
        """Close what it opened, and stop the background loop of synchronous calls."""
        self._calls.close()


def retrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] = (),
    llm_config: Model = None,
    *,
    index: Index | None = None,
    token_counter: Callable[[str], int] | None = None,
) -> ContextPack:
    """Return what a language model should be shown to answer a question; the same as :func:`aretrieve`.

    It may be called where an event loop is running, as in a notebook, and then blocks that loop's thread.
    """
    work = aretrieve(query, filters, cfg, all_chunks, llm_config, index=index, token_counter=token_counter)
    if isinstance(llm_config, OpenAIReranker):
        return llm_config.sync.run(work)
    if index is not None:
        return index.sync.run(work)
    with closing(SyncBridge(LibraryConfig().deadline_seconds)) as bridge:
        return bridge.run(work)


async def aretrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] = (),
    llm_config: Model = None,
    *,
    index: Index | None = None,
    token_counter: Callable[[str], int] | None = None,
) -> ContextPack:
    """Return the context for a language model to answer a question: search, rerank, and assemble.

    A list of chunks is searched in memory. The extra ``local`` is necessary for hybrid search; without it, the fallback
    is keyword search, which ``degraded`` reports. Each call embeds the list again, so use an index for more than some
    hundred chunks. Parents of other chunks are not searched; they come with their children.

    Args:
        query: The question.
        filters: Filter for all chunks, also neighbors and parents, typed or as JSON. ``doc_id`` means
            ``document_id``.
        cfg: Settings. Default: those of :class:`RetrievalConfig`.
        all_chunks: The chunks to search. ``None`` means the index configured in the environment, without its reranker,
            opened for this call.
        llm_config: The model for reranking, or ``None`` for none: settings of a model, a model, or an
            :class:`OpenAIReranker`, which keeps its scores from call to call. A reranker has its own settings instead
            of ``cfg.rerank``. Settings without a model mean ``cfg.rerank.model``.
        index: An open index to search instead of ``all_chunks``; it stays open.
        token_counter: Counts the tokens of a text. Default: the counter of the index's settings, which is its embedder
            or the local one.

    Raises:
        QueryValidationError: The query is empty or no text.
        FilterError: The filter is not well formed, or the store lacks one of its operators.
        InvalidParameterError: An argument is not of its kind, two different chunks have the same id, or both an index
            and chunks were given.
        IndexNotFoundError: There is no configured index.
        ConfigurationError: Something needed is not installed or not set, or nothing is there that counts tokens.
        RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
    """
    cfg = _checked_config(cfg)
    condition = _condition(filters)
    chunks = _by_id(all_chunks)
    if chunks and index is not None:
        msg = "retrieve searches either all_chunks or an index; give one of them"
        raise InvalidParameterError(msg)
    async with AsyncExitStack() as stack:
        reranker = await _reranker(llm_config, cfg.rerank, stack)
        degraded: tuple[Degradation, ...] = ()
        around = None
        if chunks:
            normalize(query, LibraryConfig().query)  # before anything is embedded
            around = surroundings_in(chunk for chunk in chunks.values() if matches(condition, chunk_fields(chunk)))
            index, degraded = await _index_of(tuple(around.chunks.values()), stack)
            condition = None
        elif index is None:
            # In a thread, because a model's folder is read then, where one is configured.
            config = load_config(overrides={"reranker.kind": "none"}, environment=os.environ)
            index = await asyncio.to_thread(open_index, config=config)
            stack.push_async_callback(index.aclose)
        count = as_optional(token_counter, TokenCounter, "token_counter") or index.token_counter
        logger.debug("query %r, filters %r", query, filters)
        result = await index.aretrieve(query, condition, top_k=cfg.top_k_dense)
        for hit in result.hits:
            logger.debug("result of %r: %s %.4f %r", query, hit.id, hit.score, hit.chunk.text)
        result = replace(result, degraded=degraded + result.degraded)
        return await _rerank_and_assemble(
            index, result, cfg, reranker=reranker, condition=condition, around=around, count=count
        )


async def _rerank_and_assemble(
    index: Index,
    result: RetrievalResult,
    cfg: RetrievalConfig,
    *,
    reranker: OpenAIReranker | None,
    condition: Filter | None,
    around: Surroundings | None,
    count: TokenCounter,
) -> ContextPack:
    config = index.config
    left = None if config.deadline_seconds is None else config.deadline_seconds - result.latency_ms / 1000
    async with Calls(config.model_copy(update={"deadline_seconds": left, "breaker": _NO_BREAKER})) as calls:
        run = calls.begin()
        primaries = cfg.rerank.return_top_n
        if reranker is not None and result.hits:
            wanted = reranker.config
            primaries = wanted.return_top_n
            text = str(result.metadata["query_normalized"])
            reranked = await reranker.rerank_hits(run.until(RERANK_SHARE), text, result.hits)
            if not reranked.failures:  # what was not scored is named in the ledger, and not shown
                primaries = min(primaries, wanted.max_candidates_to_rerank)
            raise_faults(reranked.failures, strict=config.strict)
            failures = tuple([Degradation(failure.stage, failure.reason) for failure in reranked.failures])
            degraded = result.degraded + failures + reranked.degraded
            result = replace(result, hits=reranked.hits, degraded=degraded, trace=result.trace + run.records)
        pack = await make_context(
            run,
            result,
            cfg.to_context(config.context),
            count,
            primaries=primaries,
            stores={"": index.store} if around is None else {},
            condition=condition,
            strict=config.strict,
            around=around or NOTHING,
        )
        return replace(pack, latency_ms=result.latency_ms + pack.latency_ms)


_NO_BREAKER = BreakerConfig(failures=0)


async def _index_of(chunks: Sequence[Chunk], stack: AsyncExitStack) -> tuple[Index, tuple[Degradation, ...]]:
    """Return chunks as an index in memory, with vectors where the local model is installed; nothing is downloaded.

    It is closed with the stack.
    """
    in_memory = {"store.kind": "memory", "cache.kind": "none"}
    by_words = {**in_memory, "embedder.kind": "none", "search.mode": "lexical"}
    degraded: tuple[Degradation, ...] = ()
    while True:
        index = open_index(config=load_config(overrides=by_words if degraded else in_memory))
        stack.push_async_callback(index.aclose)
        try:
            await index.aadd(chunks)
        except (MissingExtraError, ModelNotFoundError) as error:
            if degraded:
                raise
            degraded = (Degradation("embed", f"the chunks were searched by keyword only: {error}"),)
        else:
            return index, degraded


async def _reranker(llm_config: Model, settings: RerankConfig, stack: AsyncExitStack) -> OpenAIReranker | None:
    given: object = llm_config
    if given is None or isinstance(given, OpenAIReranker):
        return given
    from retrieval_core.adapters.llms.openai import OpenAILLMSettings  # noqa: PLC0415 - as below

    owned: object = None
    if isinstance(given, LLMConfig) and given.kind == "openai":
        given = given.openai
    if isinstance(given, OpenAILLMSettings):
        named = "model" in given.model_fields_set
        owned = _openai_llm(given.model if named else settings.model, given.api_key, given.base_url)
    elif isinstance(given, LLMConfig):
        owned = await asyncio.to_thread(build_llm, given)
        if owned is None:
            return None
    if (close := getattr(owned, "aclose", None)) is not None:
        stack.push_async_callback(close)
    reranker = OpenAIReranker(settings, cast("LLM", given if owned is None else owned))
    stack.push_async_callback(reranker.aclose)
    return reranker


def _openai_llm(model: str, api_key: SecretStr | str | None, base_url: str | None) -> OpenAILLM:
    """Return a language model behind OpenAI's protocol, with the key of the environment where it is OpenAI itself."""
    from retrieval_core.adapters.llms.openai import OpenAILLM  # noqa: PLC0415 - only those who use it pay for it

    # A key for one service is not for another one that only speaks the same protocol.
    text = "" if base_url else os.environ.get("OPENAI_API_KEY", "").strip()
    return OpenAILLM(model, api_key=api_key or (SecretStr(text) if text else None), base_url=base_url)


def _condition(filters: Filters) -> Filter | None:
    """Return the filter that a caller means, with the library's names of fields; an empty one means none."""
    if isinstance(filters, MetadataFilter):
        return filters.as_filter()
    if filters is None or filters == {}:
        return None
    return _renamed(filters if isinstance(filters, Filter) else parse_filter(filters))


def _renamed(condition: Filter) -> Filter:
    match condition:
        case And(filters) | Or(filters):
            return type(condition)(tuple(_renamed(part) for part in filters))
        case Not(inner):
            return Not(_renamed(inner))
        case _:
            return replace(condition, field=ALIASES.get(condition.field, condition.field))


def _best_first(reranked: Sequence[RerankResult]) -> list[RerankResult]:
    best: dict[str, RerankResult] = {}
    for one in sorted(_items("reranked", reranked, RerankResult), key=lambda one: -one.relevance_score):
        best.setdefault(one.chunk_id, one)
    return list(best.values())


def _hit(entry: RerankResult, chunk: Chunk, known: Mapping[str, _Known]) -> Hit:
    score = entry.relevance_score / 100
    first = known[chunk.id].score if chunk.id in known else None
    evidence = Evidence(entry.answerability, entry.key_evidence, entry.key_evidence_is_quoted)
    return Hit(chunk, score, Scores(fused=first, rerank=score, final=score), evidence=evidence)


def _as_result(hit: Hit) -> RerankResult:
    score = round(100 * (hit.scores.rerank or 0.0), 6)  # 0.57 is to be 57 and not 56.99999999999999
    evidence = hit.evidence or Evidence(answers=False, text="", is_quoted=False)
    return RerankResult(hit.id, score, evidence.answers, evidence.text, evidence.is_quoted)


def _absent(name: str, chunks: Mapping[str, Chunk], doc_id: str | None) -> LedgerEntry:
    if name not in chunks:
        return LedgerEntry(name, "", "primary", "dropped", "it is not among the chunks that were given")
    document = chunks[name].document_id
    reason = f"it is of the document {document!r}, and the query is limited to {doc_id!r}"
    return LedgerEntry(name, document, "primary", "dropped", reason)


def _candidates(ranked: Sequence[RerankResult], known: Mapping[str, _Known]) -> tuple[dict[str, Any], ...]:
    """Return what the first stage found, best first; those without a score last, in their order."""
    names = dict.fromkeys((*known, *[one.chunk_id for one in ranked]))
    scores = {name: known[name].score if name in known else None for name in names}
    best_first = sorted(scores, key=lambda name: -float("-inf" if (score := scores[name]) is None else score))
    return tuple({"chunk_id": name, "score": scores[name]} for name in best_first)


def _as_list(value: object) -> object:
    return [value, value] if type(value) is int else [value] if isinstance(value, str) else value


_Page = Annotated[int, Field(strict=True, ge=1)]


class _Known(BaseModel):
    """What a first stage knows of a candidate."""

    title: str | None = None
    source: str | None = None
    score: Annotated[float, Field(strict=True, allow_inf_nan=False)] | None = None
    page: Annotated[tuple[_Page, _Page], BeforeValidator(_as_list)] | None = None
    section_path: Annotated[tuple[str, ...], BeforeValidator(_as_list)] | None = None

    @field_validator("page")
    @classmethod
    def _pages_go_forward(cls, value: tuple[int, int] | None) -> tuple[int, int] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError
        return value


_EXPECTED = {
    "title": "text",
    "source": "text",
    "score": "a finite number",
    "page": "a page number from 1, or the first and the last one",
    "section_path": "a list of headings, outermost first",
}
_METADATA = TypeAdapter(dict[str, _Known])


def _checked_metadata(candidate_metadata: Mapping[str, Mapping[str, Any]] | None) -> dict[str, _Known]:
    """Return what is known of candidates by their id; ``None`` is the same as nothing.

    Raises:
        InvalidParameterError: It is no mapping of ids to mappings, or a field has a value of another kind.
    """
    try:
        return _METADATA.validate_python({} if candidate_metadata is None else candidate_metadata)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
    name, field, *_ = (*map(str, detail["loc"]), "", "")
    value = f"{detail['input']!r:.80}"
    if field in _EXPECTED:
        msg = f"candidate_metadata of {name!r:.80}: {field} must be {_EXPECTED[field]}, got {value}"
    else:
        msg = f"candidate_metadata maps chunk ids to mappings, got {value}"
    raise InvalidParameterError(msg)


def _completed(chunk: Chunk, known: _Known | None) -> Chunk:
    """Return a chunk with what it lacks of title, source, pages and headings as far as that is known."""
    if known is None:
        return chunk
    pages = None if known.page is None else PageSpan(*known.page)
    return replace(
        chunk,
        title=known.title if chunk.title is None else chunk.title,
        source=known.source if chunk.source is None else chunk.source,
        page_span=pages if chunk.page_span is None else chunk.page_span,
        section_path=chunk.section_path or known.section_path or (),
    )


def _checked_config(cfg: RetrievalConfig | None) -> RetrievalConfig:
    given = RetrievalConfig() if cfg is None else cfg
    _check("the settings", given, RetrievalConfig)
    return given


def _by_id(all_chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """Return chunks by id, in their order; one that is given twice is there once."""
    chunks: dict[str, Chunk] = {}
    for chunk in _items("all_chunks", all_chunks, Chunk):
        if chunks.setdefault(chunk.id, chunk) != chunk:
            msg = f"all_chunks holds two different chunks with the id {chunk.id!r:.80}; every chunk needs its own"
            raise InvalidParameterError(msg)
    return chunks


def _items(name: str, given: object, *kinds: type[Any]) -> list[Any]:
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes, Mapping)):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        msg = f"{name} must be a list of {wanted}, got {given!r:.80}"
        raise InvalidParameterError(msg)
    items = list(cast("Iterable[object]", given))
    for item in items:
        _check(f"each of {name}", item, *kinds)
    return items


def _check(name: str, value: object, *kinds: type[Any]) -> None:
    if not isinstance(value, kinds):
        wanted = " or ".join(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
        given = f"{type(value).__module__}.{type(value).__qualname__}"
        msg = f"{name} must be a {wanted}, got a {given}: {value!r:.80}"
        raise InvalidParameterError(msg)
