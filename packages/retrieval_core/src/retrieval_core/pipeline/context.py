"""From a result to a context pack, from citations back to the index, and the documents of an index.

Reads what stands around the hits, assembles it within the token budget, compares citations with their index, and lists
documents page by page. In a context of several indexes, ids begin with the name of their index: ``docs:guide.md`` is
the document ``guide.md`` of the index ``docs``.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from retrieval_core.errors import StoreError, checked_count
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.expand import Surroundings, surroundings_of, surroundings_request
from retrieval_core.pipeline.stages.search import fetch
from retrieval_core.ports import ChunkRange, FetchRequest
from retrieval_core.run.outcomes import Failed, raise_faults, value_of
from retrieval_core.text.prompting import shorten
from retrieval_core.text.quotes import find_quote
from retrieval_core.types import CitationCheck, ContextPack, Degradation, DocumentInfo, LedgerEntry, content_hash

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence

    from retrieval_core.config import ContextConfig
    from retrieval_core.pipeline.stages.budget import Assembled
    from retrieval_core.ports import Fetched, Store, TokenCounter
    from retrieval_core.run.runner import Run
    from retrieval_core.types import Chunk, Citation, Hit, Metadata, RetrievalResult, Span, StageRecord
    from retrieval_core.types.filters import Filter

logger = logging.getLogger("retrieval_core")
NOTHING = Surroundings({}, {}, {})
BORDER = ":"
"""Between an index's name, which never has it, and an id."""
_SHOWN = 60
PAGE = 200
"""Documents read with one request."""


async def make_context(
    run: Run,
    result: RetrievalResult,
    settings: ContextConfig,
    count: TokenCounter,
    *,
    primaries: int,
    stores: Mapping[str, Store],
    condition: Filter | None = None,
    around: Surroundings = NOTHING,
    strict: bool = False,
) -> ContextPack:
    """Return the hits of a result with what stands around them, within the budget.

    Args:
        run: Makes the calls.
        result: Its first ``primaries`` hits are shown, the others are named in the ledger.
        settings: What to put around the hits, and the budget.
        count: Counts the tokens of a text; called in a thread.
        primaries: At least 1.
        stores: What the surroundings are read from, each in one call, by the name of the index; of one index, the name
            is empty. There are none where the surroundings are given.
        condition: What every passage must pass, neighbours too.
        around: What stands around the hits, where no store has to be asked.
        strict: Whether a failure that could be done without is raised instead.

    Raises:
        RetrievalError: The tokens could not be counted; or, with ``strict``, the surroundings could not be read.
    """
    before = len(run.records)
    shown: dict[str, list[Hit]] = {name: [] for name in stores}
    for hit in result.hits[:primaries] if stores else ():
        shown[hit.source_index or ""].append(hit)
    requests = {name: surroundings_request(hits, settings, condition) for name, hits in shown.items()}
    readings = (_surroundings(run, name, stores[name], request, condition) for name, request in requests.items())
    parts = await asyncio.gather(*readings)
    failures = tuple(part for part in parts if isinstance(part, Failed))
    for failure in failures:
        logger.warning("%s: %s", failure.stage, failure.reason)
    raise_faults(failures if strict or "" in stores else (), strict=strict)
    for name, part in zip(shown, parts, strict=True):
        if not isinstance(part, Failed):
            around = scoped_surroundings(name, part, around) if name else part
    scoped_hits = (replace(hit, chunk=scoped(hit.source_index, hit.chunk)) for hit in result.hits if hit.source_index)
    result = replace(result, hits=tuple(scoped_hits) or result.hits)
    hits = result.hits[:primaries]
    # No coroutine function: the runner calls it in a thread.
    in_thread = cast("Callable[..., Awaitable[Assembled]]", assemble)
    assembled = value_of(await run.without_retries().call("assemble", in_thread, hits, around, settings, count))
    return pack_of(
        result,
        assembled,
        shown=len(hits),
        degraded=result.degraded + tuple(Degradation(failure.stage, failure.reason) for failure in failures),
        max_tokens=settings.max_tokens,
        stages=run.records[before:],
        latency_ms=run.elapsed_ms,
    )


async def _surroundings(
    run: Run, name: str, store: Store, request: FetchRequest | None, condition: Filter | None
) -> Surroundings | Failed:
    if request is None:
        return NOTHING
    stage = f"index {name}: surroundings" if name else "surroundings"
    bound, backend = (run.until(0.95), f"index {name}") if name else (run, "store")
    outcome = await fetch(bound, store, request, stage=stage, backend=backend)
    if isinstance(outcome, Failed):
        return outcome
    if not outcome.value.sections:
        return surroundings_of(outcome.value, condition)
    return await asyncio.to_thread(
        surroundings_of, outcome.value, condition
    )  # a section may be as long as its document


def pack_of(
    result: RetrievalResult,
    assembled: Assembled,
    *,
    shown: int,
    degraded: tuple[Degradation, ...],
    max_tokens: int,
    stages: tuple[StageRecord, ...],
    latency_ms: float,
) -> ContextPack:
    """Return what was assembled from a result as a pack; hits beyond those shown are in its ledger too."""
    considered = {entry.id for entry in assembled.ledger}
    reason = f"it is not among the {shown} best chunks"
    beyond = tuple(
        LedgerEntry(hit.id, hit.chunk.document_id, "primary", "dropped", reason)
        for hit in result.hits[shown:]
        if hit.id not in considered
    )
    return ContextPack(
        query=result.query,
        passages=assembled.passages,
        context_pack=assembled.text,
        ledger=assembled.ledger + beyond,
        token_count=assembled.tokens,
        max_tokens=max_tokens,
        trace=_trace(result, assembled),
        stages=result.trace + stages,
        degraded=degraded,
        latency_ms=latency_ms,
        note=_note_of(result, assembled, max_tokens),
        relevance=result.relevance,
    )


def _note_of(result: RetrievalResult, assembled: Assembled, max_tokens: int) -> str | None:
    if not assembled.passages:
        return _why_empty(result, max_tokens)
    return None if result.relevance is None else result.relevance.note


def _why_empty(result: RetrievalResult, max_tokens: int) -> str:
    if result.hits:
        return f"no sentence of the results ({len(result.hits)}) fits into {max_tokens} tokens"
    return str(result.metadata.get("error") or result.metadata.get("note") or "nothing was found")


def _trace(result: RetrievalResult, assembled: Assembled) -> Metadata:
    """Return the facts of a run under the names of the specification; the first is the same for every store."""
    found = sorted(result.hits, key=_before_reranking)
    reranked = [hit for hit in result.hits if hit.scores.rerank is not None]
    return {
        "pinecone_candidates": [{"chunk_id": hit.id, "score": _first_score(hit)} for hit in found],
        "rerank_results": [
            {
                "chunk_id": hit.id,
                "relevance_score": round(100 * (hit.scores.rerank or 0.0), 6),  # not 56.99999999999999
                "answerability": None if hit.evidence is None else hit.evidence.answers,
                "key_evidence": None if hit.evidence is None else hit.evidence.text,
                "key_evidence_is_quoted": None if hit.evidence is None else hit.evidence.is_quoted,
            }
            for hit in reranked
        ],
        "final_token_count": assembled.tokens,
        "expansion_stats": _statistics(assembled.ledger),
    }


def _before_reranking(hit: Hit) -> tuple[float, str]:
    return -_first_score(hit), hit.id


def _first_score(hit: Hit) -> float:
    scores = hit.scores
    return next((score for score in (scores.fused, scores.dense, scores.lexical) if score is not None), hit.score)


def _statistics(ledger: Sequence[LedgerEntry]) -> dict[str, dict[str, int]]:
    statistics = {
        role: {"considered": 0, "kept": 0, "shortened": 0, "dropped": 0}
        for role in ("primary", "parent", "sibling", "cross_page")
    }
    for entry in ledger:
        statistics[entry.role]["considered"] += 1
        statistics[entry.role][entry.outcome] += 1
    return statistics


def with_budget(settings: ContextConfig, max_tokens: int | None) -> ContextConfig:
    """Return settings with another budget, where one is given.

    Raises:
        InvalidParameterError: It is no whole number of at least 1.
    """
    if max_tokens is None:
        return settings
    return settings.model_copy(update={"max_tokens": checked_count(max_tokens, "max_tokens")})


async def check_citations(
    run: Run, stores: Mapping[str, Store], citations: Sequence[Citation]
) -> tuple[CitationCheck, ...]:
    """Compare citations with what their indexes say now, each in one read.

    Raises:
        RetrievalError: An index cannot be read, or not in time.
    """
    own: dict[str, list[int]] = {}
    checks: dict[int, CitationCheck] = {}
    for place, citation in enumerate(citations):
        name = "" if "" in stores else index_of(citation)
        if name in stores:
            own.setdefault(name, []).append(place)
        else:
            problem = f"the document {citation.document_id!r} is of none of the indexes {', '.join(stores)}"
            checks[place] = CitationCheck(citation, (problem,))

    async def check(name: str, places: Sequence[int]) -> None:
        cited = [unscoped(name, citations[place]) if name else citations[place] for place in places]
        backend = f"index {name}" if name else "store"
        outcome = await fetch(run, stores[name], request_to_check(cited), stage="verify", backend=backend)
        fetched = value_of(outcome)
        # To look for a quote that is not where it should be takes a while in a long document.
        checked = await asyncio.to_thread(lambda: [check_citation(citation, fetched) for citation in cited])
        for place, each in zip(places, checked, strict=True):
            checks[place] = replace(each, citation=citations[place])

    await asyncio.gather(*(check(name, places) for name, places in own.items()))
    return tuple(checks[place] for place in range(len(citations)))


def scoped(name: str, chunk: Chunk) -> Chunk:
    """Return a chunk with ids that say which index it is from."""
    parent = None if chunk.parent_id is None else f"{name}{BORDER}{chunk.parent_id}"
    return replace(
        chunk, id=f"{name}{BORDER}{chunk.id}", document_id=f"{name}{BORDER}{chunk.document_id}", parent_id=parent
    )


def scoped_surroundings(name: str, part: Surroundings, others: Surroundings) -> Surroundings:
    """Return the surroundings of an index's hits, with such ids, together with those of other indexes."""
    chunks = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.chunks.values())}
    parents = {chunk.id: chunk for chunk in (scoped(name, chunk) for chunk in part.parents.values())}
    texts = {f"{name}{BORDER}{document}": text for document, text in part.texts.items()}
    return Surroundings({**others.chunks, **chunks}, {**others.parents, **parents}, {**others.texts, **texts})


def index_of(citation: Citation) -> str:
    """Return the name of the index that a citation is from."""
    return citation.document_id.partition(BORDER)[0]


def unscoped(name: str, citation: Citation) -> Citation:
    """Return a citation with the ids that its index knows."""
    prefix = f"{name}{BORDER}"
    chunk_ids = tuple(chunk_id.removeprefix(prefix) for chunk_id in citation.chunk_ids)
    return replace(citation, document_id=citation.document_id.removeprefix(prefix), chunk_ids=chunk_ids)


def request_to_check(citations: Sequence[Citation], condition: Filter | None = None) -> FetchRequest:
    """Return the one request that reads what citations have to be compared with."""
    documents = dict.fromkeys(citation.document_id for citation in citations)
    chunks = dict.fromkeys(name for citation in citations for name in citation.chunk_ids)
    return FetchRequest(chunk_ids=tuple(chunks), document_ids=tuple(documents), filter=condition)


def check_citation(citation: Citation, fetched: Fetched) -> CitationCheck:
    """Compare a citation with what is in the index now.

    What is compared are the quotes, and where they stand: one with a span must stand there in the document's text. One
    without, and any where no such document is kept, must be in the text of its chunks.
    """
    differences = tuple(_differences(citation, fetched))
    if not differences:
        return CitationCheck(citation)
    found = _words_of(citation, fetched)
    return CitationCheck(citation, differences, "not_found" if found is None else "equivalent", found or ())


def _words_of(citation: Citation, fetched: Fetched) -> tuple[str, ...] | None:
    """Return the words of each quote as they are in the index; ``None`` if those of one are not."""
    document = fetched.documents.get(citation.document_id)
    chunks = [chunk.text for chunk in _chunks_of(citation, fetched)]
    texts = ["".join(chunks), *chunks] if document is None else [document.text]
    words: list[str] = []
    for quote in citation.quotes:
        matches = ((text, find_quote(quote.text, text)) for text in texts)
        found = next((match.words_of(text) for text, match in matches if match is not None), None)
        if found is None:
            return None
        words.append(found)
    return tuple(words) or None


def _chunks_of(citation: Citation, fetched: Fetched) -> list[Chunk]:
    found = [fetched.chunks[name] for name in citation.chunk_ids if name in fetched.chunks]
    return [chunk for chunk in found if chunk.document_id == citation.document_id]


def _differences(citation: Citation, fetched: Fetched) -> Iterator[str]:
    if not citation.quotes:
        yield "the citation quotes nothing"
    document = fetched.documents.get(citation.document_id)
    for number, quote in enumerate(citation.quotes, start=1):
        if content_hash(quote.text) != quote.content_hash:
            yield f"quote {number} was changed: its text does not have the hash that the citation gives"
        if not quote.text.strip():
            yield f"quote {number} is empty"
        elif quote.span is not None and document is not None:
            if (difference := _difference(quote.text, quote.span, document.text)) is not None:
                yield f"quote {number}: {difference}"
        elif (difference := _difference_from_chunks(quote.text, citation, fetched)) is not None:
            yield f"quote {number}: {difference}"


def _difference_from_chunks(quoted: str, citation: Citation, fetched: Fetched) -> str | None:
    chunks = _chunks_of(citation, fetched)
    names = ", ".join(citation.chunk_ids)
    if not chunks:
        return f"neither the document {citation.document_id!r} nor a chunk of it is in the index: {names}"
    texts = [chunk.text for chunk in chunks if quoted in chunk.text]
    if any(match is not None and match.verdict == "exact" for match in (find_quote(quoted, text) for text in texts)):
        return None
    if not texts and quoted in "".join(chunk.text for chunk in chunks):
        return None
    return f"{_excerpt(quoted)} is not in the text of {names}"


def _difference(quoted: str, span: Span, text: str) -> str | None:
    start, end = span.start, span.end
    found = text[start:end]
    if 0 <= start <= end and found == quoted:
        return None
    elsewhere = text.find(quoted) if quoted else -1
    if elsewhere >= 0:
        return (
            f"it is now at {elsewhere} to {elsewhere + len(quoted)} of the document, "
            f"and the citation has {start} to {end}"
        )
    if not 0 <= start < end <= len(text):
        return f"the document has {len(text)} characters, and the citation has {start} to {end}"
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(quoted, found, strict=False)))
    return (
        f"from its character {same} on, the citation has {_excerpt(quoted[same:])} and the document "
        f"{_excerpt(found[same:])}"
    )


def _excerpt(text: str) -> str:
    return repr(shorten(text, _SHOWN))


async def list_documents(begin: Callable[[], Run], stores: Mapping[str, Store]) -> AsyncGenerator[DocumentInfo]:
    """Yield the documents of indexes, by index and id.

    Args:
        begin: Begins a run with a new deadline, for one page.
        stores: By the name of the index; the name of a single index is empty.

    Raises:
        StoreError: A store cannot list its documents, or cannot be read.
        ServiceError: A service failed, or did not respond in time.
    """
    for name, store in stores.items():
        ids = await _read_ids(begin(), store)
        for start in range(0, len(ids), PAGE):
            for document in await _read_page(begin(), store, ids[start : start + PAGE]):
                yield replace(document, source_index=name) if name else document


async def _read_ids(run: Run, store: Store) -> Sequence[str]:
    if "document_ids" not in store.capabilities:
        msg = (
            f"{type(store).__name__} cannot list its documents; a custom store needs the method document_ids(), "
            "see retrieval_core.ports.Store"
        )
        raise StoreError(msg)
    outcome = await run.on("store").call("documents", store.document_ids)
    return sorted(value_of(outcome))


async def _read_page(run: Run, store: Store, ids: Sequence[str]) -> list[DocumentInfo]:
    """Return what the first chunks say of their documents.

    Chunks that were added without a document need not know their number, and a document may have no chunks: these are
    looked up by a second request.
    """
    first = await _read_chunks(run, store, FetchRequest(ranges=tuple(ChunkRange(name, 0, 0) for name in ids)))
    unclear = tuple(name for name in ids if not _knows_total(first.get(name, ())))
    documents: Mapping[str, DocumentInfo] = {}
    if unclear:
        request = FetchRequest(ranges=tuple(map(ChunkRange.whole, unclear)))
        first |= await _read_chunks(run, store, request)
        without = tuple(name for name in unclear if not first.get(name))
        if without:
            found = value_of(await fetch(run, store, FetchRequest(document_ids=without))).documents
            documents = {
                each.id: DocumentInfo(each.id, each.title, each.source, 0, each.metadata, each.timestamp)
                for each in found.values()
            }
    listed = (_describe(first[name]) if first.get(name) else documents.get(name) for name in ids)
    return [each for each in listed if each is not None]  # others were removed meanwhile


async def _read_chunks(run: Run, store: Store, request: FetchRequest) -> dict[str, list[Chunk]]:
    chunks: dict[str, list[Chunk]] = {}
    for chunk in value_of(await fetch(run, store, request)).chunks.values():
        chunks.setdefault(chunk.document_id, []).append(chunk)
    return chunks


def _knows_total(first: Sequence[Chunk]) -> bool:
    return len(first) == 1 and (first[0].span is not None or first[0].total_chunks > 1)


def _describe(chunks: Sequence[Chunk]) -> DocumentInfo:
    first = min(chunks, key=lambda chunk: (chunk.chunk_index, chunk.id))
    total = first.total_chunks if _knows_total(chunks) else len(chunks)
    return DocumentInfo(first.document_id, first.title, first.source, total, first.metadata, first.timestamp)
