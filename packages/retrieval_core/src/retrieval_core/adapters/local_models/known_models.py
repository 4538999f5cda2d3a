"""How embedding models are used so that they do as well as they were trained to: known ones, and those in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from retrieval_core.errors import ConfigurationError, ModelNotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Pooling: TypeAlias = Literal["cls", "mean", "last"]
"""How the vectors of tokens become one: that of the first token, their mean, or that of the last."""
ONNX_FILES = ("model.onnx", "onnx/model.onnx")
"""Possible paths of a model file in its folder. The first that exists is used."""
_POOLINGS: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}
# "corpus" and the others are the names that SentenceTransformer.encode_document() looks for.
_PASSAGE_PROMPTS = ("document", "passage", "corpus")


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


def onnx_file(folder: Path, file: str | None) -> str:
    """Return the path of the ONNX file within a folder.

    Args:
        file: The configured one.

    Raises:
        ModelNotFoundError: It is not there.
    """
    names = (file,) if file else ONNX_FILES
    found = next((name for name in names if (folder / name).is_file()), None)
    if found is None:
        others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.onnx"))[:10]
        advice = f"set embedder.local.file to one that it has: {', '.join(others)}"
        advice = advice if others else "copy the ONNX file of a model there, and its tokenizer.json"
        msg = f"the folder {folder} has no {' and no '.join(names)}; {advice}"
        raise ModelNotFoundError(msg)
    return found


def facts_in(folder: Path) -> ModelFacts:
    """Return what the files in a model's folder say.

    Read are ``config.json``, ``1_Pooling/config.json``, ``config_sentence_transformers.json`` and
    ``sentence_bert_config.json``, as far as they are there. A blank prompt is not taken for a statement, as it is also
    written where nobody thought of one.

    Raises:
        ConfigurationError: A file is damaged, or the model ends in a step that an ONNX file does not hold.
    """
    config, pooling = _read(folder / "config.json"), _read(folder / "1_Pooling" / "config.json")
    prompts = _table(_read(folder / "config_sentence_transformers.json").get("prompts"))
    query = prompts.get("query") or None
    passage = next((prompts[name] for name in _PASSAGE_PROMPTS if prompts.get(name)), None)
    window = _read(folder / "sentence_bert_config.json").get("max_seq_length")
    try:
        cut_to = config.get("matryoshka_dimensions")
        hidden = (
            pooling.get("word_embedding_dimension") or pooling.get("embedding_dimension") or config.get("hidden_size")
        )
        return ModelFacts(
            dimension=None if hidden is None else int(hidden),
            max_tokens=None if window is None else int(window),
            pooling=_pooling(folder, pooling),
            query_prefix=query if query is None else str(query),
            passage_prefix=passage if passage is None else str(passage),
            matryoshka_dimensions=None if cut_to is None else tuple(map(int, cut_to)),
        )
    except (TypeError, ValueError) as error:
        msg = f"the files in {folder} are not the configuration of a model: {error}"
        raise ConfigurationError(msg) from error


def tokenizer_limit(folder: Path) -> int | None:
    """Return the longest text by the tokenizer's settings, which have a number like 1e30 where nobody knows."""
    limit = _read(folder / "tokenizer_config.json").get("model_max_length")
    return limit if isinstance(limit, int) and 0 < limit < 1_000_000 else None


def settled(
    stated: ModelFacts,
    dimension: int | None,
    name: str | None,
    *,
    section: str,
    place: str,
    found: ModelFacts = ModelFacts(),
    otherwise: ModelFacts = ModelFacts(),
) -> ModelFacts:
    """Return all facts of a model: as configured, else as its files say, else as is known of its name.

    Args:
        stated: What the settings say.
        dimension: The configured dimension of vectors; ``None`` for the model's own.
        name: Name of the model, if it is known.
        section: Where in the configuration that is, for messages.
        place: Folder or name, for messages.
        found: What the model's files say.
        otherwise: What holds where nothing else says it.

    Raises:
        ConfigurationError: A required fact is given nowhere, or the vectors can't be cut as configured.
    """
    facts = stated | found | known_model(name) | otherwise
    if facts.query_prefix is not None:  # whoever says that of questions, and nothing of passages, means that
        facts |= ModelFacts(passage_prefix="")
    facts |= ModelFacts(dimension=dimension, matryoshka_dimensions=(), centred=False)
    needed = ("dimension", "max_tokens", "pooling", "query_prefix")
    if missing := [fact for fact in needed if getattr(facts, fact) is None]:
        close = get_close_matches(name or "", KNOWN_MODELS, n=3, cutoff=0.5) or ["BAAI/bge-base-en-v1.5"]
        lacking = ", ".join(f"{section}.{fact}" for fact in missing)
        msg = (
            f"{place}: {', '.join(missing)} of this embedding model can't be detected from its files or its name. "
            f'Set {lacking} as on its model card (a prefix is "" if there is none), '
            f"or set {section}.model to a known name, such as {', '.join(close)}"
        )
        raise ConfigurationError(msg)
    _check_cut(dimension, facts, section, place)
    return facts


def _check_cut(dimension: int | None, facts: ModelFacts, section: str, place: str) -> None:
    """Refuse to cut vectors of a model that was not trained for it."""
    allowed = facts.matryoshka_dimensions or ()
    if dimension is None or dimension == facts.dimension or dimension in allowed:
        return
    cut_to = f"may be cut to {', '.join(map(str, allowed))}" if allowed else "are not known to bear being cut"
    msg = (
        f"{place}: vectors of this model have {facts.dimension} components and {cut_to}; {section}.dimension is "
        f"{dimension}. Remove this setting, or, if the model's card lists this dimension, add it to "
        "matryoshka_dimensions in the config.json beside the model"
    )
    raise ConfigurationError(msg)


def _pooling(folder: Path, config: dict[str, Any]) -> Pooling | None:
    """Return how vectors of tokens become one, ``None`` where nothing says it."""
    modules: Any = _load(folder / "modules.json")
    steps = [str(module["type"]).rpartition(".")[2] for module in modules or ()]
    flags = [name.removeprefix("pooling_mode_") for name, value in config.items() if value is True]
    chosen = [name for name in flags if name != "include_prompt"]
    if isinstance(mode := config.get("pooling_mode"), str):  # of sentence-transformers since 5.3
        chosen.append({"cls": "cls_token", "mean": "mean_tokens"}.get(mode, mode))
    if config.get("include_prompt") is False:
        chosen.append("without the prompt")
    if "Dense" in steps or len(chosen) > 1 or (chosen and chosen[0] not in _POOLINGS):
        msg = (
            f"the model in {folder} is made of {', '.join((*steps, *chosen))}, and what can be used are the vectors of "
            f"its tokens, pooled by one of {', '.join(_POOLINGS)}"
        )
        raise ConfigurationError(msg)
    return _POOLINGS[chosen[0]] if chosen else None


def _table(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON object, empty where there is no such file."""
    loaded: Any = _load(path)
    if loaded is not None and not isinstance(loaded, dict):
        msg = f"{path} is not the configuration of a model: it holds no object"
        raise ConfigurationError(msg)
    return cast("dict[str, Any]", loaded or {})


def _load(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        msg = f"{path} is not the configuration of a model: {error}"
        raise ConfigurationError(msg) from error
