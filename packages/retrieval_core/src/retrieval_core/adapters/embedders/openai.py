"""The embedder for OpenAI, or for another server that speaks its protocol."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import AliasChoices, Field, SecretStr

from retrieval_core.adapters.vendors import LoadsPackage
from retrieval_core.adapters.vendors.openai import SERVICE, OpenAIConnection
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
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from openai.types import CreateEmbeddingResponse

    from retrieval_core.types import Matrix, Vector


class _Model(NamedTuple):
    """A model's dimension, and whether a smaller one may be asked for."""

    dimension: int
    can_shorten: bool


_KNOWN = {
    "text-embedding-3-large": _Model(3072, can_shorten=True),
    "text-embedding-3-small": _Model(1536, can_shorten=True),
    "text-embedding-ada-002": _Model(1536, can_shorten=False),
}

# OpenAI's limits, from the API reference of "Create embeddings": 2,048 inputs and 300,000 tokens in a request, 8,192
# tokens in an input. A token of its byte-level vocabularies is at least one byte, so bytes of UTF-8 bound tokens from
# above, without a vocabulary of 75 MB to count them with.
_MOST_INPUTS = 2048
_MOST_BYTES_OF_A_REQUEST = 300_000
_MOST_BYTES_OF_AN_INPUT = 8192


class _Window(NamedTuple):
    """A piece of a text that the model reads whole."""

    row: int
    text: str
    size: int


class OpenAIEmbedderSettings(AdapterSettings):
    """An embedding model of OpenAI, or of any server with the same API."""

    required: ClassVar[dict[str, str]] = {"api_key": "base_url"}

    model: str = "text-embedding-3-large"
    """Name of the model, as the server calls it."""
    dimension: int | None = Field(default=None, ge=1)
    """Components of a vector. Default: the model's own number, if it is known."""
    base_url: Address = None
    """Address of another server with the same API."""
    api_key: SecretStr | None = Field(default=None, validation_alias=AliasChoices("api_key", "OPENAI_API_KEY"))
    """API key. Default: the environment variable ``OPENAI_API_KEY``."""
    batch_size: int = Field(default=128, ge=1, le=2048)
    """Texts in one request."""
    query_prefix: str = ""
    """Text before each query, if the model was trained with one and the server does not add it."""
    passage_prefix: str = ""
    """Text before each chunk, if the model was trained with one and the server does not add it."""


class OpenAIEmbedder(LoadsPackage, Embedder):
    """Embeds over HTTP; an :class:`~retrieval_core.ports.Embedder`.

    A text of more than 8,192 bytes may be longer than OpenAI's models read. It is embedded in windows of that size, and
    its vector is their mean, weighted by size and scaled to unit length, as OpenAI's cookbook does ("Embedding texts
    that are longer than the model's maximum context length"). Models that are not OpenAI's get texts whole. An empty
    text, which the service refuses, is sent as one space.

    A call of :meth:`embed_query` is one request; :meth:`embed_texts` makes as many as the limits need, one after the
    other.

    Args:
        model: The server's name for it.
        dimension: Components of a vector, at least 1; may be left out for OpenAI's models. Those of the third
            generation can be asked for fewer than their own; of other models it must be their own number.
        api_key: Not needed where ``base_url`` leads to a server that wants none.
        base_url: The server's, for instance ``http://localhost:11434/v1``.
        batch_size: Texts in one request, from 1 to 2,048.
        query_prefix: Put before questions, as some models ask for.
        passage_prefix: Put before passages, likewise; before the whole of a text that is embedded in windows.

    Raises:
        ConfigurationError: There is neither key nor base URL, or the dimension is missing or impossible.
        InvalidParameterError: ``batch_size`` is outside its range.
    """

    package: ClassVar[str] = "openai"
    Settings = OpenAIEmbedderSettings

    def __init__(
        self,
        model: str = "text-embedding-3-large",
        *,
        dimension: int | None = None,
        api_key: SecretStr | str | None = None,
        base_url: str | None = None,
        batch_size: int = 128,
        query_prefix: str = "",
        passage_prefix: str = "",
    ) -> None:
        if not 1 <= batch_size <= _MOST_INPUTS:
            msg = f"batch_size must be from 1 to {_MOST_INPUTS}, got {batch_size}"
            raise InvalidParameterError(msg)
        self._model = model
        self._known = _KNOWN.get(model)
        self._dimension = _checked_dimension(model, self._known, dimension)
        self._batch_size = batch_size
        self._query_prefix, self._passage_prefix = query_prefix, passage_prefix
        self._connection = OpenAIConnection("Embedding with OpenAI's protocol", api_key, base_url)

    @property
    def id(self) -> str:
        """Names model and dimension, the server where it is not OpenAI, and a digest of the prefixes."""
        prefixes = f"{self._query_prefix}\0{self._passage_prefix}".rstrip("\0")
        digest = f"+{sha256(prefixes.encode()).hexdigest()[:8]}" if prefixes else ""
        return f"openai/{self._model}/{self._dimension}{self._connection.suffix}{digest}"

    @property
    def dimension(self) -> int:
        """Number of components of each vector."""
        return self._dimension

    async def _embed_query(self, text: str) -> Vector:
        """Embed one question, in one request: shape ``(dimension,)``, float32, unit length.

        Text past 300,000 bytes, the most that OpenAI takes in a request, is left out.

        Raises:
            ServiceError: The service failed; its subclasses say how.
            DimensionMismatchError: The vector has another dimension.
            EmbeddingError: The vector has no direction.
        """
        try:
            return (await self._embed([self._as_query(text)]))[0]
        except EmbeddingError as error:
            error.query = text
            raise

    async def _embed_queries(self, texts: Sequence[str]) -> Matrix:
        """Embed questions: shape ``(len(texts), dimension)``, each row as :meth:`embed_query` gives it.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._embed([self._as_query(text) for text in texts])

    async def _embed_texts(self, texts: Sequence[str]) -> Matrix:
        """Embed passages: shape ``(len(texts), dimension)``, float32, rows of unit length, in the order of the texts.

        Raises:
            RetrievalError: As :meth:`embed_query`.
        """
        return await self._embed([self._passage_prefix + text for text in texts])

    async def reopen(self) -> None:
        """Close the running event loop's connections; the next text opens new ones."""
        await self._connection.aclose()

    async def aclose(self) -> None:
        """Close the running event loop's connections; a later call opens new ones. Closing twice is fine."""
        await self._connection.aclose()

    def _as_query(self, text: str) -> str:
        text = self._query_prefix + text
        return _first_bytes(text, _MOST_BYTES_OF_A_REQUEST) if self._known else text

    async def _embed(self, texts: Sequence[str]) -> Matrix:
        client = await self._connection.client()
        import numpy as np  # noqa: PLC0415 - slow to load
        from openai import omit  # noqa: PLC0415 - loaded with the client

        dimensions = self._dimension if self._known and self._dimension != self._known.dimension else omit
        sums = np.zeros((len(texts), self._dimension), dtype=np.float64)
        for windows in _requests(texts, self._batch_size, _MOST_BYTES_OF_AN_INPUT if self._known else None):
            with self._connection.mapped_errors():
                answer = await client.embeddings.create(
                    model=self._model,
                    input=[window.text for window in windows],
                    dimensions=dimensions,
                    encoding_format="base64",
                )
            vectors = _in_order(answer, len(windows), self.id)
            for window, vector in zip(windows, vectors, strict=True):
                if len(vector) != self._dimension:
                    raise DimensionMismatchError(self._dimension, len(vector), self.id)
                sums[window.row] += vector * window.size
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            msg = f"{self.id} answered with a vector that has no direction: all zeros, or not numbers"
            raise EmbeddingError(msg)
        return (sums / lengths).astype(np.float32)


def _checked_dimension(model: str, known: _Model | None, dimension: int | None) -> int:
    if dimension is not None and dimension < 1:
        msg = f"dimension must be at least 1, got {dimension}"
        raise ConfigurationError(msg)
    if known is None:
        if dimension is None:
            msg = f"the dimension of the embedding model {model!r} is not known; set dimension to the number of "
            msg += f"components of its vectors. Known are {', '.join(_KNOWN)}."
            raise ConfigurationError(msg, missing_keys=("embedder.openai.dimension",))
        return dimension
    if dimension is None or dimension == known.dimension:
        return known.dimension
    if dimension > known.dimension or not known.can_shorten:
        possible = f"from 1 to {known.dimension}" if known.can_shorten else f"{known.dimension} and nothing else"
        msg = f"the dimension of {model} may be {possible}, got {dimension}"
        raise ConfigurationError(msg)
    return dimension


def _requests(texts: Sequence[str], batch_size: int, window: int | None) -> Iterator[list[_Window]]:
    """Yield the windows of each request; ``window`` is the most bytes of one, ``None`` leaves texts whole."""
    request: list[_Window] = []
    size, first = 0, 0
    for row, text in enumerate(texts):
        for piece in _windows(row, text, window):
            is_full = len(request) == _MOST_INPUTS or (window and size + piece.size > _MOST_BYTES_OF_A_REQUEST)
            if request and (is_full or row - first == batch_size):
                yield request
                request, size = [], 0
            first = first if request else row
            request.append(piece)
            size += piece.size
    if request:
        yield request


def _windows(row: int, text: str, size: int | None) -> Iterator[_Window]:
    text = valid_unicode(text) or " "
    while text:
        piece = text if size is None else _first_bytes(text, size)
        yield _Window(row, piece, len(piece.encode()))
        text = text[len(piece) :]


def _first_bytes(text: str, size: int) -> str:
    """Return the longest beginning of a text with at most ``size`` bytes of UTF-8."""
    return valid_unicode(text[:size]).encode()[:size].decode("utf-8", "ignore")


def _in_order(answer: CreateEmbeddingResponse, count: int, where: str) -> list[NDArray[np.float64]]:
    """Return the vectors of an answer, which the SDK does not validate, in the order of the inputs."""
    try:
        vectors = {item.index: _decoded(item.embedding) for item in answer.data}
        if len(answer.data) == count and sorted(vectors) == list(range(count)):
            return [vectors[index] for index in range(count)]
        msg = f"{where} answered with {len(answer.data)} vectors to {count} texts"
    except (AttributeError, TypeError, ValueError) as error:
        msg = f"{where} answered with something that is no list of vectors"
        raise MalformedAnswerError(msg, SERVICE) from error
    raise MalformedAnswerError(msg, SERVICE)


def _decoded(embedding: list[float] | str) -> NDArray[np.float64]:
    """Read a vector: little-endian float32 in base64, as asked for, or a list of numbers, as some servers answer."""
    import numpy as np  # noqa: PLC0415 - loaded by now

    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float64)
    vector = np.asarray(embedding, dtype=np.float64)
    if vector.ndim != 1:
        msg = "not a vector"
        raise ValueError(msg)
    return vector
