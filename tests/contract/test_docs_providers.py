"""The configurations of docs/providers.md and docs/stores.md load, and make the objects that the page speaks of."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retrieval_core.config import load_config
from support.building import (
    MAPPED,
    build_cache,
    build_embedder,
    build_llm,
    build_relevance_filter,
    build_rewriter,
    build_store,
)

if TYPE_CHECKING:
    from retrieval_core.config import RetrievalConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/providers.md").read_text(encoding="utf-8")
STORES = (ROOT / "docs/stores.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml\n(.*?)^```$", PAGE + STORES, flags=re.MULTILINE | re.DOTALL)
KEYS = {"OPENAI_API_KEY": "o", "PINECONE_API_KEY": "p", "CO_API_KEY": "c"}


def loaded(example: str, folder: Path) -> RetrievalConfig:
    file = folder / "settings.toml"
    file.write_text(example, encoding="utf-8")
    return load_config(file, environment=KEYS)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_loads_and_builds(example: str, tmp_path: Path) -> None:
    """Each example has known settings alone, and nothing that it asks for is missing but what is at the service."""
    config = loaded(example, tmp_path)
    assert config != load_config(environment=KEYS)
    if config.embedder.local.model_folder is not None:  # which is read when the embedder is made
        folder = tmp_path / config.embedder.local.model_folder
        for name in (config.embedder.local.file or "model.onnx", "tokenizer.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        config = loaded(f"{example}\n".replace(str(config.embedder.local.model_folder), str(folder)), tmp_path)
    embedder = build_embedder(config.embedder)
    build_store(config.store, tmp_path / "index.db", embedder)
    llm = build_llm(config.llm)
    assert (llm is not None) is ("[llm]" in example)
    relevance_filter, rewriter = (
        build_relevance_filter(config.relevance_filter, llm),
        build_rewriter(config.rewriter, llm),
    )
    assert (relevance_filter is not None) is ("[relevance_filter]" in example)
    assert (rewriter is not None) is ("[rewriter]" in example)
    build_cache(config.cache)


def test_there_is_an_example_for_each_provider() -> None:
    """Every kind that the page is about is configured in one of its examples."""
    text = "".join(EXAMPLES)
    assert len(EXAMPLES) >= 8
    kinds = ("pinecone", "openai", "redis", "local", "fastembed")
    for wanted in (*(f'kind = "{kind}"' for kind in kinds), "base_url", "fields"):
        assert wanted in text


def test_keys_of_openai_go_to_openai_alone(tmp_path: Path) -> None:
    """A server of one's own is not sent the key of the environment, as the page says."""
    for example in EXAMPLES:
        config = loaded(example, tmp_path)
        for section in (config.embedder, config.llm):
            has_key = section.openai.api_key is not None
            assert has_key is (section.kind == "openai" and section.openai.base_url is None)


def test_the_fields_that_can_be_named() -> None:
    """The page lists exactly the fields that an index of others can be mapped to."""
    sentence = re.search(r"You can map (.*?)\.", PAGE, flags=re.DOTALL)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == MAPPED


def test_the_extras_exist() -> None:
    """The table of extras names such that the package has, and leaves none of its providers out."""
    project = tomllib.loads((ROOT / "packages/retrieval_core/pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    named = set(re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE))
    configured = set(re.findall(r'^kind = "(\w+)"', PAGE, flags=re.MULTILINE)) & set(extras)
    assert configured | {"qdrant", "languages", "tokens", "otel", "ragas"} <= named <= set(extras)
