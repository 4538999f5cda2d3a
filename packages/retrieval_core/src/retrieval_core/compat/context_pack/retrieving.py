"""The specification's main function: search, rerank and assemble, over an index or a plain list of chunks."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from retrieval_core.compat.context_pack.assembler import checked_config
from retrieval_core.compat.context_pack.checks import checked_chunks
from retrieval_core.compat.context_pack.reranker import PATIENCE, OpenAIReranker, openai_llm
from retrieval_core.config import LLMConfig, OpenAILLMConfig, load_config
from retrieval_core.config import RetrievalConfig as LibraryConfig
from retrieval_core.errors import InvalidParameterError, MissingExtraError, ModelNotFoundError
from retrieval_core.index.open import build_llm, open_index
from retrieval_core.pipeline.context import NOTHING, make_context
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden
from retrieval_core.pipeline.stages.expand import surroundings_in
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool
from retrieval_core.types import Degradation
from retrieval_core.types.filters import And, Filter, MetadataFilter, Not, Or, chunk_fields, matches
from retrieval_core.types.filters.syntax import parse_filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.compat.context_pack.settings import RerankConfig, RetrievalConfig
    from retrieval_core.index.index import Index
    from retrieval_core.pipeline.stages.expand import Surroundings
    from retrieval_core.ports import LLM, TokenCounter
    from retrieval_core.types import Chunk, ContextPack, RetrievalResult

    Filters: TypeAlias = Filter | MetadataFilter | Mapping[str, Any] | None
    Model: TypeAlias = OpenAILLMConfig | LLMConfig | LLM | OpenAIReranker | None

ALIASES = {"doc_id": "document_id"}
"""Fields that filters may name as the specification does."""
RERANK_SHARE = 0.9
"""The part of the time that is left after the search by which reranking has to be done."""


def retrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] = (),
    llm_config: Model = None,
    *,
    index: Index | None = None,
    token_counter: TokenCounter | None = None,
) -> ContextPack:
    """Return what a language model should be shown to answer a question; the same as :func:`aretrieve`.

    It may be called where an event loop is running, as in a notebook, and then blocks that loop's thread.
    """
    arguments = query, filters, cfg, all_chunks, llm_config
    if isinstance(llm_config, OpenAIReranker):
        return llm_config.sync.run(aretrieve(*arguments, index=index, token_counter=token_counter))
    bridge = SyncBridge(LibraryConfig().deadline_seconds) if index is None else index.pipeline.sync
    try:
        return bridge.run(aretrieve(*arguments, index=index, token_counter=token_counter))
    finally:
        if index is None:
            bridge.close()


async def aretrieve(
    query: str,
    filters: Filters = None,
    cfg: RetrievalConfig | None = None,
    all_chunks: Iterable[Chunk] = (),
    llm_config: Model = None,
    *,
    index: Index | None = None,
    token_counter: TokenCounter | None = None,
) -> ContextPack:
    """Return what a language model should be shown to answer a question: search, rerank, and assemble.

    A list of chunks is searched in memory, by meaning and by words with the local model where the extra ``local`` is
    installed, and else by words alone, which ``degraded`` says. It is embedded anew with each call: for more than some
    hundred chunks fill an index. Chunks that are parents of others are not searched; they come with their children.

    Args:
        query: The question.
        filters: What every passage must pass, neighbours and parents too, typed or as JSON. ``doc_id`` means
            ``document_id``.
        cfg: The defaults where it is not given.
        all_chunks: What is searched. None means the configured index: that of the settings in the environment, as the
            command line has them but for the reranker, opened for this call.
        llm_config: The model that reranks; ``None`` leaves that out. Settings of a model, a model, or an
            :class:`OpenAIReranker`, which remembers its scores from call to call and has its own settings in place of
            those in ``cfg.rerank``. Settings that name no model mean ``cfg.rerank.model``.
        index: An open index to search, in place of ``all_chunks``; it stays open.
        token_counter: Counts the tokens of a text. The one of the index's settings where it is not given; by default
            these mean its embedder, or else the local one.

    Raises:
        QueryValidationError: The query is empty or no text.
        FilterError: The filter is not well formed, or the store lacks one of its operators.
        InvalidParameterError: An argument is not of its kind, two different chunks have the same id, or both an index
            and chunks were given.
        IndexNotFoundError: There is no configured index.
        ConfigurationError: Something needed is not installed or not set, or nothing is there that counts tokens.
        RetrievalError: As :meth:`RetrievalPipeline.aretrieve`.
    """
    cfg = checked_config(cfg)
    condition = _condition(filters)
    chunks = checked_chunks(all_chunks)
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
            config = load_config(overrides={"reranker.enabled": False}, environment=os.environ)
            index = await asyncio.to_thread(open_index, config=config)
            stack.push_async_callback(index.aclose)
        count = token_counter or index.pipeline.token_counter
        result = await index.aretrieve(query, condition, top_k=cfg.top_k_dense)
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
    config = index.pipeline.config
    seconds = None if config.deadline_seconds is None else config.deadline_seconds - result.latency_ms / 1000
    pool = ThreadPool("retrieval-context", threads=2, patience=PATIENCE)
    run = Run(pool, seconds=seconds, guard=Guard(RetryPolicy(**config.retry.model_dump())))
    try:
        primaries = cfg.rerank.return_top_n
        if reranker is not None and result.hits:
            primaries = reranker.config.return_top_n
            text = str(result.metadata["query_normalized"])
            reranked = await reranker.rerank_hits(run.until(RERANK_SHARE), text, result.hits)
            if not reranked.failures:  # what was not scored is named in the ledger, and not shown
                primaries = min(primaries, reranker.config.max_candidates_to_rerank)
            raise_what_must_not_be_hidden(reranked.failures, strict=config.strict)
            failures = tuple(Degradation(failure.stage, failure.reason) for failure in reranked.failures)
            degraded = result.degraded + failures + reranked.degraded
            result = replace(result, hits=reranked.hits, degraded=degraded, trace=result.trace + run.records)
        pack = await make_context(
            run,
            result,
            cfg.as_context(config.context),
            count,
            primaries=primaries,
            store=index.pipeline.store if around is None else None,
            condition=condition,
            strict=config.strict,
            around=around or NOTHING,
        )
        return replace(pack, latency_ms=result.latency_ms + pack.latency_ms)
    finally:
        await asyncio.to_thread(pool.close)


async def _index_of(chunks: Sequence[Chunk], stack: AsyncExitStack) -> tuple[Index, tuple[Degradation, ...]]:
    """Return chunks as an index in memory, with vectors where the local model is installed; nothing is downloaded.

    It is closed with the stack.
    """
    in_memory = {"store.kind": "memory", "cache.enabled": False}
    index = open_index(config=load_config(overrides=in_memory))
    stack.push_async_callback(index.aclose)
    try:
        await index.aadd(chunks)
    except (MissingExtraError, ModelNotFoundError) as error:
        degraded = Degradation("embed", f"the chunks were searched by words alone: {error}")
    else:
        return index, ()
    by_words = {**in_memory, "embedder.kind": "none", "search.mode": "lexical"}
    index = open_index(config=load_config(overrides=by_words))
    stack.push_async_callback(index.aclose)
    await index.aadd(chunks)
    return index, (degraded,)


async def _reranker(llm_config: Model, settings: RerankConfig, stack: AsyncExitStack) -> OpenAIReranker | None:
    """Return what reranks; what is made for it here is closed with the stack."""
    given: object = llm_config
    if given is None or isinstance(given, OpenAIReranker):
        return given
    owned: object = None
    if isinstance(given, LLMConfig) and given.kind == "openai":
        given = given.openai
    if isinstance(given, OpenAILLMConfig):
        named = "model" in given.model_fields_set
        owned = openai_llm(given.model if named else settings.model, given.api_key, given.base_url)
    elif isinstance(given, LLMConfig):
        owned = await asyncio.to_thread(build_llm, given)
        if owned is None:
            return None
    if (close := getattr(owned, "aclose", None)) is not None:
        stack.push_async_callback(close)
    reranker = OpenAIReranker(settings, cast("LLM", given if owned is None else owned))
    stack.push_async_callback(asyncio.to_thread, reranker.close)
    return reranker


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
