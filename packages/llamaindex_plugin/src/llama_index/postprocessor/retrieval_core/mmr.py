"""The postprocessor that chooses nodes by maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from llama_index.postprocessor.retrieval_core._base import Postprocessor, with_score
from llama_index.retrievers.retrieval_core.checks import checked_share, one_embed_model
from retrieval_core.errors import ConfigurationError, as_embedding_error, checked_count
from retrieval_core.pipeline.stages.fuse import Ranked
from retrieval_core.pipeline.stages.select import maximal_marginal_relevance
from retrieval_core.ports import Embedder
from retrieval_core.types import Scores
from retrieval_core.types.documents import as_vectors, unit_rows

if TYPE_CHECKING:
    from retrieval_core.types import Matrix


class MMRPostprocessor(Postprocessor):
    """Chooses nodes by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Relevance is the nodes' score, scaled to [0, 1] over the given nodes; a node without a score counts as the lowest,
    and without any scores all are equally relevant. Similarity is the cosine of the nodes' own embeddings if every node
    has one; otherwise all texts are embedded anew, because vectors of different models cannot be compared. The nodes
    are returned in the order they were chosen, with the marginal relevance as score; the given nodes are not changed.

    Nodes of :class:`RetrievalCoreRetriever` come without embeddings: there the setting ``search.search_type = "mmr"``
    does the same on the vectors in the index, and embeds nothing.

    Args:
        embed_model: Embeds the nodes' texts where needed: an embedding model of LlamaIndex, or an embedder of
            retrieval-core such as ``retriever.pipeline.embedder``. You close it.
        top_n: The most nodes, at least 1.
        lambda_mult: In [0, 1]: 1 orders only by relevance, 0 only by difference.
        embedder: The former name of ``embed_model``.

    Raises:
        InvalidParameterError: ``embed_model`` is not an embedder, or ``top_n`` or ``lambda_mult`` is outside its range.
    """

    top_n: int = 5
    lambda_mult: float = 0.7
    _embedder: Embedder | None = PrivateAttr(default=None)

    def __init__(
        self,
        embed_model: BaseEmbedding | Embedder | None = None,
        *,
        top_n: int = 5,
        lambda_mult: float = 0.7,
        embedder: BaseEmbedding | Embedder | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        model = one_embed_model(embed_model, embedder)
        super().__init__(
            callback_manager,
            top_n=checked_count(top_n, "top_n"),
            lambda_mult=checked_share(lambda_mult, "lambda_mult"),
        )
        self._embedder = model

    def __getstate__(self) -> dict[str, Any]:
        if self._embedder is not None:
            # LlamaIndex would silently leave the embedder out.
            msg = "an MMRPostprocessor with an embedder cannot be pickled; make a new one instead"
            raise TypeError(msg)
        return BaseNodePostprocessor.__getstate__(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Self:
        """Return one with the numbers of another; an embedder has to be given by ``embed_model=``."""
        return super(Postprocessor, cls).from_dict(data, **kwargs)

    @property
    def _works_with(self) -> str:
        return "mmr"

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:  # noqa: ARG002
        if not nodes:
            return []
        vectors = _own_vectors(nodes)
        if vectors is None:
            texts = [item.node.get_content(metadata_mode=MetadataMode.EMBED) for item in nodes]
            vectors = await self._embedded(texts)
        # Positions stand for ids: nodes of other retrievers may share one.
        ranked = [Ranked(str(place), Scores(final=score)) for place, score in enumerate(_relevance(nodes))]
        chosen = maximal_marginal_relevance(
            ranked,
            {str(place): vector for place, vector in enumerate(vectors)},
            top_k=self.top_n,
            lambda_mult=self.lambda_mult,
        )
        return [with_score(nodes[int(item.chunk_id)], item.score) for item in chosen]

    async def _embedded(self, texts: list[str]) -> Matrix:
        if self._embedder is None:
            msg = (
                "not every node has an embedding, and MMRPostprocessor has no embedder. Pass one, such as "
                "MMRPostprocessor(embed_model=retriever.pipeline.embedder). Or remove it, and set "
                'search__search_type="mmr" in RetrievalCoreRetriever.from_index_file'
            )
            raise ConfigurationError(msg)
        try:
            return await self._embedder.embed_texts(texts)
        except Exception as error:  # noqa: BLE001 - raised again as an error of embedding
            failure = as_embedding_error(error, "the nodes")
            raise failure from failure.__cause__


def _relevance(nodes: Sequence[NodeWithScore]) -> list[float]:
    """Return the nodes' scores; one that is missing or no number counts as the lowest of the others."""
    scores = [item.score if item.score is not None and isfinite(item.score) else inf for item in nodes]
    lowest = min(scores, default=0.0)
    relevance = [score if isfinite(score) else lowest if isfinite(lowest) else 0.0 for score in scores]
    # It is scaled to its range later, which must be finite for that; between halves of finite numbers it always is.
    too_far = relevance and not isfinite(max(relevance) - min(relevance))
    return [score / 2 for score in relevance] if too_far else relevance


def _own_vectors(nodes: Sequence[NodeWithScore]) -> Matrix | None:
    """Return the embeddings that the nodes have, ``None`` if one lacks it or has another dimension than the rest."""
    own = [item.node.embedding for item in nodes]
    if any(vector is None for vector in own) or len({len(vector or ()) for vector in own}) != 1:
        return None
    return unit_rows(as_vectors(own))
