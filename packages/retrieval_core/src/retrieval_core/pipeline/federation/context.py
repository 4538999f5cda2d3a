"""Contexts of several indexes: whose passages they are is part of every id, since ids are an index's own.

In a context, and in its citations, ``docs:guide.md`` is the document ``guide.md`` of the index ``docs``.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from retrieval_core.errors import SearchError
from retrieval_core.pipeline.context import check_citations, make_context
from retrieval_core.pipeline.search_loop import raise_what_must_not_be_hidden
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.ports import Fetched
from retrieval_core.run.outcomes import Failed
from retrieval_core.types import CitationCheck, Degradation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline import RetrievalPipeline
    from retrieval_core.ports import TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk, Citation, ContextPack, Hit, RetrievalResult
    from retrieval_core.types.filters import Filter

BORDER = ":"
"""Between an index's name, which never has it, and an id."""


def scoped(name: str, chunk: Chunk) -> Chunk:
    """Return a chunk with ids that say which index it is from."""
    parent = None if chunk.parent_id is None else f"{name}{BORDER}{chunk.parent_id}"
    return replace(
        chunk, id=f"{name}{BORDER}{chunk.id}", document_id=f"{name}{BORDER}{chunk.document_id}", parent_id=parent
    )


async def federated_context(
    run: Run,
    pipelines: Mapping[str, RetrievalPipeline],
    result: RetrievalResult,
    settings: ContextConfig,
    count: TokenCounter,
    *,
    primaries: int,
    condition: Filter | None,
    strict: bool,
) -> ContextPack:
    """Return the hits of a result with what stands around them in their indexes, each of which is asked once.

    Raises:
        RetrievalError: The tokens could not be counted; or, with ``strict``, surroundings could not be read.
    """
    shown = result.hits[:primaries]
    names = tuple(dict.fromkeys(str(hit.source_index) for hit in shown))
    before = len(run.records)
    parts = await asyncio.gather(
        *(
            _around(
                run, (name, pipelines[name]), [hit for hit in shown if hit.source_index == name], settings, condition
            )
            for name in names
        )
    )
    failures = tuple(part for part in parts if isinstance(part, Failed))
    raise_what_must_not_be_hidden(failures if strict else (), strict=strict)
    around = Surroundings({}, {}, {})
    for name, part in zip(names, parts, strict=True):
        if not isinstance(part, Failed):
            around = _joined(around, name, part)
    result = replace(
        result,
        hits=tuple(replace(hit, chunk=scoped(str(hit.source_index), hit.chunk)) for hit in result.hits),
        degraded=result.degraded + tuple(Degradation(failure.stage, failure.reason) for failure in failures),
        trace=result.trace + run.records[before:],
    )
    return await make_context(run, result, settings, count, primaries=primaries, around=around, strict=strict)


async def _around(
    run: Run,
    index: tuple[str, RetrievalPipeline],
    hits: Sequence[Hit],
    settings: ContextConfig,
    condition: Filter | None,
) -> Surroundings | Failed:
    name, pipeline = index
    stage = f"index {name}: surroundings"
    request = surroundings_request(hits, settings, condition)
    if request is None:
        return Surroundings({}, {}, {})
    outcome = await run.until(0.95).on(f"index {name}").call(stage, pipeline.store.fetch, request)
    if isinstance(outcome, Failed):
        return outcome
    if not isinstance(outcome.value, Fetched):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Failed(stage, SearchError(f"the store's answer cannot be used: {outcome.value!r:.80} is no Fetched"))
    return surroundings_of(outcome.value, condition)


def _joined(around: Surroundings, name: str, part: Surroundings) -> Surroundings:
    chunks = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.chunks.values())}
    parents = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.parents.values())}
    texts = {f"{name}{BORDER}{document}": text for document, text in part.texts.items()}
    return Surroundings({**around.chunks, **chunks}, {**around.parents, **parents}, {**around.texts, **texts})


async def check_federated(
    run: Run, pipelines: Mapping[str, RetrievalPipeline], citations: Sequence[Citation]
) -> tuple[CitationCheck, ...]:
    """Compare citations with what their indexes say now, each in one read.

    Raises:
        RetrievalError: An index cannot be read, or not in time.
    """
    own: dict[str, list[int]] = {}
    checks = [CitationCheck(citation, (_no_index(citation, pipelines),)) for citation in citations]
    for place, citation in enumerate(citations):
        if (name := citation.document_id.partition(BORDER)[0]) in pipelines:
            own.setdefault(name, []).append(place)

    async def check(name: str, places: Sequence[int]) -> None:
        asked = [_unscoped(name, citations[place]) for place in places]
        for place, done in zip(places, await check_citations(run, pipelines[name].store, asked), strict=True):
            checks[place] = CitationCheck(citations[place], done.differences)

    await asyncio.gather(*(check(name, places) for name, places in own.items()))
    return tuple(checks)


def _no_index(citation: Citation, pipelines: Mapping[str, RetrievalPipeline]) -> str:
    return f"the document {citation.document_id!r} is of none of the indexes {', '.join(pipelines)}"


def _unscoped(name: str, citation: Citation) -> Citation:
    prefix = f"{name}{BORDER}"
    chunk_ids = tuple(chunk_id.removeprefix(prefix) for chunk_id in citation.chunk_ids)
    return replace(citation, document_id=citation.document_id.removeprefix(prefix), chunk_ids=chunk_ids)
