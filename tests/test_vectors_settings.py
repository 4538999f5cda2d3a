"""The weights of further vectors, as they are configured."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from retrieval_core.config import VectorsConfig

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


@pytest.mark.parametrize("weight", [0.0, -1.0, 1001.0])
def test_weights_lie_above_zero(weight: float):
    """A weight that cannot be one is refused by name."""
    with pytest.raises(ValidationError, match="summary"):
        VectorsConfig(fields=FIELDS, weights={"summary": weight})
