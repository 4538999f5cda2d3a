"""What is known of open embedding models."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from retrieval_core.adapters.local_models.known_models import KNOWN_MODELS, ModelFacts, known_model


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_nothing_is_left_open(name: str) -> None:
    """Every model has a dimension, a length, a pooling and both prefixes, and is cut to less than it gives."""
    facts = KNOWN_MODELS[name]
    assert facts.dimension
    assert facts.max_tokens
    assert facts.pooling is not None
    assert facts.query_prefix is not None
    assert facts.passage_prefix is not None
    cut_to = facts.matryoshka_dimensions or ()
    assert list(cut_to) == sorted(cut_to, reverse=True)
    assert all(0 < each < facts.dimension for each in cut_to)


def test_a_name_is_found_in_any_case() -> None:
    """The list of fastembed writes some of them differently; of a name that is not known, nothing is said."""
    assert known_model("snowflake/snowflake-arctic-embed-s") == KNOWN_MODELS["Snowflake/snowflake-arctic-embed-s"]
    assert known_model("intfloat/e5-base-v2").passage_prefix == "passage: "
    assert known_model("me/my-model") == known_model(None) == ModelFacts()


@pytest.mark.skipif(find_spec("fastembed") is None, reason="the extra 'fastembed' is not installed")
def test_dimensions_are_those_that_fastembed_lists() -> None:
    """An independent list of many of these models; most of what is known can be downloaded by it."""
    from fastembed import TextEmbedding

    listed = {each["model"]: each["dim"] for each in TextEmbedding.list_supported_models()}
    both = {name: dimension for name, dimension in listed.items() if known_model(name).dimension is not None}
    assert len(both) > 20
    assert {name: known_model(name).dimension for name in both} == both


def test_facts_of_two_sources() -> None:
    """What the first does not say is taken from the second; what it says stays, blank text and 0 included."""
    first = ModelFacts(dimension=8, query_prefix="", matryoshka_dimensions=())
    second = ModelFacts(dimension=9, max_tokens=5, query_prefix="q", matryoshka_dimensions=(4,))
    assert first | second == ModelFacts(dimension=8, max_tokens=5, query_prefix="", matryoshka_dimensions=())
