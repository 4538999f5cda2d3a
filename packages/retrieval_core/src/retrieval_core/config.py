"""One tree of settings, from defaults, a TOML file, the environment and arguments, each overriding the one before.

In the environment a key is written ``RETRIEVAL_SEARCH__TOP_K``, on the command line ``search.top_k``. Every problem of
all sources is reported at once, with its key.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from retrieval_core.errors import ConfigurationError
from retrieval_core.templates import DEFAULT_TEMPLATE, parse_template

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

ENVIRONMENT_PREFIX = "RETRIEVAL_"


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class StoreConfig(_Settings):
    """Where the index is kept."""

    kind: str = "sqlite"
    """``sqlite`` (one file), ``memory`` (gone with the process) or ``"package.module:factory"``."""
    busy_timeout: float = Field(default=30.0, ge=0)
    """Seconds that a writer waits for another one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for a factory of your own."""


class EmbedderConfig(_Settings):
    """What turns text into vectors."""

    kind: str = "local"
    """``local`` (bge-small-en-v1.5 on this machine), ``none`` (lexical search only) or ``"package.module:factory"``."""
    model_folder: Path | None = None
    """Folder with ``model.onnx`` and ``tokenizer.json`` instead of the installed model."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Texts embedded at a time; as many as there are processors where it is not set."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments for a factory of your own."""


class ChunkingConfig(_Settings):
    """How documents are split."""

    max_tokens: int = Field(default=384, ge=16, le=8192)
    """The longest passage, in the embedder's tokens."""
    min_tokens: int = Field(default=64, ge=0)
    """Sections shorter than this are joined with their small neighbours, as long as they fit."""
    text_column: str | None = None
    """Column of CSV and JSONL files that holds the text; found by itself where it is not set."""


class QueryConfig(_Settings):
    """How questions are prepared."""

    max_length: int = Field(default=10_000, ge=1)
    """Longest question in code points, after normalisation; the rest is cut off and the result says so."""


class SearchConfig(_Settings):
    """How passages are found and put in order."""

    mode: Literal["hybrid", "dense", "lexical"] = "hybrid"
    """Search by meaning, by words, or by both."""
    top_k: int = Field(default=10, ge=1, le=1000)
    """The most passages in a result."""
    candidates: int = Field(default=200, ge=1, le=10_000)
    """Passages asked of each side before they are combined; never less than ``top_k``."""
    fusion: Literal["zscore", "rrf", "minmax", "dbsf"] = "zscore"
    """How the sides are combined; see ``retrieval_core.stages.fuse``."""
    dense_weight: float = Field(default=0.5, ge=0, le=1)
    """Weight of the dense side; the lexical side has the rest."""
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    """The least cosine similarity of a passage in a result."""
    on_unscored: Literal["drop", "keep"] = "drop"
    """What a threshold does to passages without a cosine similarity."""
    search_type: Literal["similarity", "mmr"] = "similarity"
    """``mmr`` chooses passages that do not repeat each other, which costs relevance."""
    fetch_k: int = Field(default=20, ge=1, le=10_000)
    """Passages that ``mmr`` chooses from."""
    lambda_mult: float = Field(default=0.7, ge=0, le=1)
    """In ``mmr``, 1 is relevance alone and 0 is difference alone."""


class FormatterConfig(_Settings):
    """How the passages become one text."""

    template: str = DEFAULT_TEMPLATE
    """One passage, with fields in braces; see ``retrieval_core.stages.format``."""
    delimiter: str = "\n\n---\n\n"
    """What stands between two passages."""
    include_scores: bool = False
    """Whether each passage is preceded by its score."""
    max_context_length: int | None = Field(default=None, ge=1)
    """Longest text in code points; no limit where it is not set."""

    @field_validator("template")
    @classmethod
    def _template_is_well_formed(cls, value: str) -> str:
        try:
            parse_template(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return value


class RetrievalConfig(_Settings):
    """All settings of the library. Make one with :func:`load_config`, or directly, and it reads nothing else."""

    index: str = ".retrieval/index.db"
    """The index file, relative to the current folder."""
    store: StoreConfig = StoreConfig()
    embedder: EmbedderConfig = EmbedderConfig()
    chunking: ChunkingConfig = ChunkingConfig()
    query: QueryConfig = QueryConfig()
    search: SearchConfig = SearchConfig()
    format: FormatterConfig = FormatterConfig()
    deadline_seconds: float | None = Field(default=30.0, gt=0)
    """The time budget of a query; ``null`` for none."""
    strict: bool = False
    """Whether a failure that could be done without is raised instead."""


def load_config(
    file: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> RetrievalConfig:
    """Read the settings from all their sources.

    Args:
        file: A TOML file, or the name of a preset.
        overrides: What wins over everything else: a tree, or dotted keys such as ``{"search.top_k": 5}``.
        environment: For instance ``os.environ``; ``None`` leaves the environment out.

    Raises:
        ConfigurationError: Something is wrong; ``problems`` has one line for each thing, beginning with its key.
    """
    problems: list[str] = []
    tree: dict[str, Any] = {} if file is None else _read_toml(file)
    _merge(tree, _from_environment(environment or {}, problems))
    for key, value in (overrides or {}).items():
        _merge(tree, _nested(key.split("."), value))
    try:
        config = RetrievalConfig.model_validate(tree)
    except ValidationError as error:
        problems += [_describe(detail) for detail in error.errors(include_url=False)]
    else:
        if not problems:
            return config
    origin = f" (read from {file})" if file is not None else ""
    msg = f"the configuration has {len(problems)} problem{'s' * (len(problems) > 1)}{origin}:\n  " + "\n  ".join(
        problems
    )
    raise ConfigurationError(msg, problems=problems)


def parse_value(text: str) -> Any:
    """Read a value that came as text: a JSON list, object or ``null`` as such, everything else as it stands.

    Numbers and booleans are left to the setting's own type, so that a setting that is text may be ``"8"``.
    """
    if text == "null" or text[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets that come with the library, in alphabetical order."""
    folder = files("retrieval_core") / "presets"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".toml")))


def _read_toml(file: str | Path) -> dict[str, Any]:
    path = Path(file)
    name = str(file).removeprefix("presets/").removesuffix(".toml")
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{file} cannot be read: {error}"
            raise ConfigurationError(msg) from error
    elif name in preset_names():
        text = (files("retrieval_core") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        msg = f"there is no configuration file or preset {str(file)!r}; the presets are {', '.join(preset_names())}"
        raise ConfigurationError(msg)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{file} is not valid TOML: {error}"
        raise ConfigurationError(msg) from error


def _merge(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Lay another tree over one; where both have a table, their keys are joined."""
    for key, value in other.items():
        if isinstance(value, Mapping):
            if not isinstance(tree.get(key), dict):
                tree[key] = {}
            _merge(tree[key], value)  # pyright: ignore[reportUnknownArgumentType]
        else:
            tree[key] = value


def _nested(path: list[str], value: Any) -> dict[str, Any]:
    head, *rest = path
    return {head: _nested(rest, value) if rest else value}


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    """Return the settings in the environment.

    Other programs may use the same prefix, so a name is taken for a mistake only where it is close to a setting's.
    """
    tree: dict[str, Any] = {}
    known = list(RetrievalConfig.model_fields)
    for name, text in sorted(environment.items()):  # a whole section before the keys in it
        if not name.upper().startswith(ENVIRONMENT_PREFIX):
            continue
        path = name[len(ENVIRONMENT_PREFIX) :].lower().split("__")
        section = path[0].partition("_")[0]
        if path[0] in known:
            _merge(tree, _nested(path, parse_value(text)))
        elif section in known:
            meant = f"{ENVIRONMENT_PREFIX}{section}__{path[0].removeprefix(section).strip('_')}".upper()
            problems.append(f"{name}: unknown setting; did you mean {meant}?")
        elif near := get_close_matches(path[0], known, n=1):
            problems.append(f"{name}: unknown setting; did you mean {ENVIRONMENT_PREFIX}{near[0].upper()}?")
    return tree


def _describe(detail: ErrorDetails) -> str:
    key = ".".join(map(str, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        name = str(detail["loc"][-1])
        near = get_close_matches(name, _siblings(detail["loc"]), n=1) or _elsewhere(name)
        return f"{key}: unknown setting" + (f"; did you mean {near[0]}?" if near else "")
    given = "" if detail["type"] == "missing" else f", got {detail['input']!r:.80}"
    return f"{key}: {detail['msg'].removeprefix('Value error, ')}{given}"


def _elsewhere(name: str) -> list[str]:
    """Return the full keys of the settings with a name, in whatever section."""
    return [
        f"{section}.{name}"
        for section, field in RetrievalConfig.model_fields.items()
        if isinstance(field.annotation, type)
        and issubclass(field.annotation, BaseModel)
        and name in field.annotation.model_fields
    ]


def _siblings(location: tuple[int | str, ...]) -> list[str]:
    """Return the settings that exist beside the one at a location."""
    model: type[BaseModel] = RetrievalConfig
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
