"""Where the server's settings come from, and what is said about wrong ones."""

from __future__ import annotations

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")

from retrieval_core.errors import ConfigurationError
from retrieval_core_mcp import ServerSettings, read_settings


def test_every_source_is_read() -> None:
    """Options name the index and the configuration, the environment has the rest of both."""
    environment = {
        "RETRIEVAL_MCP__MAX_CHARACTERS": "2000",
        "retrieval_mcp__wait_seconds": "0.5",
        "RETRIEVAL_SEARCH__TOP_K": "3",
        "HOME": "/nowhere",
    }
    settings = read_settings("notes.db", "lexical", environment)
    assert (settings.max_characters, settings.wait_seconds) == (2000, 0.5)
    assert (settings.retrieval.index, settings.retrieval.search.top_k) == ("notes.db", 3)
    assert settings.retrieval.embedder.kind == "none"
    assert read_settings() == ServerSettings()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, 10), ({"RETRIEVAL_SEARCH__TOP_K": "5"}, 5), ({"RETRIEVAL_SEARCH__TOP_K": "500"}, 100)],
)
def test_few_results_unless_configured(environment: dict[str, str], expected: int) -> None:
    """Fewer results give longer passages; whoever sets a number gets it, as far as the tool allows."""
    assert read_settings(environment=environment).top_k == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", ""),
        (" \n ", ""),
        ("The handbook\nof Example Ltd", "The documents are about: The handbook of Example Ltd."),
        ("Recipes!", "The documents are about: Recipes!"),
    ],
)
def test_a_description_becomes_a_sentence(given: str, expected: str) -> None:
    """In one line, with a full stop where it has none."""
    assert ServerSettings(description=given).about == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("MAX_CHARACTERS", "999", "RETRIEVAL_MCP__MAX_CHARACTERS: must be 1,000 or more, got '999'"),
        ("WAIT_SECONDS", "soon", "RETRIEVAL_MCP__WAIT_SECONDS: must be a number"),
        ("WAIT_SECONDS", "61", "RETRIEVAL_MCP__WAIT_SECONDS: must be 60 or less"),
        ("DESCRIPTION", "x" * 501, "RETRIEVAL_MCP__DESCRIPTION: must have at most 500 characters"),
        ("WAIT_SECOND", "1", "did you mean RETRIEVAL_MCP__WAIT_SECONDS?"),
        ("RETRIEVAL", "{}", "the library's settings are RETRIEVAL_…"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str, expected: str) -> None:
    """With the variable's whole name, and the nearest one that exists."""
    with pytest.raises(ConfigurationError, match="the server's settings are wrong") as caught:
        read_settings(environment={f"RETRIEVAL_MCP__{name}": value})
    assert expected in str(caught.value)
