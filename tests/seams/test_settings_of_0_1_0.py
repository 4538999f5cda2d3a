"""Every setting of version 0.1.0 works, works with a warning that names its new place, or says what to use instead."""

from __future__ import annotations

import json
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from pydantic import BaseModel, SecretStr
from pydantic_core import to_jsonable_python

from retrieval_core import RetrievalConfig, load_config
from retrieval_core.config.moved import GONE, SWITCHES, gone, new_name
from retrieval_core.config.moved import OTHER_MEANINGS as MEANINGS
from retrieval_core.config.moved import OTHER_SECTIONS as OTHERS
from retrieval_core.errors import ConfigurationError, SettingRenamedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(__file__).parents[1] / "support/settings_0_1_0.toml"
NUMBER = 184
"""Of settings in that version; a table of names that people choose is one."""


def leaves(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings by their dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= leaves(cast("dict[str, Any]", value), f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat


SETTINGS = leaves(tomllib.loads(FILE.read_text(encoding="utf-8")))
LEFT = {key: value for key, value in SETTINGS.items() if gone(key) is None}
SOURCES = pytest.mark.parametrize("source", ["file", "environment", "arguments"])


def load(source: str, settings: Mapping[str, Any], folder: Path) -> RetrievalConfig:
    """Load settings, by dotted keys, from one of the three sources that people write."""
    if source == "arguments":
        return load_config(overrides=settings)
    texts = {key: json.dumps(value) for key, value in settings.items()}
    if source == "environment":
        names = {key: f"RETRIEVAL_{key.replace('.', '__').upper()}" for key in settings}
        given = {key: str(value) if isinstance(value, str) else texts[key] for key, value in settings.items()}
        return load_config(environment={names[key]: value for key, value in given.items()})
    file = folder / "settings.toml"
    file.write_text("".join(f"{key} = {text}\n" for key, text in texts.items()), encoding="utf-8")
    return load_config(file)


def at(config: RetrievalConfig, key: str) -> Any:
    """Return a setting as JSON would have it, except for secrets, which are shown."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part) if isinstance(value, BaseModel) else value[part]
    return value.get_secret_value() if isinstance(value, SecretStr) else to_jsonable_python(value)


def test_all_are_there() -> None:
    """The file has each setting once."""
    assert len(SETTINGS) == NUMBER


@SOURCES
def test_what_exists_arrives(source: str, tmp_path: Path) -> None:
    """Under the same name without a warning, under another one with a warning that has both."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        config = load(source, LEFT, tmp_path)
    switches = {f"{section}.enabled" for section in SWITCHES}
    left = {key: value for key, value in LEFT.items() if key not in switches}
    left |= {f"{section}.kind": "none" for section in SWITCHES if not LEFT[f"{section}.enabled"]}
    assert {key: at(config, key_in(source, new_name(key))) for key in left} == left
    renamed = {key: new_name(key) for key in left if new_name(key) != key}
    assert all(issubclass(one.category, SettingRenamedWarning) for one in told)
    texts = [str(one.message) for one in told]
    assert len(texts) == len(renamed) + len(switches)
    for key in switches:
        assert any(f" {key} is {key.replace('enabled', 'kind')} now" in text for text in texts), key
    for old, new in renamed.items():
        assert any(f" {key_in(source, old)} is called {key_in(source, new)} now" in text for text in texts), old


def key_in(source: str, key: str) -> str:
    """Return a key as a source has it: variables of the environment are in one case."""
    return key.lower() if source == "environment" else key


@SOURCES
@pytest.mark.filterwarnings("ignore::retrieval_core.errors.SettingRenamedWarning")
def test_what_is_gone_says_what_to_use(source: str, tmp_path: Path) -> None:
    """Each of them, in the one error that a configuration with all settings ends in."""
    with pytest.raises(ConfigurationError) as refused:
        load(source, SETTINGS, tmp_path)
    problems = refused.value.problems
    for key in SETTINGS.keys() - LEFT.keys():
        sentence = gone(key)
        assert sentence is not None
        assert any(problem.endswith(sentence) and key_in(source, key) in problem for problem in problems), key
    assert all(problem.endswith(tuple(GONE.values())) for problem in problems), problems


def test_the_tables_are_consistent() -> None:
    """A sentence says what to do, and no setting has two fates."""
    known = RetrievalConfig.model_fields
    for key, sentence in GONE.items():
        assert sentence == sentence.strip()
        assert not sentence.endswith("."), "it stands in a list of problems"
        assert gone(new_name(key)) is not None, key
        sections = {name.partition(".")[0] for name in SETTINGS}
        assert key.partition(".")[0] in sections or key in known or key.partition(".")[0] in OTHERS or key in MEANINGS
