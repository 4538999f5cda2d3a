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
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from retrieval_core.adapters.registry import build_llm
from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.adapters.token_counters import counter_of_embedder
from retrieval_core.compat.models import adapt_llm
from retrieval_core.config import BreakerConfig, RerankerConfig, RetryConfig, load_config
from retrieval_core.config import ContextConfig as LibraryContext
from retrieval_core.config import RetrievalConfig as LibraryConfig
from retrieval_core.config.base import Settings, problems_of, refusal
from retrieval_core.errors import InvalidParameterError, MissingExtraError, ModelNotFoundError
from retrieval_core.index.index import each_of
from retrieval_core.index.open import open_index
from retrieval_core.pipeline.context import NOTHING, make_context, pack_of
from retrieval_core.pipeline.lifecycle import Calls
from retrieval_core.pipeline.options import condition_of
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
    RetrievalResult,
    Scores,
    format_citation,
)
from retrieval_core.types.documents import wrong_type
from retrieval_core.types.filters import chunk_fields, matches
from retrieval_core.types.filters.syntax import parse_filter, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Self

    from retrieval_core.adapters.llms.openai import OpenAILLMSettings
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline.options import Filters
    from retrieval_core.pipeline.stages.expand import Surroundings
    from retrieval_core.pipeline.stages.state import JudgedHits
    from retrieval_core.ports import LLM
    from retrieval_core.run.clock import Clock
    from retrieval_core.run.runner import Run
    from retrieval_core.types.filters import Filter

__all__ = [
    "ContextPack", "DefaultContextAssembler", "OpenAIReranker", "RerankConfig", "RerankResult", "RetrievalConfig",
    "aretrieve", "expand_neighbors", "format_citation", "retrieve",
]  # fmt: skip
S = TypeVar("S", bound=Settings)
logger = logging.getLogger("retrieval_core")

RERANK_SHARE = 0.9
"""The part of the time after the search by which reranking must be done."""
CACHED_CALLS = 1000
"""The most requests whose scores a reranker caches."""
_NO_BREAKER = BreakerConfig(failures=0)


class RerankConfig(Settings):
    """How a language model scores the candidates."""

    model: str = Field(default="gpt-4o", min_length=1)
    """As the server calls it."""
    max_candidates_to_rerank: int = Field(default=50, ge=1, le=1000)
    """The most candidates that are scored; the others are left out."""
    return_top_n: int = Field(default=15, ge=1, le=1000)
    """The most candidates that a context is made of, before their parents and neighbours."""
    max_text_chars_per_candidate: int = Field(default=1200, ge=4)
    """Characters of each candidate that the model sees."""
    strict_json_output: bool = True
    """Whether requests contain a JSON schema. Set it to false if the server supports none."""


class RetrievalConfig(Settings):
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
        if not isinstance(self.chunk_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong_type(self, "chunk_id", "text")
        if type(self.relevance_score) not in (int, float) or not 0 <= self.relevance_score <= 100:
            raise wrong_type(self, "relevance_score", "a number from 0 to 100")


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
    settings = _checked(config, RetrievalConfig).to_context().model_copy(update={"include_parents": False})
    hits = as_hits(each_of(Chunk, [chunk], "expand_neighbors()"), (1.0,))
    items = expand(hits, surroundings_in(_by_id(all_chunks).values()), settings)
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
            candidate_metadata: Metadata of candidates from the first stage, by chunk ID. ``score`` goes to
                ``trace["pinecone_candidates"]``; other keys are ignored.
            all_chunks: The chunks with their texts. A chunk whose id is another one's ``parent_id`` is its parent.

        Raises:
            QueryValidationError: The query is empty or no text.
            InvalidParameterError: An argument is not of its kind, or two different chunks have the same id.
            ConfigurationError: Nothing is there that counts tokens.
        """
        started = time.perf_counter()
        normalize(query, LibraryConfig().query)  # raises if it is no query
        cfg = _checked(cfg, RetrievalConfig)
        settings, scores = cfg.to_context(), _scores_of(candidate_metadata)
        ranked: dict[str, RerankResult] = {}
        for one in sorted(each_of(RerankResult, reranked, "reranked"), key=lambda one: -one.relevance_score):
            ranked.setdefault(one.chunk_id, one)
        chunks = _by_id(all_chunks)
        allowed = {name: chunk for name, chunk in chunks.items() if doc_id is None or chunk.document_id == doc_id}
        hits = tuple(_hit(one, allowed[name], scores.get(name)) for name, one in ranked.items() if name in allowed)
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
        other, missing = f"the query is limited to {doc_id!r}", "it is not among the chunks that were given"
        dropped = [
            LedgerEntry(name, "", "primary", "dropped", other if name in chunks else missing)
            for name in ranked
            if name not in allowed
        ]
        found = [(name, scores.get(name)) for name in dict.fromkeys((*scores, *ranked))]
        found.sort(key=lambda one: -float("-inf" if one[1] is None else one[1]))
        trace = {
            **pack.trace,
            "pinecone_candidates": [{"chunk_id": name, "score": score} for name, score in found],
            "rerank_results": [asdict(one) for one in ranked.values()],
        }
        return replace(pack, ledger=(*pack.ledger, *dropped), trace=trace)


class OpenAIReranker(Calls):
    """Score candidates with a language model, by :class:`~retrieval_core.adapters.rerankers.llm.LLMReranker`.

    Requests are retried after transient failures, with exponential backoff. Scores are cached in memory by query, IDs
    and contents of the candidates.

    Args:
        config: Model, numbers and lengths. Default: those of :class:`RerankConfig`.
        llm: A language model, which you close yourself. Default: OpenAI's ``config.model``, with the key in the
            environment variable ``OPENAI_API_KEY``.
        retry: Number and delays of retries.
        deadline_seconds: Time budget of a call in seconds; ``None`` for none.
        clock: Measures durations and the deadline. Default: the system's clock.

    Raises:
        ConfigurationError: There is neither a model nor a key.
        InvalidParameterError: The settings are of another kind, or the model is none.
    """

    def __init__(
        self,
        config: RerankConfig | None = None,
        llm: LLM | None = None,
        *,
        retry: RetryConfig | None = None,
        deadline_seconds: float | None = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.settings = _checked(config, RerankConfig)
        model = _openai({"model": self.settings.model}) if llm is None else adapt_llm(llm, self.settings.model)
        calls = LibraryConfig(retry=retry or RetryConfig(), breaker=_NO_BREAKER, deadline_seconds=deadline_seconds)
        super().__init__(calls, clock, () if llm is not None else (model,))
        self._candidates = RerankerConfig(kind="llm", candidates=self.settings.max_candidates_to_rerank, weight=1.0)
        self._reranker = LLMReranker(
            model,
            max_characters=self.settings.max_text_chars_per_candidate,
            strict_json=self.settings.strict_json_output,
        )
        self._cache = RerankCache(CACHED_CALLS, (clock or SystemClock()).now)

    def rerank(self, query: str, candidates: Sequence[Chunk | Hit]) -> list[RerankResult]:
        """Score candidates; the same as :meth:`arerank`, from synchronous code."""
        return self.sync.run(self.arerank(query, candidates))

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
            ConfigurationError: A required package is missing.
        """
        text = normalize(query, self.config.query).text
        chunks: dict[str, Chunk] = {}
        for candidate in each_of((Chunk, Hit), candidates, "rerank()"):
            chunk = candidate.chunk if isinstance(candidate, Hit) else candidate
            chunks.setdefault(chunk.id, chunk)
        hits = as_hits(chunks.values(), (1 / rank for rank in range(1, len(chunks) + 1)))
        reranked = await self.rerank_hits(self.begin(), text, hits[: self._candidates.candidates])
        if reranked.failures:
            value_of(reranked.failures[-1])
        for entry in reranked.degraded:
            logger.warning("%s: %s", entry.stage, entry.reason)
        return [_as_result(hit) for hit in reranked.hits]

    async def rerank_hits(self, run: Run, query: str, hits: Sequence[Hit]) -> JudgedHits:
        """Put hits into the model's order, as one stage of a run with others; if it fails, they keep their order."""
        return await rerank(run, (self._reranker,), query, hits, self._candidates, cache=self._cache)


def retrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] | None = (),
    llm_config: OpenAILLMSettings | LLM | OpenAIReranker | None = None,
    *,
    index: Index | None = None,
    token_counter: Callable[[str], int] | None = None,
) -> ContextPack:
    """Return the context for a language model to answer a question; the same as :func:`aretrieve`.

    You can call it while an event loop is running, as in a notebook. It then blocks the thread of that loop.
    """
    work = aretrieve(query, filters, cfg, all_chunks, llm_config, index=index, token_counter=token_counter)
    opened = llm_config if isinstance(llm_config, OpenAIReranker) else index
    if opened is not None:
        return opened.sync.run(work)
    with closing(SyncBridge(LibraryConfig().deadline_seconds)) as bridge:
        return bridge.run(work)


async def aretrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] | None = (),
    llm_config: OpenAILLMSettings | LLM | OpenAIReranker | None = None,
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
        all_chunks: The chunks to search. If there are none, the index configured in the environment is searched,
            without its reranker, and opened for this call.
        llm_config: The model for reranking, or ``None`` for none: settings of a model, a model, or an
            :class:`OpenAIReranker`, which caches its scores from call to call. A reranker has its own settings instead
            of ``cfg.rerank``. Settings without a model mean ``cfg.rerank.model``.
        index: An open index to search instead of ``all_chunks``; it stays open.
        token_counter: Counts the tokens of a text. Default: the counter of the index's settings, which is its embedder
            or the local one.

    Raises:
        QueryValidationError: The query is empty or no text.
        FilterError: The filter is invalid, or the store lacks one of its operators.
        InvalidParameterError: An argument is not of its kind, two different chunks have the same ID, or both an index
            and chunks were given.
        IndexNotFoundError: There is no configured index.
        ConfigurationError: A required package or setting is missing, such as a token counter.
        RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
    """
    cfg = _checked(cfg, RetrievalConfig)
    condition = condition_of(filters)
    if condition is not None:
        condition = parse_filter(_renamed(to_json(condition)))
    chunks = _by_id(all_chunks or ())
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
            config = load_config(overrides={"reranker.kind": "none"}, environment=os.environ)
            index = await asyncio.to_thread(open_index, config=config)  # it may read the folder of a model
            stack.push_async_callback(index.aclose)
        count = as_optional(token_counter, TokenCounter, "token_counter") or index.token_counter
        result = await index.aretrieve(query, condition, top_k=cfg.top_k_dense, syntax=False)
        found = [(hit.id, hit.score, hit.chunk.text) for hit in result.hits]
        logger.debug("query %r, filters %r: %s", query, filters, found)
        result = replace(result, degraded=degraded + result.degraded)
        return await _rerank_and_assemble(
            index, result, cfg, count, reranker=reranker, condition=condition, around=around
        )


async def _rerank_and_assemble(
    index: Index,
    result: RetrievalResult,
    cfg: RetrievalConfig,
    count: TokenCounter,
    *,
    reranker: OpenAIReranker | None,
    condition: Filter | None,
    around: Surroundings | None,
) -> ContextPack:
    config = index.config
    left = None if config.deadline_seconds is None else config.deadline_seconds - result.latency_ms / 1000
    async with Calls(config.model_copy(update={"deadline_seconds": left, "breaker": _NO_BREAKER})) as calls:
        run = calls.begin()
        primaries = cfg.rerank.return_top_n
        if reranker is not None and result.hits:
            wanted = reranker.settings
            primaries = wanted.return_top_n
            text = str(result.metadata["query_normalized"])
            reranked = await reranker.rerank_hits(run.until(RERANK_SHARE), text, result.hits)
            raise_faults(reranked.failures, strict=config.strict)
            if not reranked.failures:  # chunks that were not scored are named in the ledger, and not shown
                primaries = min(primaries, wanted.max_candidates_to_rerank)
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


async def _index_of(chunks: Sequence[Chunk], stack: AsyncExitStack) -> tuple[Index, tuple[Degradation, ...]]:
    """Return chunks as an index in memory, with vectors if the local model is installed; nothing is downloaded.

    It is closed with the stack.
    """

    async def made(**settings: str) -> Index:
        index = open_index(config=load_config(overrides={"store.kind": "memory", "cache.kind": "none", **settings}))
        stack.push_async_callback(index.aclose)
        await index.aadd(chunks)
        return index

    try:
        return await made(), ()
    except (MissingExtraError, ModelNotFoundError) as error:
        degraded = Degradation("embed", f"the chunks were searched by keyword only: {error}")
    return await made(**{"embedder.kind": "none", "search.mode": "lexical"}), (degraded,)


async def _reranker(
    llm_config: OpenAILLMSettings | LLM | OpenAIReranker | None, settings: RerankConfig, stack: AsyncExitStack
) -> OpenAIReranker | None:
    if llm_config is None or isinstance(llm_config, OpenAIReranker):
        return llm_config
    from retrieval_core.adapters.llms.openai import OpenAILLMSettings  # noqa: PLC0415 - not everybody has a model

    if isinstance(llm_config, OpenAILLMSettings):
        llm_config = _openai({"model": settings.model, **llm_config.model_dump(exclude_unset=True)})
        stack.push_async_callback(cast("Any", llm_config).aclose)
    reranker = OpenAIReranker(settings, llm_config)
    stack.push_async_callback(reranker.aclose)
    return reranker


def _openai(settings: Mapping[str, Any]) -> LLM:
    """Return a language model of OpenAI, or of a server with the same API; the key may be in the environment."""
    overrides = {"llm": {"kind": "openai", "openai": settings}}
    return cast("LLM", build_llm(load_config(overrides=overrides, environment=os.environ).llm))


def _renamed(filters: Any) -> Any:
    """Return a filter as JSON with the library's name for the ID of a document."""
    if isinstance(filters, dict):
        fields = cast("dict[str, Any]", filters)
        return {"document_id" if name == "doc_id" else name: _renamed(value) for name, value in fields.items()}
    return [_renamed(part) for part in cast("list[Any]", filters)] if isinstance(filters, list) else filters


class _Candidate(BaseModel):
    """The part of a candidate's metadata that is used."""

    score: float | None = Field(default=None, strict=True, allow_inf_nan=False)


def _scores_of(candidate_metadata: Mapping[str, Mapping[str, Any]] | None) -> dict[str, float | None]:
    try:
        known = TypeAdapter(dict[str, _Candidate]).validate_python(candidate_metadata or {})
    except ValidationError as error:
        msg = f"candidate_metadata maps chunk ids to mappings: {'; '.join(problems_of(error))}"
        raise InvalidParameterError(msg) from error
    return {name: candidate.score for name, candidate in known.items()}


def _hit(entry: RerankResult, chunk: Chunk, first_score: float | None) -> Hit:
    score = entry.relevance_score / 100
    evidence = Evidence(entry.answerability, entry.key_evidence, entry.key_evidence_is_quoted)
    return Hit(chunk, score, Scores(fused=first_score, rerank=score, final=score), evidence=evidence)


def _as_result(hit: Hit) -> RerankResult:
    score = round(100 * (hit.scores.rerank or 0.0), 6)  # 57, and not 56.99999999999999
    evidence = hit.evidence or Evidence(answers=False, text="", is_quoted=False)
    return RerankResult(hit.id, score, evidence.answers, evidence.text, evidence.is_quoted)


def _by_id(all_chunks: Iterable[Chunk]) -> dict[str, Chunk]:
    """Return chunks by ID, in their order; one that is given twice is there once."""
    chunks: dict[str, Chunk] = {}
    for chunk in each_of(Chunk, all_chunks, "all_chunks"):
        if chunks.setdefault(chunk.id, chunk) != chunk:
            msg = f"all_chunks has two different chunks with the id {chunk.id!r:.80}; every chunk needs its own"
            raise InvalidParameterError(msg)
    return chunks


def _checked(given: S | None, kind: type[S]) -> S:
    if given is None:
        return kind()
    if not isinstance(given, kind):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"the settings must be a {kind.__module__}.{kind.__qualname__}, got a {type(given)}: {given!r:.80}"
        raise InvalidParameterError(msg)
    return given
