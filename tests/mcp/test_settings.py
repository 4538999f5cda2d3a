"""Where the server's settings come from, and what is said about wrong ones."""

from __future__ import annotations

import pytest

pytest.importorskip("retrieval_core_mcp.server", reason="the server's tests need it: pip install retrieval-core-mcp")

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
    ("name", "value", "expected"),
    [
        ("MAX_CHARACTERS", "999", "RETRIEVAL_MCP__MAX_CHARACTERS: Input should be greater than or equal to 1000"),
        ("WAIT_SECONDS", "soon", "RETRIEVAL_MCP__WAIT_SECONDS: Input should be a valid number"),
        ("WAIT", "1", "did you mean RETRIEVAL_MCP__WAIT_SECONDS?"),
        ("RETRIEVAL", "{}", "the library's settings are RETRIEVAL_…"),
    ],
)
def test_wrong_settings_are_named(name: str, value: str, expected: str) -> None:
    """With the variable's whole name, and the nearest one that exists."""
    with pytest.raises(ConfigurationError, match="the server's settings are wrong") as caught:
        read_settings(environment={f"RETRIEVAL_MCP__{name}": value})
    assert expected in str(caught.value)
