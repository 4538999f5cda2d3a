"""Search an index for a caller, pack the results for a language model, or answer a question from them."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, WithJsonSchema

from retrieval_core.config.model import named_mode
from retrieval_core.errors import (
    EmbedderMismatchError,
    EmbeddingError,
    InvalidParameterError,
    NotPermittedError,
    SearchError,
    StoreError,
)
from retrieval_core.ports import Message  # noqa: TC001 - pydantic reads annotations
from retrieval_core.ports.transformers import variant_of
from retrieval_core.service.redaction import redact_degradations, redact_records
from retrieval_core.service.served import listening
from retrieval_core.service.service_context import SEVERAL, WHOLE, ServiceModel
from retrieval_core.service.tenancy import (
    answer_for_tenant,
    error_as_shown,
    is_stage,
    narrow,
    pack_for_tenant,
    result_for_tenant,
)
from retrieval_core.types import (
    AnswerDone,
    AnswerFailed,
    Citation,
    Degradation,
    Fallback,
    RetrievalDone,
    StageRecord,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

    from retrieval_core.pipeline.options import AnswerOptions, QueryOptions
    from retrieval_core.pipeline.query_engine import QueryEngine
    from retrieval_core.service.served import ServedIndex
    from retrieval_core.service.service_context import ServiceContext
    from retrieval_core.types import Answer, AnswerEvent, CitationCheck, ContextPack, RetrievalResult

T = TypeVar("T")

WithFallback = Annotated[
    bool, Field(description="Whether to fall back to keyword search if the query can't be embedded")
]
LONGEST_QUERY = 10_000
MOST_INDEXES = 32


MOST_QUERIES = 16
QueryKind = Literal["text", "keywords", "passage"]


class FurtherQuery(ServiceModel):
    """One more text to search for, besides the query."""

    kind: QueryKind
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY)]


_FURTHER_QUERY = {
    "type": "object",
    "properties": {"kind": {"enum": ["text", "keywords", "passage"]}, "text": {"type": "string"}},
    "required": ["kind", "text"],
}
"""The schema, short and in place, for the lists of tools."""


class QueryRequest(ServiceModel):
    """A query to one or several indexes."""

    query: Annotated[str, Field(min_length=1, max_length=LONGEST_QUERY, description="In plain language")]
    queries: Annotated[
        tuple[Annotated[FurtherQuery, WithJsonSchema(_FURTHER_QUERY)], ...] | None,
        Field(
            max_length=MOST_QUERIES,
            description="More queries; all results are fused. passage: as the documents might say it",
        ),
        SEVERAL,
    ] = None
    intent: Annotated[str | None, Field(max_length=1_000, description="Why you ask; only vector search uses it")] = None
    filters: Annotated[
        dict[str, Any] | None,
        Field(description='Filter, such as {"year": {"$gte": 2020}}'),
    ] = None
    index: Annotated[str | None, Field(description="Name of the index. Default: the first one")] = None
    indexes: Annotated[
        tuple[str, ...] | None,
        Field(min_length=1, max_length=MOST_INDEXES, description="Names of several indexes to search as one"),
        SEVERAL,
    ] = None
    top_k: Annotated[int | None, Field(ge=1, le=1_000, description="Most results. Default: as configured"), WHOLE] = (
        None
    )
    mode: Annotated[
        Annotated[Literal["hybrid", "dense", "lexical"], BeforeValidator(named_mode)] | None,
        Field(description="dense: vector search; lexical: keyword search; hybrid: both. Default: as configured"),
    ] = None
    history: Annotated[
        tuple[Message, ...] | None, Field(description="Earlier turns of the conversation, oldest first"), SEVERAL
    ] = None
    score_threshold: Annotated[
        float | None, Field(ge=0, le=1, description="Least cosine similarity of a result. Default: as configured")
    ] = None
    transforms: Annotated[
        tuple[str, ...] | None,
        Field(description="Query transformers, such as keywords. Default: as configured"),
        SEVERAL,
    ] = None


class SearchIndexRequest(QueryRequest):
    """A query to search for."""

    with_trace: Annotated[bool, Field(description="Whether the trace has more than the time of each stage")] = False
    with_fallback: WithFallback = True
    use_cache: Annotated[bool, Field(description="Whether a cached result may be returned")] = True


class ContextRequest(QueryRequest):
    """A query whose results are packed for a language model."""

    max_tokens: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Token budget. Default: as configured"), WHOLE
    ] = None


class AnswerRequest(ContextRequest):
    """A question to answer from the documents."""

    verify: Annotated[
        bool | None, Field(description="Whether to check each sentence against its sources. Default: as configured")
    ] = None
    prompt: Annotated[str | None, Field(description="Instructions for the language model. Default: as configured")] = (
        None
    )


class SourcesRequest(ServiceModel):
    """A request to compare the citations of a context or an answer with the indexes that they are from."""

    sources: tuple[Citation, ...]
    indexes: Annotated[tuple[str, ...] | None, Field(description="Names of the indexes. Default: the first one")] = None


async def search(context: ServiceContext, request: SearchIndexRequest) -> RetrievalResult:
    """Search one index, or several as one.

    Returns:
        The result as far as the caller may see it. Without ``with_trace``, ``trace`` has only the times of the stages.

    Raises:
        NotFoundError: There is no index of that name.
        EmbedderMismatchError: The index has no vectors, or those of another embedder.
        EmbeddingError: The query can't be embedded, and ``with_fallback`` is false.
        RetrievalError: As :meth:`retrieval_core.Index.aretrieve`.
    """
    target = await _target(context, request)
    if not request.with_fallback:
        await target.wait_for_model()

    async def find(engine: QueryEngine, **changed: Any) -> RetrievalResult:
        options: QueryOptions = {**target.options, "use_cache": request.use_cache, **changed}  # pyright: ignore[reportAssignmentType]
        return await engine.aretrieve(request.query, target.filters, **options)

    try:
        result = await target.ask(find)
    except EmbeddingError as error:  # one that does not pass by itself, such as a wrong key
        if not request.with_fallback:
            raise
        result = await target.ask(partial(find, mode="lexical", score_threshold=None))
        result = replace(result, degraded=(Degradation("embed", str(error)), *result.degraded))
    if not request.with_fallback and (failed := [each for each in result.degraded if is_stage(each.stage, "embed")]):
        raise EmbeddingError(failed[0].reason, request.query)
    if context.tenant is not None:
        result = result_for_tenant(result)
    redact = context.redact
    messages = {name: redact(str(text)) for name in ("note", "error") if (text := result.metadata.get(name))}
    return replace(
        result,
        metadata={**result.metadata, **messages} if messages else result.metadata,
        trace=redact_records(result.trace, redact) if request.with_trace else _times(result.trace),
        degraded=redact_degradations(result.degraded, redact),
    )


async def pack_context(context: ServiceContext, request: ContextRequest) -> ContextPack:
    """Search, and pack the results into one text within a token budget.

    Returns:
        The pack as far as the caller may see it.

    Raises:
        NotFoundError: There is no index of that name.
        EmbedderMismatchError: The index has no vectors, or those of another embedder.
        RetrievalError: As :meth:`retrieval_core.Index.acontext`.
    """
    target = await _target(context, request)

    async def pack(engine: QueryEngine) -> ContextPack:
        return await engine.acontext(request.query, target.filters, max_tokens=request.max_tokens, **target.options)

    return _shown_pack(context, await target.ask(pack))


async def answer(context: ServiceContext, request: AnswerRequest) -> Answer:
    """Answer a question from the documents, with a quote for each sentence.

    Returns:
        The answer as far as the caller may see it.

    Raises:
        NotFoundError: There is no index of that name.
        EmbedderMismatchError: The index has no vectors, or those of another embedder.
        RetrievalError: As :meth:`retrieval_core.Index.aanswer`.
    """
    target = await _target(context, request)

    async def write(engine: QueryEngine) -> Answer:
        return await engine.aanswer(request.query, target.filters, **_options(target, request))

    return _shown_answer(context, await target.ask(write))


async def answer_events(context: ServiceContext, request: AnswerRequest) -> AsyncGenerator[AnswerEvent]:
    """Answer a question, and yield the events while it is answered.

    Yields:
        Events as far as the caller may see them. The last one has the whole answer.

    Raises:
        NotFoundError: There is no index of that name.
        RetrievalError: As :meth:`retrieval_core.Index.aanswer_stream`.
    """
    target = await _target(context, request)
    stream = target.engine.aanswer_stream(request.query, target.filters, **_options(target, request))
    async with aclosing(stream) as events:
        try:
            async for event in events:
                yield _shown_event(context, event)
        except SearchError as error:
            if (shown := error_as_shown(context, error)) is not error:
                raise shown from None
            raise


async def check_sources(context: ServiceContext, request: SourcesRequest) -> tuple[CitationCheck, ...]:
    """Compare citations with the indexes that they are from.

    Raises:
        NotPermittedError: The caller sees only some of the documents. It can check each quote instead.
        NotFoundError: There is no index of that name.
        RetrievalError: As :meth:`retrieval_core.Index.averify`.
    """
    if context.tenant is not None:
        msg = "a caller who sees only some of the documents can't check citations. Check each quote instead"
        raise NotPermittedError(msg)
    return await (await _engine(context, request.indexes or (None,))).averify(request.sources)


@dataclass(frozen=True, slots=True)
class _Target:
    """The indexes that a query searches, and its options.

    Attributes:
        parts: The indexes; several are searched as one.
        options: Options of the query.
    """

    context: ServiceContext
    engine: QueryEngine
    parts: tuple[ServedIndex, ...]
    filters: Any
    options: QueryOptions

    async def ask(self, call: Callable[[QueryEngine], Awaitable[T]]) -> T:
        with listening(self.context.on_step):
            try:
                return await call(self.engine)
            except EmbedderMismatchError:
                raise
            except SearchError as error:
                if (shown := error_as_shown(self.context, error)) is not error:
                    raise shown from None
                raise
            except StoreError as error:
                for part in self.parts:
                    if await part.has_no_vectors():
                        raise EmbedderMismatchError(None, part.config.embedder.kind, part.name) from error
                raise

    async def wait_for_model(self) -> None:
        for part in self.parts:
            await part.loaded()


async def _target(context: ServiceContext, request: QueryRequest) -> _Target:
    names = tuple(dict.fromkeys(request.indexes or (request.index,)))
    if request.indexes is not None and request.index is not None:
        msg = f"set index or indexes, not both: index is {request.index}"
        raise InvalidParameterError(msg)
    parts = tuple(context.index(name) for name in names)
    opened = [await part.index() for part in parts]
    engine = await _engine(context, names)
    has_vectors = all(index.embedder is not None for index in opened)
    options: QueryOptions = {
        "top_k": request.top_k,
        "mode": request.mode or (None if has_vectors else "lexical"),
        "variants": [variant_of(each.kind, each.text) for each in request.queries or ()] or None,
        "intent": request.intent,
        "history": request.history,
        "score_threshold": request.score_threshold if has_vectors else None,
    }
    if request.transforms is not None:
        options["transforms"] = request.transforms
    if len(parts) > 1:
        options["indexes"] = [part.name for part in parts]
    return _Target(context, engine, parts, narrow(request.filters, context.tenant), options)


async def _engine(context: ServiceContext, names: Sequence[str | None]) -> QueryEngine:
    parts = [context.index(name) for name in names]
    return await (parts[0].index() if len(parts) == 1 else context.indexes.join([part.name for part in parts]))


def _options(target: _Target, request: AnswerRequest) -> AnswerOptions:
    own: AnswerOptions = {"max_tokens": request.max_tokens, "verify": request.verify, **target.options}
    return own if request.prompt is None else {**own, "prompt_override": request.prompt}


def _times(records: Iterable[StageRecord]) -> tuple[StageRecord, ...]:
    return tuple(StageRecord(record.stage, record.milliseconds) for record in records)


def _shown_pack(context: ServiceContext, pack: ContextPack) -> ContextPack:
    shown = pack if context.tenant is None else pack_for_tenant(pack)
    return replace(
        shown,
        note=None if shown.note is None else context.redact(shown.note),
        stages=redact_records(shown.stages, context.redact),
        degraded=redact_degradations(shown.degraded, context.redact),
    )


def _shown_answer(context: ServiceContext, answer: Answer) -> Answer:
    shown = answer if context.tenant is None else answer_for_tenant(answer)
    return replace(
        shown,
        pack=None if shown.pack is None else _shown_pack(context, shown.pack),
        fallbacks=tuple(replace(each, reason=context.redact(each.reason)) for each in shown.fallbacks),
        error=None if shown.error is None else context.redact(shown.error),
        stages=redact_records(shown.stages, context.redact),
        degraded=redact_degradations(shown.degraded, context.redact),
    )


def _shown_event(context: ServiceContext, event: AnswerEvent) -> AnswerEvent:
    match event:
        case RetrievalDone(pack=pack) if pack is not None:
            return replace(event, pack=_shown_pack(context, pack))
        case AnswerDone(answer=answer):
            return replace(event, answer=_shown_answer(context, answer))
        case Fallback() | AnswerFailed():
            return replace(event, reason=context.redact(event.reason))
        case _:
            return event
