"""The postprocessor that leaves out nodes which do not bear on the question."""

from __future__ import annotations

from typing import Any, Unpack

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import LLM as LlamaLLM  # noqa: N811 - the core's port has the name, too
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.schema import NodeWithScore

from llama_index.postprocessor.retrieval_core._base import (
    ModelOptions,
    PromptedPostprocessor,
    Request,
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
    _llm: dict[bool, LLM] = PrivateAttr()

    def __init__(
        self,
        judge: LlamaLLM | LLM | RelevanceFilter | None = None,
        *,
        prompt: BasePromptTemplate | str | None = None,
        **options: Unpack[ModelOptions],
    ) -> None:
        own = LocalCrossEncoder() if judge is None else None
        chosen: Any = CrossEncoderRelevanceFilter(own) if own is not None else judge
        instructions, llm = None, dict[bool, "LLM"]()
        if isinstance(chosen, LlamaLLM) or hasattr(chosen, "complete"):
            instructions, llm = checked_prompt(DEFAULT_PROMPT if prompt is None else prompt), checked_llm(chosen)
        elif prompt is not None:
            msg = "prompt is for a language model, and judge is none; leave it out"
            raise InvalidParameterError(msg)
        model = None if llm else as_plugin(chosen, RelevanceFilter, "judge")
        super().__init__(prompt_name="relevance_prompt", prompt=instructions, **options)
        self._judge = model
        self._llm = llm
        self._own = own

    @property
    def _works_with(self) -> str:
        return self._relevance_filter(in_threads=False).id

    def _relevance_filter(self, *, in_threads: bool) -> RelevanceFilter:
        if self._judge is not None:
            return self._judge
        return LLMRelevanceFilter(self._llm[in_threads], prompt=self._instructions)

    async def _process(self, request: Request) -> list[NodeWithScore]:
        relevance_filter = self._relevance_filter(in_threads=request.in_threads)
        question, hits = self._question(request), hits_of(request.nodes)
        found = await keep_relevant(self._run(), relevance_filter, question, hits)
        self._told(request, found.failures)
        return [request.nodes[int(hit.id)] for hit in found.hits]
