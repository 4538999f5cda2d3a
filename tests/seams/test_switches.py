"""Old names of settings over several sources, with empty tables, and in Python: they mean what they meant."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from retrieval_core import RetrievalConfig, load_config
from retrieval_core.errors import SettingRenamedWarning

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::retrieval_core.errors.SettingRenamedWarning")


@pytest.mark.parametrize(
    ("file", "environment", "arguments", "kind"),
    [
        ({"cache.enabled": False}, {"CACHE__ENABLED": "true"}, {}, "memory"),
        ({"cache.kind": "redis"}, {"CACHE__ENABLED": "true"}, {}, "redis"),
        ({"cache.kind": "redis", "cache.enabled": False}, {"CACHE__ENABLED": "true"}, {}, "redis"),
        ({"cache.kind": "redis"}, {"CACHE__ENABLED": "false"}, {"cache.enabled": True}, "redis"),
        ({"cache.kind": "redis"}, {"CACHE__ENABLED": "false"}, {"cache.kind": "memory"}, "memory"),
        ({"cache.enabled": False}, {"CACHE__ENABLED": "false"}, {"cache.enabled": True}, "memory"),
        ({"reranker.kind": "local", "reranker.enabled": False}, {"RERANKER__ENABLED": "1"}, {}, "local"),
        ({"reranker.kind": "local"}, {}, {"reranker.enabled": False}, "none"),
        ({"reranker.enabled": True}, {"RERANKER__KIND": "local"}, {}, "local"),
        ({"reranker.kind": "none"}, {"RERANKER__ENABLED": "true"}, {}, "none"),
        ({"evaluation.kind": "local"}, {"EVALUATION__ENABLED": "true"}, {}, "local"),
        ({"evaluation.enabled": False}, {"EVALUATION__ENABLED": "true"}, {}, "auto"),
        ({}, {"EVALUATION__ENABLED": "true"}, {}, "auto"),
        ({}, {"EVALUATION__ENABLED": "true"}, {"evaluation.enabled": False}, "none"),
    ],
)
def test_a_stronger_source_switches(
    file: Mapping[str, Any], environment: Mapping[str, str], arguments: Mapping[str, Any], kind: str, tmp_path: Path
) -> None:
    """``enabled`` of the strongest source counts, and true is for the kind that any source set."""
    path = tmp_path / "settings.toml"
    values = {key: f'"{value}"' if isinstance(value, str) else str(value).lower() for key, value in file.items()}
    path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
    variables = {f"RETRIEVAL_{name}": value for name, value in environment.items()}
    config = load_config(path, arguments, variables)
    section = next(iter([*file, *arguments, *(name.lower() for name in environment)])).partition("_")[0].split(".")[0]
    assert getattr(config, section).kind == kind


def test_empty_tables_arrive() -> None:
    """A class may tell an empty table from none."""
    assert load_config(overrides={"store.options": {"headers": {}, "n": 1}}).store.custom == {"headers": {}, "n": 1}
    assert load_config(overrides={"vectors": {"fields": {}}, "store.options": {}}) == RetrievalConfig()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"breaker": {"pause_seconds": 3}}, "breaker.pause_seconds: each pause is twice as long"),
        ({"vectors": {"rule": "mean"}}, "vectors.rule: a chunk has one vector"),
        ({"cache": {"semantic": {"max_size": 3}}}, "cache.semantic.max_size: the semantic cache keeps"),
        ({"searchType": "fts"}, "searchType: set search.mode"),
    ],
)
def test_settings_that_are_gone_in_python(given: dict[str, Any], said: str) -> None:
    """The error says what to use instead, as for a file."""
    with pytest.raises(ValidationError) as refused:
        RetrievalConfig.model_validate(given)
    assert said in str(refused.value)


def test_settings_with_other_names_in_python() -> None:
    """They work with one warning, which is shown where they are given."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        config = RetrievalConfig.model_validate({"cache": {"url": "redis://h"}, "retrievalK": 7})
    assert config.search.candidates == 7
    assert config.cache.redis.url.get_secret_value() == "redis://h"
    assert [one.category for one in told] == [SettingRenamedWarning] * 2
    assert {one.filename for one in told} == {__file__}
