"""Postprocessors that put nodes into the order of a model which reads question and passage together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM as LlamaLLM  # noqa: N811 - the core's port has the name, too
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings

from llama_index.postprocessor.retrieval_core._base import (
    ModelOptions,
    ModelPostprocessor,
    PromptedPostprocessor,
    checked_llm,
    checked_prompt,
    hits_of,
    with_score,
)
from llama_index.retrievers.retrieval_core.checks import checked_share
from retrieval_core.adapters.rerankers.llm import DEFAULT_PROMPT, LLMReranker
from retrieval_core.adapters.rerankers.local import ExcerptReranker, LocalCrossEncoder
from retrieval_core.config import RerankerConfig
from retrieval_core.errors import InvalidParameterError, checked_count
from retrieval_core.pipeline.lifecycle import reranker_chain
from retrieval_core.pipeline.stages.rerank import rerank
from retrieval_core.ports import LLM, Reranker
from retrieval_core.text.analysis import Analyzer
from retrieval_core.types import Degradation, Hit

MOST = 1000
"""The most nodes that are scored."""


class _Reranking(ModelPostprocessor):
    """Orders nodes by a chain of rerankers."""

    top_n: int = 5
    weight: float = 1.0

    def __init__(self, *, top_n: int, weight: float, **fields: Any) -> None:
        super().__init__(top_n=checked_count(top_n, "top_n"), weight=checked_share(weight, "weight"), **fields)

    async def _reranked(
        self, chain: Sequence[Reranker], nodes: list[NodeWithScore], query: QueryBundle | None
    ) -> list[NodeWithScore]:
        question = self._question(query)
        settings = RerankerConfig(candidates=MOST, weight=self.weight)
        reranked = await rerank(self._run(), chain, question, hits_of(nodes), settings)
        judged = [hit for hit in reranked.hits if hit.scores.rerank is not None]
        if not judged:
            self._told(query, reranked.failures)
            return nodes[: self.top_n]
        # A reranker that finds evidence has some for every passage that it judged; the others have a score of 0.
        finds = any(hit.evidence is not None for hit in judged)
        skipped = {hit.id for hit in judged if finds and hit.evidence is None and not hit.scores.rerank}
        skipped.update(hit.id for hit in reranked.hits if hit.scores.rerank is None)
        degraded = list(reranked.degraded)
        if skipped:
            reason = f"{len(skipped)} of {len(nodes)} nodes were not judged, and come behind the others without a score"
            degraded.append(Degradation("rerank", reason))
        self._told(query, reranked.failures, degraded)
        result = [with_score(nodes[int(hit.id)], self._score(hit)) for hit in judged if hit.id not in skipped]
        result += (with_score(nodes[place], None) for place in sorted(map(int, skipped)))
        return result[: self.top_n]

    def _score(self, hit: Hit) -> float | None:
        # Where a reranker gives all the same score, the stage keeps the first stage's scores with its order.
        return hit.scores.rerank if self.weight == 1 else hit.score


class RerankPostprocessor(_Reranking):
    """Rerank nodes with a cross-encoder, or with any other reranker of retrieval-core.

    Default: a small model that runs in this process, off the event loop
    (:class:`~retrieval_core.adapters.rerankers.local.LocalCrossEncoder`, the extra ``local``). It reads the most
    relevant sentences of a long text, which takes about half of the time. For a service, pass
    ``CohereReranker(api_key=…)`` of :mod:`retrieval_core.adapters.rerankers.cohere`.

    A reranker reads the text that LlamaIndex would embed; for a chunk of retrieval-core, its title, headings and text.
    The result is new :class:`~llama_index.core.schema.NodeWithScore`; the given nodes are not changed. Equal scores
    keep the given order.

    If the reranker fails, you get the first ``top_n`` nodes unchanged. Then a warning is logged, and LlamaIndex's
    instrumentation gets a :class:`RetrievalDegradedEvent`. A wrong key or a missing package is always raised.

    Args:
        reranker: One, or several in the order in which they are tried until one answers. You close them.
        top_n: The most nodes, at least 1.
        weight: In [0, 1]. With 1, the score is that of the reranker, in [0, 1]. With less, its ranks are blended with
            the nodes' scores, as the pipeline does with 0.3; the scores then have no fixed range. If the nodes have no
            scores, their order is blended.
        options: ``strict``, ``deadline_seconds`` and ``callback_manager``, as :class:`ModelOptions` says.

    Raises:
        InvalidParameterError: ``reranker`` is not a reranker, or a number is outside its range.
    """

    _chain: tuple[Reranker, ...] = PrivateAttr()

    def __init__(
        self,
        reranker: Reranker | Sequence[Reranker] | None = None,
        *,
        top_n: int = 5,
        weight: float = 1.0,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = LocalCrossEncoder() if reranker is None else None
        if not (chain := reranker_chain(reranker if own is None else ExcerptReranker(own, Analyzer()))):
            msg = "there is no reranker in the sequence; leave it out for the local cross-encoder"
            raise InvalidParameterError(msg)
        super().__init__(top_n=top_n, weight=weight, **options)
        self._chain = chain
        self._own = own

    @property
    def _works_with(self) -> str:
        return ", ".join(reranker.id for reranker in self._chain)

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        return await self._reranked(self._chain, nodes, query)


class LLMRerankPostprocessor(_Reranking, PromptedPostprocessor):
    """Rerank nodes with a language model that grades each one on a rubric, with evidence.

    The model gets each node as data and grades it from 0 to 100; the score is a hundredth of that. Its mistakes lose no
    node: grades of unknown nodes are ignored, and of two grades for one node the first counts. Nodes without a grade
    come last, in the given order and without a score. If fewer than half are graded, the model is called once more,
    with its answer and the mistakes. See :class:`~retrieval_core.adapters.rerankers.llm.LLMReranker`.

    Texts of nodes, failures and the result are as described in :class:`RerankPostprocessor`.

    Args:
        llm: A language model of LlamaIndex, or one of retrieval-core; by default ``Settings.llm``. It stays the
            caller's.
        top_n: The most nodes, at least 1.
        prompt: Your rubric, only as instructions. ``get_prompts`` and ``update_prompts`` call it
            ``rubric_prompt``.
        choice_batch_size: Nodes that one request grades, at least 1.
        weight: In [0, 1].
        options: ``strict``, ``deadline_seconds`` and ``callback_manager``, as :class:`ModelOptions` says.

    Raises:
        InvalidParameterError: ``llm`` is not a language model, a number is outside its range, or the prompt is blank or
            has variables.
    """

    choice_batch_size: int = 10
    _llm: LLM = PrivateAttr()

    def __init__(
        self,
        llm: LlamaLLM | LLM | None = None,
        *,
        top_n: int = 5,
        prompt: BasePromptTemplate | str = DEFAULT_PROMPT,
        choice_batch_size: int = 10,
        weight: float = 1.0,
        **options: Unpack[ModelOptions],
    ) -> None:
        model = checked_llm(Settings.llm if llm is None else llm)
        super().__init__(
            top_n=top_n,
            weight=weight,
            choice_batch_size=checked_count(choice_batch_size, "choice_batch_size"),
            prompt_name="rubric_prompt",
            prompt=checked_prompt(prompt),
            **options,
        )
        self._llm = model

    @property
    def _works_with(self) -> str:
        return self._llm.id

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        reranker = LLMReranker(self._llm, prompt=self._instructions, batch_size=self.choice_batch_size)
        return await self._reranked((reranker,), nodes, query)
