"""The settings that an index remembers, so that no flag has to be repeated.

An index file may come from a stranger. Its settings never run code, read files or reach the network: only numbers,
switches and names of the sections below are taken from it, and ``embedder.kind`` if it is ``local`` or ``none``.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, SecretStr, ValidationError

from retrieval_core.config.adapters import PortConfig, UndeclaredTable
from retrieval_core.config.base import nested_tree, problems_of, shown
from retrieval_core.config.model import RetrievalConfig
from retrieval_core.config.moved import gone, new_name
from retrieval_core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

SECTIONS = frozenset({"chunking", "analysis", "query", "search"})
"""All settings of these sections are remembered."""
KEYS = frozenset(
    {
        "store.sqlite.quantization",
        "context.max_tokens",
        "context.min_primaries",
        "context.neighbor_same_page",
        "context.neighbor_cross_page",
        "context.include_parents",
        "context.window",
        "answer.abstain_below",
    }
)
"""Single settings that are remembered as well."""
EMBEDDERS = frozenset({"local", "none"})
"""Kinds of embedders that are remembered: neither asks a service, nor is code of somebody's own."""
OF_THE_PLACE = frozenset({"index", "store.kind"})
"""Settings that the place of an index says itself, or that are for one run."""
CAN_NAME_CODE = frozenset({"kind", "fallbacks", "use", "verifier", "token_counter"})
"""Last parts of the keys whose values may be ``package.module:factory``."""
LONGEST = 65_536
"""Characters of remembered settings that are read."""


def keys_of(tree: Mapping[str, Any], model: type[BaseModel] = RetrievalConfig, above: str = "") -> Iterator[str]:
    """Yield the dotted keys of the settings in a tree; a table that is one setting's value has one key."""
    for name, value in tree.items():
        inner = inner_model(model, name) if isinstance(value, dict) else None
        if inner is not None:
            yield from keys_of(cast("dict[str, Any]", value), inner, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def inner_model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the settings of a section or table in another one; ``None`` if the name is none of one."""
    field = model.model_fields.get(name)
    if field is not None:
        inner = field.annotation
        return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None
    if not issubclass(model, PortConfig) or (kind := model.port.kind_of(name)) is None:
        return None
    with suppress(ConfigurationError):  # it cannot be imported, which is told when the table is read
        return model.port.settings_of(kind)
    return None


def names_code(key: str, value: object) -> bool:
    """Return whether a setting names a factory to import."""
    return key.rpartition(".")[2] in CAN_NAME_CODE and ":" in str(value)


def can_remember(key: str, value: Any) -> bool:
    """Return whether a setting may be kept in an index, and taken from one."""
    if key == "embedder.kind":
        return isinstance(value, str) and value in EMBEDDERS
    return key in KEYS or (key.partition(".")[0] in SECTIONS and key.count(".") == 1)


def remember(config: RetrievalConfig, old: Mapping[str, Any], plugged_in: Collection[str] = ()) -> dict[str, Any]:
    """Return what an index remembers after it was written to with a configuration, by key.

    Args:
        config: If it was loaded for the index, what a person gave for this run is remembered; otherwise all values that
            differ from the defaults.
        old: What it remembers until now.
        plugged_in: Sections whose settings are not used, since an object was plugged in.
    """
    values = {key: value for key, value in _values(config) if key.partition(".")[0] not in plugged_in}
    provenance = config.provenance
    if provenance is not None:
        given = provenance.given & values.keys()
    else:
        given = {key for key in keys_of(config.model_dump(exclude_unset=True)) if key in values}
    new = {key: values[key] for key in values if key in given and can_remember(key, values[key])}
    if provenance is None:
        defaults = dict(_values(RetrievalConfig()))
        new = {key: value for key, value in new.items() if value != defaults.get(key) or key in old}
    return _fitting({**{key: value for key, value in old.items() if key not in given}, **new})


def left_out(config: RetrievalConfig, remembered: Collection[str]) -> tuple[str, ...]:
    """Return the keys that a person gave for this run, and that the index does not remember."""
    if config.provenance is None:
        return ()
    by_key = dict(_values(config, with_secrets=True))
    given = [key for key in by_key if key in config.provenance.given]
    return tuple(
        key
        for key in given
        if key not in remembered and key not in OF_THE_PLACE and not isinstance(by_key[key], SecretStr)
    )


def by_key(config: RetrievalConfig) -> dict[str, Any]:
    """Return all settings by their keys, as JSON has them, without secrets."""
    return dict(_values(config))


def read_remembered(text: str) -> tuple[dict[str, Any], list[str]]:
    """Return settings that an index remembers, by key, and one line for each that can't be used."""
    try:
        found = json.loads(text) if len(text) <= LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}, ["they can't be read"]
    settings = {new_name(key): value for key, value in cast("dict[str, Any]", found).items()}
    reasons: dict[str, list[str]] = {}
    for key, value in settings.items():
        if not _may(key, value):
            reasons.setdefault(gone(key) or "", []).append(shown(key))
    problems = [f"{key}: not a setting that an index can have" for key in reasons.pop("", ())]
    problems += [f"{', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
    settings = {key: value for key, value in settings.items() if _may(key, value)}
    while settings:
        try:
            RetrievalConfig.model_validate(nested_tree(settings))
        except ValidationError as error:
            problems += problems_of(error)
            wrong = [".".join(map(str, detail["loc"])) for detail in error.errors(include_url=False)]
            left = {
                key: value
                for key, value in settings.items()
                if not any(f"{key}.".startswith(f"{one}.") or f"{one}.".startswith(f"{key}.") for one in wrong)
            }
            settings = left if len(left) < len(settings) else {}
        else:
            break
    return settings, problems


def _fitting(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without the longest ones, so that the rest can be read again."""
    while len(json.dumps(settings, ensure_ascii=False)) > LONGEST:
        longest = max(settings, key=lambda key: len(json.dumps(settings[key], ensure_ascii=False)))
        settings = {key: value for key, value in settings.items() if key != longest}
    return settings


def _may(key: str, value: Any) -> bool:
    """Return whether a key and a value from an index may be used, once they are valid."""
    return can_remember(key, value) and (key in KEYS or key in _KNOWN)


def _values(model: BaseModel, above: str = "", *, with_secrets: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield all settings with their values, as JSON has them."""
    for name, value in model:
        if isinstance(value, UndeclaredTable):
            yield f"{above}{name}", dict(value)
        elif isinstance(value, BaseModel):
            yield from _values(value, f"{above}{name}.", with_secrets=with_secrets)
        elif isinstance(value, tuple):
            yield f"{above}{name}", list(cast("tuple[Any, ...]", value))
        elif with_secrets or not isinstance(value, SecretStr):
            yield f"{above}{name}", value


_KNOWN = frozenset(key for key, _ in _values(RetrievalConfig()))
