"""The settings that are read from names of the environment without a prefix."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from retrieval_core.compat.settings import KEYS, RetrievalSettings
from retrieval_core.config import (
    CacheConfig,
    QueryConfig,
    RetryConfig,
    RewriterConfig,
    SearchConfig,
    load_config,
)
from retrieval_core.errors import ConfigurationError

REQUIRED = ("OPENAI_API_KEY", "PINECONE_API_KEY")
BOTH_KEYS = {"OPENAI_API_KEY": "openai-key-1", "PINECONE_API_KEY": "pinecone-key-2"}
DEFAULTS: dict[str, Any] = {
    "pinecone_index_name": "ecommerce-products",
    "pinecone_namespace": "phone-reviews",
    "top_k": 4,
    "fetch_k": 20,
    "lambda_mult": 0.7,
    "score_threshold": 0.6,
    "max_query_length": 512,
    "compression_enabled": True,
    "max_rewrite_attempts": 2,
    "rewrite_threshold": 0.5,
    "cache_enabled": True,
    "cache_ttl_seconds": 300,
    "max_retries": 3,
    "enable_evaluation": False,
}
"""The specification's names and defaults."""
OTHERS: dict[str, Any] = {
    "PINECONE_INDEX_NAME": "shoes",
    "PINECONE_NAMESPACE": "spring",
    "TOP_K": 6,
    "FETCH_K": 30,
    "LAMBDA_MULT": 0.25,
    "SCORE_THRESHOLD": 0.1,
    "MAX_QUERY_LENGTH": 99,
    "COMPRESSION_ENABLED": False,
    "MAX_REWRITE_ATTEMPTS": 1,
    "REWRITE_THRESHOLD": 0.9,
    "CACHE_ENABLED": False,
    "CACHE_TTL_SECONDS": 7,
    "MAX_RETRIES": 5,
    "ENABLE_EVALUATION": True,
}
"""Another value for each name."""


def problems_of(environment: dict[str, str]) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        RetrievalSettings.load(environment, env_file=None)
    return caught.value


def plain(settings: RetrievalSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in DEFAULTS}


def test_names_and_defaults_are_the_specifications() -> None:
    """With the two keys alone every other setting has its default, and there is no further setting."""
    settings = RetrievalSettings.load(BOTH_KEYS, env_file=None)
    assert plain(settings) == DEFAULTS
    assert set(RetrievalSettings.model_fields) == {*DEFAULTS, "openai_api_key", "pinecone_api_key"}
    assert settings.openai_api_key.get_secret_value() == "openai-key-1"
    assert settings.pinecone_api_key.get_secret_value() == "pinecone-key-2"


@pytest.mark.parametrize("spell", [str, str.lower])
def test_every_name_is_read(spell: Any) -> None:
    """Each setting comes from the variable of its name, in capitals or not."""
    environment = {spell(name): str(value) for name, value in OTHERS.items()}
    settings = RetrievalSettings.load({**BOTH_KEYS, **environment}, env_file=None)
    assert plain(settings) == {name.lower(): value for name, value in OTHERS.items()}


@pytest.mark.property("data-retrieval-pipeline", 11)
@given(
    present=st.sets(st.sampled_from(REQUIRED), max_size=1),
    blank=st.sampled_from(["", " ", "\t\n"]) | st.none(),
    optional=st.sets(st.sampled_from(sorted(OTHERS))),
    foreign=st.dictionaries(st.text(st.characters(categories=["Lu"]), min_size=1).map("X_".__add__), st.text()),
    secret=st.text(st.characters(categories=["Ll", "Nd"]), min_size=12),
)
def test_exactly_the_missing_variables_are_listed(
    present: set[str], blank: str | None, optional: set[str], foreign: dict[str, str], *, secret: str
) -> None:
    """Whatever else is set, the error names the required variables that are absent or blank, and no others.

    It fails if blank values count as set, or if only the first missing variable is listed: both were tried.
    """
    environment = dict.fromkeys(present, secret) | {name: str(OTHERS[name]) for name in optional} | foreign
    missing = [name for name in REQUIRED if name not in present]
    environment |= {} if blank is None else dict.fromkeys(missing, blank)
    error = problems_of(environment)
    assert error.missing_keys == tuple(missing)
    assert error.problems == tuple(f"{name}: not set" for name in missing)
    assert all(name in str(error) for name in missing)
    assert not any(name in str(error) for name in present)
    assert secret not in str(error)


def test_every_problem_is_told_at_once() -> None:
    """Missing and wrong variables are listed together, each with what was given, and no secret among them."""
    error = problems_of({"OPENAI_API_KEY": "sk-secret", "TOP_K": "many", "LAMBDA_MULT": "nan", "CACHE_ENABLED": "?"})
    assert error.missing_keys == ("PINECONE_API_KEY",)
    names = [problem.split(":")[0] for problem in error.problems]
    assert sorted(names) == ["CACHE_ENABLED", "LAMBDA_MULT", "PINECONE_API_KEY", "TOP_K"]
    assert "'many'" in str(error)
    assert "sk-secret" not in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None


def test_wrong_secrets_are_not_shown() -> None:
    """A key of another type or without a character is a problem, and its value is not told."""
    with pytest.raises(ConfigurationError) as caught:
        RetrievalSettings(_environment={}, _env_file=None, openai_api_key=98765, pinecone_api_key="")
    assert sorted(problem.split(":")[0] for problem in caught.value.problems) == sorted(REQUIRED)
    assert "98765" not in str(caught.value)


def test_secrets_are_not_printed() -> None:
    """Neither text nor dumped form of the settings, nor of what is made of them, shows a key."""
    cache = {"RETRIEVAL_CACHE__KIND": "redis", "RETRIEVAL_CACHE__REDIS__URL": "redis://:hidden@host"}
    settings = RetrievalSettings.load({**BOTH_KEYS, **cache}, env_file=None)
    shown = f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()} {settings.to_config()!r}"
    assert not any(secret in shown for secret in (*BOTH_KEYS.values(), "hidden"))


def test_they_cannot_be_changed_but_copied() -> None:
    """Settings are frozen values."""
    settings = RetrievalSettings.load(BOTH_KEYS, env_file=None)
    with pytest.raises(ValidationError):
        settings.top_k = 5  # pyright: ignore[reportAttributeAccessIssue]
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    """Arguments win over the environment, it wins over the file unless it is blank, and the file over defaults."""
    file = tmp_path / "settings.env"
    file.write_text("TOP_K=1\nFETCH_K=12\nPINECONE_NAMESPACE='früh' # comment\nOPENAI_API_KEY=of-file\n", "utf-8")
    environment = {"PINECONE_API_KEY": "p", "TOP_K": "3", "FETCH_K": " "}
    settings = RetrievalSettings.load(environment, file)
    assert (settings.top_k, settings.fetch_k, settings.pinecone_namespace) == (3, 12, "früh")
    assert settings.openai_api_key.get_secret_value() == "of-file"
    assert RetrievalSettings(_environment=environment, _env_file=file, top_k=9).top_k == 9


def test_without_arguments_the_process_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The specification's own form reads the environment of the process, and ``.env`` of the current folder."""
    (tmp_path / ".env").write_text("TOP_K=8\nFETCH_K=21\nPINECONE_API_KEY=of-file\nUNKNOWN=1\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    for name in (*REQUIRED, *OTHERS, *(name for name in os.environ if name.startswith("RETRIEVAL_"))):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError) as caught:
        RetrievalSettings()
    assert caught.value.missing_keys == ("OPENAI_API_KEY",)
    monkeypatch.setenv("OPENAI_API_KEY", "o")
    monkeypatch.setenv("FETCH_K", "22")
    assert plain(RetrievalSettings()) == DEFAULTS | {"top_k": 8, "fetch_k": 22}
    assert RetrievalSettings() == RetrievalSettings.load()


@pytest.mark.parametrize("name", ["none.env", ".env", "folder", "~nobody-of-this-name/none.env"])
def test_a_file_that_was_named_must_be_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings would be missing without a word; only ``.env``, where nobody named it, need not be there."""
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=f"^{name} is not there, or is no file"):
        RetrievalSettings.load(BOTH_KEYS, name)
    with pytest.raises(ConfigurationError, match=f"^{name} is not there, or is no file"):
        RetrievalSettings(_environment=BOTH_KEYS, _env_file=Path(name))
    assert RetrievalSettings.load(BOTH_KEYS).top_k == RetrievalSettings.load(BOTH_KEYS, None).top_k == 4


def test_arguments_that_would_do_nothing_are_refused() -> None:
    """The name of another library's argument, or of a setting that is misspelt, is told with the right one."""
    arguments: dict[str, Any] = {"env_file": "prod.env", "topk": 5, "zzzzzz": 1}
    with pytest.raises(ConfigurationError) as caught:
        RetrievalSettings(_environment=BOTH_KEYS, _env_file=None, **arguments)
    assert caught.value.problems == (
        "env_file: unknown setting; did you mean _env_file?",
        "topk: unknown setting; did you mean top_k?",
        "zzzzzz: unknown setting",
    )


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """One that is not UTF-8 is an error that names it and shows nothing of it."""
    file = tmp_path / "bad.env"
    file.write_bytes(b"OPENAI_API_KEY=s\xe9cret\n")
    with pytest.raises(ConfigurationError, match=r"bad\.env cannot be read: it is not UTF-8") as caught:
        RetrievalSettings.load(BOTH_KEYS, file)
    assert "cret" not in str(caught.value)


def test_the_configuration_made_of_them() -> None:
    """Each value arrives at every setting that it stands for; everything else is the preset's."""
    environment = {**BOTH_KEYS, **{name: str(value) for name, value in OTHERS.items()}}
    settings = RetrievalSettings.load(environment, env_file=None)
    expected = {key: getattr(settings, name) for name, keys in KEYS.items() for key in keys}
    expected |= {"relevance_filter.kind": "none", "cache.kind": "none", "evaluation.kind": "auto"}
    config = settings.to_config()
    assert config == load_config("ecommerce-cloud", expected)
    assert set(KEYS) == set(RetrievalSettings.model_fields)
    assert (config.search.top_k, config.search.fetch_k, config.search.lambda_mult) == (6, 30, 0.25)
    assert (config.search.score_threshold, config.query.max_length) == (0.1, 99)
    assert (config.relevance_filter.kind, config.evaluation.kind) == ("none", "auto")
    assert (config.rewriter.max_attempts, config.rewriter.relevance_threshold) == (1, 0.9)
    assert (config.cache.kind, config.cache.ttl_seconds, config.retry.max_retries) == ("none", 7, 5)
    assert config.store.pinecone.index_name == "shoes"
    assert config.store.pinecone.namespace == "spring"
    assert config.store.pinecone.api_key == SecretStr("pinecone-key-2")
    assert config.embedder.openai.api_key == config.llm.openai.api_key == SecretStr("openai-key-1")
    assert (config.store.kind, config.embedder.kind, config.llm.kind) == ("pinecone", "openai", "openai")


def test_prefixed_names_win_over_plain_ones(tmp_path: Path) -> None:
    """A setting that a ``RETRIEVAL_…`` name sets, alone or with its section, is not taken from the plain name."""
    file = tmp_path / "settings.env"
    file.write_text('RETRIEVAL_SEARCH={"top_k": 2, "fetch_k": 11}\nRETRIEVAL_QUERY__MAX_LENGTH=64\n', "utf-8")
    plain_names = {"TOP_K": "5", "FETCH_K": "50", "LAMBDA_MULT": "0.1", "MAX_QUERY_LENGTH": "70"}
    prefixed = {"RETRIEVAL_SEARCH__TOP_K": "3", "retrieval_store__kind": "sqlite", "RETRIEVALS": "no business of ours"}
    config = RetrievalSettings.load({**BOTH_KEYS, **plain_names, **prefixed}, file).to_config()
    assert (config.search.top_k, config.search.fetch_k, config.search.lambda_mult) == (3, 11, 0.1)
    assert (config.query.max_length, config.store.kind) == (64, "sqlite")


def test_a_wrong_prefixed_name_is_told() -> None:
    """What is wrong with a ``RETRIEVAL_…`` name is said when the configuration is made."""
    settings = RetrievalSettings.load({**BOTH_KEYS, "RETRIEVAL_SEARCH__TOPK": "3"}, env_file=None)
    with pytest.raises(ConfigurationError, match="did you mean top_k"):
        settings.to_config()


def test_plain_names_are_read_here_alone() -> None:
    """Other programs use names such as ``TOP_K`` too, so :func:`load_config` does not look at them."""
    environment = {name: str(value) for name, value in OTHERS.items() if not name.startswith("PINECONE_")}
    assert load_config(environment=environment) == load_config()


@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("top_k", SearchConfig, "top_k"),
        ("fetch_k", SearchConfig, "fetch_k"),
        ("lambda_mult", SearchConfig, "lambda_mult"),
        ("score_threshold", SearchConfig, "score_threshold"),
        ("max_query_length", QueryConfig, "max_length"),
        ("max_rewrite_attempts", RewriterConfig, "max_attempts"),
        ("rewrite_threshold", RewriterConfig, "relevance_threshold"),
        ("cache_ttl_seconds", CacheConfig, "ttl_seconds"),
        ("max_retries", RetryConfig, "max_retries"),
    ],
)
def test_bounds_are_those_of_the_configuration(name: str, section: Any, key: str) -> None:
    """So that a value out of range is told under its name in the environment, with all other problems."""
    assert RetrievalSettings.model_fields[name].metadata == section.model_fields[key].metadata
    assert KEYS[name][0].endswith(f".{key}")


def test_a_pipeline_can_be_built_of_them() -> None:
    """Store, models and stages are the configured ones; nothing is asked of them yet."""
    from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
    from retrieval_core.adapters.stores.pinecone import PineconeStore
    from retrieval_core.index.open import open_index

    with open_index(config=RetrievalSettings.load(BOTH_KEYS, env_file=None).to_config()) as index:
        assert isinstance(index.store, PineconeStore)
        assert isinstance(index.embedder, OpenAIEmbedder)
        assert index.embedder.dimension == 3072


def test_they_cost_nothing_where_they_are_not_used() -> None:
    """What reads them is loaded with their module alone, which reads nothing by itself."""
    code = (
        "import sys, retrieval_core.index.open, retrieval_core.cli\n"
        "assert not {'pydantic_settings', 'dotenv'} & set(sys.modules)\n"
        "import retrieval_core.compat.settings\n"
        "assert {'pydantic_settings'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
