"""The postprocessor that leaves out nodes which do not bear on the question."""

from __future__ import annotations

from typing import Any, Unpack, cast

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM as LlamaLLM  # noqa: N811 - the core's port has the name, too
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index.postprocessor.retrieval_core._base import (
    ModelOptions,
    PromptedPostprocessor,
    checked_llm,
    checked_prompt,
    hits_of,
)
from retrieval_core.adapters.relevance_filters.cross_encoder import CrossEncoderRelevanceFilter
from retrieval_core.adapters.relevance_filters.llm import DEFAULT_PROMPT, LLMRelevanceFilter
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.errors import InvalidParameterError
from retrieval_core.pipeline.stages.rerank import keep_relevant
from retrieval_core.ports import LLM, RelevanceFilter, as_plugin


class RelevanceFilterPostprocessor(PromptedPostprocessor):
    """Remove the nodes that are not relevant to the query; the others keep their order and scores.

    Unlike a similarity cutoff, it judges query and node together. Removed nodes are not replaced; if no node is
    relevant, none is left.

    Nodes that can't be judged stay. Then a warning is logged, and LlamaIndex's instrumentation gets a
    :class:`RetrievalDegradedEvent`. A wrong key or a missing package is always raised.

    Args:
        judge: A language model of LlamaIndex or of retrieval-core, which judges each node; or a relevance filter of
            retrieval-core, such as ``CrossEncoderRelevanceFilter(reranker, threshold=…)``. Default: a small local
            cross-encoder (the extra ``local``). Its low threshold rarely loses a relevant node, and removes few nodes
            on the same topic. You close it.
        prompt: Instructions for the language model, in place of the built-in ones. ``get_prompts`` and
            ``update_prompts`` call them ``relevance_prompt``.
        options: ``strict``, ``deadline_seconds`` and ``callback_manager``, as :class:`ModelOptions` says.

    Raises:
        InvalidParameterError: ``judge`` is neither; or the prompt is blank, has variables, or is given without a
            language model.
    """

    _judge: RelevanceFilter | None = PrivateAttr(default=None)
    _llm: LLM | None = PrivateAttr(default=None)

    def __init__(
        self,
        judge: LlamaLLM | LLM | RelevanceFilter | None = None,
        *,
        prompt: BasePromptTemplate | str | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = LocalCrossEncoder() if judge is None else None
        chosen: Any = judge if own is None else CrossEncoderRelevanceFilter(own)
        instructions, llm = None, None
        if isinstance(chosen, LlamaLLM) or hasattr(chosen, "complete"):
            instructions, llm = checked_prompt(DEFAULT_PROMPT if prompt is None else prompt), checked_llm(chosen)
        elif prompt is not None:
            msg = "prompt is for a language model, and judge is none; leave it out"
            raise InvalidParameterError(msg)
        model = as_plugin(chosen, RelevanceFilter, "judge") if llm is None else None
        super().__init__(prompt_name="relevance_prompt", prompt=instructions, **options)
        self._judge, self._llm, self._own = model, llm, own

    @property
    def _works_with(self) -> str:
        return self._relevance_filter.id

    @property
    def _relevance_filter(self) -> RelevanceFilter:
        if self._judge is not None:
            return self._judge
        return LLMRelevanceFilter(cast("LLM", self._llm), prompt=self._instructions)

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        question, hits = self._question(query), hits_of(nodes)
        found = await keep_relevant(self._run(), self._relevance_filter, question, hits)
        self._told(query, found.failures)
        return [nodes[int(hit.id)] for hit in found.hits]
