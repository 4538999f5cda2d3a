"""The specification's assembler: from reranked candidates and a plain list of chunks to a context pack."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.token_counters import counter_of_embedder
from retrieval_core.compat.context_pack.checks import checked_chunks, checked_metadata, completed
from retrieval_core.compat.context_pack.reranker import RerankResult
from retrieval_core.compat.context_pack.settings import RetrievalConfig
from retrieval_core.config import QueryConfig
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.context import pack_of
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.expand import as_hits, expand, surroundings_in
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.types import Chunk, Evidence, Hit, LedgerEntry, RetrievalResult, Scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from retrieval_core.ports import TokenCounter
    from retrieval_core.types import ContextPack


def expand_neighbors(chunk: Chunk, all_chunks: Iterable[Chunk], config: RetrievalConfig | None = None) -> list[Chunk]:
    """Return a chunk with those beside it, in the document's order.

    These are the chunks at most ``neighbor_same_page`` positions away on the same page or under the same parent; and
    those at most ``neighbor_cross_page`` positions away on an adjacent page. Chunks that are
    parents of others are none of them.

    Args:
        chunk: Need not be among the others.
        all_chunks: Of whatever documents; their ``chunk_index`` tells where they stand.
        config: The defaults where it is not given.

    Raises:
        InvalidParameterError: An argument is not of its kind, or two different chunks have the same id.
    """
    settings = checked_config(config).as_context().model_copy(update={"include_parents": False})
    if not isinstance(chunk, Chunk):  # pyright: ignore[reportUnnecessaryIsInstance]
        msg = f"chunk must be a retrieval_core.Chunk, got {type(chunk).__name__}: {chunk!r:.80}"
        raise InvalidParameterError(msg)
    items = expand(as_hits((chunk,), (1.0,)), surroundings_in(checked_chunks(all_chunks).values()), settings)
    return sorted((item.chunk for item in items), key=lambda found: (found.chunk_index, found.id))


class DefaultContextAssembler:
    """Makes a context pack of candidates that were reranked; it needs no store.

    Args:
        token_counter: Counts the tokens of a text; the local embedder's tokenizer where it is not given.
    """

    def __init__(self, token_counter: TokenCounter | None = None) -> None:
        self._token_counter = token_counter

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
            reranked: What the candidates were given; the order among equal scores stays. The ``rerank.return_top_n``
                best that are among the chunks become primaries. Of a candidate that is there twice, the better counts.
            cfg: The defaults where it is not given.
            doc_id: The only document that passages may come from, neighbours too; ``None`` for any.
            candidate_metadata: What the first stage knows of candidates, by chunk id. ``score`` is its score, and goes
                to ``trace["pinecone_candidates"]``. ``title``, ``source``, ``page`` (a number, or the first and the
                last one) and ``section_path`` stand in where a chunk has none. Everything else is passed over.
            all_chunks: Where the texts come from; a chunk whose id is another one's ``parent_id`` is its parent.

        Raises:
            QueryValidationError: The query is empty or no text.
            InvalidParameterError: An argument is not of its kind, or two different chunks have the same id.
            ConfigurationError: Nothing is there that counts tokens.
        """
        started = time.perf_counter()
        normalize(query, QueryConfig())  # raises where it is no question
        cfg = checked_config(cfg)
        settings = cfg.as_context()
        metadata = checked_metadata(candidate_metadata)
        ranked = _best_first(reranked)
        chunks = {name: completed(chunk, metadata.get(name, {})) for name, chunk in checked_chunks(all_chunks).items()}
        allowed = {name: chunk for name, chunk in chunks.items() if doc_id is None or chunk.document_id == doc_id}
        hits = tuple(_hit(entry, allowed[entry.chunk_id], metadata) for entry in ranked if entry.chunk_id in allowed)
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
        absent = tuple(
            _absent(entry.chunk_id, chunks.get(entry.chunk_id), doc_id)
            for entry in ranked
            if entry.chunk_id not in allowed
        )
        trace = {
            **pack.trace,
            "pinecone_candidates": _candidates(ranked, metadata),
            "rerank_results": tuple(_as_mapping(entry) for entry in ranked),
        }
        return replace(pack, ledger=pack.ledger + absent, trace=trace)


def checked_config(cfg: RetrievalConfig | None) -> RetrievalConfig:
    """Return settings, the defaults where none are given.

    Raises:
        InvalidParameterError: They are of another kind, such as those of the whole library, which share the name.
    """
    given = RetrievalConfig() if cfg is None else cfg
    if not isinstance(given, RetrievalConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        msg = f"the settings must be a retrieval_core.compat.context_pack.RetrievalConfig, got a {kind}"
        raise InvalidParameterError(msg)
    return given


def _best_first(reranked: Sequence[RerankResult]) -> list[RerankResult]:
    """Return results by descending score, of each candidate the best."""
    given: object = reranked
    if not isinstance(given, (list, tuple)):
        msg = f"reranked must be a list of RerankResult, got {type(given).__name__}: {given!r:.80}"
        raise InvalidParameterError(msg)
    for entry in cast("Sequence[object]", given):
        if not isinstance(entry, RerankResult):
            msg = f"reranked must hold RerankResult objects, got {type(entry).__name__}: {entry!r:.80}"
            raise InvalidParameterError(msg)
    best: dict[str, RerankResult] = {}
    for entry in sorted(reranked, key=lambda entry: -entry.relevance_score):
        best.setdefault(entry.chunk_id, entry)
    return list(best.values())


def _hit(entry: RerankResult, chunk: Chunk, metadata: Mapping[str, Mapping[str, Any]]) -> Hit:
    score = entry.relevance_score / 100
    scores = Scores(fused=metadata.get(chunk.id, {}).get("score"), rerank=score, final=score)
    evidence = Evidence(entry.answerability, entry.key_evidence, entry.key_evidence_is_quoted)
    return Hit(chunk, score, scores, evidence=evidence)


def _absent(name: str, chunk: Chunk | None, doc_id: str | None) -> LedgerEntry:
    if chunk is None:
        return LedgerEntry(name, "", "primary", "dropped", "it is not among the chunks that were given")
    reason = f"it is of the document {chunk.document_id!r}, and only {doc_id!r} was asked for"
    return LedgerEntry(name, chunk.document_id, "primary", "dropped", reason)


def _candidates(
    ranked: Sequence[RerankResult], metadata: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str | float | None], ...]:
    """Return what the first stage found, best first; those without a score last, in their order."""
    scores = dict.fromkeys(metadata) | dict.fromkeys(entry.chunk_id for entry in ranked)
    scores |= {name: fields.get("score") for name, fields in metadata.items()}
    known = sorted((name for name, score in scores.items() if score is not None), key=lambda name: -(scores[name] or 0))
    unknown = [name for name, score in scores.items() if score is None]
    return tuple({"chunk_id": name, "score": scores[name]} for name in (*known, *unknown))


def _as_mapping(entry: RerankResult) -> dict[str, str | float | bool]:
    return {
        "chunk_id": entry.chunk_id,
        "relevance_score": entry.relevance_score,
        "answerability": entry.answerability,
        "key_evidence": entry.key_evidence,
        "key_evidence_is_quoted": entry.key_evidence_is_quoted,
    }
