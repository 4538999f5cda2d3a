"""What the files beside an embedding model say of its use, as sentence-transformers writes them."""

from __future__ import annotations

import json
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from retrieval_core.adapters.local_models.known_models import KNOWN_MODELS, ModelFacts, known_model
from retrieval_core.errors import ConfigurationError, ModelNotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval_core.adapters.local_models.known_models import Pooling

ONNX_FILES = ("model.onnx", "onnx/model.onnx")
"""Where a model may lie in its folder, the first one that there is."""
_POOLINGS: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}
# "corpus" and the others are the names that SentenceTransformer.encode_document() looks for.
_PASSAGE_PROMPTS = ("document", "passage", "corpus")


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
    found: ModelFacts = ModelFacts(),  # noqa: B008 - a frozen value
    otherwise: ModelFacts = ModelFacts(),  # noqa: B008 - likewise
) -> ModelFacts:
    """Return all facts of a model: as configured, else as its files say, else as is known of its name.

    Args:
        stated: What the settings say.
        dimension: The configured dimension of vectors; ``None`` for the model's own.
        name: The model's own, where it is told.
        section: Where in the configuration that is, for messages.
        place: Folder or name, for messages.
        found: What the model's files say.
        otherwise: What holds where nothing else says it.

    Raises:
        ConfigurationError: Something is told nowhere, or the vectors cannot be cut as configured.
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
