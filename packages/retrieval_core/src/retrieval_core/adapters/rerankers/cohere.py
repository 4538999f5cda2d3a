"""The reranker for Cohere, or for another server that speaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.adapters.vendors.cohere import SERVICE, CohereConnection
from retrieval_core.config.base import AdapterSettings, Address
from retrieval_core.errors import MalformedAnswerError
from retrieval_core.ports import Reranker, RerankScores
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cohere import V2RerankResponse


# The API reference of "Rerank" (v2) recommends against more documents in a request, and takes 10,000 at most.
_MOST_DOCUMENTS = 1000
# Rounding errors of single precision at the ends of the range.
_TOLERANCE = 1e-6


class CohereRerankerSettings(AdapterSettings):
    """A reranking model of Cohere."""

    required: ClassVar[dict[str, str]] = {"api_key": "base_url"}

    model: str = "rerank-v3.5"
    """Name of the model, as the server calls it."""
    base_url: Address = None
    """Address of another server with the same API."""
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "CO_API_KEY"))
    """API key. Default: the environment variable ``CO_API_KEY``."""


class CohereReranker(LoadsPackage, Reranker):
    """Scores over HTTP; a :class:`~retrieval_core.ports.Reranker`.

    Scores are the service's own, in [0, 1]. They order the passages of one question; twice the score does not mean
    twice as relevant (API reference of "Rerank"). Of a long passage the service reads the first 4,096 tokens.

    A blank passage is not sent, and scores 0; so do all for a blank question.

    Args:
        model: As the server calls it.
        api_key: Not needed where ``base_url`` leads to a server that wants none.
        base_url: Where the path ``/v2/rerank`` begins, for instance ``http://localhost:8000``.

    Raises:
        ConfigurationError: There is neither key nor base URL, or one of them cannot be used.
    """

    package: ClassVar[str] = "cohere"
    Settings = CohereRerankerSettings

    def __init__(
        self, *, model: str = "rerank-v3.5", api_key: SecretStr | str | None = None, base_url: str | None = None
    ) -> None:
        self._model = model
        self._connection = CohereConnection("Reranking with Cohere's protocol", api_key, base_url)

    @property
    def id(self) -> str:
        """Names the model, and the server where it is not Cohere."""
        return f"cohere/{self._model}{self._connection.suffix}"

    @property
    def batch_size(self) -> int:
        """Passages of one request."""
        return _MOST_DOCUMENTS

    async def _score(self, query: str, passages: Sequence[str]) -> RerankScores:
        """Score passages, each by itself, in [0, 1].

        Raises:
            MissingExtraError: ``cohere`` is not installed.
            MalformedAnswerError: The answer has not exactly one score in [0, 1] for each passage.
            ServiceError: The service failed; its subclasses say how.
        """
        rows = [row for row, passage in enumerate(passages) if passage.strip()] if query.strip() else []
        scores = [0.0] * len(passages)
        if rows:
            for row, score in zip(rows, await self._ask(query, [passages[row] for row in rows]), strict=True):
                scores[row] = score
        return RerankScores(tuple(scores))

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        await self._connection.aclose()

    async def _ask(self, query: str, passages: Sequence[str]) -> list[float]:
        client = (await self._connection.client()).sdk
        with self._connection.mapped_errors():
            answer = await client.rerank(
                model=self._model,
                query=valid_unicode(query),
                documents=[valid_unicode(passage) for passage in passages],
                request_options={"max_retries": 0},
            )
        return _in_order(answer, len(passages), self.id)


def _in_order(answer: V2RerankResponse, count: int, where: str) -> list[float]:
    """Return the scores of an answer, which the SDK does not validate, in the order of the passages."""
    try:
        scores = {_index(item.index): _checked(item.relevance_score) for item in answer.results}
        given = len(answer.results)
    except (AttributeError, TypeError, ValueError) as error:
        msg = f"{where} answered with something that is no list of scores in [0, 1]"
        raise MalformedAnswerError(msg, SERVICE) from error
    if given != count or sorted(scores) != list(range(count)):
        known = sum(0 <= index < count for index in scores)
        msg = f"{where} answered with {given} scores to {count} passages, {known} of which it named"
        raise MalformedAnswerError(msg, SERVICE)
    return [scores[index] for index in range(count)]


def _index(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _checked(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    if not -_TOLERANCE <= value <= 1 + _TOLERANCE:  # also where it is not a number
        raise ValueError(value)
    return min(1.0, max(0.0, float(value)))
