"""The postprocessor that leaves out sentences which do not bear on the question."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index.postprocessor.retrieval_core._base import (
    ModelOptions,
    ModelPostprocessor,
    hits_of,
    with_text,
)
from retrieval_core.adapters.pruners.threshold import CrossEncoderPruner
from retrieval_core.adapters.rerankers.local import LocalCrossEncoder
from retrieval_core.pipeline.stages.format import prune, shown_text
from retrieval_core.ports import Pruner, as_plugin
from retrieval_core.types import Hit


class SentencePruningPostprocessor(ModelPostprocessor):
    """Remove the sentences of each node that are not relevant to the query; the others stay word for word.

    Nodes keep their order, scores and metadata. Each node keeps at least its best sentence; to drop whole nodes, use
    :class:`RelevanceFilterPostprocessor`. A line ``[…]`` marks sentences that were removed inside of a node.

    A node that loses sentences is a copy, without the embedding of the whole text. It has ``start_char_idx`` and
    ``end_char_idx`` only if the remaining sentences are contiguous. The given nodes are not changed.

    If the model fails, the nodes stay whole and a warning is logged. LlamaIndex's instrumentation gets a
    :class:`RetrievalDegradedEvent`. A missing package is always raised.

    Args:
        pruner: A pruner of retrieval-core, for instance ``EmbedderPruner(embedder, threshold=…)`` of
            :mod:`retrieval_core.adapters.pruners.threshold`; by default the local cross-encoder's scores of single
            sentences (the extra ``local``). It stays the caller's.
        options: ``strict``, ``deadline_seconds`` and ``callback_manager``, as :class:`ModelOptions` says.

    Raises:
        InvalidParameterError: ``pruner`` is not a pruner, or the deadline is outside its range.
    """

    _pruner: Pruner = PrivateAttr()

    def __init__(self, pruner: Pruner | None = None, **options: Unpack[ModelOptions]) -> None:
        own = None
        if pruner is None:
            own = LocalCrossEncoder()
            pruner = CrossEncoderPruner(own)
        super().__init__(**options)
        self._pruner = as_plugin(pruner, Pruner)
        self._own = own

    @property
    def _works_with(self) -> str:
        return self._pruner.id

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:
        question = self._question(query)
        texts = [item.node.get_content(metadata_mode=MetadataMode.NONE) for item in nodes]
        hits = [
            replace(hit, chunk=replace(hit.chunk, text=text, content_hash=""))
            for hit, text in zip(hits_of(nodes), texts, strict=True)
        ]
        pruned = await prune(self._run(), self._pruner, question, hits)
        self._told(query, pruned.failures)
        return [_shown(item, hit) for item, hit in zip(nodes, pruned.hits, strict=True)]


def _shown(item: NodeWithScore, hit: Hit) -> NodeWithScore:
    if not hit.excerpts:
        return item
    return with_text(item, shown_text(hit), hit.excerpts[0].start if len(hit.excerpts) == 1 else None)
