"""A password in an address, and a key, show nowhere: not in the settings, not in messages, not in results."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError

from retrieval_core import load_config, open_index
from retrieval_core.adapters.caches.redis import RedisCache
from retrieval_core.adapters.embedders.openai import OpenAIEmbedderSettings
from retrieval_core.adapters.llms.openai import OpenAILLM, OpenAILLMSettings
from retrieval_core.adapters.stores.memory import MemoryStore
from retrieval_core.adapters.stores.pinecone import PineconeStore
from retrieval_core.adapters.stores.pinecone.store import PineconeSettings
from retrieval_core.adapters.stores.qdrant import QdrantStore
from retrieval_core.adapters.vendors import what_was_said
from retrieval_core.cli.commands import main
from retrieval_core.config import RetrievalConfig
from retrieval_core.config.base import host_of, without_credentials, without_secrets
from retrieval_core.errors import ConfigurationError, ServiceConnectionError
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.types import Chunk

CANARY = "canary-7d1f0a"
ADDRESSES = (
    f"https://user:{CANARY}@host/v1",
    f"https://{CANARY}@host:8080/v1",
    f"http://user:{CANARY}@127.0.0.1:1",
    f"https://user:12/{CANARY}@host/v1",
    f"https://user:12#{CANARY}@host/v1",
    f"https://host/v1?key={CANARY}",
    f"https://host/v1#{CANARY}",
    f"user:{CANARY}@host",
    f"https://[{CANARY}",
)
SETTINGS = ("embedder.openai.base_url", "llm.openai.base_url", "store.pinecone.host", "store.qdrant.url")


def shown(error: BaseException) -> str:
    """Return all that a program may print of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(getattr(error, "problems", ""))


@pytest.mark.parametrize("key", SETTINGS)
@pytest.mark.parametrize("address", ADDRESSES[:-1])
def test_an_address_with_a_secret_is_refused_and_not_shown(address: str, key: str) -> None:
    """When the settings are read, whatever they are for; so no repr, id or message can ever hold it."""
    with pytest.raises(ConfigurationError) as caught:
        load_config(overrides={key: address})
    (problem,) = caught.value.problems
    assert problem.startswith(f"{key}: ")
    assert CANARY not in shown(caught.value)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_secret_is_not_shown_where_the_settings_are_made_directly(address: str) -> None:
    """The checking library's own error shows nothing of what was given."""
    for model in (OpenAIEmbedderSettings, OpenAILLMSettings):
        with pytest.raises(ValidationError) as caught:
            model(base_url=address)
        assert CANARY not in shown(caught.value)
    with pytest.raises(ValidationError) as caught:
        PineconeSettings(host=f"me:{CANARY}@host")
    assert CANARY not in shown(caught.value)


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_secret_is_refused_by_the_adapters(address: str) -> None:
    """Those who use them without a configuration are told the same."""
    with pytest.raises(ConfigurationError, match="base_url") as caught:
        OpenAILLM("m", base_url=address)
    assert CANARY not in shown(caught.value)
    if any(sign in address for sign in "@?#"):
        with pytest.raises(ConfigurationError, match="host of the Pinecone index") as caught:
            PineconeStore(api_key=SecretStr("k"), host=address)
        assert CANARY not in shown(caught.value)
    with pytest.raises(ConfigurationError, match="address of the Qdrant server") as caught:
        QdrantStore(url=address)
    assert CANARY not in shown(caught.value)


def test_a_blank_address_is_none() -> None:
    """As an empty variable of the environment gives it; OpenAI's key is then OpenAI's again."""
    environment = {"RETRIEVAL_LLM__OPENAI__BASE_URL": " ", "OPENAI_API_KEY": "k"}
    settings = load_config(environment=environment).llm.openai
    assert settings.base_url is None
    assert settings.api_key == SecretStr("k")


SECRETS: dict[str, Any] = {
    "llm.openai.api_key": CANARY,
    "embedder.openai.api_key": CANARY,
    "store.pinecone.api_key": CANARY,
    "store.qdrant.api_key": CANARY,
    "cache.redis.url": f"redis://me:{CANARY}@127.0.0.1:1/0",
    **{f"{section}.custom.token": CANARY for section in ("store", "embedder", "llm", "cache", "relevance_filter")},
    **{f"{section}.custom.token": CANARY for section in ("rewriter", "evaluation", "reranker", "transform", "pruner")},
    "answer.custom.token": CANARY,
    # Options are for factories of one's own.
    **{
        f"{section}.kind": "own.module:factory" for section in ("store", "embedder", "llm", "cache", "relevance_filter")
    },
    **{f"{section}.kind": "own.module:factory" for section in ("rewriter", "evaluation", "reranker", "pruner")},
    "transform.use": ["own.module:factory"],
    "answer.verifier": "own.module:factory",
}
KEYS = [key for key in SECRETS if key.endswith((".api_key", ".url", ".token"))]


def test_no_secret_shows_in_the_settings() -> None:
    """Neither keys and addresses nor what is handed to factories of one's own."""
    config = load_config(overrides=SECRETS)
    assert CANARY not in f"{config!r} {config} {config.model_dump()} {config.model_dump_json()} {dict(config)}"
    assert config.cache.custom == {"token": CANARY}
    assert config.model_dump()["cache"]["custom"] == {"token": "**********"}


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_dump_is_not_read_back_with_what_stands_for_secrets(mode: Any) -> None:
    """A factory or a service would be given asterisks as its key."""
    config = load_config(overrides={"embedder.kind": "own.module:factory", "embedder.custom.token": CANARY})
    with pytest.raises(ValidationError, match="comes from a dump"):
        RetrievalConfig(**config.model_dump(mode=mode))
    config = load_config(overrides={"embedder.kind": "openai", "embedder.openai.api_key": CANARY})
    if mode == "python":
        assert RetrievalConfig(**config.model_dump()).embedder.openai.api_key == SecretStr(CANARY)
    else:
        with pytest.raises(ValidationError, match="comes from a dump"):
            RetrievalConfig(**config.model_dump(mode=mode))


@pytest.mark.parametrize("key", [*(key for key in KEYS if "custom" not in key), "search.top_k", "search"])
def test_no_secret_shows_in_a_problem(key: str) -> None:
    """Neither where the value is of a wrong kind, nor where an address stands in a wrong place."""
    value: Any = [CANARY] if key in KEYS else f"redis://me:{CANARY}@host"
    with pytest.raises(ConfigurationError) as caught:
        load_config(overrides={key: value})
    assert CANARY not in shown(caught.value)


@pytest.mark.parametrize("command", ["doctor", "info", "search"])
def test_no_secret_shows_on_the_command_line(command: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with a password that cannot be reached is told with its host alone, in JSON and for people."""
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("redis", reason="the extra 'redis' is not installed")
    fake = ["--set", "embedder.kind=retrieval_core.testing.fakes:FakeEmbedder"]
    cache = ["--set", "cache.kind=redis", "--set", f"cache.redis.url=redis://me:{CANARY}@127.0.0.1:1/0"]
    with open_index(config=load_config(overrides={"cache.kind": "none"}), embedder=FakeEmbedder()) as index:
        index.add([Chunk("a", "a", "A sturdy phone")])
    arguments = [command, *(["phone", "--trace"] if command == "search" else []), *fake, *cache]
    for form in ([], ["--json"]):
        result = CliRunner().invoke(main, [*arguments, *form])
        assert result.output
        assert CANARY not in result.output
        assert isinstance(result.exception, SystemExit | None)
    if command == "search":
        told = json.loads(result.stdout)
        assert [entry["stage"] for entry in told["degraded"]] == ["cache"]
        assert "127.0.0.1:1" in told["degraded"][0]["reason"]


def test_no_secret_shows_in_results_and_ids() -> None:
    """Degradations, trace and the cache's repr have the host alone."""
    pytest.importorskip("redis", reason="the extra 'redis' is not installed")
    url = f"redis://me:{CANARY}@127.0.0.1:1/0"
    assert CANARY not in repr(RedisCache(SecretStr(url)))
    embedder = FakeEmbedder()
    store = MemoryStore(embedder_id=embedder.id, dimension=embedder.dimension)
    config = load_config(overrides={"cache.kind": "redis", "cache.redis.url": url, "retry.max_retries": 0})
    with open_index(config=config, embedder=embedder, store=store) as index:
        index.add([Chunk("a", "a", "A sturdy phone")])
        result = index.retrieve("phone")
    assert result.degraded, "the cache cannot be reached"
    assert CANARY not in f"{result!r} {index!r}"


def test_what_a_service_says_shows_no_password() -> None:
    """A proxy or gateway may repeat an address with one."""
    assert what_was_said(f"cannot reach http://me:{CANARY}@proxy:80/x") == "cannot reach http://[secret]@proxy:80/x"
    assert CANARY not in str(ServiceConnectionError(what_was_said({"error": f"see 'https://{CANARY}@h'"})))


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters="'\"<>"), min_size=1))
def test_credentials_are_taken_out_of_any_address(secret: str) -> None:
    """Whatever the password holds, slashes and further signs of the kind included."""
    assert without_credentials(f"at redis://{secret}@host/0 it failed") == "at redis://[secret]@host/0 it failed"


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://localhost:11434/v1", "localhost:11434"),
        ("https://api.openai.com/v1/", "api.openai.com"),
        ("HTTPS://Host/a/b", "host"),
    ],
)
def test_addresses_that_are_fine(url: str, host: str) -> None:
    """Host and port are what messages show."""
    assert host_of(url) == host
    assert load_config(overrides={"llm.kind": "openai", "llm.openai.base_url": url}).llm.openai.base_url == url


def test_the_settings_are_still_equal_to_themselves() -> None:
    """What is left out of a repr still counts."""
    assert load_config(overrides=SECRETS) == load_config(overrides=SECRETS) != RetrievalConfig()


ALPHABET = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"


@st.composite
def keys_of_services(draw: st.DrawFn) -> str:
    """Texts as services give them for keys and tokens."""
    letters = draw(st.text(ALPHABET, min_size=12, max_size=20))
    digits = draw(st.text("0123456789", min_size=4, max_size=8))
    return draw(st.sampled_from(["sk-{}{}", "pcsk_{}{}", "{}{}", "hf_{}{}", "co-{}{}", "{}-x{}y{}"])).format(
        letters, digits, letters
    )


def nested_in(secret: str) -> st.SearchStrategy[Any]:
    """Values of any type that hold a secret somewhere."""
    return st.recursive(
        st.just(secret),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=2),
            st.dictionaries(st.sampled_from(["a", "token", secret]), inner, min_size=1, max_size=2),
        ),
        max_leaves=3,
    )


def all_fields(model: type[BaseModel] = RetrievalConfig, path: str = "") -> list[str]:
    """Return the keys of all settings and of all tables of them."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        found.append(f"{path}{name}")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += all_fields(field.annotation, f"{path}{name}.")
    return found


KNOWN_TO_BE_SECRET = ("api_key", "url", "custom")
# What holds plain text of the user's own that is no secret is shown in a dump; it is only messages that are cleared.
PLACES = [*all_fields(), "llm.custom.deep.er", "sttore.kind", "nonsense", "ollama_config.host", "generation_model"]


@given(st.data(), keys_of_services(), st.sampled_from(PLACES), st.sampled_from(["override", "environment", "name"]))
def test_no_secret_shows_wherever_it_stands(data: st.DataObject, secret: str, place: str, how: str) -> None:
    """As a value of the right or a wrong type, nested, in the environment, and as the name of a setting."""
    environment: dict[str, str] = {}
    overrides: dict[str, Any] = {}
    if how == "name":
        overrides = {f"{place}.{secret}": 1}
    elif how == "override":
        overrides = {place: data.draw(nested_in(secret))}
    else:
        value = data.draw(nested_in(secret))
        text = value if isinstance(value, str) else json.dumps(value)
        environment = {f"RETRIEVAL_{place.upper().replace('.', '__')}": text}
    told = ""
    try:
        config = load_config(overrides=overrides, environment=environment)
        if not set(KNOWN_TO_BE_SECRET).isdisjoint(place.split(".")):
            told = f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"
    except ConfigurationError as error:
        told = shown(error)
    assert secret not in told


@given(keys_of_services(), st.sampled_from(["{}", "llm.openai.api_key:{}", "{}x{}", "llm.custom"]))
def test_no_secret_shows_of_an_assignment(secret: str, form: str) -> None:
    """Neither where the sign is missing that makes it one, nor where the value is of another type."""
    given = form.format(secret, secret)
    for assignment in (given, f"{given}={secret}", f"llm.custom={secret}", f"--{given}={secret}"):
        result = CliRunner().invoke(main, ["search", "moon", "--set", assignment, "--json"])
        assert result.exit_code == 2
        assert secret not in result.output


@pytest.mark.parametrize("address", ["redis://h/0?password={}", "https://h/v1?api_key={}", "https://u:{}@h"])
def test_secrets_in_addresses_are_taken_out_of_messages(address: str) -> None:
    """Of the user's part and of the parameters."""
    told = without_secrets(f"cannot reach {address.format(CANARY)} now")
    assert CANARY not in told
    assert told.endswith(" now")


@pytest.mark.parametrize(
    "name",
    ["text-embedding-3-large", "answerdotai/answerai-colbert-small-v1", "BAAI/bge-reranker-base", "contextWindowSize",
     "reranker.late_interaction.model_folder", "FakeRelevanceFilter", "Qwen/Qwen3-Embedding-0.6B", "gpt-4.1-mini",
     "bge-small-en-v1.5-int8@4d60820e6ba7", "config2024.toml"],
)  # fmt: skip
def test_names_are_no_secrets(name: str) -> None:
    """They are what messages are about."""
    assert without_secrets(name) == name


def test_doctor_shows_no_secret_that_is_nested_in_custom(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factory, or its vendor, may repeat what it was given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks.py").write_text("def make(**options):\n    raise ValueError(f'cannot use {options}')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    settings = ["--set", "llm.kind=talks:make", "--set", f'llm.custom={{"deep": {{"tokens": ["{CANARY}"]}}}}']
    result = CliRunner().invoke(main, ["doctor", "--set", "embedder.kind=none", *settings])
    assert "cannot use" in result.output
    assert CANARY not in result.output


def test_the_name_of_a_file_that_was_read_is_shown(tmp_path: Path) -> None:
    """Whatever it looks like: it is where the mistake is to be mended."""
    file = tmp_path / "my-config2024production.toml"
    file.write_text("[search]\ntop_k = 0\n")
    with pytest.raises(ConfigurationError, match=r"my-config2024production\.toml"):
        load_config(file)


@pytest.mark.parametrize("given", ["sk-proj-Abc123def456ghi789", "sk-proj-Abc123def456ghi789:make"])
def test_a_key_in_place_of_a_kind_does_not_show(given: str) -> None:
    """Whether it is taken for a name or for a factory."""
    with pytest.raises(ConfigurationError) as caught:
        open_index(config=load_config(overrides={"llm.kind": given}))
    assert "Abc123def456ghi789" not in str(caught.value)
