"""The weights of further vectors, as they are configured."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from retrieval_core.config import VectorsConfig, load_config
from retrieval_core.config.model import MOST_VECTORS
from retrieval_core.errors import ConfigurationError

FIELDS = {"title": "title", "summary": "metadata.summary"}


def test_the_best_vector_counts_by_default():
    """Without further settings, all vectors of a passage have the same weight, and the highest cosine is its score."""
    config = VectorsConfig(fields=FIELDS)
    assert config.rule == "max"
    assert config.weighted == {"title": 1.0, "summary": 1.0}


def test_a_mean_gives_further_vectors_less():
    """The default weight depends on the rule, and a given one does not."""
    config = VectorsConfig(fields=FIELDS, rule="mean", weights={"title": 0.7})
    assert config.weighted == {"title": 0.7, "summary": 0.3}


@pytest.mark.parametrize("weight", [0.0, -1.0, 1001.0, float("nan"), float("inf")])
def test_weights_lie_above_zero(weight: float):
    """A weight that cannot be one is refused by name."""
    with pytest.raises(ValidationError, match="summary"):
        VectorsConfig(fields=FIELDS, weights={"summary": weight})


@pytest.mark.parametrize("weight", [0.001, 1000.0])
def test_the_limits_of_weights_are_weights(weight: float):
    """What lies just within the bounds is taken as it is."""
    assert VectorsConfig(fields=FIELDS, weights={"summary": weight}).weighted["summary"] == weight


def test_a_weight_without_its_vector_is_told_when_loading():
    """Otherwise the first query would find out; what there is is named."""
    with pytest.raises(ConfigurationError) as raised:
        load_config(overrides={"vectors.fields": FIELDS, "vectors.weights": {"titel": 1.0, "title": 1.0}})
    (problem,) = raised.value.problems
    assert problem.startswith("vectors.weights: there is no vector titel; vectors.fields has summary, title")


def test_weights_alone_name_the_vectors_of_a_store():
    """A retriever asks a store for vectors by weights alone, as it need not know what was embedded for them."""
    assert VectorsConfig(weights={"title": 0.5}).weighted == {"title": 0.5}


def test_wrong_fields_are_told_once():
    """Where the fields are wrong, the weights are not held against them too."""
    with pytest.raises(ConfigurationError) as raised:
        load_config(overrides={"vectors.fields": {"title": "heading"}, "vectors.weights": {"title": 1.0}})
    (problem,) = raised.value.problems
    assert problem.startswith("vectors.fields: 'heading' cannot be embedded")


@pytest.mark.parametrize("name", ["", "Title", "1st", "_own", "with-dash", "a" * 33, "title\n"])
def test_names_of_vectors(name: str):
    """Names become names of columns, so they are plain."""
    with pytest.raises(ValidationError, match="is not a vector name"):
        VectorsConfig(fields={name: "title"})


@pytest.mark.parametrize("source", ["", "text", "metadata", "metadata.", "Title"])
def test_what_can_be_embedded(source: str):
    """Anything else but title, headings and a named field of the metadata is refused."""
    with pytest.raises(ValidationError, match="cannot be embedded; use title, section or metadata"):
        VectorsConfig(fields={"own": source})


def test_all_sources_and_the_longest_name_are_taken():
    """What is allowed is kept as it was given."""
    fields = {"a" * 32: "title", "b_2": "section", "c": "metadata.a.b"}
    assert VectorsConfig(fields=fields).fields == fields


def test_the_number_of_vectors_is_bounded():
    """Each is a search of its own, so there is a bound, and it can be reached."""
    names = [f"v{number}" for number in range(MOST_VECTORS + 1)]
    assert len(VectorsConfig(fields=dict.fromkeys(names[1:], "title")).weighted) == MOST_VECTORS
    with pytest.raises(ValidationError, match=f"at most {MOST_VECTORS} further vectors are possible, got {len(names)}"):
        VectorsConfig(fields=dict.fromkeys(names, "title"))
