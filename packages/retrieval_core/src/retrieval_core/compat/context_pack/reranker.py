"""The specification's reranker: a language model that scores candidates from 0 to 100 by a rubric."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval_core.adapters.rerankers.llm import LLMReranker
from retrieval_core.compat.context_pack.checks import checked_candidates, checked_llm, is_finite_number
from retrieval_core.compat.context_pack.settings import RerankConfig, openai_key
from retrieval_core.config import QueryConfig, RetryConfig
from retrieval_core.errors import InvalidParameterError, RetrievalError, ServiceError
from retrieval_core.pipeline.cache.reranks import RerankCache
from retrieval_core.pipeline.stages.normalize import normalize
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.run.clock import SystemClock
from retrieval_core.run.retry import RetryPolicy
from retrieval_core.run.runner import Guard, Run
from retrieval_core.run.sync import SyncBridge
from retrieval_core.run.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from pydantic import SecretStr

    from retrieval_core.adapters.llms.openai import OpenAILLM
    from retrieval_core.pipeline.stages.rerank import Reranked
    from retrieval_core.ports import LLM
    from retrieval_core.run.clock import Clock
    from retrieval_core.types import Chunk, Hit

PATIENCE = 5.0
"""How many seconds closing waits for a synchronous model."""
CACHED_CALLS = 1000
"""The most requests whose scores a reranker keeps."""
logger = logging.getLogger("retrieval_core")


@dataclass(frozen=True, slots=True)
class RerankResult:
    """What a reranker says of one candidate.

    Attributes:
        relevance_score: From 0 (unrelated) over 40 (tangential) and 70 (a partial answer) to 100 (answers directly).
        answerability: Whether the candidate holds the answer.
        key_evidence: The words that it was judged by; empty where there are none.
        key_evidence_is_quoted: Whether these words stand in the candidate as they are, but for white space.

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
            msg = f"chunk_id must be text, got {self.chunk_id!r:.80}"
            raise InvalidParameterError(msg)
        score = self.relevance_score
        if not is_finite_number(score) or not 0 <= score <= 100:
            msg = f"relevance_score of {self.chunk_id!r:.80} must be a number from 0 to 100, got {score!r:.40}"
            raise InvalidParameterError(msg)


class OpenAIReranker:
    """Has a language model score candidates; over :class:`~retrieval_core.adapters.rerankers.llm.LLMReranker`.

    Requests that fail in a way that may pass are made again, with waits that grow exponentially. Scores are kept in
    memory by question, candidates' ids and their contents: what was scored before costs no request.

    Args:
        config: Model, numbers and lengths; the defaults where it is not given.
        llm: What is asked in place of OpenAI's model of ``config.model``; it stays the caller's to close.
        api_key: OpenAI's; ``OPENAI_API_KEY`` of the environment where neither it nor ``base_url`` is given.
        base_url: Another server that speaks the same protocol, for instance ``http://localhost:11434/v1``.
        retry: How often, and how patiently, a request is made again.
        deadline_seconds: The time budget of a call; ``None`` for none.
        clock: Measures durations and the deadline; the system's where it is not given.

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
        if not isinstance(self.config, RerankConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
            msg = (
                f"config must be a retrieval_core.compat.context_pack.RerankConfig, got a {type(self.config).__name__}"
            )
            raise InvalidParameterError(msg)
        self.sync = SyncBridge(deadline_seconds)
        self._settings = self.config.as_reranker()
        self._owned = None if llm is not None else openai_llm(self.config.model, api_key, base_url)
        model = checked_llm(llm) if llm is not None else self._owned
        assert model is not None  # noqa: S101 - the one or the other was made
        self._reranker = LLMReranker(
            model,
            batch_size=self._settings.batch_size,
            max_characters=self._settings.max_characters,
            strict_json=self._settings.strict_json,
        )
        self._clock = clock or SystemClock()
        self._guard = Guard(RetryPolicy(**(retry or RetryConfig()).model_dump()))
        self._seconds = deadline_seconds
        self._cache = RerankCache(CACHED_CALLS, self._clock.now)
        self._pool = ThreadPool("retrieval-rerank", threads=4, patience=PATIENCE)

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
            ConfigurationError: Something needed is not installed.
        """
        text = normalize(query, QueryConfig()).text
        hits = checked_candidates(candidates)[: self.config.max_candidates_to_rerank]
        run = Run(self._pool, seconds=self._seconds, clock=self._clock, guard=self._guard)
        reranked = await self.rerank_hits(run, text, hits)
        if reranked.failures:
            error = reranked.failures[-1].error
            if isinstance(error, RetrievalError):
                raise error
            msg = f"the candidates could not be reranked: {reranked.failures[-1].reason}"
            raise ServiceError(msg) from error
        for entry in reranked.degraded:
            logger.warning("%s: %s", entry.stage, entry.reason)
        return [_result(hit) for hit in reranked.hits]

    async def rerank_hits(self, run: Run, query: str, hits: Sequence[Hit]) -> Reranked:
        """Put hits into the model's order, as one stage of a run that has others; what fails leaves them as they are.

        Args:
            run: Makes the calls.
            query: The normalised question.
            hits: Best first.
        """
        return await rerank(run, (self._reranker,), query, hits, self._settings, cache=self._cache)

    async def aclose(self) -> None:
        """Close what it opened, on the running event loop. Closing twice is fine."""
        if self._owned is not None:
            await self._owned.aclose()

    def close(self) -> None:
        """Close what it opened, and stop the background loop of synchronous calls."""
        with ExitStack() as stack:  # whatever fails, the rest is closed too
            stack.callback(self._pool.close)
            stack.callback(self.sync.close)
            if self._owned is not None:
                self.sync.finish(self.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def openai_llm(model: str, api_key: SecretStr | str | None, base_url: str | None) -> OpenAILLM:
    """Return a language model behind OpenAI's protocol, with the key of the environment where it is OpenAI itself."""
    from retrieval_core.adapters.llms.openai import OpenAILLM  # noqa: PLC0415 - only those who use it pay for it

    # A key for one service is not for another one that only speaks the same protocol.
    key = api_key or (None if base_url else openai_key())
    return OpenAILLM(model, api_key=key, base_url=base_url)


def _result(hit: Hit) -> RerankResult:
    score = hit.scores.rerank or 0.0
    evidence = hit.evidence
    return RerankResult(
        hit.id,
        round(100 * score, 6),  # 0.57 is to be 57 and not 56.99999999999999
        answerability=evidence is not None and evidence.answers,
        key_evidence="" if evidence is None else evidence.text,
        key_evidence_is_quoted=evidence is not None and evidence.is_quoted,
    )
