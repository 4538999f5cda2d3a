"""The postprocessor that keeps nodes within a token budget."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.settings import Settings

from llama_index.postprocessor.retrieval_core._base import Postprocessor, with_text
from retrieval_core.config import ContextConfig
from retrieval_core.errors import checked_count
from retrieval_core.pipeline.context import NOTHING
from retrieval_core.pipeline.stages.assemble import CUT
from retrieval_core.pipeline.stages.budget import assemble
from retrieval_core.pipeline.stages.expand import Item, as_hits
from retrieval_core.ports import TokenCounter, as_plugin
from retrieval_core.types import Chunk

logger = logging.getLogger(__name__)

_JOINED_BY = "\n\n"
"""What LlamaIndex's synthesizers put between the texts of two nodes."""


class TokenBudgetPostprocessor(Postprocessor):
    """Keep the first nodes that fit into a token budget.

    The whole text counts: the nodes, the metadata that language models see, and the separators. Nodes are dropped from
    the last one up. A node that is longer than the whole budget is cut after a sentence and marked by ``[…]``. If no
    sentence of it fits, it is dropped. Order and scores stay.

    A node that is cut is a copy, without the embedding of the whole text. The given nodes are not changed.

    Args:
        max_tokens: The budget, at least 1.
        token_counter: Returns the number of tokens of a text; by default LlamaIndex's ``Settings.tokenizer`` counts.

    Raises:
        InvalidParameterError: ``max_tokens`` is outside its range, or ``token_counter`` cannot be called.
    """

    max_tokens: int
    _count: TokenCounter = PrivateAttr()

    def __init__(
        self,
        max_tokens: int,
        *,
        token_counter: Callable[[str], int] | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager, max_tokens=checked_count(max_tokens, "max_tokens"))
        self._count = checked_counter(token_counter)

    @property
    def _works_with(self) -> str:
        return f"{self.max_tokens} tokens"

    async def _process(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> list[NodeWithScore]:  # noqa: ARG002
        # A tokenizer reads files when it is first used, and takes its time later.
        return await asyncio.to_thread(self._within_budget, nodes)

    def _within_budget(self, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        settings = ContextConfig(
            max_tokens=self.max_tokens,
            min_primaries=1,
            neighbor_same_page=0,
            neighbor_cross_page=0,
            include_parents=False,
            template="{text}",
            delimiter=_JOINED_BY,
        )
        texts = [item.node.get_content(metadata_mode=MetadataMode.LLM) for item in nodes]
        # Places stand for ids, of documents too: nodes of other retrievers may share one.
        chunks = [Chunk(str(place), str(place), text) for place, text in enumerate(texts)]
        assembled = assemble(as_hits(chunks, [0.0] * len(chunks)), NOTHING, settings, self._count)
        kept = {int(item.id): item for item in assembled.items}
        result = [
            _cut(item, kept[place]) if place in kept else item
            for place, item in enumerate(nodes)
            if place in kept or not texts[place].strip()  # without a text it costs nothing
        ]
        left = [item for item in result if item is not None]
        warn_where_nothing_fits(nodes, left, self.max_tokens)
        return left


def warn_where_nothing_fits(nodes: Sequence[NodeWithScore], left: Sequence[NodeWithScore], max_tokens: int) -> None:
    """Log that a budget is too small for anything, which otherwise looks like a search that found nothing."""
    if nodes and not left:
        logger.warning("not one sentence of %d nodes fits into %d tokens, so none is left", len(nodes), max_tokens)


def checked_counter(token_counter: Callable[[str], int] | None) -> TokenCounter:
    """Return what counts the tokens of a text; by default it asks LlamaIndex's tokenizer of that moment.

    Raises:
        InvalidParameterError: It cannot be called.
    """
    if token_counter is None:
        token_counter = lambda text, /: len(Settings.tokenizer(text))  # noqa: E731
    return as_plugin(token_counter, TokenCounter, "token_counter")


def _cut(item: NodeWithScore, kept: Item) -> NodeWithScore | None:
    """Return a node with what is kept of the text that models see; ``None`` where that is nothing of its own text."""
    if not kept.shortened:
        return item
    left = "".join(quote.text for quote in kept.quotes).rstrip()
    own = item.node.get_content(metadata_mode=MetadataMode.NONE)
    # Metadata come first in LlamaIndex's template.
    whole = kept.chunk.text
    head = len(whole) - len(own.strip()) if whole.endswith(own.strip()) else 0
    if not left[head:].strip():
        return None
    cut = with_text(item, left[head:] + CUT)
    if not head:  # what is left holds the metadata already
        cut.node.excluded_llm_metadata_keys = list(cut.node.metadata)
    return cut
