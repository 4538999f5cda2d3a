"""What is known of open embedding models: how each is to be used so that it does as well as it was trained to."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Pooling: TypeAlias = Literal["cls", "mean", "last"]
"""How the vectors of tokens become one: that of the first token, their mean, or that of the last."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """How an embedding model is to be used; ``None`` where a source does not say.

    Attributes:
        dimension: Components of the vectors that the model gives.
        max_tokens: Tokens that it reads of a text, with those that its tokenizer adds.
        pooling: How the vectors of tokens become one.
        query_prefix: Put before questions.
        passage_prefix: Put before passages.
        matryoshka_dimensions: Numbers of leading components that a vector may be cut to, as the model was trained for
            it (Kusupati et al., "Matryoshka Representation Learning", https://arxiv.org/abs/2205.13147).
        centred: Whether the mean of all components is taken from each before a vector is cut.
    """

    dimension: int | None = None
    max_tokens: int | None = None
    pooling: Pooling | None = None
    query_prefix: str | None = None
    passage_prefix: str | None = None
    matryoshka_dimensions: tuple[int, ...] | None = None
    centred: bool | None = None

    def __or__(self, other: ModelFacts) -> ModelFacts:
        """Return these facts, with those of another source where they say nothing."""
        names = [field.name for field in fields(self)]
        return ModelFacts(*(getattr(other if getattr(self, name) is None else self, name) for name in names))


_SEARCHING = "Represent this sentence for searching relevant passages: "
_SEARCHING_ZH = "为这个句子生成表示以用于检索相关文章："  # noqa: RUF001 - as it was trained


def _cls(dimension: int, max_tokens: int = 512, query: str = _SEARCHING, cut_to: tuple[int, ...] = ()) -> ModelFacts:
    return ModelFacts(dimension, max_tokens, "cls", query, "", cut_to)


def _mean(
    dimension: int,
    max_tokens: int = 512,
    query: str = "",
    passage: str = "",
    cut_to: tuple[int, ...] = (),
    *,
    centred: bool = False,
) -> ModelFacts:
    return ModelFacts(dimension, max_tokens, "mean", query, passage, cut_to, centred)


def _e5(dimension: int) -> ModelFacts:
    return _mean(dimension, 512, "query: ", "passage: ")


def _nomic(cut_to: tuple[int, ...] = (), *, centred: bool = False) -> ModelFacts:
    return _mean(768, 8192, "search_query: ", "search_document: ", cut_to, centred=centred)


# Each model's card, https://huggingface.co/NAME, says prefixes, pooling and what it may be cut to; dimensions and
# lengths were compared with the lists of fastembed 0.9 and of MTEB (https://github.com/embeddings-benchmark/mteb).
KNOWN_MODELS: Mapping[str, ModelFacts] = MappingProxyType(
    {
        "BAAI/bge-small-en": _cls(384),
        "BAAI/bge-base-en": _cls(768),
        "BAAI/bge-large-en": _cls(1024),
        "BAAI/bge-small-en-v1.5": _cls(384),
        "BAAI/bge-base-en-v1.5": _cls(768),
        "BAAI/bge-large-en-v1.5": _cls(1024),
        "BAAI/bge-small-zh-v1.5": _cls(512, query=_SEARCHING_ZH),
        "BAAI/bge-base-zh-v1.5": _cls(768, query=_SEARCHING_ZH),
        "BAAI/bge-large-zh-v1.5": _cls(1024, query=_SEARCHING_ZH),
        "BAAI/bge-m3": _cls(1024, 8192, query=""),
        "intfloat/e5-small-v2": _e5(384),
        "intfloat/e5-base-v2": _e5(768),
        "intfloat/e5-large-v2": _e5(1024),
        "intfloat/multilingual-e5-small": _e5(384),
        "intfloat/multilingual-e5-base": _e5(768),
        "intfloat/multilingual-e5-large": _e5(1024),
        "thenlper/gte-small": _mean(384),
        "thenlper/gte-base": _mean(768),
        "thenlper/gte-large": _mean(1024),
        "Alibaba-NLP/gte-base-en-v1.5": _cls(768, 8192, query=""),
        "Alibaba-NLP/gte-large-en-v1.5": _cls(1024, 8192, query=""),
        "Alibaba-NLP/gte-modernbert-base": _cls(768, 8192, query=""),
        "Alibaba-NLP/gte-multilingual-base": _cls(768, 8192, query="", cut_to=(512, 256, 128)),
        "nomic-ai/nomic-embed-text-v1": _nomic(),
        "nomic-ai/nomic-embed-text-v1.5": _nomic((512, 256, 128, 64), centred=True),
        "nomic-ai/nomic-embed-text-v1.5-Q": _nomic((512, 256, 128, 64), centred=True),
        "nomic-ai/modernbert-embed-base": _nomic((256,)),
        "Snowflake/snowflake-arctic-embed-xs": _cls(384),
        "Snowflake/snowflake-arctic-embed-s": _cls(384),
        "Snowflake/snowflake-arctic-embed-m": _cls(768),
        "Snowflake/snowflake-arctic-embed-m-long": _cls(768, 2048),
        "Snowflake/snowflake-arctic-embed-l": _cls(1024),
        "Snowflake/snowflake-arctic-embed-m-v1.5": _cls(768, cut_to=(256,)),
        "Snowflake/snowflake-arctic-embed-m-v2.0": _cls(768, 8192, query="query: ", cut_to=(256,)),
        "Snowflake/snowflake-arctic-embed-l-v2.0": _cls(1024, 8192, query="query: ", cut_to=(256,)),
        "mixedbread-ai/mxbai-embed-large-v1": _cls(1024, cut_to=(512,)),
        "jinaai/jina-embeddings-v2-small-en": _mean(512, 8192),
        "jinaai/jina-embeddings-v2-base-en": _mean(768, 8192),
        "jinaai/jina-embeddings-v2-base-de": _mean(768, 8192),
        "jinaai/jina-embeddings-v2-base-es": _mean(768, 8192),
        "jinaai/jina-embeddings-v2-base-zh": _mean(768, 8192),
        "jinaai/jina-embeddings-v2-base-code": _mean(768, 8192),
        "sentence-transformers/all-MiniLM-L6-v2": _mean(384, 256),
        "sentence-transformers/all-MiniLM-L12-v2": _mean(384, 128),
        "sentence-transformers/all-mpnet-base-v2": _mean(768, 384),
        "sentence-transformers/multi-qa-MiniLM-L6-cos-v1": _mean(384),
        "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": _mean(384, 128),
        "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": _mean(768, 128),
        "google/embeddinggemma-300m": _mean(
            768, 2048, "task: search result | query: ", "title: none | text: ", (512, 256, 128)
        ),
        "ibm-granite/granite-embedding-small-english-r2": _cls(384, 8192, query=""),
    }
)
"""By the model's name on the Hugging Face hub."""
_BY_LOWER_NAME = {name.lower(): facts for name, facts in KNOWN_MODELS.items()}


def known_model(name: str | None) -> ModelFacts:
    """Return what is known of a model, whatever the case of its name; of others nothing."""
    return _BY_LOWER_NAME.get((name or "").lower(), ModelFacts())
