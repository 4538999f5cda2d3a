"""The settings of a context pack, and how they are read from the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from retrieval_core.compat.context_pack import (
    RerankConfig,
    RetrievalConfig,
)
from retrieval_core.errors import (
    ConfigurationError,
)

if TYPE_CHECKING:
    pass


DEFAULTS = {
    "neighbor_same_page": 1,
    "neighbor_cross_page": 2,
    "include_parents": True,
    "final_max_tokens": 12000,
    "min_primary_hits_to_keep": 3,
}
RERANK_DEFAULTS = {
    "model": "gpt-4o",
    "max_candidates_to_rerank": 50,
    "return_top_n": 15,
    "max_text_chars_per_candidate": 1200,
    "strict_json_output": True,
}
"""The specification's tables."""


def test_the_defaults_are_those_of_the_specification() -> None:
    """Every field of both tables has its name and default; the one without a number has the reranker's."""
    assert RetrievalConfig().model_dump() == {**DEFAULTS, "top_k_dense": 50, "rerank": RERANK_DEFAULTS}
    assert RerankConfig().model_dump() == RERANK_DEFAULTS


def test_settings_cannot_be_changed() -> None:
    """They are values."""
    with pytest.raises(ValidationError, match="frozen"):
        RetrievalConfig().final_max_tokens = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_an_empty_environment_gives_the_defaults() -> None:
    """Blank variables, and those of other programs, do not count."""
    other = {"FINAL_MAX_TOKENS": "  ", "PATH": "/bin", "RERANK_MODEL": "", "MODEL": "no", "RERANK": "{}"}
    assert RetrievalConfig.from_env({}) == RetrievalConfig.from_env(other) == RetrievalConfig()


def test_every_setting_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its name in capitals, those of the reranker with a prefix; either case is read, capitals win."""
    values = {
        "NEIGHBOR_SAME_PAGE": "4",
        "neighbor_cross_page": "5",
        "INCLUDE_PARENTS": "false",
        "FINAL_MAX_TOKENS": " 600 ",
        "final_max_tokens": "700",
        "MIN_PRIMARY_HITS_TO_KEEP": "0",
        "TOP_K_DENSE": "7",
        "RERANK_MODEL": "gpt-9",
        "RERANK_MAX_CANDIDATES_TO_RERANK": "8",
        "RERANK_RETURN_TOP_N": "9",
        "RERANK_MAX_TEXT_CHARS_PER_CANDIDATE": "10",
        "RERANK_STRICT_JSON_OUTPUT": "0",
    }
    expected = RetrievalConfig(
        neighbor_same_page=4,
        neighbor_cross_page=5,
        include_parents=False,
        final_max_tokens=600,
        min_primary_hits_to_keep=0,
        top_k_dense=7,
        rerank=RerankConfig(
            model="gpt-9",
            max_candidates_to_rerank=8,
            return_top_n=9,
            max_text_chars_per_candidate=10,
            strict_json_output=False,
        ),
    )
    assert RetrievalConfig.from_env(values) == expected
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    assert RetrievalConfig.from_env() == expected


def test_all_wrong_variables_are_told_at_once() -> None:
    """Each problem begins with the variable's name and says what was given."""
    wrong = {"FINAL_MAX_TOKENS": "many", "TOP_K_DENSE": "0", "rerank_return_top_n": "-1", "INCLUDE_PARENTS": "true"}
    with pytest.raises(ConfigurationError) as caught:
        RetrievalConfig.from_env(wrong)
    problems = sorted(caught.value.problems)
    assert [problem.split(":")[0] for problem in problems] == ["FINAL_MAX_TOKENS", "RERANK_RETURN_TOP_N", "TOP_K_DENSE"]
    assert "got 'many'" in problems[0]
    assert all(problem in str(caught.value) for problem in problems)
