"""The embedder for Cohere, or for another server that speaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.adapters.vendors.cohere import SERVICE, CohereConnection
from retrieval_core.config.base import AdapterSettings, Address
from retrieval_core.errors import (
    ConfigurationError,
    DimensionMismatchError,
    EmbeddingError,
    InvalidParameterError,
    MalformedAnswerError,
)
from retrieval_core.ports import Embedder
from retrieval_core.types.escapes import valid_unicode

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from cohere import EmbedByTypeResponse
    from numpy.typing import NDArray

    from retrieval_core.types import Matrix, Vector

_KNOWN: dict[str, tuple[int, ...]] = {
    "embed-v5.0-pro": (2048, 1536, 1024, 768, 512, 256),
    "embed-v5.0-fast": (2048, 1536, 1024, 768, 512, 256),
    "embed-v4.0": (1536, 1024, 512, 256),
    "embed-multilingual-v3.0": (1024,),
    "embed-multilingual-light-v3.0": (384,),
    "embed-english-v3.0": (1024,),
    "embed-english-light-v3.0": (384,),
}
"""By model, the dimensions that it can give, its own first, from the vendor's page on its embed models."""

# The most that the API reference of "Embed" (v2) allows in a request.
_MOST_TEXTS = 96


class CohereEmbedderSettings(AdapterSettings):
    """An embedding model of Cohere."""

    required: ClassVar[dict[str, str]] = {"api_key": "base_url"}

    model: str = "embed-v4.0"
    """Name of the model, as the server calls it."""
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number, if it is known."""
    base_url: Address = None
    """Address of another server with the same API."""
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "CO_API_KEY"))
    """API key. Default: the environment variable ``CO_API_KEY``."""


class CohereEmbedder(LoadsPackage, Embedder):
    """Embeds over HTTP; an :class:`~retrieval_core.ports.Embedder`.

    The model is told which texts are questions (``search_query``) and which are passages (``search_document``).

    Of a text the models of the third generation read the first 512 tokens, later ones 128,000; the service is asked to
    leave out the rest (``truncate`` is ``END``). An empty text is sent as one space.

    A call of :meth:`embed_query` is one request; :meth:`embed_texts` makes as many as the batch size needs, one after
    the other.

    Args:
        model: As the server calls it.
        dimension: Components of a vector, at least 1; may be left out for Cohere's models. Those of the fourth
            generation and later can be asked for some smaller numbers than their own; of other models it must be their
            own number.
        api_key: Not needed where ``base_url`` leads to a server that wants none.
        base_url: Where the path ``/v2/embed`` begins, for instance ``http://localhost:8000``.
        batch_size: Texts in one request, from 1 to 96.

    Raises:
        ConfigurationError: There is neither key nor base URL, or the dimension is missing or impossible.
        InvalidParameterError: ``batch_size`` is outside its range.
    """

    package: ClassVar[str] = "cohere"
    Settings = CohereEmbedderSettings

    def __init__(
        self,
        *,
        model: str = "embed-v4.0",
        dimension: int | None = None,
        api_key: SecretStr | str | None = None,
        base_url: str | None = None,
        batch_size: int = _MOST_TEXTS,
    ) -> None:
        if not 1 <= batch_size <= _MOST_TEXTS:
            msg = f"batch_size must be from 1 to {_MOST_TEXTS}, got {batch_size}"
            raise InvalidParameterError(msg)
        self._model = model
        self._dimension = _checked_dimension(model, dimension)
        self._batch_size = batch_size
        self._connection = CohereConnection("Embedding with Cohere's protocol", api_key, base_url)

    @property
    def id(self) -> str:
        """Names model and dimension, and the server where it is not Cohere."""
        return f"cohere/{self._model}/{self._dimension}{self._connection.suffix}"

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question, in one request: shape ``(dimension,)``, float32, unit length.

        Raises:
            MissingExtraError: ``cohere`` is not installed.
            ServiceError: The service failed; its subclasses say how.
            DimensionMismatchError: The vector has another dimension.
            EmbeddingError: The vector has no direction.
        """
        try:
            return (await self._embed([text], "search_query"))[0]
        except EmbeddingError as error:
            error.query = text
            raise

    async def _embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed questions: shape ``(len(texts), dimension)``, each row as :meth:`embed_query` gives it.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._embed(texts, "search_query")

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length, in the order of the texts.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._embed(texts, "search_document")

    async def reopen(self) -> None:
        """Close the running event loop's connections; the next text opens new ones."""
        await self._connection.aclose()

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        await self._connection.aclose()

    async def _embed(self, texts: Sequence[str], input_type: Literal["search_query", "search_document"]) -> Matrix:
        client = (await self._connection.client()).sdk
        import numpy as np  # noqa: PLC0415 - slow to load

        is_own = self._dimension == _KNOWN.get(self._model, (self._dimension,))[0]
        asked: dict[str, Any] = {} if is_own else {"output_dimension": self._dimension}
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        for first in range(0, len(texts), self._batch_size):
            batch = [valid_unicode(text) or " " for text in texts[first : first + self._batch_size]]
            with self._connection.mapped_errors():
                answer = await client.embed(
                    model=self._model,
                    input_type=input_type,
                    texts=batch,
                    embedding_types=["float"],
                    truncate="END",
                    request_options={"max_retries": 0},
                    **asked,
                )
            vectors[first : first + len(batch)] = self._unit_rows(answer, len(batch))
        return vectors

    def _unit_rows(self, answer: EmbedByTypeResponse, count: int) -> Matrix:
        rows = _rows(answer, count, self.id)
        if rows.shape[1] != self._dimension:
            raise DimensionMismatchError(self._dimension, rows.shape[1], self.id)
        import numpy as np  # noqa: PLC0415 - loaded by now

        with np.errstate(over="ignore"):  # what is too long for a number is refused below
            lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            msg = f"{self.id} answered with a vector that has no direction: all zeros, or out of range"
            raise EmbeddingError(msg)
        return (rows / lengths).astype(np.float32)


def _checked_dimension(model: str, dimension: int | None) -> int:
    if dimension is not None and dimension < 1:
        msg = f"dimension must be at least 1, got {dimension}"
        raise ConfigurationError(msg)
    possible = _KNOWN.get(model)
    if possible is None:
        if dimension is None:
            msg = f"the dimension of the embedding model {model!r} is not known; set dimension to the number of "
            msg += f"components of its vectors. Known are {', '.join(_KNOWN)}."
            raise ConfigurationError(msg, missing_keys=("embedder.cohere.dimension",))
        return dimension
    if dimension is None:
        return possible[0]
    if dimension not in possible:
        msg = f"the dimension of {model} may be {' or '.join(map(str, possible))}, got {dimension}"
        raise ConfigurationError(msg)
    return dimension


def _rows(answer: EmbedByTypeResponse, count: int, where: str) -> NDArray[np.float64]:
    """Return the vectors of an answer, which the SDK does not validate: shape ``(count, any)``."""
    import numpy as np  # noqa: PLC0415 - loaded by now

    msg = f"{where} answered with something that is no list of vectors"
    try:
        given: Any = answer.embeddings.float_
        if len(given) == count:
            # Without a type of its own, for which numbers would be made of text and of nothing at all.
            rows = np.asarray(given)
            if rows.ndim == 2 and rows.dtype.kind in "if" and np.isfinite(rows).all():
                return rows.astype(np.float64)
        else:
            msg = f"{where} answered with {len(given)} vectors to {count} texts"
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedAnswerError(msg, SERVICE) from error
    raise MalformedAnswerError(msg, SERVICE)
