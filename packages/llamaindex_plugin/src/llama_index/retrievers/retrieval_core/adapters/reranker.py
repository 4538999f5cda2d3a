"""A reranking postprocessor of LlamaIndex as a reranker."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any, TypeAlias

from llama_index.core.postprocessor import LLMRerank
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index.retrievers.retrieval_core.adapters._calls import PartCalls
from llama_index.retrievers.retrieval_core.adapters.retriever import in_order
from llama_index.retrievers.retrieval_core.checks import check_kind
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    _Parse: TypeAlias = Callable[[str, int], tuple[list[int], list[float]]]

_LIMITS = ("top_n", "top_k")
"""Fields in which rerankers of LlamaIndex say how many nodes they give back."""
_MODELS = ("model_name", "model")


class LlamaIndexReranker(Reranker):
    """Scores with a reranking postprocessor of LlamaIndex; a :class:`~retrieval_core.ports.Reranker`.

    Its order counts. Scores that fall in this order are used as they are if they are in [0, 1]; otherwise the logistic
    function maps them to it. If a postprocessor returns no such scores, chunks are scored by rank: 1 for the first,
    falling evenly to more than 0. A chunk that the postprocessor drops scores 0; if it returns one twice, the better
    rank counts.

    Its limit ``top_n`` is set, in a copy, to the number of chunks: the pipeline decides how many stay.

    Args:
        postprocessor: You close it.
        name: The :attr:`id`; needed for two of one class without a model name.
        is_async: Whether its asynchronous method leaves the event loop free. By default the synchronous one is called
            in a thread.

    Raises:
        InvalidParameterError: ``postprocessor`` is no postprocessor of LlamaIndex.
    """

    batch_size = 1000
    """Passages of one call: in effect all, as some rerankers compare passages with each other."""

    def __init__(
        self, postprocessor: BaseNodePostprocessor, *, name: str | None = None, is_async: bool = False
    ) -> None:
        check_kind(postprocessor, "postprocessor", BaseNodePostprocessor, "a reranking postprocessor of LlamaIndex")
        self._postprocessor = postprocessor
        self._id = name or _identity(postprocessor)
        self._calls = PartCalls(postprocessor, is_async=is_async)

    @property
    def id(self) -> str:
        """Names class and model."""
        return self._id

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages in [0, 1].

        Raises:
            MalformedAnswerError: The postprocessor gave nodes that it was not given.
            ServiceError: It failed.
        """
        if not passages:
            return RerankScores(())
        nodes = [
            NodeWithScore(node=TextNode(id_=str(row), text=valid_unicode(text))) for row, text in enumerate(passages)
        ]
        own = _for(self._postprocessor, len(passages))
        given = await self._calls.either(
            own.apostprocess_nodes, own.postprocess_nodes, nodes, QueryBundle(valid_unicode(query))
        )
        best: dict[int, float | None] = {}
        for item in given:
            row = item.node.node_id
            if not (row.isdecimal() and row.isascii() and int(row) < len(passages)):
                msg = f"{self._id} gave a node that it was not given; it does more than to rerank"
                raise MalformedAnswerError(msg, self._id)
            best.setdefault(int(row), item.score)
        scores = dict(zip(best, _scaled(list(best.values())), strict=True))
        return RerankScores(tuple(scores.get(row, 0.0) for row in range(len(passages))))

    async def aclose(self) -> None:
        """Stop the threads; the postprocessor stays open. Closing twice is fine."""
        await self._calls.aclose()


def _for(postprocessor: BaseNodePostprocessor, passages: int) -> BaseNodePostprocessor:
    """Return a postprocessor as one that gives back so many nodes, and passes over what its model made up."""
    limits = [name for name in _LIMITS if name in type(postprocessor).model_fields]
    own: Any = postprocessor.model_copy(update=dict.fromkeys(limits, passages)) if limits else postprocessor
    if isinstance(postprocessor, LLMRerank):
        own._parse_choice_select_answer_fn = _within(own._parse_choice_select_answer_fn)  # noqa: SLF001
    return own


def _within(parse: _Parse) -> _Parse:
    """Return the parser of a model's choices without those that are none: LlamaIndex takes 0 for the last passage."""

    def within(answer: str, passages: int) -> tuple[list[int], list[float]]:
        choices, relevances = parse(answer, passages)
        if relevances and len(relevances) != len(choices):
            msg = f"the model named {len(choices)} passages and gave {len(relevances)} of them a relevance"
            raise MalformedAnswerError(msg, answer=answer)
        kept = [place for place, choice in enumerate(choices) if 1 <= int(choice) <= passages]
        return [choices[place] for place in kept], [relevances[place] for place in kept] if relevances else []

    return within


def _scaled(scores: Sequence[float | None]) -> list[float]:
    """Return the scores of nodes, best first, as numbers in [0, 1]."""
    if (numbers := in_order(scores)) is not None:
        if all(0 <= number <= 1 for number in numbers):
            return numbers
        squashed = [exp(number) / (1 + exp(number)) if number < 0 else 1 / (1 + exp(-number)) for number in numbers]
        if len(set(squashed)) == len(set(numbers)):  # of numbers far from 0 it leaves no difference
            return squashed
    return [1 - place / len(scores) for place in range(len(scores))]


def _identity(postprocessor: BaseNodePostprocessor) -> str:
    model = next((value for name in _MODELS if isinstance(value := getattr(postprocessor, name, None), str)), "")
    language_model = getattr(getattr(postprocessor, "llm", None), "metadata", None)
    named = model or getattr(language_model, "model_name", "")
    return "/".join(filter(None, ("llama-index", type(postprocessor).__name__, str(named))))
