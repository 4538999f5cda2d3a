"""Tokens are read from the settings and found in constant time."""

from __future__ import annotations

import pytest

pytest.importorskip("retrieval_core_mcp", reason="the server's tests need it: pip install retrieval-core-mcp")
pytest.importorskip("tokenizers", reason="contexts are counted in tokens: pip install 'retrieval-core[local]'")

from hypothesis import given
from hypothesis import strategies as st

from retrieval_core_mcp.http.tokens import find_token, read_tokens
from support.http_service import hashed


@given(
    st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True),
    st.text(),
    st.sampled_from(["Bearer", "bearer"]),
)
def test_exactly_the_known_tokens_are_found(tokens: list[str], other: str, scheme: str) -> None:
    """Whatever characters a token has, only the same ones are let in; spaces around them do not count."""

    def sent(text: str) -> str:
        return text.encode().decode("latin-1")

    tokens = list(dict.fromkeys(token.strip(" \t") for token in tokens if token.strip(" \t")))
    known = read_tokens(hashed(token, f"tenant {number}") for number, token in enumerate(tokens))
    for number, token in enumerate(tokens):
        found = find_token(known, f"{scheme} {sent(token)} ")
        assert found is not None
        assert found.tenant == f"tenant {number}"
    assert (find_token(known, f"{scheme} {sent(other)}") is not None) == (other.strip(" \t") in tokens)
    assert find_token(known, sent(other)) is None or other.lower().startswith("bearer ")
    assert find_token(known, None) is None
