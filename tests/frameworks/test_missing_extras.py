"""What is missing is said when a tool or retriever is made, not by an agent that calls it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from retrieval_core.errors import ConfigurationError, MissingExtraError
from retrieval_core.integrations import as_tool

if TYPE_CHECKING:
    from retrieval_core import Index


@pytest.mark.skipif(find_spec("tokenizers") is not None, reason="there is a token counter")
def test_a_tool_needs_a_token_counter(index: Index) -> None:
    with pytest.raises(ConfigurationError, match=r"context\.token_counter"):
        as_tool(index)


@pytest.mark.parametrize(("extra", "package"), [("langchain", "langchain_core"), ("haystack", "haystack")])
def test_a_framework_that_is_missing_is_named_with_its_extra(extra: str, package: str) -> None:
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    with pytest.raises(MissingExtraError, match=rf"\[{extra}\]"):
        import_module(f"retrieval_core.integrations.{extra}")
