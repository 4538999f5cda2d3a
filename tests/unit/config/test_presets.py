"""The presets for product reviews, key by key."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval_core.adapters.embedders.openai import OpenAIEmbedder
from retrieval_core.adapters.registry import build_embedder, build_llm, build_relevance_filter, build_rewriter
from retrieval_core.adapters.relevance_filters.llm import LLMRelevanceFilter
from retrieval_core.adapters.transformers.rewrite import LLMRewriter
from retrieval_core.config import RetrievalConfig, load_config
from retrieval_core.errors import ConfigurationError
from retrieval_core.index.open import open_index
from retrieval_core.testing.fakes import FakeEmbedder
from retrieval_core.testing.fakes_llm import FakeLLM
from retrieval_core.types.filters import MetadataFilter

if TYPE_CHECKING:
    from pathlib import Path

PRESETS = ("ecommerce", "ecommerce-cloud")
DEFAULTS: dict[str, Any] = {
    "query.max_length": 512,
    "query.normalize_unicode": True,
    "embedder.openai.model": "text-embedding-3-large",
    "search.mode": "dense",
    "search.top_k": 4,
    "search.fetch_k": 20,
    "search.lambda_mult": 0.7,
    "search.score_threshold": 0.6,
    "search.search_type": "mmr",
    "relevance_filter.kind": "llm",
    "relevance_filter.llm.prompt": None,
    "rewriter.kind": "llm",
    "rewriter.max_attempts": 2,
    "rewriter.relevance_threshold": 0.5,
    "rewriter.llm.prompt": None,
    "format.template": "Title: {product_name}\nPrice: {price}\nRating: {rating}\nReview: {review_text}",
    "format.delimiter": "\n\n---\n\n",
    "format.include_scores": False,
    "format.max_context_length": 4000,
    "cache.kind": "memory",
    "cache.ttl_seconds": 300,
    "cache.max_size": 1000,
    "retry.max_retries": 3,
    "retry.base_delay": 1,
    "evaluation.kind": "none",
}
"""The specification's defaults, and what they mean here."""

REVIEWS = """\
product_name,price,rating,review_text
Northwind N5,129.99,5,The battery lasts two full days
Northwind N5,129.99,2,The battery is empty by noon
Osprey Pro,899.00,5,The battery lasts a week and a day
Tern Mini,NA,4,The battery lasts all day
"""


def value_of(config: RetrievalConfig, key: str) -> Any:
    section, *rest = key.split(".")
    value = getattr(config, section)
    for name in rest:
        value = getattr(value, name)
    return value


@pytest.mark.parametrize("key", DEFAULTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_the_specifications_defaults(preset: str, key: str) -> None:
    """Every default of the specification holds in both presets."""
    assert value_of(load_config(preset), key) == DEFAULTS[key]


def test_the_two_differ_in_where_index_and_models_are() -> None:
    """One runs on this machine without a key, the other at Pinecone with OpenAI; all else is the same."""
    local, cloud = (load_config(preset).model_dump() for preset in PRESETS)
    kinds = [[config[section].pop("kind") for section in ("store", "embedder", "llm")] for config in (local, cloud)]
    assert kinds == [["sqlite", "local", "none"], ["pinecone", "openai", "openai"]]
    assert local == cloud


def test_the_vendors_names_are_enough_for_the_cloud() -> None:
    """Keys, index and namespace come from the environment, under the names that their vendors use."""
    environment = {
        "OPENAI_API_KEY": "o",
        "PINECONE_API_KEY": "p",
        "PINECONE_INDEX_NAME": "i",
        "PINECONE_NAMESPACE": "n",
    }
    config = load_config("ecommerce-cloud", environment=environment)
    pinecone = config.store.pinecone
    assert pinecone.api_key is not None
    assert (pinecone.api_key.get_secret_value(), pinecone.index_name, pinecone.namespace) == ("p", "i", "n")
    assert isinstance(build_embedder(config.embedder), OpenAIEmbedder)
    assert build_llm(config.llm) is not None


NEEDED = ("OPENAI_API_KEY", "PINECONE_API_KEY", "PINECONE_INDEX_NAME")


@pytest.mark.property("data-retrieval-pipeline", 11)
@given(
    present=st.sets(st.sampled_from(NEEDED)),
    blank=st.sampled_from(["", " ", "\t\n"]) | st.none(),
    namespace=st.booleans(),
    secret=st.text(st.characters(codec="ascii", categories=["Ll", "Nd"]), min_size=12),
)
def test_exactly_what_the_cloud_lacks_is_listed(
    present: set[str], blank: str | None, secret: str, *, namespace: bool
) -> None:
    """All missing variables are told at once, absent or blank, and no others; with all of them the index opens."""
    missing = [name for name in NEEDED if name not in present]
    environment = dict.fromkeys(present, secret) | ({} if blank is None else dict.fromkeys(missing, blank))
    environment |= {"PINECONE_NAMESPACE": "n"} if namespace else {}
    config = load_config("ecommerce-cloud", environment=environment)
    if not missing:
        open_index(config=config).close()
        return
    with pytest.raises(ConfigurationError) as caught:
        open_index(config=config)
    assert caught.value.missing_keys == tuple(missing)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == missing
    assert all((name in str(caught.value)) is (name in missing) for name in NEEDED)
    assert secret not in str(caught.value)


def test_the_environment_has_to_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name of a preset alone reads no environment; the error says how it is done."""
    for name in NEEDED:
        monkeypatch.setenv(name, "set")
    with pytest.raises(ConfigurationError, match=r"load_config\(…, environment=os\.environ\)"):
        open_index(config="ecommerce-cloud")
    open_index(config=load_config("ecommerce-cloud", environment=os.environ)).close()


def test_three_settings_lead_from_one_to_the_other() -> None:
    """What the cloud's preset says can be said in the environment, without another file."""
    kinds = {"RETRIEVAL_STORE__KIND": "pinecone", "RETRIEVAL_EMBEDDER__KIND": "openai", "RETRIEVAL_LLM__KIND": "openai"}
    assert load_config("ecommerce", environment=kinds) == load_config("ecommerce-cloud")


def test_the_stages_with_a_language_model_are_absent_without_one() -> None:
    """The preset names them; they are there as soon as there is a model."""
    config = load_config("ecommerce")
    llm = build_llm(config.llm)
    assert llm is None
    assert build_relevance_filter(config.relevance_filter, llm) is None
    assert build_rewriter(config.rewriter, llm) is None
    assert isinstance(build_relevance_filter(config.relevance_filter, FakeLLM([])), LLMRelevanceFilter)
    assert isinstance(build_rewriter(config.rewriter, FakeLLM([])), LLMRewriter)


def test_a_table_in_the_specifications_own_columns(tmp_path: Path) -> None:
    """Its column ``review_text`` is the text, however short, and its template shows it, under that name and another."""
    (tmp_path / "reviews.csv").write_text(
        "product_name,price,rating,review_text\n"
        '"Northwind N5, 32 GB, black, dual SIM",129.99,5,Lasts long.\n'
        '"Tern Mini, 8 GB, white, single SIM",59.9,4,Small.\n'
    )
    template = "Title: {product_name}\nPrice: {price}\nRating: {rating}\nReview: {review_text}"
    settings = {"index": str(tmp_path / "index.db"), "search.score_threshold": 0}
    for named in ({}, {"format.template": template}):
        config = load_config("ecommerce", settings | named)
        with open_index(config=config, embedder=FakeEmbedder()) as index:
            index.ingest(tmp_path / "reviews.csv")
            shown = index.retrieve("lasts long").formatted_context.split("\n\n---\n\n")
        assert "Title: Northwind N5, 32 GB, black, dual SIM\nPrice: 129.99\nRating: 5\nReview: Lasts long." in shown


def test_reviews_are_found_filtered_and_written(tmp_path: Path) -> None:
    """A table is indexed, and what passes the filter is written with title, price, rating and review."""
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    config = load_config("ecommerce", {"index": str(tmp_path / "index.db"), "search.score_threshold": 0.1})
    with open_index(config=config, embedder=FakeEmbedder()) as index:
        assert index.ingest(tmp_path / "reviews.csv").added == 4
        few = index.retrieve("battery lasts", {"price": {"$lte": 150}, "rating": {"$gte": 4}})
        typed = index.retrieve("battery lasts", MetadataFilter(max_price=150, min_rating=4))
        without_price = index.retrieve("battery lasts", MetadataFilter(product_name_pattern="tern*"))
    assert few.formatted_context == (
        "Title: Northwind N5\nPrice: 129.99\nRating: 5\nReview: The battery lasts two full days"
    )
    assert typed.documents == few.documents
    assert without_price.formatted_context == (
        "Title: Tern Mini\nPrice: N/A\nRating: 4\nReview: The battery lasts all day"
    )
    assert few.degraded == ()
